// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deletes superseded files, and then their rows of the catalog.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use terrace_core::Result;

use crate::catalog::map::Write;
use crate::migrate::retention::End;
use crate::shared::Shared;
use crate::shared::drops::{Drop, Drops};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;

/// Files whose rows are removed from the catalog together.
const BATCH: usize = 64;

impl Drops {
    /// Deletes what can be deleted; returns how many files went.
    pub(crate) fn run(&self, shared: &Shared) -> usize {
        let _running = crate::lock(&self.running);
        let mut all: Vec<Drop> = std::mem::take(&mut *crate::lock(&self.waiting));
        let mut left = Vec::new();
        let mut gone = 0;
        // The commits that made these garbage must be durable first: a catalog that forgot one
        // would still name the file.
        if !all.is_empty()
            && shared
                .catalog
                .wait_all()
                .and_then(|()| shared.failpoints.hit("drop.durable"))
                .is_err()
        {
            left.append(&mut all);
        }
        // Another machine may begin with the log as it is, and with files that it still names.
        let is_shared = |drop: &Drop| shared.tier(drop.site.place.tier).is_shared();
        if all.iter().any(is_shared) && shared.wait_far_all().is_err() {
            let (kept, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(is_shared);
            left.extend(kept);
            all = rest;
        }
        // Those of services last: what is waited for then are files of their own kind.
        all.sort_by_key(|drop| shared.tier(drop.site.place.tier).is_whole());
        let mut failed = HashSet::new();
        let mut all = all.into_iter();
        while all.len() > 0 {
            let mut deleted = Vec::new();
            for drop in all.by_ref().take(BATCH) {
                if shared.tier(drop.site.place.tier).offline.is_some() {
                    // Its row stays until the tier is back.
                    continue;
                }
                // Ours is the only reference: no location names it and no operation uses it.
                let tier = drop.site.place.tier;
                if failed.contains(&tier) || !drop.site.is_unused() {
                    left.push(drop);
                    continue;
                }
                match shared.end_file(&drop) {
                    Ok(Some(end)) => deleted.push((drop, end)),
                    // Its row stays.
                    Ok(None) => {}
                    Err(_) => {
                        // A service that does not answer is waited for once, not for each of its files.
                        if shared.tier(tier).is_whole() {
                            failed.insert(tier);
                        }
                        left.push(drop);
                    }
                }
            }
            gone += deleted.len();
            if forget(shared, &deleted).is_err() {
                // The rows of the others could not be removed either.
                left.extend(all);
                break;
            }
        }
        if !left.is_empty() {
            let mut waiting = crate::lock(&self.waiting);
            self.has_failed.store(true, Ordering::Relaxed);
            waiting.extend(left);
            drop(waiting);
            // A thread that came to wait meanwhile has found nothing.
            self.added.notify_all();
        } else {
            self.has_failed.store(false, Ordering::Relaxed);
        }
        gone
    }
}

impl Shared {
    /// Deletes now what waits for it, where a tier's room is still taken by it. A caller that lacks
    /// room looks again in any case: another thread may have deleted it meanwhile.
    pub(crate) fn free_garbage(&self) {
        let takes_room = |tier: &TierState| tier.account.bytes(Class::Garbage) > 0;
        if self.tiers.present().any(takes_room) {
            self.drops.run(self);
        }
    }

    /// Whether `take` gets its room, which may still be taken by what is deleted.
    pub(crate) fn take_with_garbage(&self, take: impl Fn() -> bool) -> bool {
        take() || {
            self.free_garbage();
            take()
        }
    }
}

/// Removes the rows of files that are gone or kept. One that stays names a file that is gone, and the next
/// opening deletes it again, or one that is to be kept.
fn forget(shared: &Shared, deleted: &[(Drop, End)]) -> Result<()> {
    if deleted.is_empty() {
        return Ok(());
    }
    // A row goes only when its file cannot come back.
    let mut tiers: Vec<_> = deleted.iter().map(|(drop, _)| drop.site.place.tier).collect();
    tiers.sort();
    tiers.dedup();
    let all_synced = tiers.iter().all(|tier| shared.tier(*tier).backend.sync().is_ok());
    for (drop, end) in deleted {
        let account = &shared.tier(drop.site.place.tier).account;
        match end {
            End::Kept(row) => {
                let bytes = row.bytes.min(drop.row.bytes);
                account.turn(Class::Garbage, Class::Kept, bytes);
                account.free(Class::Garbage, drop.row.bytes - bytes);
                account.found(Class::Kept, row.bytes - bytes);
            }
            End::Deleted | End::DeletedOfVersion => account.free(Class::Garbage, drop.row.bytes),
        }
    }
    if !all_synced {
        return Ok(());
    }
    let mut writes: Vec<_> =
        deleted.iter().map(|(drop, _)| Write::GarbageGone(&drop.row)).collect();
    writes.extend(deleted.iter().filter_map(|(drop, end)| end.change(drop, &shared.catalog.tiers)));
    shared.catalog.commit(&writes)?;
    let _ = shared.failpoints.hit("drop.row");
    Ok(())
}
