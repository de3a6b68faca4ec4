// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection that many threads use at once: their requests are in flight together, and the
//! thread that waits first reads the answers, for the others too.
//!
//! A thread that was just given its answer mostly asks again at once. While such threads are about
//! to ask, requests are gathered, and the last of these threads sends them all: many threads cost
//! one call of the operating system together, a thread that is alone waits for no other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use terrace_core::{Applied, Clock, Error, ErrorKind, Result};
use terrace_transport::Spin;
use terrace_wire::{FrameReader, HEAD_BYTES_MAX, Kind, LAST_WORD, Next, send};

use super::dial::Timed;
use super::later::{Later, LaterDone};
use super::request::{Answer, Message, odd};

/// Longest payload of an answer that is not read into its place.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Longest time for the rest of a frame that began to come while no thread waited.
const HEAR_MAX: Duration = Duration::from_secs(1);

/// A server that sent something so short a time ago is taken to be there still.
const HEARD_MAX: Duration = Duration::from_millis(1);

/// So many requests at a time are answered later; threads wait for the answers to others.
const LATER_MAX: usize = 64;

/// So often a thread sends what others added while it sent, before they have to wait.
const ROUNDS_MAX: usize = 8;

/// Requests are gathered up to this length.
const GATHERED_BYTES_MAX: usize = 64 << 10;

/// A connection that many threads use at once.
pub(super) struct Line {
    stream: Timed,
    /// Locked before `state`.
    gathered: Mutex<Gathered>,
    state: Mutex<State>,
    spin: Spin,
    /// When the server sent something last.
    heard_ns: AtomicU64,
    /// Whether the server announced that it is about to end: requests go elsewhere.
    is_leaving: AtomicBool,
    /// Whether the last request that was waited for long enough got no answer in time.
    is_silent: AtomicBool,
    /// A thread that waited so long in vain takes the server for silent.
    silence_min: Duration,
    /// Which life of the session it belongs to.
    pub(super) life: u64,
    clock: Arc<dyn Clock>,
}

/// Requests that are not sent yet.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    /// Whether a thread is sending, which goes on until nothing is left: frames are never mixed,
    /// and no thread waits to send.
    is_sending: bool,
    /// Memory for what is sent next.
    spare: Vec<u8>,
}

struct State {
    /// The reading thread has it.
    reader: Option<FrameReader<Timed>>,
    waiting: HashMap<u64, Waiting>,
    /// How many of them were woken for their answer and have not fetched it.
    woken: usize,
    /// Asynchronous requests: the reading thread completes them.
    later: HashMap<u64, Later>,
    /// Whether a thread reads, or is about to, until there are none of these.
    is_answering: bool,
    /// That thread, while another one reads.
    answerer: Option<Thread>,
    /// Why it broke.
    broken: Option<Broken>,
}

/// Why a connection is of no more use.
struct Broken {
    reason: String,
    /// Whether what got no answer was carried out.
    applied: Applied,
}

/// A request without an answer, or with one that was not fetched.
struct Waiting {
    answer: Answer,
    is_done: bool,
    is_woken: bool,
    /// The thread that waits for it, if any.
    thread: Option<Thread>,
}

impl Line {
    /// A connection whose requests have `deadline`, unless they share it with others.
    pub(super) fn new(
        reader: FrameReader<Timed>,
        life: u64,
        clock: Arc<dyn Clock>,
        deadline: Duration,
    ) -> Self {
        let stream = reader.stream().clone();
        let state = State {
            reader: Some(reader),
            waiting: HashMap::new(),
            woken: 0,
            later: HashMap::new(),
            is_answering: false,
            answerer: None,
            broken: None,
        };
        Self {
            stream,
            gathered: Mutex::default(),
            state: Mutex::new(state),
            spin: Spin::default(),
            heard_ns: AtomicU64::new(clock.now_ns()),
            is_leaving: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            silence_min: deadline / 2,
            life,
            clock,
        }
    }

    /// Whether a request may be sent on it.
    pub(super) fn is_usable(&self) -> bool {
        self.hear_idle();
        !self.is_leaving.load(Ordering::Acquire) && self.state().broken.is_none()
    }

    /// Sends a request that needs no answer.
    pub(super) fn tell(&self, message: &Message<'_>, id: u64, acknowledged: u64) -> Result<()> {
        let mut gathered = self.gathered();
        message.send(&mut gathered.bytes, id, acknowledged)?;
        self.send(gathered);
        Ok(())
    }

    /// Whether the last request that was waited for long enough got no answer in time.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Acquire)
    }

    /// Reads what the server sent while no thread waited for anything: mostly that it ended. A
    /// change that is sent to a server that has ended may have been made, as far as the client
    /// knows.
    fn hear_idle(&self) {
        let heard_ns = self.heard_ns.load(Ordering::Relaxed);
        if self.clock.now_ns().saturating_sub(heard_ns) < HEARD_MAX.as_nanos() as u64 {
            return;
        }
        let mut state = self.state();
        if !state.waiting.is_empty() || !state.later.is_empty() {
            return;
        }
        let Some(mut reader) = state.reader.take() else { return };
        drop(state);
        let transport = Arc::clone(&self.stream.transport);
        let deadline_ns = self.clock.now_ns().saturating_add(HEAR_MAX.as_nanos() as u64);
        while reader.has_more() || transport.is_readable(Duration::ZERO) {
            reader.stream().set_deadline(deadline_ns);
            let heard = self.read(&mut reader);
            if let Err(error) = heard {
                self.break_up(&error);
                break;
            }
        }
        let mut state = self.state();
        state.reader = Some(reader);
        state.pass_on();
    }

    /// Sends a request; its answer is to be waited for, or given up.
    pub(super) fn begin(&self, message: &Message<'_>, id: u64, acknowledged: u64) -> Result<()> {
        let mut gathered = self.gathered();
        message.send(&mut gathered.bytes, id, acknowledged)?;
        let mut state = self.state();
        let answer = Answer::default();
        let waiting = Waiting { answer, is_done: false, is_woken: false, thread: None };
        state.waiting.insert(id, waiting);
        // The last thread to fetch its answer sends it.
        let may_wait = state.woken > 0 && gathered.bytes.len() < GATHERED_BYTES_MAX;
        drop(state);
        if !may_wait {
            self.send(gathered);
        }
        Ok(())
    }

    /// Sends an asynchronous request; `done` makes its callback, only where it was begun: where
    /// this thread can read from now on, or another one reads until all such requests have an
    /// answer. Whether that is this thread: it must call [`Line::answer_later`] then.
    pub(super) fn begin_later(
        &self,
        message: &Message<'_>,
        (id, acknowledged): (u64, u64),
        deadline_ns: u64,
        done: &mut dyn FnMut() -> LaterDone,
    ) -> Option<bool> {
        let mut gathered = self.gathered();
        let mut state = self.state();
        let may_begin = state.is_answering || state.reader.is_some();
        if !may_begin || state.broken.is_some() || state.later.len() >= LATER_MAX {
            return None;
        }
        message.send(&mut gathered.bytes, id, acknowledged).ok()?;
        state.later.insert(id, Later::new(done(), deadline_ns));
        // Nothing is read until all is sent: a waiting thread may do so meanwhile.
        let is_first = !std::mem::replace(&mut state.is_answering, true);
        let may_wait = state.woken > 0 && gathered.bytes.len() < GATHERED_BYTES_MAX;
        drop(state);
        if !may_wait {
            self.send(gathered);
        }
        Some(is_first)
    }

    /// Reads, and completes requests, until all asynchronous ones have an answer.
    pub(super) fn answer_later(&self) {
        let mut held = None;
        loop {
            let now_ns = self.clock.now_ns();
            let mut state = self.state();
            let late = state.take_late(now_ns);
            if !late.is_empty() {
                drop(state);
                self.give_up(late);
                continue;
            }
            held = held.or_else(|| state.reader.take());
            let Some(deadline_ns) = state.later.values().map(Later::deadline_ns).min() else {
                state.is_answering = false;
                state.answerer = None;
                if held.is_some() {
                    state.reader = held;
                    state.pass_on();
                }
                return;
            };
            state.answerer = held.is_none().then(std::thread::current);
            drop(state);
            match &mut held {
                Some(reader) => self.hear(reader, deadline_ns),
                None => std::thread::park_timeout(Duration::from_nanos(deadline_ns - now_ns)),
            }
        }
    }

    /// Reads what comes next, until `deadline_ns`.
    fn hear(&self, reader: &mut FrameReader<Timed>, deadline_ns: u64) {
        reader.stream().set_deadline(deadline_ns);
        if !reader.has_more() {
            self.spin.wait(&*self.stream.transport);
        }
        if let Err(error) = self.read(reader) {
            self.break_up(&error);
        }
    }

    /// Tells of requests that got no answer in time.
    fn give_up(&self, late: Vec<Later>) {
        for later in late {
            self.is_silent.store(true, Ordering::Release);
            self.stream.silence.note_unanswered(self.clock.now_ns());
            later.fail(lost("it did not answer in time".into()));
        }
    }

    /// Sends what was gathered, and what others add meanwhile, unless another thread does. It is
    /// gone then, also where that failed: the connection is over. The reading thread sees that,
    /// behind what the server had sent before: a server that ended sends what it did not carry out.
    fn send<'a>(&'a self, mut gathered: MutexGuard<'a, Gathered>) {
        if gathered.is_sending {
            return;
        }
        gathered.is_sending = true;
        let mut sent = Ok(());
        let mut rounds = 0;
        while sent.is_ok() && !gathered.bytes.is_empty() {
            let spare = std::mem::take(&mut gathered.spare);
            let mut bytes = std::mem::replace(&mut gathered.bytes, spare);
            rounds += 1;
            if rounds < ROUNDS_MAX {
                drop(gathered);
                sent = send(&mut self.stream.clone(), &bytes, &[]);
                gathered = self.gathered();
            } else {
                // Others wait, because this one has something else to do.
                sent = send(&mut self.stream.clone(), &bytes, &[]);
            }
            bytes.clear();
            bytes.shrink_to(2 * GATHERED_BYTES_MAX);
            gathered.spare = bytes;
        }
        gathered.is_sending = false;
        gathered.bytes.clear();
        if let Err(error) = sent {
            self.is_leaving.store(true, Ordering::Release);
            self.stream.end_sending(&error);
        }
    }

    /// Waits for the answer of a request until `deadline_ns`.
    ///
    /// # Errors
    ///
    /// `Unreachable` where the connection broke, or the deadline passed.
    pub(super) fn wait(&self, id: u64, deadline_ns: u64) -> Result<Answer> {
        let mut begun_ns = None;
        loop {
            let mut state = self.state();
            match state.waiting.get(&id) {
                Some(waiting) if !waiting.is_done => {}
                Some(_) => {
                    let waiting = state.waiting.remove(&id).expect("it was just seen");
                    state.woken -= usize::from(waiting.is_woken);
                    let is_last = waiting.is_woken && state.woken == 0;
                    state.pass_on();
                    drop(state);
                    if is_last {
                        self.send(self.gathered());
                    }
                    return Ok(waiting.answer);
                }
                None => return Err(odd("no request asked for it")),
            }
            if let Some(Broken { reason, applied }) = &state.broken {
                let error = unanswered(reason.clone(), *applied);
                state.waiting.remove(&id);
                return Err(error);
            }
            let now_ns = self.clock.now_ns();
            let waited_ns = now_ns.saturating_sub(*begun_ns.get_or_insert(now_ns));
            if now_ns >= deadline_ns {
                state.waiting.remove(&id);
                state.pass_on();
                // Of a deadline that it shares with others, a request may have next to nothing.
                if Duration::from_nanos(waited_ns) >= self.silence_min {
                    self.is_silent.store(true, Ordering::Release);
                }
                return Err(lost("it did not answer in time".into()));
            }
            if let Some(mut reader) = state.reader.take() {
                drop(state);
                self.hear(&mut reader, deadline_ns);
                self.state().reader = Some(reader);
            } else {
                let waiting = state.waiting.get_mut(&id).expect("it was just seen");
                waiting.thread = Some(std::thread::current());
                drop(state);
                std::thread::park_timeout(Duration::from_nanos(deadline_ns - now_ns));
            }
        }
    }

    /// Reads a frame, and all that came with it, and gives each to its request.
    fn read(&self, reader: &mut FrameReader<Timed>) -> Result<()> {
        let mut woken = Vec::new();
        let mut read = self.read_frame(reader, &mut woken);
        while read.is_ok() && reader.has_whole() {
            read = self.read_frame(reader, &mut woken);
        }
        // All at once: those that wake up first would only be in the way of the others.
        woken.iter().for_each(Thread::unpark);
        read
    }

    /// Reads a frame. Adds the threads that waited for it to `woken`.
    fn read_frame(&self, reader: &mut FrameReader<Timed>, woken: &mut Vec<Thread>) -> Result<()> {
        let start = match reader.next(HEAD_BYTES_MAX)? {
            Next::Frame(start) => start,
            // The deadline of the reading thread; the connection is as good as before.
            Next::Idle => return Ok(()),
            Next::End => return Err(lost("the server closed the connection".into())),
        };
        self.spin.came();
        self.is_silent.store(false, Ordering::Release);
        self.heard_ns.store(self.clock.now_ns(), Ordering::Relaxed);
        let mut payload = Vec::new();
        reader.payload_behind(&start.header, &mut payload)?;
        match start.header.kind {
            Kind::Farewell => {
                self.is_leaving.store(true, Ordering::Release);
                return if start.head == LAST_WORD { Err(refused()) } else { Ok(()) };
            }
            Kind::Part | Kind::Answer | Kind::Failed => {}
            _ => return Err(odd("a frame of this kind is not expected")),
        }
        if start.header.kind == Kind::Failed && start.header.id == 0 {
            return Err(terrace_wire::Failure::from_head(&start.head)?.into_error());
        }
        let id = start.header.id;
        let is_whole = start.header.kind != Kind::Part;
        let mut state = self.state();
        let State { waiting, later, .. } = &mut *state;
        let answer = match (waiting.get_mut(&id), later.get_mut(&id)) {
            // It came before: a change that got no answer in time was asked for again.
            (Some(waiting), _) if waiting.is_done => return Ok(()),
            (Some(waiting), _) => &mut waiting.answer,
            (None, Some(later)) => &mut later.answer,
            // An answer without a waiting thread is no concern.
            (None, None) => return Ok(()),
        };
        if answer.payload.is_empty() {
            answer.payload = payload;
        } else {
            answer.payload.extend_from_slice(&payload);
        }
        if answer.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(odd("it is longer than any answer"));
        }
        if is_whole {
            answer.kind = Some(start.header.kind);
            answer.head = start.head;
        }
        if let Some(waiting) = waiting.get_mut(&id).filter(|_| is_whole) {
            waiting.is_done = true;
            if let Some(thread) = waiting.thread.take() {
                waiting.is_woken = true;
                state.woken += 1;
                woken.push(thread);
            }
        } else if is_whole && let Some(ended) = later.remove(&id) {
            // Nothing is left to it.
            woken.extend(state.answerer.clone().filter(|_| state.later.is_empty()));
            drop(state);
            ended.end();
        }
        Ok(())
    }

    fn break_up(&self, error: &Error) {
        self.stream.transport.shutdown(std::net::Shutdown::Both);
        let mut state = self.state();
        let applied = if is_refused(error) { Applied::No } else { Applied::Unknown };
        let applied =
            state.broken.get_or_insert_with(|| Broken { reason: error.chain(), applied }).applied;
        for waiting in state.waiting.values() {
            if let Some(thread) = &waiting.thread {
                thread.unpark();
            }
        }
        if let Some(answerer) = &state.answerer {
            answerer.unpark();
        }
        let late = state.take_late(self.clock.now_ns());
        let later = std::mem::take(&mut state.later);
        drop(state);
        self.give_up(late);
        later.into_values().for_each(|later| later.leave(applied));
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stream.transport.shutdown(std::net::Shutdown::Both);
    }
}

impl State {
    /// Asynchronous requests without an answer whose deadline is over.
    fn take_late(&mut self, now_ns: u64) -> Vec<Later> {
        let is_late = |_: &u64, later: &mut Later| later.deadline_ns() <= now_ns;
        self.later.extract_if(is_late).map(|(_, later)| later).collect()
    }

    /// Wakes a thread that reads from now on: the one that does so for many before one that waits
    /// for its own answer.
    fn pass_on(&self) {
        if self.reader.is_none() {
            return;
        }
        if let Some(answerer) = &self.answerer {
            answerer.unpark();
        } else {
            let mut sleeping = self.waiting.values().filter(|waiting| !waiting.is_done);
            if let Some(thread) = sleeping.find_map(|waiting| waiting.thread.as_ref()) {
                thread.unpark();
            }
        }
    }
}

/// A request whose answer did not come.
pub(super) fn lost(reason: String) -> Error {
    unanswered(reason, Applied::Unknown)
}

fn unanswered(reason: String, applied: Applied) -> Error {
    Error::new(ErrorKind::Unreachable { applied }, "ask the server").because(reason)
}

/// The error of a request that the server refused before it ended.
pub(super) fn refused() -> Error {
    unanswered("it ended before it carried this out".into(), Applied::No)
}

/// Whether the server refused to carry a request out.
pub(super) fn is_refused(error: &Error) -> bool {
    error.kind() == ErrorKind::Unreachable { applied: Applied::No }
}

#[cfg(test)]
mod tests {
    use terrace_core::Semantics;
    use terrace_testkit::ManualClock;
    use terrace_transport::Socket;
    use terrace_wire::{Operation, Outcome, small_frame, write_outcomes};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(80);

    /// A line, and the end of a server that says nothing.
    fn line(clock: &Arc<ManualClock>) -> (Line, Socket) {
        let (socket, server) = Socket::pair().expect("a pair");
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let timed = Timed::new(Arc::new(socket), Arc::clone(&clock), DEADLINE, Arc::default());
        let timed = timed.expect("a timeout");
        (Line::new(FrameReader::new(timed), 1, clock, DEADLINE), server)
    }

    /// Waits for an answer so long, in vain.
    fn wait(line: &Line, clock: &ManualClock, id: u64, duration: Duration) {
        let operations = [Operation::Namespaces { cursor: Vec::new() }];
        let message = Message::request(&operations, &[], &Semantics::default());
        let deadline_ns = clock.now_ns() + duration.as_nanos() as u64;
        line.begin(&message, id, id).expect("it is sent");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| line.wait(id, deadline_ns));
            // Once it reads: no other thread takes the reader.
            while line.state().reader.is_some() {
                std::thread::yield_now();
            }
            clock.advance(duration);
            waiting.join().expect("no panic").expect_err("nobody answers");
        });
    }

    #[test]
    fn a_server_is_silent_after_a_good_part_of_the_deadline_and_until_it_speaks() {
        let clock = Arc::new(ManualClock::new());
        let (line, server) = line(&clock);
        wait(&line, &clock, 1, DEADLINE / 8);
        assert!(!line.is_silent(), "that was too short to tell");
        wait(&line, &clock, 2, DEADLINE);
        assert!(line.is_silent());
        wait(&line, &clock, 3, DEADLINE / 8);
        assert!(line.is_silent(), "it said nothing since");
        let answer = small_frame(Kind::Answer, 3, &write_outcomes(&[Outcome::Done]));
        terrace_wire::send(&mut terrace_transport::Outgoing(&server), &answer, &[]).expect("sent");
        assert!(line.is_usable(), "it is heard");
        assert!(!line.is_silent());
    }
}
