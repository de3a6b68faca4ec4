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

use super::{Failure, Front, is_part_of_lookup, number_of};

/// How long after the first `ESTALE` a thread that comes back to a removed directory has a descriptor of it:
/// the kernel repeats the call at once, but the machine may be busy.
const RETRIED_WITHIN: Duration = Duration::from_secs(10);

/// How long a walk goes on behind what a program may have asked for as well: the attributes of a directory on
/// the way, for example.
const GOES_ON_WITHIN: Duration = Duration::from_secs(1);

/// Steps of a second walk that are remembered.
const STEPS_MAX: usize = 64;

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
    /// Directories that are open here.
    open: HashMap<u64, OpenDirectory>,
    /// Until when a thread is expected to come back to a directory only with a descriptor.
    came: HashMap<(u32, u64), u64>,
    /// Threads that got `ESTALE`.
    walking: HashMap<u32, Walk>,
}

/// A directory that is open here.
struct OpenDirectory {
    count: usize,
    /// What was known of it when it was opened; once it is removed, what it was then.
    node: Node,
    is_removed: bool,
}

/// A path that a thread walks again.
#[derive(Clone)]
struct Walk {
    /// Until when it is expected to.
    until_ns: u64,
    /// Whether it has found a name since.
    has_found: bool,
    /// The steps that it has made since: with its node, each is made once.
    steps: Vec<(u64, Step)>,
    /// In what it has not found a name. The kernel drops what it had cached under the name, and then looks for
    /// it once more.
    missed_in: Option<u64>,
}

impl Walk {
    fn until(until_ns: u64) -> Self {
        Self { until_ns, has_found: false, steps: Vec::new(), missed_in: None }
    }

    /// Whether a step is the beginning of another call.
    fn is_over(&self, node: u64, step: Step) -> bool {
        match self.missed_in {
            Some(directory) => (directory, Step::Name) != (node, step),
            None => self.steps.contains(&(node, step)) || self.steps.len() >= STEPS_MAX,
        }
    }
}

impl DeadDirectories {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), walking: AtomicUsize::new(0), clock }
    }

    pub(super) fn note_open(&self, node: &Node) {
        let mut state = self.state();
        let new = || OpenDirectory { count: 0, node: node.clone(), is_removed: false };
        let open = state.open.entry(node.number).or_insert_with(new);
        open.count += 1;
        if !open.is_removed {
            open.node.clone_from(node);
        }
    }

    pub(super) fn note_closed(&self, number: u64) {
        let mut state = self.state();
        if let Some(open) = state.open.get_mut(&number) {
            open.count -= 1;
            if open.count == 0 {
                state.open.remove(&number);
            }
        }
    }

    /// The attributes of a directory that is open here and was removed by another client: those that `ask`
    /// returns, once; without them, those of when it was opened.
    pub(super) fn open_one(&self, number: u64, ask: impl FnOnce() -> Option<Node>) -> Option<Node> {
        let removed = |node: Node| Some(Node { links: 0, size: 0, ..node });
        let state = self.state();
        let open = state.open.get(&number)?;
        if open.is_removed {
            return removed(open.node.clone());
        }
        drop(state);
        let asked = ask();
        let mut state = self.state();
        let open = state.open.get_mut(&number)?;
        if let Some(node) = asked {
            (open.node, open.is_removed) = (node, true);
        }
        removed(open.node.clone())
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
    pub(super) fn note_end(&self, thread: u32, node: u64, step: Step, errno: Option<Errno>) {
        let is_stale = errno == Some(Errno::STALE);
        if !is_stale && self.walking.load(Ordering::Acquire) == 0 {
            return;
        }
        let now_ns = self.clock.now_ns();
        let within = |time: Duration| now_ns.saturating_add(time.as_nanos() as u64);
        let mut state = self.state();
        if is_stale {
            if state.walking.len() >= THREADS_MAX {
                state.walking.retain(|_, walk| walk.until_ns > now_ns);
            }
            if state.walking.len() < THREADS_MAX {
                state.walking.insert(thread, Walk::until(within(RETRIED_WITHIN)));
            }
        } else if let Some(walk) = state.walking.get_mut(&thread) {
            let is_over = step != Step::Number && walk.is_over(node, step);
            match (step, errno) {
                _ if is_over => drop(state.walking.remove(&thread)),
                (Step::Number, _) => {}
                (Step::Name, None) => {
                    walk.has_found = true;
                    walk.steps.push((node, step));
                }
                (Step::Name, Some(_)) => {
                    walk.until_ns = walk.until_ns.min(within(GOES_ON_WITHIN));
                    walk.missed_in = Some(node);
                }
                (Step::Way, None) => {
                    walk.until_ns = walk.until_ns.min(within(GOES_ON_WITHIN));
                    walk.steps.push((node, step));
                }
                (Step::Way | Step::Last, _) => drop(state.walking.remove(&thread)),
            }
        }
        self.walking.store(state.walking.len(), Ordering::Release);
    }

    /// The second walk that a thread is on with this step.
    fn walk(&self, thread: u32, node: u64, step: Step) -> Option<Walk> {
        let now_ns = self.clock.now_ns();
        let walk = self.state().walking.get(&thread).cloned()?;
        (walk.until_ns > now_ns && !walk.is_over(node, step)).then_some(walk)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of a map is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an operation is on the way of the kernel to what a program named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It looks up a name.
    Name,
    /// It looks for an inode of which it has the number.
    Number,
    /// It looks at what it has found, to go on or because the program asked for that.
    Way,
    /// It does what the program asked for.
    Last,
}

impl Step {
    pub(super) fn of(operation: &Operation<'_>) -> Self {
        match operation {
            Operation::Lookup { name } if is_number(name) => Step::Number,
            Operation::Lookup { .. } => Step::Name,
            operation if is_part_of_lookup(operation) => Step::Way,
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
        let walk = || self.dead.walk(thread, request.node, Step::of(&request.operation));
        if is_by_path(request) {
            let has_gone = self.is_shared && walk().is_some_and(|walk| walk.has_found);
            return if has_gone { Errno::NOENT.into() } else { failure };
        }
        let numbers = named(request).into_iter().flatten().map(number_of);
        let mut removed = numbers.filter(|number| self.is_removed(*number));
        let Some(directory) = removed.next() else { return failure };
        let is_exact = !self.is_shared || self.files.is_unlinked(directory);
        let comes_back = || self.dead.came_before(thread, directory) || walk().is_some();
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

#[cfg(test)]
mod tests {
    use terrace_testkit::ManualClock;

    use super::*;

    const THREAD: u32 = 7;
    const STALE: Option<Errno> = Some(Errno::STALE);
    const DIRECTORY: u64 = 20;
    const FOUND: u64 = 21;

    fn walked_again() -> (Arc<ManualClock>, DeadDirectories) {
        let clock = Arc::new(ManualClock::new());
        let dead = DeadDirectories::new(Arc::clone(&clock) as Arc<dyn Clock>);
        dead.note_end(THREAD, FOUND, Step::Last, STALE);
        dead.note_end(THREAD, DIRECTORY, Step::Name, None);
        (clock, dead)
    }

    fn walks_again(dead: &DeadDirectories) -> bool {
        dead.walk(THREAD, FOUND, Step::Last).is_some_and(|walk| walk.has_found)
    }

    #[test]
    fn a_second_walk_ends_with_the_operation_and_not_on_the_way() {
        let (_, dead) = walked_again();
        // A mount that caches no attributes is asked for those of each directory on the way.
        for (node, step) in [(DIRECTORY, Step::Way), (FOUND, Step::Number), (FOUND, Step::Way)] {
            dead.note_end(THREAD, node, step, None);
            assert!(walks_again(&dead));
        }
        dead.note_end(THREAD, FOUND, Step::Last, None);
        assert!(!walks_again(&dead));
    }

    #[test]
    fn a_second_walk_ends_where_nothing_is_found() {
        for step in [Step::Name, Step::Way, Step::Last] {
            let (_, dead) = walked_again();
            dead.note_end(THREAD, FOUND, step, Some(Errno::NOENT));
            assert!(!walks_again(&dead));
        }
    }

    /// The directory may be removed in between.
    #[test]
    fn a_name_that_is_not_found_is_looked_up_twice() {
        for (node, step, is_walking) in [
            (FOUND, Step::Name, true),
            (DIRECTORY, Step::Name, false),
            (FOUND, Step::Way, false),
            (FOUND, Step::Last, false),
        ] {
            let (_, dead) = walked_again();
            dead.note_end(THREAD, FOUND, Step::Name, Some(Errno::NOENT));
            assert_eq!(dead.walk(THREAD, node, step).is_some(), is_walking);
            dead.note_end(THREAD, node, step, Some(Errno::NOENT));
            assert_eq!(dead.walk(THREAD, FOUND, Step::Name).is_some(), is_walking);
        }
    }

    #[test]
    fn what_a_program_asked_for_ends_a_walk_soon() {
        let (clock, dead) = walked_again();
        dead.note_end(THREAD, FOUND, Step::Way, None);
        clock.advance(GOES_ON_WITHIN);
        assert!(!walks_again(&dead));
    }

    /// A program that waits for something asks for its attributes again and again.
    #[test]
    fn a_step_that_was_made_is_made_again_by_another_call() {
        let (_, dead) = walked_again();
        dead.note_end(THREAD, FOUND, Step::Way, None);
        dead.note_end(THREAD, DIRECTORY, Step::Way, None);
        assert!(walks_again(&dead));
        for (node, step) in [(FOUND, Step::Way), (DIRECTORY, Step::Way), (DIRECTORY, Step::Name)] {
            assert!(dead.walk(THREAD, node, step).is_none());
        }
        dead.note_end(THREAD, DIRECTORY, Step::Name, None);
        assert!(!walks_again(&dead));
    }
}
