// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a client asks for: operations, many of which make a request.

use std::ops::{Bound, Range};
use std::sync::Arc;

use terrace_core::{
    Access, Create, End, Error, Hint, Identity, Key, KvRange, Result, Role, Superblock, Temperature,
};

use crate::codec::{Reader, Writer, unknown, wrong};

/// Most operations of one request.
pub const OPERATIONS_MAX: usize = 4096;

/// Set in the code of an operation on the object that the operation before it is on.
const SAME_KEY: u8 = 0x80;

/// One operation. Data that it writes are in the payload of the request, in the order of the
/// operations; data that it reads are in the payload of the answer.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are named like those of `Backend` and `Kv`")]
pub enum Operation {
    /// Creates a new object that holds `data_bytes` of the payload.
    Create { key: Key, data_bytes: u32, hint: Hint },
    /// Reads from an object.
    Read { key: Key, offset_bytes: u64, length_bytes: u32 },
    /// Writes `data_bytes` of the payload into an object that exists.
    Write { key: Key, offset_bytes: u64, data_bytes: u32 },
    /// Asks for size and times.
    Stat { key: Key },
    /// Removes an object.
    Delete { key: Key },
    /// Opens an object.
    Open(Opening),
    /// Begins a new value of an object; its access is ignored.
    Draft(Opening),
    /// Asks for the identity stored with an object.
    Identity { key: Key },
    /// Replaces it.
    SetIdentity { key: Key, identity: Box<Identity> },
    /// Lists keys of a namespace.
    List { namespace: String, prefix: String, cursor: Vec<u8>, max: u32 },
    /// Lists namespaces.
    Namespaces { cursor: Vec<u8> },
    /// Asks for capacity and use.
    Space,
    /// Makes names durable, or everything.
    Sync { is_all: bool },
    /// Asks for the superblock.
    Superblock,
    /// Replaces it.
    SetSuperblock { superblock: Box<Superblock> },
    /// Does something with an object that is open.
    On { handle: u64, what: OnHandle },
    /// Reads a value.
    KvGet { namespace: String, key: Vec<u8> },
    /// Writes one: the last `value_bytes` of the payload that are not yet used.
    KvPut { namespace: String, key: Vec<u8>, value_bytes: u32 },
    /// Removes a pair.
    KvDelete { namespace: String, key: Vec<u8> },
    /// Reads a page of pairs.
    KvScan { namespace: String, range: KvRange, max: u32 },
    /// Reads within a transaction, if what it read before is still so.
    KvLook(Box<Look>),
    /// Commits the writes of a transaction if what it read is still so.
    KvCommit(Box<Commit>),
    /// Waits until a commit is durable.
    KvWait { namespace: String, ticket: u64 },
    /// Asks the metadata of a file system for what is in `data_bytes` of the payload.
    Files { namespace: String, effect: Effect, data_bytes: u32 },
}

/// What a request to the metadata of a file system does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It looks, and may be asked again.
    Look,
    /// It changes what the client has open or locked.
    Hold,
    /// It changes what is stored.
    Change,
    /// It waits for storage.
    Sync,
}

impl Effect {
    const ALL: [Effect; 4] = [Effect::Look, Effect::Hold, Effect::Change, Effect::Sync];
}

/// How to open an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// Which.
    pub key: Key,
    /// Whether to create it.
    pub create: Create,
    /// What the handle may do.
    pub access: Access,
    /// The size that it will have, where known.
    pub size_hint_bytes: Option<u64>,
    /// Length of the pieces that it is cut into where it is created, if that is wished for.
    pub segment_bytes: Option<u64>,
    /// Advice for the policy.
    pub hint: Hint,
    /// Stored with an object that is created.
    pub identity: Option<Box<Identity>>,
    /// Stored with an object that is created; empty for none.
    pub label: Arc<[u8]>,
}

/// What to do with an open object.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are named like those of `Object`")]
pub enum OnHandle {
    /// Reads.
    Read { offset_bytes: u64, length_bytes: u32 },
    /// Writes `data_bytes` of the payload.
    Write { offset_bytes: u64, data_bytes: u32 },
    /// Writes `data_bytes` of the payload at the end.
    Append { data_bytes: u32 },
    /// Cuts or grows.
    SetLen { bytes: u64 },
    /// Reserves room.
    Allocate { range: Range<u64>, end: End },
    /// Makes a range a hole.
    Punch { range: Range<u64> },
    /// Asks for the next range with data.
    NextData { offset_bytes: u64 },
    /// Asks for size and times.
    Stat,
    /// Sets the time of the last modification.
    SetModified { wall_ns: u64 },
    /// Makes it durable.
    Sync,
    /// Closes it.
    Close,
    /// Asks for a descriptor of the object's file, where both are on one machine.
    Lease,
    /// Tells of reads through a descriptor: how many, and their bytes together.
    NoteReads { count: u64, bytes: u64 },
    /// Makes the key of a draft name it.
    Publish,
}

/// What a transaction has read so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Keys, and the digest of what they held ([`crate::digest_value`]).
    pub reads: Vec<(Vec<u8>, u128)>,
    /// Ranges, up to so many pairs, and the digest of those ([`crate::digest_pairs`]).
    pub scans: Vec<(KvRange, u32, u128)>,
}

/// A read within a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Where.
    pub namespace: String,
    /// What must still be so, or the transaction would see two states.
    pub seen: Seen,
    /// What to read.
    pub what: LookFor,
}

/// What to read within a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum LookFor {
    /// The value of a key.
    Key(Vec<u8>),
    /// A page of up to so many pairs.
    Range(KvRange, u32),
}

/// A transaction: what it read and what it writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Where.
    pub namespace: String,
    /// What must still be so.
    pub seen: Seen,
    /// Changes: a key, and the length of its value in the payload, or `None` to remove it.
    pub writes: Vec<(Vec<u8>, Option<u32>)>,
}

impl Operation {
    /// The bytes of the request's payload that belong to it.
    pub fn data_bytes(&self) -> usize {
        match self {
            Operation::Create { data_bytes, .. } | Operation::Write { data_bytes, .. } => {
                *data_bytes as usize
            }
            Operation::KvPut { value_bytes, .. } => *value_bytes as usize,
            Operation::Files { data_bytes, .. } => *data_bytes as usize,
            Operation::On {
                what: OnHandle::Write { data_bytes, .. } | OnHandle::Append { data_bytes },
                ..
            } => *data_bytes as usize,
            Operation::KvCommit(commit) => {
                let lengths = commit.writes.iter().filter_map(|(_, length)| *length);
                lengths.fold(0, |sum, length| sum.saturating_add(length as usize))
            }
            _ => 0,
        }
    }

    /// The most bytes that it reads.
    pub fn reads_bytes(&self) -> usize {
        match self {
            Operation::Read { length_bytes, .. }
            | Operation::On { what: OnHandle::Read { length_bytes, .. }, .. } => {
                *length_bytes as usize
            }
            _ => 0,
        }
    }

    /// Whether carrying it out twice could differ from once, so that the server keeps its answer.
    pub fn is_change(&self) -> bool {
        match self {
            Operation::Create { .. }
            | Operation::Write { .. }
            | Operation::Delete { .. }
            // Also when it creates nothing: a handle that the client does not know would stay open.
            | Operation::Open(_)
            | Operation::Draft(_)
            | Operation::SetIdentity { .. }
            | Operation::SetSuperblock { .. }
            | Operation::KvPut { .. }
            | Operation::KvDelete { .. }
            | Operation::KvCommit(_) => true,
            Operation::Files { effect, .. } => matches!(effect, Effect::Hold | Effect::Change),
            Operation::On { what, .. } => !matches!(
                what,
                OnHandle::Read { .. }
                    | OnHandle::NextData { .. }
                    | OnHandle::Stat
                    | OnHandle::Sync
                    | OnHandle::Lease
                    // The client does not wait for their answers, and numbers of handles are not
                    // given again.
                    | OnHandle::Close
                    | OnHandle::NoteReads { .. }
            ),
            Operation::Read { .. }
            | Operation::Stat { .. }
            | Operation::Identity { .. }
            | Operation::List { .. }
            | Operation::Namespaces { .. }
            | Operation::Space
            | Operation::Sync { .. }
            | Operation::Superblock
            | Operation::KvGet { .. }
            | Operation::KvScan { .. }
            | Operation::KvLook(_)
            | Operation::KvWait { .. } => false,
        }
    }

    /// Whether it comes to the same when a server that was started anew carries it out again. Not so
    /// where the answer tells what was there before: whether a name was free, or where the end was.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Operation::Open(opening) => opening.create != Create::New,
            // The one of the server before is gone with that.
            Operation::Draft(_) => true,
            Operation::On {
                what:
                    OnHandle::Write { .. }
                    | OnHandle::SetLen { .. }
                    | OnHandle::Allocate { .. }
                    | OnHandle::Punch { .. },
                ..
            } => true,
            _ => !self.is_change(),
        }
    }

    /// Whether it changes what is stored, so that a session for reading refuses it. Handles refuse
    /// by themselves what they are not open for.
    pub fn needs_write_access(&self) -> bool {
        match self {
            Operation::Open(opening) => {
                opening.create != Create::Never || opening.access == Access::Write
            }
            Operation::On { .. } => false,
            Operation::Files { effect, .. } => *effect == Effect::Change,
            other => other.is_change(),
        }
    }

    fn key(&self) -> Option<&Key> {
        match self {
            Operation::Create { key, .. }
            | Operation::Read { key, .. }
            | Operation::Write { key, .. }
            | Operation::Stat { key }
            | Operation::Delete { key }
            | Operation::Identity { key }
            | Operation::SetIdentity { key, .. } => Some(key),
            Operation::Open(opening) | Operation::Draft(opening) => Some(&opening.key),
            _ => None,
        }
    }
}

/// The head of a request: the length of its payload over all frames, and its operations.
pub fn write_operations(operations: &[Operation], payload_bytes: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + operations.len() * 24);
    Writer(&mut bytes).u32(payload_bytes).u16(operations.len() as u16);
    let mut last = None;
    for operation in operations {
        let key = operation.key();
        let is_same = key.is_some() && key == last;
        write_operation(operation, is_same, &mut Writer(&mut bytes));
        last = key;
    }
    bytes
}

/// Reads the length of the payload alone.
///
/// # Errors
///
/// `Invalid`.
pub fn read_payload_bytes(head: &[u8]) -> Result<u32> {
    Reader::new(head).u32()
}

/// Reads what [`write_operations`] wrote: the length of the payload, and the operations.
///
/// # Errors
///
/// `Invalid`; `Unsupported` where one of them is of a later version: what follows it in the head
/// cannot be read, what follows the request can.
pub fn read_operations(head: &[u8]) -> Result<(u32, Vec<Operation>)> {
    let mut input = Reader::new(head);
    let payload_bytes = input.u32()?;
    let count = usize::from(input.u16()?);
    if count > OPERATIONS_MAX {
        return Err(wrong("it has too many operations").with("operations_max", OPERATIONS_MAX));
    }
    let mut operations: Vec<Operation> = Vec::new();
    for _ in 0..count {
        let last = operations.last().and_then(Operation::key);
        let operation = read_operation(&mut input, last)?;
        operations.push(operation);
    }
    input.end()?;
    let data_bytes =
        operations.iter().fold(0_usize, |sum, one| sum.saturating_add(one.data_bytes()));
    if data_bytes != payload_bytes as usize {
        return Err(wrong("its operations need another payload")
            .with("payload_bytes", payload_bytes)
            .with("data_bytes", data_bytes));
    }
    Ok((payload_bytes, operations))
}

fn write_operation(operation: &Operation, is_same: bool, out: &mut Writer<'_>) {
    let mut keyed = |code: u8, key: &Key| {
        if is_same {
            out.u8(code | SAME_KEY);
        } else {
            out.u8(code).key(key);
        }
    };
    match operation {
        Operation::Create { key, data_bytes, hint } => {
            keyed(1, key);
            out.u32(*data_bytes).u8(temperature_code(hint.temperature));
        }
        Operation::Read { key, offset_bytes, length_bytes } => {
            keyed(2, key);
            out.u64(*offset_bytes).u32(*length_bytes);
        }
        Operation::Write { key, offset_bytes, data_bytes } => {
            keyed(3, key);
            out.u64(*offset_bytes).u32(*data_bytes);
        }
        Operation::Stat { key } => keyed(4, key),
        Operation::Delete { key } => keyed(5, key),
        Operation::Open(opening) => {
            keyed(6, &opening.key);
            write_opening(opening, out);
        }
        Operation::Identity { key } => keyed(7, key),
        Operation::SetIdentity { key, identity } => {
            keyed(8, key);
            write_identity(identity, out);
        }
        Operation::Draft(opening) => {
            keyed(9, &opening.key);
            write_opening(opening, out);
        }
        Operation::List { namespace, prefix, cursor, max } => {
            out.u8(16).text(namespace).text(prefix).list(cursor).u32(*max);
        }
        Operation::Namespaces { cursor } => _ = out.u8(17).list(cursor),
        Operation::Space => _ = out.u8(18),
        Operation::Sync { is_all } => _ = out.u8(19).u8(u8::from(*is_all)),
        Operation::Superblock => _ = out.u8(20),
        Operation::SetSuperblock { superblock } => {
            out.u8(21);
            write_superblock(superblock, out);
        }
        Operation::On { handle, what } => {
            out.u8(32).u64(*handle);
            write_on_handle(what, out);
        }
        Operation::KvGet { namespace, key } => _ = out.u8(48).text(namespace).list(key),
        Operation::KvPut { namespace, key, value_bytes } => {
            out.u8(49).text(namespace).list(key).u32(*value_bytes);
        }
        Operation::KvDelete { namespace, key } => _ = out.u8(50).text(namespace).list(key),
        Operation::KvScan { namespace, range, max } => {
            out.u8(51).text(namespace);
            write_range(range, out);
            out.u32(*max);
        }
        Operation::KvCommit(commit) => {
            out.u8(52);
            write_commit(commit, out);
        }
        Operation::KvLook(look) => {
            out.u8(54).text(&look.namespace);
            write_seen(&look.seen, out);
            match &look.what {
                LookFor::Key(key) => _ = out.u8(0).list(key),
                LookFor::Range(range, max) => {
                    out.u8(1);
                    write_range(range, out);
                    out.u32(*max);
                }
            }
        }
        Operation::KvWait { namespace, ticket } => _ = out.u8(53).text(namespace).u64(*ticket),
        Operation::Files { namespace, effect, data_bytes } => {
            out.u8(64).text(namespace).u8(*effect as u8).u32(*data_bytes);
        }
    }
}

fn read_operation(input: &mut Reader<'_>, last: Option<&Key>) -> Result<Operation> {
    let code = input.u8()?;
    let key = |input: &mut Reader<'_>| match code & SAME_KEY {
        0 => input.key(),
        _ => last.cloned().ok_or_else(|| wrong("the operation before has no key")),
    };
    let plain = if code < 16 | SAME_KEY { code & !SAME_KEY } else { code };
    Ok(match plain {
        1 => Operation::Create {
            key: key(input)?,
            data_bytes: input.u32()?,
            hint: Hint { temperature: read_temperature(input)? },
        },
        2 => Operation::Read {
            key: key(input)?,
            offset_bytes: input.u64()?,
            length_bytes: input.u32()?,
        },
        3 => Operation::Write {
            key: key(input)?,
            offset_bytes: input.u64()?,
            data_bytes: input.u32()?,
        },
        4 => Operation::Stat { key: key(input)? },
        5 => Operation::Delete { key: key(input)? },
        6 => Operation::Open(read_opening(key(input)?, input)?),
        7 => Operation::Identity { key: key(input)? },
        8 => Operation::SetIdentity { key: key(input)?, identity: Box::new(read_identity(input)?) },
        9 => Operation::Draft(read_opening(key(input)?, input)?),
        16 => Operation::List {
            namespace: input.text()?.into(),
            prefix: input.text()?.into(),
            cursor: input.list()?.to_vec(),
            max: input.u32()?,
        },
        17 => Operation::Namespaces { cursor: input.list()?.to_vec() },
        18 => Operation::Space,
        19 => Operation::Sync { is_all: input.flag()? },
        20 => Operation::Superblock,
        21 => Operation::SetSuperblock { superblock: Box::new(read_superblock(input)?) },
        32 => Operation::On { handle: input.u64()?, what: read_on_handle(input)? },
        48 => Operation::KvGet { namespace: input.text()?.into(), key: input.list()?.to_vec() },
        49 => Operation::KvPut {
            namespace: input.text()?.into(),
            key: input.list()?.to_vec(),
            value_bytes: input.u32()?,
        },
        50 => Operation::KvDelete { namespace: input.text()?.into(), key: input.list()?.to_vec() },
        51 => Operation::KvScan {
            namespace: input.text()?.into(),
            range: read_range(input)?,
            max: input.u32()?,
        },
        52 => Operation::KvCommit(Box::new(read_commit(input)?)),
        53 => Operation::KvWait { namespace: input.text()?.into(), ticket: input.u64()? },
        54 => Operation::KvLook(Box::new(Look {
            namespace: input.text()?.into(),
            seen: read_seen(input)?,
            what: match input.flag()? {
                false => LookFor::Key(input.list()?.to_vec()),
                true => LookFor::Range(read_range(input)?, input.u32()?),
            },
        })),
        64 => Operation::Files {
            namespace: input.text()?.into(),
            effect: {
                let effect = input.u8()?;
                let known = Effect::ALL.into_iter().find(|known| *known as u8 == effect);
                known.ok_or_else(|| wrong("the effect of a request is unknown"))?
            },
            data_bytes: input.u32()?,
        },
        _ => return Err(unknown("an operation is unknown").with("code", code)),
    })
}

fn write_opening(opening: &Opening, out: &mut Writer<'_>) {
    out.u8(match opening.create {
        Create::Never => 0,
        Create::IfMissing => 1,
        Create::New => 2,
    });
    out.u8(u8::from(opening.access == Access::Write)).optional_u64(opening.size_hint_bytes);
    out.optional_u64(opening.segment_bytes);
    out.u8(temperature_code(opening.hint.temperature)).u8(u8::from(opening.identity.is_some()));
    if let Some(identity) = &opening.identity {
        write_identity(identity, out);
    }
    out.list(&opening.label);
}

fn read_opening(key: Key, input: &mut Reader<'_>) -> Result<Opening> {
    let create = match input.u8()? {
        0 => Create::Never,
        1 => Create::IfMissing,
        2 => Create::New,
        _ => return Err(wrong("whether to create is unknown")),
    };
    let access = if input.flag()? { Access::Write } else { Access::Read };
    Ok(Opening {
        key,
        create,
        access,
        size_hint_bytes: input.optional_u64()?,
        segment_bytes: input.optional_u64()?,
        hint: Hint { temperature: read_temperature(input)? },
        identity: input.flag()?.then(|| read_identity(input).map(Box::new)).transpose()?,
        label: input.list()?.into(),
    })
}

fn write_on_handle(what: &OnHandle, out: &mut Writer<'_>) {
    match what {
        OnHandle::Read { offset_bytes, length_bytes } => {
            out.u8(1).u64(*offset_bytes).u32(*length_bytes);
        }
        OnHandle::Write { offset_bytes, data_bytes } => {
            out.u8(2).u64(*offset_bytes).u32(*data_bytes);
        }
        OnHandle::Append { data_bytes } => _ = out.u8(3).u32(*data_bytes),
        OnHandle::SetLen { bytes } => _ = out.u8(4).u64(*bytes),
        OnHandle::Allocate { range, end } => {
            let code = match end {
                End::Grows => 5,
                End::Stays => 14,
            };
            out.u8(code).u64(range.start).u64(range.end);
        }
        OnHandle::Punch { range } => _ = out.u8(6).u64(range.start).u64(range.end),
        OnHandle::NextData { offset_bytes } => _ = out.u8(7).u64(*offset_bytes),
        OnHandle::Stat => _ = out.u8(8),
        OnHandle::SetModified { wall_ns } => _ = out.u8(9).u64(*wall_ns),
        OnHandle::Sync => _ = out.u8(10),
        OnHandle::Close => _ = out.u8(11),
        OnHandle::Lease => _ = out.u8(12),
        OnHandle::NoteReads { count, bytes } => _ = out.u8(13).u64(*count).u64(*bytes),
        OnHandle::Publish => _ = out.u8(15),
    }
}

fn read_on_handle(input: &mut Reader<'_>) -> Result<OnHandle> {
    let code = input.u8()?;
    Ok(match code {
        1 => OnHandle::Read { offset_bytes: input.u64()?, length_bytes: input.u32()? },
        2 => OnHandle::Write { offset_bytes: input.u64()?, data_bytes: input.u32()? },
        3 => OnHandle::Append { data_bytes: input.u32()? },
        4 => OnHandle::SetLen { bytes: input.u64()? },
        5 => OnHandle::Allocate { range: input.u64()?..input.u64()?, end: End::Grows },
        6 => OnHandle::Punch { range: input.u64()?..input.u64()? },
        7 => OnHandle::NextData { offset_bytes: input.u64()? },
        8 => OnHandle::Stat,
        9 => OnHandle::SetModified { wall_ns: input.u64()? },
        10 => OnHandle::Sync,
        11 => OnHandle::Close,
        12 => OnHandle::Lease,
        13 => OnHandle::NoteReads { count: input.u64()?, bytes: input.u64()? },
        14 => OnHandle::Allocate { range: input.u64()?..input.u64()?, end: End::Stays },
        15 => OnHandle::Publish,
        _ => return Err(unknown("an operation on a handle is unknown").with("code", code)),
    })
}

fn temperature_code(temperature: Temperature) -> u8 {
    match temperature {
        Temperature::Unknown => 0,
        Temperature::Hot => 1,
        Temperature::Cold => 2,
    }
}

fn read_temperature(input: &mut Reader<'_>) -> Result<Temperature> {
    match input.u8()? {
        0 => Ok(Temperature::Unknown),
        1 => Ok(Temperature::Hot),
        2 => Ok(Temperature::Cold),
        _ => Err(wrong("a temperature is unknown")),
    }
}

fn write_range(range: &KvRange, out: &mut Writer<'_>) {
    out.bound(&range.start).bound(&range.end);
}

fn read_range(input: &mut Reader<'_>) -> Result<KvRange> {
    let start: Bound<Vec<u8>> = input.bound()?;
    Ok(KvRange { start, end: input.bound()? })
}

fn write_seen(seen: &Seen, out: &mut Writer<'_>) {
    out.u32(seen.reads.len() as u32);
    for (key, digest) in &seen.reads {
        out.list(key).u128(*digest);
    }
    out.u32(seen.scans.len() as u32);
    for (range, max, digest) in &seen.scans {
        write_range(range, out);
        out.u32(*max).u128(*digest);
    }
}

fn read_seen(input: &mut Reader<'_>) -> Result<Seen> {
    // The lists grow as their items are read: a count alone takes no memory.
    let mut seen = Seen::default();
    for _ in 0..input.u32()? {
        seen.reads.push((input.list()?.to_vec(), input.u128()?));
    }
    for _ in 0..input.u32()? {
        seen.scans.push((read_range(input)?, input.u32()?, input.u128()?));
    }
    Ok(seen)
}

fn write_commit(commit: &Commit, out: &mut Writer<'_>) {
    out.text(&commit.namespace);
    write_seen(&commit.seen, out);
    out.u32(commit.writes.len() as u32);
    for (key, value_bytes) in &commit.writes {
        out.list(key).u8(u8::from(value_bytes.is_some()));
        if let Some(value_bytes) = value_bytes {
            out.u32(*value_bytes);
        }
    }
}

fn read_commit(input: &mut Reader<'_>) -> Result<Commit> {
    let namespace = input.text()?.into();
    let seen = read_seen(input)?;
    let mut writes = Vec::new();
    for _ in 0..input.u32()? {
        let key = input.list()?.to_vec();
        writes.push((key, input.flag()?.then(|| input.u32()).transpose()?));
    }
    Ok(Commit { namespace, seen, writes })
}

pub(crate) fn write_identity(identity: &Identity, out: &mut Writer<'_>) {
    out.u128(identity.store_id).u64(identity.object_id).u32(identity.segment);
    out.u64(identity.start_bytes).u64(identity.generation).u64(identity.epoch);
    out.u8(match identity.role {
        Role::Partial => 0,
        Role::Primary => 1,
        Role::Copy => 2,
        Role::Dead => 3,
    });
    out.key(&identity.key).list(identity.label.as_deref().unwrap_or_default());
}

pub(crate) fn read_identity(input: &mut Reader<'_>) -> Result<Identity> {
    Ok(Identity {
        store_id: input.u128()?,
        object_id: input.u64()?,
        segment: input.u32()?,
        start_bytes: input.u64()?,
        generation: input.u64()?,
        epoch: input.u64()?,
        role: match input.u8()? {
            0 => Role::Partial,
            1 => Role::Primary,
            2 => Role::Copy,
            3 => Role::Dead,
            _ => return Err(wrong("a role is unknown")),
        },
        key: input.key()?,
        label: label(input)?,
    })
}

/// A label; one without bytes is none.
fn label(input: &mut Reader<'_>) -> Result<Option<Arc<[u8]>>> {
    let label = input.list()?;
    Ok((!label.is_empty()).then(|| label.into()))
}

pub(crate) fn write_superblock(superblock: &Superblock, out: &mut Writer<'_>) {
    out.u128(superblock.store_id).text(&superblock.tier).u32(superblock.format_version);
    out.u64(superblock.feature_bits).u64(superblock.epoch);
}

pub(crate) fn read_superblock(input: &mut Reader<'_>) -> Result<Superblock> {
    Ok(Superblock {
        store_id: input.u128()?,
        tier: input.text()?.into(),
        format_version: input.u32()?,
        feature_bits: input.u64()?,
        epoch: input.u64()?,
        // Wrappers are around tiers of the machine that has them.
        frames: None,
    })
}

/// Refuses texts that the format has no room for, before a request is made of them.
///
/// # Errors
///
/// `Invalid`.
pub fn check_short(what: &'static str, bytes: usize) -> Result<()> {
    /// Longest text or key of a pair in a request.
    const SHORT_BYTES_MAX: usize = u16::MAX as usize;
    if bytes > SHORT_BYTES_MAX {
        return Err(Error::invalid("make a request", format!("the {what} is too long"))
            .with("bytes", bytes)
            .with("bytes_max", SHORT_BYTES_MAX));
    }
    Ok(())
}
