// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recording a trace of a store: where, what, and how it ends.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result};
use terrace_settings::{Directory, PolicySource, Settings, TraceSettings};
use terrace_stack::Tactics;

use crate::Store;
use crate::admin::Recording;
use crate::owned::Owned;

impl Store {
    /// Where the store at an address keeps its trace by default. Does not open
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

/// A number that cannot be guessed.
fn salt() -> Result<u128> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::from_io("draw a random number", error))?;
    Ok(u128::from_le_bytes(bytes))
}
