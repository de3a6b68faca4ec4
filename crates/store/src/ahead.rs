// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of a directory that were fetched together, ahead of programs that ask for one after the
//! other.
//!
//! Who looks at some names of a directory soon looks at the rest: a version control system, a
//! compiler, a backup. One request then brings hundreds of them, each as good for as long as what
//! the kernel keeps of a name that it asked for. An answer is given once: the kernel has it from then
//! on, and asks again only to hear something newer.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fs::{Listed, Node, Reply, Request, Result};

use crate::changed::Changed;

/// Names that are asked for in a directory, one by one, before others are fetched.
const ASKED_MIN: u64 = 8;

/// Names that are fetched for each that was asked for, at most: to bring so many costs about what it
/// costs to ask for one. Where they are not needed, little is lost.
const FETCHED_PER_ASKED: u64 = 64;

/// Names that are fetched at once.
const FETCHED_MAX: u32 = 1024;

/// Of directories with more nothing is fetched. They are in the order of a hash, so that all have to
/// be there before it is likely that the next one is.
const SIZE_MAX: u64 = 8 * FETCHED_MAX as u64;

/// Directories that are remembered, and names in all of them.
const DIRECTORIES_MAX: usize = 1 << 8;
const NAMES_MAX: usize = 1 << 14;

/// Names of a directory that are remembered because they were asked for one by one. That many are
/// only where nothing can be fetched.
const TOLD_MAX: usize = 1 << 8;

/// Such names.
pub(crate) struct NamesAhead {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    directories: HashMap<u64, Directory>,
    /// Where each node is among the names of directories: there once.
    places: HashMap<u64, (u64, Box<[u8]>)>,
    /// Requests on their way that change something.
    changing: usize,
    /// What has changed since names are being fetched, while they are.
    fetching: Option<Touched>,
}

/// A directory in which names are asked for.
struct Directory {
    /// Since when they are counted.
    since_ns: u64,
    asked: u64,
    /// The names that were asked for: who asks again wants to know better.
    told: HashSet<Box<[u8]>>,
    /// The names that were fetched, the nodes that they lead to, and when they were asked for.
    names: HashMap<Box<[u8]>, (Node, u64)>,
    /// Behind which position the next ones are; `None` where there are none, or too many.
    next: Option<u64>,
}

/// What changed.
#[derive(Default)]
struct Touched {
    all: bool,
    nodes: HashSet<u64>,
    names: HashSet<(u64, Box<[u8]>)>,
}

/// What should be fetched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    directory: u64,
    position: u64,
    at_ns: u64,
}

impl Fetch {
    /// The request for it.
    pub(crate) fn request(&self) -> Request<'static> {
        let Self { directory, position: after, .. } = *self;
        Request::List { directory, after, max: FETCHED_MAX, with_nodes: true }
    }
}

impl NamesAhead {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// A request begins: what it may change is not known any more.
    pub(crate) fn begin(&self, request: &Request<'_>, changed: &Changed) {
        if *changed != Changed::None {
            let mut state = self.state();
            state.changing += 1;
            state.touch(request, changed);
        }
    }

    /// It has ended. Whatever it says of a name or a node is newer than what was fetched.
    pub(crate) fn end(&self, request: &Request<'_>, changed: &Changed, asked: &Result<Reply>) {
        let mut state = self.state();
        if *changed != Changed::None {
            state.changing -= 1;
            state.touch(request, changed);
        }
        match (request, asked) {
            (Request::Lookup { directory, name }, Ok(Reply::Node(node))) => {
                state.touch_node(node.number);
                state.touch_name(*directory, name);
                state.count(*directory, name);
            }
            (_, Ok(Reply::Node(node) | Reply::Opened { node, .. })) => {
                state.touch_node(node.number)
            }
            // It has one name less, or is gone.
            (_, Ok(Reply::Gone { number, .. })) => state.touch_node(*number),
            // The kernel asks where the name leads now.
            (
                Request::Lookup { directory: number, .. }
                | Request::List { directory: number, .. }
                | Request::Node { number }
                | Request::Target { number }
                | Request::Xattr { number, .. }
                | Request::Xattrs { number },
                Err(failure),
            ) if failure.errno() == Errno::STALE => state.touch_node(*number),
            _ => {}
        }
    }

    /// What a name led to less than `age_max` ago, and how long ago; said once.
    pub(crate) fn take(
        &self,
        directory: u64,
        name: &[u8],
        age_max: Duration,
    ) -> Option<(Node, Duration)> {
        let mut state = self.state();
        let (node, at_ns) = state.forget_name(directory, name)?;
        let age = Duration::from_nanos(self.clock.now_ns().saturating_sub(at_ns));
        (age < age_max).then_some((node, age))
    }

    /// Whether names of a directory should be fetched for who asks for one of them. `size` tells how
    /// many there are, where that is known; it may ask.
    ///
    /// # Errors
    ///
    /// Those of `size`.
    pub(crate) fn wanted(
        &self,
        directory: u64,
        age_max: Duration,
        size: impl FnOnce() -> Result<Option<u64>>,
    ) -> Result<Option<Fetch>> {
        let at_ns = self.clock.now_ns();
        if age_max.is_zero() || !self.state().is_wanted(directory, 0, at_ns, age_max) {
            return Ok(None);
        }
        let Some(size) = size()? else { return Ok(None) };
        let mut state = self.state();
        if size > SIZE_MAX {
            state.fetch_no_more(directory);
        }
        if !state.is_wanted(directory, size, at_ns, age_max) {
            return Ok(None);
        }
        let next = state.directories.get(&directory).and_then(|known| known.next);
        let Some(position) = next else { return Ok(None) };
        state.fetching = Some(Touched::default());
        Ok(Some(Fetch { directory, position, at_ns }))
    }

    /// What was wanted has been asked for.
    pub(crate) fn fetched(&self, fetch: &Fetch, asked: &Result<Reply>) {
        let mut state = self.state();
        let touched = state.fetching.take().unwrap_or_default();
        let Ok(Reply::Listing(entries)) = asked else {
            state.fetch_no_more(fetch.directory);
            return;
        };
        let Some(known) = state.directories.get_mut(&fetch.directory) else { return };
        let is_end = entries.len() < FETCHED_MAX as usize;
        known.next = entries.last().filter(|_| !is_end).map(|last| last.position);
        if touched.all {
            return;
        }
        if state.places.len() + entries.len() > NAMES_MAX {
            state.forget_names();
        }
        for entry in entries {
            state.remember(fetch, entry, &touched);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is in one of the maps alone is asked for, and each other change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn touch(&mut self, request: &Request<'_>, changed: &Changed) {
        match changed {
            Changed::None => {}
            Changed::These(nodes) => nodes.iter().for_each(|number| self.touch_node(*number)),
            Changed::Any => {
                self.forget_names();
                if let Some(touched) = &mut self.fetching {
                    touched.all = true;
                }
            }
        }
        match request {
            Request::Make { directory, name, .. }
            | Request::Link { directory, name, .. }
            | Request::Remove { directory, name, .. } => self.touch_name(*directory, name),
            // Changes any.
            _ => {}
        }
    }

    fn touch_node(&mut self, number: u64) {
        if let Some((directory, name)) = self.places.get(&number).cloned() {
            self.forget_name(directory, &name);
        }
        if let Some(touched) = &mut self.fetching {
            touched.nodes.insert(number);
        }
    }

    fn touch_name(&mut self, directory: u64, name: &[u8]) {
        self.forget_name(directory, name);
        if let Some(touched) = &mut self.fetching {
            touched.names.insert((directory, name.into()));
        }
    }

    /// Forgets a name, with its node; what it led to.
    fn forget_name(&mut self, directory: u64, name: &[u8]) -> Option<(Node, u64)> {
        let known = self.directories.get_mut(&directory)?.names.remove(name)?;
        self.places.remove(&known.0.number);
        Some(known)
    }

    fn forget_names(&mut self) {
        self.places.clear();
        self.directories.values_mut().for_each(|known| known.names.clear());
    }

    /// Notes that a name was asked for, and there.
    fn count(&mut self, directory: u64, name: &[u8]) {
        let is_special = matches!(name, [b'.'] | [b'.', b'.']);
        let Some(known) = self.directories.get_mut(&directory).filter(|_| !is_special) else {
            return;
        };
        known.asked += 1;
        if known.next.is_some() && known.told.insert(name.into()) && known.told.len() >= TOLD_MAX {
            self.fetch_no_more(directory);
        }
    }

    /// Fetches nothing of a directory until it is counted anew.
    fn fetch_no_more(&mut self, directory: u64) {
        if let Some(known) = self.directories.get_mut(&directory) {
            known.next = None;
            known.told.clear();
        }
    }

    /// Counts in a directory from now on, and forgets what is known of it.
    fn begin(&mut self, directory: u64, now_ns: u64) {
        if self.directories.len() >= DIRECTORIES_MAX && !self.directories.contains_key(&directory) {
            self.directories.clear();
            self.places.clear();
        }
        let new = Directory {
            since_ns: now_ns,
            asked: 0,
            told: HashSet::new(),
            names: HashMap::new(),
            next: Some(0),
        };
        let old = self.directories.insert(directory, new);
        for (node, _) in old.iter().flat_map(|old| old.names.values()) {
            self.places.remove(&node.number);
        }
    }

    /// Whether enough were asked for, lately, and nothing changes that could come in between.
    fn is_wanted(&mut self, directory: u64, size: u64, now_ns: u64, age_max: Duration) -> bool {
        let age = |known: &Directory| Duration::from_nanos(now_ns.saturating_sub(known.since_ns));
        if self.directories.get(&directory).is_none_or(|known| age(known) >= age_max) {
            self.begin(directory, now_ns);
        }
        let asked_min = ASKED_MIN.max(size.div_ceil(FETCHED_PER_ASKED));
        self.directories[&directory].asked >= asked_min
            && self.directories[&directory].next.is_some()
            && self.changing == 0
            && self.fetching.is_none()
    }

    fn remember(&mut self, fetch: &Fetch, entry: &Listed, touched: &Touched) {
        let Some(node) = &entry.node else { return };
        let name: Box<[u8]> = entry.name.as_slice().into();
        let Some(known) = self.directories.get(&fetch.directory) else { return };
        // The tiers know better how long what is being written is.
        let is_better_asked = node.is_written || known.told.contains(&name);
        let key = (fetch.directory, name);
        if is_better_asked || touched.nodes.contains(&node.number) || touched.names.contains(&key) {
            return;
        }
        // It may be known by another name.
        if let Some((directory, name)) = self.places.remove(&node.number) {
            self.forget_name(directory, &name);
        }
        if let Some(known) = self.directories.get_mut(&fetch.directory) {
            known.names.insert(key.1.clone(), (node.clone(), fetch.at_ns));
            self.places.insert(node.number, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use terrace_fs::{Changes, Kind, Made, RenameHow};
    use terrace_testkit::ManualClock;

    use super::*;

    const DIRECTORY: u64 = 7;
    const LONG: Duration = Duration::from_secs(1);
    const FILES: u64 = 100;

    struct Scene {
        names: NamesAhead,
        clock: Arc<ManualClock>,
    }

    impl Scene {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::new());
            Self { names: NamesAhead::new(Arc::<ManualClock>::clone(&clock)), clock }
        }

        /// Some names are asked for.
        fn ask(&self, count: u64) {
            self.ask_in(DIRECTORY, count);
        }

        /// As the mount does: it looks for what was fetched first.
        fn ask_in(&self, directory: u64, count: u64) {
            for number in 0..count {
                let name = format!("asked{number}");
                let request = Request::Lookup { directory, name: name.as_bytes() };
                let wanted = self.names.wanted(directory, LONG, || Ok(None));
                assert_eq!(wanted.expect("nobody is asked"), None);
                self.carry_out(&request, Ok(Reply::Node(Node::default())));
            }
        }

        fn wanted(&self, size: u64) -> Option<Fetch> {
            self.names.wanted(DIRECTORY, LONG, || Ok(Some(size))).expect("it is known")
        }

        /// Names are fetched while something else is done.
        fn fetch(&self, meanwhile: impl FnOnce()) {
            self.ask(ASKED_MIN);
            let fetch = self.wanted(FILES).expect("enough were asked for");
            meanwhile();
            self.fetched(&fetch, 1..=FILES);
        }

        fn fetched(&self, fetch: &Fetch, numbers: std::ops::RangeInclusive<u64>) {
            self.names.fetched(fetch, &Ok(Reply::Listing(numbers.map(listed).collect())));
        }

        fn take(&self, number: u64) -> Option<u64> {
            let found = self.names.take(DIRECTORY, number.to_string().as_bytes(), LONG);
            found.map(|(node, _)| node.number)
        }

        fn carry_out(&self, request: &Request<'_>, asked: Result<Reply>) {
            let changed = Changed::by(request);
            self.names.begin(request, &changed);
            self.names.end(request, &changed, &asked);
        }
    }

    fn listed(number: u64) -> Listed {
        let node = Node { number, is_written: number == 3, ..Node::default() };
        Listed {
            name: number.to_string().into(),
            position: number,
            number,
            kind: Kind::File,
            node: (number != 4).then_some(node),
        }
    }

    fn change(number: u64) -> Request<'static> {
        Request::Change { number, changes: Changes::default() }
    }

    const REMOVE: Request<'_> =
        Request::Remove { directory: DIRECTORY, name: b"7", is_directory: false };
    const RENAME: Request<'_> = Request::Rename {
        from_directory: 1,
        from: b"a",
        to_directory: DIRECTORY,
        to: b"8",
        how: RenameHow { keeps_existing: false, exchanges: false, leaves_whiteout: false },
        user: 0,
        group: 0,
    };

    #[test]
    fn names_are_fetched_once_enough_were_asked_for() {
        let scene = Scene::new();
        assert_eq!(scene.wanted(FILES), None, "none was asked for");
        scene.ask(ASKED_MIN - 1);
        assert_eq!(scene.wanted(FILES), None);
        scene.ask(1);
        let unknown = scene.names.wanted(DIRECTORY, LONG, || Ok(None)).expect("nothing failed");
        assert_eq!(unknown, None, "nobody knows how many");
        let failed = scene.names.wanted(DIRECTORY, LONG, || Err(Errno::IO.into()));
        assert_eq!(failed.expect_err("nobody answers").errno(), Errno::IO);
        let other = scene.names.wanted(8, LONG, || Ok(Some(1))).expect("nobody is asked");
        assert_eq!(other, None, "another directory");
        assert_eq!(scene.wanted(FETCHED_PER_ASKED * ASKED_MIN + 1), None, "too many for them");
        let fetch = scene.wanted(FETCHED_PER_ASKED * ASKED_MIN).expect("not too many");
        assert_eq!(scene.wanted(FILES), None, "they are being fetched");
        scene.fetched(&fetch, 1..=u64::from(FETCHED_MAX));
        let more = scene.wanted(FILES).expect("there are more");
        assert_eq!(more.position, u64::from(FETCHED_MAX));
        scene.fetched(&more, 5000..=5000);
        assert_eq!(scene.wanted(FILES), None, "there are no more");
        scene.clock.advance(LONG);
        assert_eq!(scene.wanted(FILES), None, "that was long ago");
        scene.ask(ASKED_MIN);
        let again = scene.wanted(FILES).expect("they are asked for again");
        assert_eq!(again.position, 0);
        scene.names.fetched(&again, &Err(Errno::IO.into()));
        assert_eq!(scene.wanted(FILES), None, "they cannot be had");
    }

    #[test]
    fn nothing_is_fetched_of_large_directories_nor_for_those_who_believe_nothing() {
        let scene = Scene::new();
        let request = Request::Lookup { directory: DIRECTORY, name: b"a" };
        for _ in 0..10 * ASKED_MIN {
            let size = || Ok(Some(FILES));
            let wanted = scene.names.wanted(DIRECTORY, Duration::ZERO, size);
            assert_eq!(wanted.expect("nobody is asked"), None);
            scene.carry_out(&request, Ok(Reply::Node(Node::default())));
        }
        assert!(scene.names.state().directories.is_empty(), "nothing is remembered for them");
        scene.ask(SIZE_MAX / FETCHED_PER_ASKED);
        assert_eq!(scene.wanted(SIZE_MAX + 1), None);
        assert_eq!(scene.wanted(SIZE_MAX), None, "its size is not asked for again at once");
    }

    #[test]
    fn what_was_fetched_is_told_once_as_long_as_it_is_new() {
        let scene = Scene::new();
        scene.fetch(|| {});
        assert_eq!(scene.take(1), Some(1));
        assert_eq!(scene.take(1), None, "who asks again wants to know better");
        assert_eq!(scene.take(3), None, "it is being written");
        assert_eq!(scene.take(4), None, "nothing came with the name");
        assert_eq!(scene.take(FILES + 1), None, "there is no such name");
        scene.clock.advance(LONG / 2);
        let (_, age) = scene.names.take(DIRECTORY, b"2", LONG).expect("new enough");
        assert_eq!(age, LONG / 2);
        scene.clock.advance(LONG / 2);
        assert_eq!(scene.take(5), None, "too old");
    }

    #[test]
    fn what_this_client_changes_is_asked_for() {
        let make = Request::Make { directory: DIRECTORY, name: b"6", made: Made::default() };
        let gone =
            Reply::Gone { number: 9, has_garbage: false, directory: None, is_delegated: false };
        for is_meanwhile in [false, true] {
            let scene = Scene::new();
            let changes = || {
                scene.carry_out(&change(5), Err(Errno::IO.into()));
                scene.carry_out(&make, Err(Errno::IO.into()));
                scene.carry_out(&REMOVE, Ok(gone.clone()));
            };
            match is_meanwhile {
                true => scene.fetch(changes),
                false => {
                    scene.fetch(|| {});
                    changes();
                }
            }
            for number in [5, 6, 7, 9] {
                assert_eq!(scene.take(number), None, "{number} {is_meanwhile}");
            }
            assert_eq!(scene.take(8), Some(8), "it did not change");
        }
    }

    #[test]
    fn where_anything_may_have_changed_all_is_asked_for() {
        let scene = Scene::new();
        scene.fetch(|| scene.carry_out(&RENAME, Ok(Reply::Done)));
        assert_eq!(scene.take(1), None);
        let scene = Scene::new();
        scene.fetch(|| {});
        scene.carry_out(&RENAME, Ok(Reply::Done));
        assert_eq!(scene.take(1), None);
    }

    #[test]
    fn nothing_is_fetched_beside_a_change_whose_end_is_not_known() {
        let scene = Scene::new();
        scene.ask(ASKED_MIN);
        let request = change(5);
        let changed = Changed::by(&request);
        scene.names.begin(&request, &changed);
        assert_eq!(scene.wanted(FILES), None);
        scene.names.end(&request, &changed, &Ok(Reply::Done));
        assert!(scene.wanted(FILES).is_some());
    }

    #[test]
    fn newer_answers_count_also_those_that_come_while_names_are_fetched() {
        let lookup = Request::Lookup { directory: DIRECTORY, name: b"1" };
        let node = |number| Ok(Reply::Node(Node { number, ..Node::default() }));
        let stale = || Err(Errno::STALE.into());
        for is_meanwhile in [false, true] {
            let scene = Scene::new();
            let answers = || {
                scene.carry_out(&lookup, node(500));
                scene.carry_out(&Request::Node { number: 2 }, node(2));
                let node = Node { number: 5, ..Node::default() };
                let opened = Reply::Opened { node, content: Vec::new() };
                scene.carry_out(&Request::Content { number: 5 }, Ok(opened));
                scene.carry_out(&Request::Target { number: 6 }, stale());
                scene.carry_out(&Request::Lookup { directory: 7, name: b"a" }, stale());
            };
            match is_meanwhile {
                true => scene.fetch(answers),
                false => {
                    scene.fetch(|| {});
                    answers();
                }
            }
            for number in [1, 2, 5, 6, 7] {
                assert_eq!(scene.take(number), None, "{number} {is_meanwhile}");
            }
            assert_eq!(scene.take(8), Some(8));
        }
    }

    #[test]
    fn who_was_told_of_a_name_is_not_told_what_was_fetched_later() {
        let scene = Scene::new();
        scene.ask(ASKED_MIN);
        let fetch = scene.wanted(FILES).expect("enough were asked for");
        let entry = Listed { name: b"asked0".into(), ..listed(1) };
        scene.names.fetched(&fetch, &Ok(Reply::Listing(vec![entry, listed(2)])));
        assert_eq!(scene.names.take(DIRECTORY, b"asked0", LONG), None);
        assert_eq!(scene.take(2), Some(2));
    }

    #[test]
    fn a_name_is_no_newer_because_its_node_was_fetched_by_another_one() {
        let scene = Scene::new();
        scene.fetch(|| {});
        scene.clock.advance(10 * LONG);
        scene.ask_in(8, ASKED_MIN);
        let wanted = scene.names.wanted(8, LONG, || Ok(Some(FILES))).expect("it is known");
        scene.fetched(&wanted.expect("enough were asked for"), 1..=FILES);
        assert_eq!(scene.take(1), None, "that was long ago");
        let (node, _) = scene.names.take(8, b"1", LONG).expect("it was just fetched");
        assert_eq!(node.number, 1);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let scene = Scene::new();
        for directory in 0..2 * DIRECTORIES_MAX as u64 {
            scene.ask_in(1000 + directory, 1);
        }
        assert_eq!(scene.names.state().directories.len(), DIRECTORIES_MAX);
        let page = u64::from(FETCHED_MAX);
        // In each period there are others.
        for period in 1..=2 * NAMES_MAX as u64 / page {
            scene.clock.advance(LONG);
            scene.ask(ASKED_MIN);
            let fetch = scene.wanted(FILES).expect("there are more");
            scene.fetched(&fetch, 1000 * period..=1000 * period + page - 1);
            assert_eq!(scene.names.state().places.len(), page as usize, "{period}");
        }
        for directory in 0..2 * NAMES_MAX as u64 / page {
            scene.ask_in(directory, ASKED_MIN);
            let size = || Ok(Some(FILES));
            let fetch = scene.names.wanted(directory, LONG, size).expect("it is known");
            let first = 1_000_000 + directory * page;
            scene.fetched(&fetch.expect("enough were asked for"), first..=first + page - 1);
            assert!(scene.names.state().places.len() <= NAMES_MAX);
        }
        for number in 0..2 * TOLD_MAX {
            let name = number.to_string();
            let request = Request::Lookup { directory: 0, name: name.as_bytes() };
            scene.carry_out(&request, Ok(Reply::Node(Node::default())));
        }
        assert!(scene.names.state().directories[&0].told.len() < TOLD_MAX);
    }
}
