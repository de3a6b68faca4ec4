// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trace of a window: recorded for it, or a part of the one that the store records anyway.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use terrace_console::failure::{Failure, Result};
use terrace_console::interrupt::Interrupt;
use terrace_core::{Error, ErrorKind};
use terrace_replay::{Lived, Objective, TierFill, Value};
use terrace_store::{Recording, RecordingReport, Store, TierReport};

use super::OPERATION;

/// Where the trace of a window is, in the directory of the store.
const DIRECTORY: &str = ".tune-live";

/// Most bytes of it: about two million events, twice as many as are replayed.
const TRACE_BYTES_MAX: u64 = 32_000_000;

/// How much longer than a window its recording may go on, should this process be killed before it ends it.
const OVERTIME: Duration = Duration::from_secs(30);

/// Between two looks for Ctrl-C, or for the end of the recording.
const LOOK: Duration = Duration::from_millis(100);

/// The most accesses of which one may be summed up in others, or be missing: their times are not known.
const GAPS_MAX: f64 = 0.01;

/// A window that is over.
pub struct Recorded {
    /// When it began, in nanoseconds since 1970.
    pub began_wall_ns: u64,
    /// What the accesses of the window were.
    pub lived: Lived,
    /// The tiers of the configuration.
    pub tiers: Vec<String>,
    /// What each of them held when it began.
    pub fill: Vec<TierFill>,
    /// What the disk of the trace was too slow for.
    pub lost_records: u64,
    /// What all tiers drew, by their figures.
    power_w: f64,
}

/// How waiting for the end of a window ended.
enum Waited {
    /// With its end.
    Over,
    /// The tuning is interrupted.
    Stopped,
    /// Nothing is recorded any more.
    Unrecorded,
}

/// Records windows of a store, one at a time.
pub(super) struct Recorder<'a> {
    store: &'a Store,
    interrupt: Interrupt,
    until: Option<Instant>,
    directory: PathBuf,
    /// No other process tunes the store.
    _lock: File,
}

impl Recorded {
    /// What was measured.
    pub fn value(&self, objective: Objective) -> Value {
        let Lived { accesses, access_s, span_s, .. } = self.lived;
        objective.value(accesses, access_s, self.power_w * span_s)
    }

    /// Whether its trace tells of as good as everything.
    pub fn is_whole(&self) -> bool {
        let missing = self.lived.summed_up + self.lost_records;
        missing as f64 <= GAPS_MAX * self.lived.accesses as f64
    }
}

impl<'a> Recorder<'a> {
    /// Prepares to record windows until a signal comes, or for a time.
    pub(super) fn new(
        home: &Path,
        store: &'a Store,
        interrupt: Interrupt,
        time: Option<Duration>,
    ) -> Result<Self> {
        let failed = |error| Error::from_io(OPERATION, error).with("directory", home.display());
        // Of the directory, so that no file has to stay.
        let lock = File::open(home).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let reason = "another command tunes it already";
                return Err(Error::new(ErrorKind::Busy, OPERATION).because(reason).into());
            }
            Err(TryLockError::Error(error)) => return Err(failed(error).into()),
        }
        // Whatever the store was called by: one that was killed may have had another name for it.
        let directory = fs::canonicalize(home).map_err(failed)?.join(DIRECTORY);
        let until = time.map(|time| Instant::now() + time);
        let recorder = Self { store, interrupt, until, directory, _lock: lock };
        // Of one that was killed.
        recorder.stop_recording()?;
        recorder.remove()?;
        Ok(recorder)
    }

    /// What a signal sets.
    pub(super) fn stop(&self) -> Arc<AtomicBool> {
        self.interrupt.flag()
    }

    /// Records a window that begins now, of a store with these tiers; `None` where its end is not
    /// waited for any more.
    pub(super) fn window(&self, length: Duration, names: &[String]) -> Result<Option<Recorded>> {
        let (began_wall_ns, began, before) =
            (wall_ns(), Instant::now(), self.store.admin().tiers()?);
        let other = self.running()?.map(|report| PathBuf::from(report.directory));
        let waited = match &other {
            Some(_) => self.wait(began + length),
            None => self.record(began + length),
        };
        if let (Some(_), Ok(Waited::Unrecorded)) = (&other, &waited) {
            // The recording was ended from elsewhere: the window begins once more.
            return self.window(length, names);
        }
        // Whatever happened: nothing is left behind.
        let stopped = if other.is_none() { self.stop_recording() } else { Ok(0) };
        let read = waited.and_then(|waited| {
            let lost_records = stopped?;
            match waited {
                Waited::Over => {}
                Waited::Stopped => return Ok(None),
                Waited::Unrecorded => return Err(self.unrecorded()?),
            }
            let after = self.store.admin().tiers()?;
            let passed_s = began.elapsed().as_secs_f64();
            let lived = match &other {
                None => Lived::read(&self.directory, (0, u64::MAX), names)?,
                Some(directory) => {
                    // What happened by now is to be in it.
                    self.store.admin().run_policy()?;
                    Lived::read(directory, (began_wall_ns, wall_ns()), names)?
                }
            };
            Ok(Some(Recorded {
                began_wall_ns,
                lived,
                fill: names.iter().map(|name| fill(&before, name)).collect(),
                tiers: names.to_vec(),
                lost_records,
                power_w: (joules(&after) - joules(&before)) / passed_s,
            }))
        });
        let removed = self.remove();
        let recorded = read?;
        removed?;
        Ok(recorded)
    }

    fn record(&self, until: Instant) -> Result<Waited> {
        let directory = self.directory.to_str().ok_or_else(|| {
            let error = Error::invalid(OPERATION, "the path of the store is not UTF-8");
            error.with("directory", self.directory.display())
        })?;
        self.store.admin().record(&Recording {
            directory: Some(directory.into()),
            max_bytes: Some(TRACE_BYTES_MAX),
            longest_ns: Some(nanoseconds(
                until.saturating_duration_since(Instant::now()) + OVERTIME,
            )),
            ..Recording::default()
        })?;
        self.wait(until)
    }

    /// Waits for the end of the window, a signal, the end of the time, or that of the recording.
    fn wait(&self, end: Instant) -> Result<Waited> {
        loop {
            let now = Instant::now();
            if self.interrupt.is_set() || self.until.is_some_and(|until| now >= until) {
                return Ok(Waited::Stopped);
            }
            if self.running()?.is_none() && !self.has_run_out()? {
                return Ok(Waited::Unrecorded);
            }
            if now >= end {
                return Ok(Waited::Over);
            }
            thread::sleep(LOOK.min(end - now));
        }
    }

    /// Whether the recording has ended because its time was over: then this command alone was held up,
    /// and what was recorded is the whole window.
    fn has_run_out(&self) -> Result<bool> {
        let report = self.store.admin().recording()?.filter(|report| report.failure.is_none());
        Ok(report
            .and_then(|report| report.ends_wall_ns)
            .is_some_and(|ends_ns| wall_ns() >= ends_ns))
    }

    /// Why what was recorded for a window ended too soon.
    fn unrecorded(&self) -> Result<Failure> {
        let failure = self.store.admin().recording()?.and_then(|report| report.failure);
        let reason =
            failure.unwrap_or_else(|| "another command ended the recording of a window".into());
        Ok(Error::new(ErrorKind::Io, OPERATION).because(reason).into())
    }

    /// Ends what was recorded for the window; what its disk was too slow for.
    fn stop_recording(&self) -> Result<u64> {
        match self.running()? {
            Some(running) if Path::new(&running.directory) == self.directory => {
                Ok(self.store.admin().stop_recording()?.lost_records)
            }
            _ => Ok(0),
        }
    }

    /// The recording that runs.
    fn running(&self) -> Result<Option<RecordingReport>> {
        Ok(self.store.admin().recording()?.filter(|report| report.is_running))
    }

    /// Removes what was recorded for a window.
    fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let error = Error::from_io("remove the trace of a window", error);
                Err(error.with("directory", self.directory.display()).into())
            }
            _ => Ok(()),
        }
    }
}

/// What a tier holds.
fn fill(tiers: &[TierReport], name: &str) -> TierFill {
    let tier = tiers.iter().find(|tier| tier.name == name);
    tier.map_or_else(TierFill::default, |tier| TierFill {
        used_bytes: tier.used_bytes,
        segments: tier.segments,
    })
}

/// What all tiers drew since the store was opened.
fn joules(tiers: &[TierReport]) -> f64 {
    tiers.iter().map(|tier| tier.modelled_energy_j).sum()
}

fn wall_ns() -> u64 {
    nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
