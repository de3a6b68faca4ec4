// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and directories that were removed while a program uses them.
//!
//! What a program does by name in a removed directory fails with `ENOENT`. The kernel sees to that where
//! the directory was removed through this mount. Where another client removed it, the kernel may have
//! come to it by a path that leads to another directory by now: it looks at the path again, once, when
//! it gets `ESTALE`. It comes back to the same directory only with a descriptor of it; and where it then
//! comes to another removed one, that went while it walked. So did a file to which it comes by a second
//! walk; what comes to a removed file without one has a handle of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fs::Node;
use terrace_fuse::{Operation, Request};

use super::{Failure, Front, number_of};

/// How long after the first `ESTALE` a thread that comes back to a removed directory has a descriptor of it.
const RETRIED_WITHIN: Duration = Duration::from_secs(1);

/// Threads that are remembered.
const THREADS_MAX: usize = 1 << 12;

/// Directories that are open, and threads that came to removed ones.
pub(super) struct DeadDirectories {
    state: Mutex<State>,
    /// How many threads walk a path again.
    walking: AtomicUsize,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    /// How often each directory is open here, and what was known of it when it was opened.
    open: HashMap<u64, (usize, Node)>,
    /// Until when a thread is expected to come back to a directory only with a descriptor.
    came: HashMap<(u32, u64), u64>,
    /// Threads that got `ESTALE`.
    walking: HashMap<u32, Walk>,
}

/// A path that a thread walks again.
#[derive(Clone, Copy)]
struct Walk {
    /// Until when it is expected to.
    until_ns: u64,
    /// Whether it has found a name since.
    has_found: bool,
}

impl DeadDirectories {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), walking: AtomicUsize::new(0), clock }
    }

    pub(super) fn note_open(&self, node: &Node) {
        let mut state = self.state();
        let (count, known) = state.open.entry(node.number).or_insert_with(|| (0, node.clone()));
        *count += 1;
        known.clone_from(node);
    }

    pub(super) fn note_closed(&self, number: u64) {
        let mut state = self.state();
        if let Some((count, _)) = state.open.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&number);
            }
        }
    }

    /// The attributes of a directory that is open here and was removed by another client.
    pub(super) fn open_one(&self, number: u64) -> Option<Node> {
        let state = self.state();
        let (_, node) = state.open.get(&number)?;
        Some(Node { links: 0, size: 0, ..node.clone() })
    }

    /// Whether a thread has come to a removed directory a moment ago; from now on it has.
    fn came_before(&self, thread: u32, directory: u64) -> bool {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        if state.came.len() >= THREADS_MAX {
            state.came.retain(|_, until_ns| *until_ns > now_ns);
        }
        if state.came.len() >= THREADS_MAX {
            return true;
        }
        let until_ns = now_ns.saturating_add(RETRIED_WITHIN.as_nanos() as u64);
        let before = state.came.insert((thread, directory), until_ns);
        before.is_some_and(|until_ns| until_ns > now_ns)
    }

    /// Notes that an operation of a thread ended: after `ESTALE` the kernel walks the path again, with
    /// lookups, and then carries out the operation.
    pub(super) fn note_end(&self, thread: u32, step: Step, errno: Option<Errno>) {
        let is_stale = errno == Some(Errno::STALE);
        if !is_stale && self.walking.load(Ordering::Acquire) == 0 {
            return;
        }
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        if is_stale {
            let until_ns = now_ns.saturating_add(RETRIED_WITHIN.as_nanos() as u64);
            if state.walking.len() >= THREADS_MAX {
                state.walking.retain(|_, walk| walk.until_ns > now_ns);
            }
            if state.walking.len() < THREADS_MAX {
                state.walking.insert(thread, Walk { until_ns, has_found: false });
            }
        } else {
            match (step, errno) {
                (Step::Name, None) => {
                    state.walking.entry(thread).and_modify(|walk| walk.has_found = true);
                }
                (Step::Number, _) => {}
                (Step::Name | Step::Last, _) => {
                    state.walking.remove(&thread);
                }
            }
        }
        self.walking.store(state.walking.len(), Ordering::Release);
    }

    /// Whether a thread walks a path again.
    fn walks_again(&self, thread: u32) -> bool {
        self.walk(thread).is_some()
    }

    /// Whether a thread has found a name since it walks a path again.
    fn has_walked_again(&self, thread: u32) -> bool {
        self.walk(thread).is_some_and(|walk| walk.has_found)
    }

    fn walk(&self, thread: u32) -> Option<Walk> {
        let now_ns = self.clock.now_ns();
        self.state().walking.get(&thread).copied().filter(|walk| walk.until_ns > now_ns)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of a map is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an operation is on the way of the kernel to what a program named.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// It looks up a name.
    Name,
    /// It looks for an inode of which it has the number.
    Number,
    /// It does what the program asked for.
    Last,
}

impl Step {
    pub(super) fn of(operation: &Operation<'_>) -> Self {
        match operation {
            Operation::Lookup { name } if is_number(name) => Step::Number,
            Operation::Lookup { .. } => Step::Name,
            _ => Step::Last,
        }
    }
}

impl Front {
    /// What a failed operation by name returns: `ENOENT` where a directory of it was removed, or what
    /// it named.
    pub(super) fn failure_by_name(&self, request: &Request<'_>, failure: Failure) -> Failure {
        if failure.errno() != Errno::STALE {
            return failure;
        }
        let thread = request.pid;
        if is_by_path(request) {
            let has_gone = self.is_shared && self.dead.has_walked_again(thread);
            return if has_gone { Errno::NOENT.into() } else { failure };
        }
        let numbers = named(request).into_iter().flatten().map(number_of);
        let mut removed = numbers.filter(|number| self.is_removed(*number));
        let Some(directory) = removed.next() else { return failure };
        let is_exact = !self.is_shared || self.files.is_unlinked(directory);
        let comes_back =
            || self.dead.came_before(thread, directory) || self.dead.walks_again(thread);
        match (asks_permissions(request), is_exact) {
            (true, true) => failure,
            (false, true) => Errno::NOENT.into(),
            (_, false) if comes_back() => Errno::NOENT.into(),
            _ => failure,
        }
    }

    fn is_removed(&self, number: u64) -> bool {
        match self.files.node(number) {
            Ok(node) => node.links == 0,
            Err(failure) => failure.errno() == Errno::STALE,
        }
    }
}

/// Whether the kernel may ask because it checks the permission to look for names in a directory.
fn asks_permissions(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::GetAttr { .. } | Operation::Statx { .. })
}

/// Whether a lookup is of an inode of which the kernel has only the number.
fn is_number(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Whether an operation concerns what a path leads to, if it has no descriptor of it.
fn is_by_path(request: &Request<'_>) -> bool {
    match &request.operation {
        Operation::SetAttr(changes) => changes.handle.is_none(),
        Operation::Open { .. }
        | Operation::ReadLink
        | Operation::Access { .. }
        | Operation::GetXattr { .. }
        | Operation::SetXattr { .. }
        | Operation::ListXattr { .. }
        | Operation::RemoveXattr { .. } => true,
        _ => false,
    }
}

/// The node ids of directories in which an operation concerns names, or which it opens by one.
fn named(request: &Request<'_>) -> [Option<u64>; 2] {
    let here = Some(request.node);
    match &request.operation {
        Operation::Lookup { name } if is_number(name) => [None; 2],
        // `.` of a descriptor with `O_PATH` comes as its number alone.
        Operation::OpenDir { .. }
        | Operation::GetAttr { .. }
        | Operation::Statx { .. }
        | Operation::Lookup { .. }
        | Operation::Create { .. }
        | Operation::TmpFile { .. }
        | Operation::MkNod { .. }
        | Operation::MkDir { .. }
        | Operation::SymLink { .. }
        | Operation::Link { .. }
        | Operation::Unlink { .. }
        | Operation::RmDir { .. } => [here, None],
        Operation::Rename { new_parent, .. } => [here, Some(*new_parent)],
        _ => [None; 2],
    }
}
