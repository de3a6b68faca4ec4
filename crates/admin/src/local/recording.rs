// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recording a trace of a store: where, what, and how it ends.

use std::path::PathBuf;
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result};
use terrace_settings::{PolicySource, TraceSettings, trace_settings};
use terrace_stack::Tactics;

use super::owned::Owned;
use crate::reports::Recording;

impl Owned {
    pub(super) fn record(&self, recording: &Recording) -> Result<()> {
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
        self.stack.record(trace_settings(&trace)?, tactics)?;
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
