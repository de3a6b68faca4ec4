// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of a directory that were fetched together, ahead of programs that ask for one after the
//! other.
//!
//! Who looks at some names of a directory soon looks at the rest: a version control system, a
//! compiler, a backup. One request then brings hundreds of them, each as good for as long as what
//! the kernel keeps of a name that it asked for. An answer is given once: the kernel has it from then
//! on, and asks again only to hear something newer – or because it has forgotten it since, which it
//! says: it is given again then, as one is that was asked for alone.
//!
//! Where names lead is kept here, what is known of the nodes by [`crate::recent`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fs::{Listed, Reply, Request, Result};

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
    /// How many requests that change something began, and how many of them have not ended.
    begun: u64,
    changing: usize,
    /// What has changed since names are being fetched, while they are.
    fetching: Option<Touched>,
}

/// A directory in which names are asked for.
struct Directory {
    /// Since when they are counted.
    since_ns: u64,
    asked: u64,
    /// How often all names were fetched meanwhile.
    listings: u32,
    names: HashMap<Box<[u8]>, Known>,
    /// Behind which position the next ones are; `None` where there are none, or too many.
    next: Option<u64>,
}

/// What is known of a name.
struct Known {
    /// The node that it leads to.
    number: u64,
    /// When it was asked for.
    at_ns: u64,
    /// Whether the kernel was told, and has not forgotten it: if it asks again it wants to know better.
    is_told: bool,
}

/// A request that is on its way.
pub(crate) struct Begun {
    at_ns: u64,
    /// How many changes had begun, this one counted.
    count: u64,
    /// Whether no other change was on its way.
    is_alone: bool,
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
    pub(crate) fn begin(&self, request: &Request<'_>, changed: &Changed) -> Begun {
        let at_ns = self.clock.now_ns();
        let mut state = self.state();
        let is_alone = state.changing == 0;
        if *changed != Changed::None {
            state.begun += 1;
            state.changing += 1;
            state.touch(request, changed);
        }
        Begun { at_ns, count: state.begun, is_alone }
    }

    /// It has ended. Whatever it says of a name is newer than what was fetched.
    pub(crate) fn end(
        &self,
        begun: &Begun,
        request: &Request<'_>,
        changed: &Changed,
        asked: &Result<Reply>,
    ) {
        let mut state = self.state();
        if *changed != Changed::None {
            state.changing -= 1;
            state.touch(request, changed);
        }
        if let Request::Lookup { directory, name } = request {
            let known = state.directories.get(directory).and_then(|it| it.names.get(*name));
            // That was asked for later, and answered sooner.
            if known.is_some_and(|known| known.at_ns > begun.at_ns) {
                return;
            }
            state.touch_name(*directory, name);
            // Nothing has the name: an answer that is on its way may be from before.
            if !matches!(asked, Ok(Reply::Node(_))) {
                state.begun += 1;
            }
        }
        let found = match (request, asked) {
            (Request::Lookup { directory, name }, Ok(Reply::Node(node))) => {
                state.count(*directory, name);
                Some((*directory, name, node))
            }
            (Request::Make { directory, name, .. }, Ok(Reply::Made { node, .. })) => {
                Some((*directory, name, node))
            }
            // The kernel asks where the name leads now.
            (_, Err(failure)) if failure.errno() == Errno::STALE => {
                state.touch_nodes(request, changed);
                None
            }
            _ => None,
        };
        // Else a name was changed meanwhile, perhaps after the server looked for this answer.
        if let Some((directory, name, node)) = found
            && begun.is_alone
            && state.begun == begun.count
            && !is_special(name)
        {
            let known = Known { number: node.number, at_ns: begun.at_ns, is_told: true };
            state.remember(directory, (*name).into(), known);
        }
    }

    /// Which node a name led to less than `age_max` ago, and how long ago. The kernel is told of it then,
    /// and again only once it has forgotten that.
    pub(crate) fn take(
        &self,
        directory: u64,
        name: &[u8],
        age_max: Duration,
    ) -> Option<(u64, Duration)> {
        let mut state = self.state();
        let known = state.directories.get_mut(&directory)?.names.get_mut(name)?;
        let age = Duration::from_nanos(self.clock.now_ns().saturating_sub(known.at_ns));
        let is_told = std::mem::replace(&mut known.is_told, true);
        (!is_told && age < age_max).then_some((known.number, age))
    }

    /// Which node a name led to when it was last heard of. Says nothing of what others did since.
    pub(crate) fn last(&self, directory: u64, name: &[u8]) -> Option<u64> {
        Some(self.state().directories.get(&directory)?.names.get(name)?.number)
    }

    /// The kernel has forgotten all names of a node.
    pub(crate) fn forgotten(&self, number: u64) {
        let mut state = self.state();
        let State { directories, places, .. } = &mut *state;
        if let Some((directory, name)) = places.get(&number)
            && let Some(known) = directories.get_mut(directory)
            && let Some(known) = known.names.get_mut(name)
        {
            known.is_told = false;
        }
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
        if is_end {
            // For what comes to be there later. But some names are asked for whatever was fetched, and
            // some of what was fetched is soon of no use.
            known.listings += 1;
            (known.asked, known.next) = (0, Some(0));
        }
        if touched.all {
            return;
        }
        state.make_room(entries.len());
        for entry in entries {
            state.remember_fetched(fetch, entry, &touched);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is in one of the maps alone is asked for, and each other change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names that lead elsewhere than to what is in the directory.
fn is_special(name: &[u8]) -> bool {
    matches!(name, [b'.'] | [b'.', b'.'])
}

impl State {
    /// Forgets names that a request may change, or has.
    fn touch(&mut self, request: &Request<'_>, changed: &Changed) {
        if *changed == Changed::Any {
            self.forget_names();
            if let Some(touched) = &mut self.fetching {
                touched.all = true;
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

    /// Forgets how to come to a node that a request was about.
    fn touch_nodes(&mut self, request: &Request<'_>, changed: &Changed) {
        match request {
            Request::Lookup { directory: number, .. }
            | Request::List { directory: number, .. }
            | Request::Node { number }
            | Request::Target { number }
            | Request::Xattr { number, .. }
            | Request::Xattrs { number }
            | Request::Open { number, .. }
            | Request::Content { number } => self.touch_node(*number),
            _ => {}
        }
        if let Changed::These(nodes) = changed {
            nodes.iter().for_each(|number| self.touch_node(*number));
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

    fn forget_name(&mut self, directory: u64, name: &[u8]) {
        let Some(known) = self.directories.get_mut(&directory) else { return };
        if let Some(known) = known.names.remove(name) {
            self.places.remove(&known.number);
        }
    }

    fn forget_names(&mut self) {
        self.places.clear();
        self.directories.values_mut().for_each(|known| known.names.clear());
    }

    /// Makes room for so many names.
    fn make_room(&mut self, count: usize) {
        if self.places.len() + count <= NAMES_MAX {
            return;
        }
        let Self { directories, places, .. } = self;
        for known in directories.values_mut() {
            known.names.retain(|_, known| {
                if known.is_told {
                    places.remove(&known.number);
                }
                !known.is_told
            });
        }
        // Else it would soon be looked for room again.
        if self.places.len() + count > NAMES_MAX / 2 {
            self.forget_names();
        }
    }

    /// Notes that a name was asked for, and there.
    fn count(&mut self, directory: u64, name: &[u8]) {
        if let Some(known) = self.directories.get_mut(&directory).filter(|_| !is_special(name)) {
            known.asked += 1;
        }
    }

    /// Fetches nothing of a directory until it is counted anew.
    fn fetch_no_more(&mut self, directory: u64) {
        if let Some(known) = self.directories.get_mut(&directory) {
            known.next = None;
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
            listings: 0,
            names: HashMap::new(),
            next: Some(0),
        };
        let old = self.directories.insert(directory, new);
        for known in old.iter().flat_map(|old| old.names.values()) {
            self.places.remove(&known.number);
        }
    }

    /// Whether enough were asked for, lately, and nothing changes that could come in between.
    fn is_wanted(&mut self, directory: u64, size: u64, now_ns: u64, age_max: Duration) -> bool {
        let age = |known: &Directory| Duration::from_nanos(now_ns.saturating_sub(known.since_ns));
        if self.directories.get(&directory).is_none_or(|known| age(known) >= age_max) {
            self.begin(directory, now_ns);
        }
        let known = &self.directories[&directory];
        // Each time twice as many.
        let asked_min = ASKED_MIN.max(size.div_ceil(FETCHED_PER_ASKED)) << known.listings.min(32);
        known.asked >= asked_min
            && known.next.is_some()
            && self.changing == 0
            && self.fetching.is_none()
    }

    /// Remembers a name that was fetched.
    fn remember_fetched(&mut self, fetch: &Fetch, entry: &Listed, touched: &Touched) {
        // One that was removed meanwhile comes without.
        if entry.node.is_none() {
            return;
        }
        let (directory, number) = (fetch.directory, entry.number);
        let key = (directory, entry.name.as_slice().into());
        if touched.nodes.contains(&number) || touched.names.contains(&key) {
            return;
        }
        let known = self.directories.get(&directory).and_then(|known| known.names.get(&key.1));
        // Who was told of it, and asks again, wants to know better.
        if known.is_none_or(|known| !known.is_told) {
            self.remember(directory, key.1, Known { number, at_ns: fetch.at_ns, is_told: false });
        }
    }

    fn remember(&mut self, directory: u64, name: Box<[u8]>, known: Known) {
        self.forget_name(directory, &name);
        // It may be known by another name.
        if let Some((directory, name)) = self.places.remove(&known.number) {
            self.forget_name(directory, &name);
        }
        self.make_room(1);
        if let Some(names) = self.directories.get_mut(&directory).map(|known| &mut known.names) {
            self.places.insert(known.number, (directory, name.clone()));
            names.insert(name, known);
        }
    }
}

#[cfg(test)]
mod tests;
