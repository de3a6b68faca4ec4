// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A request on its way, and its answer.

use std::io::{IoSliceMut, Write};

use terrace_core::{Create, Error, ErrorKind, Persistency, Result, Semantics};
use terrace_wire::{
    Failure, HEAD_BYTES_MAX, HEADER_BYTES, Header, Kind, OPERATIONS_MAX, OnHandle, Operation,
    Outcome, PAYLOAD_BYTES_MAX, PIECE_BYTES_MAX, pack_semantics, read_outcomes, send,
    write_operations,
};

/// Messages up to this length share one connection; longer ones have one for themselves, so that no
/// other request waits behind them.
const SHARED_BYTES_MAX: usize = 64 << 10;

/// A request or a call, ready to be sent, also more than once.
pub(super) struct Message<'a> {
    kind: Kind,
    semantics: u32,
    /// How many operations it has.
    count: usize,
    head: Vec<u8>,
    /// The payload, in parts.
    parts: &'a [&'a [u8]],
    /// Whether carrying it out twice could differ from once.
    pub(super) is_change: bool,
    /// Whether it changes what only a sync of the store makes durable. An open object keeps its own
    /// account of what is written to it, and so does the metadata of a file system.
    pub(super) leaves_unsynced: bool,
    /// Whether the server keeps the answer to a change until it is acknowledged, so that asking
    /// again is safe.
    pub(super) is_kept: bool,
    /// Whether it may be asked for again of a server that was started anew.
    pub(super) is_repeatable: bool,
    /// Whether it goes on until the caller ends it.
    pub(super) is_stream: bool,
    /// Whether it only moves bytes of one open object.
    pub(super) is_transfer: bool,
    /// The only life of the session in which it is sent; `None` where it means the same in each.
    pub(super) life: Option<u64>,
    /// Bytes that cross the connection, as far as they are known.
    pub(super) weight_bytes: usize,
}

/// The last frame of an answer, and the payload of all of them.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The life of the session in which it was given, where that is known.
    pub(super) life: u64,
    pub(super) kind: Option<Kind>,
    pub(super) head: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl<'a> Message<'a> {
    /// A batch of operations; `parts` is what they write.
    pub(super) fn request(
        operations: &[Operation],
        parts: &'a [&'a [u8]],
        semantics: &Semantics,
    ) -> Self {
        let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let reads_bytes: usize = operations.iter().map(Operation::reads_bytes).sum();
        let head = write_operations(operations, payload_bytes as u32);
        Self {
            kind: Kind::Request,
            semantics: pack_semantics(semantics),
            count: operations.len(),
            weight_bytes: head.len() + payload_bytes + reads_bytes,
            head,
            parts,
            is_change: operations.iter().any(Operation::is_change),
            leaves_unsynced: semantics.persistency < Persistency::Storage
                && operations.iter().any(leaves_unsynced),
            is_kept: true,
            is_repeatable: operations.iter().all(Operation::is_repeatable),
            is_stream: false,
            is_transfer: matches!(
                operations,
                [Operation::On { what: OnHandle::Read { .. } | OnHandle::Write { .. }, .. }]
            ),
            life: None,
        }
    }

    /// A call of the control plane.
    pub(super) fn call(json: &[u8], parts: &'a [&'a [u8]]) -> Self {
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let head = [&(body_bytes as u32).to_le_bytes(), json].concat();
        let weight_bytes = head.len() + body_bytes;
        let (kind, is_kept) = (Kind::Call, false);
        Self {
            kind,
            semantics: 0,
            count: 1,
            head,
            parts,
            is_change: true,
            leaves_unsynced: false,
            is_kept,
            is_repeatable: false,
            is_stream: false,
            is_transfer: false,
            life: None,
            weight_bytes,
        }
    }

    /// A call that goes on until the caller ends it. Not asked for again where it breaks: what
    /// happened meanwhile would be missing.
    pub(super) fn stream(json: &[u8]) -> Self {
        Self { is_stream: true, ..Self::call(json, &[]) }
    }

    /// The same, sent in one life of the session alone.
    pub(super) fn only_in(self, life: Option<u64>) -> Self {
        Self { life, ..self }
    }

    /// Whether it may be on its way together with others: a call may take long.
    pub(super) fn is_shared(&self) -> bool {
        self.kind == Kind::Request && self.weight_bytes <= SHARED_BYTES_MAX
    }

    /// Refuses what the server would end the connection for, to everybody's harm.
    ///
    /// # Errors
    ///
    /// `Invalid`.
    pub(super) fn check(&self) -> Result<()> {
        let payload_bytes: usize = self.parts.iter().map(|part| part.len()).sum();
        for (part, size, size_max) in [
            ("operations", self.count, OPERATIONS_MAX),
            ("head", self.head.len(), HEAD_BYTES_MAX),
            ("payload", payload_bytes, PAYLOAD_BYTES_MAX),
        ] {
            if size > size_max {
                return Err(Error::invalid("ask the server", "it is too much for one request")
                    .with("part", part)
                    .with("size", size)
                    .with("size_max", size_max));
            }
        }
        Ok(())
    }

    /// Sends it whole. Errors: `Unreachable`; a part of it may have been sent.
    pub(super) fn send(&self, stream: &mut impl Write, id: u64, acknowledged: u64) -> Result<()> {
        let mut parts = Parts { parts: self.parts, offset: 0 };
        let mut start = Vec::with_capacity(64 + self.head.len());
        let mut kind = self.kind;
        let mut head: &[u8] = &self.head;
        loop {
            let piece = parts.piece(PIECE_BYTES_MAX);
            let is_first = kind == self.kind;
            if piece.is_empty() && !is_first {
                return Ok(());
            }
            let header = Header::of_parts(kind, id, head, &piece);
            let header = match is_first {
                true => Header { acknowledged, semantics: self.semantics, ..header },
                false => header,
            };
            start.clear();
            header.write(head, &mut start);
            send(stream, &start, &piece)?;
            (kind, head) = (Kind::Part, b"");
        }
    }
}

/// The rest of a payload in parts.
struct Parts<'a> {
    parts: &'a [&'a [u8]],
    /// Bytes of the first part that were taken.
    offset: usize,
}

impl<'a> Parts<'a> {
    /// Most parts of one piece (`IOV_MAX` in limits.h, less the header).
    const PARTS_MAX: usize = 1000;

    /// Takes up to so many bytes off the front; nothing at the end.
    fn piece(&mut self, bytes_max: usize) -> Vec<&'a [u8]> {
        let mut piece = Vec::new();
        let mut left = bytes_max;
        while left > 0 && piece.len() < Self::PARTS_MAX {
            let Some((first, rest)) = self.parts.split_first() else { break };
            let part = &first[self.offset..];
            let count = part.len().min(left);
            if count > 0 {
                piece.push(&part[..count]);
            }
            left -= count;
            self.offset += count;
            if self.offset == first.len() {
                self.parts = rest;
                self.offset = 0;
            }
        }
        piece
    }
}

impl Answer {
    /// How long it is as one frame.
    pub(super) fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.head.len() + self.payload.len()
    }

    /// How each operation ended, and the bytes that were read.
    ///
    /// # Errors
    ///
    /// What the server says of the request as a whole; `Corrupt` for no answer to it.
    pub(super) fn outcomes(self, count: usize) -> Result<(Vec<Outcome>, Vec<u8>)> {
        match self.kind {
            Some(Kind::Answer) => {}
            Some(Kind::Failed) => return Err(Failure::from_head(&self.head)?.into_error()),
            _ => return Err(odd("another frame is expected")),
        }
        let outcomes = read_outcomes(&self.head)?;
        if outcomes.len() != count {
            return Err(odd("it answers something else"));
        }
        Ok((outcomes, self.payload))
    }

    /// How the one operation ended, unless it failed, and the bytes that were read.
    ///
    /// # Errors
    ///
    /// As [`Answer::outcomes`]; what the server says of the operation.
    pub(super) fn one(self) -> Result<(Outcome, Vec<u8>)> {
        let (mut outcomes, payload) = self.outcomes(1)?;
        match outcomes.pop().expect("there is one") {
            Outcome::Failed(failure) => Err(failure.into_error()),
            outcome => Ok((outcome, payload)),
        }
    }
}

fn leaves_unsynced(operation: &Operation) -> bool {
    match operation {
        Operation::Open(opening) => opening.create != Create::Never,
        Operation::On { what: OnHandle::Publish, .. } => true,
        // No key names it.
        Operation::Draft(_) => false,
        // It is durable when it is answered.
        Operation::SetSuperblock { .. } => false,
        Operation::On { .. } | Operation::Files { .. } => false,
        _ => operation.is_change(),
    }
}

/// An answer that cannot be one.
pub(super) fn odd(reason: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, "read an answer").because(reason)
}

/// Buffers that are filled from their front.
pub(super) struct Filling<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    /// Which buffer is filled, and how far.
    index: usize,
    offset: usize,
    pub(super) filled_bytes: usize,
}

impl<'a, 'b> Filling<'a, 'b> {
    pub(super) fn new(buffers: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { buffers, index: 0, offset: 0, filled_bytes: 0 }
    }

    /// From the beginning again, because the answer is asked for again.
    pub(super) fn restart(&mut self) {
        (self.index, self.offset, self.filled_bytes) = (0, 0, 0);
    }

    /// The next so many bytes, where they are in one buffer.
    pub(super) fn next(&mut self, count: usize) -> Option<&mut [u8]> {
        while self.index < self.buffers.len() && self.offset == self.buffers[self.index].len() {
            self.index += 1;
            self.offset = 0;
        }
        let start = self.offset;
        let buffer = self.buffers.get_mut(self.index)?;
        let space = buffer.get_mut(start..start + count)?;
        self.offset += count;
        self.filled_bytes += count;
        Some(space)
    }

    /// Copies bytes behind what is filled; false where they do not fit.
    pub(super) fn copy(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let Some(buffer) = self.buffers.get(self.index) else { return false };
            let count = bytes.len().min(buffer.len() - self.offset);
            match count {
                0 => (self.index, self.offset) = (self.index + 1, 0),
                _ => {
                    let space = self.next(count).expect("it fits this buffer");
                    space.copy_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_in_parts_is_cut_into_pieces() {
        let mut parts = Parts { parts: &[b"abc", b"", b"defg", b"h"], offset: 0 };
        assert_eq!(parts.piece(5), [&b"abc"[..], b"de"]);
        assert_eq!(parts.piece(5), [&b"fg"[..], b"h"]);
        assert!(parts.piece(5).is_empty());
    }

    #[test]
    fn buffers_are_filled_in_order() {
        let (mut a, mut b) = ([0; 3], [0; 4]);
        let mut buffers = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        let mut filling = Filling::new(&mut buffers);
        assert!(filling.next(4).is_none(), "not in one buffer");
        assert!(filling.copy(b"wxyz"));
        filling.next(3).expect("the rest of the second").copy_from_slice(b"123");
        assert!(filling.next(1).is_none());
        assert!(!filling.copy(b"!"), "full");
        assert_eq!(filling.filled_bytes, 7);
        assert_eq!((&a, &b), (b"wxy", b"z123"));
    }
}
