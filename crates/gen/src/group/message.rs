// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What coordinator and workers say to each other, one JSON object a line.

use serde::{Deserialize, Serialize};

use crate::arguments::Pattern;
use crate::phase::Outcome;

/// Steps of a phase, each of which all processes finish before one begins the next.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    Measure,
    Check,
    Clean,
    End,
}

/// To a worker.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToWorker {
    /// The first line of all: what to sign.
    Hello { nonce: String },
    /// It is known and has a place among so many processes; the proof is the coordinator's.
    Welcome { processes: u64, proof: String },
    /// It has none.
    Refused { reason: String },
    /// All are through the steps before.
    Begin { step: Step },
    /// Another one failed.
    Abort { reason: String },
}

/// From a worker, or from the parent that connects for it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToCoordinator {
    /// Shows that it knows the secret, and what it would do.
    Join { rank: u64, nonce: String, proof: String, phase: String, pattern: Pattern },
    /// Which process it is, from the process itself.
    Present(Identity),
    /// It waits for that step.
    Ready { step: Step },
    /// The step `measure` is done.
    Measured { outcome: Outcome },
    /// It ends.
    Failed { message: String },
}

/// A process among those of all hosts.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Identity {
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// Processes with the same one have the same CLOCK_MONOTONIC_RAW.
    pub(crate) boot: String,
}
