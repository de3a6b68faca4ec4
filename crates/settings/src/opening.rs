// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What opening a store, repairing it and recording a trace of it have in common.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Access, Clock, Error, ErrorKind, Result};

use crate::directory::Directory;
use crate::settings::{Settings, TraceSettings};

/// Longest wait for an owner that starts, stops, or is a command that soon ends.
const BUSY_TIME_MAX: Duration = Duration::from_secs(5);

/// The same for one that serves: it will stay, unless it is about to end, as a mount is when `umount`
/// returns.
const ENDING_TIME_MAX: Duration = Duration::from_secs(2);

/// First and longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long an opening waits that wants to own a store.
pub struct Patience {
    clock: Arc<dyn Clock>,
    begun_ns: u64,
    pause: Duration,
}

impl Patience {
    /// It begins now.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Arc::clone(clock), begun_ns: clock.now_ns(), pause: PAUSE_MIN }
    }

    /// Waits a little for the owner to end; false where that has taken too long by now.
    pub fn wait(&mut self, is_served: bool) -> bool {
        let longest = if is_served { ENDING_TIME_MAX } else { BUSY_TIME_MAX };
        let waited_ns = self.clock.now_ns().saturating_sub(self.begun_ns);
        if Duration::from_nanos(waited_ns) >= longest {
            return false;
        }
        self.clock.sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

/// Refuses a directory without a store. Errors: `NotFound`, `Denied`, `Io`.
pub fn check_there(directory: &Directory) -> Result<()> {
    let settings = directory.settings();
    match settings.metadata() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::new(ErrorKind::NotFound, "open the store")
                .because(
                    "there is none: the directory has no terrace.toml; `terrace init` makes one",
                )
                .with("directory", directory.path().display()))
        }
        Err(error) => Err(Error::from_io("open the store", error).with("file", settings.display())),
    }
}

/// What a stack is opened with, by the settings.
pub fn stack_settings(settings: &Settings, access: Access) -> terrace_stack::Settings {
    terrace_stack::Settings {
        access,
        persistency: settings.persistency,
        move_threads: settings.move_threads,
        move_bytes_per_s: settings.move_bandwidth,
        move_yields: settings.move_yields,
        entries_max: settings.objects_in_memory,
        scrub_every: settings.scrub_every,
        scrub_bytes_per_s: settings.scrub_bandwidth,
        boot_id: boot_id(),
        ..terrace_stack::Settings::default()
    }
}

/// What a stack needs to know of the trace that is configured.
///
/// # Errors
///
/// `Io` where the system has no random numbers.
pub fn trace_settings(trace: &TraceSettings) -> Result<terrace_trace::Settings> {
    Ok(terrace_trace::Settings {
        directory: trace.path.clone(),
        max_bytes: trace.max_bytes,
        salt: if trace.hash_names { Some(salt()?) } else { None },
        has_decisions: trace.decisions,
    })
}

/// A number that cannot be guessed.
fn salt() -> Result<u128> {
    let mut bytes = [0; 16];
    terrace_transport::random_bytes(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

/// The id of this boot. Empty where the kernel does not tell; the stack then takes every opening for the same boot.
pub fn boot_id() -> String {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"));
    text.map(|text| text.trim().into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_testkit::ManualClock;

    #[test]
    fn one_that_may_be_about_to_end_is_waited_for_and_not_for_long() {
        for (is_served, longest) in [(true, ENDING_TIME_MAX), (false, BUSY_TIME_MAX)] {
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
            let begun_ns = clock.now_ns();
            let mut patience = Patience::new(&clock);
            assert!(patience.wait(is_served), "not even once");
            while patience.wait(is_served) {}
            let waited = Duration::from_nanos(clock.now_ns() - begun_ns);
            assert!(waited >= longest && waited <= longest + PAUSE_MAX, "{waited:?}");
        }
    }
}
