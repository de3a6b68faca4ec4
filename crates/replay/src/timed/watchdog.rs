// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives up on a replay whose policy does not come back from a call, without touching those whose
//! policies do: the replay has a thread of its own, and reads no clock.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use terrace_core::units::format_duration;
use terrace_core::{Canceller, Error, ErrorKind, Placed, Placement, Placer, Result};
use terrace_policies::calls::{Call, Calls};

const OPERATION: &str = "replay the trace";

/// Looks in the time that a call may take. Only they count as time: a process that was stopped for
/// long has not looked meanwhile.
const LOOKS: u32 = 16;

/// The calls of the policy of one replay.
pub(super) struct Watch {
    calls: Calls,
    /// What all looks so far stand for.
    now_ns: AtomicU64,
}

impl Watch {
    pub(super) fn new(longest: Duration, canceller: Option<Canceller>) -> Self {
        let calls = Calls::default();
        calls.set_longest(longest);
        calls.set_canceller(canceller);
        Self { calls, now_ns: AtomicU64::new(1) }
    }

    /// Makes a call.
    pub(super) fn over<T>(&self, call: Call, make: impl FnOnce() -> T) -> T {
        self.calls.begin(call, self.now_ns.load(Ordering::Relaxed));
        let answer = make();
        self.calls.end();
        answer
    }

    /// A look, so long after the one before; the call that the policy hangs in.
    fn look(&self, passed: Duration) -> Option<Call> {
        let passed_ns = passed.as_nanos() as u64;
        let now_ns = self.now_ns.fetch_add(passed_ns, Ordering::Relaxed).saturating_add(passed_ns);
        self.calls.overdue(now_ns)
    }

    /// A placer whose calls are watched, where they are code from outside.
    pub(super) fn placer(self: &Arc<Self>, placer: Arc<dyn Placer>) -> Arc<dyn Placer> {
        match placer.is_foreign() {
            true => Arc::new(Watched { placer, watch: Arc::clone(self) }),
            false => placer,
        }
    }
}

struct Watched {
    placer: Arc<dyn Placer>,
    watch: Arc<Watch>,
}

impl Placer for Watched {
    fn place(&self, new: &Placement<'_>) -> Placed {
        self.watch.over(Call::Place, || self.placer.place(new))
    }

    fn is_foreign(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.placer.fmt(f)
    }
}

/// What the thread of a replay tells.
enum News<T> {
    Progress(u64),
    Ended(Result<T, Box<dyn Any + Send>>),
}

/// Runs a replay in a thread of its own until it ends, or its policy hangs. A panic of it goes on here.
///
/// # Errors
///
/// `Io` where the policy hangs, or there is no thread.
pub(super) fn run<T: Send + 'static>(
    watch: &Arc<Watch>,
    replay: impl FnOnce(&mut dyn FnMut(u64)) -> T + Send + 'static,
    progress: &mut dyn FnMut(u64),
) -> Result<T> {
    let (news, heard) = channel();
    thread::Builder::new()
        .name("terrace-replay".into())
        .spawn(move || tell(&news, replay))
        .map_err(|error| Error::from_io(OPERATION, error))?;
    let longest = watch.calls.longest();
    let pause = (longest / LOOKS).max(Duration::from_millis(1));
    loop {
        match heard.recv_timeout(pause) {
            Ok(News::Progress(requests)) => progress(requests),
            Ok(News::Ended(ended)) => {
                return Ok(ended.unwrap_or_else(|panic| resume_unwind(panic)));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(call) = watch.look(pause) {
                    return Err(hangs(watch, call, longest));
                }
            }
            Err(RecvTimeoutError::Disconnected) => unreachable!("the last it tells is its end"),
        }
    }
}

fn tell<T>(news: &Sender<News<T>>, replay: impl FnOnce(&mut dyn FnMut(u64)) -> T) {
    // The receiver is gone where sending fails.
    let mut progress = |requests| _ = news.send(News::Progress(requests));
    let ended = catch_unwind(AssertUnwindSafe(|| replay(&mut progress)));
    _ = news.send(News::Ended(ended));
}

fn hangs(watch: &Watch, call: Call, longest: Duration) -> Error {
    let what_now = match watch.calls.cancel() {
        true => "it was ended",
        false => "what it does there goes on in a thread until this program ends",
    };
    let (call, longest) = (call.word(), format_duration(longest));
    Error::new(ErrorKind::Io, OPERATION)
        .because(format!("the policy did not come back from `{call}` within {longest}; {what_now}"))
}
