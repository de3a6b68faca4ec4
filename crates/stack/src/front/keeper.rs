// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads behind a stack, and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use terrace_core::{Access, Error, Result};

use crate::memory::entry::Entry;
use crate::migrate::history;
use crate::recover::crash;
use crate::recover::superblock::{self, Stage};
use crate::room::quota;
use crate::runner;
use crate::shared::Shared;
use crate::shared::drops::Which;

/// How often the keeper looks after the watchdog and the utilisation.
const TICK: Duration = Duration::from_millis(50);

/// Ticks between two flushes of lengths.
const FLUSH_TICKS: u32 = 20;

/// Longest that a close waits for migrations, and then for writers, whose device does not answer.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// Tries of a close to delete what is still being read.
const LAST_DROPS_MAX: u32 = 20;

/// How long one look at a segment lasts that has writers inside.
const GATE_LOOK: Duration = Duration::from_millis(20);

/// How soon a lock is tried again that is taken.
const LOCK_LOOK: Duration = Duration::from_millis(1);

/// Looks of a close at files that may still be written to.
const LAST_LOOKS_MAX: u32 = 20;

/// The background threads of one stack.
#[derive(Default)]
pub(crate) struct Threads {
    stop: Arc<(Mutex<bool>, Condvar)>,
    joins: Mutex<Vec<std::thread::JoinHandle<()>>>,
    is_closed: AtomicBool,
    close: Mutex<()>,
}

/// Starts the keeper, the dropper and the drainer.
pub(crate) fn start(shared: &Arc<Shared>, threads: &Threads) -> Result<()> {
    spawn(shared, threads, "terrace-keeper", keep)?;
    if shared.settings.scrub_every.is_some() {
        spawn(shared, threads, "terrace-scrub", |shared, _| crate::front::scrub::tick(shared))?;
    }
    spawn(shared, threads, "terrace-dropper", |shared, _| {
        shared.drops.wait();
        shared.drops.run_due(shared);
    })?;
    if shared.is_bare {
        return Ok(());
    }
    // Drains of before go on at once.
    shared.drains.wake();
    spawn(shared, threads, "terrace-drainer", |shared, _| {
        shared.drains.wait();
        shared.drains.run(shared);
    })
}

fn spawn(
    shared: &Arc<Shared>,
    threads: &Threads,
    name: &str,
    tick: impl Fn(&Arc<Shared>, u32) + Send + 'static,
) -> Result<()> {
    // The threads do not keep the stack alive: it ends with its last user.
    let shared: Weak<Shared> = Arc::downgrade(shared);
    let stop = Arc::clone(&threads.stop);
    // The dropper waits for work by itself.
    let pause = if name == "terrace-dropper" { Duration::ZERO } else { TICK };
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            for ticks in 0_u32.. {
                let held = crate::lock(&stop.0);
                let (stopped, _) = stop
                    .1
                    .wait_timeout_while(held, pause, |stopped| !*stopped)
                    .unwrap_or_else(PoisonError::into_inner);
                if *stopped {
                    return;
                }
                drop(stopped);
                match shared.upgrade() {
                    Some(shared) => tick(&shared, ticks),
                    None => return,
                }
            }
        })
        .map_err(|error| Error::from_io("start a thread", error))?;
    crate::lock(&threads.joins).push(thread);
    Ok(())
}

fn keep(shared: &Arc<Shared>, ticks: u32) {
    if !shared.is_bare {
        runner::watch(shared);
        measure_utilisation(shared);
        shared.fill.look(shared);
    }
    shared.look_after_kept();
    shared.entries.trim();
    shared.look_after_held(ticks.is_multiple_of(FLUSH_TICKS));
    if ticks.is_multiple_of(FLUSH_TICKS) {
        // What cannot be flushed now is tried again, and at close.
        let _ = shared.flush_idle();
    }
}

/// Computes from the ledgers how busy applications kept each tier since the last time.
pub(crate) fn measure_utilisation(shared: &Shared) {
    let now_ns = shared.clock.now_ns();
    let mut last = crate::lock(&shared.utilisation_since);
    let passed_ns = now_ns.saturating_sub(last.0);
    // Too short an interval would be all noise.
    if passed_ns < TICK.as_nanos() as u64 / 2 {
        return;
    }
    last.1.resize(shared.tiers.len(), 0);
    for (tier, before_ns) in shared.tiers.iter().zip(&mut last.1) {
        let busy_ns = tier.ledger.device_ns();
        let share = (busy_ns - *before_ns) as f64
            / (passed_ns as f64 * f64::from(tier.figures.parallelism.max(1)));
        tier.utilisation_permille.store((share.min(1.0) * 1000.0) as u64, Ordering::Relaxed);
        *before_ns = busy_ns;
    }
    last.0 = now_ns;
}

/// Ends the watching when it is dropped.
struct Unwatch<'a>(&'a Shared);

impl Drop for Unwatch<'_> {
    fn drop(&mut self) {
        self.0.watches.close();
    }
}

/// Waits for all threads that change an object, and gives back the room that it does not need; later
/// changes are refused. False where a thread is still inside at `end_ns`.
fn end_writing(shared: &Shared, end_ns: u64) -> bool {
    let mut have_all_left = true;
    shared.entries.for_each(|entry| {
        have_all_left = have_all_left && end_writing_to(shared, entry, end_ns);
    });
    have_all_left
}

fn end_writing_to(shared: &Shared, entry: &Arc<Entry>, end_ns: u64) -> bool {
    let Some(_changes) = lock_until(shared, &entry.changes, end_ns) else { return false };
    entry.segments.load().iter().all(|segment| {
        let Some(_gate) = lock_until(shared, &segment.gate, end_ns) else { return false };
        let close = || segment.guard.close(&shared.parking, GATE_LOOK);
        let mut have_left = close();
        while !have_left && shared.clock.now_ns() < end_ns {
            have_left = close();
        }
        if have_left {
            shared.trim_room(entry, segment);
        }
        segment.guard.open(&shared.parking);
        have_left
    })
}

/// Takes a lock, unless another thread has it until `end_ns`.
fn lock_until<'a>(
    shared: &Shared,
    mutex: &'a Mutex<()>,
    end_ns: u64,
) -> Option<MutexGuard<'a, ()>> {
    loop {
        match crate::try_lock(mutex) {
            None if shared.clock.now_ns() < end_ns => shared.clock.sleep(LOCK_LOOK),
            locked => return locked,
        }
    }
}

/// Whether an object may be written to past the guard and without asking for room.
fn is_written_straight(shared: &Shared) -> bool {
    let mut is_written = false;
    if shared.is_bare {
        shared.entries.for_each(|entry| {
            is_written |= entry.is_open() && entry.is_written_straight.load(Ordering::Acquire);
        });
    }
    is_written
}

/// Ends a stack; once.
pub(crate) fn close(shared: &Arc<Shared>, threads: &Threads) -> Result<()> {
    let _closing = crate::lock(&threads.close);
    shared.leases.close();
    // Behind everything that the end itself has to tell.
    let _watched = Unwatch(shared);
    if threads.is_closed.swap(true, Ordering::AcqRel) || shared.settings.access == Access::Read {
        return Ok(());
    }
    if !shared.is_bare {
        runner::stop(shared);
    }
    shared.is_closing.store(true, Ordering::Release);
    shared.scrubbing.wait();
    let all_ended = shared.mover.stop(shared, STOP_TIME_MAX);
    *crate::lock(&threads.stop.0) = true;
    threads.stop.1.notify_all();
    shared.drops.end();
    shared.drains.wake();
    for thread in crate::lock(&threads.joins).drain(..) {
        // A panic of a background thread has been printed; closing goes on.
        let _ = thread.join();
    }
    // What is on the shared tiers belongs to another owner.
    shared.check_owner("close the store")?;
    if !all_ended {
        return Err(Error::new(terrace_core::ErrorKind::Busy, "close the store")
            .because("a migration hangs in its device; the next opening recovers"));
    }
    // Where commits fail, nothing of what follows can be noted: the next opening recovers, and the close
    // does not wait for it.
    if shared.catalog.is_failing() {
        shared.catalog.change_header(|_| {})?;
    }
    history::note_benefits(shared);
    // What a kernel closes a moment after the last handle would cost the next opening a comparison
    // of everything.
    for _ in 0..LAST_LOOKS_MAX {
        if !shared.look_at_left() {
            break;
        }
        shared.clock.sleep(Duration::from_millis(5));
    }
    shared.discard_drafts();
    let end_ns = shared.clock.now_ns() + STOP_TIME_MAX.as_nanos() as u64;
    if !end_writing(shared, end_ns) {
        return Err(Error::new(terrace_core::ErrorKind::Busy, "close the store")
            .because("a writer hangs in its device; the next opening recovers"));
    }
    shared.flush()?;
    shared.sync_all()?;
    shared.failpoints.hit("close.synced")?;
    // What a service has not deleted by then is deleted by the next opening.
    let end_ns = shared.clock.now_ns() + STOP_TIME_MAX.as_nanos() as u64;
    let is_late = || shared.clock.now_ns() >= end_ns;
    for _ in 0..LAST_DROPS_MAX {
        for (tier, state) in shared.tiers.indexed() {
            let which = if state.is_whole() { Which::Due(&is_late) } else { Which::All };
            shared.drops.run_on(shared, tier, which);
        }
        if shared.drops.count() == 0 || is_late() {
            break;
        }
        shared.clock.sleep(Duration::from_millis(5));
    }
    shared.catalog.wait_all()?;
    if shared.tiers.iter().any(|tier| tier.offline.is_some()) {
        // What is on a tier that is missing is compared when it is back: until then no opening
        // takes catalog and media for equal, and what is young stays young.
        return Ok(());
    }
    if shared.catalog.has_failed() || shared.written.is_any() || is_written_straight(shared) {
        // Everything is durable; what the failed commit left, and what is written past the store
        // after its end, or past its guards, is compared by the next opening.
        return Ok(());
    }
    if shared.has_failed_sync.load(Ordering::Acquire) {
        // A later sync must not report success for what a failed one has lost.
        return Ok(());
    }
    quota::save_usage(shared)?;
    let totals = crash::totals(shared);
    shared.catalog.change_header(|header| {
        header.is_clean = true;
        header.settled_epoch = header.epoch;
        for entry in &mut header.tiers {
            let tier = shared.catalog.tiers.index(entry.number).expect("it is open");
            let (segments, used, copies, garbage) = totals[tier.index()];
            entry.segments = segments;
            entry.used_bytes = used;
            entry.copy_bytes = copies;
            entry.garbage_bytes = garbage;
        }
    })?;
    shared.failpoints.hit("close.header")?;
    // Before the shared tier is written: another machine may own the store.
    if shared.is_shareable() {
        shared.wait_far_all()?;
    }
    superblock::write_all(shared, Stage::Closed, "close.superblock")
}
