// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that another process owns as a backend, and its open objects.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use terrace_core::{
    ATOMIC_BYTES_MAX, Access, Atomicity, Backend, Capability, Cursor, Error, ErrorKind, FileLease,
    Identity, Key, Object, Op, Open, Page, ReadSummary, Reply, Request, Result, Semantics, Space,
    Stat, Superblock, execute_each,
};

use super::call::{Call, Ended, Listed, Operation, Room, Stated};
use super::frame::DATA_BYTES_MAX;
use super::link::{Wire, read, take};

/// Operations of a batch that are sent at once.
const BATCH_MAX: usize = 512;

/// What is to be seen whole fits one message.
const _: () = assert!(ATOMIC_BYTES_MAX <= DATA_BYTES_MAX);

/// The objects of a store that another process owns.
pub(super) struct Attached {
    pub(super) wire: Arc<Wire>,
}

impl Attached {
    fn unsupported(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::Unsupported, operation).with("target", self.target())
    }

    /// Carries out operations that fit one message.
    fn execute_together(&self, operations: &mut [Op<'_>], semantics: &Semantics) -> Result<()> {
        let mut parts = Vec::new();
        let calls = operations.iter().map(|operation| match &operation.request {
            Request::Create { key, data, hint } => {
                parts.push(*data);
                let (key, data_bytes) = ((*key).clone(), data.len());
                Operation::Create { key, data_bytes, temperature: hint.temperature }
            }
            Request::Read { key, offset_bytes, buffer } => Operation::Read {
                key: (*key).clone(),
                offset_bytes: *offset_bytes,
                length_bytes: buffer.len(),
            },
            Request::Write { key, offset_bytes, data } => {
                parts.push(*data);
                Operation::Write {
                    key: (*key).clone(),
                    offset_bytes: *offset_bytes,
                    data_bytes: data.len(),
                }
            }
            Request::Stat { key } => Operation::Stat { key: (*key).clone() },
            Request::Delete { key } => Operation::Delete { key: (*key).clone() },
        });
        let call = Call::Execute { operations: calls.collect(), semantics: *semantics };
        let answer = self.wire.exchange(&call, &parts)?;
        let ended: Vec<Ended> = read(&answer)?;
        let mut rest = &answer.bytes[..];
        for (operation, ended) in operations.iter_mut().zip(ended) {
            operation.outcome = Some(match (ended, &mut operation.request) {
                (Ended::Count(count), Request::Read { buffer, .. }) if count <= buffer.len() => {
                    buffer[..count].copy_from_slice(&take(&mut rest, count)?);
                    Ok(Reply::Count(count))
                }
                (Ended::Count(count), _) => Ok(Reply::Count(count)),
                (Ended::Done, _) => Ok(Reply::Done),
                (Ended::Stat(stat), _) => Ok(Reply::Stat(stat)),
                (Ended::Error(failure), _) => Err(failure.into_error()),
            });
        }
        Ok(())
    }
}

impl Backend for Attached {
    fn target(&self) -> &str {
        &self.wire.welcome.target
    }

    fn capability(&self) -> Capability {
        let owner = self.wire.welcome.capability;
        Capability {
            atomicity: owner.atomicity,
            persistency: owner.persistency,
            sparse: owner.sparse,
            ordered_listing: owner.ordered_listing,
            identity: false,
            leases: false,
            keeps_data: owner.keeps_data,
            labels: owner.labels,
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        // An empty body would say that there is no label.
        how.check_label(&self.capability())
            .map_err(|error| error.with("key", key).with("target", self.target()))?;
        let call = Call::Open {
            key: key.clone(),
            create: how.create,
            access: how.access,
            size_hint_bytes: how.size_hint_bytes,
            semantics: how.semantics,
            temperature: how.hint.temperature,
        };
        let answer = self.wire.exchange(&call, &[how.label.as_deref().unwrap_or_default()])?;
        let handle = read(&answer)?;
        let label = (!answer.bytes.is_empty()).then(|| answer.bytes.into());
        let atomicity = how.semantics.atomicity;
        Ok(Box::new(RemoteObject { wire: Arc::clone(&self.wire), handle, atomicity, label }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.wire.ask::<Stated>(&Call::Stat { key: key.clone() }, &[]).map(|stated| stated.0)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.wire.ask(&Call::Delete { key: key.clone() }, &[])
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        let call = Call::List { namespace: namespace.into(), prefix: prefix.into(), max };
        let answer = self.wire.exchange(&call, &[&cursor.0])?;
        let listed: Listed = read(&answer)?;
        let key = |name: &String| Key::new(namespace, name);
        let keys = listed.names.iter().map(key).collect::<Result<_>>()?;
        Ok(Page { keys, next: listed.has_next.then_some(Cursor(answer.bytes)) })
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.wire.ask(&Call::Namespaces, &[])
    }

    fn space(&self) -> Result<Space> {
        self.wire.ask::<Room>(&Call::Space, &[]).map(|room| room.0)
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        let mut rest = operations;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |operation: &&Op<'_>| {
                bytes += operation.request.length_bytes();
                bytes <= DATA_BYTES_MAX
            };
            let count = rest.iter().take(BATCH_MAX).take_while(fits).count();
            let (now, later) = rest.split_at_mut(count.max(1));
            rest = later;
            if count == 0 {
                // One operation with more bytes than a message may have.
                let bytes = now[0].request.length_bytes();
                match semantics.atomicity.check_bytes("run a batch", bytes) {
                    Ok(()) => execute_each(self, now, semantics),
                    Err(error) => now[0].outcome = Some(Err(error)),
                }
            } else if let Err(error) = self.execute_together(now, semantics) {
                for operation in now.iter_mut().filter(|operation| operation.outcome.is_none()) {
                    let again = Error::relayed(error.kind(), &error.to_string());
                    operation.outcome = Some(Err(again));
                }
            }
        }
    }

    fn identity(&self, _: &Key) -> Result<Option<Identity>> {
        Err(self.unsupported("read an identity"))
    }

    fn set_identity(&self, _: &Key, _: &Identity) -> Result<()> {
        Err(self.unsupported("write an identity"))
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        Err(self.unsupported("read a superblock"))
    }

    fn set_superblock(&self, _: &Superblock) -> Result<()> {
        Err(self.unsupported("write a superblock"))
    }

    fn sync(&self) -> Result<()> {
        self.wire.ask(&Call::Sync, &[])
    }

    fn sync_all(&self) -> Result<()> {
        // The owner's stack makes everything durable in any case.
        self.wire.ask(&Call::Sync, &[])
    }
}

/// An object that the owner has open for us.
struct RemoteObject {
    wire: Arc<Wire>,
    handle: u64,
    /// One that is seen whole is one message.
    atomicity: Atomicity,
    label: Option<Arc<[u8]>>,
}

impl Drop for RemoteObject {
    fn drop(&mut self) {
        // An owner that cannot be reached has closed it.
        let _ = self.wire.ask::<()>(&Call::CloseHandle { handle: self.handle }, &[]);
    }
}

impl RemoteObject {
    fn ask<T: serde::de::DeserializeOwned>(&self, call: &Call) -> Result<T> {
        self.wire.ask(call, &[])
    }
}

impl Object for RemoteObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        self.atomicity.check_bytes("read", want)?;
        let mut buffers = buffers.iter_mut();
        let mut buffer: &mut [u8] = &mut [];
        let mut done = 0;
        // An empty read tells whether the object is still there.
        loop {
            let length_bytes = (want - done).min(DATA_BYTES_MAX);
            let offset_bytes = offset_bytes.saturating_add(done as u64);
            let call = Call::ReadAt { handle: self.handle, offset_bytes, length_bytes };
            let answer = self.wire.exchange(&call, &[])?;
            let mut bytes = &answer.bytes[..answer.bytes.len().min(length_bytes)];
            let is_short = bytes.len() < length_bytes;
            done += bytes.len();
            while !bytes.is_empty() {
                if buffer.is_empty() {
                    buffer = buffers.next().expect("no more was asked for than fits");
                    continue;
                }
                let count = bytes.len().min(buffer.len());
                let (now, later) = std::mem::take(&mut buffer).split_at_mut(count);
                now.copy_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                buffer = later;
            }
            if is_short || done == want {
                return Ok(done);
            }
        }
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        self.atomicity.check_bytes("write", data.iter().map(|part| part.len()).sum())?;
        let mut offset_bytes = offset_bytes;
        for parts in messages(data) {
            let call = Call::WriteAt { handle: self.handle, offset_bytes };
            self.wire.ask::<()>(&call, &parts)?;
            let written_bytes: usize = parts.iter().map(|part| part.len()).sum();
            offset_bytes = offset_bytes.saturating_add(written_bytes as u64);
        }
        Ok(())
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.atomicity.check_bytes("append", data.iter().map(|part| part.len()).sum())?;
        // In one message, or another append could come between.
        let parts: Vec<&[u8]> = data.iter().map(|part| &**part).collect();
        self.wire.ask(&Call::Append { handle: self.handle }, &parts)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.ask(&Call::SetLen { handle: self.handle, length_bytes: bytes })
    }

    fn allocate(&self, range: Range<u64>) -> Result<()> {
        let (start_bytes, end_bytes) = (range.start, range.end);
        self.ask(&Call::Allocate { handle: self.handle, start_bytes, end_bytes })
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        let (start_bytes, end_bytes) = (range.start, range.end);
        self.ask(&Call::Punch { handle: self.handle, start_bytes, end_bytes })
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        let found: Option<(u64, u64)> =
            self.ask(&Call::NextData { handle: self.handle, offset_bytes })?;
        Ok(found.map(|(start, end)| start..end))
    }

    fn stat(&self) -> Result<Stat> {
        self.ask::<Stated>(&Call::StatHandle { handle: self.handle }).map(|stated| stated.0)
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.ask(&Call::SetModified { handle: self.handle, wall_ns })
    }

    fn sync(&self) -> Result<()> {
        self.ask(&Call::SyncHandle { handle: self.handle })
    }

    fn lease_file(&self, _: Access) -> Result<Option<FileLease>> {
        Ok(None)
    }

    /// There are none, because nothing is lent.
    fn note_reads(&self, _: &ReadSummary) {}

    fn label(&self) -> Option<Arc<[u8]>> {
        self.label.clone()
    }
}

/// Cuts data into messages of bounded length; at least one, so that an empty write is checked.
fn messages<'a>(data: &'a [IoSlice<'_>]) -> Vec<Vec<&'a [u8]>> {
    let mut messages = vec![Vec::new()];
    let mut room_bytes = DATA_BYTES_MAX;
    for part in data {
        let mut part: &[u8] = part;
        while !part.is_empty() {
            if room_bytes == 0 {
                messages.push(Vec::new());
                room_bytes = DATA_BYTES_MAX;
            }
            let (now, later) = part.split_at(part.len().min(room_bytes));
            messages.last_mut().expect("there is one from the beginning").push(now);
            room_bytes -= now.len();
            part = later;
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_cut_into_messages_of_bounded_length() {
        let long = vec![1; DATA_BYTES_MAX + 5];
        let data = [IoSlice::new(&[0; 10]), IoSlice::new(&[]), IoSlice::new(&long)];
        let lengths: Vec<Vec<usize>> = messages(&data)
            .iter()
            .map(|parts| parts.iter().map(|part| part.len()).collect())
            .collect();
        assert_eq!(lengths, [vec![10, DATA_BYTES_MAX - 10], vec![15]]);
        assert_eq!(messages(&[]), [Vec::<&[u8]>::new()]);
    }
}
