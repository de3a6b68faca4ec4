// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame: a header of fixed length, a head of fields, and bytes.

use terrace_core::{Error, ErrorKind, Result};

use crate::codec::{Reader, Writer, wrong};

/// Version of the protocol that this build speaks, …
pub const VERSION: u16 = 3;

/// … and the oldest one that it still understands.
pub const VERSION_MIN: u16 = 1;

/// The oldest version that knows room behind an end (`End::Stays`), and refuses an operation that it
/// does not know: servers of those before end the connection that it came on.
pub const VERSION_KEEPS_SIZE: u16 = 2;

/// The oldest version in which a server says which opening of its store it serves.
pub const VERSION_TELLS_OPENINGS: u16 = 3;

/// What every frame begins with: tells Terrace from anything else that connects to the port.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TRCE");

/// Length of a header.
pub const HEADER_BYTES: usize = 48;

/// Longest head.
pub const HEAD_BYTES_MAX: usize = 1 << 20;

/// Longest payload of one frame. Small enough that a piece that was just read or received is still
/// in the cache of the processor when it is sent on, summed up or written.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// Longest payload of a request or an answer, over all its frames.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Longest answer to a change that a server keeps, as a frame, in case it was lost. Of longer ones it
/// keeps that they were given.
pub const KEPT_BYTES_MAX: usize = 64 << 10;

/// Longest head from a peer that has not proved that it knows the secret.
pub const GREETING_BYTES_MAX: usize = 512;

/// The head of the last frame of a server that ended in an orderly way: what was sent to it on this
/// connection and got no answer was not carried out, and never will be.
pub const LAST_WORD: &[u8] = &[1];

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// Client: its versions and an unguessable number.
    Hello = 1,
    /// Server: the version that both speak, and its own number.
    Challenge = 2,
    /// Client: proves that it knows the secret.
    Proof = 3,
    /// Server: proves the same, and says what it serves.
    Welcome = 4,
    /// Client: a batch of operations.
    Request = 8,
    /// Server: how each of them ended; the last frame of an answer.
    Answer = 9,
    /// Either: more bytes of the request before it, or of the answer behind it.
    Part = 10,
    /// Client: a call of the control plane.
    Call = 11,
    /// Server: how far a call is; others follow.
    Progress = 12,
    /// Server: the result of a call.
    Result = 13,
    /// Server: a request or call that failed as a whole.
    Failed = 14,
    /// Server: it is about to end. What it has is finished; what is sent from now on goes elsewhere.
    /// With [`LAST_WORD`] as its head it is the last frame of all.
    Farewell = 15,
    /// Server: something that a call tells before it ends; others follow.
    Notice = 16,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::Hello,
        Kind::Challenge,
        Kind::Proof,
        Kind::Welcome,
        Kind::Request,
        Kind::Answer,
        Kind::Part,
        Kind::Call,
        Kind::Progress,
        Kind::Result,
        Kind::Failed,
        Kind::Farewell,
        Kind::Notice,
    ];

    fn of(code: u16) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == code)
    }
}

/// What a frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Which request it belongs to; 0 outside of any.
    pub id: u64,
    /// Of a request: every answer to a smaller number has arrived, so that none of them needs to
    /// be kept. 0 otherwise.
    pub acknowledged: u64,
    /// Requirements of a request, as [`crate::pack_semantics`] makes them. 0 otherwise.
    pub semantics: u32,
    /// Length of the head.
    pub head_bytes: u32,
    /// Length of the payload of this frame.
    pub payload_bytes: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
}

impl Header {
    /// The header of a frame with this head and payload.
    pub fn new(kind: Kind, id: u64, head: &[u8], payload: &[u8]) -> Self {
        Self::of_parts(kind, id, head, &[payload])
    }

    /// The header of a frame whose payload is in parts.
    pub fn of_parts(kind: Kind, id: u64, head: &[u8], parts: &[&[u8]]) -> Self {
        let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
        Self {
            kind,
            id,
            acknowledged: 0,
            semantics: 0,
            head_bytes: head.len() as u32,
            payload_bytes: payload_bytes as u32,
            payload_crc: parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part)),
        }
    }

    /// Appends header and head: what is sent before the payload.
    ///
    /// # Panics
    ///
    /// Where `head` has another length than the header says.
    pub fn write(&self, head: &[u8], bytes: &mut Vec<u8>) {
        assert_eq!(self.head_bytes as usize, head.len());
        let start = bytes.len();
        Writer(bytes).u32(MAGIC).u16(self.kind as u16).u16(0).u64(self.id).u64(self.acknowledged);
        Writer(bytes).u32(self.semantics).u32(self.head_bytes).u32(self.payload_bytes);
        Writer(bytes).u32(self.payload_crc);
        let crc = self.crc(&bytes[start..], head);
        Writer(bytes).u32(crc).u32(0).raw(head);
    }

    /// Reads a header; what it says is within the limits then. Whether it is true is checked
    /// with its head, by [`check_head`].
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no frame, or is too long.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self> {
        let mut input = Reader::new(bytes);
        if input.u32()? != MAGIC {
            return Err(wrong("it does not begin like one; is this a peer of Terrace?"));
        }
        let code = input.u16()?;
        let flags = input.u16()?;
        let header = Self {
            kind: Kind::of(code).ok_or_else(|| wrong("it is of an unknown kind"))?,
            id: input.u64()?,
            acknowledged: input.u64()?,
            semantics: input.u32()?,
            head_bytes: input.u32()?,
            payload_bytes: input.u32()?,
            payload_crc: input.u32()?,
        };
        let _crc = input.u32()?;
        if flags != 0 || input.u32()? != 0 {
            return Err(wrong("a field that must be 0 is not"));
        }
        check_length("head_bytes", header.head_bytes, HEAD_BYTES_MAX)?;
        check_length("payload_bytes", header.payload_bytes, PIECE_BYTES_MAX)?;
        Ok(header)
    }

    fn crc(&self, fields: &[u8], head: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(fields), head)
    }
}

fn check_length(what: &'static str, length: u32, length_max: usize) -> Result<()> {
    if length as usize > length_max {
        return Err(wrong("it is too long").with(what, length).with("bytes_max", length_max));
    }
    Ok(())
}

/// Compares header and head with the checksum in the header.
///
/// # Errors
///
/// `Corrupt`.
pub fn check_head(bytes: &[u8; HEADER_BYTES], head: &[u8]) -> Result<()> {
    const CRC_AT: usize = 40;
    let fields = crc32c::crc32c(&bytes[..CRC_AT]);
    let stored = u32::from_le_bytes(bytes[CRC_AT..CRC_AT + 4].try_into().expect("four bytes"));
    check_crc("head", crc32c::crc32c_append(fields, head), stored)
}

/// Compares a payload with the checksum in its header.
///
/// # Errors
///
/// `Corrupt`.
pub fn check_payload(header: &Header, payload: &[u8]) -> Result<()> {
    check_crc("payload", crc32c::crc32c(payload), header.payload_crc)
}

fn check_crc(part: &'static str, found: u32, expected: u32) -> Result<()> {
    if found != expected {
        return Err(Error::new(ErrorKind::Corrupt, "read a message")
            .because("it was damaged on its way")
            .with("part", part)
            .with("crc32c", format!("{found:08x}"))
            .with("expected", format!("{expected:08x}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header {
            acknowledged: 6,
            semantics: 9,
            ..Header::new(Kind::Request, 7, b"he", b"load")
        };
        let mut bytes = Vec::new();
        header.write(b"he", &mut bytes);
        assert_eq!(bytes.len(), HEADER_BYTES + 2);
        let start = bytes[..HEADER_BYTES].try_into().expect("long enough");
        assert_eq!(Header::read(&start).expect("legal"), header);
        check_head(&start, b"he").expect("true");
        check_payload(&header, b"load").expect("true");
        assert_eq!(check_head(&start, b"ha").expect_err("damaged").kind(), ErrorKind::Corrupt);
        assert_eq!(
            check_payload(&header, b"lead").expect_err("damaged").kind(),
            ErrorKind::Corrupt
        );
    }

    #[test]
    fn every_damaged_bit_of_a_header_is_noticed() {
        let header = Header::new(Kind::Request, 7, b"", b"load");
        let mut bytes = Vec::new();
        header.write(b"", &mut bytes);
        let whole: [u8; HEADER_BYTES] = bytes[..].try_into().expect("as long");
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = whole;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let is_noticed = match Header::read(&damaged) {
                Ok(_) => check_head(&damaged, b"").is_err(),
                Err(_) => true,
            };
            assert!(is_noticed, "bit {bit}");
        }
    }

    #[test]
    fn lengths_beyond_the_limits_are_refused() {
        for (head_bytes, payload_bytes) in
            [(HEAD_BYTES_MAX as u32 + 1, 0), (0, PIECE_BYTES_MAX as u32 + 1), (u32::MAX, u32::MAX)]
        {
            let header = Header { payload_bytes, ..Header::new(Kind::Request, 1, b"", b"") };
            let mut bytes = Vec::new();
            header.write(b"", &mut bytes);
            bytes[28..32].copy_from_slice(&head_bytes.to_le_bytes());
            let start = bytes[..].try_into().expect("as long");
            assert_eq!(Header::read(&start).expect_err("long").kind(), ErrorKind::Invalid);
        }
    }
}
