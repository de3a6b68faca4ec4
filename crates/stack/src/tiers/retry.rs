// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pauses between tries of what failed.

use std::time::Duration;

/// Longest pause after failures.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// When what failed is tried again: after a pause that doubles with each failure.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    pub(crate) failures: u32,
    due_ns: u64,
}

impl Retry {
    /// Notes a failure; the pause after the first one is `first`.
    pub(crate) fn fail(&mut self, now_ns: u64, first: Duration) {
        let pause = first.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        self.due_ns = now_ns.saturating_add(pause.min(RETRY_MAX).as_nanos() as u64);
    }

    /// How long it still pauses.
    pub(crate) fn left_ns(&self, now_ns: u64) -> u64 {
        self.due_ns.saturating_sub(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut retry = Retry::default();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            retry.fail(100, Duration::from_secs(1));
            pauses.push(retry.left_ns(100) / 1_000_000_000);
        }
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((pauses[39], retry.left_ns(u64::MAX)), (60, 0));
    }
}
