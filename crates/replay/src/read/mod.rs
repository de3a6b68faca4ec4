// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Readers of traces, one file for each format.

mod columns;
pub(crate) mod csv;
pub(crate) mod dftracer;
pub(crate) mod dxt;
mod events;
mod fixed;
mod ids;
pub(crate) mod lcs;
pub(crate) mod lived;
mod memory;
mod names;
pub(crate) mod oracle_general;
pub(crate) mod own;
mod recognise;
mod sorted;
pub(crate) mod vscsi;
mod windows;

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use terrace_core::{Error, Result};

pub use columns::Columns;
pub use lived::{Lived, LivedTier};

pub(crate) use names::NAMESPACE;
pub(crate) use names::Named;

use crate::format::Format;
use crate::input::Input;
use crate::request::Request;

/// Requests that are read at a time: together with what the caches make of them they stay in the
/// first levels of a processor's caches.
pub(crate) const BATCH: usize = 1024;

/// As much of a file as its format is recognised from: the header of an lcs file.
const START_BYTES: usize = 8192;

/// What some programs write in front of text in UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// How to read a trace.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its format; recognised where none is given.
    pub format: Option<Format>,
    /// Whether what makes, opens, closes, cuts and deletes objects comes, too, where the trace
    /// tells of it; else reads and writes alone.
    pub has_lives: bool,
    /// For text in columns, which column is what; guessed from the heading where none is given.
    pub columns: Option<Columns>,
}

/// A trace that is being read.
pub struct Trace {
    format: Format,
    source: Box<dyn Source>,
    /// Where it is, of a trace of our own.
    directory: Option<PathBuf>,
    /// Of a file of which no request was given yet, what messages call it.
    untold: Option<String>,
}

/// What requests have beside a time, an object and a size, where the trace tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tells {
    /// The client of each request.
    pub(crate) clients: bool,
    /// How long answers took.
    pub(crate) latencies: bool,
}

/// Where requests come from.
pub(crate) trait Source: Send {
    /// Appends requests until there are [`BATCH`]; none at the end.
    fn fill(&mut self, requests: &mut Vec<Request>) -> Result<()>;

    /// What requests have.
    fn tells(&self) -> Tells;

    /// Notes about it that do not make it useless.
    fn notes(&self) -> Vec<String>;

    /// Has it collect what objects are called, from its beginning.
    fn want_names(&mut self) {}

    /// The names of the objects of the requests that were returned since the call before, each
    /// once, where the trace has them, and they are wanted.
    fn take_names(&mut self) -> Vec<(u64, Named)> {
        Vec::new()
    }
}

impl Trace {
    /// Opens a file, or a directory that `terrace trace record` wrote.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Denied`, `Io`; `Invalid` where the format cannot be recognised, or columns do
    /// not fit; `Corrupt`.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        if path.is_dir() {
            if let Some(format) = options.format.filter(|format| *format != Format::Terrace) {
                return Err(Error::invalid(
                    "read the trace",
                    "it is a directory, so of format terrace",
                )
                .with("directory", path.display())
                .with("format", format));
            }
            let source = Box::new(own::Own::open(path, options.has_lives)?);
            let directory = Some(path.into());
            return Ok(Self { format: Format::Terrace, source, directory, untold: None });
        }
        Self::of(Input::open(path)?, options)
    }

    /// Reads from a stream of bytes, which messages call by this name.
    ///
    /// # Errors
    ///
    /// As [`Trace::open`].
    pub fn from_stream(
        stream: Box<dyn Read + Send>,
        name: &str,
        options: &Options,
    ) -> Result<Self> {
        Self::of(Input::new(stream, name.to_string())?, options)
    }

    fn of(mut input: Input, options: &Options) -> Result<Self> {
        let wrong = |input: &Input, reason: String| {
            Err(Error::invalid("read the trace", reason).with("file", input.name()))
        };
        if input.peek(BYTE_ORDER_MARK.len())?.starts_with(&BYTE_ORDER_MARK) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        let start = input.peek(START_BYTES)?;
        let (is_empty, is_part) = (start.is_empty(), terrace_trace::is_file(start));
        let start = start.to_vec();
        let recognised = recognise::recognise(&start, start.len() < START_BYTES, input.name());
        if is_part {
            let reason = "it is a part of a trace: name the directory that it is in";
            return wrong(&input, reason.into());
        }
        let given = options.format.or_else(|| options.columns.is_some().then_some(Format::Csv));
        let Some(format) = given.or(recognised) else {
            let words = Format::ALL.map(Format::word).join(", ");
            let reason = match is_empty {
                true => "it is empty".to_string(),
                false => format!("its format is not recognised; say which it is: {words}"),
            };
            return wrong(&input, reason);
        };
        let name = input.name().to_string();
        let source: Box<dyn Source> = match format {
            Format::Terrace => {
                let reason = "a trace of format terrace is a directory, and this is a file";
                return wrong(&input, reason.into());
            }
            Format::OracleGeneral => Box::new(oracle_general::open(input)),
            Format::Vscsi => Box::new(vscsi::open(input)?),
            Format::Lcs => lcs::open(input)?,
            Format::Csv => Box::new(csv::Csv::open(input, options)?),
            Format::Ids => Box::new(ids::Ids::new(input)),
            Format::Dxt => Box::new(dxt::read(input)?),
            Format::Dftracer => Box::new(dftracer::read(input)?),
        };
        Ok(Self { format, source, directory: None, untold: Some(name) })
    }

    /// Requests of a store that were read before; none any more once `stop` is set.
    pub(crate) fn of_requests(requests: Arc<[Request]>, stop: Arc<AtomicBool>) -> Self {
        let source = Box::new(memory::Memory::new(requests, stop));
        Self { format: Format::Terrace, source, directory: None, untold: None }
    }

    /// Only the requests whose numbers, from 0 on, are in these ranges, which ascend and are apart
    /// from each other. They follow on one another as if there had been nothing between them.
    pub fn windows(self, ranges: Vec<Range<u64>>) -> Self {
        let source = Box::new(windows::Windows::new(self.source, ranges));
        Self { format: self.format, source, directory: None, untold: None }
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What requests have.
    pub(crate) fn tells(&self) -> Tells {
        self.source.tells()
    }

    /// The directory of a trace of our own, all of which is read.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Replaces `requests` by the next ones; by none at the end.
    ///
    /// # Errors
    ///
    /// `Corrupt`, with the record or the line; `Invalid` for a file that has none at all; `Io`.
    pub fn read(&mut self, requests: &mut Vec<Request>) -> Result<()> {
        requests.clear();
        self.source.fill(requests)?;
        match self.untold.take() {
            // It may be of another format than it seems, or have nothing that is read.
            Some(name) if requests.is_empty() => {
                let reason = "there is no request in it";
                let error = Error::invalid("read the trace", reason).with("file", name);
                Err(error.with("format", self.format))
            }
            _ => Ok(()),
        }
    }

    /// See [`Source::want_names`].
    pub(crate) fn want_names(&mut self) {
        self.source.want_names();
    }

    /// See [`Source::take_names`].
    pub(crate) fn take_names(&mut self) -> Vec<(u64, Named)> {
        self.source.take_names()
    }

    /// Notes about what was read so far that do not make it useless.
    pub fn notes(&self) -> Vec<String> {
        self.source.notes()
    }
}

/// The objects of a trace that each name may mean: its number there, its name, or, of a trace that
/// `terrace trace record` wrote, its key, which may have several: one for each of its segments. Of
/// other traces it is not known whether there is such an object.
///
/// # Errors
///
/// As [`Trace::open`] and [`Trace::read`].
pub fn objects_named(path: &Path, names: &[String]) -> Result<Vec<Vec<u64>>> {
    if path.is_dir() {
        return own::named(path, names);
    }
    Ok(names.iter().map(|name| vec![ids::object_of(name.as_bytes())]).collect())
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("format", &self.format).finish_non_exhaustive()
    }
}
