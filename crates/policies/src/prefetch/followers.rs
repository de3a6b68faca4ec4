// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was read soon after what: a probability graph (Griffioen and Appleton, USENIX Summer 1994).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use terrace_core::{Slot, View};

use crate::mechanism::saved::{Name, Names};

/// Segments whose followers are known, about 450 bytes each. The half that was not read for longest
/// is forgotten where there are more.
const NODES_MAX: usize = 1 << 16;

/// Reads after one that count as following it, so that the next of one reader is among them while
/// others read between.
const LOOKAHEAD: usize = 8;

/// Followers that are known of each: those of the last two reads at least.
const FOLLOWERS_MAX: usize = 2 * LOOKAHEAD;

/// Confidence in what followed once, which is enough to expect it after the next read.
const CONFIDENT: f32 = 0.5;

/// Weight of the newest read in the confidence.
const NEWEST: f32 = 1.0 / 3.0;

#[derive(Debug, Default)]
pub(super) struct Followers {
    /// Only looked up, never walked in order.
    nodes: HashMap<Slot, Node>,
    /// The last reads, newest last.
    recent: VecDeque<Slot>,
    last_ns: u64,
    interval_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Node {
    reads: u32,
    last_ns: u64,
    /// The segment that came last is the last.
    followers: Vec<Follower>,
}

#[derive(Clone, Copy, Debug)]
struct Follower {
    slot: Slot,
    incarnation: u32,
    /// As it was after this read of the node.
    confidence: f32,
    read: u32,
    /// How many reads later it came the last time.
    distance: u32,
}

/// As it is saved: with ages, because clocks start anew.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SavedFollowers {
    nodes: Vec<SavedNode>,
    recent: Vec<Name>,
    age_ns: u64,
    interval_ns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedNode {
    name: Name,
    reads: u32,
    age_ns: u64,
    followers: Vec<SavedFollower>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedFollower {
    name: Name,
    confidence: f32,
    read: u32,
    distance: u32,
}

impl SavedFollowers {
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        let followers = self.nodes.iter().flat_map(|node| &node.followers).map(|it| &it.name);
        self.nodes.iter().map(|node| &node.name).chain(followers).chain(&self.recent)
    }
}

impl Follower {
    /// Confidence after `reads` of its node: each without it takes something away.
    fn confidence(&self, reads: u32) -> f32 {
        let missed = reads.wrapping_sub(self.read).min(i32::MAX as u32);
        self.confidence * (1.0 - NEWEST).powi(missed as i32)
    }
}

impl Node {
    fn note(&mut self, view: &View, slot: Slot, incarnation: u32, distance: u32) {
        self.followers.retain(|it| view.segment(it.slot, it.incarnation).is_some());
        let known = self.followers.iter().position(|follower| follower.slot == slot);
        let confidence = match known.map(|index| self.followers.remove(index)) {
            // Seen after this read already, nearer or farther.
            Some(known) if known.read == self.reads => known.confidence,
            Some(known) => {
                let before = known.confidence(self.reads.wrapping_sub(1));
                before + NEWEST * (1.0 - before)
            }
            None => CONFIDENT,
        };
        if self.followers.len() == FOLLOWERS_MAX {
            self.followers.remove(0);
        }
        self.followers.push(Follower { slot, incarnation, confidence, read: self.reads, distance });
    }
}

impl Followers {
    /// A segment is read.
    pub(super) fn touch(&mut self, view: &View, slot: Slot, incarnation: u32, now_ns: u64) {
        for (before, distance) in self.recent.iter().rev().zip(1..) {
            if let Some(node) = self.nodes.get_mut(before).filter(|_| *before != slot) {
                node.note(view, slot, incarnation, distance);
            }
        }
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&slot) {
            self.forget_half();
        }
        let node = self.nodes.entry(slot).or_default();
        node.reads = node.reads.wrapping_add(1);
        node.last_ns = now_ns;
        if self.recent.len() == LOOKAHEAD {
            self.recent.pop_front();
        }
        self.recent.push_back(slot);
        let pause_ns = now_ns.saturating_sub(self.last_ns);
        self.interval_ns = match self.last_ns {
            0 => 0,
            _ => (self.interval_ns / 4).saturating_mul(3).saturating_add(pause_ns / 4),
        };
        self.last_ns = now_ns;
    }

    /// Whether a segment is among the last that were read.
    pub(super) fn is_recent(&self, slot: Slot) -> bool {
        self.recent.contains(&slot)
    }

    /// What follows a segment that was just read, the nearest first, and when; at most `count`.
    pub(super) fn ahead(&self, view: &View, slot: Slot, count: usize) -> Vec<(Slot, u64)> {
        let mut ahead = Vec::new();
        let mut seen = BTreeSet::from([slot]);
        let mut reached = BinaryHeap::from([Reverse((0, slot))]);
        while let Some(Reverse((distance, at))) = reached.pop() {
            if at != slot {
                let after_ns = self.interval_ns.saturating_mul(distance.into());
                ahead.push((at, self.last_ns.saturating_add(after_ns)));
            }
            if ahead.len() >= count {
                break;
            }
            let Some(node) = self.nodes.get(&at) else { continue };
            // What follows the read that has just been is not known yet.
            let reads = node.reads.wrapping_sub(u32::from(at == slot));
            for follower in &node.followers {
                let is_expected = follower.confidence(reads) >= CONFIDENT
                    && view.segment(follower.slot, follower.incarnation).is_some();
                if is_expected && seen.insert(follower.slot) {
                    reached.push(Reverse((distance + follower.distance, follower.slot)));
                }
            }
        }
        ahead
    }

    /// Forgets a segment that is gone; as a follower it is known by its incarnation.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.nodes.remove(&slot);
        self.recent.retain(|recent| *recent != slot);
    }

    fn forget_half(&mut self) {
        let mut times: Vec<_> = self.nodes.values().map(|node| node.last_ns).collect();
        let middle = times.len() / 2;
        let (_, median_ns, _) = times.select_nth_unstable(middle);
        let median_ns = *median_ns;
        self.nodes.retain(|_, node| node.last_ns > median_ns);
    }

    pub(super) fn save(&self, view: &View) -> SavedFollowers {
        let age_ns = |ns: u64| view.now_ns.saturating_sub(ns);
        let follower = |it: &Follower| {
            let segment = view.segment(it.slot, it.incarnation)?;
            let Follower { confidence, read, distance, .. } = *it;
            Some(SavedFollower { name: Name::of(segment), confidence, read, distance })
        };
        let mut slots: Vec<_> = self.nodes.keys().copied().collect();
        slots.sort_unstable();
        let node = |slot: Slot| {
            let node = &self.nodes[&slot];
            SavedNode {
                name: Name::of(&view.segments[slot as usize]),
                reads: node.reads,
                age_ns: age_ns(node.last_ns),
                followers: node.followers.iter().filter_map(follower).collect(),
            }
        };
        let recent = self.recent.iter().map(|slot| Name::of(&view.segments[*slot as usize]));
        SavedFollowers {
            nodes: slots.into_iter().map(node).collect(),
            recent: recent.collect(),
            age_ns: age_ns(self.last_ns),
            interval_ns: self.interval_ns,
        }
    }

    pub(super) fn restore(&mut self, view: &View, names: &Names<'_>, saved: &SavedFollowers) {
        let follower = |saved: &SavedFollower| {
            let slot = names.slot(&saved.name)?;
            let incarnation = view.segments[slot as usize].incarnation;
            let SavedFollower { confidence, read, distance, .. } = *saved;
            Some(Follower { slot, incarnation, confidence, read, distance })
        };
        let node = |saved: &SavedNode| {
            let node = Node {
                reads: saved.reads,
                last_ns: view.now_ns.saturating_sub(saved.age_ns),
                followers: saved.followers.iter().filter_map(follower).collect(),
            };
            Some((names.slot(&saved.name)?, node))
        };
        let recent = saved.recent.iter().take(LOOKAHEAD).filter_map(|name| names.slot(name));
        *self = Self {
            nodes: saved.nodes.iter().take(NODES_MAX).filter_map(node).collect(),
            recent: recent.collect(),
            last_ns: view.now_ns.saturating_sub(saved.age_ns),
            interval_ns: saved.interval_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{segment, tiers};
    use terrace_core::{Random, TierIndex};

    fn view(count: Slot) -> View {
        let mut view = View::new(tiers(&[1000]), 0);
        for slot in 0..count {
            view.insert(slot, segment(&format!("n/{slot}"), 1, TierIndex(0)));
        }
        view
    }

    /// Epochs of readers, each with an order of its own, that take turns by chance.
    fn read(
        view: &View,
        followers: &mut Followers,
        orders: &[Vec<Slot>],
        random: &mut Random,
    ) -> f64 {
        let mut at = vec![0; orders.len()];
        let (mut hits, mut reads) = (0, 0);
        while at.iter().zip(orders).any(|(at, order)| *at < order.len()) {
            let reader = random.below(orders.len() as u64) as usize;
            let Some(slot) = orders[reader].get(at[reader]).copied() else { continue };
            at[reader] += 1;
            followers.touch(view, slot, 1, 1);
            if let Some(next) = orders[reader].get(at[reader]) {
                let ahead = followers.ahead(view, slot, 16);
                hits += u32::from(ahead.iter().any(|(slot, _)| slot == next));
                reads += 1;
            }
        }
        f64::from(hits) / f64::from(reads)
    }

    fn shuffled(slots: std::ops::Range<Slot>, random: &mut Random) -> Vec<Slot> {
        let mut order: Vec<_> = slots.collect();
        for end in (1..order.len()).rev() {
            order.swap(end, random.below(end as u64 + 1) as usize);
        }
        order
    }

    #[test]
    fn an_order_is_known_after_it_was_read_once() {
        let (view, mut random) = (view(200), Random::new(1));
        let mut followers = Followers::default();
        let orders = [shuffled(0..200, &mut random)];
        assert_eq!(read(&view, &mut followers, &orders, &mut random), 0.0);
        assert!(read(&view, &mut followers, &orders, &mut random) > 0.99);
        let slot = orders[0][10];
        followers.touch(&view, slot, 1, 1);
        let ahead: Vec<_> = followers.ahead(&view, slot, 20).iter().map(|it| it.0).collect();
        assert_eq!(ahead, orders[0][11..31]);
    }

    #[test]
    fn orders_of_readers_that_take_turns_are_found() {
        let (view, mut random) = (view(600), Random::new(2));
        let mut followers = Followers::default();
        let readers = [0..200, 200..400, 400..600];
        let orders = readers.map(|slots| shuffled(slots, &mut random));
        let rates = [(); 6].map(|()| read(&view, &mut followers, &orders, &mut random));
        assert_eq!(rates[0], 0.0);
        assert!(rates[5] > 0.85, "{rates:?}");
    }

    #[test]
    fn a_new_order_takes_the_place_of_an_old_one() {
        let (view, mut random) = (view(100), Random::new(3));
        let mut followers = Followers::default();
        let orders = [(); 2].map(|()| [shuffled(0..100, &mut random)]);
        let mut learn = |order: usize, epochs| {
            (0..epochs).map(|_| read(&view, &mut followers, &orders[order], &mut random)).last()
        };
        learn(0, 30);
        assert!(learn(1, 2) > Some(0.9));
    }

    #[test]
    fn what_was_not_read_for_longest_is_forgotten() {
        let view = view(NODES_MAX as Slot + 1);
        let mut followers = Followers::default();
        for slot in 0..=NODES_MAX as Slot {
            followers.touch(&view, slot, 1, u64::from(slot) + 1);
        }
        assert!(followers.nodes.len() <= NODES_MAX / 2 + 1);
        assert!(followers.ahead(&view, 0, 1).is_empty());
        let late = NODES_MAX as Slot - 10;
        followers.touch(&view, late, 1, u64::MAX);
        assert_eq!(followers.ahead(&view, late, 1)[0].0, late + 1);
    }
}
