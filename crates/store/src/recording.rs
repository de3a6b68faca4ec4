// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recording a trace of a store: where, what, and how it ends.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result};
use terrace_stack::Tactics;
use terrace_stack::report::RecordingReport;

use crate::Store;
use crate::control::{Call, Recording};
use crate::directory::Directory;
use crate::owned::Owned;
use crate::settings::{PolicySource, Settings, TraceSettings};
use crate::store::Side;

impl Store {
    /// Records a trace from now on, until [`Store::stop_recording`] or the end of the store.
    ///
    /// With decisions the policy hands over to a new instance of itself, as if it was replaced,
    /// so that a replay can begin where the trace does. A disk that fails ends the recording and
    /// nothing else; [`Store::recording`] says so.
    ///
    /// # Errors
    ///
    /// `Busy` where one is recorded already or something else writes in the directory, `Exists`
    /// where it holds the trace of another store, `Unsupported` for a store of one tier that was
    /// opened without policy and trace, `Invalid`, `Denied`, `NoSpace`, `Io`.
    pub fn record(&self, recording: &Recording) -> Result<()> {
        let mut recording = recording.clone();
        // The owner's working directory is another one.
        if let Some(directory) = &mut recording.directory {
            *directory = absolute(directory)?;
        }
        match &self.side {
            Side::Owned(owned) => owned.record(&recording),
            Side::Attached(link) => link.ask(&Call::Record(recording)),
        }
    }

    /// Ends the recording once everything that happened so far is in it, and tells of it.
    ///
    /// # Errors
    ///
    /// `NotFound` where nothing is recorded.
    pub fn stop_recording(&self) -> Result<RecordingReport> {
        match &self.side {
            Side::Owned(owned) => owned.stack.stop_recording(),
            Side::Attached(link) => link.ask(&Call::StopRecording),
        }
    }

    /// The recording that runs, or how the last one ended; `None` where there was none since the
    /// store was opened.
    pub fn recording(&self) -> Result<Option<RecordingReport>> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.stack.recording()),
            Side::Attached(link) => link.ask(&Call::Recording),
        }
    }

    /// Where the store at an address keeps its trace unless somebody says otherwise. Does not open
    /// it.
    ///
    /// # Errors
    ///
    /// As for the configuration in [`Store::open_with`].
    pub fn trace_directory(address: &str) -> Result<PathBuf> {
        let directory = Directory::at(address)?;
        let settings = Settings::read(&directory.settings())?.resolved(directory.path())?;
        Ok(settings.trace.map_or_else(|| directory.trace(), |trace| trace.path))
    }
}

impl Owned {
    pub(crate) fn record(&self, recording: &Recording) -> Result<()> {
        self.check_writable("record a trace")?;
        let configured = self.settings.trace.clone();
        let given = recording.directory.as_ref().map(PathBuf::from);
        let path = given.or_else(|| configured.as_ref().map(|trace| trace.path.clone()));
        let max_bytes = recording.max_bytes.or_else(|| configured.map(|trace| trace.max_bytes));
        let trace = TraceSettings {
            path: path.unwrap_or_else(|| self.directory.trace()),
            decisions: recording.has_decisions,
            hash_names: recording.has_hashed_names,
            max_bytes: max_bytes.unwrap_or(terrace_trace::MAX_BYTES_DEFAULT),
        };
        let mut settings = self.settings.clone();
        settings.trace = Some(trace.clone());
        // A directory inside that of a tier would be taken for its content.
        settings.resolved(self.directory.path())?;
        let tactics = if trace.decisions { self.same_policy()? } else { None };
        self.stack.record(of(&trace)?, tactics)?;
        match recording.longest_ns {
            Some(longest_ns) => self.stack.end_recording_after(Duration::from_nanos(longest_ns)),
            None => Ok(()),
        }
    }

    /// Another instance of the running policy, called as it is.
    fn same_policy(&self) -> Result<Option<Tactics>> {
        let Some(now) = self.policy() else { return Ok(None) };
        if self.running_guest().is_some() {
            let reason = "the policy belongs to another command; record events alone, or use it with \
                          `terrace policy use`";
            return Err(Error::new(ErrorKind::Unsupported, "record decisions").because(reason));
        }
        let pairs = now.parameters.iter().map(|one| (one.name.clone(), one.value.clone()));
        let policy =
            PolicySource::named(&now.name).make(&self.view(), &pairs.collect::<Vec<_>>())?;
        Ok(Some(self.called_as_now(Tactics::new(&now.name, policy))))
    }
}

/// What a stack needs to know of the trace that is configured.
pub(crate) fn of(trace: &TraceSettings) -> Result<terrace_trace::Settings> {
    Ok(terrace_trace::Settings {
        directory: trace.path.clone(),
        max_bytes: trace.max_bytes,
        salt: if trace.hash_names { Some(salt()?) } else { None },
        has_decisions: trace.decisions,
    })
}

/// A number that nobody can guess.
fn salt() -> Result<u128> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::from_io("draw a random number", error))?;
    Ok(u128::from_le_bytes(bytes))
}

fn absolute(path: &str) -> Result<String> {
    let absolute = std::path::absolute(Path::new(path)).map_err(|error| {
        Error::from_io("find the directory of the trace", error).with("directory", path)
    })?;
    // What is given is text, the working directory may not be.
    absolute.into_os_string().into_string().map_err(|path| {
        Error::invalid("find the directory of the trace", "its path is not UTF-8")
            .with("directory", Path::new(&path).display())
    })
}
