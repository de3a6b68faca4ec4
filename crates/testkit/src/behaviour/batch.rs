// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches.

use terrace_core::{
    Backend, BackendExt, ErrorKind, Hint, Key, Op, Persistency, Reply, Request, Result, Semantics,
};

use super::*;

fn execute(backend: &dyn Backend, requests: Vec<Request<'_>>) -> Vec<Result<Reply>> {
    let mut operations: Vec<Op<'_>> = requests.into_iter().map(Op::new).collect();
    backend.execute(&mut operations, &semantics(backend));
    operations.into_iter().map(|operation| operation.outcome.expect("a filled slot")).collect()
}

fn create<'a>(key: &'a Key, data: &'a [u8]) -> Request<'a> {
    Request::Create { key, data, hint: Hint::default() }
}

fn done(outcome: &Result<Reply>) -> bool {
    matches!(outcome, Ok(Reply::Done))
}

/// Goal: every slot holds the outcome of its own operation.
pub fn a_batch_fills_every_slot(backend: &dyn Backend) {
    drop(filled(backend, "there", b"old bytes"));
    drop(filled(backend, "doomed", b"x"));
    let (there, new, doomed) = (key("there"), key("new"), key("doomed"));
    let mut buffer = [0xee; 20];
    let outcomes = execute(
        backend,
        vec![
            create(&new, b"abc"),
            Request::Read { key: &there, offset_bytes: 4, buffer: &mut buffer },
            Request::Delete { key: &doomed },
            Request::Stat { key: &there },
        ],
    );
    assert!(done(&outcomes[0]) && done(&outcomes[2]), "{outcomes:?}");
    assert!(matches!(outcomes[1], Ok(Reply::Count(5))), "{outcomes:?}");
    assert!(matches!(outcomes[3], Ok(Reply::Stat(stat)) if stat.size_bytes == 9), "{outcomes:?}");
    if backend.capability().keeps_data {
        assert_eq!(&buffer[..5], b"bytes");
    }
    assert_eq!(buffer[5..], [0xee; 15]);
    assert_reads(backend, &*opened(backend, "new"), 0, b"abc");
    assert_fails(backend.stat(&doomed), ErrorKind::NotFound);
}

/// Goal: operations on one object run in the order given.
pub fn a_batch_keeps_the_order_on_an_object(backend: &dyn Backend) {
    let key = key("a");
    let (mut first, mut second) = ([0; 8], [0; 8]);
    let outcomes = execute(
        backend,
        vec![
            create(&key, b"aaaa"),
            Request::Write { key: &key, offset_bytes: 2, data: b"bbbb" },
            Request::Read { key: &key, offset_bytes: 0, buffer: &mut first },
            Request::Delete { key: &key },
            create(&key, b"c"),
            Request::Read { key: &key, offset_bytes: 0, buffer: &mut second },
            Request::Stat { key: &key },
        ],
    );
    assert!([0, 1, 3, 4].iter().all(|index| done(&outcomes[*index])), "{outcomes:?}");
    assert!(matches!(outcomes[2], Ok(Reply::Count(6))), "{outcomes:?}");
    assert!(matches!(outcomes[5], Ok(Reply::Count(1))), "{outcomes:?}");
    assert!(matches!(outcomes[6], Ok(Reply::Stat(stat)) if stat.size_bytes == 1), "{outcomes:?}");
    if backend.capability().keeps_data {
        assert_eq!((&first[..6], &second[..1]), (&b"aabbbb"[..], &b"c"[..]));
    }
}

/// Goal: an operation that fails leaves the others alone.
pub fn a_failure_stays_in_its_slot(backend: &dyn Backend) {
    drop(filled(backend, "there", b"abc"));
    let (there, missing, new) = (key("there"), key("missing"), key("new"));
    let mut buffer = [0; 3];
    let outcomes = execute(
        backend,
        vec![
            create(&there, b"x"),
            Request::Write { key: &missing, offset_bytes: 0, data: b"x" },
            create(&new, b""),
            Request::Read { key: &missing, offset_bytes: 0, buffer: &mut buffer },
            Request::Write { key: &there, offset_bytes: u64::MAX, data: b"x" },
            Request::Write { key: &there, offset_bytes: 3, data: b"d" },
            Request::Delete { key: &missing },
            Request::Stat { key: &missing },
        ],
    );
    let kinds: Vec<Option<ErrorKind>> =
        outcomes.iter().map(|outcome| outcome.as_ref().err().map(|error| error.kind())).collect();
    let not_found = Some(ErrorKind::NotFound);
    let (exists, invalid) = (Some(ErrorKind::Exists), Some(ErrorKind::Invalid));
    let expected = [exists, not_found, None, not_found, invalid, None, not_found, not_found];
    assert_eq!(kinds, expected);
    assert_reads(backend, &*opened(backend, "there"), 0, b"abcd");
    assert_eq!(backend.list_all(NAMESPACE, "").expect("list"), [new, there]);
}

/// Goal: a batch of nothing does nothing.
pub fn an_empty_batch_is_fine(backend: &dyn Backend) {
    assert!(execute(backend, Vec::new()).is_empty());
    assert_eq!(backend.namespaces().expect("namespaces"), Vec::<String>::new());
}

/// Goal: hundreds of operations are carried out, each on its object.
pub fn a_large_batch_is_carried_out(backend: &dyn Backend) {
    let keys: Vec<Key> = (0..300).map(|index| key(&format!("object-{index}"))).collect();
    let data: Vec<Vec<u8>> = (0..300).map(|index| vec![index as u8; index]).collect();
    let creates = keys.iter().zip(&data).map(|(key, data)| create(key, data)).collect();
    assert!(execute(backend, creates).iter().all(done));
    let mut buffers = vec![vec![0; 300]; 300];
    let reads = keys
        .iter()
        .zip(&mut buffers)
        .map(|(key, buffer)| Request::Read { key, offset_bytes: 0, buffer })
        .collect();
    for (index, outcome) in execute(backend, reads).into_iter().enumerate() {
        assert_eq!(outcome.expect("read"), Reply::Count(index));
        assert!(!backend.capability().keeps_data || buffers[index][..index] == data[index]);
    }
    let deletes = keys.iter().map(|key| Request::Delete { key }).collect();
    assert!(execute(backend, deletes).iter().all(done));
    assert_eq!(backend.list_all(NAMESPACE, "").expect("list"), []);
}

/// Goal: a level above the capability's is refused for creating and writing, and nothing is done;
/// one within it is kept to.
pub fn a_batch_refuses_stronger_semantics(backend: &dyn Backend) {
    let there = key("there");
    drop(filled(backend, "there", b"abc"));
    for persistency in [Persistency::None, Persistency::Process, Persistency::Storage] {
        let new = key(persistency.word());
        let mut operations = [
            Op::new(create(&new, b"x")),
            Op::new(Request::Write { key: &there, offset_bytes: 1, data: b"BCD" }),
            Op::new(Request::Stat { key: &there }),
        ];
        let before_bytes = backend.stat(&there).expect("stat").size_bytes;
        backend.execute(&mut operations, &Semantics::at_level(persistency));
        let [created, written, stat] =
            operations.map(|operation| operation.outcome.expect("a filled slot"));
        let Ok(Reply::Stat(stat)) = stat else { panic!("asking promises nothing: {stat:?}") };
        if persistency > backend.capability().persistency {
            assert_fails(created, ErrorKind::Unsupported);
            assert_fails(written, ErrorKind::Unsupported);
            assert_fails(backend.stat(&new), ErrorKind::NotFound);
            assert_eq!(stat.size_bytes, before_bytes);
        } else {
            assert!(done(&created) && done(&written), "{created:?} {written:?}");
            assert_eq!(stat.size_bytes, 4);
        }
    }
}
