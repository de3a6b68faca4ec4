// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A part of a trace: a window of time, a sample of its objects.

use terrace_core::{Error, Random, Result};

use crate::request::Request;

/// Which requests of a trace to keep; all of them by default.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    from_ns: u64,
    until_ns: u64,
    /// Objects whose hash is below this are kept.
    below: u128,
    seed: u64,
    /// The time of the first access.
    start_ns: Option<u64>,
}

impl Default for Cut {
    fn default() -> Self {
        Self { from_ns: 0, until_ns: u64::MAX, below: 1 << 64, seed: 0, start_ns: None }
    }
}

impl Cut {
    /// Keeps requests from one time to before another, counted from the first request of the trace.
    pub fn window(self, from_ns: u64, until_ns: u64) -> Self {
        Self { from_ns, until_ns, ..self }
    }

    /// Keeps so large a part of the objects, chosen by a hash of their numbers, with all their
    /// requests. Another seed chooses others.
    ///
    /// # Errors
    ///
    /// `Invalid` for a part that is not between 0 and 1.
    pub fn sample(self, part: f64, seed: u64) -> Result<Self> {
        if !(0.0..=1.0).contains(&part) {
            let reason = "a part between 0 and 1 is expected";
            return Err(Error::invalid("take a sample", reason).with("part", part));
        }
        let below = match part {
            1.0 => 1 << 64,
            // 2^64 as a number that a float holds exactly.
            _ => (part * 18_446_744_073_709_551_616.0) as u128,
        };
        Ok(Self { below, seed, ..self })
    }

    /// Whether a request is kept. They are to come in their order, from the first on.
    pub(crate) fn keeps(&mut self, request: &Request) -> bool {
        self.keeps_at(request.time_ns, request.object, request.operation.is_access())
    }

    /// Whether something is kept that happened to an object: a request or what else a trace tells.
    /// Time is counted from the first access; what was before that is as old.
    pub(crate) fn keeps_at(&mut self, time_ns: u64, object: u64, is_access: bool) -> bool {
        if is_access {
            self.start_ns.get_or_insert(time_ns);
        }
        let since_ns = self.start_ns.map_or(0, |start_ns| time_ns.saturating_sub(start_ns));
        let hash = Random::new(object ^ Random::new(self.seed).next_u64()).next_u64();
        (self.from_ns..self.until_ns).contains(&since_ns) && u128::from(hash) < self.below
    }
}
