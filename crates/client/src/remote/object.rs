// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An object that a server has open for us.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{
    ATOMIC_BYTES_MAX, Access, Applied, Atomicity, Begun, Create, End, Error, ErrorKind, Key, Later,
    Object, ReadDone, Result, Semantics, Stat, WriteDone,
};
use terrace_wire::{OnHandle, Opened, Opening, Operation, Outcome, VERSION_KEEPS_SIZE};

use super::bulk::Heard;
use super::core::{Change, Core};
use super::later::Ended;
use super::lent::Lent;
use super::life::Life;
use super::request::{Answer, Filling, Message};
use super::unsynced::Written;
use super::{done, stat_of, unexpected};

/// Most bytes that one request reads or writes; longer transfers are several.
const TRANSFER_BYTES_MAX: usize = 16 << 20;

/// Most bytes of an append: it is one request, or another append could come between.
const APPEND_BYTES_MAX: usize = 32 << 20;

/// An object that a server has open for us.
pub(super) struct RemoteObject {
    pub(super) core: Arc<Core>,
    pub(super) key: Key,
    access: Access,
    pub(super) semantics: Semantics,
    /// Tells it from another object of the same name.
    pub(super) created_ns: u64,
    /// Empty for none.
    label: Arc<[u8]>,
    handle: Mutex<Handle>,
    /// What was written to it and not synced; nothing of a draft.
    pub(super) written: Arc<Written>,
    /// Bytes that were written to a draft.
    pub(super) draft_bytes: AtomicU64,
    /// The number of its losses that were reported before this was opened. Later ones make each
    /// sync fail: nothing makes durable any more what was written.
    known: u64,
    /// The object's file, where the server lends it; not where operations must be seen whole.
    lent: Option<Lent>,
}

#[derive(Clone, Copy)]
pub(super) struct Handle {
    pub(super) number: u64,
    /// The life of the session that it belongs to.
    pub(super) life: Life,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The key named the object when it was opened, or when it was published.
    Open,
    /// No key names it.
    Draft,
    /// No key ever will.
    Discarded,
}

impl RemoteObject {
    pub(super) fn open(core: Arc<Core>, opening: Opening, semantics: Semantics) -> Result<Self> {
        Self::begin(core, opening, semantics, Stage::Open)
    }

    /// Begins a new value of an object.
    pub(super) fn draft(core: Arc<Core>, opening: Opening, semantics: Semantics) -> Result<Self> {
        Self::begin(core, opening, semantics, Stage::Draft)
    }

    fn begin(
        core: Arc<Core>,
        opening: Opening,
        semantics: Semantics,
        stage: Stage,
    ) -> Result<Self> {
        let (key, access) = (opening.key.clone(), opening.access);
        let is_open = stage == Stage::Open;
        // A server that was started anew has lost a draft, but no object.
        let is_new = is_open && opening.create == Create::New;
        let operation = match is_open {
            true => Operation::Open(opening),
            false => Operation::Draft(opening),
        };
        if core.unsynced.is_full() {
            core.sync_store(true)?;
        }
        let (opened, life) = opened(&core, operation, is_new, &semantics)?;
        let (written, known) = core.unsynced.open(&key, opened.created_ns, life);
        let is_lent = is_open && semantics.atomicity == Atomicity::None && core.is_lent();
        Ok(Self {
            lent: is_lent.then(Lent::default),
            core,
            key,
            access,
            semantics,
            created_ns: opened.created_ns,
            label: opened.label,
            handle: Mutex::new(Handle { number: opened.handle, life, stage }),
            written,
            draft_bytes: AtomicU64::new(0),
            known,
        })
    }

    /// Asks for something that is done to the object. A server that was started anew is asked to
    /// open it first.
    pub(super) fn ask(&self, what: OnHandle, parts: &[&[u8]]) -> Result<Outcome> {
        self.retried(|handle| {
            let operation = Operation::On { handle: handle.number, what: what.clone() };
            self.core.ask_one(operation, parts, &self.semantics).map(|(outcome, _)| outcome)
        })
    }

    /// Asks for a change of the object's bytes, which a sync is to make durable.
    fn change(&self, what: OnHandle, parts: &[&[u8]]) -> Result<Outcome> {
        let mut life = None;
        let changed = self.retried(|handle| {
            life = (handle.stage == Stage::Open).then_some(handle.life);
            if handle.stage == Stage::Draft {
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                self.draft_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            let operation = Operation::On { handle: handle.number, what: what.clone() };
            self.core.ask_one(operation, parts, &self.semantics).map(|(outcome, _)| outcome)
        });
        // None where it was not even asked for, and for a draft. What failed, and has ended with its life, is not
        // lost: the caller got the error.
        if let Some(life) = life
            && (changed.is_ok() || life.number == self.core.life())
        {
            self.written.note(life);
        }
        changed
    }

    /// Does something with the handle; again with a new one where the server has forgotten it.
    fn retried<T>(&self, mut work: impl FnMut(Handle) -> Result<T>) -> Result<T> {
        loop {
            let handle = self.current()?;
            match work(handle) {
                // Only a handle of a former life is not there: nothing was done with it. It ends,
                // because a server is not started anew that often.
                Err(error)
                    if error.kind() == ErrorKind::Stale
                        && self.core.life() != handle.life.number => {}
                other => return other,
            }
        }
    }

    pub(super) fn current(&self) -> Result<Handle> {
        let mut handle = self.handle();
        let is_past = handle.life.number != self.core.life();
        match handle.stage {
            Stage::Open => {}
            Stage::Draft if is_past => return Err(self.lost_draft()),
            Stage::Draft => return Ok(*handle),
            Stage::Discarded => {
                return Err(Error::new(ErrorKind::NotFound, "use a draft")
                    .because("it was discarded")
                    .with("key", &self.key));
            }
        }
        if is_past {
            self.core.reopening.check(&self.key)?;
            // Held over the request: one thread opens it, the others use that.
            *handle = self.reopen()?;
            self.written.find(handle.life);
        }
        Ok(*handle)
    }

    /// Why a draft of a life of the session that has ended is of no use.
    pub(super) fn lost_draft(&self) -> Error {
        Error::new(ErrorKind::Unreachable { applied: Applied::No }, "replace an object")
            .because(
                "the server was started anew, or has ended this session, and discarded the new \
                 value; nothing was changed: write it again",
            )
            .with("key", &self.key)
            .with("server", &self.core.target)
    }

    /// Has the server close a handle. Without an answer, so that this does not block on a server that
    /// cannot be reached; that closes it with the session.
    pub(super) fn close(&self, handle: Handle) {
        if handle.life.number == self.core.life() {
            self.core.tell(Operation::On { handle: handle.number, what: OnHandle::Close });
        }
    }

    pub(super) fn handle(&self) -> MutexGuard<'_, Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reopen(&self) -> Result<Handle> {
        let opening = Opening {
            key: self.key.clone(),
            create: Create::Never,
            access: self.access,
            size_hint_bytes: None,
            segment_bytes: None,
            hint: terrace_core::Hint::default(),
            identity: None,
            label: Arc::default(),
        };
        let (opened, life) = opened(&self.core, Operation::Open(opening), false, &self.semantics)?;
        if opened.created_ns == self.created_ns {
            return Ok(Handle { number: opened.handle, life, stage: Stage::Open });
        }
        self.core.tell(Operation::On { handle: opened.handle, what: OnHandle::Close });
        Err(Error::new(ErrorKind::NotFound, "use an object")
            .because("it was deleted, and its name given to another one")
            .with("key", &self.key))
    }

    /// Reads up to [`TRANSFER_BYTES_MAX`] into the buffers.
    fn read_some(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut filling = Filling::new(buffers);
        self.retried(|handle| {
            let length_bytes = length as u32;
            let what = OnHandle::Read { offset_bytes, length_bytes };
            let operations = [Operation::On { handle: handle.number, what }];
            let message = Message::request(&operations, &[], &self.semantics);
            let mut nobody = |_: Heard<'_>| true;
            let answer = self.core.exchange(&message, Some(&mut filling), &mut nobody)?;
            let outcomes = answer.outcomes(1)?.0;
            match &outcomes[..] {
                [Outcome::Read(count)] if *count as usize == filling.filled_bytes => {
                    Ok(filling.filled_bytes)
                }
                [Outcome::Failed(failure)] => Err(failure.clone().into_error()),
                _ => unexpected(),
            }
        })
    }
}

impl Drop for RemoteObject {
    fn drop(&mut self) {
        self.core.unsynced.close(&self.key, self.created_ns, &self.written);
        let handle = *self.handle();
        // A draft that was discarded is closed.
        if handle.stage == Stage::Discarded {
            return;
        }
        if let Some(untold) = self.lent.as_ref().and_then(Lent::take_untold)
            && handle.life.number == self.core.life()
        {
            self.core.tell(Operation::On { handle: handle.number, what: untold });
        }
        self.close(handle);
    }
}

impl Object for RemoteObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        if let Some(lent) = &self.lent {
            let handle = self.current()?.number;
            if let Some(count) = lent.read(&self.core, handle, offset_bytes, buffers) {
                return Ok(count);
            }
        }
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if want <= TRANSFER_BYTES_MAX || self.semantics.atomicity != Atomicity::None {
            self.semantics.atomicity.check_bytes("read", want)?;
            return self.read_some(offset_bytes, buffers);
        }
        let mut total = 0;
        for buffer in buffers {
            for space in buffer.chunks_mut(TRANSFER_BYTES_MAX) {
                let (want, at_bytes) = (space.len(), offset_bytes.saturating_add(total as u64));
                let count = self.read_some(at_bytes, &mut [IoSliceMut::new(space)])?;
                total += count;
                if count < want {
                    return Ok(total);
                }
            }
        }
        Ok(total)
    }

    fn later(&self) -> Option<&dyn Later> {
        Some(self)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let mut offset_bytes = offset_bytes;
        let bytes_max = match self.semantics.atomicity {
            Atomicity::None => TRANSFER_BYTES_MAX,
            _ => ATOMIC_BYTES_MAX,
        };
        self.semantics.atomicity.check_bytes("write", data.iter().map(|part| part.len()).sum())?;
        for (index, parts) in transfers(data, bytes_max).into_iter().enumerate() {
            let length: usize = parts.iter().map(|part| part.len()).sum();
            let what = OnHandle::Write { offset_bytes, data_bytes: length as u32 };
            let written = self.change(what, &parts).and_then(done);
            // The server has the parts before.
            written.map_err(|error| if index == 0 { error } else { error.in_part() })?;
            offset_bytes = offset_bytes.saturating_add(length as u64);
        }
        Ok(())
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let parts: Vec<&[u8]> = data.iter().map(|part| &**part).collect();
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.semantics.atomicity.check_bytes("append", length)?;
        if length > APPEND_BYTES_MAX {
            return Err(Error::invalid("append", "it is too long to be one message")
                .with("data_bytes", length)
                .with("data_bytes_max", APPEND_BYTES_MAX));
        }
        match self.change(OnHandle::Append { data_bytes: length as u32 }, &parts)? {
            Outcome::Appended(offset_bytes) => Ok(offset_bytes),
            _ => unexpected(),
        }
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        done(self.change(OnHandle::SetLen { bytes }, &[])?)
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        if end == End::Stays && self.core.version() < VERSION_KEEPS_SIZE {
            return Err(Error::new(ErrorKind::Unsupported, "reserve room behind the end")
                .because("the server is of a version that does not know it")
                .with("server", &self.core.target));
        }
        done(self.change(OnHandle::Allocate { range, end }, &[])?)
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        done(self.change(OnHandle::Punch { range }, &[])?)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        match self.ask(OnHandle::NextData { offset_bytes }, &[])? {
            Outcome::Data(range) => Ok(range),
            _ => unexpected(),
        }
    }

    fn stat(&self) -> Result<Stat> {
        stat_of(self.ask(OnHandle::Stat, &[])?)
    }

    fn created_ns(&self) -> Result<u64> {
        Ok(self.created_ns)
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        done(self.ask(OnHandle::SetModified { wall_ns }, &[])?)
    }

    fn sync(&self) -> Result<()> {
        // Before the server is asked: what is written meanwhile is not synced by this.
        let begun = self.written.begin_sync();
        let synced = self.ask(OnHandle::Sync, &[]).and_then(done);
        match self.written.end_sync(&begun, synced.is_ok(), self.known) {
            true => Err(lost().with("key", &self.key)),
            false => synced,
        }
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        (!self.label.is_empty()).then(|| Arc::clone(&self.label))
    }
}

impl Later for RemoteObject {
    fn read_later(
        &self,
        offset_bytes: u64,
        bytes: usize,
        done: &mut dyn FnMut() -> ReadDone,
    ) -> Option<Begun> {
        // Read without a request, or of no use to the caller.
        if self.lent.is_some() || self.semantics.atomicity.check_bytes("read", bytes).is_err() {
            return None;
        }
        let handle = *self.handle();
        if handle.stage == Stage::Discarded {
            return None;
        }
        let length_bytes = u32::try_from(bytes).ok()?;
        let what = OnHandle::Read { offset_bytes, length_bytes };
        let operations = [Operation::On { handle: handle.number, what }];
        let message = Message::request(&operations, &[], &self.semantics);
        self.core.ask_later(&message, handle.life.number, &mut || {
            let done = done();
            let target = self.core.target.clone();
            Box::new(move |ended| match ended {
                Ended::Told(Ok(answer)) => match answer.outcomes(1) {
                    Ok((outcomes, read)) if is_read(&outcomes, read.len(), bytes) => {
                        done(Some(Ok(&read)));
                    }
                    // Why, and whether a new handle helps, comes to light when it is read again.
                    _ => done(None),
                },
                Ended::Told(Err(error)) => done(Some(Err(error.with("server", target)))),
                Ended::Broke(_) => done(None),
            })
        })
    }

    fn write_later(
        &self,
        offset_bytes: u64,
        data: &Arc<[u8]>,
        done: &mut dyn FnMut() -> WriteDone,
    ) -> Option<Begun> {
        // The reason is returned to the synchronous call that follows.
        self.semantics.atomicity.check_bytes("write", data.len()).ok()?;
        let Handle { number: handle, life, stage } = *self.handle();
        if stage != Stage::Open {
            return None;
        }
        let what = OnHandle::Write { offset_bytes, data_bytes: u32::try_from(data.len()).ok()? };
        let operation = Operation::On { handle, what };
        let change = Change { operation, data: Arc::clone(data), semantics: self.semantics };
        self.core.change_later(&change, life.number, &mut || {
            let done = done();
            let (core, written) = (Arc::downgrade(&self.core), Arc::downgrade(&self.written));
            Box::new(move |changed| {
                let is_same = || core.upgrade().is_some_and(|core| life.number == core.life());
                // As what is waited for: what failed, and has ended with its life, is not lost.
                if let Some(changed) = &changed
                    && (changed.is_ok() || is_same())
                    && let Some(written) = written.upgrade()
                {
                    written.note(life);
                }
                done(match changed.map(|changed| changed.and_then(self::done)) {
                    // The server has ended it.
                    Some(Err(error)) if !is_unreachable(&error) => None,
                    // Nothing comes any more that was on its way in a life that is over.
                    Some(Err(_)) if !is_same() => None,
                    other => other,
                });
            })
        })
    }
}

/// How a sync fails where what it is for may be lost.
fn lost() -> Error {
    Error::new(ErrorKind::Io, "sync an object").because(
        "the server was started anew since it was written: it may be incomplete; open it anew and write it again",
    )
}

/// Opens an object, which another server must not be asked for where it is new; the handle, and the life
/// of the session that it belongs to.
fn opened(
    core: &Core,
    operation: Operation,
    is_new: bool,
    semantics: &Semantics,
) -> Result<(Opened, Life)> {
    let operations = [operation];
    loop {
        let life = core.whole_life();
        let only_in = if is_new { None } else { Some(life.number) };
        let message = Message::request(&operations, &[], semantics).only_in(only_in);
        let asked = core.ask(&message);
        let given_in = asked.as_ref().map_or(0, |answer| answer.life);
        match asked.and_then(Answer::one) {
            // A new one may have been asked for once more, in a later life.
            Ok((Outcome::Opened(opened), _)) => {
                let now = core.whole_life();
                return Ok((opened, if now.number == given_in { now } else { life }));
            }
            Ok(_) => return unexpected(),
            // Whatever was opened, the server has forgotten it. This ends, because a server is not
            // started anew that often.
            Err(error) if !is_new && is_unreachable(&error) && core.life() != life.number => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether the answer to a read has the bytes that it says, and not more than asked for.
fn is_read(outcomes: &[Outcome], read_bytes: usize, wanted_bytes: usize) -> bool {
    let said = |outcome: &Outcome| match outcome {
        Outcome::Read(count) => *count as usize == read_bytes,
        _ => false,
    };
    outcomes.iter().all(said) && read_bytes <= wanted_bytes
}

pub(super) fn is_unreachable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable { .. })
}

/// Cuts data into transfers of bounded length; at least one, so that an empty write is checked.
fn transfers<'a>(data: &'a [IoSlice<'_>], bytes_max: usize) -> Vec<Vec<&'a [u8]>> {
    let mut transfers = vec![Vec::new()];
    let mut room_bytes = bytes_max;
    for part in data {
        let mut part: &[u8] = part;
        while !part.is_empty() {
            if room_bytes == 0 {
                transfers.push(Vec::new());
                room_bytes = bytes_max;
            }
            let (now, later) = part.split_at(part.len().min(room_bytes));
            transfers.last_mut().expect("there is one from the beginning").push(now);
            room_bytes -= now.len();
            part = later;
        }
    }
    transfers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_cut_into_transfers_of_bounded_length() {
        let long = vec![1; TRANSFER_BYTES_MAX + 5];
        let data = [IoSlice::new(&[0; 10]), IoSlice::new(&[]), IoSlice::new(&long)];
        let lengths: Vec<Vec<usize>> = transfers(&data, TRANSFER_BYTES_MAX)
            .iter()
            .map(|parts| parts.iter().map(|part| part.len()).collect())
            .collect();
        assert_eq!(lengths, [vec![10, TRANSFER_BYTES_MAX - 10], vec![15]]);
        assert_eq!(transfers(&[], TRANSFER_BYTES_MAX), [Vec::<&[u8]>::new()]);
    }
}
