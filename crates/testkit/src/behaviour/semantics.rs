// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others see of operations, and in which order: the axes of the semantics beside persistency.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use terrace_core::{
    ATOMIC_BYTES_MAX, Access, Atomicity, Backend, BatchOrdering, Concurrency, Consistency, Create,
    ErrorKind, Hint, Key, Object, ObjectExt, Op, Open, Reply, Request, Result, Semantics,
};

use super::*;

/// Longer than any page, and cut by every stack that cuts.
const WHOLE_BYTES: usize = 96 << 10;

fn asking(backend: &dyn Backend, atomicity: Atomicity) -> Semantics {
    Semantics { atomicity, ..semantics(backend) }
}

/// An object whose operations are to be seen whole, made if it is missing.
fn open_whole(backend: &dyn Backend, name: &str) -> Box<dyn Object> {
    let how = Open::create().with_semantics(asking(backend, Atomicity::Operation));
    backend.open(&key(name), &how).expect("the capability says so")
}

fn gives_operations(backend: &dyn Backend) -> bool {
    backend.capability().atomicity >= Atomicity::Operation
}

fn execute(
    backend: &dyn Backend,
    requests: Vec<Request<'_>>,
    semantics: &Semantics,
) -> Vec<Result<Reply>> {
    let mut operations: Vec<Op<'_>> = requests.into_iter().map(Op::new).collect();
    backend.execute(&mut operations, semantics);
    operations.into_iter().map(|operation| operation.outcome.expect("a filled slot")).collect()
}

fn create<'a>(key: &'a Key, data: &'a [u8]) -> Request<'a> {
    Request::Create { key, data, hint: Hint::default() }
}

/// All bytes of one version, or nothing at all.
#[track_caller]
fn assert_one_version(backend: &dyn Backend, bytes: &[u8], length_bytes: usize) {
    assert!(bytes.is_empty() || bytes.len() == length_bytes, "{} bytes", bytes.len());
    if backend.capability().keeps_data {
        let other = bytes.iter().position(|byte| *byte != bytes[0]);
        assert_eq!(other, None, "torn: two versions in one read");
    }
}

/// Goal: an atomicity above the capability's is refused for reading and for writing, through
/// handles and in batches, and nothing is done.
pub fn atomicity_is_given_or_refused(backend: &dyn Backend) {
    drop(filled(backend, "there", b"abc"));
    let there = key("there");
    for atomicity in Atomicity::ALL.iter().copied() {
        let asked = asking(backend, atomicity);
        let new = key(atomicity.word());
        let how = |create, access| Open { create, access, semantics: asked, ..Open::default() };
        let mut buffer = [0; 3];
        if atomicity <= backend.capability().atomicity {
            backend.open(&there, &how(Create::Never, Access::Read)).expect("within");
            backend.open(&new, &how(Create::New, Access::Write)).expect("within");
            continue;
        }
        for access in [Access::Read, Access::Write] {
            let opened = backend.open(&there, &how(Create::Never, access));
            assert_fails(opened, ErrorKind::Unsupported);
        }
        assert_fails(backend.open(&new, &how(Create::New, Access::Write)), ErrorKind::Unsupported);
        let requests = vec![
            create(&new, b"x"),
            Request::Write { key: &there, offset_bytes: 0, data: b"x" },
            Request::Read { key: &there, offset_bytes: 0, buffer: &mut buffer },
            Request::Stat { key: &there },
            Request::Delete { key: &there },
        ];
        for outcome in execute(backend, requests, &asked) {
            assert_fails(outcome, ErrorKind::Unsupported);
        }
        assert_fails(backend.stat(&new), ErrorKind::NotFound);
        assert_reads(backend, &*opened(backend, "there"), 0, b"abc");
    }
}

/// Goal: readers that ask for it see each write whole, wherever an object is cut or moves to.
pub fn whole_writes_are_never_torn(backend: &dyn Backend) {
    if !gives_operations(backend) {
        return;
    }
    let writers = [open_whole(backend, "a"), open_whole(backend, "a")];
    writers[0].write(0, &[1; WHOLE_BYTES]).expect("write");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_done = &is_done;
        for through_batches in [false, true] {
            scope.spawn(move || {
                let reader = open_whole(backend, "a");
                let mut buffer = vec![0; WHOLE_BYTES];
                while !is_done.load(Ordering::SeqCst) {
                    let count = if through_batches {
                        let key = key("a");
                        let read =
                            Request::Read { key: &key, offset_bytes: 0, buffer: &mut buffer };
                        let asked = asking(backend, Atomicity::Operation);
                        match execute(backend, vec![read], &asked).remove(0) {
                            Ok(Reply::Count(count)) => count,
                            other => panic!("{other:?}"),
                        }
                    } else {
                        reader.read(0, &mut buffer).expect("read")
                    };
                    assert_eq!(count, WHOLE_BYTES);
                    assert_one_version(backend, &buffer[..count], WHOLE_BYTES);
                }
            });
        }
        let _over = SetOnDrop(is_done);
        thread::scope(|scope| {
            for (index, writer) in writers.iter().enumerate() {
                scope.spawn(move || {
                    for version in 1..=40u8 {
                        let data = vec![version * 2 + index as u8; WHOLE_BYTES];
                        let (head, tail) = data.split_at(1000);
                        writer.write_at(0, &slices(&[head, tail])).expect("write");
                    }
                });
            }
        });
    });
}

/// Goal: an append is there with all of its bytes or not at all, by its bytes and by the size.
pub fn whole_appends_are_never_torn(backend: &dyn Backend) {
    const PART_BYTES: usize = 20_000;
    const PARTS: usize = 60;
    if !gives_operations(backend) {
        return;
    }
    let log = open_whole(backend, "log");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let reader = open_whole(backend, "log");
            let mut buffer = vec![0; 2 * PART_BYTES];
            while !is_done.load(Ordering::SeqCst) {
                let size = size_bytes(&*reader) as usize;
                assert_eq!(size % PART_BYTES, 0, "a part of an append is counted");
                let asked = asking(backend, Atomicity::Operation);
                let stat = execute(backend, vec![Request::Stat { key: &key("log") }], &asked);
                let Ok(Reply::Stat(stat)) = &stat[0] else { panic!("{stat:?}") };
                assert_eq!(stat.size_bytes as usize % PART_BYTES, 0);
                let start = size.saturating_sub(PART_BYTES);
                let count = reader.read(start as u64, &mut buffer).expect("read");
                assert_eq!(count % PART_BYTES, 0, "a part of an append is read");
                for part in buffer[..count].chunks(PART_BYTES) {
                    assert_one_version(backend, part, PART_BYTES);
                }
            }
        });
        let _over = SetOnDrop(&is_done);
        for number in 0..PARTS {
            let part = [number as u8 + 1; PART_BYTES];
            let start = log.append(&slices(&[&part[..7], &part[7..]])).expect("append");
            assert_eq!(start as usize, number * PART_BYTES);
        }
    });
}

/// Goal: an object that a batch creates is not there, or there with all of its bytes.
pub fn whole_creates_are_never_torn(backend: &dyn Backend) {
    const ROUNDS: usize = 40;
    if !gives_operations(backend) {
        return;
    }
    let asked = asking(backend, Atomicity::Operation);
    let names: Vec<Key> = (0..ROUNDS).map(|round| key(&format!("new-{round}"))).collect();
    let at = AtomicU64::new(0);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let how = Open::read().with_semantics(asked);
            while !is_done.load(Ordering::SeqCst) {
                let name = &names[at.load(Ordering::SeqCst) as usize];
                let Ok(object) = backend.open(name, &how) else { continue };
                let mut buffer = vec![0; WHOLE_BYTES];
                let count = object.read(0, &mut buffer).expect("read");
                assert_eq!(count, WHOLE_BYTES, "an object is seen before its bytes");
                assert_one_version(backend, &buffer, WHOLE_BYTES);
            }
        });
        let _over = SetOnDrop(&is_done);
        let data = [7; WHOLE_BYTES];
        for (round, name) in names.iter().enumerate() {
            at.store(round as u64, Ordering::SeqCst);
            let other = key(&format!("beside-{round}"));
            let both = vec![create(name, &data), create(&other, &data)];
            let outcomes = execute(backend, both, &asked);
            assert!(outcomes.iter().all(|one| matches!(one, Ok(Reply::Done))), "{outcomes:?}");
        }
    });
}

/// Goal: an operation with more bytes than can be seen whole is refused and does nothing.
pub fn whole_operations_have_a_bound(backend: &dyn Backend) {
    if !gives_operations(backend) {
        return;
    }
    let object = open_whole(backend, "a");
    object.write(0, b"abc").expect("write");
    let mut long = vec![1; ATOMIC_BYTES_MAX + 1];
    let (head, tail) = long.split_at(10);
    let parts = [head, tail];
    let cut = slices(&parts);
    assert_fails(object.write_at(0, &cut), ErrorKind::Unsupported);
    assert_fails(object.append(&cut), ErrorKind::Unsupported);
    let asked = asking(backend, Atomicity::Operation);
    let (there, new) = (key("a"), key("new"));
    let requests =
        vec![create(&new, &long), Request::Write { key: &there, offset_bytes: 0, data: &long }];
    for outcome in execute(backend, requests, &asked) {
        assert_fails(outcome, ErrorKind::Unsupported);
    }
    assert_fails(object.read(0, &mut long), ErrorKind::Unsupported);
    assert_fails(backend.stat(&new), ErrorKind::NotFound);
    assert_eq!(size_bytes(&*object), 3);
    assert_reads(backend, &*object, 0, b"abc");
    // As much as the bound can be done.
    object.write(0, &long[..ATOMIC_BYTES_MAX]).expect("write");
    assert_eq!(object.read(0, &mut long[..ATOMIC_BYTES_MAX]).expect("read"), ATOMIC_BYTES_MAX);
}

/// Goal: whatever is promised and however little is demanded, what was acknowledged is seen at
/// once, through any handle.
pub fn less_is_met_by_more(backend: &dyn Backend) {
    let reader_semantics = semantics(backend);
    for concurrency in Concurrency::ALL.iter().copied() {
        for consistency in Consistency::ALL.iter().copied() {
            for ordering in BatchOrdering::ALL.iter().copied() {
                let asked = Semantics { concurrency, consistency, ordering, ..semantics(backend) };
                let name = key(&format!("{concurrency}-{consistency}-{ordering}"));
                let outcomes = execute(backend, vec![create(&name, b"aaa")], &asked);
                assert!(matches!(outcomes[0], Ok(Reply::Done)), "{outcomes:?}");
                let reader = backend.open(&name, &Open::read().with_semantics(reader_semantics));
                let reader = reader.expect("it is there");
                let writer = backend.open(&name, &Open::write().with_semantics(asked));
                writer.expect("it is there").write(1, b"bbb").expect("write");
                assert_reads(backend, &*reader, 0, b"abbb");
                let more = Request::Write { key: &name, offset_bytes: 4, data: b"c" };
                let outcomes = execute(backend, vec![more], &asked);
                assert!(matches!(outcomes[0], Ok(Reply::Done)), "{outcomes:?}");
                assert_reads(backend, &*reader, 0, b"abbbc");
            }
        }
    }
}

/// Goal: of a strict batch, no reader sees an operation without its predecessor, also where they
/// are about different objects; one that fails does not stop those behind it.
pub fn a_strict_batch_takes_effect_in_order(backend: &dyn Backend) {
    const ROUNDS: u64 = 30;
    let strict = Semantics { ordering: BatchOrdering::Strict, ..semantics(backend) };
    // The last comes first by name, so that an order by names shows.
    let names: Vec<Key> = (0..8).map(|index| key(&format!("object-{}", 9 - index))).collect();
    for name in &names {
        let outcomes = execute(backend, vec![create(name, &0u64.to_le_bytes())], &strict);
        assert!(matches!(outcomes[0], Ok(Reply::Done)), "{outcomes:?}");
    }
    let missing = key("missing");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let how = Open::read().with_semantics(semantics(backend));
            let objects: Vec<_> =
                names.iter().map(|name| backend.open(name, &how).expect("open")).collect();
            let round = |object: &dyn Object| {
                let mut bytes = [0; 8];
                object.read_exact(0, &mut bytes).expect("read");
                u64::from_le_bytes(bytes)
            };
            while !is_done.load(Ordering::SeqCst) {
                // From the last to the first: a reader that has seen an operation sees those before
                // it.
                let seen: Vec<_> = objects.iter().rev().map(|object| round(&**object)).collect();
                assert!(seen.is_sorted(), "from the last to the first: {seen:?}");
            }
        });
        let _over = SetOnDrop(&is_done);
        for round in 1..=ROUNDS {
            let data = round.to_le_bytes();
            let new: Vec<Key> =
                (0..4).map(|index| key(&format!("new-{round}-{}", 9 - index))).collect();
            let mut requests: Vec<_> = names
                .iter()
                .map(|key| Request::Write { key, offset_bytes: 0, data: &data })
                .collect();
            requests.insert(3, Request::Write { key: &missing, offset_bytes: 0, data: &data });
            requests.extend(new.iter().map(|key| create(key, &data)));
            for (index, outcome) in execute(backend, requests, &strict).into_iter().enumerate() {
                if index == 3 {
                    assert_fails(outcome, ErrorKind::NotFound);
                } else {
                    assert!(matches!(outcome, Ok(Reply::Done)), "{index}: {outcome:?}");
                }
            }
        }
    });
}

/// Goal: neighbouring writes and reads of one object in a batch do what they do one by one: each
/// has its own outcome, and none goes anywhere else.
pub fn runs_in_a_batch_are_as_one_by_one(backend: &dyn Backend) {
    const LENGTH_BYTES: usize = 40;
    let mut random = terrace_core::Random::new(77);
    let name = key("a");
    for atomicity in [Atomicity::None, Atomicity::Operation] {
        if atomicity > backend.capability().atomicity {
            continue;
        }
        let asked = asking(backend, atomicity);
        let outcomes = execute(backend, vec![create(&name, &[])], &asked);
        assert!(matches!(outcomes[0], Ok(Reply::Done)), "{outcomes:?}");
        let mut expected = Vec::new();
        for round in 0..60u8 {
            let mut at = random.below(2000);
            let mut places = Vec::new();
            for _ in 0..random.below(30) {
                let length = random.below(LENGTH_BYTES as u64);
                places.push((at, length as usize));
                at = if random.chance(0.2) { random.below(2000) } else { at + length };
            }
            // Beyond 63 bits, in the middle of the others.
            places.insert(places.len() / 2, (i64::MAX as u64 - 1, 2));
            let data: Vec<Vec<u8>> =
                places.iter().map(|(_, length)| vec![round + 1; *length]).collect();
            let writes = places.iter().zip(&data).map(|((offset_bytes, _), data)| Request::Write {
                key: &name,
                offset_bytes: *offset_bytes,
                data,
            });
            let outcomes = execute(backend, writes.collect(), &asked);
            for ((at, length), outcome) in places.iter().zip(outcomes) {
                let at = *at as usize;
                if at > 1 << 40 {
                    assert_fails(outcome, ErrorKind::Invalid);
                    continue;
                }
                assert!(matches!(outcome, Ok(Reply::Done)), "{outcome:?}");
                if *length > 0 {
                    expected.resize(expected.len().max(at + length), 0);
                    expected[at..at + length].fill(round + 1);
                }
            }
            let mut buffers: Vec<Vec<u8>> =
                places.iter().map(|(_, length)| vec![0xee; *length]).collect();
            let reads = places.iter().zip(&mut buffers).map(|((offset_bytes, _), buffer)| {
                Request::Read { key: &name, offset_bytes: *offset_bytes, buffer }
            });
            let outcomes = execute(backend, reads.collect(), &asked);
            for (((at, length), buffer), outcome) in places.iter().zip(&buffers).zip(outcomes) {
                let at = *at as usize;
                if at > 1 << 40 {
                    assert_fails(outcome, ErrorKind::Invalid);
                    continue;
                }
                let there = &expected[at.min(expected.len())..(at + length).min(expected.len())];
                assert!(matches!(outcome, Ok(Reply::Count(count)) if count == there.len()));
                if backend.capability().keeps_data {
                    assert_eq!(&buffer[..there.len()], there);
                }
                assert!(buffer[there.len()..].iter().all(|byte| *byte == 0xee));
            }
        }
        backend.delete(&name).expect("delete");
    }
}
