// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers creates: asks the policy's placer, and does without one that fails or does not come back.
//!
//! A placer of this program is called in the thread that creates. One from outside is called by a
//! thread that does nothing else, so that a create waits for it only for so long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use terrace_core::units::format_duration;
use terrace_core::{Clock, Hint, Key, Placed, Placement, Placer, panic_text};

/// Longest that a create waits for a placer from outside.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a call of one may take on average: a hundred times what is asked of it.
const CALL_TIME: Duration = Duration::from_micros(100);

/// By how much its calls together may exceed that. Less than `PATIENCE`, so that the first create that
/// gives up also ends it for all others.
const ARREARS_MAX: Duration = Duration::from_millis(90);

/// How the placers of one policy have behaved.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Why none of them is asked any more.
    failure: OnceLock<String>,
    /// What their calls took beyond what they may.
    arrears_ns: AtomicU64,
}

impl Standing {
    /// What they did, for the policy's own thread, which is where the policy is replaced.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// The first reason stays.
    fn fail(&self, why: String) {
        let _ = self.failure.set(why);
    }

    /// What the calls are behind, with one that has taken so long.
    fn arrears_ns(&self, took_ns: u64) -> u64 {
        self.arrears_ns.load(Ordering::Relaxed) + took_ns
    }

    /// Counts a call that came back.
    fn count(&self, took_ns: u64) {
        let left_ns = self.arrears_ns(took_ns).saturating_sub(CALL_TIME.as_nanos() as u64);
        self.arrears_ns.store(left_ns, Ordering::Relaxed);
        if left_ns > ARREARS_MAX.as_nanos() as u64 {
            let most = format_duration(CALL_TIME);
            self.fail(format!("its placer takes longer than {most} a call"));
        }
    }
}

/// What a policy published last.
#[derive(Debug)]
pub(crate) struct Published {
    placer: Arc<dyn Placer>,
    standing: Arc<Standing>,
}

impl Published {
    pub(crate) fn new(placer: Arc<dyn Placer>, standing: &Arc<Standing>) -> Self {
        Self { placer, standing: Arc::clone(standing) }
    }

    /// Whether none of its placers is asked any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.standing.failure().is_some()
    }

    fn call(&self, new: &Placement<'_>) -> Option<Placed> {
        catch_unwind(AssertUnwindSafe(|| self.placer.place(new)))
            .inspect_err(|panic| {
                self.standing.fail(format!("its placer panicked: {}", panic_text(&**panic)));
            })
            .ok()
    }
}

/// The thread that calls placers from outside; it starts with the first.
#[derive(Default)]
pub(crate) struct Attendant {
    line: Mutex<Option<Line>>,
}

/// The way to a thread; it ends when all of them are dropped.
#[derive(Clone)]
struct Line {
    questions: Sender<Question>,
    /// The call that runs now.
    call: Arc<Mutex<Option<Call>>>,
}

struct Call {
    began_ns: u64,
    standing: Arc<Standing>,
}

/// A placement that owns what it is about: the caller may have gone on when it is looked at.
struct Question {
    published: Arc<Published>,
    key: Key,
    hint: Hint,
    size_hint_bytes: Option<u64>,
    segment: u32,
    start_bytes: u64,
    answer: SyncSender<Option<Placed>>,
}

impl Attendant {
    /// Asks the placer that was published last. `None` where it fails or takes too long.
    pub(crate) fn place(
        &self,
        clock: &Arc<dyn Clock>,
        published: &Arc<Published>,
        new: &Placement<'_>,
    ) -> Option<Placed> {
        match published.placer.is_foreign() {
            true => self.ask(clock, Arc::clone(published), new),
            false => published.call(new),
        }
    }

    /// Hands a placement over and waits for the answer. `None` where none came in time.
    fn ask(
        &self,
        clock: &Arc<dyn Clock>,
        published: Arc<Published>,
        new: &Placement<'_>,
    ) -> Option<Placed> {
        let line = self.line(clock)?;
        let (answer, answered) = sync_channel(1);
        let question = Question {
            published,
            key: new.key.clone(),
            hint: new.hint,
            size_hint_bytes: new.size_hint_bytes,
            segment: new.segment,
            start_bytes: new.start_bytes,
            answer,
        };
        line.questions.send(question).ok()?;
        answered.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            self.look_at(&line, clock.now_ns());
            None
        })
    }

    /// The thread's line. `None` where the machine has no thread left.
    fn line(&self, clock: &Arc<dyn Clock>) -> Option<Line> {
        let mut held = crate::lock(&self.line);
        if held.is_none() {
            let (questions, asked) = channel();
            let call = Arc::default();
            let (clock, calls) = (Arc::clone(clock), Arc::clone(&call));
            std::thread::Builder::new()
                .name("terrace-placer".into())
                .spawn(move || {
                    terrace_affinity::roam();
                    attend(&asked, &calls, &*clock);
                })
                .ok()?;
            *held = Some(Line { questions, call });
        }
        held.clone()
    }

    /// Gives a call up that does not come back, and leaves its thread to it. That keeps the code it is in
    /// loaded. Where the machine was merely too busy to make the call, the policy is not to blame.
    fn look_at(&self, line: &Line, now_ns: u64) {
        let held = crate::lock(&line.call);
        let Some(call) = &*held else { return };
        let arrears_ns = call.standing.arrears_ns(now_ns.saturating_sub(call.began_ns));
        if arrears_ns <= ARREARS_MAX.as_nanos() as u64 {
            return;
        }
        let longest = format_duration(PATIENCE);
        call.standing.fail(format!("its placer did not answer within {longest}"));
        crate::lock(&self.line).take_if(|now| Arc::ptr_eq(&now.call, &line.call));
    }
}

/// The thread's life.
fn attend(asked: &Receiver<Question>, calls: &Mutex<Option<Call>>, clock: &dyn Clock) {
    for question in asked {
        let published = &question.published;
        if published.standing.failure().is_some() {
            continue;
        }
        let (began_ns, standing) = (clock.now_ns(), Arc::clone(&published.standing));
        *crate::lock(calls) = Some(Call { began_ns, standing });
        let placed = published.call(&Placement {
            key: &question.key,
            hint: question.hint,
            size_hint_bytes: question.size_hint_bytes,
            segment: question.segment,
            start_bytes: question.start_bytes,
        });
        *crate::lock(calls) = None;
        published.standing.count(clock.now_ns().saturating_sub(began_ns));
        // The caller may have gone on without.
        let _ = question.answer.send(placed);
    }
}
