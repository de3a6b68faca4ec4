// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders that come and answers that go, in a process of a team.

use std::io::{BufRead, StdinLock, Write, stdin, stdout};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use terrace_core::{Error, ErrorKind, Result};

/// Carries out what comes on standard input, until there are no more orders. A failure is reported,
/// too, and ends it.
pub fn obey(carry_out: impl FnOnce(&mut Conversation) -> Result<()>) {
    let mut conversation = Conversation { input: stdin().lock() };
    // The one that gives the orders may be killed while a block runs.
    let told = set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Error::from_io("begin a process of the benchmark", error.into()));
    if let Err(error) = told.and_then(|()| carry_out(&mut conversation)) {
        // The reader may have ended.
        let _ = conversation.say(&Said::<()>::Failed { failed: Failed::of(&error) });
    }
}

/// What a process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Said<A> {
    /// The process ends.
    Failed { failed: Failed },
    /// It did what it was ordered.
    Answer(A),
}

/// Why a process ends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failed {
    kind: String,
    message: String,
}

impl Failed {
    fn of(error: &Error) -> Self {
        Self { kind: error.kind().word().into(), message: error.chain() }
    }

    pub(super) fn into_error(self) -> Error {
        let kind = ErrorKind::from_word(&self.kind).unwrap_or(ErrorKind::Io);
        Error::relayed(kind, &self.message)
    }
}

/// With the process that gives the orders.
pub struct Conversation {
    input: StdinLock<'static>,
}

impl Conversation {
    /// The next order; none where there will be no more.
    pub fn hear<O: DeserializeOwned>(&mut self) -> Result<Option<O>> {
        let mut line = String::new();
        let count = self
            .input
            .read_line(&mut line)
            .map_err(|error| Error::from_io("read an order of the benchmark", error))?;
        if count == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(|error| odd("no order").caused_by(error))
    }

    /// Waits for an order of this kind.
    pub fn expect<O: DeserializeOwned>(&mut self, order: &O) -> Result<()> {
        let heard: O = self.hear()?.ok_or_else(gone)?;
        let is_it = std::mem::discriminant(&heard) == std::mem::discriminant(order);
        if is_it { Ok(()) } else { Err(odd("another order is due")) }
    }

    /// Answers.
    pub fn say(&mut self, answer: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(answer).map_err(|error| odd("JSON").caused_by(error))?;
        let mut output = stdout().lock();
        writeln!(output, "{line}")
            .and_then(|()| output.flush())
            .map_err(|error| Error::from_io("answer an order of the benchmark", error))
    }
}

/// An order or an answer that is not expected.
pub fn odd(what: &str) -> Error {
    Error::new(ErrorKind::Io, "run the benchmark")
        .because("its processes do not understand each other")
        .with("odd", what)
}

/// No order where one is due.
pub fn gone() -> Error {
    Error::new(ErrorKind::Io, "run the benchmark")
        .because("the process that gives the orders has ended")
}
