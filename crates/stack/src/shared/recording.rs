// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trace that is recorded.

use terrace_trace::Writer;

use crate::report::RecordingReport;

/// The trace that is recorded, or the end of the last one.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) running: Option<Running>,
    pub(crate) last: Option<RecordingReport>,
}

pub(crate) struct Running {
    pub(crate) writer: Writer,
    pub(crate) started_wall_ns: u64,
    /// When it ends by itself, by both clocks.
    pub(crate) ends: Option<(u64, u64)>,
}

impl Running {
    pub(crate) fn report(&self) -> RecordingReport {
        let settings = self.writer.settings();
        let report = self.writer.report();
        RecordingReport {
            is_running: report.failure.is_none(),
            directory: settings.directory.display().to_string(),
            has_decisions: settings.has_decisions,
            has_hashed_names: settings.salt.is_some(),
            max_bytes: settings.max_bytes,
            started_wall_ns: self.started_wall_ns,
            ends_wall_ns: self.ends.map(|(_, wall_ns)| wall_ns),
            files: report.files,
            bytes: report.bytes,
            records: report.records,
            summed_up_events: report.summed_up_events,
            lost_records: report.lost_records,
            deleted_files: report.deleted_files,
            failure: report.failure,
        }
    }
}

impl Recording {
    /// What takes events; `None` where nothing is recorded.
    pub(crate) fn writer(&mut self) -> Option<&mut Writer> {
        self.running.as_mut().map(|running| &mut running.writer)
    }

    /// What takes the policy's inputs and decisions, too.
    pub(crate) fn decisions(&mut self) -> Option<&mut Writer> {
        self.writer().filter(|writer| writer.settings().has_decisions)
    }

    pub(crate) fn report(&self) -> Option<RecordingReport> {
        self.running.as_ref().map(Running::report).or_else(|| self.last.clone())
    }
}
