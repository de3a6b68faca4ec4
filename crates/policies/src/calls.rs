// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which call of a policy is under way, and since when: for a watchdog of calls that may hang.
//!
//! The caller of the policy marks when a call begins and ends; another thread asks whether it is
//! overdue. The clock is the caller's: a store has its own, a replay the ticks of its watchdog.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Canceller;

/// The calls of one policy after another.
#[derive(Default)]
pub struct Calls {
    /// When the call that runs now began; 0 when none runs.
    began_ns: AtomicU64,
    /// Which one that is, by its place in [`Call::ALL`].
    call: AtomicU8,
    longest_ns: AtomicU64,
    /// Of the policy that runs.
    canceller: Mutex<Option<Canceller>>,
}

/// What a policy is asked, by the functions of [`terrace_core::Policy`] and its placer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// To take note of events.
    Observe,
    /// For actions.
    Plan,
    /// Where something new is to be.
    Place,
    /// For its placer.
    Publish,
    /// For its parameters.
    Parameters,
    /// To change one of them.
    SetParameter,
    /// To answer a message.
    Message,
    /// For its state.
    Save,
    /// To take over a state.
    Restore,
}

impl Call {
    const ALL: [Call; 9] = [
        Call::Observe,
        Call::Plan,
        Call::Place,
        Call::Publish,
        Call::Parameters,
        Call::SetParameter,
        Call::Message,
        Call::Save,
        Call::Restore,
    ];

    /// The name that it has in `terrace_policy.h` and in Python.
    pub fn word(self) -> &'static str {
        match self {
            Call::Observe => "observe",
            Call::Plan => "plan",
            Call::Place => "place",
            Call::Publish => "publish",
            Call::Parameters => "parameters",
            Call::SetParameter => "set_parameter",
            Call::Message => "message",
            Call::Save => "save",
            Call::Restore => "restore",
        }
    }
}

impl Calls {
    /// Sets what one call may take.
    pub fn set_longest(&self, longest: Duration) {
        let longest_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        self.longest_ns.store(longest_ns, Ordering::Relaxed);
    }

    /// What one call may take.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    /// Sets how a call is ended from another thread, where that can be done.
    pub fn set_canceller(&self, canceller: Option<Canceller>) {
        *self.canceller() = canceller;
    }

    /// Notes that a call begins.
    pub fn begin(&self, call: Call, now_ns: u64) {
        self.call.store(call as u8, Ordering::Relaxed);
        self.began_ns.store(now_ns.max(1), Ordering::Release);
    }

    /// Notes that it came back, or that it is of no interest any more.
    pub fn end(&self) {
        self.began_ns.store(0, Ordering::Release);
    }

    /// The call that runs now, where it has taken longer than it may.
    pub fn overdue(&self, now_ns: u64) -> Option<Call> {
        let began_ns = self.began_ns.load(Ordering::Acquire);
        let call = Call::ALL[usize::from(self.call.load(Ordering::Relaxed))];
        let longest_ns = self.longest_ns.load(Ordering::Relaxed);
        (began_ns > 0 && now_ns.saturating_sub(began_ns) > longest_ns).then_some(call)
    }

    /// Ends the call that a policy hangs in; whether that can be done.
    pub fn cancel(&self) -> bool {
        let canceller = self.canceller().take();
        if let Some(cancel) = &canceller {
            cancel();
        }
        canceller.is_some()
    }

    fn canceller(&self) -> MutexGuard<'_, Option<Canceller>> {
        // It is replaced in one step, so it is sound even after a panic elsewhere.
        self.canceller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_overdue_once_it_takes_longer_than_it_may_and_not_when_it_is_over() {
        let calls = Calls::default();
        calls.set_longest(Duration::from_nanos(100));
        for call in Call::ALL {
            calls.begin(call, 0);
            assert_eq!((calls.overdue(101), calls.overdue(102)), (None, Some(call)), "{call:?}");
            calls.end();
            assert_eq!(calls.overdue(u64::MAX), None);
        }
    }
}
