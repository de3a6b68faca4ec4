// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations of a batch, and carrying one out operation by operation.

use std::io::{IoSlice, IoSliceMut};

use super::object::Object;
use super::open::{Access, Create, Open};
use super::stat::Stat;
use super::{Backend, with_object};
use crate::{Atomicity, BatchOrdering, Error, Hint, Key, Result, Semantics};

/// One operation of a batch and the slot for its result.
#[derive(Debug)]
pub struct Op<'a> {
    /// What to do.
    pub request: Request<'a>,
    /// What came of it; `None` until the batch was executed.
    pub outcome: Option<Result<Reply>>,
}

impl<'a> Op<'a> {
    /// An operation that has not run.
    pub fn new(request: Request<'a>) -> Self {
        Self { request, outcome: None }
    }
}

/// What an operation of a batch does.
#[derive(Debug)]
pub enum Request<'a> {
    /// Creates a new object that holds `data`.
    Create {
        /// The object.
        key: &'a Key,
        /// Its first bytes; may be empty.
        data: &'a [u8],
        /// Advice for the policy.
        hint: Hint,
    },
    /// Reads into `buffer`; the reply counts the bytes.
    Read {
        /// The object.
        key: &'a Key,
        /// Where to begin.
        offset_bytes: u64,
        /// Where to put the bytes.
        buffer: &'a mut [u8],
    },
    /// Writes all of `data`.
    Write {
        /// The object, which must exist.
        key: &'a Key,
        /// Where to begin.
        offset_bytes: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Returns size and times.
    Stat {
        /// The object.
        key: &'a Key,
    },
    /// Removes the object.
    Delete {
        /// The object.
        key: &'a Key,
    },
}

impl Request<'_> {
    /// Where it begins to read or write; 0 for all others.
    pub fn offset_bytes(&self) -> u64 {
        match self {
            Request::Read { offset_bytes, .. } | Request::Write { offset_bytes, .. } => {
                *offset_bytes
            }
            _ => 0,
        }
    }

    /// The bytes that it brings; empty for those that bring none.
    pub fn data(&self) -> &[u8] {
        match self {
            Request::Create { data, .. } | Request::Write { data, .. } => data,
            _ => &[],
        }
    }

    /// How many bytes it brings or asks for.
    pub fn length_bytes(&self) -> usize {
        match self {
            Request::Read { buffer, .. } => buffer.len(),
            other => other.data().len(),
        }
    }

    /// The object that the operation is about.
    pub fn key(&self) -> &Key {
        match self {
            Request::Create { key, .. }
            | Request::Read { key, .. }
            | Request::Write { key, .. }
            | Request::Stat { key }
            | Request::Delete { key } => key,
        }
    }
}

/// What an operation of a batch returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Created, written or deleted.
    Done,
    /// Bytes read.
    Count(usize),
    /// Size and times.
    Stat(Stat),
}

/// Carries out a batch one operation after the other; what a backend without a better way calls
/// from [`Backend::execute`]. A create with data is two operations on the backend and a stat asks
/// for nothing, so a backend that gives atomicity carries these out by itself.
pub fn execute_each<B: Backend + ?Sized>(
    backend: &B,
    operations: &mut [Op<'_>],
    semantics: &Semantics,
) {
    for operation in operations {
        let asked = semantics.atomicity;
        let outcome = match asked {
            Atomicity::None => Ok(()),
            _ => backend.capability().check_atomicity("run a batch", asked),
        };
        let run = |()| execute_one(backend, &mut operation.request, semantics);
        operation.outcome = Some(outcome.and_then(run));
    }
}

/// Carries out a batch that asks for a strict ordering: each operation as a batch of its own, so that
/// what the backend would do once for all of them is done before the next one begins.
pub fn execute_strictly(backend: &dyn Backend, operations: &mut [Op<'_>], semantics: &Semantics) {
    let alone = Semantics { ordering: BatchOrdering::Relaxed, ..*semantics };
    for operation in operations {
        backend.execute(std::slice::from_mut(operation), &alone);
    }
}

fn execute_one<B: Backend + ?Sized>(
    backend: &B,
    request: &mut Request<'_>,
    semantics: &Semantics,
) -> Result<Reply> {
    let how = |create, access| Open { create, access, semantics: *semantics, ..Open::default() };
    match request {
        Request::Create { key, data, hint } => {
            let open = Open {
                hint: *hint,
                size_hint_bytes: Some(data.len() as u64),
                ..how(Create::New, Access::Write)
            };
            let object = backend.open(key, &open)?;
            if !data.is_empty() {
                // The object is there by now.
                object.write_at(0, &[IoSlice::new(data)]).map_err(Error::in_part)?;
            }
            Ok(Reply::Done)
        }
        Request::Read { key, offset_bytes, buffer } => {
            let how = how(Create::Never, Access::Read);
            let read = |object: Box<dyn Object>| {
                object.read_at(*offset_bytes, &mut [IoSliceMut::new(buffer)])
            };
            with_object(|| backend.open(key, &how), read).map(Reply::Count)
        }
        Request::Write { key, offset_bytes, data } => {
            let object = backend.open(key, &how(Create::Never, Access::Write))?;
            object.write_at(*offset_bytes, &[IoSlice::new(data)])?;
            Ok(Reply::Done)
        }
        Request::Stat { key } => backend.stat(key).map(Reply::Stat),
        Request::Delete { key } => backend.delete(key).map(|()| Reply::Done),
    }
}
