// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out the operations of a request.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use terrace_core::{
    ATOMIC_BYTES_MAX, Atomicity, Backend, Buffer, Cursor, Error, ErrorKind, Kv, Object, Op, Open,
    Persistency, ReadSummary, Reply, Request, Result, Semantics,
};
use terrace_wire::{
    Commit, Failure, HEAD_BYTES_MAX, OnHandle, Opened, Opening, Operation, Outcome, write_outcomes,
};

use crate::pairs;
use crate::service::Service;
use crate::session::Session;

/// Most bytes that the operations of one request read together; larger reads come one by one, and
/// are sent piece by piece.
const READ_BYTES_MAX: usize = 8 << 20;

/// Most bytes of the head of an answer from which on nothing more is listed: with one more page it
/// still is an answer.
const LISTED_BYTES_MAX: usize = HEAD_BYTES_MAX / 2;

/// Most keys of one page of a listing.
const PAGE_KEYS_MAX: usize = 1000;

/// What operations need to be carried out.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) service: &'a dyn Service,
    pub(crate) session: &'a Session,
    pub(crate) semantics: Semantics,
}

/// How the operations of a request ended, and what they read.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) payload: Buffer,
    /// The size of what was found for the head, unknown before.
    found_bytes: usize,
}

impl Done {
    pub(crate) fn of(outcome: Outcome) -> Self {
        Self { outcomes: vec![outcome], ..Self::default() }
    }

    fn push(&mut self, ended: Result<Outcome>) {
        self.outcomes.push(ended.unwrap_or_else(|error| failed(&error)));
    }

    /// Refuses what finds more, where what was found before it is as much as an answer may be.
    ///
    /// # Errors
    ///
    /// `Invalid`.
    fn check_room(&self) -> Result<()> {
        if self.payload.len() <= READ_BYTES_MAX && self.found_bytes <= LISTED_BYTES_MAX {
            return Ok(());
        }
        Err(Error::invalid("serve a request", "it reads too much at once")
            .with("bytes_max", READ_BYTES_MAX)
            .with("listed_bytes_max", LISTED_BYTES_MAX))
    }
}

/// The names behind the one that the cursor holds, as many as fit a page.
fn page_of(mut names: Vec<String>, cursor: &[u8]) -> Outcome {
    names.retain(|name| name.as_bytes() > cursor);
    names.sort_unstable();
    let is_cut = names.len() > PAGE_KEYS_MAX;
    names.truncate(PAGE_KEYS_MAX);
    let next = names.last().filter(|_| is_cut).map(|name| name.clone().into_bytes());
    Outcome::Page { names, next }
}

fn failed(error: &Error) -> Outcome {
    Outcome::Failed(Failure::of(error))
}

/// How much operations read together.
pub(crate) fn reads_bytes(operations: &[Operation]) -> usize {
    operations.iter().map(Operation::reads_bytes).fold(0, usize::saturating_add)
}

/// How much they may. One read that is to be seen whole may be as long as such operations are.
pub(crate) fn reads_max(operations: &[Operation], semantics: Semantics) -> usize {
    let is_whole = operations.len() == 1 && semantics.atomicity != Atomicity::None;
    if is_whole { ATOMIC_BYTES_MAX } else { READ_BYTES_MAX }
}

impl Work<'_> {
    /// Carries out operations whose data are in `payload`, one after the other.
    ///
    /// # Errors
    ///
    /// `Invalid` for a request that is not served at all; what fails by itself is in its outcome.
    pub(crate) fn carry_out(&self, operations: &[Operation], payload: &[u8]) -> Result<Done> {
        let reads_bytes = reads_bytes(operations);
        let reads_max = reads_max(operations, self.semantics);
        if reads_bytes > reads_max {
            return Err(Error::invalid("serve a request", "it reads too much at once")
                .with("length_bytes", reads_bytes)
                .with("length_bytes_max", reads_max));
        }
        let mut done = Done::default();
        let mut payload = payload;
        let mut rest = operations;
        while let Some(first) = rest.first() {
            let count = match first {
                Operation::Stat { key } if rest.len() == 1 => {
                    done.push(self.backend().stat(key).map(Outcome::Stat));
                    1
                }
                _ if is_keyed(first) => {
                    let count = run_of(rest, is_keyed);
                    self.execute(&rest[..count], &mut payload, &mut done);
                    count
                }
                Operation::KvPut { namespace, .. } | Operation::KvDelete { namespace, .. } => {
                    let count = run_of(rest, |one| pairs::changes(one) == Some(namespace));
                    let result = self.kv(namespace).and_then(|kv| {
                        pairs::change(&*kv, &rest[..count], &mut payload, self.semantics)
                    });
                    match result {
                        Ok(outcomes) => done.outcomes.extend(outcomes),
                        Err(error) => {
                            done.outcomes.extend((0..count).map(|_| failed(&error)));
                        }
                    }
                    count
                }
                Operation::KvGet { namespace, .. } => {
                    let is_same = |one: &Operation| matches!(one, Operation::KvGet { namespace: other, .. } if other == namespace);
                    let count = run_of(rest, is_same);
                    self.get(namespace, &rest[..count], &mut done);
                    count
                }
                other => {
                    let data = take(&mut payload, other.data_bytes());
                    let finds = finds(other);
                    let may = if finds { done.check_room() } else { Ok(()) };
                    let ended = may.and_then(|()| self.one(other, data, &mut done.payload));
                    done.push(ended);
                    // The last one delays no other.
                    if finds && rest.len() > 1 {
                        let found = &done.outcomes[done.outcomes.len() - 1..];
                        done.found_bytes += write_outcomes(found).len();
                    }
                    1
                }
            };
            // What a failed run did not use belongs to nothing behind it.
            rest = &rest[count..];
            let left: usize = rest.iter().map(Operation::data_bytes).sum();
            payload = &payload[payload.len() - left..];
        }
        Ok(done)
    }

    fn backend(&self) -> &dyn Backend {
        self.service.backend()
    }

    /// Operations that the backend takes as a batch.
    fn execute(&self, operations: &[Operation], payload: &mut &[u8], done: &mut Done) {
        let mut buffer = Buffer::zeroed(operations.iter().map(Operation::reads_bytes).sum());
        let mut free = &mut buffer[..];
        let mut batch: Vec<Op<'_>> = Vec::with_capacity(operations.len());
        for operation in operations {
            batch.push(Op::new(match operation {
                Operation::Create { key, data_bytes, hint } => {
                    Request::Create { key, data: take(payload, *data_bytes as usize), hint: *hint }
                }
                Operation::Read { key, offset_bytes, length_bytes } => {
                    let (now, later) =
                        std::mem::take(&mut free).split_at_mut(*length_bytes as usize);
                    free = later;
                    Request::Read { key, offset_bytes: *offset_bytes, buffer: now }
                }
                Operation::Write { key, offset_bytes, data_bytes } => Request::Write {
                    key,
                    offset_bytes: *offset_bytes,
                    data: take(payload, *data_bytes as usize),
                },
                Operation::Stat { key } => Request::Stat { key },
                Operation::Delete { key } => Request::Delete { key },
                other => unreachable!("{other:?} has no key"),
            }));
        }
        self.backend().execute(&mut batch, &self.semantics);
        for operation in batch {
            let outcome = match operation.outcome {
                None => failed(
                    &Error::new(ErrorKind::Io, "serve a request")
                        .because("the store did not carry it out"),
                ),
                Some(Err(error)) => failed(&error),
                Some(Ok(Reply::Done)) => Outcome::Done,
                Some(Ok(Reply::Stat(stat))) => Outcome::Stat(stat),
                Some(Ok(Reply::Count(count))) => {
                    if let Request::Read { buffer, .. } = &operation.request {
                        done.payload.extend_from_slice(&buffer[..count]);
                    }
                    Outcome::Read(count as u32)
                }
            };
            done.outcomes.push(outcome);
        }
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        let kv = self.service.kv(namespace)?;
        if self.semantics.persistency > kv.persistency() {
            return Err(Error::new(ErrorKind::Unsupported, "use a pair")
                .because("the key-value engine cannot keep what is asked for")
                .with("persistency", self.semantics.persistency)
                .with("strongest", kv.persistency()));
        }
        Ok(kv)
    }

    fn get(&self, namespace: &str, operations: &[Operation], done: &mut Done) {
        let kv = self.service.kv(namespace);
        for operation in operations {
            let Operation::KvGet { key, .. } = operation else { unreachable!("a run of gets") };
            if let Err(error) = done.check_room() {
                done.push(Err(error));
                continue;
            }
            match &kv {
                Ok(kv) => {
                    let ended = kv.get(key).map(|value| done_value(value, &mut done.payload));
                    done.push(ended);
                }
                Err(error) => done.outcomes.push(failed(error)),
            }
        }
    }

    fn one(&self, operation: &Operation, data: &[u8], payload: &mut Buffer) -> Result<Outcome> {
        let backend = self.backend();
        Ok(match operation {
            Operation::Open(opening) => Outcome::Opened(self.open(opening)?),
            Operation::Draft(opening) => Outcome::Opened(self.draft(opening)?),
            Operation::Identity { key } => Outcome::Identity(backend.identity(key)?.map(Box::new)),
            Operation::SetIdentity { key, identity } => {
                backend.set_identity(key, identity)?;
                Outcome::Done
            }
            Operation::List { namespace, prefix, cursor, max } => {
                let max = (*max as usize).min(PAGE_KEYS_MAX);
                let page = backend.list(namespace, prefix, &Cursor(cursor.clone()), max)?;
                let names = page.keys.iter().map(|key| key.name().into()).collect();
                Outcome::Page { names, next: page.next.map(|cursor| cursor.0) }
            }
            Operation::Namespaces { cursor } => page_of(backend.namespaces()?, cursor),
            Operation::Space => Outcome::Space(backend.space()?),
            Operation::Sync { is_all } => {
                if *is_all { backend.sync_all() } else { backend.sync() }?;
                Outcome::Done
            }
            Operation::Superblock => Outcome::Superblock(backend.superblock()?.map(Box::new)),
            Operation::SetSuperblock { superblock } => {
                backend.set_superblock(superblock)?;
                Outcome::Done
            }
            Operation::On { handle, what: OnHandle::Close } => {
                self.session.close(*handle)?;
                Outcome::Done
            }
            Operation::On { handle, what: OnHandle::Publish } => {
                let replaced = self.session.draft(*handle)?.publish()?;
                Outcome::Published(replaced.unwrap_or_default())
            }
            Operation::On { handle, what } => {
                on_handle(&*self.session.handle(*handle)?, what, data, payload)?
            }
            Operation::KvScan { namespace, range, max } => {
                pairs::scan(&*self.service.kv(namespace)?, range, *max as usize, payload)?
            }
            Operation::KvLook(look) => {
                pairs::look(&*self.service.kv(&look.namespace)?, look, payload)?
            }
            Operation::KvCommit(commit) => self.commit(commit, data)?,
            Operation::KvWait { namespace, ticket } => {
                self.service.kv(namespace)?.wait(terrace_core::Ticket(*ticket))?;
                Outcome::Done
            }
            Operation::Files { namespace, .. } => {
                let answer = self.service.files(namespace, &self.session.kept, data)?;
                payload.extend_from_slice(&answer);
                Outcome::Read(answer.len() as u32)
            }
            other => unreachable!("{other:?} is carried out in runs"),
        })
    }

    fn commit(&self, commit: &Commit, data: &[u8]) -> Result<Outcome> {
        let kv = self.kv(&commit.namespace)?;
        match pairs::commit(&*kv, commit, data)? {
            Some(ticket) => {
                if self.semantics.persistency >= Persistency::Storage {
                    kv.wait(ticket)?;
                }
                Ok(Outcome::Ticket(ticket.0))
            }
            None => Ok(Outcome::Conflict),
        }
    }

    fn how(&self, opening: &Opening) -> Open {
        Open {
            create: opening.create,
            access: opening.access,
            size_hint_bytes: opening.size_hint_bytes,
            segment_bytes: opening.segment_bytes,
            semantics: self.semantics,
            hint: opening.hint,
            identity: opening.identity.as_ref().map(|identity| Arc::new((**identity).clone())),
            label: (!opening.label.is_empty()).then(|| Arc::clone(&opening.label)),
        }
    }

    fn open(&self, opening: &Opening) -> Result<Opened> {
        let (mut created_ns, mut label) = (0, Arc::default());
        let handle = self.session.keep(|| {
            let object = self.backend().open(&opening.key, &self.how(opening))?;
            created_ns = object.created_ns()?;
            label = object.label().unwrap_or_default();
            Ok(object.into())
        })?;
        Ok(Opened { handle, created_ns, label })
    }

    fn draft(&self, opening: &Opening) -> Result<Opened> {
        let mut created_ns = 0;
        let handle = self.session.keep(|| {
            let draft = self.backend().draft(&opening.key, &self.how(opening))?;
            created_ns = draft.object().created_ns()?;
            Ok(draft.into())
        })?;
        Ok(Opened { handle, created_ns, label: Arc::clone(&opening.label) })
    }
}

fn done_value(value: Option<Vec<u8>>, payload: &mut Buffer) -> Outcome {
    Outcome::Value(value.map(|value| {
        payload.extend_from_slice(&value);
        value.len() as u32
    }))
}

/// Carries out an operation on an open object whose data are whole.
fn on_handle(
    object: &dyn Object,
    what: &OnHandle,
    data: &[u8],
    payload: &mut Buffer,
) -> Result<Outcome> {
    let done = |()| Outcome::Done;
    match what {
        OnHandle::Read { offset_bytes, length_bytes } => {
            let start = payload.len();
            payload.resize(start + *length_bytes as usize);
            let mut buffers = [IoSliceMut::new(&mut payload[start..])];
            let read = object.read_at(*offset_bytes, &mut buffers);
            payload.truncate(start + *read.as_ref().unwrap_or(&0));
            read.map(|count| Outcome::Read(count as u32))
        }
        OnHandle::Write { offset_bytes, .. } => {
            object.write_at(*offset_bytes, &[IoSlice::new(data)]).map(done)
        }
        OnHandle::Append { .. } => object.append(&[IoSlice::new(data)]).map(Outcome::Appended),
        OnHandle::SetLen { bytes } => object.set_len(*bytes).map(done),
        OnHandle::Allocate { range, end } => object.allocate(range.clone(), *end).map(done),
        OnHandle::Punch { range } => object.punch(range.clone()).map(done),
        OnHandle::NextData { offset_bytes } => object.next_data(*offset_bytes).map(Outcome::Data),
        OnHandle::Stat => object.stat().map(Outcome::Stat),
        OnHandle::SetModified { wall_ns } => object.set_modified(*wall_ns).map(done),
        OnHandle::Sync => object.sync().map(done),
        // Descriptors come alone: between others they could not be matched to requests.
        OnHandle::Lease => Ok(Outcome::Leased(None)),
        OnHandle::NoteReads { count, bytes } => {
            let count = u32::try_from(*count).unwrap_or(u32::MAX);
            object.note_reads(&ReadSummary { count, bytes: *bytes, ..ReadSummary::default() });
            Ok(Outcome::Done)
        }
        OnHandle::Close | OnHandle::Publish => unreachable!("the session has the draft"),
    }
}

fn is_keyed(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Create { .. }
            | Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Stat { .. }
            | Operation::Delete { .. }
    )
}

/// Whether it is unknown how much an operation finds before it is carried out.
fn finds(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::KvScan { .. }
            | Operation::KvLook(_)
            | Operation::List { .. }
            | Operation::Namespaces { .. }
            | Operation::Identity { .. }
            | Operation::Superblock
            | Operation::Files { .. }
    )
}

/// How many operations from the first on are alike.
fn run_of(operations: &[Operation], is_alike: impl Fn(&Operation) -> bool) -> usize {
    operations.iter().take_while(|one| is_alike(one)).count()
}

/// Takes the data of the next operation; the head was checked to match the payload.
fn take<'a>(payload: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (now, later) = payload.split_at(count);
    *payload = later;
    now
}
