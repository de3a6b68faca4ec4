// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room of all tiers together.

use std::collections::HashMap;

use terrace_core::{Result, Space};

use crate::tiers::{TierState, Tiers};

/// Capacity and use of all tiers.
pub(crate) fn of(tiers: &Tiers) -> Result<Space> {
    let mut space = Space::default();
    for tier in tiers.present() {
        let taken = tier.account.taken();
        space.used_bytes += taken;
        let capacity = if is_bounded(tier) { tier.capacity_bytes() } else { taken };
        space.capacity_bytes = space.capacity_bytes.saturating_add(capacity);
    }
    space.capacity_bytes = space.capacity_bytes.saturating_add(unbounded_room(tiers)?);
    Ok(space)
}

fn is_bounded(tier: &TierState) -> bool {
    tier.capacity_bytes() != u64::MAX
}

/// What tiers without a bound have room for together: what is available on their file systems, each
/// once, but for what tiers with a bound may still take of it.
fn unbounded_room(tiers: &Tiers) -> Result<u64> {
    let online = || tiers.present().filter(|tier| tier.is_online());
    let mut others = 0_u64;
    let mut available = HashMap::new();
    for tier in online().filter(|tier| !is_bounded(tier)) {
        let space = tier.backend.space()?;
        let room = match space.capacity_bytes {
            u64::MAX => u64::MAX,
            capacity => capacity.saturating_sub(space.used_bytes),
        };
        match space.file_system {
            Some(file_system) => _ = available.insert(file_system, room),
            None => others = others.saturating_add(room),
        }
    }
    if !available.is_empty() {
        for tier in online().filter(|tier| is_bounded(tier)) {
            let file_system = tier.backend.space()?.file_system;
            if let Some(room) = file_system.and_then(|one| available.get_mut(&one)) {
                let claimed = tier.capacity_bytes().saturating_sub(tier.account.taken());
                *room = room.saturating_sub(claimed);
            }
        }
    }
    Ok(available.into_values().fold(others, u64::saturating_add))
}
