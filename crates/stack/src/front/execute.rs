// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches: what is done once for many operations, where the difference cannot be observed.
//!
//! New objects share a commit, and neighbours on one object a handle and, where they touch, one
//! call of its file. Batches come from the network with a thousand operations.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::discriminant;
use std::ops::Range;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use terrace_core::{
    ATOMIC_BYTES_MAX, Access, Atomicity, Backend, BatchOrdering, Error, ErrorKind, Key, Object, Op,
    Open, Reply, Request, Result, Semantics, execute_each,
};

use crate::Stack;
use crate::io::atomic::WholeObject;
use crate::io::object::StackObject;

/// From this latency on, a batch is worth threads of its own.
const SLOW_NS: u64 = 200_000;

/// Threads of one batch.
const THREADS_MAX: usize = 16;

/// Objects that are created with one commit.
const CREATES_MAX: usize = 1000;

/// Operations that are one call of a file: as many buffers as one call of the kernel takes
/// (`UIO_MAXIOV`, linux/uio.h).
const MERGED_MAX: usize = 1024;

/// A handle for a run of operations on one object.
enum Handle {
    Plain(StackObject),
    Whole(WholeObject),
}

impl Handle {
    fn plain(&self) -> &StackObject {
        match self {
            Handle::Plain(object) | Handle::Whole(WholeObject(object)) => object,
        }
    }

    fn object(&self) -> &dyn Object {
        match self {
            Handle::Plain(object) => object,
            Handle::Whole(object) => object,
        }
    }

    /// Writes without looking at durability.
    fn write_only(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        match self {
            Handle::Plain(object) => object.write_only(offset_bytes, data),
            Handle::Whole(object) => object.write_only(offset_bytes, data),
        }
    }
}

/// Carries out a batch as its semantics ask.
pub(crate) fn execute(stack: &Stack, operations: &mut [Op<'_>], semantics: &Semantics) {
    let batch = Batch { stack, semantics };
    if stack.capability().check_atomicity("run a batch", semantics.atomicity).is_err() {
        return execute_each(stack, operations, semantics);
    }
    let mut all: Vec<_> = operations.iter_mut().collect();
    let is_slow = || {
        let mut tiers = stack.inner.shared.tiers.present();
        tiers.any(|tier| tier.figures.latency_ns >= SLOW_NS)
    };
    if all.len() > 1 && !batch.is_strict() && is_slow() {
        batch.execute_wide(all);
    } else {
        batch.execute_in_order(&mut all);
    }
}

struct Batch<'a> {
    stack: &'a Stack,
    semantics: &'a Semantics,
}

impl Batch<'_> {
    fn is_strict(&self) -> bool {
        self.semantics.ordering == BatchOrdering::Strict
    }

    fn is_whole(&self) -> bool {
        self.semantics.atomicity >= Atomicity::Operation
    }

    /// On several threads, one object's operations in order on one of them.
    fn execute_wide(&self, operations: Vec<&mut Op<'_>>) {
        let mut by_key: BTreeMap<Key, Vec<&mut Op<'_>>> = BTreeMap::new();
        for operation in operations {
            by_key.entry(operation.request.key().clone()).or_default().push(operation);
        }
        let groups: Vec<_> = by_key.into_values().map(Mutex::new).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.execute_in_order(&mut crate::lock(group));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..groups.len().min(THREADS_MAX) {
                scope.spawn(|| {
                    terrace_affinity::roam();
                    work();
                });
            }
            work();
        });
    }

    fn execute_in_order(&self, operations: &mut [&mut Op<'_>]) {
        let mut rest = operations;
        while let Some(first) = rest.first() {
            let count = match &first.request {
                Request::Create { .. } => self.creates_together(rest),
                Request::Write { .. } | Request::Read { .. } => run_length(rest),
                Request::Stat { .. } | Request::Delete { .. } => 1,
            };
            let (now, later) = rest.split_at_mut(count);
            rest = later;
            match &now[0].request {
                // Alone and not to be seen whole, it needs no more than an open and a write.
                Request::Create { .. } if count > 1 || self.is_whole() => {
                    crate::io::batch::create(&self.stack.inner.shared, now, self.semantics);
                }
                Request::Write { .. } if count > 1 => self.write_run(now),
                Request::Read { .. } if count > 1 => self.read_run(now),
                Request::Stat { key } if self.is_whole() => {
                    let stat = self.stack.stat_whole(key).map(Reply::Stat);
                    now[0].outcome = Some(stat);
                }
                _ => self.execute_alone(now),
            }
        }
    }

    fn execute_alone(&self, operations: &mut [&mut Op<'_>]) {
        for operation in operations {
            execute_each(self.stack, slice::from_mut(&mut **operation), self.semantics);
        }
    }

    /// How many objects at the front may share a commit. Where the order counts, none: they are
    /// made in the order of their names, and all appear at once.
    fn creates_together(&self, operations: &[&mut Op<'_>]) -> usize {
        if self.is_strict() {
            return 1;
        }
        let mut seen = std::collections::HashSet::new();
        let is_new = |operation: &&&mut Op<'_>| {
            matches!(operation.request, Request::Create { .. })
                && seen.insert(operation.request.key().clone())
        };
        operations.iter().take(CREATES_MAX).take_while(is_new).count()
    }

    fn open(&self, key: &Key, access: Access) -> Result<Handle> {
        let how = Open { access, semantics: *self.semantics, ..Open::default() };
        let object = self.stack.open_object(key, &how)?;
        Ok(if self.is_whole() { Handle::Whole(WholeObject(object)) } else { Handle::Plain(object) })
    }

    /// Writes to one object, which is opened once.
    fn write_run(&self, run: &mut [&mut Op<'_>]) {
        let Ok(handle) = self.open(run[0].request.key(), Access::Write) else {
            // Each tells by itself why.
            return self.execute_alone(run);
        };
        for group in self.groups(run) {
            self.write_group(&handle, &mut run[group]);
        }
        if self.is_strict() {
            return;
        }
        // Once for all of them: they are acknowledged together.
        if let Err(error) = handle.plain().follow() {
            let written = run.iter_mut().filter(|one| matches!(one.outcome, Some(Ok(_))));
            written.for_each(|one| one.outcome = Some(Err(again(&error))));
        }
    }

    /// Writes to ranges that follow one another, with one call.
    fn write_group(&self, handle: &Handle, group: &mut [&mut Op<'_>]) {
        let slices: Vec<_> = group.iter().map(|one| IoSlice::new(one.request.data())).collect();
        let written = handle.write_only(group[0].request.offset_bytes(), &slices);
        let outcome = match written {
            Ok(()) if self.is_strict() => handle.plain().follow(),
            other => other,
        };
        let Err(error) = outcome else {
            return group.iter_mut().for_each(|one| one.outcome = Some(Ok(Reply::Done)));
        };
        if let [one] = group {
            one.outcome = Some(Err(error));
        } else if is_of_some(error.kind()) {
            for index in 0..group.len() {
                self.write_group(handle, &mut group[index..=index]);
            }
        } else {
            group.iter_mut().for_each(|one| one.outcome = Some(Err(again(&error))));
        }
    }

    /// Reads from one object, which is opened once.
    fn read_run(&self, run: &mut [&mut Op<'_>]) {
        let Ok(handle) = self.open(run[0].request.key(), Access::Read) else {
            return self.execute_alone(run);
        };
        for group in self.groups(run) {
            read_group(handle.object(), &mut run[group]);
        }
    }

    /// Parts of a run that one call can carry out: where each begins where the one before ends.
    /// None where the order counts: within one call the order of effects is undefined.
    fn groups(&self, run: &[&mut Op<'_>]) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut end_bytes = None;
        let mut bytes = 0;
        for (index, one) in run.iter().enumerate() {
            let (start, length) = (one.request.offset_bytes(), one.request.length_bytes());
            bytes += length;
            let is_next = end_bytes == Some(start) && bytes <= ATOMIC_BYTES_MAX;
            match groups.last_mut() {
                Some(group) if is_next && group.len() < MERGED_MAX && !self.is_strict() => {
                    group.end = index + 1;
                }
                _ => {
                    groups.push(index..index + 1);
                    bytes = length;
                }
            }
            end_bytes = start.checked_add(length as u64);
        }
        groups
    }
}

/// Reads ranges that follow one another, with one call.
fn read_group(object: &dyn Object, group: &mut [&mut Op<'_>]) {
    let start = group[0].request.offset_bytes();
    let mut buffers = Vec::with_capacity(group.len());
    for one in group.iter_mut() {
        if let Request::Read { buffer, .. } = &mut one.request {
            buffers.push(IoSliceMut::new(buffer));
        }
    }
    match object.read_at(start, &mut buffers) {
        Ok(mut count) => {
            for one in group {
                let part = count.min(one.request.length_bytes());
                count -= part;
                one.outcome = Some(Ok(Reply::Count(part)));
            }
        }
        // One of them may be illegal, or on a tier that fails.
        Err(_) if group.len() > 1 => {
            for index in 0..group.len() {
                read_group(object, &mut group[index..=index]);
            }
        }
        Err(error) => group[0].outcome = Some(Err(error)),
    }
}

/// Whether only some of many writes may fail like this: they have no room or are not legal, or all of
/// them together are too much.
fn is_of_some(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoSpace | ErrorKind::Invalid | ErrorKind::Unsupported)
}

/// How many operations at the front do the same to the same object.
fn run_length(operations: &[&mut Op<'_>]) -> usize {
    let first = &operations[0].request;
    let is_same = |one: &&&mut Op<'_>| {
        discriminant(&one.request) == discriminant(first) && one.request.key() == first.key()
    };
    operations.iter().take_while(is_same).count()
}

/// The failure of many operations, for each of them.
fn again(error: &Error) -> Error {
    Error::relayed(error.kind(), &error.chain())
}
