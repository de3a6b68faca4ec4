// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Between callers and the policy's thread: commands, answers, and which of them has its turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{Canceller, PostEvents, Result};
use terrace_policies::calls::{Call, Calls};
use terrace_trace::Writer;

use crate::Tactics;
use crate::report::PolicyReport;
use crate::shadow::Shadow;

/// What the policy's thread is asked to do between two batches.
pub(crate) enum Command {
    Run,
    Policy(Box<Tactics>),
    Parameter(String, String),
    DryRun(bool),
    /// Let this one decide in the shadow, or none.
    Shadow(Option<Box<Tactics>>),
    Calls(Option<u64>, Option<Duration>),
    Message(String, Vec<u8>),
    /// Record with this, and with decisions begin with another instance of the policy.
    Record(Box<Writer>, Option<Box<Tactics>>),
    Stop,
}

/// What a command returns: a message's reply, else nothing.
pub(crate) type Reply = Vec<u8>;

/// Where a caller waits for its answer.
#[derive(Clone, Default)]
pub(crate) struct Answer {
    inner: Arc<(Mutex<Option<Result<Reply>>>, Condvar)>,
}

impl Answer {
    pub(crate) fn give(&self, reply: Result<Reply>) {
        *crate::lock(&self.inner.0) = Some(reply);
        self.inner.1.notify_all();
    }

    /// The answer; `None` when it does not come in time.
    pub(crate) fn wait(&self, longest: Duration) -> Option<Result<Reply>> {
        let held = crate::lock(&self.inner.0);
        let (mut held, _) = self
            .inner
            .1
            .wait_timeout_while(held, longest, |reply| reply.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        held.take()
    }
}

/// Shared by callers, the policy's thread and the watchdog.
#[derive(Default)]
pub(crate) struct Desk {
    commands: Mutex<Vec<(Command, Answer)>>,
    report: Mutex<Option<PolicyReport>>,
    /// Number of the thread that may act; 0 when none may.
    turn: AtomicU64,
    last_turn: AtomicU64,
    /// Of the policy that runs.
    calls: Calls,
    /// Beside whichever policy decides: it stays when that is replaced.
    shadow: Mutex<Option<Shadow>>,
}

impl Desk {
    pub(crate) fn ask(&self, command: Command) -> Answer {
        let answer = Answer::default();
        crate::lock(&self.commands).push((command, answer.clone()));
        answer
    }

    pub(crate) fn take_commands(&self) -> Vec<(Command, Answer)> {
        std::mem::take(&mut *crate::lock(&self.commands))
    }

    pub(crate) fn has_commands(&self) -> bool {
        !crate::lock(&self.commands).is_empty()
    }

    pub(crate) fn begin_turn(&self, call_time_max: Duration) -> u64 {
        self.calls.set_longest(call_time_max);
        self.calls.end();
        let turn = self.last_turn.fetch_add(1, Ordering::AcqRel) + 1;
        self.turn.store(turn, Ordering::Release);
        turn
    }

    pub(crate) fn is_turn(&self, turn: u64) -> bool {
        self.turn.load(Ordering::Acquire) == turn
    }

    pub(crate) fn end_turn(&self, turn: u64) {
        let _ = self.turn.compare_exchange(turn, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// No thread's turn: a thread that still runs touches nothing when it returns.
    pub(crate) fn abandon(&self) {
        self.turn.store(0, Ordering::Release);
    }

    /// Of the policy whose turn it is from here on.
    pub(crate) fn set_canceller(&self, canceller: Option<Canceller>) {
        self.calls.set_canceller(canceller);
    }

    /// Ends the call that a policy hangs in, where that can be done.
    pub(crate) fn cancel(&self) {
        self.calls.cancel();
    }

    pub(crate) fn call_begins(&self, call: Call, now_ns: u64) {
        self.calls.begin(call, now_ns);
    }

    pub(crate) fn call_ends(&self, turn: u64) {
        if self.is_turn(turn) {
            self.calls.end();
        }
    }

    pub(crate) fn set_call_time_max(&self, longest: Duration) {
        self.calls.set_longest(longest);
    }

    pub(crate) fn call_time_max(&self) -> Duration {
        self.calls.longest()
    }

    /// The call that runs now, where it has taken longer than it may.
    pub(crate) fn overdue(&self, now_ns: u64) -> Option<Call> {
        let overdue = self.calls.overdue(now_ns)?;
        (self.turn.load(Ordering::Acquire) > 0).then_some(overdue)
    }

    /// Does something with the shadow, where there is one.
    pub(crate) fn with_shadow<T>(&self, act: impl FnOnce(&Shadow) -> T) -> Option<T> {
        crate::lock(&self.shadow).as_ref().map(act)
    }

    pub(crate) fn set_shadow(&self, shadow: Option<Shadow>) {
        *crate::lock(&self.shadow) = shadow;
    }

    pub(crate) fn set_report(&self, report: PolicyReport) {
        *crate::lock(&self.report) = Some(report);
    }

    /// Looks at the latest report.
    pub(crate) fn report<T>(&self, look: impl FnOnce(&PolicyReport) -> T) -> T {
        look(crate::lock(&self.report).get_or_insert_with(empty_report))
    }
}

fn empty_report() -> PolicyReport {
    PolicyReport {
        name: "none".into(),
        replaced: None,
        is_dry_run: false,
        after_events: 0,
        every_ns: 0,
        post_events: PostEvents::After.word().into(),
        parameters: Vec::new(),
        rounds: 0,
        events: 0,
        coalesced_events: 0,
        actions: 0,
        outcomes: Vec::new(),
        decisions: Vec::new(),
    }
}
