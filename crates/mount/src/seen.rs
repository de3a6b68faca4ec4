// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel has cached of files that others change, too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use terrace_fs::{Node, Time};

/// Nodes that are remembered; what is forgotten is asked for again.
const NODES_MAX: usize = 1 << 16;

/// What the kernel was told of each node, and as what each file was last opened here.
#[derive(Default)]
pub(crate) struct Seen(Mutex<HashMap<u64, Known>>);

struct Known {
    told: State,
    opened: Option<State>,
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
    /// Notes that the kernel is told of a node.
    pub(crate) fn tell(&self, node: &Node) {
        let told = State::of(node);
        let mut seen = self.nodes();
        seen.entry(node.number).or_insert(Known { told, opened: None }).told = told;
    }

    /// Notes that a file is opened; what is cached of it and still good.
    pub(crate) fn open(&self, node: &Node) -> Cached {
        let now = State::of(node);
        let known = Known { told: now, opened: Some(now) };
        match self.nodes().insert(node.number, known) {
            // Who writes to it at the moment may write again within one tick of its clock.
            _ if node.is_written => Cached::Nothing,
            Some(before) if before.opened == Some(now) => Cached::Whole,
            Some(before) if before.told == now => Cached::Attributes,
            _ => Cached::Nothing,
        }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() >= NODES_MAX {
            nodes.clear();
        }
        nodes
    }
}

impl State {
    fn of(node: &Node) -> Self {
        let Node { size, modified, changed, .. } = *node;
        Self { size, modified, changed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_or_opened_is_good_until_it_changes() {
        let seen = Seen::default();
        let node = Node { number: 7, size: 1, ..Node::default() };
        assert_eq!(seen.open(&node), Cached::Nothing, "never told of");
        assert_eq!(seen.open(&node), Cached::Whole);
        let longer = Node { size: 2, ..node.clone() };
        seen.tell(&longer);
        assert_eq!(seen.open(&longer), Cached::Attributes, "pages are those of another time");
        assert_eq!(seen.open(&node), Cached::Nothing);
        assert_eq!(seen.open(&Node { is_written: true, ..node }), Cached::Nothing);
    }
}
