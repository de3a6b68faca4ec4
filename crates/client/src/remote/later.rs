// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A request whose answer nobody waits for, and somebody is told of.

use terrace_core::{Applied, Error, Result};

use super::request::Answer;

/// What came of a request that nobody waited for.
pub(super) enum Ended {
    /// Its answer, or that it got none in time.
    Told(Result<Answer>),
    /// The connection broke; whether it was carried out.
    Broke(Applied),
}

/// Is told of it.
pub(super) type LaterDone = Box<dyn FnOnce(Ended) + Send>;

/// A request whose answer nobody waits for.
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
