// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders of recency: doubly linked lists threaded through an array over slots.

use terrace_core::{SLOT_NONE, Slot};

/// Several lists from newest to oldest; a slot is in one of them or in none.
///
/// Every operation takes constant time, and memory is 12 bytes a slot.
#[derive(Debug, Default)]
pub(crate) struct Order {
    nodes: Vec<Node>,
    lists: Vec<List>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    newer: Slot,
    older: Slot,
    list: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: Slot,
    oldest: Slot,
    count: usize,
}

const LIST_NONE: u32 = u32::MAX;

impl Order {
    /// Makes the slot the newest of `list` and takes it out of any other.
    pub(crate) fn touch(&mut self, list: usize, slot: Slot) {
        if self.lists.get(list).is_some_and(|list| list.newest == slot) {
            return;
        }
        self.unlink(slot);
        self.make_room(list, slot);
        let newest = self.lists[list].newest;
        self.nodes[slot as usize] = Node { newer: SLOT_NONE, older: newest, list: list as u32 };
        match newest {
            SLOT_NONE => self.lists[list].oldest = slot,
            newest => self.nodes[newest as usize].newer = slot,
        }
        self.lists[list].newest = slot;
        self.lists[list].count += 1;
    }

    /// Takes the slot out of its list, if it is in one.
    pub(crate) fn unlink(&mut self, slot: Slot) {
        let Some(Node { newer, older, list }) = self.nodes.get(slot as usize).copied() else {
            return;
        };
        if list == LIST_NONE {
            return;
        }
        let list = list as usize;
        match newer {
            SLOT_NONE => self.lists[list].newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            SLOT_NONE => self.lists[list].oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        self.lists[list].count -= 1;
        self.nodes[slot as usize].list = LIST_NONE;
    }

    /// Whether the slot is in a list.
    pub(crate) fn contains(&self, slot: Slot) -> bool {
        self.nodes.get(slot as usize).is_some_and(|node| node.list != LIST_NONE)
    }

    /// The least recently touched slot of a list.
    pub(crate) fn oldest(&self, list: usize) -> Option<Slot> {
        self.lists.get(list).map(|list| list.oldest).filter(|slot| *slot != SLOT_NONE)
    }

    /// The most recently touched slot of a list.
    pub(crate) fn newest(&self, list: usize) -> Option<Slot> {
        self.lists.get(list).map(|list| list.newest).filter(|slot| *slot != SLOT_NONE)
    }

    /// The neighbour that was touched next after `slot`, which is in a list.
    pub(crate) fn newer(&self, slot: Slot) -> Option<Slot> {
        Some(self.nodes[slot as usize].newer).filter(|slot| *slot != SLOT_NONE)
    }

    /// The neighbour that was touched last before `slot`, which is in a list.
    pub(crate) fn older(&self, slot: Slot) -> Option<Slot> {
        Some(self.nodes[slot as usize].older).filter(|slot| *slot != SLOT_NONE)
    }

    /// How many slots a list has.
    pub(crate) fn count(&self, list: usize) -> usize {
        self.lists.get(list).map_or(0, |list| list.count)
    }

    fn make_room(&mut self, list: usize, slot: Slot) {
        if self.lists.len() <= list {
            let empty = List { newest: SLOT_NONE, oldest: SLOT_NONE, count: 0 };
            self.lists.resize(list + 1, empty);
        }
        let index = slot as usize;
        if self.nodes.len() <= index {
            let outside = Node { newer: SLOT_NONE, older: SLOT_NONE, list: LIST_NONE };
            self.nodes.resize(index + 1, outside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use terrace_core::Random;

    fn oldest_first(order: &Order, list: usize) -> Vec<Slot> {
        let mut at = order.oldest(list);
        std::iter::from_fn(|| {
            let slot = at?;
            at = order.newer(slot);
            Some(slot)
        })
        .collect()
    }

    #[test]
    fn the_lists_equal_a_plain_model() {
        let mut random = Random::new(7);
        let mut order = Order::default();
        let mut model = vec![VecDeque::new(); 3];
        for _ in 0..5000 {
            let (list, slot) = (random.below(3) as usize, random.below(20) as Slot);
            model.iter_mut().for_each(|list: &mut VecDeque<Slot>| list.retain(|at| *at != slot));
            if random.chance(0.8) {
                order.touch(list, slot);
                model[list].push_back(slot);
            } else {
                order.unlink(slot);
            }
            for (list, expected) in model.iter().enumerate() {
                assert_eq!(oldest_first(&order, list), Vec::from(expected.clone()));
                assert_eq!(order.count(list), expected.len());
                assert_eq!(order.newest(list), expected.back().copied());
            }
        }
    }
}
