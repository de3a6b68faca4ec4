// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session: the objects that one client has open, and what it may ask for.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use terrace_core::{
    Access, Backend, Cursor, Error, ErrorKind, Hint, Object, Op, Open, Reply, Request, Result,
    Semantics,
};
use terrace_stack::{MoveTicket, ScrubOptions};

use super::call::{Call, Ended, Failure, Listed, Operation, Room, Scanned, Stated};
use super::frame::DATA_BYTES_MAX;
use crate::owner::Owned;
use crate::repair::write_backup;

/// Objects that one session may have open.
const HANDLES_MAX: usize = 1 << 16;

/// Longest wait inside one request; who waits longer asks again.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Most keys of one page of a listing.
const PAGE_KEYS_MAX: usize = 1000;

/// Most pairs of one page of a scan, and the bytes from which on it takes no further pair.
const PAGE_PAIRS_MAX: usize = 64;
const PAGE_PAIRS_BYTES: usize = 4 << 20;

/// What a request returns: a JSON value, and bytes.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) json: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(value: &impl Serialize) -> Result<Self> {
        Self::with_bytes(value, Vec::new())
    }

    fn with_bytes(value: &impl Serialize, bytes: Vec<u8>) -> Result<Self> {
        let json = serde_json::to_vec(value).map_err(|error| {
            Error::new(ErrorKind::Io, "answer a request").because("no JSON").caused_by(error)
        })?;
        Ok(Self { json, bytes })
    }

    fn done(_: ()) -> Self {
        Self { json: b"null".into(), bytes: Vec::new() }
    }
}

/// What one client has open. It ends with the client's last connection.
pub(super) struct Session {
    access: Access,
    handles: Mutex<HashMap<u64, Arc<dyn Object>>>,
    next_handle: AtomicU64,
}

impl Session {
    pub(super) fn new(access: Access) -> Self {
        Self { access, handles: Mutex::default(), next_handle: AtomicU64::new(1) }
    }

    pub(super) fn has_handles(&self) -> bool {
        !self.handles().is_empty()
    }

    /// Carries out a request.
    pub(super) fn carry_out(
        &self,
        owned: &Owned,
        call: Call,
        body: &[u8],
        progress: &mut dyn FnMut(u64, u64),
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Answer> {
        if self.access == Access::Read && call.is_change() {
            return Err(Error::new(ErrorKind::Denied, "change the store")
                .because("the store is open for reading only"));
        }
        let stack = &owned.stack;
        let wait = |timeout_ns| Duration::from_nanos(timeout_ns).min(WAIT_MAX);
        match call {
            Call::Hello { .. } => Err(Error::invalid("serve a request", "`hello` comes once")),
            Call::Tiers => Answer::json(&stack.tiers()),
            Call::AddTier { section, before } => {
                Answer::json(&owned.add_tier(&section, before.as_deref())?)
            }
            Call::DrainTier { tier } => stack.drain_tier(&tier).map(Answer::done),
            Call::UndrainTier { tier } => stack.undrain_tier(&tier).map(Answer::done),
            Call::RemoveTier { tier } => owned.remove_tier(&tier).map(Answer::done),
            Call::Explain { key } => Answer::json(&stack.explain(&key)?),
            Call::Migrate { key, to, kind, priority, reason } => {
                let tickets = stack.migrate(&key, stack.tier(&to)?, kind, priority, &reason)?;
                Answer::json(&tickets.into_iter().map(|ticket| ticket.0).collect::<Vec<_>>())
            }
            Call::DropCopy { key, tier } => {
                stack.drop_copy(&key, stack.tier(&tier)?).map(Answer::done)
            }
            Call::Wait { ticket, timeout_ns } => {
                Answer::json(&stack.wait(MoveTicket(ticket), wait(timeout_ns))?)
            }
            Call::Moves => Answer::json(&stack.moves()),
            Call::Cancel { ticket } => stack.cancel(MoveTicket(ticket)).map(Answer::done),
            Call::CancelAll => Answer::json(&stack.cancel_all()),
            Call::WaitIdle { timeout_ns } => Answer::json(&stack.wait_idle(wait(timeout_ns))),
            Call::Pin { key } => stack.pin(&key).map(Answer::done),
            Call::Unpin { key } => stack.unpin(&key).map(Answer::done),
            Call::Policy => Answer::json(&owned.policy()),
            Call::SetPolicy { name, parameters } => {
                owned.set_policy(&name, &parameters).map(Answer::done)
            }
            Call::SetParameter { name, value } => {
                owned.set_parameter(&name, &value).map(Answer::done)
            }
            Call::SetDryRun { is_dry_run } => owned.set_dry_run(is_dry_run).map(Answer::done),
            Call::SetCalls { after_events, every_ns } => {
                let every = every_ns.map(Duration::from_nanos);
                owned.set_calls(after_events, every).map(Answer::done)
            }
            Call::Message { kind } => Answer::with_bytes(&(), owned.message(&kind, body)?),
            Call::RunPolicy => owned.run_policy().map(Answer::done),
            Call::Check { verify } => Answer::json(&stack.check(verify, progress)?),
            Call::Backup { file, replace } => {
                let mut progress = |pairs| progress(pairs, 0);
                Answer::json(&write_backup(stack, Path::new(&file), replace, &mut progress)?)
            }
            Call::Record(recording) => owned.record(&recording).map(Answer::done),
            Call::StopRecording => Answer::json(&stack.stop_recording()?),
            Call::Recording => Answer::json(&stack.recording()),
            Call::Ledger => Answer::json(&stack.ledger()),
            Call::Scrub { bytes_per_s, namespace } => {
                let options = ScrubOptions { bytes_per_s: bytes_per_s as f64, namespace };
                let report = stack.scrub(&options, &mut |done, total| {
                    progress(done, total);
                    !is_gone()
                });
                Answer::json(&report?)
            }
            Call::ScrubStatus => Answer::json(&stack.scrub_status()?),
            Call::Quotas => Answer::json(&stack.quotas()),
            Call::SetQuota { namespace, bytes_max, objects_max } => {
                Answer::json(&stack.set_quota(&namespace, bytes_max, objects_max)?)
            }
            Call::ClearQuota { namespace } => Answer::json(&stack.clear_quota(&namespace)?),
            Call::KvGet { namespace } => {
                let value = stack.kv_get(&namespace, body)?;
                Answer::with_bytes(&value.is_some(), value.unwrap_or_default())
            }
            Call::KvPut { namespace, key_bytes, persistency } => {
                let (key, value) = split(body, key_bytes)?;
                stack.kv_put(&namespace, key, value, persistency).map(Answer::done)
            }
            Call::KvRemove { namespace, persistency } => {
                Answer::json(&stack.kv_remove(&namespace, body, persistency)?)
            }
            Call::KvScan { namespace, prefix_bytes, has_after, max } => {
                let (prefix, after) = split(body, prefix_bytes)?;
                scan(owned, &namespace, prefix, has_after.then_some(after), max)
            }
            Call::Stat { key } => Answer::json(&Stated(stack.stat(&key)?)),
            Call::Delete { key } => stack.delete(&key).map(Answer::done),
            Call::List { namespace, prefix, max } => {
                list(owned, &namespace, &prefix, body, max.min(PAGE_KEYS_MAX))
            }
            Call::Namespaces => Answer::json(&stack.namespaces()?),
            Call::Space => Answer::json(&Room(stack.space()?)),
            Call::Execute { operations, semantics } => execute(owned, &operations, body, semantics),
            Call::Sync => stack.sync().map(Answer::done),
            Call::Open { key, create, access, size_hint_bytes, semantics, temperature } => {
                let how = Open {
                    create,
                    access,
                    size_hint_bytes,
                    semantics,
                    hint: Hint { temperature },
                    identity: None,
                    label: (!body.is_empty()).then(|| body.into()),
                };
                let (handle, label) = self.keep(|| stack.open(&key, &how))?;
                Answer::with_bytes(&handle, label.map_or(Vec::new(), |label| label.to_vec()))
            }
            call => self.use_handle(call, body),
        }
    }

    /// Carries out a request about an open object.
    fn use_handle(&self, call: Call, body: &[u8]) -> Result<Answer> {
        match call {
            Call::ReadAt { handle, offset_bytes, length_bytes } => {
                let mut buffer = room(length_bytes)?;
                let mut buffers = [IoSliceMut::new(&mut buffer)];
                let count = self.handle(handle)?.read_at(offset_bytes, &mut buffers)?;
                buffer.truncate(count);
                Answer::with_bytes(&(), buffer)
            }
            Call::WriteAt { handle, offset_bytes } => {
                let written = self.handle(handle)?.write_at(offset_bytes, &[IoSlice::new(body)]);
                written.map(Answer::done)
            }
            Call::Append { handle } => {
                Answer::json(&self.handle(handle)?.append(&[IoSlice::new(body)])?)
            }
            Call::SetLen { handle, length_bytes } => {
                self.handle(handle)?.set_len(length_bytes).map(Answer::done)
            }
            Call::Allocate { handle, start_bytes, end_bytes } => {
                self.handle(handle)?.allocate(start_bytes..end_bytes).map(Answer::done)
            }
            Call::Punch { handle, start_bytes, end_bytes } => {
                self.handle(handle)?.punch(start_bytes..end_bytes).map(Answer::done)
            }
            Call::NextData { handle, offset_bytes } => {
                let range = self.handle(handle)?.next_data(offset_bytes)?;
                Answer::json(&range.map(|range| (range.start, range.end)))
            }
            Call::StatHandle { handle } => Answer::json(&Stated(self.handle(handle)?.stat()?)),
            Call::SetModified { handle, wall_ns } => {
                self.handle(handle)?.set_modified(wall_ns).map(Answer::done)
            }
            Call::SyncHandle { handle } => self.handle(handle)?.sync().map(Answer::done),
            Call::CloseHandle { handle } => {
                // Dropped outside the lock: closing an object may block.
                let closed = self.handles().remove(&handle);
                closed.map(drop).map(Answer::done).ok_or_else(|| unknown(handle))
            }
            call => Err(Error::invalid("serve a request", "it cannot be served")
                .with("request", format!("{call:?}"))),
        }
    }

    /// Opens an object and gives it a number that is never given again; also its label.
    fn keep(
        &self,
        open: impl FnOnce() -> Result<Box<dyn Object>>,
    ) -> Result<(u64, Option<Arc<[u8]>>)> {
        // A few more may come at the same time; the bound need not be sharp.
        if self.handles().len() >= HANDLES_MAX {
            return Err(Error::new(ErrorKind::Busy, "open object")
                .because("the client has too many open")
                .with("objects_max", HANDLES_MAX));
        }
        let object: Arc<dyn Object> = Arc::from(open()?);
        let label = object.label();
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles().insert(handle, object);
        Ok((handle, label))
    }

    fn handle(&self, handle: u64) -> Result<Arc<dyn Object>> {
        self.handles().get(&handle).cloned().ok_or_else(|| unknown(handle))
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<u64, Arc<dyn Object>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(handle: u64) -> Error {
    Error::new(ErrorKind::Stale, "use an object")
        .because("it is not open; open it again")
        .with("handle", handle)
}

fn split(body: &[u8], first_bytes: usize) -> Result<(&[u8], &[u8])> {
    body.split_at_checked(first_bytes)
        .ok_or_else(|| Error::invalid("serve a request", "its body is too short"))
}

/// A buffer for what is asked for, if that is not too much.
fn room(length_bytes: usize) -> Result<Vec<u8>> {
    if length_bytes > DATA_BYTES_MAX {
        return Err(Error::invalid("serve a request", "it reads too much at once")
            .with("length_bytes", length_bytes)
            .with("length_bytes_max", DATA_BYTES_MAX));
    }
    Ok(vec![0; length_bytes])
}

fn list(owned: &Owned, namespace: &str, prefix: &str, cursor: &[u8], max: usize) -> Result<Answer> {
    let page = owned.stack.list(namespace, prefix, &Cursor(cursor.to_vec()), max)?;
    let names = page.keys.iter().map(|key| key.name().into()).collect();
    let listed = Listed { names, has_next: page.next.is_some() };
    Answer::with_bytes(&listed, page.next.unwrap_or_default().0)
}

fn scan(
    owned: &Owned,
    namespace: &str,
    prefix: &[u8],
    after: Option<&[u8]>,
    max: usize,
) -> Result<Answer> {
    let max = max.min(PAGE_PAIRS_MAX);
    let pairs = owned.stack.kv_scan(namespace, prefix, after, max)?;
    let mut scanned = Scanned { lengths_bytes: Vec::new(), is_end: pairs.len() < max };
    let mut bytes = Vec::new();
    for (key, value) in &pairs {
        if bytes.len() >= PAGE_PAIRS_BYTES {
            scanned.is_end = false;
            break;
        }
        scanned.lengths_bytes.push((key.len(), value.len()));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    Answer::with_bytes(&scanned, bytes)
}

fn execute(
    owned: &Owned,
    operations: &[Operation],
    mut body: &[u8],
    semantics: Semantics,
) -> Result<Answer> {
    let reads = operations.iter().map(|operation| match operation {
        Operation::Read { length_bytes, .. } => *length_bytes,
        _ => 0,
    });
    let mut buffer = room(reads.fold(0, usize::saturating_add))?;
    let mut rest = &mut buffer[..];
    let mut ops = Vec::new();
    for operation in operations {
        ops.push(Op::new(match operation {
            Operation::Create { key, data_bytes, temperature } => {
                let (data, later) = split(body, *data_bytes)?;
                body = later;
                Request::Create { key, data, hint: Hint { temperature: *temperature } }
            }
            Operation::Read { key, offset_bytes, length_bytes } => {
                let (buffer, later) = rest.split_at_mut(*length_bytes);
                rest = later;
                Request::Read { key, offset_bytes: *offset_bytes, buffer }
            }
            Operation::Write { key, offset_bytes, data_bytes } => {
                let (data, later) = split(body, *data_bytes)?;
                body = later;
                Request::Write { key, offset_bytes: *offset_bytes, data }
            }
            Operation::Stat { key } => Request::Stat { key },
            Operation::Delete { key } => Request::Delete { key },
        }));
    }
    owned.stack.execute(&mut ops, &semantics);
    let mut ended = Vec::new();
    let mut bytes = Vec::new();
    for op in &ops {
        ended.push(match (&op.outcome, &op.request) {
            (Some(Ok(Reply::Count(count))), Request::Read { buffer, .. }) => {
                bytes.extend_from_slice(&buffer[..*count]);
                Ended::Count(*count)
            }
            (Some(Ok(Reply::Count(count))), _) => Ended::Count(*count),
            (Some(Ok(Reply::Done)), _) => Ended::Done,
            (Some(Ok(Reply::Stat(stat))), _) => Ended::Stat(*stat),
            (Some(Err(error)), _) => Ended::Error(Failure::of(error)),
            (None, _) => Ended::Error(Failure::of(&Error::new(ErrorKind::Io, "run a batch"))),
        });
    }
    Answer::with_bytes(&ended, bytes)
}
