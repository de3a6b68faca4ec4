// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on a stream of bytes.

use std::io::{self, IoSlice, Read, Write};

use terrace_core::{Applied, Error, ErrorKind, Result};

use crate::codec::wrong;
use crate::frame::{HEADER_BYTES, Header, Kind, check_head, check_payload};

/// What is read ahead: many small frames come with one call of the operating system.
const AHEAD_BYTES: usize = 8 << 10;

/// Reads frames, small ones many at a time and the payloads of large ones into their place.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
}

/// What comes next on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A frame.
    Frame(Start),
    /// Nothing came within the stream's read timeout.
    Idle,
    /// The stream ended.
    End,
}

/// The start of a frame: its header and head. The payload has not been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// What the frame says of itself.
    pub header: Header,
    /// Its fields.
    pub head: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// A reader at the start of a frame.
    pub fn new(stream: R) -> Self {
        Self { stream, ahead: vec![0; AHEAD_BYTES].into(), start: 0, end: 0 }
    }

    /// What it reads from.
    pub fn stream(&self) -> &R {
        &self.stream
    }

    /// Whether a part of the next frame has been read ahead.
    pub fn has_more(&self) -> bool {
        self.start < self.end
    }

    /// Whether the next frame has been read ahead as a whole, so that reading it does not wait.
    pub fn has_whole(&self) -> bool {
        let ahead = &self.ahead[self.start..self.end];
        ahead.first_chunk::<HEADER_BYTES>().is_some_and(|bytes| match Header::read(bytes) {
            Ok(header) => {
                let rest_bytes = header.head_bytes as usize + header.payload_bytes as usize;
                ahead.len() - HEADER_BYTES >= rest_bytes
            }
            // Reading it says why not.
            Err(_) => true,
        })
    }

    /// Reads header and head of the next frame.
    ///
    /// # Errors
    ///
    /// `Invalid` (not a frame, or a head longer than `head_bytes_max`), `Corrupt`, `Unreachable`
    /// where the stream fails or ends within the frame.
    pub fn next(&mut self, head_bytes_max: usize) -> Result<Next> {
        let mut bytes = [0; HEADER_BYTES];
        if let Some(nothing) = self.fill(&mut bytes, true)? {
            return Ok(nothing);
        }
        let header = Header::read(&bytes)?;
        if header.head_bytes as usize > head_bytes_max {
            return Err(wrong("its head is too long")
                .with("head_bytes", header.head_bytes)
                .with("bytes_max", head_bytes_max));
        }
        let mut head = vec![0; header.head_bytes as usize];
        self.fill(&mut head, false)?;
        check_head(&bytes, &head)?;
        Ok(Next::Frame(Start { header, head }))
    }

    /// Reads the payload of a frame into `buffer`, which is as long, and checks it.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Unreachable`; the buffer then holds anything.
    ///
    /// # Panics
    ///
    /// Where the buffer has another length.
    pub fn payload(&mut self, header: &Header, buffer: &mut [u8]) -> Result<()> {
        assert_eq!(buffer.len(), header.payload_bytes as usize);
        self.fill(buffer, false)?;
        check_payload(header, buffer)
    }

    /// Appends the payload of a frame to `bytes`. Errors as [`FrameReader::payload`].
    pub fn payload_behind(&mut self, header: &Header, bytes: &mut Vec<u8>) -> Result<()> {
        let start = bytes.len();
        bytes.resize(start + header.payload_bytes as usize, 0);
        self.payload(header, &mut bytes[start..])
    }

    /// Fills the buffer, unless nothing comes before its first byte and that is allowed.
    fn fill(&mut self, buffer: &mut [u8], may_lack: bool) -> Result<Option<Next>> {
        let mut done = 0;
        while done < buffer.len() {
            let ahead = &self.ahead[self.start..self.end];
            if !ahead.is_empty() {
                let count = ahead.len().min(buffer.len() - done);
                buffer[done..done + count].copy_from_slice(&ahead[..count]);
                self.start += count;
                done += count;
                continue;
            }
            let is_large = buffer.len() - done >= AHEAD_BYTES;
            let read = match is_large {
                true => self.stream.read(&mut buffer[done..]),
                false => self.stream.read(&mut self.ahead),
            };
            match read {
                Ok(0) if done == 0 && may_lack => return Ok(Some(Next::End)),
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) if is_large => done += count,
                Ok(count) => (self.start, self.end) = (0, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if done == 0 && may_lack && is_late(&error) => {
                    return Ok(Some(Next::Idle));
                }
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(None)
    }
}

/// Sends a frame: header and head, which `start` holds, and a payload in parts.
///
/// # Errors
///
/// `Unreachable`.
pub fn send(stream: &mut impl Write, start: &[u8], parts: &[&[u8]]) -> Result<()> {
    let parts = [start].into_iter().chain(parts.iter().copied());
    let mut slices: Vec<_> = parts.filter(|part| !part.is_empty()).map(IoSlice::new).collect();
    let mut slices = &mut slices[..];
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(0) => return Err(lost(io::ErrorKind::WriteZero.into())),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(lost(error)),
        }
    }
    Ok(())
}

/// The bytes of a frame without a payload.
pub fn small_frame(kind: Kind, id: u64, head: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + head.len());
    Header::new(kind, id, head, b"").write(head, &mut bytes);
    bytes
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A connection that broke. Whether what was sent was carried out is for the caller to say.
fn lost(source: io::Error) -> Error {
    let error =
        Error::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "exchange messages");
    let error =
        if is_late(&source) { error.because("the other side does not answer") } else { error };
    error.caused_by(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HEAD_BYTES_MAX;

    /// Gives one byte at a time.
    struct Drops<'a>(&'a [u8]);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }

    fn frames() -> Vec<u8> {
        let mut stream = Vec::new();
        for (id, payload) in [(1, vec![]), (2, vec![7; 5]), (3, vec![8; 100_000])] {
            let mut start = Vec::new();
            Header::new(Kind::Request, id, b"head", &payload).write(b"head", &mut start);
            send(&mut stream, &start, &[&payload]).expect("a list takes everything");
        }
        stream
    }

    fn read_all(stream: impl Read) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut reader = FrameReader::new(stream);
        let mut found = Vec::new();
        while let Next::Frame(start) = reader.next(HEAD_BYTES_MAX)? {
            assert_eq!(start.head, b"head");
            let mut payload = Vec::new();
            reader.payload_behind(&start.header, &mut payload)?;
            found.push((start.header.id, payload));
        }
        Ok(found)
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let frames = frames();
        let expected = [(1, vec![]), (2, vec![7; 5]), (3, vec![8; 100_000])];
        assert_eq!(read_all(&frames[..]).expect("whole"), expected);
        assert_eq!(read_all(Drops(&frames)).expect("whole"), expected);
    }

    #[test]
    fn it_is_known_whether_the_next_frame_is_whole() {
        let frames = frames();
        let small_bytes = 2 * (HEADER_BYTES + 4) + 5;
        let mut reader = FrameReader::new(&frames[..small_bytes]);
        assert!(!reader.has_whole(), "nothing was read ahead");
        reader.next(HEAD_BYTES_MAX).expect("the first");
        assert!(reader.has_whole());
        let mut reader = FrameReader::new(&frames[..small_bytes - 1]);
        reader.next(HEAD_BYTES_MAX).expect("the first");
        assert!(!reader.has_whole(), "a byte lacks");
        let junk = [&frames[..HEADER_BYTES + 4], &[0xff; HEADER_BYTES]].concat();
        let mut reader = FrameReader::new(&junk[..]);
        reader.next(HEAD_BYTES_MAX).expect("the first");
        assert!(reader.has_whole(), "reading it fails without waiting");
        reader.next(HEAD_BYTES_MAX).expect_err("no frame");
    }

    #[test]
    fn a_stream_that_ends_within_a_frame_is_lost() {
        let frames = frames();
        for end in [1, HEADER_BYTES - 1, HEADER_BYTES + 3, frames.len() - 1] {
            let error = read_all(&frames[..end]).expect_err("cut");
            assert_eq!(error.kind(), ErrorKind::Unreachable { applied: Applied::Unknown });
        }
    }

    #[test]
    fn a_long_head_is_refused_before_it_is_read() {
        let head = vec![0; 1000];
        let frame = small_frame(Kind::Hello, 0, &head);
        let mut reader = FrameReader::new(&frame[..HEADER_BYTES]);
        assert_eq!(reader.next(512).expect_err("long").kind(), ErrorKind::Invalid);
    }
}
