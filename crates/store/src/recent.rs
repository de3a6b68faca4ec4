// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories as a server told them with the last change that was made in them from here.
//!
//! The kernel asks for a directory anew after each change in it. What came with the answer to the
//! change is as good as what the question would bring.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;
use terrace_fs::{Node, Reply, Request};

/// Directories that are remembered; a forgotten one is asked for.
const DIRECTORIES_MAX: usize = 1024;

/// Such directories.
pub(crate) struct RecentDirectories {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    /// Each with when the change was asked for.
    known: HashMap<u64, (Node, u64)>,
    /// How many changes began.
    begun: u64,
}

/// A change that is on its way.
pub(crate) struct Begun {
    /// Nodes that it concerns.
    nodes: Vec<u64>,
    count: u64,
    at_ns: u64,
}

impl RecentDirectories {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// A request begins: what it may change is not known any more.
    pub(crate) fn begin(&self, request: &Request<'_>) -> Option<Begun> {
        let nodes = match request {
            Request::Make { directory, .. } | Request::Remove { directory, .. } => vec![*directory],
            Request::Rename { from_directory, to_directory, .. } => {
                vec![*from_directory, *to_directory]
            }
            Request::Link { directory, .. } => vec![*directory],
            Request::Change { number, .. }
            | Request::SetXattr { number, .. }
            | Request::RemoveXattr { number, .. }
            | Request::Mark { number, .. } => vec![*number],
            _ => return None,
        };
        let at_ns = self.clock.now_ns();
        let mut state = self.state();
        state.forget(&nodes);
        state.begun += 1;
        Some(Begun { nodes, count: state.begun, at_ns })
    }

    /// A request has ended; `reply` where it did not fail.
    pub(crate) fn end(&self, begun: Begun, reply: Option<&Reply>) {
        let mut state = self.state();
        state.forget(&begun.nodes);
        let told = match reply {
            Some(Reply::Made { directory, .. }) => Some(directory),
            Some(Reply::Gone { directory, .. }) => directory.as_ref(),
            _ => None,
        };
        // Else another change began meanwhile, and may have been carried out later.
        if let (Some(node), true) = (told, state.begun == begun.count) {
            if state.known.len() >= DIRECTORIES_MAX {
                state.known.clear();
            }
            state.known.insert(node.number, (node.clone(), begun.at_ns));
        }
    }

    /// A directory that was told less than `age_max` ago, and how long ago.
    pub(crate) fn find(&self, number: u64, age_max: Duration) -> Option<(Node, Duration)> {
        let state = self.state();
        let (node, at_ns) = state.known.get(&number)?;
        let age = Duration::from_nanos(self.clock.now_ns().saturating_sub(*at_ns));
        (age < age_max).then(|| (node.clone(), age))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the map is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self, nodes: &[u64]) {
        nodes.iter().for_each(|number| drop(self.known.remove(number)));
    }
}

#[cfg(test)]
mod tests {
    use terrace_fs::ROOT;
    use terrace_testkit::ManualClock;

    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    const REMOVE: Request<'_> =
        Request::Remove { directory: ROOT, name: b"f", is_directory: false };

    /// A directory as it is after so many changes.
    fn gone(size: u64) -> Reply {
        let directory = Some(Node { number: ROOT, size, ..Node::default() });
        Reply::Gone { number: 7, has_garbage: false, directory }
    }

    fn recent() -> (RecentDirectories, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        (RecentDirectories::new(Arc::<ManualClock>::clone(&clock)), clock)
    }

    fn size(recent: &RecentDirectories) -> Option<u64> {
        recent.find(ROOT, LONG).map(|(node, _)| node.size)
    }

    fn change(recent: &RecentDirectories, size: u64) {
        let begun = recent.begin(&REMOVE).expect("it changes a directory");
        recent.end(begun, Some(&gone(size)));
    }

    #[test]
    fn a_directory_is_known_for_a_while_after_a_change() {
        let (recent, clock) = recent();
        change(&recent, 5);
        clock.advance(LONG / 2);
        assert_eq!(
            recent.find(ROOT, LONG).map(|(node, age)| (node.size, age)),
            Some((5, LONG / 2))
        );
        assert_eq!(recent.find(ROOT, Duration::ZERO), None);
        clock.advance(LONG / 2);
        assert_eq!(size(&recent), None);
    }

    #[test]
    fn another_change_makes_it_unknown() {
        let (recent, _) = recent();
        for request in [
            Request::Mark { number: ROOT, marks: terrace_fs::Marks::default() },
            Request::RemoveXattr { number: ROOT, name: b"user.a" },
        ] {
            change(&recent, 5);
            let begun = recent.begin(&request).expect("it changes the directory");
            assert_eq!(size(&recent), None, "on its way");
            recent.end(begun, Some(&Reply::Done));
            assert_eq!(size(&recent), None, "the reply does not tell of it");
        }
        change(&recent, 6);
        assert_eq!(size(&recent), Some(6));
    }

    #[test]
    fn of_two_changes_at_once_nobody_knows_which_was_first() {
        let (recent, _) = recent();
        let first = recent.begin(&REMOVE).expect("it changes a directory");
        let second = recent.begin(&REMOVE).expect("it changes a directory");
        recent.end(second, Some(&gone(4)));
        recent.end(first, Some(&gone(5)));
        assert_eq!(size(&recent), None);
    }
}
