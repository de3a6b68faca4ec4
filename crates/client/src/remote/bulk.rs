// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections for large transfers, few small ones and long calls: one request at a time, read into
//! its place.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::{Clock, Error, ErrorKind, Result};
use terrace_transport::{Spin, Transport};
use terrace_wire::{FrameReader, HEAD_BYTES_MAX, Kind, LAST_WORD, Next};

use super::dial::Timed;
use super::line::{lost, refused};
use super::request::{Answer, Filling, Message, odd};

/// Longest payload of an answer that is not read into its place.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// A connection that one thread uses at a time.
pub(super) struct Bulk {
    reader: FrameReader<Timed>,
    life: u64,
    spin: Spin,
}

/// How often the caller of a stream is asked whether to go on.
const TICK: Duration = Duration::from_millis(100);

/// What a server says before a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// How far it is.
    Progress {
        /// So much is done …
        done: u64,
        /// … of this.
        total: u64,
    },
    /// Something that it tells.
    Notice {
        /// JSON.
        json: &'a [u8],
        /// Bytes that belong to it.
        body: &'a [u8],
    },
    /// Nothing for a moment.
    Silence,
}

/// What goes on while an answer comes.
pub(super) struct Receiving<'a> {
    pub(super) clock: &'a dyn Clock,
    /// Longest silence.
    pub(super) patience: Duration,
    /// Takes what comes before the answer; false ends a stream.
    pub(super) hear: &'a mut dyn FnMut(Heard<'_>) -> bool,
}

impl Bulk {
    pub(super) fn new(reader: FrameReader<Timed>, life: u64) -> Self {
        Self { reader, life, spin: Spin::default() }
    }

    /// Sends a request and receives its answer; with `filling` the payload goes there. A stream that
    /// the caller ended has an answer of no kind, and the connection is of no more use.
    pub(super) fn exchange(
        &mut self,
        message: &Message<'_>,
        id: u64,
        acknowledged: u64,
        mut filling: Option<&mut Filling<'_, '_>>,
        receiving: &mut Receiving<'_>,
    ) -> Result<Answer> {
        if let Some(filling) = &mut filling {
            filling.restart();
        }
        let sent = message.send(&mut self.reader.stream().clone(), id, acknowledged);
        if let Err(error) = sent {
            return Err(if self.was_refused(&error) { refused() } else { error });
        }
        let mut answer = Answer::default();
        if !message.is_stream && !self.reader.has_more() {
            self.spin.wait(&*self.reader.stream().transport);
        }
        loop {
            let patience_ns = receiving.patience.as_nanos() as u64;
            let deadline_ns = receiving.clock.now_ns().saturating_add(patience_ns);
            self.reader.stream().set_deadline(deadline_ns);
            if message.is_stream && !self.wait_for_more(deadline_ns, receiving) {
                return Ok(answer);
            }
            let start = match self.reader.next(HEAD_BYTES_MAX)? {
                Next::Frame(start) => start,
                Next::Idle => return Err(lost("it did not answer in time".into())),
                Next::End => return Err(lost("the server closed the connection".into())),
            };
            let header = &start.header;
            let is_data = matches!(header.kind, Kind::Part | Kind::Answer);
            match &mut filling {
                Some(filling) if is_data => {
                    let count = header.payload_bytes as usize;
                    if let Some(space) = filling.next(count) {
                        self.reader.payload(header, space)?;
                    } else {
                        let mut payload = Vec::new();
                        self.reader.payload_behind(header, &mut payload)?;
                        if !filling.copy(&payload) {
                            return Err(odd("it is longer than what was asked for"));
                        }
                    }
                }
                _ => self.reader.payload_behind(header, &mut answer.payload)?,
            }
            if answer.payload.len() > PAYLOAD_BYTES_MAX {
                return Err(odd("it is longer than any answer"));
            }
            match header.kind {
                Kind::Farewell if start.head == LAST_WORD => return Err(refused()),
                Kind::Farewell => {}
                Kind::Failed if header.id == 0 => {
                    return Err(terrace_wire::Failure::from_head(&start.head)?.into_error());
                }
                _ if header.id != id => return Err(odd("it answers another request")),
                Kind::Part => {}
                Kind::Progress => {
                    let (done, total) = read_progress(&start.head)?;
                    if !(receiving.hear)(Heard::Progress { done, total }) && message.is_stream {
                        return Ok(Answer::default());
                    }
                }
                Kind::Notice if message.is_stream => {
                    let payload = std::mem::take(&mut answer.payload);
                    let json_bytes = read_json_bytes(&start.head)?;
                    let split = payload.split_at_checked(json_bytes);
                    let (json, body) = split.ok_or_else(|| odd("it is shorter than it says"))?;
                    if !(receiving.hear)(Heard::Notice { json, body }) {
                        return Ok(Answer::default());
                    }
                }
                kind => {
                    self.spin.came();
                    answer.kind = Some(kind);
                    answer.head = start.head;
                    return Ok(answer);
                }
            }
        }
    }

    /// Whether a server that ended refused to carry out anything more, before it closed a
    /// connection on which nothing can be sent any more.
    fn was_refused(&mut self, error: &Error) -> bool {
        self.reader.stream().end_sending(error);
        while let Ok(Next::Frame(start)) = self.reader.next(HEAD_BYTES_MAX) {
            match start.header.kind {
                Kind::Farewell if start.head == LAST_WORD => return true,
                Kind::Farewell => {}
                _ => break,
            }
        }
        false
    }

    /// Waits for the next frame of a stream; false where its caller ends it meanwhile.
    fn wait_for_more(&self, deadline_ns: u64, receiving: &mut Receiving<'_>) -> bool {
        let transport = &self.reader.stream().transport;
        while !self.reader.has_more() && !transport.is_readable(TICK) {
            if !(receiving.hear)(Heard::Silence) {
                return false;
            }
            if receiving.clock.now_ns() >= deadline_ns {
                break;
            }
        }
        true
    }

    /// Whether the other side has not closed it. Nothing is to be read between requests.
    fn is_alive(&self) -> bool {
        !self.reader.has_more() && !self.reader.stream().transport.is_readable(Duration::ZERO)
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.reader.stream().transport.shutdown(std::net::Shutdown::Both);
    }
}

/// How much of a payload is JSON.
pub(super) fn read_json_bytes(head: &[u8]) -> Result<usize> {
    let bytes = head.try_into().map_err(|_| odd("its head has another length"))?;
    Ok(u32::from_le_bytes(bytes) as usize)
}

fn read_progress(head: &[u8]) -> Result<(u64, u64)> {
    let number = |at: usize| {
        let bytes = head.get(at..at + 8).ok_or_else(|| odd("its progress is too short"))?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    Ok((number(0)?, number(8)?))
}

/// Connections that are lent to one thread at a time.
pub(super) struct Pool {
    connections_max: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Bulk>,
    /// Lent or idle.
    open: usize,
}

impl State {
    /// An idle connection that the other side has not closed; others are forgotten.
    fn pop_alive(&mut self) -> Option<Bulk> {
        while let Some(bulk) = self.idle.pop() {
            if bulk.is_alive() {
                return Some(bulk);
            }
            self.open -= 1;
        }
        None
    }
}

impl Pool {
    pub(super) fn new(connections_max: usize) -> Self {
        let connections_max = connections_max.max(1);
        Self { connections_max, state: Mutex::default(), returned: Condvar::new() }
    }

    /// Lends a connection, an idle one or a new one; waits `patience` where all are lent.
    ///
    /// # Errors
    ///
    /// Those of `open`; `Busy`.
    pub(super) fn lend(
        &self,
        patience: Duration,
        open: impl FnOnce() -> Result<Bulk>,
    ) -> Result<Lent<'_>> {
        let is_full =
            |state: &mut State| state.idle.is_empty() && state.open >= self.connections_max;
        let mut state = self.state();
        if let Some(bulk) = state.pop_alive() {
            return Ok(Lent { pool: self, bulk: Some(bulk) });
        }
        let (mut state, waited) = self
            .returned
            .wait_timeout_while(state, patience, is_full)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && is_full(&mut state) {
            return Err(Error::new(ErrorKind::Busy, "ask the server")
                .because("all connections to it are in use")
                .with("connections_max", self.connections_max));
        }
        // One that just came back is as good as new.
        if let Some(bulk) = state.idle.pop() {
            return Ok(Lent { pool: self, bulk: Some(bulk) });
        }
        state.open += 1;
        drop(state);
        // Gives the place back if there is no connection to be had.
        let mut lent = Lent { pool: self, bulk: None };
        lent.bulk = Some(open()?);
        Ok(lent)
    }

    /// Lends a connection, an idle one or a new one, unless all are lent or none can be opened.
    pub(super) fn lend_at_once(&self, open: impl FnOnce() -> Result<Bulk>) -> Option<Lent<'_>> {
        let mut state = self.state();
        if let Some(bulk) = state.pop_alive() {
            return Some(Lent { pool: self, bulk: Some(bulk) });
        }
        if state.open >= self.connections_max {
            return None;
        }
        state.open += 1;
        drop(state);
        // Gives the place back if there is no connection to be had.
        let mut lent = Lent { pool: self, bulk: None };
        lent.bulk = Some(open().ok()?);
        Some(lent)
    }

    /// Forgets idle connections of former lives.
    pub(super) fn forget(&self, life: u64) {
        let mut state = self.state();
        let before = state.idle.len();
        state.idle.retain(|bulk| bulk.life == life);
        state.open -= before - state.idle.len();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that goes back to its pool, unless it broke.
pub(super) struct Lent<'a> {
    pool: &'a Pool,
    bulk: Option<Bulk>,
}

impl Lent<'_> {
    pub(super) fn life(&self) -> u64 {
        self.bulk().life
    }

    pub(super) fn transport(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.bulk().reader.stream().transport)
    }

    fn bulk(&self) -> &Bulk {
        self.bulk.as_ref().expect("only a broken one is gone, once")
    }

    /// As [`Bulk::exchange`]; a connection that failed is not used again.
    pub(super) fn exchange(
        &mut self,
        message: &Message<'_>,
        id: u64,
        acknowledged: u64,
        filling: Option<&mut Filling<'_, '_>>,
        receiving: &mut Receiving<'_>,
    ) -> Result<Answer> {
        // Gone meanwhile: whatever ends this early, no other request uses it in the middle of an
        // answer.
        let mut bulk = self.bulk.take().expect("only a broken one is gone, once");
        let answer = bulk.exchange(message, id, acknowledged, filling, receiving)?;
        // Without an answer more of the stream would come.
        if answer.kind.is_some() {
            self.bulk = Some(bulk);
        }
        Ok(answer)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        match self.bulk.take() {
            Some(bulk) => state.idle.push(bulk),
            None => state.open -= 1,
        }
        drop(state);
        self.pool.returned.notify_one();
    }
}
