// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of objects, of which each is in one at a time.

use super::{Known, Victim};

/// No object.
const NONE: u32 = u32::MAX;

/// The bits of a state that say in which list an object is, from 1; 0 for none.
const LIST_BITS: u32 = 3;
const LIST_MASK: u8 = (1 << LIST_BITS) - 1;

/// The largest count.
const COUNT_MAX: u8 = u8::MAX >> LIST_BITS;

/// So many lists that share their objects, and a small count for each object.
#[derive(Debug)]
pub(super) struct Lists<const COUNT: usize> {
    links: Vec<Link>,
    /// The size of each object: apart, because moving it within a list does not need it.
    bytes: Vec<u64>,
    /// The list and the count of each object: one byte, apart, because a hit of most orders
    /// needs nothing else.
    states: Vec<u8>,
    ends: [Ends; COUNT],
}

#[derive(Clone, Copy, Debug)]
struct Link {
    to_head: u32,
    to_tail: u32,
}

const UNLINKED: Link = Link { to_head: NONE, to_tail: NONE };

#[derive(Clone, Copy, Debug)]
struct Ends {
    head: u32,
    tail: u32,
    bytes: u64,
}

impl<const COUNT: usize> Default for Lists<COUNT> {
    fn default() -> Self {
        const { assert!(COUNT <= LIST_MASK as usize) };
        let ends = [Ends { head: NONE, tail: NONE, bytes: 0 }; COUNT];
        Self { links: Vec::new(), bytes: Vec::new(), states: Vec::new(), ends }
    }
}

impl<const COUNT: usize> Lists<COUNT> {
    pub(super) fn grow(&mut self, objects: usize) {
        if objects > self.links.len() {
            self.links.resize(objects, UNLINKED);
            self.bytes.resize(objects, 0);
            self.states.resize(objects, 0);
        }
    }

    /// The list that an object is in.
    pub(super) fn list_of(&self, object: u32) -> Option<usize> {
        usize::from(self.states[object as usize] & LIST_MASK).checked_sub(1)
    }

    /// The count of an object, also of one that is in no list; 0 at first.
    pub(super) fn count_of(&self, object: u32) -> u8 {
        self.states[object as usize] >> LIST_BITS
    }

    /// Sets the count of an object, which is below 32.
    pub(super) fn set_count(&mut self, object: u32, count: u8) {
        debug_assert!(count <= COUNT_MAX, "the count has so many bits");
        let state = &mut self.states[object as usize];
        *state = *state & LIST_MASK | count << LIST_BITS;
    }

    /// The size with which it was put in.
    pub(super) fn bytes_of(&self, object: u32) -> u64 {
        self.bytes[object as usize]
    }

    /// The sizes of all objects of a list.
    pub(super) fn bytes(&self, list: usize) -> u64 {
        self.ends[list].bytes
    }

    pub(super) fn is_empty(&self, list: usize) -> bool {
        self.ends[list].head == NONE
    }

    pub(super) fn tail(&self, list: usize) -> Option<u32> {
        Some(self.ends[list].tail).filter(|tail| *tail != NONE)
    }

    /// The next object towards the head.
    pub(super) fn to_head(&self, object: u32) -> Option<u32> {
        Some(self.links[object as usize].to_head).filter(|next| *next != NONE)
    }

    /// Reads what looking for these objects reads.
    pub(super) fn touch_states(&self, objects: &[u32]) -> u64 {
        objects.iter().map(|object| u64::from(self.states[*object as usize])).sum()
    }

    /// Reads what moving these objects to the head of a list reads: their states, their links and those
    /// of the objects beside them.
    pub(super) fn touch(&self, objects: &[u32]) -> u64 {
        let links = objects.iter().map(|object| {
            let Link { to_head, to_tail } = self.links[*object as usize];
            let beside = [to_head, to_tail].map(|other| self.links.get(other as usize));
            beside.iter().flatten().map(|link| u64::from(link.to_head)).sum::<u64>()
        });
        self.touch_states(objects) + links.sum::<u64>()
    }

    /// Puts an object that is in no list at the head of one.
    pub(super) fn push(&mut self, list: usize, object: u32, bytes: u64) {
        debug_assert!(self.list_of(object).is_none(), "an object is in one list at a time");
        self.link(list, object);
        self.ends[list].bytes += bytes;
        self.bytes[object as usize] = bytes;
        self.states[object as usize] |= list as u8 + 1;
    }

    /// Takes an object out of its list, if it is in one.
    pub(super) fn take(&mut self, object: u32) {
        if let Some(list) = self.list_of(object) {
            self.unlink(list, object);
            self.ends[list].bytes -= self.bytes[object as usize];
            self.states[object as usize] &= !LIST_MASK;
        }
    }

    /// Moves an object that is in a list to the head of one.
    pub(super) fn promote(&mut self, list: usize, object: u32) {
        if self.ends[list].head == object {
            return;
        }
        let from = self.list_of(object);
        if from == Some(list) {
            self.unlink(list, object);
            self.link(list, object);
        } else {
            self.take(object);
            self.push(list, object, self.bytes_of(object));
        }
    }

    fn link(&mut self, list: usize, object: u32) {
        let ends = &mut self.ends[list];
        self.links[object as usize] = Link { to_head: NONE, to_tail: ends.head };
        match ends.head {
            NONE => ends.tail = object,
            head => self.links[head as usize].to_head = object,
        }
        ends.head = object;
    }

    fn unlink(&mut self, list: usize, object: u32) {
        let Link { to_head, to_tail } = self.links[object as usize];
        let ends = &mut self.ends[list];
        match to_head {
            NONE => ends.head = to_tail,
            _ => self.links[to_head as usize].to_tail = to_tail,
        }
        match to_tail {
            NONE => ends.tail = to_head,
            _ => self.links[to_tail as usize].to_head = to_head,
        }
    }

    /// One more than the largest number of an object.
    pub(super) fn objects(&self) -> usize {
        self.links.len()
    }

    /// Changes the size of an object.
    pub(super) fn resize(&mut self, object: u32, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes[object as usize], bytes);
        if let Some(list) = self.list_of(object) {
            self.ends[list].bytes = self.ends[list].bytes - before + bytes;
        }
    }

    /// Takes an object out of its list, and forgets its count.
    pub(super) fn forget(&mut self, object: u32) {
        self.take(object);
        self.set_count(object, 0);
    }

    /// All objects in lists, those at the tails first.
    pub(super) fn snapshot(&self) -> Vec<Vec<Known>> {
        let list = |list| {
            let objects = std::iter::successors(self.tail(list), |object| self.to_head(*object));
            let known = objects.map(|object| Known {
                object,
                bytes: self.bytes_of(object),
                count: self.count_of(object).into(),
                priority: 0,
            });
            known.collect()
        };
        (0..COUNT).map(list).collect()
    }

    /// Puts objects into lists that are empty.
    pub(super) fn resume(&mut self, lists: &[Vec<Known>]) {
        for (list, known) in lists.iter().take(COUNT).enumerate() {
            for known in known {
                self.forget(known.object);
                self.push(list, known.object, known.bytes);
                self.set_count(known.object, known.count.min(COUNT_MAX.into()) as u8);
            }
        }
    }

    /// Takes the object at the tail of a list.
    pub(super) fn pop(&mut self, list: usize) -> Option<Victim> {
        let object = self.tail(list)?;
        let bytes = self.bytes_of(object);
        self.take(object);
        Some(Victim { object, bytes })
    }

    /// Keeps the name of a victim in a list of names of `bytes_max`, from which the oldest go for it;
    /// one that is larger than all of it is not kept.
    pub(super) fn remember(&mut self, list: usize, victim: Victim, bytes_max: u64) {
        if victim.bytes > bytes_max {
            return;
        }
        while self.bytes(list) + victim.bytes > bytes_max {
            self.pop(list);
        }
        self.push(list, victim.object, victim.bytes);
    }
}
