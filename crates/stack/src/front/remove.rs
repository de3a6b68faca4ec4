// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removing a tier that holds nothing from a store that is open.

use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result, TierIndex};

use crate::catalog::map::GarbageRow;
use crate::recover::doubt;
use crate::recover::superblock::free_superblock;
use crate::shared::Shared;
use crate::shared::drops::Which;
use crate::tiers::account::Class;
use crate::tiers::list::TierState;

const OPERATION: &str = "remove a tier";

/// Longest wait for migrations that were on their way.
const MOVES_TIME_MAX: Duration = Duration::from_secs(5);

/// Removes a tier. The catalog forgets it first, then its superblock is marked as free: a
/// crash in between leaves a superblock that may be added to this store again.
pub(crate) fn remove(shared: &Shared, name: &str, tier: TierIndex) -> Result<()> {
    shared.check_writable(OPERATION)?;
    shared.check_many(OPERATION)?;
    let _changing = crate::lock(&shared.tiers.changing);
    let state = shared.tier(tier);
    if state.is_retired() || shared.tiers.present().count() == 1 {
        return Err(Error::invalid(OPERATION, "it is the store's only tier").with("tier", name));
    }
    if let Some(reason) = &state.offline {
        return Err(Error::new(ErrorKind::Io, OPERATION)
            .because(format!("it is offline: {reason}"))
            .with("tier", name));
    }
    let takes_writes = |(other, state): (TierIndex, &TierState)| {
        other != tier && !state.is_retired() && !state.is_whole()
    };
    if !shared.tiers.indexed().any(takes_writes) {
        let reason = "the others take whole objects only: a store needs a tier that can be written";
        return Err(Error::invalid(OPERATION, reason).with("tier", name));
    }
    let was_draining = state.is_draining();
    // Closed first, then looked into: nothing can come in afterwards.
    state.set_draining(true);
    shared.update_keeping();
    let checked = check_empty(shared, tier, state)
        // What is there now belongs to another machine, where that has taken the store over.
        .and_then(|()| if state.is_shared() { shared.confirm_owner() } else { Ok(()) })
        // Versions go with the tier that keeps them.
        .and_then(|()| shared.purge_kept(tier))
        .map_err(|error| error.with("tier", name));
    if let Err(error) = checked.and_then(|()| forget(shared, tier)) {
        state.set_draining(was_draining);
        shared.update_keeping();
        return Err(error);
    }
    state.retire();
    shared.tell_tier(tier, "removed");
    shared.failpoints.hit("remove.header")?;
    if state.capability.identity && !state.is_volatile() {
        state.backend.set_superblock(&free_superblock()).map_err(|error| {
            error.with("tier", name).with("removed", "yes, but its superblock still says otherwise")
        })?;
    }
    shared.failpoints.hit("remove.superblock")
}

fn check_empty(shared: &Shared, tier: TierIndex, state: &TierState) -> Result<()> {
    let touches = |one: &crate::shared::moves::Move| one.from == tier || one.request.to == tier;
    if !shared.mover.cancel_where(shared, touches, MOVES_TIME_MAX) {
        return Err(Error::new(ErrorKind::Busy, OPERATION)
            .because("a migration to it or from it does not end"));
    }
    shared.drops.run_on(shared, tier, Which::All);
    let mut objects = 0_u64;
    shared.catalog.for_each(&mut |_, record| {
        // One that cannot be read may name any tier.
        let record = record.map_err(|error| {
            Error::new(ErrorKind::Corrupt, OPERATION)
                .because("a record is damaged and may name it; see terrace fsck")
                .caused_by(error)
        })?;
        objects += u64::from(record.is_on(tier));
        Ok(())
    })?;
    let rows = shared.catalog.garbage()?;
    let count = |rows: &[GarbageRow]| rows.iter().filter(|row| row.place.tier == tier).count();
    let (files, doubtful) = (count(&rows), count(&doubt::rows(&shared.catalog)?));
    if objects == 0 && files == 0 && doubtful == 0 && !state.holds_anything() {
        return Ok(());
    }
    Err(Error::invalid(OPERATION, "it still holds something; drain it first")
        .with("objects", objects)
        .with("used_bytes", state.account.bytes(Class::Used))
        .with("copy_bytes", state.account.bytes(Class::Copy))
        .with("garbage_files", files)
        .with("doubtful_files", doubtful))
}

fn forget(shared: &Shared, tier: TierIndex) -> Result<()> {
    let number = shared.catalog.tiers.number(tier);
    shared.catalog.change_header(|header| header.tiers.retain(|entry| entry.number != number))
}
