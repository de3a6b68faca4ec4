// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of a trace in Chrome's format, one after the other, wherever its lines end: objects, an
//! array of them, or a document with such an array as its `traceEvents`.

use terrace_core::{Error, Result};

use crate::input::Input;

/// Longest event, and longest beginning of a document in front of its events.
const EVENT_BYTES_MAX: usize = 64 << 10;

/// What is looked at once.
const PIECE_BYTES: usize = 1 << 10;

/// The key of the array in a document.
const EVENTS_KEY: &[u8] = b"\"traceEvents\"";

const CUT_SHORT: &str = "an event does not end: is the trace cut short?";

const NO_EVENT: &str = "this is not an event in JSON; is the trace cut short?";

/// Where in a file this is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In no document, as far as was seen.
    Plain,
    /// Among the events of a document.
    Document,
    /// Behind them, up to the end of the document. Another one may follow.
    Behind,
}

/// Takes events out of an input.
pub(super) struct Events {
    input: Input,
    place: Place,
    /// The event so far.
    text: Vec<u8>,
    /// Brackets that are open in it.
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    count: u64,
    /// Whether the next object may be a document: none was an event of its own so far.
    may_be_document: bool,
    line: u64,
    /// Where the event begins.
    event_line: u64,
}

impl Events {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            place: Place::Plain,
            text: Vec::new(),
            depth: 0,
            is_in_string: false,
            is_escaped: false,
            count: 0,
            may_be_document: true,
            line: 1,
            event_line: 1,
        }
    }

    /// How many there were so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// An error about the last of them.
    pub(super) fn wrong(&self, reason: &str) -> Error {
        self.input.corrupt(reason).with("event", self.count).with("line", self.event_line)
    }

    /// An error about all of them.
    pub(super) fn wrong_whole(&self, reason: &str) -> Error {
        Error::invalid("read the trace", reason).with("file", self.input.name())
    }

    /// The text of the next one; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        self.text.clear();
        loop {
            let seen = self.input.peek(1)?;
            if seen.is_empty() {
                return match (self.depth, self.place) {
                    (0, Place::Plain) => Ok(None),
                    (0, Place::Document) => {
                        Err(self.input.corrupt("its events do not end: it is cut short"))
                    }
                    (_, Place::Behind) => {
                        Err(self.input.corrupt("it is cut short behind its events"))
                    }
                    _ => Err(self.next_is_wrong(CUT_SHORT)),
                };
            }
            let piece: Vec<u8> = seen[..seen.len().min(PIECE_BYTES)].to_vec();
            let (taken, is_whole) = self.take(&piece).map_err(|why| self.next_is_wrong(why))?;
            self.input.consume(taken);
            if is_whole {
                self.count += 1;
                return Ok(Some(&self.text));
            }
        }
    }

    fn next_is_wrong(&self, reason: &str) -> Error {
        let line = if self.depth > 0 { self.event_line } else { self.line };
        self.input.corrupt(reason).with("event", self.count + 1).with("line", line)
    }

    /// Takes bytes until an event is whole; how many these were, and whether it is.
    fn take(&mut self, piece: &[u8]) -> Result<(usize, bool), &'static str> {
        for (index, byte) in piece.iter().enumerate() {
            self.line += u64::from(*byte == b'\n');
            match (self.place, self.depth) {
                (Place::Behind, _) => self.behind(*byte),
                (_, 0) => self.between(*byte)?,
                _ => self.within(*byte)?,
            }
            if self.depth == 0 && !self.text.is_empty() {
                self.may_be_document = false;
                return Ok((index + 1, true));
            }
        }
        Ok((piece.len(), false))
    }

    /// A byte outside of events.
    fn between(&mut self, byte: u8) -> Result<(), &'static str> {
        match byte {
            b'{' => {
                self.event_line = self.line;
                self.text.push(byte);
                self.depth = 1;
            }
            b']' if self.place == Place::Document => (self.place, self.depth) = (Place::Behind, 1),
            b'[' | b']' | b',' => {}
            _ if byte.is_ascii_whitespace() => {}
            _ => return Err(NO_EVENT),
        }
        Ok(())
    }

    /// A byte of an event.
    fn within(&mut self, byte: u8) -> Result<(), &'static str> {
        if self.text.len() >= EVENT_BYTES_MAX {
            return Err("an event is longer than 64 KiB");
        }
        self.text.push(byte);
        let is_first = self.depth == 1 && self.place == Place::Plain && self.may_be_document;
        if byte == b'[' && !self.is_in_string && is_first && is_document(&self.text) {
            self.place = Place::Document;
            self.text.clear();
            self.depth = 0;
        } else {
            self.follow(byte);
        }
        Ok(())
    }

    /// A byte of a document behind its events.
    fn behind(&mut self, byte: u8) {
        self.follow(byte);
        if self.depth == 0 {
            (self.place, self.may_be_document) = (Place::Plain, true);
        }
    }

    fn follow(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.is_in_string => self.is_escaped = true,
            b'"' => self.is_in_string = !self.is_in_string,
            _ if self.is_in_string => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
    }
}

/// Whether an object so far is a document whose events begin with its last byte.
fn is_document(text: &[u8]) -> bool {
    let before = text.strip_suffix(b"[").unwrap_or(text).trim_ascii_end();
    before.strip_suffix(b":").is_some_and(|key| key.trim_ascii_end().ends_with(EVENTS_KEY))
}
