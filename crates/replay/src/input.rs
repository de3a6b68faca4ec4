// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a trace, unpacked where they are packed, with a look ahead.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use terrace_core::{Error, ErrorKind, Result};

/// What is read at a time: fits in the second-level cache beside what is made of it.
const BUFFER_BYTES: usize = 128 << 10;

/// Longest line.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// What packed a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packer {
    Gzip,
    Zstd,
}

impl Packer {
    /// First bytes that are looked at.
    const MAGIC_BYTES: usize = 4;

    /// What packed a file that begins with these bytes, if anything did (RFC 1952, section 2.3.1;
    /// RFC 8878, sections 3.1.1 and 3.1.2: a frame, or one to be passed over).
    fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Packer::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Some(Packer::Zstd)
            }
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Packer::Gzip => "gzip",
            Packer::Zstd => "zstd",
        }
    }
}

/// Reads a file, or anything else, forwards.
pub(crate) struct Input {
    stream: Box<dyn Read + Send>,
    packer: Option<Packer>,
    /// For messages.
    name: String,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    is_over: bool,
    /// Lines that were taken.
    lines: u64,
}

impl Input {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path)
            .map_err(|error| Error::from_io("open the trace", error).with("file", &name))?;
        Self::new(Box::new(file), name)
    }

    /// Reads from a stream; if gzip or zstd packed it, what was in it.
    pub(crate) fn new(stream: Box<dyn Read + Send>, name: String) -> Result<Self> {
        let mut input = Self::plain(stream, None, name);
        let Some(packer) = Packer::of(input.peek(Packer::MAGIC_BYTES)?) else { return Ok(input) };
        let Self { stream, name, buffer, end, .. } = input;
        let packed = io::Cursor::new(buffer).take(end as u64).chain(stream);
        let unpacked: Box<dyn Read + Send> = match packer {
            Packer::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Packer::Zstd => {
                let decoder = zstd::Decoder::new(packed);
                Box::new(decoder.map_err(|error| Error::from_io("unpack the trace", error))?)
            }
        };
        Ok(Self::plain(unpacked, Some(packer), name))
    }

    fn plain(stream: Box<dyn Read + Send>, packer: Option<Packer>, name: String) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { stream, packer, name, buffer, start: 0, end: 0, is_over: false, lines: 0 }
    }

    /// What is next: at least this much, or all that is left.
    pub(crate) fn peek(&mut self, bytes: usize) -> Result<&[u8]> {
        debug_assert!(bytes <= self.buffer.len(), "nobody asks for more than there is room for");
        if self.end - self.start < bytes && !self.is_over {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < bytes && !self.is_over {
                match self.stream.read(&mut self.buffer[self.end..]) {
                    Ok(0) => self.is_over = true,
                    Ok(read) => self.end += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.failed(error)),
                }
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Steps over bytes that were seen.
    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start, "only what was seen");
        self.start += bytes;
    }

    /// The next line, without its end; `None` behind the last.
    pub(crate) fn line(&mut self) -> Result<Option<&[u8]>> {
        let seen = self.peek(1)?;
        if seen.is_empty() {
            return Ok(None);
        }
        let mut end = seen.iter().position(|byte| *byte == b'\n');
        if end.is_none() {
            let seen = self.peek(LINE_BYTES_MAX)?;
            end = seen.iter().position(|byte| *byte == b'\n');
            if end.is_none() && seen.len() >= LINE_BYTES_MAX {
                let reason = format!("a line is longer than {} KiB", LINE_BYTES_MAX >> 10);
                return Err(self.wrong_line(self.lines + 1, &reason));
            }
        }
        let from = self.start;
        let (length, step) = match end {
            Some(end) => (end, end + 1),
            None => (self.end - from, self.end - from),
        };
        self.start += step;
        self.lines += 1;
        let line = &self.buffer[from..from + length];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// An error about the line that was taken last.
    pub(crate) fn wrong(&self, reason: &str) -> Error {
        self.wrong_line(self.lines, reason)
    }

    /// An error about a record, which are counted from 1.
    pub(crate) fn wrong_record(&self, record: u64, reason: &str) -> Error {
        self.corrupt(reason).with("record", record)
    }

    /// An error about the whole.
    pub(crate) fn corrupt(&self, reason: &str) -> Error {
        Error::new(ErrorKind::Corrupt, "read the trace").because(reason).with("file", &self.name)
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn wrong_line(&self, line: u64, reason: &str) -> Error {
        self.corrupt(reason).with("line", line)
    }

    fn failed(&self, error: io::Error) -> Error {
        // What the system says is not about what is in the file.
        let packer = self.packer.filter(|_| error.raw_os_error().is_none()).map(Packer::word);
        match (packer, error.kind()) {
            (Some(packer), io::ErrorKind::UnexpectedEof) => {
                self.corrupt(&format!("it ends within what {packer} packed: it is cut short"))
            }
            (Some(packer), _) => {
                let other = match self.packer {
                    // A window beyond 128 MiB is legal.
                    Some(Packer::Zstd) => ", or was packed with `--long`",
                    _ => "",
                };
                let reason = format!("{packer} cannot unpack it: it is damaged{other}");
                self.corrupt(&reason).caused_by(error)
            }
            _ => Error::from_io("read the trace", error).with("file", &self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn input(bytes: &[u8]) -> Input {
        Input::new(Box::new(io::Cursor::new(bytes.to_vec())), "test".into()).unwrap()
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn lines_end_in_every_way() {
        let mut input = input(b"one\r\n\nthree\nfour");
        for line in ["one", "", "three", "four"] {
            assert_eq!(input.line().unwrap(), Some(line.as_bytes()));
        }
        assert_eq!(input.line().unwrap(), None);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused() {
        let error = input(&vec![b'x'; 2 * LINE_BYTES_MAX]).line().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().ends_with("file=test line=1"), "{error}");
    }

    fn packed_by_zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 3).unwrap()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        // What pzstd puts in front of each of its frames.
        let passed_over = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7];
        for parts in [
            [packed(b"one\n"), packed(b"two\n")].concat(),
            [packed_by_zstd(b"one\n"), packed_by_zstd(b"two\n")].concat(),
            [&passed_over[..], &packed_by_zstd(b"one\ntwo\n")].concat(),
        ] {
            let mut input = input(&parts);
            assert_eq!(input.line().unwrap(), Some(&b"one"[..]));
            assert_eq!(input.line().unwrap(), Some(&b"two"[..]));
            assert_eq!(input.line().unwrap(), None);
        }
    }

    /// Why a file cannot be read to its end.
    fn refusal(bytes: &[u8]) -> String {
        let mut input = input(bytes);
        loop {
            match input.peek(BUFFER_BYTES) {
                Ok(seen) => {
                    let bytes = seen.len();
                    assert!(bytes > 0, "an end without an error");
                    input.consume(bytes);
                }
                Err(error) => return error.to_string(),
            }
        }
    }

    #[test]
    fn a_packed_file_that_is_cut_short_says_so() {
        for bytes in [packed(&vec![7; 100_000]), packed_by_zstd(&vec![7; 100_000])] {
            let error = refusal(&bytes[..bytes.len() / 2]);
            assert!(error.contains("cut short"), "{error}");
        }
    }

    #[test]
    fn a_packed_file_that_is_damaged_says_so() {
        let mut random = terrace_core::Random::new(1);
        let content: Vec<u8> = (0..100_000).map(|_| random.below(16) as u8).collect();
        for (mut bytes, packer) in [(packed(&content), "gzip"), (packed_by_zstd(&content), "zstd")]
        {
            bytes[20..200].fill(0xff);
            let error = refusal(&bytes);
            assert!(error.contains(&format!("{packer} cannot unpack it")), "{error}");
        }
    }
}
