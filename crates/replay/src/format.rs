// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of traces.

use std::fmt;

use terrace_core::{Error, Result};

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
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
