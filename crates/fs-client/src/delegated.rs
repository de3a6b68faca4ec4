// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names in directories that are delegated to this client.
//!
//! Nobody else has ever changed them, so this client knows all of them, and that there is no other
//! one: it need not ask before it makes a file, nor for each place where a header is not.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;
use terrace_fs::{DELEGATED_FOR, NAME_BYTES_MAX, Reply, Request};

/// Names that are remembered, in all directories together.
const NAMES_MAX: usize = 1 << 17;

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 1 << 13;

/// Such names.
pub(crate) struct DelegatedNames {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    directories: HashMap<u64, Directory>,
    /// Names in all of them.
    names: usize,
    /// How many requests began that may have added a name elsewhere.
    added_elsewhere: u64,
}

/// A directory that was delegated when it was last heard of.
struct Directory {
    /// What may be there; everything that is, as long as nobody else changes it.
    names: HashSet<Box<[u8]>>,
    /// Until when nobody else does.
    until_ns: u64,
    /// How many requests began that may add a name.
    added: u64,
    /// How many of them have not ended.
    adding: u64,
}

/// A request that is on its way.
pub(crate) struct Begun {
    /// What is heard from its answer is true for so long.
    until_ns: u64,
    /// How many requests had begun to add names elsewhere, and in the directory from which it may
    /// take one if it is alone there.
    added_elsewhere: u64,
    added_alone: Option<u64>,
}

impl DelegatedNames {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// Whether it is certain that a name leads nowhere.
    pub(crate) fn is_nowhere(&self, directory: u64, name: &[u8]) -> bool {
        self.stays_nowhere(directory, name, Duration::ZERO)
    }

    /// The same also so long from now on, unless it is made here.
    pub(crate) fn stays_nowhere(&self, directory: u64, name: &[u8], time: Duration) -> bool {
        let state = self.state();
        let Some(known) = state.directories.get(&directory) else { return false };
        let is_name = name != b"." && name != b".." && (1..=NAME_BYTES_MAX).contains(&name.len());
        // The time is looked at last: until then nobody else made it.
        is_name && !known.names.contains(name) && {
            let time_ns = time.as_nanos() as u64;
            self.clock.now_ns().saturating_add(time_ns) < known.until_ns
        }
    }

    /// Whether nobody else changes names in a directory for so long.
    pub(crate) fn is_alone(&self, directory: u64, time: Duration) -> bool {
        let state = self.state();
        let Some(known) = state.directories.get(&directory) else { return false };
        self.clock.now_ns().saturating_add(time.as_nanos() as u64) < known.until_ns
    }

    /// Whether a directory was delegated to this client when it was last heard of.
    pub(crate) fn is_known(&self, directory: u64) -> bool {
        self.state().directories.contains_key(&directory)
    }

    /// A name was said to be gone, and is before anything else is asked.
    pub(crate) fn note_gone(&self, directory: u64, name: &[u8]) {
        let mut state = self.state();
        // Else it may be made just now.
        if state.added_alone(directory).is_some() {
            state.remove(directory, name);
        }
    }

    /// Names may be there in a directory that are not known.
    pub(crate) fn forget(&self, directory: u64) {
        self.state().forget(directory);
    }

    /// A request begins: the name that it may make may be there from now on.
    pub(crate) fn begin(&self, request: &Request<'_>) -> Begun {
        let until_ns = self.clock.now_ns().saturating_add(DELEGATED_FOR.as_nanos() as u64);
        let mut state = self.state();
        if let Some((directory, name)) = added_by(request) {
            state.add(directory, name);
        }
        let added_alone = match request {
            Request::Remove { directory, .. } => state.added_alone(*directory),
            _ => None,
        };
        Begun { until_ns, added_elsewhere: state.added_elsewhere, added_alone }
    }

    /// It has ended; `reply` where it did not fail.
    pub(crate) fn end(&self, begun: &Begun, request: &Request<'_>, reply: Option<&Reply>) {
        let mut state = self.state();
        if let Some((directory, _)) = added_by(request)
            && let Some(known) = state.directories.get_mut(&directory)
        {
            // Who guessed the number of a directory may have begun before it was made.
            known.adding = known.adding.saturating_sub(1);
        }
        match (request, reply) {
            (Request::Lookup { directory, .. }, Some(Reply::Nowhere)) => {
                state.renew(*directory, begun.until_ns);
            }
            (Request::Make { directory, .. }, Some(Reply::Made { node, delegated, .. })) => {
                match delegated.directory {
                    true => state.renew(*directory, begun.until_ns),
                    false => state.forget(*directory),
                }
                // Else something may have been made in it already.
                if delegated.node && state.added_elsewhere == begun.added_elsewhere {
                    state.remember(node.number, begun.until_ns);
                }
            }
            (
                Request::Remove { directory, name, .. },
                Some(Reply::Gone { number, is_delegated, .. }),
            ) => {
                match is_delegated {
                    true => state.renew(*directory, begun.until_ns),
                    false => state.forget(*directory),
                }
                // Else it may have been made again meanwhile.
                if begun
                    .added_alone
                    .is_some_and(|added| state.added_alone(*directory) == Some(added))
                {
                    state.remove(*directory, name);
                }
                state.forget(*number);
            }
            (
                Request::RemoveNumbered { directory, .. },
                Some(Reply::Removed { is_delegated, .. }),
            ) => match is_delegated {
                true => state.renew(*directory, begun.until_ns),
                false => state.forget(*directory),
            },
            (_, Some(Reply::Gone { number, .. })) => state.forget(*number),
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A name too many does no harm, and each other change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes that a name may be there.
    fn add(&mut self, directory: u64, name: &[u8]) {
        let Some(known) = self.directories.get_mut(&directory) else {
            self.added_elsewhere += 1;
            return;
        };
        known.added += 1;
        known.adding += 1;
        if known.names.contains(name) {
            return;
        }
        known.names.insert(name.into());
        self.names += 1;
        if self.names > NAMES_MAX {
            self.clear();
        }
    }

    fn remove(&mut self, directory: u64, name: &[u8]) {
        if let Some(known) = self.directories.get_mut(&directory) {
            self.names -= usize::from(known.names.remove(name));
        }
    }

    /// How many requests added names in a directory, if none is on its way.
    fn added_alone(&self, directory: u64) -> Option<u64> {
        let known = self.directories.get(&directory)?;
        (known.adding == 0).then_some(known.added)
    }

    fn renew(&mut self, directory: u64, until_ns: u64) {
        if let Some(known) = self.directories.get_mut(&directory) {
            known.until_ns = known.until_ns.max(until_ns);
        }
    }

    /// Remembers a directory that was made, and is empty.
    fn remember(&mut self, directory: u64, until_ns: u64) {
        if self.directories.len() >= DIRECTORIES_MAX {
            self.clear();
        }
        let known = Directory { names: HashSet::new(), until_ns, added: 0, adding: 0 };
        self.directories.insert(directory, known);
    }

    fn forget(&mut self, directory: u64) {
        let gone = self.directories.remove(&directory);
        self.names -= gone.map_or(0, |known| known.names.len());
    }

    fn clear(&mut self) {
        self.directories.clear();
        self.names = 0;
        // Requests are on their way that add names in what is forgotten now.
        self.added_elsewhere += 1;
    }
}

/// The name that a request may add, and where.
fn added_by<'a>(request: &Request<'a>) -> Option<(u64, &'a [u8])> {
    match request {
        Request::Make { name: [], .. } => None,
        Request::Make { directory, name, .. } | Request::Link { directory, name, .. } => {
            Some((*directory, name))
        }
        Request::Rename { to_directory, to, .. } => Some((*to_directory, to)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use terrace_fs::{Delegated, Kind, Made, Node};
    use terrace_testkit::ManualClock;

    use super::*;

    const ROOT: u64 = 1;
    const DIRECTORY: u64 = 7;

    struct Scene {
        names: DelegatedNames,
        clock: Arc<ManualClock>,
    }

    impl Scene {
        /// A client that has just made a directory.
        fn new() -> Self {
            let clock = Arc::new(ManualClock::new());
            let names = DelegatedNames::new(Arc::<ManualClock>::clone(&clock));
            let scene = Self { names, clock };
            scene.make_directory(DIRECTORY, || {});
            scene
        }

        fn make_directory(&self, number: u64, meanwhile: impl FnOnce()) {
            let request = make(ROOT, b"directory", Kind::Directory);
            let begun = self.names.begin(&request);
            meanwhile();
            self.names.end(&begun, &request, Some(&made(number, [false, true])));
        }

        /// Makes a file, and is told whether the directory is still delegated.
        fn make(&self, name: &[u8], is_delegated: bool) {
            let request = make(DIRECTORY, name, Kind::File);
            let begun = self.names.begin(&request);
            self.names.end(&begun, &request, Some(&made(99, [is_delegated, false])));
        }

        fn remove(&self, name: &[u8], meanwhile: impl FnOnce()) {
            let request = remove(name);
            let begun = self.names.begin(&request);
            meanwhile();
            self.names.end(&begun, &request, Some(&gone(99, true)));
        }

        fn is_nowhere(&self, name: &[u8]) -> bool {
            self.names.is_nowhere(DIRECTORY, name)
        }
    }

    fn make(directory: u64, name: &[u8], kind: Kind) -> Request<'_> {
        Request::Make { directory, name, made: Made { kind, ..Made::default() } }
    }

    fn remove(name: &[u8]) -> Request<'_> {
        Request::Remove { directory: DIRECTORY, name, is_directory: false }
    }

    fn made(number: u64, [directory, node]: [bool; 2]) -> Reply {
        let delegated = Delegated { directory, node };
        let node = Node { number, ..Node::default() };
        Reply::Made { node, directory: Node::default(), delegated }
    }

    fn gone(number: u64, is_delegated: bool) -> Reply {
        Reply::Gone { number, has_garbage: false, directory: None, is_delegated }
    }

    #[test]
    fn what_was_not_made_is_nowhere_as_long_as_nobody_else_makes_it() {
        let scene = Scene::new();
        assert!(scene.is_nowhere(b"a"));
        assert!(!scene.names.is_nowhere(ROOT, b"a"), "others may have made it");
        for special in [&b"."[..], b"..", b"", &[b'a'; NAME_BYTES_MAX + 1]] {
            assert!(!scene.is_nowhere(special), "{special:?}");
        }
        scene.make(b"a", true);
        assert!(!scene.is_nowhere(b"a"));
        assert!(scene.is_nowhere(b"b"));
        scene.clock.advance(DELEGATED_FOR);
        assert!(!scene.is_nowhere(b"b"), "somebody else may come now");
        scene.make(b"c", true);
        assert!(scene.is_nowhere(b"b"), "nobody did");
        scene.make(b"d", false);
        assert!(!scene.is_nowhere(b"b"), "somebody did");
        scene.make(b"e", true);
        assert!(!scene.is_nowhere(b"b"), "whatever is said later");
    }

    #[test]
    fn the_time_counts_from_when_it_was_asked() {
        let scene = Scene::new();
        let request = make(DIRECTORY, b"a", Kind::File);
        let begun = scene.names.begin(&request);
        scene.clock.advance(DELEGATED_FOR);
        scene.names.end(&begun, &request, Some(&made(99, [true, false])));
        assert!(!scene.is_nowhere(b"b"), "the answer is that old");
        let request = Request::Lookup { directory: DIRECTORY, name: b"b" };
        let begun = scene.names.begin(&request);
        scene.clock.advance(DELEGATED_FOR / 2);
        scene.names.end(&begun, &request, Some(&Reply::Nowhere));
        assert!(scene.is_nowhere(b"b"), "it was asked for");
        scene.clock.advance(DELEGATED_FOR / 2);
        assert!(!scene.is_nowhere(b"b"));
    }

    #[test]
    fn what_may_have_been_made_is_asked_for() {
        let scene = Scene::new();
        let names: [&[u8]; 3] = [b"made", b"linked", b"moved"];
        let link = Request::Link { number: 3, directory: DIRECTORY, name: names[1] };
        let rename = Request::Rename {
            from_directory: ROOT,
            from: b"x",
            to_directory: DIRECTORY,
            to: names[2],
            how: terrace_fs::RenameHow::default(),
            user: 0,
            group: 0,
        };
        for (request, name) in
            [make(DIRECTORY, names[0], Kind::File), link, rename].iter().zip(names)
        {
            let begun = scene.names.begin(request);
            assert!(!scene.is_nowhere(name), "{request:?}");
            // Whether it was carried out nobody knows.
            scene.names.end(&begun, request, None);
            assert!(!scene.is_nowhere(name), "{request:?}");
        }
    }

    #[test]
    fn what_was_removed_is_nowhere_unless_it_may_be_there_again() {
        let scene = Scene::new();
        scene.make(b"a", true);
        scene.remove(b"a", || {});
        assert!(scene.is_nowhere(b"a"));
        scene.make(b"a", true);
        scene.remove(b"a", || scene.make(b"a", true));
        assert!(!scene.is_nowhere(b"a"), "which of them was first nobody knows");
        let request = make(DIRECTORY, b"b", Kind::File);
        let begun = scene.names.begin(&request);
        scene.remove(b"b", || scene.names.end(&begun, &request, Some(&made(99, [true, false]))));
        assert!(!scene.is_nowhere(b"b"), "which of them was first nobody knows");
    }

    #[test]
    fn a_directory_in_which_something_may_have_been_made_already_is_not_known() {
        let scene = Scene::new();
        scene.make_directory(8, || {
            scene.names.begin(&make(8, b"a", Kind::File));
        });
        assert!(!scene.names.is_nowhere(8, b"a"));
        assert!(!scene.names.is_nowhere(8, b"b"));
        scene.make_directory(9, || scene.make(b"elsewhere", true));
        assert!(scene.names.is_nowhere(9, b"a"), "it was made in another directory");
    }

    #[test]
    fn a_directory_that_is_gone_is_forgotten() {
        let scene = Scene::new();
        let request = Request::Remove { directory: ROOT, name: b"directory", is_directory: true };
        let begun = scene.names.begin(&request);
        scene.names.end(&begun, &request, Some(&gone(DIRECTORY, false)));
        assert!(!scene.is_nowhere(b"a"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let scene = Scene::new();
        for number in 0..=NAMES_MAX {
            assert!(scene.is_nowhere(b"never"), "{number}");
            scene.make(number.to_string().as_bytes(), true);
        }
        assert!(!scene.is_nowhere(b"never"), "there are too many");
        assert_eq!(scene.names.state().names, 0);
        for number in 0..=DIRECTORIES_MAX as u64 {
            scene.make_directory(1000 + number, || {});
        }
        assert_eq!(scene.names.state().directories.len(), 1);
    }
}
