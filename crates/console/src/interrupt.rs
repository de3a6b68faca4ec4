// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that ask a command to stop, for verbs that have something to tidy up.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use terrace_core::Error;

use crate::failure::{Failure, Result};

/// How long after the first signal another one is the same wish. `timeout` signals the process and
/// then its group, and a shell that ends and the terminal both do.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Notes SIGINT, SIGTERM and SIGHUP instead of dying of them. The second one kills, unless it comes
/// at once behind the first. SIGHUP and SIGINT that the parent had ignored, as `nohup` and shells for what they start in the
/// background do, stay ignored; SIGTERM never does, because services are ended by it.
///
/// Verbs that have nothing to tidy up do not make one: they die as usual, and the store recovers
/// when it is next opened.
#[derive(Clone, Debug)]
pub struct Interrupt {
    is_set: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    /// Whether the waiting threads were notified.
    told: Arc<(Mutex<bool>, Condvar)>,
}

impl Interrupt {
    /// Starts to take note.
    pub fn watch() -> Result<Self> {
        let interrupt =
            Self { is_set: Arc::default(), signal: Arc::default(), told: Arc::default() };
        interrupt.register().map_err(|error| Error::from_io("watch for signals", error))?;
        Ok(interrupt)
    }

    fn register(&self) -> io::Result<()> {
        let ignored = ignored_signals();
        let asked_to_stop = [SIGINT, SIGTERM, SIGHUP].into_iter();
        let watched =
            asked_to_stop.filter(|signal| *signal == SIGTERM || ignored & (1 << (signal - 1)) == 0);
        let watched: Vec<i32> = watched.collect();
        let kills = Arc::new(AtomicBool::new(false));
        for signal in &watched {
            self.register_one(*signal, &kills)?;
        }
        let mut signals = Signals::new(&watched)?;
        let told = Arc::clone(&self.told);
        // It stays until the first signal, and does nothing.
        thread::Builder::new().name("terrace-signals".into()).spawn(move || {
            if signals.forever().next().is_some() {
                *told.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
                told.1.notify_all();
                // Nothing is ever sent, and no signal makes this shorter.
                let (_sender, nothing) = channel::<()>();
                let _ = nothing.recv_timeout(AT_ONCE);
                kills.store(true, Ordering::SeqCst);
            }
        })?;
        Ok(())
    }

    fn register_one(&self, signal: i32, kills: &Arc<AtomicBool>) -> io::Result<()> {
        // A signal that comes while this flag is set has its default effect.
        flag::register_conditional_default(signal, Arc::clone(kills))?;
        flag::register_usize(signal, Arc::clone(&self.signal), signal as usize)?;
        flag::register(signal, Arc::clone(&self.is_set))?;
        Ok(())
    }

    /// Whether a signal came.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    /// Waits until a signal comes.
    pub fn wait(&self) {
        let told = self.told.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.told.1.wait_while(told, |is_told| !*is_told);
        drop(told.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for a signal, and for `longest` at most; whether one came.
    pub fn wait_for(&self, longest: Duration) -> bool {
        let told = self.told.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.1.wait_timeout_while(told, longest, |is_told| !*is_told);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The flag that a signal sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_set)
    }

    /// Fails once a signal came; `what` says what becomes of the work.
    pub fn check(&self, what: &str) -> Result<()> {
        if !self.is_set() {
            return Ok(());
        }
        let signal = self.signal.load(Ordering::SeqCst) as i32;
        Err(Failure::Interrupted { signal, what: format!("interrupted: {what}") })
    }

    /// Waits until a descriptor can be read, at its end, or a signal came.
    ///
    /// A plain `read` would be restarted by the kernel after a signal and never return.
    pub fn wait_readable(&self, file: impl AsFd) -> Result<()> {
        // Short, because a signal between the check and the poll is seen only after it.
        const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        while !self.is_set() {
            let mut waited = [PollFd::new(&file, PollFlags::IN)];
            match poll(&mut waited, Some(&STEP)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // Any event or error: the read itself says what it is.
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// The signals that are ignored, a bit each, from the lowest. None where the system does not say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
