// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes as a server told them a moment ago.
//!
//! The kernel asks for a directory anew after each change in it, and for some of what is known of
//! a file (when it was made, its extended attributes) each time a program does. What came with the
//! answer to an earlier request is as good as what the question would bring.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;
use terrace_fs::{Closed, Listed, Node, Place, Reply};

use crate::changed::Changed;

/// Nodes that are remembered; a forgotten one is asked for.
const NODES_MAX: usize = 1 << 14;

/// Such nodes.
pub(crate) struct RecentNodes {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    /// Each with when it was asked for.
    known: HashMap<u64, (Node, u64)>,
    /// How often a request began or ended that may change nodes.
    count: u64,
    /// What this count was for the last one that may change each node, or any.
    changed: HashMap<u64, u64>,
    changed_any: u64,
    /// How many of them have not ended.
    changing: HashMap<u64, usize>,
    changing_any: usize,
}

/// A request that is on its way.
pub(crate) struct Begun {
    at_ns: u64,
    /// The count then, this one counted.
    count: u64,
}

impl RecentNodes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// A request begins: what it may change is not known any more.
    pub(crate) fn begin(&self, changed: &Changed) -> Begun {
        let at_ns = self.clock.now_ns();
        let mut state = self.state();
        match changed {
            Changed::None => {}
            Changed::These(nodes) => {
                nodes.iter().for_each(|number| *state.changing.entry(*number).or_default() += 1);
            }
            Changed::Any => state.changing_any += 1,
        }
        state.forget(changed);
        Begun { at_ns, count: state.count }
    }

    /// A request has ended; `reply` where it did not fail.
    pub(crate) fn end(&self, begun: Begun, changed: &Changed, reply: Option<&Reply>) {
        let mut state = self.state();
        match changed {
            Changed::None => {}
            Changed::These(nodes) => nodes.iter().for_each(|number| state.end(*number)),
            Changed::Any => state.changing_any -= 1,
        }
        if let Some(reply) = reply {
            state.make_room(reply);
            nodes(reply, |node| match state.is_certain(node.number, begun.count) {
                true => state.remember(node, begun.at_ns),
                // It was changed meanwhile, perhaps after the server looked for this answer. But who gets
                // it is not to find afterwards what was asked for before.
                false => state.outdate(node.number, begun.at_ns),
            });
        }
        // What the answer to a change says is known from now on, and not forgotten with its end.
        state.note(changed);
        if let Some(Reply::Gone { number, .. }) = reply {
            state.forget(&Changed::These(vec![*number]));
        }
    }

    /// Forgets which of these have objects: programs wrote to them past the metadata.
    pub(crate) fn forget_objects(&self, closed: &[Closed]) {
        let mut state = self.state();
        for closed in closed.iter().filter(|closed| closed.is_for_writing) {
            if let Entry::Occupied(known) = state.known.entry(closed.number)
                && known.get().0.place == Place::Object
            {
                known.remove();
            }
        }
    }

    /// A node that was told less than `age_max` ago, and how long ago.
    pub(crate) fn find(&self, number: u64, age_max: Duration) -> Option<(Node, Duration)> {
        let state = self.state();
        let (node, at_ns) = state.known.get(&number)?;
        let age = Duration::from_nanos(self.clock.now_ns().saturating_sub(*at_ns));
        (age < age_max).then(|| (node.clone(), age))
    }

    /// How many changes began or ended so far.
    pub(crate) fn count(&self) -> u64 {
        self.state().count
    }

    /// Whether nothing here may have changed a node since the count was this.
    pub(crate) fn is_certain(&self, number: u64, count: u64) -> bool {
        self.state().is_certain(number, count)
    }

    /// A node as it was told last, if that was asked for then or later.
    pub(crate) fn since(&self, number: u64, asked_ns: u64) -> Option<Node> {
        let state = self.state();
        let (node, at_ns) = state.known.get(&number)?;
        (*at_ns >= asked_ns).then(|| node.clone())
    }

    /// Takes note of a change of a node that others here see from now on, and is carried out before
    /// anything else is asked: where nothing else changes it, and it was told less than `age_max` ago. As
    /// old as before is what is known of it.
    pub(crate) fn change(
        &self,
        number: u64,
        age_max: Duration,
        change: impl FnOnce(&Node) -> Option<Node>,
    ) -> Option<Node> {
        let mut state = self.state();
        if state.changing_any > 0 || state.changing.contains_key(&number) {
            return None;
        }
        let now_ns = self.clock.now_ns();
        let (node, at_ns) = state.known.get_mut(&number)?;
        if Duration::from_nanos(now_ns.saturating_sub(*at_ns)) >= age_max {
            return None;
        }
        *node = change(node)?;
        let changed = node.clone();
        state.note(&Changed::These(vec![number]));
        Some(changed)
    }

    /// Forgets a node that is gone.
    pub(crate) fn forget(&self, number: u64) {
        self.state().forget(&Changed::These(vec![number]));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the map is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nothing is known any more of nodes that are being changed.
    fn forget(&mut self, changed: &Changed) {
        match changed {
            Changed::None => {}
            Changed::These(nodes) => {
                nodes.iter().for_each(|number| drop(self.known.remove(number)));
            }
            Changed::Any => self.known.clear(),
        }
        self.note(changed);
    }

    /// Counts what may have changed nodes: an answer to what was asked before may be from before it.
    fn note(&mut self, changed: &Changed) {
        if *changed != Changed::None {
            self.count += 1;
        }
        match changed {
            Changed::None => {}
            Changed::These(nodes) => {
                self.changed.extend(nodes.iter().map(|number| (*number, self.count)));
                if self.changed.len() > NODES_MAX {
                    self.changed.clear();
                    self.changed_any = self.count;
                }
            }
            Changed::Any => self.changed_any = self.count,
        }
    }

    /// One of the requests has ended that may change a node.
    fn end(&mut self, number: u64) {
        self.known.remove(&number);
        if let Entry::Occupied(mut changing) = self.changing.entry(number) {
            *changing.get_mut() -= 1;
            if *changing.get() == 0 {
                changing.remove();
            }
        }
    }

    /// Whether no other request may have changed a node since the count was this.
    fn is_certain(&self, number: u64, count: u64) -> bool {
        self.changing_any == 0
            && !self.changing.contains_key(&number)
            && self.changed_any <= count
            && self.changed.get(&number).is_none_or(|changed| *changed <= count)
    }

    /// Makes room for the nodes of a reply.
    fn make_room(&mut self, reply: &Reply) {
        let mut count = 0;
        nodes(reply, |_| count += 1);
        if self.known.len() + count > NODES_MAX {
            self.known.clear();
        }
    }

    fn remember(&mut self, node: &Node, at_ns: u64) {
        // The tiers know better how long it is; one without a name goes when it is closed.
        if node.is_written || node.links == 0 {
            self.known.remove(&node.number);
            return;
        }
        match self.known.entry(node.number) {
            // That was asked for later, and answered sooner.
            Entry::Occupied(known) if known.get().1 > at_ns => {}
            Entry::Occupied(mut known) => _ = known.insert((node.clone(), at_ns)),
            Entry::Vacant(place) => _ = place.insert((node.clone(), at_ns)),
        }
    }

    /// Drops what is known of a node where it was asked for before this.
    fn outdate(&mut self, number: u64, at_ns: u64) {
        if self.known.get(&number).is_some_and(|known| known.1 < at_ns) {
            self.known.remove(&number);
        }
    }
}

/// The nodes that a reply tells of.
pub(crate) fn nodes(reply: &Reply, mut each: impl FnMut(&Node)) {
    match reply {
        Reply::Node(node) | Reply::Opened { node, .. } => each(node),
        Reply::Made { node, directory, .. } => [node, directory].into_iter().for_each(each),
        Reply::Gone { directory, .. } => directory.iter().for_each(each),
        Reply::OpenedAhead(opened) => opened.iter().map(|ahead| &ahead.node).for_each(each),
        Reply::Listing(entries) => listed(entries).for_each(each),
        Reply::ListedAhead(ahead) => {
            for one in ahead {
                listed(&one.entries).for_each(&mut each);
                each(&one.directory);
            }
        }
        _ => {}
    }
}

fn listed(entries: &[Listed]) -> impl Iterator<Item = &Node> {
    entries.iter().filter_map(|entry| entry.node.as_ref())
}

#[cfg(test)]
mod tests {
    use terrace_fs::{Closed, Kind, Left, ROOT, RenameHow, Request, Settled, Time, WasRead};
    use terrace_testkit::ManualClock;

    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    const REMOVE: Request<'_> =
        Request::Remove { directory: ROOT, name: b"f", is_directory: false };

    /// A directory as it is after so many changes.
    fn gone(size: u64) -> Reply {
        let directory = Some(Node { number: ROOT, size, links: 1, ..Node::default() });
        Reply::Gone { number: 7, has_garbage: false, directory, is_delegated: false }
    }

    fn recent() -> (RecentNodes, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        (RecentNodes::new(Arc::<ManualClock>::clone(&clock)), clock)
    }

    fn begin(recent: &RecentNodes, request: &Request<'_>) -> (Begun, Changed) {
        let changed = Changed::by(request);
        (recent.begin(&changed), changed)
    }

    fn end(recent: &RecentNodes, (begun, changed): (Begun, Changed), reply: Option<&Reply>) {
        recent.end(begun, &changed, reply);
    }

    fn size(recent: &RecentNodes) -> Option<u64> {
        recent.find(ROOT, LONG).map(|(node, _)| node.size)
    }

    fn change(recent: &RecentNodes, size: u64) {
        let begun = begin(recent, &REMOVE);
        end(recent, begun, Some(&gone(size)));
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
    fn a_change_that_is_told_before_it_is_made_is_known_like_what_it_changes() {
        let (recent, clock) = recent();
        let smaller = |node: &Node| Some(Node { size: node.size.checked_sub(1)?, ..node.clone() });
        let told = |age_max| recent.change(ROOT, age_max, smaller).map(|node| node.size);
        assert_eq!(told(LONG), None, "nothing is known");
        change(&recent, 2);
        clock.advance(LONG / 2);
        let looked = begin(&recent, &Request::Node { number: ROOT });
        assert_eq!((told(LONG / 2), told(LONG)), (None, Some(1)));
        let before = Reply::Node(Node { number: ROOT, size: 2, links: 1, ..Node::default() });
        end(&recent, looked, Some(&before));
        assert_eq!(size(&recent), None, "that may be older, and what is known is older than that");
        change(&recent, 2);
        assert_eq!((told(LONG), told(LONG), told(LONG)), (Some(1), Some(0), None));
        let known = recent.find(ROOT, LONG).map(|(node, age)| (node.size, age));
        assert_eq!(known, Some((0, Duration::ZERO)));
        let changing = begin(&recent, &REMOVE);
        assert_eq!(told(LONG), None, "nobody knows what it is like");
        end(&recent, changing, Some(&gone(9)));
        assert_eq!(told(LONG), Some(8));
        recent.forget(ROOT);
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
            let begun = begin(&recent, &request);
            assert_eq!(size(&recent), None, "on its way");
            end(&recent, begun, Some(&Reply::Done));
            assert_eq!(size(&recent), None, "the reply does not tell of it");
        }
        change(&recent, 6);
        assert_eq!(size(&recent), Some(6));
    }

    #[test]
    fn of_two_changes_at_once_nobody_knows_which_was_first() {
        let (recent, _) = recent();
        let first = begin(&recent, &REMOVE);
        let second = begin(&recent, &REMOVE);
        end(&recent, second, Some(&gone(4)));
        end(&recent, first, Some(&gone(5)));
        assert_eq!(size(&recent), None);
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_believed() {
        let (recent, _) = recent();
        let look = Request::Node { number: ROOT };
        let told = Reply::Node(Node { number: ROOT, size: 3, links: 1, ..Node::default() });
        // The change ends between question and answer; or begins before, and ends after.
        let looked = begin(&recent, &look);
        change(&recent, 4);
        end(&recent, looked, Some(&told));
        assert_eq!(size(&recent), Some(4));
        let changing = begin(&recent, &REMOVE);
        let looked = begin(&recent, &look);
        end(&recent, looked, Some(&told));
        assert_eq!(size(&recent), None, "a change is on its way");
        end(&recent, changing, None);
        assert_eq!(size(&recent), None, "it may have been carried out");
        let looked = begin(&recent, &look);
        end(&recent, looked, Some(&told));
        assert_eq!(size(&recent), Some(3));
    }

    #[test]
    fn who_was_told_beside_a_change_finds_nothing_older() {
        let (recent, clock) = recent();
        let look = Request::Node { number: ROOT };
        let told = |size| Reply::Node(Node { number: ROOT, size, links: 1, ..Node::default() });
        let change = Request::Mark { number: ROOT, marks: terrace_fs::Marks::default() };
        // The change began before the question, or after it.
        for is_before in [true, false] {
            let looked = begin(&recent, &look);
            end(&recent, looked, Some(&told(1)));
            assert_eq!(size(&recent), Some(1));
            clock.advance(LONG / 8);
            let begun = is_before.then(|| begin(&recent, &change));
            let looked = begin(&recent, &look);
            let begun = begun.unwrap_or_else(|| begin(&recent, &change));
            end(&recent, looked, Some(&told(2)));
            assert_eq!(size(&recent), None);
            end(&recent, begun, Some(&Reply::Done));
            assert_eq!(size(&recent), None);
        }
    }

    #[test]
    fn a_change_of_something_else_does_not_matter() {
        let (recent, clock) = recent();
        let look = Request::Node { number: ROOT };
        let told = |size| Reply::Node(Node { number: ROOT, size, links: 1, ..Node::default() });
        let change = |number| Request::Mark { number, marks: terrace_fs::Marks::default() };
        // Around the question, before and behind it.
        let [around, before] = [8, 9].map(|number| begin(&recent, &change(number)));
        let looked = begin(&recent, &look);
        let behind = begin(&recent, &change(10));
        end(&recent, before, Some(&Reply::Done));
        end(&recent, looked, Some(&told(1)));
        assert_eq!(size(&recent), Some(1));
        end(&recent, around, Some(&Reply::Done));
        end(&recent, behind, Some(&Reply::Done));
        assert_eq!(size(&recent), Some(1));
        // Unless there were so many that nobody remembers which.
        clock.advance(LONG / 8);
        let looked = begin(&recent, &look);
        for number in 100..101 + NODES_MAX as u64 {
            let begun = begin(&recent, &change(number));
            end(&recent, begun, Some(&Reply::Done));
        }
        end(&recent, looked, Some(&told(2)));
        assert_eq!(size(&recent), None);
        assert!(recent.state().changing.is_empty());
    }

    #[test]
    fn what_is_gone_is_not_known_by_an_answer_from_before() {
        let (recent, _) = recent();
        let number = 7;
        let looked = begin(&recent, &Request::Node { number });
        change(&recent, 5);
        let node = Node { number, links: 1, ..Node::default() };
        end(&recent, looked, Some(&Reply::Node(node)));
        assert_eq!(recent.find(number, LONG), None);
    }

    #[test]
    fn a_file_is_known_while_it_is_open_and_until_its_object_is_settled() {
        let (recent, _) = recent();
        let number = 7;
        let node = Node { number, links: 1, ..Node::default() };
        let nameless = Node { links: 0, ..node.clone() };
        let open = Request::Open { number, is_for_writing: false };
        for (node, is_known) in [(nameless.clone(), false), (node, true), (nameless, false)] {
            let begun = begin(&recent, &open);
            end(&recent, begun, Some(&Reply::Opened { node, content: Vec::new() }));
            assert_eq!(recent.find(number, LONG).is_some(), is_known);
        }
        let settled = Settled { size: 1, allocated_bytes: 4096, modified_ns: 1 };
        for (is_for_writing, left, is_known) in [
            (false, Left::Unknown, true),
            // A small one, as it was when it was written.
            (true, Left::Unknown, true),
            (true, Left::Untouched, false),
            (true, Left::Settled(settled), false),
        ] {
            let begun = begin(&recent, &open);
            let node = Node { number, links: 1, ..Node::default() };
            end(&recent, begun, Some(&Reply::Opened { node, content: Vec::new() }));
            let closed = vec![Closed { number, is_for_writing, left }];
            let close = Request::Close { closed, read: Vec::new(), id: 1, acknowledged: 0 };
            let begun = begin(&recent, &close);
            end(&recent, begun, Some(&Reply::Numbers(Vec::new())));
            assert_eq!(recent.find(number, LONG).is_some(), is_known);
        }
        // Told by a server that did not know yet that it is open here.
        for (place, is_known) in [(Place::Inline, true), (Place::Object, false)] {
            let begun = begin(&recent, &Request::Node { number });
            let node = Node { number, links: 1, place, ..Node::default() };
            end(&recent, begun, Some(&Reply::Node(node)));
            let closed = Closed { number, is_for_writing: false, left: Left::Unknown };
            recent.forget_objects(&[closed]);
            assert!(recent.find(number, LONG).is_some(), "it was only read");
            recent.forget_objects(&[Closed { is_for_writing: true, ..closed }]);
            assert_eq!(recent.find(number, LONG).is_some(), is_known, "{place:?}");
        }
    }

    #[test]
    fn what_was_asked_for_later_counts_also_where_it_was_answered_sooner() {
        let (recent, clock) = recent();
        let look = Request::Node { number: ROOT };
        let told = |size| Reply::Node(Node { number: ROOT, size, links: 1, ..Node::default() });
        let first = begin(&recent, &look);
        clock.advance(LONG / 4);
        let second = begin(&recent, &look);
        end(&recent, second, Some(&told(2)));
        end(&recent, first, Some(&told(1)));
        assert_eq!(size(&recent), Some(2));
    }

    #[test]
    fn nodes_of_a_listing_are_known_until_they_change_or_lose_a_name() {
        let (recent, _) = recent();
        let entry = |number| Listed {
            name: b"f".to_vec(),
            position: number,
            number,
            kind: Kind::File,
            node: Some(Node { number, links: 1, is_written: number == 9, ..Node::default() }),
        };
        let is_known = |number| recent.find(number, LONG).is_some();
        let list = || {
            let list = Request::List { directory: ROOT, after: 0, max: 9, with_nodes: true };
            let begun = begin(&recent, &list);
            end(&recent, begun, Some(&Reply::Listing((5..10).map(entry).collect())));
            assert!((5..9).all(is_known));
            assert!(!is_known(9), "somebody writes to it");
        };
        list();
        change(&recent, 5);
        assert!(!is_known(7), "it lost a name");
        let read = WasRead { number: 6, changed: Time::default() };
        let closed = Closed { number: 5, is_for_writing: true, left: Left::Untouched };
        let close =
            Request::Close { closed: vec![closed], read: vec![read], id: 1, acknowledged: 0 };
        let begun = begin(&recent, &close);
        end(&recent, begun, Some(&Reply::Numbers(Vec::new())));
        assert_eq!([5, 6, 8].map(is_known), [false, false, true]);
        list();
        let rename = Request::Rename {
            from_directory: ROOT,
            from: b"f",
            to_directory: ROOT,
            to: b"g",
            how: RenameHow::default(),
            user: 0,
            group: 0,
        };
        begin(&recent, &rename);
        assert!(!(5..9).any(is_known), "nobody says which of them");
    }
}
