// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection: greets a peer and serves its requests, on a thread of its own.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use terrace_core::{Access, Atomicity, Buffer, Error, ErrorKind, Persistency, Result};
use terrace_transport::{Incoming, Spin, Transport, random_bytes};
use terrace_wire::{
    Challenge, Effect, Failure, FrameReader, GREETING_BYTES_MAX, HEAD_BYTES_MAX, HEADER_BYTES,
    Header, Hello, KEPT_BYTES_MAX, Kind, Leased, NONCE_BYTES, Next, OnHandle, Operation, Outcome,
    PAYLOAD_BYTES_MAX, PIECE_BYTES_MAX, PROOF_BYTES, Proof, Side, Start, Transcript, VERSION,
    VERSION_MIN, Welcome, read_operations, read_payload_bytes, unpack_semantics, write_outcomes,
};

use crate::buffers::Room;
use crate::counts::RequestKind;
use crate::pace::Pace;
use crate::pieces::{Pieces, Reader};
use crate::sending::Sending;
use crate::service::{Call, Caller};
use crate::session::{Session, Turn};
use crate::shared::Shared;
use crate::work::{Done, Work, reads_bytes, reads_max};

/// Payloads up to this length need no room of the server's buffers.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// Memory that a connection keeps between requests, as long as they follow one another.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// Most bytes that a request may bring which must be whole before they are used.
const WHOLE_BYTES_MAX: usize = 32 << 20;

/// A connection, as others of the server see it.
pub(crate) struct Connection {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) since_ns: u64,
    /// Whether the peer has not proved itself yet.
    pub(crate) is_stranger: AtomicBool,
    /// Whether it was asked to end, to make room for another one.
    pub(crate) is_sent_away: AtomicBool,
    pub(crate) sending: Sending,
    /// Requests that wait for storage.
    waiting: AtomicUsize,
    /// Notified when none waits any more.
    none_waits: (Mutex<()>, Condvar),
    pace: Pace,
}

impl Connection {
    pub(crate) fn new(transport: Arc<dyn Transport>, since_ns: u64) -> Self {
        Self {
            sending: Sending::new(Arc::clone(&transport)),
            transport,
            since_ns,
            is_stranger: AtomicBool::new(true),
            is_sent_away: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            none_waits: (Mutex::default(), Condvar::new()),
            pace: Pace::default(),
        }
    }

    /// Whether requests still wait for storage.
    fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Blocks until no request waits for storage.
    pub(crate) fn await_storage(&self) {
        let (lock, none_waits) = &self.none_waits;
        let locked = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = none_waits.wait_while(locked, |()| self.is_waiting());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// A request that waited for storage has its answer.
    fn end_wait(&self) {
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            let (lock, none_waits) = &self.none_waits;
            // Under the lock, so that a thread that looks at the number and then waits is woken.
            let _locked = lock.lock().unwrap_or_else(PoisonError::into_inner);
            none_waits.notify_all();
        }
    }

    /// Serves the peer until the connection ends. Errors are the end of it.
    pub(crate) fn converse(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<()> {
        let timeout = Some(shared.limits.stall_max);
        let is_set = self
            .transport
            .set_read_timeout(timeout)
            .and_then(|()| self.transport.set_write_timeout(timeout));
        is_set.map_err(|error| Error::from_io("serve a connection", error))?;
        let mut reader = FrameReader::new(Incoming(Arc::clone(&self.transport)));
        let greeted = self.greet(shared, &mut reader);
        if let (Err(error), false) = (&greeted, shared.is_over()) {
            // A peer that does not receive it sees the connection end. A server that ends sends
            // that by itself.
            let _ = self.fail(0, error);
        }
        let session = greeted?;
        let guest = Guest { session: &session, shared };
        let served = self.serve(shared, guest.session, &mut reader);
        if let Err(error) = &served
            && matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Corrupt)
        {
            // Nothing that follows on this connection means anything.
            self.fail(0, error)?;
        }
        served
    }

    fn greet(&self, shared: &Shared, reader: &mut Reader) -> Result<Arc<Session>> {
        let hello = Hello::from_head(&expect(reader, Kind::Hello)?)?;
        let version = hello.common_version(VERSION_MIN, VERSION)?;
        let mut nonce = [0; NONCE_BYTES];
        random_bytes(&mut nonce)?;
        // A peer that reaches a Unix socket is this user or root: its mode ensures that.
        let secret = shared.secret.as_ref().filter(|_| !self.transport.passes_descriptors());
        let challenge = Challenge { version, needs_proof: secret.is_some(), nonce };
        self.sending.frame(Kind::Challenge, 0, &challenge.to_head(), b"", false)?;
        let proof = Proof::from_head(&expect(reader, Kind::Proof)?)?;
        let channel = self.transport.channel();
        let transcript = Transcript { hello: &hello, challenge: &challenge, channel: &channel };
        let answer = match secret {
            Some(secret) if !secret.verify(Side::Client, transcript, &proof.proof) => {
                return Err(Error::new(ErrorKind::Denied, "serve a connection")
                    .because("the client does not know the secret of this server"));
            }
            Some(secret) => secret.prove(Side::Server, transcript),
            None => [0; PROOF_BYTES],
        };
        // Before the answer: an authenticated client is not counted among the strangers any more,
        // not while it waits for the end of its last session, either.
        self.is_stranger.store(false, Ordering::Release);
        let session = shared.sessions.join(proof.session, proof.access, &shared.limits)?;
        let welcome = Welcome {
            proof: answer,
            store_id: shared.service.store_id(),
            life: session.life,
            capability: shared.service.backend().capability(),
            target: shared.service.backend().target().into(),
            openings: shared.openings(version),
        };
        let sent = self.sending.frame(Kind::Welcome, 0, &welcome.to_head(), b"", false);
        if let Err(error) = sent {
            shared.leave(&session);
            return Err(error);
        }
        Ok(session)
    }

    fn serve(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        session: &Arc<Session>,
        reader: &mut Reader,
    ) -> Result<()> {
        // Kept from one request to the next: memory that is new each time costs more than copying.
        let mut buffer = Buffer::new();
        let spin = Spin::default();
        loop {
            if !reader.has_more() {
                self.sending.flush()?;
                spin.wait(&*self.transport);
            }
            if buffer.capacity() > BUFFER_BYTES_MAX {
                buffer = Buffer::new();
            }
            let start = match reader.next(HEAD_BYTES_MAX)? {
                Next::Frame(start) => start,
                Next::Idle => {
                    buffer = Buffer::new();
                    continue;
                }
                Next::End => return Ok(()),
            };
            spin.came();
            shared.counts.requests.fetch_add(1, Ordering::Relaxed);
            match start.header.kind {
                Kind::Request => self.request(shared, session, reader, &start, &mut buffer)?,
                Kind::Call => self.call(shared, session, reader, &start)?,
                _ => {
                    return Err(Error::invalid(
                        "serve a request",
                        "a frame of this kind is not expected",
                    ));
                }
            }
        }
    }

    fn request(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        session: &Arc<Session>,
        reader: &mut Reader,
        start: &Start,
        buffer: &mut Buffer,
    ) -> Result<()> {
        let started_ns = shared.clock.now_ns();
        let Header { id, acknowledged, .. } = start.header;
        let payload_bytes = read_payload_bytes(&start.head)? as usize;
        if payload_bytes > PAYLOAD_BYTES_MAX
            || (start.header.payload_bytes as usize) > payload_bytes
        {
            return Err(Error::invalid("serve a request", "its payload is too long")
                .with("payload_bytes", payload_bytes)
                .with("payload_bytes_max", PAYLOAD_BYTES_MAX));
        }
        let mut pieces = Pieces { reader, next: Some(start.header), left_bytes: payload_bytes };
        let operations = match read_operations(&start.head) {
            Ok((_, operations)) => operations,
            // Of a later version: what is not known here cannot be given.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                pieces.skip()?;
                shared.counts.fail(error.kind());
                return self.fail(id, &error);
            }
            Err(error) => return Err(error),
        };
        shared.counts.operations.fetch_add(operations.len() as u64, Ordering::Relaxed);
        let begun = self.begin(session, &operations, id, acknowledged, start.header.semantics);
        let (semantics, is_change) = match begun {
            Ok(Begun::New { semantics, is_change }) => (semantics, is_change),
            Ok(Begun::Known(frames)) => {
                pieces.skip()?;
                return self.sending.frames(&frames, true);
            }
            Err(error) => {
                pieces.skip()?;
                shared.counts.fail(error.kind());
                return self.fail(id, &error);
            }
        };
        let work = Work { service: &*shared.service, session, semantics };
        let timing = Timing { kind: RequestKind::of(&operations), started_ns };
        let is_open = Cell::new(is_change);
        let answer = Answer { connection: self, shared, session, id, timing, is_open };
        // Asked once more before anything is changed: the rest of a request may come late.
        let check_wanted = || if is_change { session.check_wanted(id) } else { Ok(()) };
        // What is to be seen whole is carried out with one call.
        let may_divide = semantics.atomicity == Atomicity::None;
        match &operations[..] {
            [Operation::On { handle, what: OnHandle::Lease }] => {
                self.lend(&work, *handle, id, &answer)
            }
            [Operation::On { handle, what: OnHandle::Write { offset_bytes, .. } }]
                if payload_bytes > PIECE_BYTES_MAX && may_divide =>
            {
                let place = (*handle, *offset_bytes);
                let written = write_pieces(&work, place, &mut pieces, buffer, &check_wanted)
                    .and_then(|written| pieces.skip().map(|()| written));
                if written.is_err() && pieces.left_bytes < payload_bytes {
                    // What came of it may be written, and gets no answer.
                    self.sending.cut();
                }
                let written = written?;
                shared.counts.received_bytes.fetch_add(payload_bytes as u64, Ordering::Relaxed);
                answer.give(Ok(match written {
                    Ok(()) => Done::of(Outcome::Done),
                    Err(error) => Done::of(Outcome::Failed(Failure::of(&error))),
                }))
            }
            [Operation::On { handle, what: OnHandle::Read { offset_bytes, length_bytes } }]
                if *length_bytes as usize > PIECE_BYTES_MAX && may_divide =>
            {
                let length_bytes = *length_bytes as usize;
                let reading =
                    Reading { handle: *handle, offset_bytes: *offset_bytes, length_bytes, id };
                match self.read_pieces(&work, &reading, buffer, &answer)? {
                    Ok(()) => Ok(()),
                    Err(error) => answer.give(Ok(Done::of(Outcome::Failed(Failure::of(&error))))),
                }
            }
            _ => {
                let reads_bytes = reads_bytes(&operations).min(reads_max(&operations, semantics));
                let taken = match payload_bytes <= WHOLE_BYTES_MAX {
                    true => room(shared, payload_bytes + reads_bytes),
                    false => Err(Error::invalid("serve a request", "it brings too much at once")
                        .with("payload_bytes", payload_bytes)
                        .with("payload_bytes_max", WHOLE_BYTES_MAX)),
                };
                let room = match taken {
                    Ok(room) => room,
                    Err(error) => {
                        pieces.skip()?;
                        return answer.give(Err(error));
                    }
                };
                pieces.whole(buffer)?;
                shared.counts.received_bytes.fetch_add(payload_bytes as u64, Ordering::Relaxed);
                if let Err(error) = check_wanted() {
                    return answer.give(Err(error));
                }
                // A read that no other request waits for needs no thread of its own.
                let is_shared = pieces.reader.has_more() || self.is_waiting();
                let is_slow = is_slow(&operations, semantics.persistency)
                    || is_shared && is_read(&operations) && self.pace.is_slow();
                if is_slow && self.may_wait(shared) {
                    let later = Later {
                        connection: Arc::clone(self),
                        session: Arc::clone(session),
                        semantics,
                        id,
                        timing,
                        is_open: answer.is_open.replace(false),
                        _room: room,
                    };
                    // One that brings nothing leaves the memory of those before it.
                    let none = payload_bytes == 0;
                    let payload = if none { Buffer::new() } else { std::mem::take(buffer) };
                    later.carry_out(shared, operations, payload);
                    return Ok(());
                }
                answer.give(self.carry_out(shared, &work, &operations, buffer))
            }
        }
    }

    fn begin(
        &self,
        session: &Session,
        operations: &[Operation],
        id: u64,
        acknowledged: u64,
        semantics: u32,
    ) -> Result<Begun> {
        let semantics = unpack_semantics(semantics)?;
        if session.access == Access::Read && operations.iter().any(Operation::needs_write_access) {
            return Err(Error::new(ErrorKind::Denied, "change the store")
                .because("the store is open for reading only"));
        }
        let is_change = operations.iter().any(Operation::is_change);
        if is_change && let Turn::Again(frames) = session.begin(id, acknowledged)? {
            return Ok(Begun::Known(frames));
        }
        Ok(Begun::New { semantics, is_change })
    }

    fn carry_out(
        &self,
        shared: &Shared,
        work: &Work<'_>,
        operations: &[Operation],
        payload: &[u8],
    ) -> Result<Done> {
        if !is_read(operations) {
            return guarded(|| work.carry_out(operations, payload));
        }
        let start_ns = shared.clock.now_ns();
        let carried_out = guarded(|| work.carry_out(operations, payload));
        self.pace.note(shared.clock.now_ns().saturating_sub(start_ns));
        carried_out
    }

    /// Whether another request of this connection may wait beside it.
    fn may_wait(&self, shared: &Shared) -> bool {
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel);
        let may = waiting < shared.limits.waiting_max;
        if !may {
            self.end_wait();
        }
        may
    }

    /// Reads an object and sends each piece while it is in the cache. The outer result is that of
    /// the connection, the inner one that of the object.
    fn read_pieces(
        &self,
        work: &Work<'_>,
        reading: &Reading,
        buffer: &mut Buffer,
        answer: &Answer<'_>,
    ) -> Result<Result<()>> {
        let Reading { handle, offset_bytes, length_bytes, id } = *reading;
        let object = match work.session.handle(handle) {
            Ok(object) => object,
            Err(error) => return Ok(Err(error)),
        };
        buffer.resize(PIECE_BYTES_MAX);
        let piece = &mut buffer[..];
        let mut sent = 0;
        loop {
            let want = (length_bytes - sent).min(PIECE_BYTES_MAX);
            let at_bytes = offset_bytes.saturating_add(sent as u64);
            let read =
                guarded(|| object.read_at(at_bytes, &mut [IoSliceMut::new(&mut piece[..want])]));
            let count = match read {
                Ok(count) => count,
                Err(error) => return Ok(Err(error)),
            };
            sent += count;
            let is_last = count < want || sent == length_bytes;
            if is_last {
                answer.shared.counts.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
                answer.count();
                let head = write_outcomes(&[Outcome::Read(sent as u32)]);
                return self.sending.frame(Kind::Answer, id, &head, &piece[..count], false).map(Ok);
            }
            self.sending.frame(Kind::Part, id, b"", &piece[..count], false)?;
        }
    }

    /// Lends the file of an object to a process on this machine.
    fn lend(&self, work: &Work<'_>, handle: u64, id: u64, answer: &Answer<'_>) -> Result<()> {
        let nothing = |outcome| answer.send(Kind::Answer, &write_outcomes(&[outcome]), b"");
        if !self.transport.passes_descriptors() {
            return nothing(Outcome::Leased(None));
        }
        let object = work.session.handle(handle);
        let lease = match object.and_then(|object| object.lease_file()) {
            Ok(Some(lease)) => lease,
            Ok(None) => return nothing(Outcome::Leased(None)),
            Err(error) => {
                answer.shared.counts.fail(error.kind());
                return nothing(Outcome::Failed(Failure::of(&error)));
            }
        };
        let word = lease.word.as_ref();
        let leased = Leased {
            word: word.map(|word| word.index),
            generation: word.map_or(0, |word| word.value),
        };
        let mut descriptors = vec![lease.file.as_fd()];
        descriptors.extend(word.map(|word| word.page.as_fd()));
        answer.count();
        let head = write_outcomes(&[Outcome::Leased(Some(leased))]);
        let frame = whole_frame(Kind::Answer, id, &head, b"");
        self.sending.with_descriptors(&frame, &descriptors)
    }

    fn call(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        session: &Arc<Session>,
        reader: &mut Reader,
        start: &Start,
    ) -> Result<()> {
        let timing = Timing { kind: RequestKind::Call, started_ns: shared.clock.now_ns() };
        let id = start.header.id;
        let (body_bytes, json) = read_call(&start.head)?;
        let mut pieces = Pieces { reader, next: Some(start.header), left_bytes: body_bytes };
        if body_bytes > WHOLE_BYTES_MAX {
            return Err(Error::invalid("serve a call", "its body is too long")
                .with("body_bytes", body_bytes)
                .with("body_bytes_max", WHOLE_BYTES_MAX));
        }
        let _room = match room(shared, body_bytes) {
            Ok(room) => room,
            Err(error) => {
                pieces.skip()?;
                shared.counts.fail(error.kind());
                return self.fail(id, &error);
            }
        };
        let mut body = Buffer::new();
        pieces.whole(&mut body)?;
        // Their answers are not kept: clients do not ask again, because they may take very long.
        self.sending.flush()?;
        let mut asker = Asker { connection: self, shared, id, is_gone: false };
        let call = Call {
            access: session.access,
            is_local: self.transport.passes_descriptors(),
            json,
            body: &body,
        };
        let called = guarded(|| shared.service.call(&call, &mut asker));
        let is_open = Cell::new(false);
        let answer = Answer { connection: self, shared, session, id, timing, is_open };
        match called {
            Ok(called) => {
                let head = (called.json.len() as u32).to_le_bytes();
                let payload = [called.json, called.body].concat();
                answer.send(Kind::Result, &head, &payload)
            }
            Err(error) => {
                shared.counts.fail(error.kind());
                answer.send(Kind::Failed, &Failure::of(&error).to_head(), b"")
            }
        }
    }

    /// Says that a request failed, or the connection where `id` is 0.
    fn fail(&self, id: u64, error: &Error) -> Result<()> {
        self.sending.frame(Kind::Failed, id, &Failure::of(error).to_head(), b"", false)
    }
}

/// A long read of an open object.
struct Reading {
    handle: u64,
    offset_bytes: u64,
    length_bytes: usize,
    id: u64,
}

enum Begun {
    New { semantics: terrace_core::Semantics, is_change: bool },
    Known(Arc<Vec<u8>>),
}

/// A session that this connection uses, while it lives.
struct Guest<'a> {
    session: &'a Arc<Session>,
    shared: &'a Shared,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.shared.leave(self.session);
    }
}

/// The next frame of a greeting.
fn expect(reader: &mut Reader, kind: Kind) -> Result<Vec<u8>> {
    match reader.next(GREETING_BYTES_MAX)? {
        Next::Frame(Start { header, head }) if header.kind == kind && header.payload_bytes == 0 => {
            Ok(head)
        }
        Next::Frame(_) => Err(Error::invalid("serve a connection", "another frame is expected")),
        Next::Idle | Next::End => {
            Err(Error::invalid("serve a connection", "the greeting did not come"))
        }
    }
}

/// The head of a call: the length of its body over all frames, then JSON.
fn read_call(head: &[u8]) -> Result<(usize, &[u8])> {
    let (length, json) = head
        .split_first_chunk::<4>()
        .ok_or_else(|| Error::invalid("serve a call", "its head is too short"))?;
    Ok((u32::from_le_bytes(*length) as usize, json))
}

/// Writes each piece of a long payload while it is in the cache: the memory for a write does not
/// grow with its length. The outer result is that of the connection, the inner one that of the
/// object.
fn write_pieces(
    work: &Work<'_>,
    (handle, offset_bytes): (u64, u64),
    pieces: &mut Pieces<'_>,
    buffer: &mut Buffer,
    check_wanted: &dyn Fn() -> Result<()>,
) -> Result<Result<()>> {
    let object = match work.session.handle(handle) {
        Ok(object) => object,
        Err(error) => return Ok(Err(error)),
    };
    buffer.resize(PIECE_BYTES_MAX);
    let piece = &mut buffer[..];
    let mut offset_bytes = offset_bytes;
    while pieces.left_bytes > 0 {
        let count = pieces.piece(piece)?;
        let write = || object.write_at(offset_bytes, &[IoSlice::new(&piece[..count])]);
        let written = check_wanted().and_then(|()| guarded(write));
        if written.is_err() {
            return Ok(written);
        }
        offset_bytes = offset_bytes.saturating_add(count as u64);
    }
    Ok(Ok(()))
}

fn room(shared: &Shared, bytes: usize) -> Result<Option<Room>> {
    match bytes <= SMALL_BYTES_MAX {
        true => Ok(None),
        false => shared.buffers.take(bytes).map(Some),
    }
}

/// Whether a request waits for storage, so that others need not wait for it.
fn is_slow(operations: &[Operation], persistency: Persistency) -> bool {
    let is_sync = |operation: &Operation| {
        matches!(
            operation,
            Operation::Sync { .. }
                | Operation::KvWait { .. }
                | Operation::Files { effect: Effect::Sync, .. }
                | Operation::On { what: OnHandle::Sync | OnHandle::Publish, .. }
        )
    };
    let changes = |operation: &Operation| {
        let is_handle =
            matches!(operation, Operation::On { .. } | Operation::Open(_) | Operation::Draft(_));
        operation.is_change() && !is_handle
    };
    operations.iter().any(is_sync)
        || persistency >= Persistency::Storage && operations.iter().any(changes)
}

/// Whether a request is a read of an open object: what a device may have to be waited for.
fn is_read(operations: &[Operation]) -> bool {
    matches!(operations, [Operation::On { what: OnHandle::Read { .. }, .. }])
}

/// A bug that one request runs into is no reason to end the others.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Io, "serve a request")
            .because("the server met a bug; its log tells more"))
    })
}

/// What a request asks for, and when it came.
#[derive(Clone, Copy)]
struct Timing {
    kind: RequestKind,
    started_ns: u64,
}

/// The answer to one request. Dropped without one, the request was not carried out.
struct Answer<'a> {
    connection: &'a Connection,
    shared: &'a Shared,
    session: &'a Session,
    id: u64,
    timing: Timing,
    /// Whether the session waits for the end of a change.
    is_open: Cell<bool>,
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if self.is_open.get() {
            self.session.abandon(self.id);
        }
    }
}

impl Answer<'_> {
    fn give(&self, carried_out: Result<Done>) -> Result<()> {
        if let Ok(done) = &carried_out {
            self.shared.counts.fail_among(&done.outcomes);
        }
        let answered =
            carried_out.and_then(|done| Ok((fitting_head(done.outcomes)?, done.payload)));
        match answered {
            Ok((head, payload)) => self.send(Kind::Answer, &head, &payload),
            Err(error) => {
                self.shared.counts.fail(error.kind());
                self.send(Kind::Failed, &Failure::of(&error).to_head(), b"")
            }
        }
    }

    /// Counts the request with the time that it took. Before the answer is sent: a client that has it finds the
    /// request counted.
    fn count(&self) {
        let Timing { kind, started_ns } = self.timing;
        let took_ns = self.shared.clock.now_ns().saturating_sub(started_ns);
        self.shared.counts.latencies[kind as usize].add(took_ns);
    }

    /// Sends the last frame, and parts of the payload before it. The answer to a change is kept
    /// before it is sent, because it may not arrive; where it is too long, only that there was one.
    fn send(&self, kind: Kind, head: &[u8], payload: &[u8]) -> Result<()> {
        self.count();
        let sending = &self.connection.sending;
        if self.is_open.replace(false) {
            let frame_bytes = HEADER_BYTES + head.len() + payload.len();
            let frame = match frame_bytes <= KEPT_BYTES_MAX && self.session.has_room(frame_bytes) {
                true => whole_frame(kind, self.id, head, payload),
                false => {
                    let error = Error::new(
                        ErrorKind::Unreachable { applied: terrace_core::Applied::Unknown },
                        "answer a request again",
                    )
                    .because("it was carried out, and its answer was too long to be kept");
                    whole_frame(Kind::Failed, self.id, &Failure::of(&error).to_head(), b"")
                }
            };
            self.session.finish(self.id, Arc::new(frame));
        }
        send_parts(sending, kind, self.id, head, payload, true)
    }
}

/// Sends a frame, and parts of its payload before it.
fn send_parts(
    sending: &Sending,
    kind: Kind,
    id: u64,
    head: &[u8],
    payload: &[u8],
    may_wait: bool,
) -> Result<()> {
    let mut rest = payload;
    while rest.len() > PIECE_BYTES_MAX {
        let (now, later) = rest.split_at(PIECE_BYTES_MAX);
        sending.frame(Kind::Part, id, b"", now, true)?;
        rest = later;
    }
    sending.frame(kind, id, head, rest, may_wait)
}

/// The client that made a call.
struct Asker<'a> {
    connection: &'a Connection,
    shared: &'a Shared,
    id: u64,
    is_gone: bool,
}

impl Caller for Asker<'_> {
    fn progress(&mut self, done: u64, total: u64) -> bool {
        let head = [done.to_le_bytes(), total.to_le_bytes()].concat();
        let sent = self.connection.sending.frame(Kind::Progress, self.id, &head, b"", false);
        self.is_gone |= sent.is_err();
        !self.is_gone
    }

    fn notice(&mut self, json: &[u8], body: &[u8]) -> bool {
        let head = (json.len() as u32).to_le_bytes();
        let payload = [json, body].concat();
        let sending = &self.connection.sending;
        let sent = send_parts(sending, Kind::Notice, self.id, &head, &payload, false);
        self.is_gone |= sent.is_err();
        self.goes_on()
    }

    fn goes_on(&mut self) -> bool {
        self.is_gone |= self.connection.transport.is_ended();
        !self.is_gone && !self.shared.is_over()
    }
}

/// The head of an answer. Where many operations failed with long messages, these are shortened: a
/// head that is too long would be no answer at all.
fn fitting_head(mut outcomes: Vec<Outcome>) -> Result<Vec<u8>> {
    /// With so much for each of the most operations the head is short enough.
    const MESSAGE_BYTES: usize = 160;
    let mut head = write_outcomes(&outcomes);
    if head.len() > HEAD_BYTES_MAX {
        for outcome in &mut outcomes {
            if let Outcome::Failed(failure) = outcome {
                failure.shorten(MESSAGE_BYTES);
            }
        }
        head = write_outcomes(&outcomes);
    }
    match head.len() <= HEAD_BYTES_MAX {
        true => Ok(head),
        false => Err(Error::new(ErrorKind::Unsupported, "answer a request")
            .because("the answer is too long for a message")
            .with("head_bytes", head.len())
            .with("head_bytes_max", HEAD_BYTES_MAX)),
    }
}

fn whole_frame(kind: Kind, id: u64, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + head.len() + payload.len());
    Header::new(kind, id, head, payload).write(head, &mut frame);
    frame.extend_from_slice(payload);
    frame
}

/// A request that waits for storage on a thread of its own, so that others on its connection are
/// carried out meanwhile and share one sync with it.
struct Later {
    connection: Arc<Connection>,
    session: Arc<Session>,
    semantics: terrace_core::Semantics,
    id: u64,
    timing: Timing,
    is_open: bool,
    /// Held until the answer is given.
    _room: Option<Room>,
}

impl Later {
    fn carry_out(self, shared: &Arc<Shared>, operations: Vec<Operation>, payload: Buffer) {
        let shared_by_work = Arc::clone(shared);
        let work = move || {
            let shared = &*shared_by_work;
            let work = Work {
                service: &*shared.service,
                session: &self.session,
                semantics: self.semantics,
            };
            let answer = Answer {
                connection: &self.connection,
                shared,
                session: &self.session,
                id: self.id,
                timing: self.timing,
                is_open: Cell::new(self.is_open),
            };
            let wanted =
                if answer.is_open.get() { self.session.check_wanted(self.id) } else { Ok(()) };
            let carried_out = wanted
                .and_then(|()| self.connection.carry_out(shared, &work, &operations, &payload));
            let told = answer.give(carried_out).and_then(|()| self.connection.sending.flush());
            if told.is_err() {
                // A client that does not receive it will ask again, or is gone: nothing follows on
                // half a frame, and the others do not wait for it, too.
                self.connection.transport.shutdown(std::net::Shutdown::Both);
            }
            self.connection.end_wait();
        };
        shared.workers.run(Box::new(work));
    }
}
