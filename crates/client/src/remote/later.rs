// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An asynchronous request: no caller waits for its answer, a callback gets it.

use terrace_core::{Applied, Error, Result};

use super::request::Answer;

/// The outcome of an asynchronous request.
pub(super) enum Ended {
    /// Its answer, or that it got none in time.
    Told(Result<Answer>),
    /// The connection broke; whether it was carried out.
    Broke(Applied),
}

/// Completes it.
pub(super) type LaterDone = Box<dyn FnOnce(Ended) + Send>;

/// An asynchronous request.
pub(super) struct Later {
    /// As far as it came.
    pub(super) answer: Answer,
    done: LaterDone,
    deadline_ns: u64,
}

impl Later {
    pub(super) fn new(done: LaterDone, deadline_ns: u64) -> Self {
        Self { answer: Answer::default(), done, deadline_ns }
    }

    pub(super) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Its answer is whole.
    pub(super) fn end(self) {
        (self.done)(Ended::Told(Ok(self.answer)));
    }

    /// There will be none.
    pub(super) fn fail(self, error: Error) {
        (self.done)(Ended::Told(Err(error)));
    }

    /// The connection broke: it may be asked for on another one.
    pub(super) fn leave(self, applied: Applied) {
        (self.done)(Ended::Broke(applied));
    }
}
