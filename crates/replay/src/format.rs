// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of traces, and how to tell them apart.

use std::fmt;

use terrace_core::{Error, Result};

use crate::read::{csv, dftracer, dxt, lcs, oracle_general, vscsi};

/// A kind of trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A directory that `terrace trace record` wrote.
    Terrace,
    /// 24 bytes a request: time, object, size, next request for it.
    OracleGeneral,
    /// Requests of a virtual disk, of version 1 or 2.
    Vscsi,
    /// libCacheSim's own, versions 1 to 8.
    Lcs,
    /// Text in columns.
    Csv,
    /// An object a line.
    Ids,
    /// What `darshan-dxt-parser` prints.
    Dxt,
    /// DFTracer's events, or others of Chrome's trace format.
    Dftracer,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 8] = [
        Format::Terrace,
        Format::OracleGeneral,
        Format::Vscsi,
        Format::Lcs,
        Format::Csv,
        Format::Ids,
        Format::Dxt,
        Format::Dftracer,
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Format::Terrace => "terrace",
            Format::OracleGeneral => "oracleGeneral",
            Format::Vscsi => "vscsi",
            Format::Lcs => "lcs",
            Format::Csv => "csv",
            Format::Ids => "ids",
            Format::Dxt => "dxt",
            Format::Dftracer => "dftracer",
        }
    }

    /// The format with this word.
    ///
    /// # Errors
    ///
    /// `Invalid`, with all words.
    pub fn from_word(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.word().eq_ignore_ascii_case(word)).ok_or_else(
            || {
                let words = Self::ALL.map(Self::word).join(", ");
                let reason = format!("there is no such format; there are {words}");
                Error::invalid("choose the format", reason).with("format", word)
            },
        )
    }

    /// The format of a file with this name that begins with these bytes, as far as they tell.
    /// `is_all` where the file has no more than these.
    pub(crate) fn recognise(start: &[u8], is_all: bool, name: &str) -> Option<Self> {
        if lcs::begins(start) {
            return Some(Format::Lcs);
        }
        // First of those that nothing marks: where it fits, nothing else does.
        if oracle_general::is_certain(start, is_all) {
            return Some(Format::OracleGeneral);
        }
        if is_text(start) {
            return of_text(start, is_all);
        }
        match () {
            () if oracle_general::is_named(name) => Some(Format::OracleGeneral),
            () if vscsi::is_likely(start) => Some(Format::Vscsi),
            () if oracle_general::is_likely(start) => Some(Format::OracleGeneral),
            () => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

fn of_text(start: &[u8], is_all: bool) -> Option<Format> {
    let mut lines: Vec<&[u8]> = start.split(|byte| *byte == b'\n').collect();
    if !is_all && lines.len() > 1 {
        // The last one goes on behind what is seen.
        lines.pop();
    }
    let lines = lines.iter().map(|line| line.trim_ascii());
    let mut lines = lines.filter(|line| !line.is_empty()).peekable();
    let first = *lines.peek()?;
    match () {
        () if lines.clone().any(dxt::is_sign) => Some(Format::Dxt),
        () if dftracer::is_sign(first) => Some(Format::Dftracer),
        () if csv::is_likely(lines.clone()) => Some(Format::Csv),
        // Names may be numbers or words, but there is one on a line.
        () if lines.all(|line| !line.contains(&b' ')) => Some(Format::Ids),
        () => None,
    }
}

/// Whether these bytes are text, as traces in text are.
fn is_text(start: &[u8]) -> bool {
    let is_odd = |byte: &u8| *byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t');
    !start.is_empty() && !start.iter().any(is_odd)
}
