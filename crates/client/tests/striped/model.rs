// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random operations on many stores as one, compared with one store.

use std::io::IoSlice;

use terrace_backends::object::Memory;
use terrace_client::striped::{Distribution, Striped};
use terrace_core::{
    Backend, BackendExt, Create, End, ErrorKind, Hint, Key, Object, ObjectExt, Op, Open, Random,
    Reply, Request, Result,
};
use terrace_testkit::seeds;

use super::cluster::{
    CAPACITY_BYTES, DISTRIBUTIONS, VOLATILE, bytes, content, how, key, read_all, servers, striped,
};

const STEPS: usize = 400;

/// Lengths and offsets stay below this: some dozens of stripes.
const OFFSET_MAX: u64 = 200;

struct Run {
    random: Random,
    model: Memory,
    /// Two processes that use the same servers.
    clients: [Striped; 2],
}

#[test]
fn many_stores_are_one() {
    for seed in seeds(16) {
        let servers = servers(1 + u128::from(seed % 4));
        let distribution = DISTRIBUTIONS[seed as usize / 4 % DISTRIBUTIONS.len()];
        eprintln!("TERRACE_SEED={seed}: {distribution:?} over {}", servers.len());
        let clients = [(); 2].map(|()| striped(&servers, distribution));
        let model = Memory::new(CAPACITY_BYTES);
        Run { random: Random::new(seed), model, clients }.run(distribution);
    }
}

impl Run {
    fn run(&mut self, distribution: Distribution) {
        for step in 0..STEPS {
            match self.random.below(10) {
                0 => self.batch(),
                1 => self.list(),
                2 => self.delete(),
                _ => self.change(),
            }
            self.compare(&format!("step {step} of {distribution:?}"));
        }
    }

    fn client(&mut self) -> &'static str {
        ["first", "second"][self.random.below(2) as usize]
    }

    fn name(&mut self) -> Key {
        key(["a", "b", "c/d", "\u{10ffff}"][self.random.below(4) as usize])
    }

    fn data(&mut self) -> Vec<u8> {
        let length = self.random.below(OFFSET_MAX) as usize;
        bytes(self.random.next_u64() as u8, length)
    }

    fn of(&self, client: &str) -> &Striped {
        &self.clients[usize::from(client == "second")]
    }

    /// Opens an object in both, each time in another way, and does the same with both.
    fn change(&mut self) {
        let create = [Create::New, Create::IfMissing, Create::IfMissing, Create::Never];
        let create = create[self.random.below(4) as usize];
        let hint = [None, None, Some(3), Some(1000)][self.random.below(4) as usize];
        let how = Open { size_hint_bytes: hint, ..how(create) };
        let (name, client) = (self.name(), self.client());
        let other = self.of(client).open(&name, &how);
        let model = self.model.open(&name, &how);
        let (Some(model), Some(other)) = same_kind(model, other) else { return };
        for _ in 0..1 + self.random.below(4) {
            self.call(&*model, &*other);
        }
    }

    fn call(&mut self, model: &dyn Object, other: &dyn Object) {
        let offset = self.random.below(OFFSET_MAX);
        let end = offset + self.random.below(OFFSET_MAX);
        let data = self.data();
        let (first, second) = data.split_at(data.len() / 3);
        let parts = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)];
        match self.random.below(9) {
            0..=2 => same(model.write_at(offset, &parts), other.write_at(offset, &parts)),
            3 => same(model.append(&parts), other.append(&parts)),
            4 => same(model.set_len(offset), other.set_len(offset)),
            5 => same(model.punch(offset..end), other.punch(offset..end)),
            6 => {
                let keeping = if self.random.chance(0.5) { End::Grows } else { End::Stays };
                let allocate = |object: &dyn Object| object.allocate(offset..end, keeping);
                same(allocate(model), allocate(other));
            }
            7 => same(model.set_modified(offset), other.set_modified(offset)),
            _ => {
                let read = |object: &dyn Object| {
                    let mut buffer = vec![0xee; (end - offset) as usize];
                    object.read(offset, &mut buffer).map(|count| (count, buffer))
                };
                same(read(model), read(other));
            }
        }
        assert_data_is_found(other);
    }

    fn delete(&mut self) {
        let (name, client) = (self.name(), self.client());
        same(self.model.delete(&name), self.of(client).delete(&name));
    }

    fn batch(&mut self) {
        let client = self.client();
        let names: Vec<Key> = (0..12).map(|_| self.name()).collect();
        let datas: Vec<Vec<u8>> = names.iter().map(|_| self.data()).collect();
        let kinds: Vec<u64> = names.iter().map(|_| self.random.below(6)).collect();
        let offset_bytes = self.random.below(OFFSET_MAX);
        let run = |store: &dyn Backend| {
            let mut buffers: Vec<Vec<u8>> =
                datas.iter().map(|data| vec![0xee; data.len()]).collect();
            let mut operations: Vec<Op<'_>> = Vec::new();
            for (((key, data), buffer), kind) in
                names.iter().zip(&datas).zip(&mut buffers).zip(&kinds)
            {
                operations.push(Op::new(match kind {
                    0 => Request::Create { key, data, hint: Hint::default() },
                    1 => Request::Write { key, offset_bytes, data },
                    2 => Request::Stat { key },
                    3 => Request::Delete { key },
                    _ => Request::Read { key, offset_bytes: offset_bytes / 2, buffer },
                }));
            }
            store.execute(&mut operations, &VOLATILE);
            let told = |operation: Op<'_>| match operation.outcome.expect("a filled slot") {
                // Times and rooms differ.
                Ok(Reply::Stat(stat)) => Ok(Reply::Count(stat.size_bytes as usize)),
                Ok(reply) => Ok(reply),
                Err(error) => Err(error.kind()),
            };
            let outcomes: Vec<_> = operations.into_iter().map(told).collect();
            (outcomes, buffers)
        };
        assert_eq!(run(&self.model), run(self.of(client)), "{kinds:?} {names:?}");
    }

    fn list(&mut self) {
        let client = self.client();
        let max = 1 + self.random.below(5) as usize;
        let prefix = ["", "c", "c/d", "\u{10ffff}"][self.random.below(4) as usize];
        let store = self.of(client);
        let mut keys = Vec::new();
        let mut cursor = terrace_core::Cursor::start();
        loop {
            let page = store.list("test", prefix, &cursor, max).expect("lists");
            assert!(page.keys.len() <= max);
            keys.extend(page.keys);
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        assert_eq!(keys, self.model.list_all("test", prefix).expect("lists"));
    }

    /// Everything is the same for both clients.
    fn compare(&self, what: &str) {
        for client in &self.clients {
            let namespaces = |store: &dyn Backend| store.namespaces().expect("lists");
            assert_eq!(namespaces(&self.model), namespaces(client), "{what}");
            for name in ["a", "b", "c/d", "\u{10ffff}"] {
                let (model, other) =
                    (read_all(&self.model, &key(name)), read_all(client, &key(name)));
                match (model, other) {
                    (Ok(model), Ok(other)) => assert!(model == other, "{name} after {what}"),
                    (Err(model), Err(other)) => assert_eq!(model.kind(), other.kind()),
                    (model, other) => panic!("{name} after {what}: {model:?}, {other:?}"),
                }
            }
        }
    }
}

/// Outside of the ranges that are found are only zeros.
fn assert_data_is_found(object: &dyn Object) {
    let mut bytes = match content(object) {
        Ok(bytes) => bytes,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::NotFound),
    };
    let mut at = 0;
    while let Some(range) = object.next_data(at).expect("looks") {
        assert!(range.start >= at && range.end > range.start, "{range:?} from {at}");
        assert!(range.end <= bytes.len() as u64, "{range:?} of {}", bytes.len());
        bytes[range.start as usize..range.end as usize].fill(0);
        at = range.end;
    }
    assert!(bytes.iter().all(|byte| *byte == 0), "data that is not found");
}

#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(model: Result<T>, other: Result<T>) {
    if let (Some(model), Some(other)) = same_kind(model, other) {
        assert_eq!(model, other);
    }
}

#[track_caller]
fn same_kind<T>(model: Result<T>, other: Result<T>) -> (Option<T>, Option<T>) {
    match (model, other) {
        (Ok(model), Ok(other)) => (Some(model), Some(other)),
        (Err(model), Err(other)) => {
            assert_eq!(model.kind(), other.kind(), "{model}; {other}");
            (None, None)
        }
        (model, other) => {
            panic!("{:?} and {:?}", model.err().map(|e| e.chain()), other.err().map(|e| e.chain()))
        }
    }
}
