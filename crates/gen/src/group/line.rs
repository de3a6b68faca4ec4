// SPDX-License-Identifier: Apache-2.0 OR MIT
//! JSON lines over a stream, of bounded length.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// A line with all buckets of a histogram has a tenth of it.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// Lines before the other side has shown that it knows the secret.
pub(crate) const STRANGER_BYTES_MAX: usize = 8 << 10;

/// Sends one line.
pub(crate) fn send(stream: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message).expect("messages are plain values");
    line.push(b'\n');
    stream.write_all(&line).map_err(|error| Error::system("send to another process", error))
}

/// Takes lines off a stream.
#[derive(Debug)]
pub(crate) struct Lines<S> {
    stream: S,
    bytes_max: usize,
    /// What has come and was not taken yet.
    pending: Vec<u8>,
}

impl<S: Read> Lines<S> {
    pub(crate) fn new(stream: S, bytes_max: usize) -> Self {
        Self { stream, bytes_max, pending: Vec::new() }
    }

    /// The next line; `None` at the end of the stream.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.pending[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=searched + end).collect();
                let message = serde_json::from_slice(&line);
                return message.map(Some).map_err(|error| {
                    Error::system("understand another process", io::Error::from(error))
                });
            }
            searched = self.pending.len();
            if searched >= self.bytes_max {
                let error = Error::new("understand another process", "its line is too long");
                return Err(error.with("bytes_max", self.bytes_max));
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                // A line that was cut is the end as well: its sender is gone.
                Ok(0) => return Ok(None),
                Ok(count) => self.pending.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::system("hear another process", error)),
            }
        }
    }

    /// The stream, if nothing of it is left here.
    pub(crate) fn into_stream(self) -> Result<S> {
        if self.pending.is_empty() {
            return Ok(self.stream);
        }
        Err(Error::new("understand another process", "it spoke out of turn"))
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_come_whole_and_end_with_the_stream() {
        let mut lines = Lines::new(&b"1\n[2]\n3"[..], 100);
        assert_eq!(lines.next::<u64>().unwrap(), Some(1));
        assert_eq!(lines.next::<Vec<u64>>().unwrap(), Some(vec![2]));
        assert_eq!(lines.next::<u64>().unwrap(), None, "the third one was cut");
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let endless = std::io::repeat(b'7');
        assert!(Lines::new(endless, 10_000).next::<u64>().is_err());
    }

    #[test]
    fn nothing_is_lost_between_two_readers() {
        let mut lines = Lines::new(&b"1\n2\n"[..], 100);
        lines.next::<u64>().unwrap();
        assert!(lines.into_stream().is_err());
    }
}
