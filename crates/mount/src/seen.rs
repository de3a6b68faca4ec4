// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel has cached of files that others change, too.
//!
//! What it was told last is not what it has: of two answers that are on their way at the same time it
//! takes the one whose program comes first, and drops the other. So an answer is believed to have
//! arrived only where for a while no other one said anything else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;
use terrace_fs::{Node, Time};

/// Nodes that are remembered, of those that the kernel knows; of others it is asked for bytes again. An
/// entry has about 150 bytes, the kernel's more than 1000.
const NODES_MAX: usize = 1 << 18;

/// So many locks stand between them.
const STRIPES: usize = 64;

/// A program takes up an answer within this time.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// What the kernel was told of each node, and as what each file was last opened here.
pub(crate) struct Seen {
    nodes: [Mutex<Nodes>; STRIPES],
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Nodes {
    known: HashMap<u64, Known>,
    /// Whether some were forgotten that the kernel knows, and may have bytes of.
    has_forgotten: bool,
}

struct Known {
    told: State,
    /// Until then an answer may be on its way that says something else.
    doubted_until_ns: u64,
    opened: Option<State>,
    /// How often the kernel was told of it by a name, and has not forgotten that.
    names: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    size: u64,
    modified: Time,
    changed: Time,
}

/// What the kernel has of a file is as the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cached {
    /// All of it.
    Whole,
    /// Its attributes.
    Attributes,
    /// Nothing, as far as is known.
    Nothing,
}

impl Seen {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { nodes: std::array::from_fn(|_| Mutex::default()), clock }
    }

    /// Notes that the kernel is told of a node that it knows.
    pub(crate) fn tell(&self, node: &Node) {
        self.nodes(node.number).tell(node, self.clock.now_ns());
    }

    /// Notes that the kernel is told of a node by a name: it knows it until it forgets all of these.
    pub(crate) fn name(&self, node: &Node) {
        self.nodes(node.number).tell(node, self.clock.now_ns()).names += 1;
    }

    /// Notes that the kernel forgets so many names of a node; with the last it forgets its bytes.
    pub(crate) fn forget(&self, number: u64, names: u64) {
        let mut nodes = self.nodes(number);
        if let Some(known) = nodes.known.get_mut(&number) {
            known.names = known.names.saturating_sub(names);
            if known.names == 0 {
                nodes.known.remove(&number);
            }
        }
    }

    /// Notes that a file is opened; what is cached of it and still good.
    ///
    /// Where the kernel has the attributes and not a byte, `store` may give it all bytes of that moment,
    /// and says whether it has. Nobody else can have the file open then, and who cuts it is told only
    /// behind that. Where it may have other attributes, `ask_anew` has it ask for them, before anybody
    /// else who opens the file takes that for done.
    pub(crate) fn open(
        &self,
        node: &Node,
        store: impl FnOnce() -> bool,
        ask_anew: impl FnOnce(),
    ) -> Cached {
        let now = State::of(node);
        let now_ns = self.clock.now_ns();
        let mut nodes = self.nodes(node.number);
        let has_forgotten = nodes.has_forgotten;
        let is_known = nodes.known.contains_key(&node.number);
        let known = nodes.entry(node, now_ns);
        let (is_told, opened) = (known.has(now, now_ns), known.opened);
        known.tell(now, now_ns);
        known.opened = Some(now);
        let cached = match (is_told, opened) {
            // Who writes to it at the moment may write again within one tick of its clock.
            _ if node.is_written || !is_known => Cached::Nothing,
            (_, Some(opened)) if opened == now => Cached::Whole,
            (true, None) if !has_forgotten && store() => Cached::Whole,
            (true, _) => Cached::Attributes,
            (false, _) => Cached::Nothing,
        };
        if cached == Cached::Nothing {
            ask_anew();
        }
        cached
    }

    fn nodes(&self, number: u64) -> MutexGuard<'_, Nodes> {
        let nodes = &self.nodes[number as usize % STRIPES];
        // Entries change as a whole.
        nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nodes {
    /// What is known of a node, as of what is told where that is nothing.
    fn entry(&mut self, node: &Node, now_ns: u64) -> &mut Known {
        if self.known.len() >= NODES_MAX / STRIPES && !self.known.contains_key(&node.number) {
            self.known.clear();
            self.has_forgotten = true;
        }
        // What was forgotten may have been told of otherwise.
        let doubted_until_ns = if self.has_forgotten { doubted_from(now_ns) } else { 0 };
        let told = State::of(node);
        let new = Known { told, doubted_until_ns, opened: None, names: 0 };
        self.known.entry(node.number).or_insert(new)
    }

    fn tell(&mut self, node: &Node, now_ns: u64) -> &mut Known {
        let known = self.entry(node, now_ns);
        known.tell(State::of(node), now_ns);
        known
    }
}

impl Known {
    fn tell(&mut self, state: State, now_ns: u64) {
        if self.told != state {
            self.told = state;
            self.doubted_until_ns = doubted_from(now_ns);
        }
    }

    /// Whether the kernel has it in this state.
    fn has(&self, state: State, now_ns: u64) -> bool {
        self.told == state && now_ns >= self.doubted_until_ns
    }
}

fn doubted_from(now_ns: u64) -> u64 {
    now_ns.saturating_add(ANSWER_TIME_MAX.as_nanos() as u64)
}

impl State {
    fn of(node: &Node) -> Self {
        let Node { size, modified, changed, .. } = *node;
        Self { size, modified, changed }
    }
}

#[cfg(test)]
mod tests {
    use terrace_testkit::ManualClock;

    use super::*;

    fn seen() -> (Seen, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new());
        (Seen::new(Arc::<ManualClock>::clone(&clock)), clock)
    }

    fn open(seen: &Seen, node: &Node) -> Cached {
        seen.open(node, || false, || {})
    }

    fn open_storing(seen: &Seen, node: &Node, store: impl FnOnce() -> bool) -> Cached {
        let mut asks = false;
        let cached = seen.open(node, store, || asks = true);
        assert_eq!(asks, cached == Cached::Nothing);
        cached
    }

    #[test]
    fn what_was_told_or_opened_is_good_until_it_changes() {
        let (seen, clock) = seen();
        let node = Node { number: 7, size: 1, ..Node::default() };
        assert_eq!(open(&seen, &node), Cached::Nothing, "never told of");
        assert_eq!(open(&seen, &node), Cached::Whole);
        let longer = Node { size: 2, ..node.clone() };
        seen.tell(&longer);
        clock.advance(ANSWER_TIME_MAX);
        assert_eq!(open(&seen, &longer), Cached::Attributes, "pages are those of another time");
        assert_eq!(open(&seen, &node), Cached::Nothing);
        assert_eq!(open(&seen, &Node { is_written: true, ..node }), Cached::Nothing);
    }

    const NEVER: fn() -> bool = || panic!("the kernel may have other bytes");

    #[test]
    fn bytes_are_given_with_the_first_open_of_what_is_as_it_was_told() {
        let (seen, clock) = seen();
        let node = |number| Node { number, size: 1, ..Node::default() };
        assert_eq!(open_storing(&seen, &node(1), NEVER), Cached::Nothing, "never told of");
        seen.name(&node(2));
        assert_eq!(
            open_storing(&seen, &Node { size: 2, ..node(2) }, NEVER),
            Cached::Nothing,
            "changed"
        );
        seen.name(&node(3));
        assert_eq!(
            open_storing(&seen, &Node { is_written: true, ..node(3) }, NEVER),
            Cached::Nothing
        );
        seen.name(&node(4));
        assert_eq!(open_storing(&seen, &node(4), || true), Cached::Whole);
        assert_eq!(open_storing(&seen, &node(4), NEVER), Cached::Whole);
        seen.tell(&Node { size: 2, ..node(4) });
        clock.advance(ANSWER_TIME_MAX);
        assert_eq!(open_storing(&seen, &Node { size: 2, ..node(4) }, NEVER), Cached::Attributes);
    }

    #[test]
    fn bytes_are_given_again_once_the_kernel_has_forgotten_all_names() {
        let (seen, _) = seen();
        let node = Node { number: 7, size: 1, ..Node::default() };
        seen.name(&node);
        seen.name(&node);
        assert_eq!(open_storing(&seen, &node, || true), Cached::Whole);
        seen.forget(7, 1);
        assert_eq!(open_storing(&seen, &node, NEVER), Cached::Whole, "it has a name");
        // It is looked up again before the kernel says that it forgot the rest.
        seen.name(&node);
        seen.forget(7, 1);
        assert_eq!(open_storing(&seen, &node, NEVER), Cached::Whole);
        seen.forget(7, 1);
        seen.name(&node);
        assert_eq!(open_storing(&seen, &node, || true), Cached::Whole);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_taken_for_new_then() {
        let (seen, _) = seen();
        let node = |at: usize| Node { number: (at * STRIPES) as u64, ..Node::default() };
        let max = NODES_MAX / STRIPES;
        assert_eq!(open(&seen, &node(0)), Cached::Nothing);
        (1..=max).for_each(|at| seen.name(&node(at)));
        assert!(seen.nodes(0).known.len() <= max);
        seen.name(&node(0));
        assert_eq!(
            open_storing(&seen, &node(0), NEVER),
            Cached::Nothing,
            "it may have been told of otherwise"
        );
        let other = Node { number: 1, ..Node::default() };
        seen.name(&other);
        assert_eq!(open_storing(&seen, &other, || true), Cached::Whole, "in another part");
    }

    #[test]
    fn of_answers_that_differ_nobody_knows_for_a_while_which_the_kernel_took() {
        let (seen, clock) = seen();
        let old = Node { number: 7, size: 1, ..Node::default() };
        let new = Node { size: 2, ..old.clone() };
        seen.name(&old);
        seen.tell(&new);
        clock.advance(ANSWER_TIME_MAX / 2);
        seen.tell(&new);
        assert_eq!(open_storing(&seen, &new, NEVER), Cached::Nothing, "the old one may come yet");
        assert_eq!(
            open_storing(&seen, &new, NEVER),
            Cached::Whole,
            "it was told to ask, which makes that void"
        );
        seen.tell(&old);
        seen.tell(&new);
        clock.advance(ANSWER_TIME_MAX);
        assert_eq!(
            open_storing(&seen, &Node { size: 3, ..new }, NEVER),
            Cached::Nothing,
            "changed"
        );
        let other = Node { number: 8, ..old };
        seen.name(&Node { size: 3, ..other.clone() });
        seen.name(&other);
        clock.advance(ANSWER_TIME_MAX);
        assert_eq!(open_storing(&seen, &other, || true), Cached::Whole);
    }
}
