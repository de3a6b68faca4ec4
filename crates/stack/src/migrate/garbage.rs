// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deletes superseded files, and then their rows of the catalog.

use std::cell::Cell;
use std::sync::Arc;

use terrace_core::{Error, ErrorKind, Result, TierIndex};

use crate::catalog::map::{GarbageRow, Write};
use crate::memory::site::Site;
use crate::migrate::retention::End;
use crate::shared::Shared;
use crate::shared::drops::{Drop, Drops, RETRY, RETRY_SERVICE, Waiting, Which};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;
use crate::tiers::retry::Retry;

/// Files whose rows are removed from the catalog together.
const BATCH: usize = 64;

/// Failures of one file before the log names it.
const FAILURES_LOGGED: u32 = 5;

impl Drops {
    /// Deletes all that waits.
    pub(crate) fn run_all(&self, shared: &Shared) {
        shared.tiers.indexed().for_each(|(tier, _)| self.run_on(shared, tier, Which::All));
    }

    /// Deletes in the background what is due, and notes when to look again.
    pub(crate) fn run_due(&self, shared: &Shared) {
        let mut tiers: Vec<_> = shared.tiers.indexed().collect();
        tiers.sort_by_key(|(_, state)| state.is_whole());
        for (tier, _) in tiers {
            // Some of those of a service at a time: what is added to other tiers comes in between.
            let tries = Cell::new(0);
            let stops = || self.is_over() || tries.replace(tries.get() + 1) >= BATCH;
            self.run_on(shared, tier, Which::Due(&stops));
        }
        let now_ns = shared.clock.now_ns();
        // Where another thread is deleting, it is looked again soon.
        let service_ns = |tier: &TierState| {
            crate::try_lock(&tier.deleting).map_or(0, |service| service.left_ns(now_ns))
        };
        let services_ns: Vec<_> = shared.tiers.iter().map(service_ns).collect();
        self.note_pause(now_ns, &services_ns);
    }

    /// Deletes what waits on a tier. One thread at a time does: a run for all of it returns only when what
    /// it saw was tried, and one for what is due leaves it to the other thread. Other tiers are not waited for.
    pub(crate) fn run_on(&self, shared: &Shared, tier: TierIndex, which: Which<'_>) {
        let state = shared.tier(tier);
        let deleting = match which {
            Which::All => Some(crate::lock(&state.deleting)),
            Which::Due(_) => crate::try_lock(&state.deleting),
        };
        let Some(mut service) = deleting else { return };
        let now_ns = shared.clock.now_ns();
        let due_ns = matches!(which, Which::Due(_)).then_some(now_ns);
        if due_ns.is_some() && service.left_ns(now_ns) > 0 {
            return;
        }
        let mut all = self.take(tier, due_ns);
        if all.is_empty() {
            return;
        }
        // The commits that made these garbage must be durable first: a catalog that forgot one
        // would still name the file.
        let durable = shared.catalog.wait_all();
        if durable.and_then(|()| shared.failpoints.hit("drop.durable")).is_err() {
            return self.put(all);
        }
        // Another machine may begin with the log as it is, and with files that it still names.
        if state.is_shared() && shared.wait_far_all().is_err() {
            service.fail(shared.clock.now_ns(), RETRY_SERVICE);
            return self.put(all);
        }
        // What failed before comes last: it delays no other file.
        all.sort_by_key(|file| file.retry.failures);
        let mut left = Vec::new();
        let mut is_stopped = false;
        let mut all = all.into_iter();
        while all.len() > 0 {
            let mut deleted = Vec::new();
            for mut file in all.by_ref().take(BATCH) {
                if state.offline.is_some() {
                    // Its row stays until the tier is back.
                    continue;
                }
                // Ours is the only reference: no location names it and no operation uses it.
                if is_stopped || !file.drop.site.is_unused() {
                    left.push(file);
                    continue;
                }
                if state.is_whole() && self.stops(which) {
                    is_stopped = true;
                    left.push(file);
                    continue;
                }
                match shared.end_file(&file.drop) {
                    Ok(Some(end)) => {
                        *service = Retry::default();
                        deleted.push((file.drop, end));
                    }
                    // Its row stays.
                    Ok(None) => {}
                    Err(error) => {
                        let now_ns = shared.clock.now_ns();
                        // A service that does not answer is waited for once, not for each of its files.
                        if state.is_whole() && is_of_service(&error) {
                            service.fail(now_ns, RETRY_SERVICE);
                            is_stopped = true;
                        }
                        note_failure(&mut file, state, &error, now_ns);
                        left.push(file);
                    }
                }
            }
            if forget(shared, &deleted).is_err() {
                // The rows of the others could not be removed either.
                left.extend(all);
                break;
            }
        }
        // A thread that came to wait meanwhile has found nothing.
        self.put(left);
    }

    /// Whether a run goes on with no further file of a service. The end of the store waits for none.
    fn stops(&self, which: Which<'_>) -> bool {
        match which {
            Which::All => self.is_over(),
            Which::Due(stops) => stops(),
        }
    }
}

/// Whether a failed deletion may be due to the service, and not to the one file.
fn is_of_service(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy | ErrorKind::Unreachable { .. })
}

/// Has a file that could not be deleted pause.
fn note_failure(file: &mut Waiting, tier: &TierState, error: &Error, now_ns: u64) {
    file.retry.fail(now_ns, RETRY);
    if file.retry.failures == FAILURES_LOGGED {
        tracing::warn!(
            file = %file.drop.site.key,
            tier = tier.name,
            error = error.chain(),
            "a superseded file cannot be deleted and takes room on its tier; the store tries again"
        );
    }
}

impl Shared {
    /// Deletes now what waits for it on a tier, where its room is still taken by it. A caller that lacks
    /// room looks again in any case: another thread may have deleted it meanwhile.
    pub(crate) fn free_garbage(&self, tier: TierIndex) {
        if self.tier(tier).account.bytes(Class::Garbage) > 0 {
            self.drops.run_on(self, tier, Which::All);
        }
    }

    /// The same for a write to a tier, on all tiers to which it may go on where that one is full: none is a
    /// service.
    pub(crate) fn free_garbage_for_writes(&self, tier: TierIndex) {
        for (other, state) in self.tiers.indexed() {
            if other == tier || state.takes_writes() {
                self.free_garbage(other);
            }
        }
    }

    /// Whether `take` gets its room on a tier, which may still be taken by what is deleted.
    pub(crate) fn take_with_garbage(&self, tier: TierIndex, take: impl Fn() -> bool) -> bool {
        take() || {
            self.free_garbage(tier);
            take()
        }
    }

    /// Deletes a file that no record names and no operation uses, and that is accounted as garbage. One
    /// that cannot be deleted now gets a row, for which the next opening deletes it.
    pub(crate) fn delete_unnamed(&self, site: Arc<Site>, row: GarbageRow) {
        if crate::missing_is_gone(self.backend(&site).delete(&site.key)).is_ok() {
            self.tier(row.place.tier).account.free(Class::Garbage, row.bytes);
            return;
        }
        // Where the commit fails, the next opening compares the media with the catalog.
        let _ = self.catalog.commit(&[Write::Garbage(row.clone())]);
        self.drops.add(vec![Drop { site, row }]);
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
