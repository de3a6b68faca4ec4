// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several operations with one request.

use terrace_core::{Backend, Hint, Key, Op, Reply, Request, Result, Semantics, Stat};
use terrace_store::Store;

use crate::memory::zeros;
use crate::names::key;

/// What an operation of a batch returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was created, written or deleted.
    Done,
    /// The bytes that were read; fewer than asked for at the end of the object.
    Bytes(Vec<u8>),
    /// Size and times.
    Stat(Stat),
}

/// Operations that are carried out together. Those on one object run in their order, others in any
/// order; one that fails does not stop the others.
pub struct Batch {
    store: Store,
    semantics: Semantics,
    operations: Vec<(Result<Key>, Wanted)>,
}

enum Wanted {
    Create(Vec<u8>),
    Write(u64, Vec<u8>),
    Read(u64, usize),
    Stat,
    Delete,
}

impl Batch {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, semantics: Semantics::DEFAULT, operations: Vec::new() }
    }

    /// What every operation must meet; `ordering` asks for all of them in order.
    #[must_use]
    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// Creates a new object that holds `data`.
    #[must_use]
    pub fn create(self, name: &str, data: &[u8]) -> Self {
        self.with(name, Wanted::Create(data.into()))
    }

    /// Writes into an object that exists.
    #[must_use]
    pub fn write(self, name: &str, offset_bytes: u64, data: &[u8]) -> Self {
        self.with(name, Wanted::Write(offset_bytes, data.into()))
    }

    /// Reads up to `length_bytes`; `Invalid` where there is not so much memory.
    #[must_use]
    pub fn read(self, name: &str, offset_bytes: u64, length_bytes: usize) -> Self {
        self.with(name, Wanted::Read(offset_bytes, length_bytes))
    }

    /// Returns size and times.
    #[must_use]
    pub fn stat(self, name: &str) -> Self {
        self.with(name, Wanted::Stat)
    }

    /// Removes an object.
    #[must_use]
    pub fn delete(self, name: &str) -> Self {
        self.with(name, Wanted::Delete)
    }

    fn with(mut self, name: &str, wanted: Wanted) -> Self {
        self.operations.push((key(name), wanted));
        self
    }

    /// Carries the operations out; one outcome each, in their order.
    pub fn run(self) -> Vec<Result<Outcome>> {
        let mut buffers: Vec<_> = self.operations.iter().map(buffer_of).collect();
        let mut operations = Vec::new();
        for ((key, wanted), buffer) in self.operations.iter().zip(&mut buffers) {
            if let (Ok(key), Ok(buffer)) = (key, buffer) {
                operations.push(Op::new(request(key, wanted, buffer)));
            }
        }
        self.store.execute(&mut operations, &self.semantics);
        let replies: Vec<_> = operations.into_iter().map(|operation| operation.outcome).collect();
        let mut replies = replies.into_iter();
        let mut outcomes = Vec::with_capacity(self.operations.len());
        for ((key, _), buffer) in self.operations.into_iter().zip(buffers) {
            outcomes.push(key.and(buffer).and_then(|mut buffer| {
                let outcome = replies.next().expect("one for each that was carried out");
                let reply = outcome.expect("a batch that was carried out has every outcome")?;
                Ok(match reply {
                    Reply::Done => Outcome::Done,
                    Reply::Stat(stat) => Outcome::Stat(stat),
                    Reply::Count(count) => {
                        buffer.truncate(count);
                        Outcome::Bytes(buffer)
                    }
                })
            }));
        }
        outcomes
    }
}

fn buffer_of((_, wanted): &(Result<Key>, Wanted)) -> Result<Vec<u8>> {
    match wanted {
        Wanted::Read(_, length_bytes) => zeros(*length_bytes, "read in a batch"),
        _ => Ok(Vec::new()),
    }
}

fn request<'a>(key: &'a Key, wanted: &'a Wanted, buffer: &'a mut [u8]) -> Request<'a> {
    match wanted {
        Wanted::Create(data) => Request::Create { key, data, hint: Hint::default() },
        Wanted::Write(offset_bytes, data) => {
            Request::Write { key, offset_bytes: *offset_bytes, data }
        }
        Wanted::Read(offset_bytes, _) => Request::Read { key, offset_bytes: *offset_bytes, buffer },
        Wanted::Stat => Request::Stat { key },
        Wanted::Delete => Request::Delete { key },
    }
}
