// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a server has served: counters that the threads of connections add to.

use std::sync::atomic::{AtomicU64, Ordering};

use terrace_core::{ErrorKind, Latencies, LatencyReport};
use terrace_wire::{OnHandle, Operation, Outcome};

/// What has been served.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) operations: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// By [`RequestKind`].
    pub(crate) latencies: [Latencies; RequestKind::ALL.len()],
    /// By [`ErrorKind::number`].
    errors: [AtomicU64; ErrorKind::ALL.len()],
}

/// What a request asks for: what its first operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    Sync,
    /// Metadata of a file system.
    Files,
    /// Key-value pairs.
    Pairs,
    /// Everything else that is done with objects: open, close, stat, list, delete and more.
    Object,
    /// The control plane. A call may have no end by itself, as that of a watcher.
    Call,
}

impl RequestKind {
    pub(crate) const ALL: [RequestKind; 7] = [
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Sync,
        RequestKind::Files,
        RequestKind::Pairs,
        RequestKind::Object,
        RequestKind::Call,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Sync => "sync",
            RequestKind::Files => "files",
            RequestKind::Pairs => "pairs",
            RequestKind::Object => "object",
            RequestKind::Call => "call",
        }
    }

    pub(crate) fn of(operations: &[Operation]) -> Self {
        use Operation as O;
        match operations.first() {
            Some(O::Read { .. } | O::On { what: OnHandle::Read { .. }, .. }) => RequestKind::Read,
            Some(
                O::Create { .. } | O::Write { .. } | O::On { what: OnHandle::Write { .. }, .. },
            ) => RequestKind::Write,
            Some(O::Sync { .. } | O::On { what: OnHandle::Sync, .. }) => RequestKind::Sync,
            Some(O::Files { .. }) => RequestKind::Files,
            Some(
                O::KvGet { .. }
                | O::KvPut { .. }
                | O::KvDelete { .. }
                | O::KvScan { .. }
                | O::KvLook(_)
                | O::KvCommit(_)
                | O::KvWait { .. },
            ) => RequestKind::Pairs,
            _ => RequestKind::Object,
        }
    }
}

impl Counts {
    /// Counts an error that a client gets.
    pub(crate) fn fail(&self, kind: ErrorKind) {
        self.errors[kind.number()].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the operations of an answer that failed.
    pub(crate) fn fail_among(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            if let Outcome::Failed(failure) = outcome {
                self.fail(failure.kind());
            }
        }
    }

    pub(crate) fn report(&self) -> RequestsReport {
        let errors = ErrorKind::ALL.into_iter().zip(&self.errors);
        let errors = errors.map(|(kind, count)| (kind, count.load(Ordering::Relaxed)));
        let latencies = RequestKind::ALL.into_iter().zip(&self.latencies);
        RequestsReport {
            latencies: latencies.map(|(kind, one)| (kind.word(), one.report())).collect(),
            errors: errors.collect(),
        }
    }
}

/// How long requests took, and what failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestsReport {
    /// By what they asked for, from when the head of a request was read to its answer.
    pub latencies: Vec<(&'static str, LatencyReport)>,
    /// Errors that clients got, by kind. A request of several operations may have several.
    pub errors: Vec<(ErrorKind, u64)>,
}
