// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Backups of the catalog that a served store writes by itself, and the log behind the last one.
//!
//! One thread writes a checkpoint when the log has become long, or there is none; another takes what
//! was committed from the stack every few milliseconds and writes it to the log. A checkpoint and
//! its log are found again by `newest` and `replay`.

mod find;
mod log;
mod place;

use std::io::{BufWriter, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result};
use terrace_settings::{CheckpointPlace, CheckpointSettings, Settings, sync_directory};
use terrace_stack::{BackupMoment, LogSignal};

pub use self::find::CheckpointUsed;
pub(crate) use self::find::{newest, or_without, replay};
use self::log::LogWriter;
pub use self::place::Place;
use self::place::{Sparing, check_room};
use crate::lock;
use crate::opened::Opened;
use crate::warning::Warning;

/// How often what was committed is written to the log: what it lags behind.
const LOG_TICK: Duration = Duration::from_millis(10);

/// How soon the log is durable behind a commit with a waiting thread.
const SYNC_TICK: Duration = Duration::from_secs(1);

/// How often it is asked whether a checkpoint is due.
const TICK: Duration = Duration::from_millis(500);

/// The log becomes at least so long before another checkpoint; otherwise as long as that is.
pub(crate) const LOG_BYTES_MIN: u64 = 32 << 20;

/// All files of a log together, where checkpoints fail: so many times as much.
const LOG_FACTOR_MAX: u64 = 4;

/// Checkpoints take at most a twentieth of the time.
const PAUSE_FACTOR: u32 = 20;

/// Least pause behind one that could not be written, and one whose log had to be ended.
const PAUSE_FAILED: Duration = Duration::from_secs(30);

/// A last checkpoint without a log is written at the end of a store that was open for a moment only
/// where it is smaller than this.
const SMALL_BYTES: u64 = 64 << 20;

const LOG_FAILED: &str = "it cannot be written";

/// The threads.
pub struct Checkpoints {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Inner {
    // The store ends with its last user, not with this.
    opened: Weak<Opened>,
    settings: CheckpointSettings,
    stop: Mutex<bool>,
    stopped: Condvar,
    log: Mutex<LogWriter>,
    /// Set where there is something for it.
    signal: Arc<LogSignal>,
    turn: Mutex<Turn>,
    warning: Warning,
}

/// How far the checkpoints are.
#[derive(Default)]
struct Turn {
    /// The last commit that is in it, as far as is known.
    saved: Option<u64>,
    place: Option<Place>,
    bytes: u64,
    opened_ns: u64,
    ended_ns: u64,
    /// Least time from then to the next.
    pause: Duration,
    has_failed: bool,
}

impl Turn {
    /// Where the log is long enough for another checkpoint.
    fn log_bytes_max(&self) -> u64 {
        self.bytes.max(LOG_BYTES_MIN)
    }
}

impl Checkpoints {
    /// Begins, where the configuration wants them. The store is not used yet. Errors: `Io` for a thread.
    pub fn start(opened: &Arc<Opened>) -> Result<Option<Self>> {
        let settings = opened.settings.catalog.checkpoint.clone();
        if settings.place == CheckpointPlace::Nowhere {
            // Names that are not needed there any more, and that would be found.
            place::in_tiers(&opened.settings).iter().for_each(Place::remove);
        }
        if place::places(&opened.settings).is_empty() {
            return Ok(None);
        }
        let now_ns = opened.clock.now_ns();
        let inner = Arc::new(Inner {
            opened: Arc::downgrade(opened),
            settings,
            stop: Mutex::default(),
            stopped: Condvar::new(),
            log: Mutex::new(LogWriter::new(opened.stack.store_id())),
            signal: opened.stack.log_signal(),
            turn: Mutex::new(Turn { opened_ns: now_ns, ended_ns: now_ns, ..Turn::default() }),
            warning: Warning::default(),
        });
        inner.go_on(opened);
        let checkpoints = Self { inner, threads: Mutex::default() };
        checkpoints.spawn("terrace-checkpoint", |inner| {
            while !inner.wait(TICK) {
                if let Some(opened) = inner.opened.upgrade() {
                    inner.look(&opened);
                }
            }
        })?;
        checkpoints.spawn("terrace-log", move |inner| {
            let mut synced_ns = now_ns;
            while !inner.wait(LOG_TICK) {
                if let Some(opened) = inner.opened.upgrade() {
                    let is_time = passed(&opened, synced_ns) >= SYNC_TICK;
                    if is_time {
                        synced_ns = opened.clock.now_ns();
                    }
                    inner.write_log(&opened, is_time && opened.stack.was_log_awaited());
                }
                // No thread has to be woken where nothing happens.
                inner.signal.wait(SYNC_TICK);
            }
        })?;
        Ok(Some(checkpoints))
    }

    fn spawn(&self, name: &str, run: impl FnOnce(&Inner) + Send + 'static) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run(&inner))
            .map_err(|error| Error::from_io("start a thread", error))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Ends the threads; writes the last checkpoint where there is no log.
    pub fn stop(&self) {
        *lock(&self.inner.stop) = true;
        self.inner.stopped.notify_all();
        self.inner.signal.set();
        let threads = std::mem::take(&mut *lock(&self.threads));
        let is_first = !threads.is_empty();
        for thread in threads {
            // A panic of the thread is in the log.
            let _ = thread.join();
        }
        if let Some(opened) = self.inner.opened.upgrade().filter(|_| is_first) {
            self.inner.look_last(&opened);
            self.inner.write_log(&opened, true);
        }
    }

    /// Writes the end of the log; of a store that could not be closed, only what is left for it.
    pub fn finish(&self, opened: &Opened, is_closed: bool) {
        let (last, is_whole) = opened.stack.finish_log();
        let mut log = lock(&self.inner.log);
        let written = log.write(last.pieces).and_then(|()| match is_whole && is_closed {
            true => log.end(opened.stack.opening()),
            false => log.sync(),
        });
        if let Err(error) = written {
            log.cut();
            self.inner.warn(&error);
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    /// Waits; whether it is over.
    fn wait(&self, time: Duration) -> bool {
        let stop = lock(&self.stop);
        let (stop, _) = self
            .stopped
            .wait_timeout_while(stop, time, |stop| !*stop)
            .unwrap_or_else(PoisonError::into_inner);
        *stop
    }

    fn warn(&self, error: &Error) {
        self.warning.log(error, "names and small files are not kept twice at the moment");
    }

    /// Goes on with the log of the opening before, where it says everything.
    fn go_on(&self, opened: &Opened) {
        let Ok(Some(found)) = newest(&opened.settings) else { return };
        if !place::places(&opened.settings).contains(&found.place) {
            return;
        }
        let mut log = lock(&self.log);
        let previous = opened.stack.previous_opening();
        let Some(point) = log.go_on(&found.place, &found.moment, previous) else { return };
        if opened.stack.go_on_with_log(point).is_err() {
            return log.cut();
        }
        let mut turn = lock(&self.turn);
        turn.bytes = found.place.file.metadata().map_or(0, |found| found.len());
        turn.place = Some(found.place);
    }

    /// Writes what was committed to the log.
    fn write_log(&self, opened: &Opened, is_synced: bool) {
        let mut log = lock(&self.log);
        let taken = opened.stack.take_log();
        let written = log.write(taken.pieces).and_then(|()| match is_synced {
            true => log.sync(),
            false => Ok(()),
        });
        if let Err(error) = written {
            opened.stack.end_log(LOG_FAILED);
            log.cut();
            self.warn(&error);
        } else if let Some(reason) = taken.ended {
            log.cut();
            if reason != LOG_FAILED {
                self.warn(
                    &Error::new(ErrorKind::Io, "go on with the log of the catalog").because(reason),
                );
            }
        }
    }

    /// Writes a checkpoint where it is time for one.
    fn look(&self, opened: &Opened) {
        let mut turn = lock(&self.turn);
        let passed = passed(opened, turn.ended_ns);
        let has_changed = turn.saved != Some(opened.stack.last_commit());
        let is_misplaced = turn.place.as_ref().is_some_and(|place| !is_usable(opened, place));
        let is_too_long = lock(&self.log).bytes() > turn.log_bytes_max() * LOG_FACTOR_MAX;
        if passed < turn.pause && (turn.has_failed || !(is_misplaced || is_too_long)) {
            return;
        }
        let is_due = match (opened.stack.is_logged(), self.settings.every) {
            _ if is_misplaced => true,
            (false, _) => has_changed,
            (true, Some(every)) if has_changed && passed >= every => true,
            (true, _) => lock(&self.log).bytes() > turn.log_bytes_max(),
        };
        if is_due {
            self.checkpoint(opened, &mut turn, &|| *lock(&self.stop));
        }
    }

    /// The same at the end of the store, with which there is no more time.
    fn look_last(&self, opened: &Opened) {
        let mut turn = lock(&self.turn);
        if opened.stack.is_logged() || turn.saved == Some(opened.stack.last_commit()) {
            return;
        }
        // A store that is opened for a moment, again and again, does not copy a large catalog each time.
        let usual = Duration::from_millis(turn.bytes.max(size_now(opened)) * 1000 / 100_000_000);
        let is_small = turn.bytes.max(size_now(opened)) <= SMALL_BYTES;
        if is_small || passed(opened, turn.opened_ns) >= usual * PAUSE_FACTOR {
            self.checkpoint(opened, &mut turn, &|| false);
        }
    }

    /// Writes a checkpoint, unless the time for it is over before it is there.
    fn checkpoint(&self, opened: &Opened, turn: &mut Turn, is_over: &dyn Fn() -> bool) {
        // A tier must not go meanwhile.
        let _saving = lock(&opened.saving);
        let begun_ns = opened.clock.now_ns();
        // Before the copy begins: what is committed meanwhile may or may not be in it.
        let now = opened.stack.last_commit();
        let was_logged = opened.stack.is_logged();
        let written = choose(opened, turn.bytes).and_then(|place| {
            let is_same = turn.place.as_ref() == Some(&place);
            let log = random()?;
            lock(&self.log).place = Some(place.clone());
            let written = write(opened, &place, Some(log), is_over);
            // A log that would begin without its checkpoint, or go on away from it.
            let is_new = opened.stack.is_logged_as(log);
            if written.is_err() && (is_new || !(was_logged && is_same)) {
                opened.stack.end_log(LOG_FAILED);
            }
            written.map(|(bytes, moment)| (place, bytes, moment))
        });
        turn.has_failed = written.is_err();
        match written {
            Ok((place, bytes, moment)) => {
                place.remove_logs_but(moment.point);
                let others = place::in_tiers(&opened.settings).into_iter();
                others.filter(|other| *other != place).for_each(|other| other.remove());
                *turn = Turn { saved: Some(now), place: Some(place), bytes, ..*turn };
                self.warning.clear();
                turn.pause = passed(opened, begun_ns) * PAUSE_FACTOR;
                if !was_logged && turn.ended_ns != turn.opened_ns {
                    turn.pause = turn.pause.max(PAUSE_FAILED);
                }
            }
            Err(error) => {
                if !is_over() {
                    self.warn(&error);
                }
                let log_bytes = turn.place.as_ref().map_or(0, Place::log_bytes);
                if log_bytes > turn.log_bytes_max() * LOG_FACTOR_MAX {
                    opened.stack.end_log("it has become too long");
                }
                turn.pause = (passed(opened, begun_ns) * PAUSE_FACTOR).max(PAUSE_FAILED);
            }
        }
        turn.ended_ns = opened.clock.now_ns();
    }
}

fn passed(opened: &Opened, since_ns: u64) -> Duration {
    Duration::from_nanos(opened.clock.now_ns().saturating_sub(since_ns))
}

/// The size of a checkpoint that is there; 0 without one.
fn size_now(opened: &Opened) -> u64 {
    let found = newest(&opened.settings).ok().flatten();
    found.and_then(|found| found.place.file.metadata().ok()).map_or(0, |found| found.len())
}

/// The number of a log or a checkpoint.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    terrace_transport::random_bytes(&mut bytes)?;
    // 0 is none.
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// Whether a place is there, and will be.
fn is_usable(opened: &Opened, place: &Place) -> bool {
    let Some(name) = &place.tier else { return true };
    let tiers = opened.stack.tiers();
    let found = tiers.iter().find(|tier| tier.name == *name);
    found.is_some_and(|tier| tier.offline.is_none() && tier.drain.is_none()) && place.is_there()
}

/// The best place now that has room for another of this size.
fn choose(opened: &Opened, bytes: u64) -> Result<Place> {
    // As it is now: tiers come and go.
    let settings =
        Settings::read(&opened.directory.settings())?.resolved(opened.directory.path())?;
    let now = place::places(&Settings { catalog: opened.settings.catalog.clone(), ..settings });
    let mut refused = Error::new(ErrorKind::NotFound, "write a checkpoint of the catalog")
        .because("there is no directory of a tier for it");
    for place in now.into_iter().filter(|place| is_usable(opened, place)) {
        match place.make().and_then(|()| check_room(place.directory(), bytes)) {
            Ok(()) => return Ok(place),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Writes a checkpoint beside its place and puts it there when it is durable; returns its size.
fn write(
    opened: &Opened,
    place: &Place,
    log: Option<u64>,
    is_over: &dyn Fn() -> bool,
) -> Result<(u64, BackupMoment)> {
    let path = place.new_file();
    let failed = |error| {
        Error::from_io("write a checkpoint of the catalog", error).with("file", path.display())
    };
    let file = Place::create(&path).map_err(failed)?;
    let written = (|| {
        let sparing = Sparing { file: &file, directory: place.directory(), bytes: 0, is_over };
        let mut out = BufWriter::with_capacity(256 << 10, sparing);
        let done = opened.stack.checkpoint(log, &mut out)?;
        out.flush().map_err(failed)?;
        drop(out);
        file.sync_all().map_err(failed)?;
        std::fs::rename(&path, &place.file).map_err(failed)?;
        sync_directory(place.directory())?;
        Ok(done)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    let (report, moment) = written?;
    Ok((report.bytes, moment))
}

/// Writes a checkpoint to another tier in the place of one on a tier that has gone. The owner of the
/// store begins a log with another one soon.
pub fn leave(opened: &Opened, place: &Place) {
    let written = match place.file.exists() {
        true => choose(opened, 0).and_then(|other| match other.file.exists() {
            true => Ok(()),
            false => write(opened, &other, None, &|| false).map(drop),
        }),
        false => Ok(()),
    };
    match written {
        Ok(()) => place.remove(),
        // It stays where it was, of no use to a store without that tier.
        Err(error) => tracing::warn!(error = error.chain(), "cannot move the checkpoint"),
    }
}

/// The place in a tier's directory, as it is in the configuration now.
pub fn of_tier(settings: &Settings, name: &str) -> Option<Place> {
    place::in_tiers(settings).into_iter().find(|place| place.tier.as_deref() == Some(name))
}
