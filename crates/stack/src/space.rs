// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room of all tiers together.

use std::collections::HashMap;

use terrace_core::{FileSystem, Result, Space};

use crate::tiers::{TierState, Tiers};

/// Capacity and use of all tiers. What they have room for is what they may still take, and no more
/// than what is available on their file systems.
pub(crate) fn of(tiers: &Tiers) -> Result<Space> {
    let mut space = Space::default();
    let mut room = Room::default();
    for tier in tiers.present() {
        let taken = tier.account.taken();
        space.used_bytes += taken;
        let left_bytes = match tier.capacity_bytes() {
            u64::MAX => u64::MAX,
            capacity_bytes => capacity_bytes.saturating_sub(taken),
        };
        room.add(tier, left_bytes)?;
    }
    space.capacity_bytes = space.used_bytes.saturating_add(room.bytes());
    Ok(space)
}

/// What tiers have room for together.
#[derive(Default)]
struct Room {
    /// Of those that are on no file system of this machine.
    others_bytes: u64,
    /// Of those that are, by file system: what they may still take together, and what is available.
    file_systems: HashMap<u64, (u64, u64)>,
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
            Some(FileSystem { number, available_bytes }) => {
                let (wanted, available) = self.file_systems.entry(number).or_default();
                // Directories of one file system may have quotas of their own.
                *wanted = wanted.saturating_add(left_bytes.min(available_bytes));
                *available = available_bytes.max(*available);
            }
            None => {
                let room = match space.capacity_bytes {
                    u64::MAX => u64::MAX,
                    capacity_bytes => capacity_bytes.saturating_sub(space.used_bytes),
                };
                self.others_bytes = self.others_bytes.saturating_add(left_bytes.min(room));
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let of_each = self.file_systems.values().map(|(wanted, available)| wanted.min(available));
        of_each.fold(self.others_bytes, |sum, bytes| sum.saturating_add(*bytes))
    }
}
