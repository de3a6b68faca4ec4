// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room of all tiers together.

use std::collections::{HashMap, HashSet};

use terrace_core::{FileSystem, HeldGrowth, Result, Space};

use crate::memory::entry::{Entry, Segment};
use crate::shared::Shared;
use crate::tiers::account::Class;
use crate::tiers::list::{TierState, Tiers};

/// Capacity and use of all tiers. What they have room for is what they may still take, and no more
/// than what is available on their file systems.
pub(crate) fn of(tiers: &Tiers) -> Result<Space> {
    let mut space = Space::default();
    let mut room = Room::default();
    for tier in tiers.present() {
        let taken = tier.account.taken();
        space.used_bytes += taken;
        room.add(tier, left(tier))?;
    }
    space.capacity_bytes = space.used_bytes.saturating_add(room.bytes());
    Ok(space)
}

/// Most by which two readings of the room on one file system differ, because it is written to
/// between them. Directories with quotas of their own mostly differ by more.
const SAME_ROOM_BYTES_MAX: u64 = 64 << 20;

/// What a tier may still take.
fn left(tier: &TierState) -> u64 {
    match tier.capacity_bytes() {
        u64::MAX => u64::MAX,
        capacity_bytes => capacity_bytes.saturating_sub(tier.account.taken()),
    }
}

impl Shared {
    /// What limits the growth of an object through a descriptor of its file.
    pub(crate) fn held_growth(&self, entry: &Entry, first: &Segment) -> Result<HeldGrowth> {
        let own = first.location.load().primary.place.tier;
        let tier = self.tier(own);
        if entry.usage.bytes.limit().is_some() {
            return Ok(HeldGrowth::Unbounded);
        }
        let file_system = |tier: &TierState| Ok(tier.backend.space()?.file_system);
        let capacity_bytes = tier.capacity_bytes();
        if capacity_bytes == u64::MAX && self.tiers.len() == 1 {
            return Ok(HeldGrowth::Full);
        }
        let Some(under) = file_system(tier)? else { return Ok(HeldGrowth::Unbounded) };
        // By its size, not by what is available: others may delete files on it at any time.
        if capacity_bytes < under.size_bytes {
            return Ok(HeldGrowth::Unbounded);
        }
        let level = entry.persistency();
        let takes_more =
            |index, tier: &TierState| index != own && tier.keeps(level) && tier.takes_writes();
        for (_, other) in self.tiers.indexed().filter(|(index, tier)| takes_more(*index, tier)) {
            let is_same = file_system(other)?.is_some_and(|other| {
                let apart = other.available_bytes.abs_diff(under.available_bytes);
                (other.number, other.size_bytes) == (under.number, under.size_bytes)
                    && apart <= SAME_ROOM_BYTES_MAX
            });
            if !is_same {
                return Ok(HeldGrowth::OneFile);
            }
        }
        Ok(HeldGrowth::Full)
    }

    /// What an object can be given at most besides what it has: what is left of the tiers that may have its
    /// bytes, and what these can drop. Only as many tiers are asked as have `enough_bytes`, its own before
    /// others. Nothing where one does not know.
    pub(crate) fn most_room(&self, entry: &Entry, enough_bytes: u64) -> Option<Most> {
        let level = entry.persistency();
        let segments = entry.segments.load();
        let has_some: HashSet<_> =
            segments.iter().map(|one| one.location.load().primary.place.tier).collect();
        let (own, others): (Vec<_>, Vec<_>) =
            self.tiers.indexed().partition(|(index, _)| has_some.contains(index));
        let others =
            others.into_iter().filter(|(_, tier)| tier.keeps(level) && tier.takes_writes());
        let (mut room, mut dropped_bytes) = (Room::default(), 0_u64);
        for (_, tier) in own.into_iter().chain(others) {
            room.add(tier, left(tier)).ok()?;
            let droppable = [Class::Copy, Class::Garbage].map(|class| tier.account.bytes(class));
            dropped_bytes = droppable.into_iter().fold(dropped_bytes, u64::saturating_add);
            if room.most().bytes.saturating_add(dropped_bytes) >= enough_bytes {
                break;
            }
        }
        let Most { bytes, media_bytes } = room.most();
        let with_dropped = |bytes: u64| bytes.saturating_add(dropped_bytes);
        Some(Most { bytes: with_dropped(bytes), media_bytes: with_dropped(media_bytes) })
    }
}

/// The most that there may be room for.
pub(crate) struct Most {
    pub(crate) bytes: u64,
    /// The same by the media alone, whatever is accounted.
    pub(crate) media_bytes: u64,
}

/// What tiers have room for together.
#[derive(Default)]
struct Room {
    /// Of those that are on no file system of this machine, or on an unknown one.
    others_bytes: u64,
    /// Whether there are any to which bytes can go: what their media have is not known.
    has_others: bool,
    /// Of those that are, by file system.
    file_systems: HashMap<u64, Available>,
}

/// What tiers on one file system have.
struct Available {
    /// What they may still take together.
    wanted_bytes: u64,
    /// What is available to one of them.
    least_bytes: u64,
    greatest_bytes: u64,
    sum_bytes: u64,
}

impl Available {
    /// At most. Directories with quotas of their own tell of different room, and all others of the same.
    fn most(&self) -> Most {
        match self.least_bytes == self.greatest_bytes {
            true => Most {
                bytes: self.wanted_bytes.min(self.greatest_bytes),
                media_bytes: self.greatest_bytes,
            },
            false => Most { bytes: self.wanted_bytes, media_bytes: self.sum_bytes },
        }
    }
}

impl Room {
    /// Adds a tier that may still take so much.
    fn add(&mut self, tier: &TierState, left_bytes: u64) -> Result<()> {
        if !tier.is_online() {
            // One without a bound has none that is known.
            let left_bytes = if left_bytes == u64::MAX { 0 } else { left_bytes };
            self.others_bytes = self.others_bytes.saturating_add(left_bytes);
            return Ok(());
        }
        let space = match tier.backend.space() {
            // What it may take is known, and whether there is less room for that is not.
            Err(_) if left_bytes < u64::MAX => {
                Space { capacity_bytes: left_bytes, ..Space::default() }
            }
            asked => asked?,
        };
        match space.file_system {
            Some(FileSystem { number, available_bytes, .. }) => {
                let one = self.file_systems.entry(number).or_insert(Available {
                    wanted_bytes: 0,
                    least_bytes: available_bytes,
                    greatest_bytes: available_bytes,
                    sum_bytes: 0,
                });
                // Directories of one file system may have quotas of their own.
                let wanted_bytes = left_bytes.min(available_bytes);
                one.wanted_bytes = one.wanted_bytes.saturating_add(wanted_bytes);
                one.sum_bytes = one.sum_bytes.saturating_add(available_bytes);
                one.least_bytes = one.least_bytes.min(available_bytes);
                one.greatest_bytes = one.greatest_bytes.max(available_bytes);
            }
            None => {
                let room = match space.capacity_bytes {
                    u64::MAX => u64::MAX,
                    capacity_bytes => capacity_bytes.saturating_sub(space.used_bytes),
                };
                self.others_bytes = self.others_bytes.saturating_add(left_bytes.min(room));
                self.has_others = true;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let file_systems = self.file_systems.values();
        let of_each = file_systems.map(|one| one.wanted_bytes.min(one.greatest_bytes));
        of_each.fold(self.others_bytes, u64::saturating_add)
    }

    fn most(&self) -> Most {
        let media_bytes = if self.has_others { u64::MAX } else { 0 };
        let others = Most { bytes: self.others_bytes, media_bytes };
        self.file_systems.values().map(Available::most).fold(others, |sum, one| Most {
            bytes: sum.bytes.saturating_add(one.bytes),
            media_bytes: sum.media_bytes.saturating_add(one.media_bytes),
        })
    }
}
