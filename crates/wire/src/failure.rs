// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An error on its way to another process.

use std::io;

use terrace_core::{Applied, Error, ErrorKind, Result};

use crate::codec::{Reader, Writer};

/// Longest message of an error; the rest is cut off.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Most underlying errors that are sent.
const SOURCES_MAX: usize = 16;

/// Codes of the kinds; never given to another kind.
const KINDS: [(u8, ErrorKind); 12] = [
    (1, ErrorKind::NotFound),
    (2, ErrorKind::Exists),
    (3, ErrorKind::NoSpace),
    (4, ErrorKind::Corrupt),
    (5, ErrorKind::Stale),
    (6, ErrorKind::Busy),
    (7, ErrorKind::Unsupported),
    (8, ErrorKind::Denied),
    (9, ErrorKind::Invalid),
    (10, ErrorKind::Unreachable { applied: Applied::No }),
    (11, ErrorKind::Unreachable { applied: Applied::Unknown }),
    (12, ErrorKind::Io),
];

/// An error as it crosses a connection: its kind, its message, and those of the errors underneath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: u8,
    message: String,
    sources: Vec<String>,
}

impl Failure {
    /// What is sent of an error.
    pub fn of(error: &Error) -> Self {
        let (message, sources) = messages(error, MESSAGE_BYTES_MAX);
        let kind = KINDS.iter().find(|(_, kind)| *kind == error.kind());
        // A kind without a code is one that the other side could not know either.
        Self { kind: kind.map_or(12, |(code, _)| *code), message, sources }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        let kind = KINDS.iter().find(|(code, _)| *code == self.kind);
        // What can be done about a kind of a later version is unknown here.
        kind.map_or(ErrorKind::Io, |(_, kind)| *kind)
    }

    /// Leaves only the beginning of the message, and nothing of the errors underneath.
    pub fn shorten(&mut self, bytes_max: usize) {
        self.sources.clear();
        self.message = shorten(std::mem::take(&mut self.message), bytes_max);
    }

    /// The error again; it prints as it did.
    pub fn into_error(self) -> Error {
        relay(self.kind(), &self.message, self.sources)
    }

    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        Writer(bytes).u8(self.kind).text(&self.message).u8(self.sources.len() as u8);
        for source in &self.sources {
            Writer(bytes).text(source);
        }
    }

    pub(crate) fn read(input: &mut Reader<'_>) -> Result<Self> {
        let kind = input.u8()?;
        let message = input.text()?.into();
        let count = usize::from(input.u8()?).min(SOURCES_MAX);
        let sources = (0..count).map(|_| input.text().map(Into::into)).collect::<Result<_>>()?;
        Ok(Self { kind, message, sources })
    }

    /// The head of a [`crate::Kind::Failed`] frame.
    pub fn to_head(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes
    }

    /// Reads what [`Failure::to_head`] wrote. Errors: `Invalid`.
    pub fn from_head(head: &[u8]) -> Result<Self> {
        let mut input = Reader::new(head);
        let failure = Self::read(&mut input)?;
        input.end()?;
        Ok(failure)
    }
}

/// What an error and those underneath say, outermost first, each cut off behind so many bytes.
fn messages(error: &Error, bytes_max: usize) -> (String, Vec<String>) {
    let first = std::error::Error::source(error);
    let sources = std::iter::successors(first, |inner| inner.source());
    let cut = |text| shorten(text, bytes_max);
    let sources = sources.take(SOURCES_MAX).map(|inner| cut(inner.to_string())).collect();
    (cut(error.to_string()), sources)
}

/// An error of another process, from its [`messages`]: prints as it did there.
fn relay(kind: ErrorKind, message: &str, sources: Vec<String>) -> Error {
    let error = Error::relayed(kind, message);
    // The other side is not to decide how deep they nest: they are dropped one inside another.
    let source = sources.into_iter().take(SOURCES_MAX).rev().fold(None, |inner, message| {
        Some(match (inner, os_error(&message)) {
            (None, Some(error)) => Box::new(error) as Source,
            (inner, _) => Box::new(Relayed { message, inner }),
        })
    });
    match source {
        Some(source) => error.caused_by(source),
        None => error,
    }
}

/// The error of the operating system that prints so: its text ends with its number, which is Linux's on both
/// sides. Any other text is none.
fn os_error(message: &str) -> Option<io::Error> {
    let (_, number) = message.strip_suffix(')')?.rsplit_once("(os error ")?;
    let error = io::Error::from_raw_os_error(number.parse().ok()?);
    (error.to_string() == message).then_some(error)
}

fn shorten(mut text: String, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// An error underneath another one.
type Source = Box<dyn std::error::Error + Send + Sync>;

/// An error underneath one of another process.
#[derive(Debug)]
struct Relayed {
    message: String,
    inner: Option<Source>,
}

impl std::fmt::Display for Relayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Relayed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.as_deref().map(|inner| inner as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_prints_on_the_other_side_as_here() {
        let source = std::io::Error::from_raw_os_error(5);
        let error = Error::new(ErrorKind::Io, "write").with("key", "a/b: c").caused_by(source);
        let head = Failure::of(&error).to_head();
        let there = Failure::from_head(&head).expect("legal").into_error();
        assert_eq!((there.kind(), there.chain()), (error.kind(), error.chain()));
    }

    #[test]
    fn the_number_of_the_operating_system_survives() {
        for number in [5, 12, 24, 27, 122] {
            let source = Error::from_io("open", io::Error::from_raw_os_error(number));
            let error = Error::new(ErrorKind::Io, "read").caused_by(source);
            let there = Failure::of(&error).into_error();
            assert_eq!((there.os_error(), there.chain()), (Some(number), error.chain()));
        }
        for odd in
            ["(os error 24)", "Too many open files (os error 5)", "x (os error )", "os error"]
        {
            let error = Error::new(ErrorKind::Io, "read").caused_by(odd);
            let there = Failure::of(&error).into_error();
            assert_eq!((there.os_error(), there.chain()), (None, error.chain()), "{odd}");
        }
    }

    #[test]
    fn every_kind_survives() {
        for (_, kind) in KINDS {
            let there = Failure::of(&Error::new(kind, "go on")).into_error();
            assert_eq!(there.kind(), kind);
        }
    }

    #[test]
    fn long_chains_are_cut() {
        let mut error = Error::invalid("begin", "x".repeat(10_000));
        for _ in 0..100 {
            error = Error::new(ErrorKind::Io, "go on").caused_by(error);
        }
        let head = Failure::of(&error).to_head();
        assert!(head.len() < 100 << 10, "{}", head.len());
        Failure::from_head(&head).expect("legal");
    }
}
