// SPDX-License-Identifier: Apache-2.0 OR MIT
//! S3-FIFO (Yang et al., SOSP 2023).

use super::lists::Lists;
use super::{Replacement, Resident, Snapshot, Victim};

/// Lists: where new objects prove themselves, where those are that did, and names of those that did
/// not.
const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// Shares of the capacity.
const SMALL_SHARE: f64 = 0.1;
const GHOST_SHARE: f64 = 0.9;

/// Hits that bring an object from the small queue to the main one.
const PROVEN: u8 = 2;

/// Hits that count: how often an object goes round in the main queue at most.
const HITS_MAX: u8 = 3;

/// New objects enter a small queue and leave it soon unless they are asked for again; whatever comes
/// back soon, or proved itself there, goes round in the main queue.
///
/// An object that is not smaller than the small queue stays out, and nothing leaves for it.
#[derive(Debug)]
pub struct S3Fifo {
    lists: Lists<3>,
    small_max_bytes: u64,
    main_max_bytes: u64,
    ghost_max_bytes: u64,
    /// Whether new objects enter the main queue once the small one is full.
    fills_main: bool,
    /// Whether the object of the last miss had left the small queue not long ago.
    is_back: bool,
}

impl S3Fifo {
    /// For a cache of this capacity. Until something has to go for the first time, new objects enter
    /// the main queue once the small one is full (version 2).
    pub fn new(capacity_bytes: u64) -> Self {
        let small_max_bytes = (SMALL_SHARE * capacity_bytes as f64) as u64;
        Self {
            lists: Lists::default(),
            small_max_bytes,
            main_max_bytes: capacity_bytes - small_max_bytes,
            ghost_max_bytes: (GHOST_SHARE * capacity_bytes as f64) as u64,
            fills_main: true,
            is_back: false,
        }
    }

    /// The same, but new objects enter the small queue from the beginning (version 1).
    pub fn version_1(capacity_bytes: u64) -> Self {
        Self { fills_main: false, ..Self::new(capacity_bytes) }
    }

    fn evict_main(&mut self) -> Option<Victim> {
        loop {
            let oldest = self.lists.tail(MAIN)?;
            let hits = self.lists.count_of(oldest);
            if hits == 0 {
                return self.lists.pop(MAIN);
            }
            self.lists.set_count(oldest, hits - 1);
            self.lists.promote(MAIN, oldest);
        }
    }

    fn evict_small(&mut self) -> Option<Victim> {
        loop {
            let oldest = self.lists.tail(SMALL)?;
            if self.lists.count_of(oldest) < PROVEN {
                let victim = self.lists.pop(SMALL)?;
                self.lists.remember(GHOST, victim, self.ghost_max_bytes);
                return Some(victim);
            }
            self.lists.set_count(oldest, 0);
            self.lists.promote(MAIN, oldest);
        }
    }
}

impl Replacement for S3Fifo {
    fn grow(&mut self, objects: usize) {
        self.lists.grow(objects);
    }

    fn contains(&self, object: u32) -> bool {
        matches!(self.lists.list_of(object), Some(SMALL | MAIN))
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        self.lists.touch_states(objects)
    }

    fn hit(&mut self, object: u32) {
        let hits = self.lists.count_of(object);
        if hits < HITS_MAX {
            self.lists.set_count(object, hits + 1);
        }
    }

    fn miss(&mut self, object: u32, bytes: u64) -> bool {
        self.is_back = self.lists.list_of(object).is_some();
        self.lists.take(object);
        // It would push everything else out of the small queue.
        bytes < self.small_max_bytes
    }

    fn evict(&mut self) -> Option<Victim> {
        self.fills_main = false;
        let is_main_full = self.lists.bytes(MAIN) > self.main_max_bytes;
        match is_main_full {
            true => self.evict_main(),
            false => self.evict_small().or_else(|| self.evict_main()),
        }
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        let list = match self.is_back {
            true => MAIN,
            false if self.fills_main && self.lists.bytes(SMALL) >= self.small_max_bytes => MAIN,
            false => SMALL,
        };
        self.lists.set_count(object, 0);
        self.lists.push(list, object, bytes);
    }
}

impl Resident for S3Fifo {
    fn remembers(&self, object: u32) -> bool {
        self.lists.list_of(object) == Some(GHOST)
    }

    fn bytes_of(&self, object: u32) -> u64 {
        self.lists.bytes_of(object)
    }

    fn resize(&mut self, object: u32, bytes: u64) {
        self.lists.resize(object, bytes);
    }

    fn forget(&mut self, object: u32) {
        self.lists.forget(object);
    }

    fn snapshot(&self) -> Snapshot {
        let numbers = vec![self.fills_main.into()];
        Snapshot { lists: self.lists.snapshot(), hand: None, numbers }
    }

    fn resume(&mut self, snapshot: &Snapshot) {
        self.lists.resume(&snapshot.lists);
        self.fills_main = snapshot.numbers.first() == Some(&1);
    }
}
