// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are killed while they wait for an answer.
//!
//! The kernel lets no program go that waits for an answer, not even a killed one, and reports only once that
//! there was a signal. Most signals are no end: a program that handles one still wants the answer. So a program that
//! had one is looked after until it is answered, and let go where it is dying
//! (docs/adr/0032-ended-programs.md).

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fuse::Reply;

/// Between two looks at programs that had a signal.
const LOOK: Duration = Duration::from_millis(100);

/// So many locks stand between requests that come and go.
const STRIPES: usize = 16;

/// `SIGKILL` in the fields of `proc_pid_status(5)`. The kernel has it pending for each thread of a program
/// that a signal ends at once (`complete_signal` in kernel/signal.c).
const KILLED: u64 = 1 << 8;

/// Signals that end nothing by default: `SIGCHLD`, `SIGCONT`, `SIGSTOP`, `SIGTSTP`,
/// `SIGTTIN`, `SIGTTOU`, `SIGURG`, `SIGWINCH`.
const HARMLESS: u64 = 0b11_1111 << 16 | 1 << 22 | 1 << 27;

/// Requests that change nothing, for whose answers programs wait.
///
/// The thread that takes the reply of one out of here sends it: the thread that has the answer, or the one that
/// finds that its program is dying.
#[derive(Clone)]
pub(crate) struct Waiters(Arc<State>);

struct State {
    waiting: [Mutex<HashMap<u64, Waiting>>; STRIPES],
    /// Those whose threads had a signal; `None` while there are none, and no thread looks after them.
    signalled: Mutex<Option<Vec<u64>>>,
    clock: Arc<dyn Clock>,
}

struct Waiting {
    /// The thread that asks.
    thread: u32,
    reply: Reply,
}

/// One of these requests.
pub(crate) struct Waiter {
    state: Arc<State>,
    unique: u64,
}

impl Waiters {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let waiting = std::array::from_fn(|_| Mutex::default());
        Self(Arc::new(State { waiting, signalled: Mutex::default(), clock }))
    }

    /// Keeps the reply that `thread` waits for until there is an answer, or that dies.
    pub(crate) fn add(&self, thread: u32, reply: Reply) -> Waiter {
        let unique = reply.unique();
        let mut waiting = self.0.waiting(unique);
        // A later signal finds it.
        let is_signalled = reply.is_interrupted();
        waiting.insert(unique, Waiting { thread, reply });
        drop(waiting);
        if is_signalled {
            self.0.watch(unique);
        }
        Waiter { state: Arc::clone(&self.0), unique }
    }

    /// The program that waits for a request had a signal.
    pub(crate) fn note_signal(&self, unique: u64) {
        if self.0.thread(unique).is_some() {
            self.0.watch(unique);
        }
    }
}

impl Waiter {
    /// The reply, for the thread that has the answer; `None` where the request was answered without it.
    pub(crate) fn take(self) -> Option<Reply> {
        self.state.take(self.unique)
    }
}

impl State {
    /// Has a request looked after until it is answered.
    fn watch(self: &Arc<Self>, unique: u64) {
        let mut signalled = self.signalled();
        if let Some(signalled) = &mut *signalled {
            signalled.push(unique);
            return;
        }
        let state = Arc::clone(self);
        let look = move || {
            terrace_affinity::roam();
            while state.look() {
                state.clock.sleep(LOOK);
            }
        };
        match thread::Builder::new().name("mount-waiters".into()).spawn(look) {
            Ok(_) => *signalled = Some(vec![unique]),
            Err(error) => tracing::warn!(%error, "a program that is killed waits for its answer"),
        }
    }

    /// Lets dying programs go; false where there are none left to look after.
    fn look(&self) -> bool {
        let mut left = self.signalled().replace(Vec::new()).unwrap_or_default();
        left.retain(|unique| {
            // It was answered where there is none.
            let Some(thread) = self.thread(*unique) else { return false };
            // As long as its reply is here no other thread has this number: it waits for that.
            let is_dying = is_dying(thread);
            if is_dying && let Some(reply) = self.take(*unique) {
                reply.error(Errno::INTR);
            }
            !is_dying
        });
        let mut signalled = self.signalled();
        left.extend(signalled.take().into_iter().flatten());
        let is_anybody_left = !left.is_empty();
        *signalled = is_anybody_left.then_some(left);
        is_anybody_left
    }

    /// The thread that waits for a request that is not answered.
    fn thread(&self, unique: u64) -> Option<u32> {
        self.waiting(unique).get(&unique).map(|waiting| waiting.thread)
    }

    fn take(&self, unique: u64) -> Option<Reply> {
        self.waiting(unique).remove(&unique).map(|waiting| waiting.reply)
    }

    fn waiting(&self, unique: u64) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        // The kernel's numbers are even.
        let stripe = &self.waiting[(unique / 2) as usize % STRIPES];
        // They come and go one by one.
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signalled(&self) -> MutexGuard<'_, Option<Vec<u64>>> {
        // They come one by one, and go all at once.
        self.signalled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a thread will never see an answer. One that cannot be looked at is taken to live.
fn is_dying(thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    will_end(&status).unwrap_or(false)
}

/// Whether a signal that ends it waits for a thread; `None` where its status does not say.
fn will_end(status: &str) -> Option<bool> {
    let word = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let signals = |name| u64::from_str_radix(word(name)?, 16).ok();
    let (own, shared) = (signals("SigPnd:")?, signals("ShdPnd:")?);
    if own & KILLED != 0 {
        return Some(true);
    }
    // One that comes behind another one ends it once it goes on, unless a debugger keeps it back.
    let is_traced = word("TracerPid:")? != "0";
    let survived = signals("SigBlk:")? | signals("SigIgn:")? | signals("SigCgt:")? | HARMLESS;
    Some(!is_traced && (own | shared) & !survived != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `/proc/…/status` of a thread with such signals pending, itself and as one of its program,
    /// and with others that it survives.
    fn status(tracer: u32, own: u64, shared: u64, survived: [u64; 3]) -> String {
        let [blocked, ignored, caught] = survived;
        format!(
            "Name:\tcat\nTracerPid:\t{tracer}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    fn bit(signal: u32) -> u64 {
        1 << (signal - 1)
    }

    #[test]
    fn a_thread_dies_with_a_pending_kill() {
        assert_eq!(will_end(&status(0, bit(9), 0, [0; 3])), Some(true));
        assert_eq!(will_end(&status(7, bit(9) | bit(15), 0, [bit(15); 3])), Some(true));
        assert_eq!(will_end(&status(0, 0, 0, [0; 3])), Some(false));
        assert_eq!(will_end(""), None);
        assert!(!is_dying(std::process::id()));
    }

    #[test]
    fn a_thread_dies_with_a_pending_signal_that_nobody_handles() {
        // SIGINT, SIGQUIT, SIGUSR1, SIGTERM and a real-time signal.
        for signal in [2, 3, 10, 15, 40] {
            let pending = bit(signal);
            assert_eq!(will_end(&status(0, pending, 0, [0; 3])), Some(true), "{signal}");
            assert_eq!(will_end(&status(0, 0, pending, [0; 3])), Some(true), "{signal}");
            assert_eq!(will_end(&status(9, 0, pending, [0; 3])), Some(false), "{signal}");
            for how in 0..3 {
                let mut survived = [0; 3];
                survived[how] = pending;
                assert_eq!(will_end(&status(0, 0, pending, survived)), Some(false), "{signal}");
            }
        }
        for signal in [17, 18, 19, 20, 21, 22, 23, 28] {
            assert_eq!(will_end(&status(0, 0, bit(signal), [0; 3])), Some(false), "{signal}");
        }
    }
}
