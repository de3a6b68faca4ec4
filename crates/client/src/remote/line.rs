// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection that many threads use at once: their requests are on their way together, and
//! whoever waits first reads the answers, for the others too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use terrace_core::{Applied, Clock, Error, ErrorKind, Result};
use terrace_wire::{FrameReader, HEAD_BYTES_MAX, Kind, Next};

use super::dial::Timed;
use super::request::{Answer, Message, odd};

/// Longest payload of an answer that is not read into its place.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Longest time for the rest of a frame that began to come while nobody waited.
const HEAR_MAX: Duration = Duration::from_secs(1);

/// A connection that many threads use at once.
pub(super) struct Line {
    stream: Timed,
    /// Held while a request is sent, so that frames are never mixed.
    sending: Mutex<()>,
    state: Mutex<State>,
    /// Whether the server said that it is about to end: requests go elsewhere.
    is_leaving: AtomicBool,
    /// Whether the last request that was waited for got no answer in time.
    is_silent: AtomicBool,
    /// Which life of the session it belongs to.
    pub(super) life: u64,
    clock: Arc<dyn Clock>,
}

struct State {
    /// Whoever reads has it.
    reader: Option<FrameReader<Timed>>,
    waiting: HashMap<u64, Waiting>,
    /// Why it broke.
    broken: Option<String>,
}

/// A request without an answer, or with one that was not fetched.
struct Waiting {
    answer: Answer,
    is_done: bool,
    /// Who waits for it, once somebody does.
    thread: Option<Thread>,
}

impl Line {
    pub(super) fn new(reader: FrameReader<Timed>, life: u64, clock: Arc<dyn Clock>) -> Self {
        let stream = reader.stream().clone();
        let state = State { reader: Some(reader), waiting: HashMap::new(), broken: None };
        Self {
            stream,
            sending: Mutex::default(),
            state: Mutex::new(state),
            is_leaving: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            life,
            clock,
        }
    }

    /// Whether a request may be sent on it.
    pub(super) fn is_usable(&self) -> bool {
        self.hear_idle();
        !self.is_leaving.load(Ordering::Acquire) && self.state().broken.is_none()
    }

    /// Sends a request whose answer nobody waits for.
    pub(super) fn tell(&self, message: &Message<'_>, id: u64, acknowledged: u64) -> Result<()> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        message.send(&mut self.stream.clone(), id, acknowledged)
    }

    /// Whether the last request that was waited for got no answer in time.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Acquire)
    }

    /// Hears what the server said while nobody waited for anything: mostly that it ended. A change
    /// that is sent to a server that has ended may have been made, as far as anybody knows.
    fn hear_idle(&self) {
        let mut state = self.state();
        if !state.waiting.is_empty() {
            return;
        }
        let Some(mut reader) = state.reader.take() else { return };
        drop(state);
        let transport = Arc::clone(&self.stream.transport);
        let deadline_ns = self.clock.now_ns().saturating_add(HEAR_MAX.as_nanos() as u64);
        let mut heard = Ok(());
        while heard.is_ok() && (reader.has_more() || transport.is_readable(Duration::ZERO)) {
            reader.stream().set_deadline(deadline_ns);
            heard = self.read(&mut reader);
        }
        let mut state = self.state();
        state.reader = Some(reader);
        state.pass_on();
        drop(state);
        if let Err(error) = heard {
            self.break_up(&error);
        }
    }

    /// Sends a request; its answer is to be waited for, or given up.
    pub(super) fn begin(&self, message: &Message<'_>, id: u64, acknowledged: u64) -> Result<()> {
        let waiting = Waiting { answer: Answer::default(), is_done: false, thread: None };
        self.state().waiting.insert(id, waiting);
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = message.send(&mut self.stream.clone(), id, acknowledged);
        drop(sending);
        if let Err(error) = &sent {
            self.state().waiting.remove(&id);
            self.break_up(error);
        }
        sent
    }

    /// Waits for the answer of a request until `deadline_ns`.
    ///
    /// # Errors
    ///
    /// `Unreachable` where the connection broke, or the deadline passed.
    pub(super) fn wait(&self, id: u64, deadline_ns: u64) -> Result<Answer> {
        loop {
            let mut state = self.state();
            match state.waiting.get(&id) {
                Some(waiting) if !waiting.is_done => {}
                Some(_) => {
                    let waiting = state.waiting.remove(&id).expect("it was just seen");
                    state.pass_on();
                    return Ok(waiting.answer);
                }
                None => return Err(odd("nobody asked for it")),
            }
            if let Some(reason) = &state.broken {
                let error = lost(reason.clone());
                state.waiting.remove(&id);
                return Err(error);
            }
            let now_ns = self.clock.now_ns();
            if now_ns >= deadline_ns {
                state.waiting.remove(&id);
                state.pass_on();
                self.is_silent.store(true, Ordering::Release);
                return Err(lost("it did not answer in time".into()));
            }
            if let Some(mut reader) = state.reader.take() {
                drop(state);
                reader.stream().set_deadline(deadline_ns);
                let read = self.read(&mut reader);
                let mut state = self.state();
                state.reader = Some(reader);
                if let Err(error) = read {
                    drop(state);
                    self.break_up(&error);
                }
            } else {
                let waiting = state.waiting.get_mut(&id).expect("it was just seen");
                waiting.thread = Some(std::thread::current());
                drop(state);
                std::thread::park_timeout(Duration::from_nanos(deadline_ns - now_ns));
            }
        }
    }

    /// Reads a frame and gives it to whom it belongs.
    fn read(&self, reader: &mut FrameReader<Timed>) -> Result<()> {
        let start = match reader.next(HEAD_BYTES_MAX)? {
            Next::Frame(start) => start,
            // The deadline of who reads; the connection is as good as before.
            Next::Idle => return Ok(()),
            Next::End => return Err(lost("the server closed the connection".into())),
        };
        self.is_silent.store(false, Ordering::Release);
        let mut payload = Vec::new();
        reader.payload_behind(&start.header, &mut payload)?;
        match start.header.kind {
            Kind::Farewell => {
                self.is_leaving.store(true, Ordering::Release);
                return Ok(());
            }
            Kind::Part | Kind::Answer | Kind::Failed => {}
            _ => return Err(odd("a frame of this kind is not expected")),
        }
        if start.header.kind == Kind::Failed && start.header.id == 0 {
            return Err(terrace_wire::Failure::from_head(&start.head)?.into_error());
        }
        let mut state = self.state();
        // An answer that nobody waits for any more is no concern.
        let Some(waiting) = state.waiting.get_mut(&start.header.id) else { return Ok(()) };
        if waiting.answer.payload.is_empty() {
            waiting.answer.payload = payload;
        } else {
            waiting.answer.payload.extend_from_slice(&payload);
        }
        if waiting.answer.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(odd("it is longer than any answer"));
        }
        if start.header.kind != Kind::Part {
            waiting.answer.kind = Some(start.header.kind);
            waiting.answer.head = start.head;
            waiting.is_done = true;
            if let Some(thread) = &waiting.thread {
                thread.unpark();
            }
        }
        Ok(())
    }

    fn break_up(&self, error: &Error) {
        self.stream.transport.shutdown(std::net::Shutdown::Both);
        let mut state = self.state();
        state.broken.get_or_insert_with(|| error.chain());
        for waiting in state.waiting.values() {
            if let Some(thread) = &waiting.thread {
                thread.unpark();
            }
        }
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
    /// Wakes somebody who waits, to read from now on.
    fn pass_on(&self) {
        if self.reader.is_some() {
            let mut sleeping = self.waiting.values().filter(|waiting| !waiting.is_done);
            if let Some(thread) = sleeping.find_map(|waiting| waiting.thread.as_ref()) {
                thread.unpark();
            }
        }
    }
}

/// A request whose answer did not come.
pub(super) fn lost(reason: String) -> Error {
    Error::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "ask the server")
        .because(reason)
}
