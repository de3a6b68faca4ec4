// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a trace of our own as fast as its disk is, without losing anything.

use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Event, Result};
use terrace_trace::{About, Origin, Settings, Tier, Waits, Writer};

/// Events after which what was written is waited for: the writer drops what the disk is too slow
/// for, once 16 MiB wait, and an event with its subject takes less than 150 bytes.
const FLUSH_EVENTS: u64 = 50_000;

/// Of the whole trace: no file is deleted to keep a bound.
const MAX_BYTES: u64 = 1 << 62;

pub(super) struct Recorder {
    directory: PathBuf,
    writer: Option<Writer>,
    events: u64,
}

impl Recorder {
    /// Of a new directory, which is made when the recording begins.
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.into(), writer: None, events: 0 }
    }

    /// Begins the recording, if it has not begun.
    pub(super) fn begin(&mut self, origin: impl FnOnce() -> Origin) -> Result<()> {
        if self.writer.is_none() {
            let settings = Settings {
                directory: self.directory.clone(),
                max_bytes: MAX_BYTES,
                salt: None,
                has_decisions: false,
            };
            self.writer = Some(Writer::begin(settings, origin())?);
        }
        Ok(())
    }

    /// Records an event; `about` is asked what its slot stands for.
    pub(super) fn put<'a>(
        &mut self,
        event: &Event,
        waits: Waits,
        about: impl FnOnce() -> Option<About<'a>>,
    ) -> Result<()> {
        let writer = self.writer.as_mut().expect("it was begun");
        writer.access(event, waits, about);
        self.events += 1;
        match self.events.is_multiple_of(FLUSH_EVENTS) && !writer.flush() {
            true => Err(self.failed("its disk is too slow".into())),
            false => Ok(()),
        }
    }

    /// Has the tiers be others from here on.
    pub(super) fn set_tiers(&mut self, tiers: &[Tier]) {
        self.writer.as_mut().expect("it was begun").set_tiers(tiers.to_vec());
    }

    pub(super) fn finish(mut self) -> Result<()> {
        let report = self.writer.take().expect("it was begun").end();
        match report.failure {
            Some(why) => Err(self.failed(why)),
            None if report.lost_records > 0 => Err(self.failed("its disk is too slow".into())),
            None => Ok(()),
        }
    }

    fn failed(&self, why: String) -> Error {
        let error = Error::new(ErrorKind::Io, "write the trace").because(why);
        error.with("directory", self.directory.display())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The directory has no writer any more once it may be removed.
        if let Some(writer) = self.writer.take() {
            writer.end();
        }
    }
}
