// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches: each server gets what is its own in one call, all at the same time.
//!
//! What a server says of an object that goes on elsewhere is wrong, so it is found out with the
//! first call which objects do. Looking at such an object harms nothing, and the answer is thrown
//! away; changes wait for the second call. Objects over several servers, and those that are not
//! where they should be, then go the way of single calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use terrace_core::{
    BatchOrdering, ErrorKind, Key, Op, Reply, Request, Result, Semantics, Stat, execute_each,
    execute_strictly,
};

use super::Striped;
use super::parallel::at_once;
use super::piece::is_reserved;

/// Objects that go the way of single calls at the same time.
const THREADS_MAX: usize = 16;

/// The operations on one object, in their order.
struct Group<'s, 'a> {
    operations: Vec<&'s mut Op<'a>>,
    /// The present home of its key.
    home: usize,
    /// Whether the object can be nowhere else.
    is_certain: bool,
    way: Way,
    /// What its home says that the object is.
    found: Option<Result<Stat>>,
}

/// What the first call has of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Everything: a plain object is made, or refused because there is one.
    Create,
    /// The question what the object is, and everything behind it.
    Look,
    /// The question alone.
    Ask,
    /// Nothing.
    Single,
}

/// What becomes of a group after the first call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Done,
    /// A plain object: the rest is for its home.
    Home,
    Single,
}

impl Striped {
    pub(super) fn execute_batch(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        if semantics.ordering == BatchOrdering::Strict {
            return execute_strictly(self, operations, semantics);
        }
        let capability = &self.shared.capability;
        let too_strong = semantics.persistency > capability.persistency
            || semantics.atomicity > capability.atomicity;
        if too_strong || operations.len() < 2 {
            // What is refused is refused with its reason there.
            return execute_each(self, operations, semantics);
        }
        let mut groups = self.groups(operations);
        self.send(&mut groups, semantics, |group| match group.way {
            Way::Create => (false, true),
            Way::Look => (true, true),
            Way::Ask => (true, false),
            Way::Single => (false, false),
        });
        let (mut plain, mut single) = (Vec::new(), Vec::new());
        for group in groups {
            match group.next() {
                Next::Done => {}
                Next::Home => plain.push(group),
                Next::Single => single.push(group),
            }
        }
        self.send(&mut plain, semantics, |_| (false, true));
        self.execute_single(single, semantics);
    }

    /// The operations by object, with the way of each.
    fn groups<'s, 'a>(&self, operations: &'s mut [Op<'a>]) -> Vec<Group<'s, 'a>> {
        let mut places: HashMap<Key, usize> = HashMap::new();
        let mut groups: Vec<Group<'s, 'a>> = Vec::new();
        for operation in operations {
            let key = operation.request.key().clone();
            let place = *places.entry(key.clone()).or_insert(groups.len());
            if place == groups.len() {
                let homes = self.shared.map.homes(&key);
                let is_certain = homes.len() == 1 && self.shared.map.has_epochs();
                let (operations, way) = (Vec::new(), Way::Single);
                groups.push(Group { operations, home: homes[0], is_certain, way, found: None });
            }
            groups[place].operations.push(operation);
        }
        let plain_bytes = self.shared.distribution.first_bytes();
        for group in &mut groups {
            group.way = group.choose(plain_bytes);
        }
        groups
    }

    /// Sends to each home what `which` says of each of its groups: the question what the object
    /// is, and the operations.
    fn send(
        &self,
        groups: &mut [Group<'_, '_>],
        semantics: &Semantics,
        which: impl Fn(&Group<'_, '_>) -> (bool, bool),
    ) {
        let keys: Vec<Key> = groups.iter().map(Group::key).collect();
        let mut calls: Vec<Call<'_>> =
            self.shared.map.members().iter().map(|_| Call::new()).collect();
        for (group, key) in groups.iter_mut().zip(&keys) {
            let (asks, does) = which(group);
            let call = &mut calls[group.home];
            if asks {
                call.operations.push(Op::new(Request::Stat { key }));
                call.slots.push(Slot::Found(&mut group.found));
            }
            if does {
                for operation in &mut group.operations {
                    let Op { request, outcome } = &mut **operation;
                    call.operations.push(Op::new(again(request)));
                    call.slots.push(Slot::Outcome(outcome));
                }
            }
        }
        let calls = calls.into_iter().zip(self.shared.map.members());
        let calls = calls.filter(|(call, _)| !call.operations.is_empty());
        at_once(
            calls
                .map(|(call, member)| {
                    move || {
                        let Call { mut operations, slots } = call;
                        member.backend.execute(&mut operations, semantics);
                        for (operation, slot) in operations.into_iter().zip(slots) {
                            let outcome = operation.outcome.expect("a batch fills every slot");
                            slot.fill(outcome.map_err(|error| member.blame(error)));
                        }
                    }
                })
                .collect(),
        );
    }

    /// Carries out the operations of each group one by one, several groups at the same time.
    fn execute_single(&self, groups: Vec<Group<'_, '_>>, semantics: &Semantics) {
        let groups: Vec<_> = groups.into_iter().map(Mutex::new).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
                for operation in &mut group.operations {
                    execute_each(self, std::slice::from_mut(&mut **operation), semantics);
                }
            }
        };
        let work = &work;
        at_once((0..groups.len().min(THREADS_MAX)).map(|_| work).collect());
    }
}

impl Group<'_, '_> {
    fn key(&self) -> Key {
        self.operations[0].request.key().clone()
    }

    /// What the first call has of it; `plain_bytes` is the longest object that is made plain.
    fn choose(&self, plain_bytes: u64) -> Way {
        let requests = || self.operations.iter().map(|operation| &operation.request);
        let is_large = |request: &Request<'_>| match request {
            Request::Create { data, .. } => data.len() as u64 > plain_bytes,
            _ => false,
        };
        if is_reserved(self.key().name()) || requests().any(is_large) {
            return Way::Single;
        }
        if requests().all(|one| matches!(one, Request::Read { .. } | Request::Stat { .. })) {
            return Way::Look;
        }
        let is_create = matches!(self.operations[0].request, Request::Create { .. });
        match is_create && self.operations.len() == 1 && self.is_certain {
            true => Way::Create,
            false => Way::Ask,
        }
    }

    fn next(&self) -> Next {
        match (self.way, &self.found) {
            (Way::Create, _) => Next::Done,
            (Way::Single, _) => Next::Single,
            (Way::Look, Some(Ok(stat))) if !stat.is_labelled => Next::Done,
            (Way::Ask, Some(Ok(stat))) if !stat.is_labelled => Next::Home,
            // It is nowhere.
            (Way::Look, Some(Err(error)))
                if self.is_certain && error.kind() == ErrorKind::NotFound =>
            {
                Next::Done
            }
            (Way::Look | Way::Ask, _) => Next::Single,
        }
    }
}

/// What one server gets.
struct Call<'c> {
    operations: Vec<Op<'c>>,
    /// Where the outcome of each goes.
    slots: Vec<Slot<'c>>,
}

impl Call<'_> {
    fn new() -> Self {
        Self { operations: Vec::new(), slots: Vec::new() }
    }
}

enum Slot<'c> {
    Found(&'c mut Option<Result<Stat>>),
    Outcome(&'c mut Option<Result<Reply>>),
}

impl Slot<'_> {
    fn fill(self, outcome: Result<Reply>) {
        match self {
            Slot::Outcome(slot) => *slot = Some(outcome),
            Slot::Found(slot) => {
                *slot = Some(outcome.map(|reply| match reply {
                    Reply::Stat(stat) => stat,
                    // Another answer tells nothing: the way of single calls asks again.
                    Reply::Done | Reply::Count(_) => Stat { is_labelled: true, ..Stat::default() },
                }));
            }
        }
    }
}

/// The same request once more.
fn again<'b>(request: &'b mut Request<'_>) -> Request<'b> {
    match request {
        Request::Create { key, data, hint } => Request::Create { key, data, hint: *hint },
        Request::Read { key, offset_bytes, buffer } => {
            Request::Read { key, offset_bytes: *offset_bytes, buffer }
        }
        Request::Write { key, offset_bytes, data } => {
            Request::Write { key, offset_bytes: *offset_bytes, data }
        }
        Request::Stat { key } => Request::Stat { key },
        Request::Delete { key } => Request::Delete { key },
    }
}
