// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A request whose answer nobody waits for, and somebody is told of.

use terrace_core::{Error, Result};

use super::request::Answer;

/// Is told of the answer; of nothing where the connection broke.
pub(super) type LaterDone = Box<dyn FnOnce(Option<Result<Answer>>) + Send>;

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
        (self.done)(Some(Ok(self.answer)));
    }

    /// There will be none.
    pub(super) fn fail(self, error: Error) {
        (self.done)(Some(Err(error)));
    }

    /// The connection broke: it may be asked for on another one.
    pub(super) fn leave(self) {
        (self.done)(None);
    }
}
