// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes traces, in the formats that others read.

mod copy;
mod csv;
mod lost;
mod oracle_general;
mod own;
mod recorder;

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use terrace_core::{Error, ErrorKind, Result};

use self::lost::Lost;
use crate::cut::Cut;
use crate::format::Format;
use crate::read::Trace;
use crate::request::Request;

/// The formats that can be written.
pub const WRITABLE: [Format; 3] = [Format::Terrace, Format::OracleGeneral, Format::Csv];

/// What a conversion came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Reads and writes that were read.
    pub read: u64,
    /// Reads and writes that were written.
    pub written: u64,
    /// What is to be said of the trace that was read, and what the format could not hold.
    pub notes: Vec<String>,
}

/// What takes the requests of a trace.
trait Sink {
    fn push(&mut self, request: &Request) -> Result<()>;

    /// Ends what is written.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Writes a part of a trace to a new file, or to a new directory for a trace of our own. `open`
/// opens the trace: for oracleGeneral twice, because each request tells when the next one comes. What
/// makes and ends objects is written where [`crate::Options::has_lives`] asks for it; a trace of our
/// own that becomes another one keeps every event.
///
/// # Errors
///
/// Those of reading; `Exists` where something is there; `Invalid` for a format that cannot be
/// written, or a request that it cannot hold; `NoSpace`, `Denied`, `Io`. What was written by then
/// is left where it is.
pub fn convert(
    open: &dyn Fn() -> Result<Trace>,
    cut: &Cut,
    format: Format,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Converted> {
    let trace = open()?;
    let tells = trace.tells();
    if let (Format::Terrace, Some(directory)) = (format, trace.directory()) {
        return copy::copy(directory, cut, path, progress);
    }
    let mut sink: Box<dyn Sink> = match format {
        Format::Terrace => Box::new(own::Own::create(path)?),
        Format::OracleGeneral => {
            let mut nexts = oracle_general::Nexts::default();
            each(open()?, cut, progress, &mut |request| nexts.push(request))?;
            Box::new(oracle_general::OracleGeneral::new(create(path)?, nexts.finish()))
        }
        Format::Csv => Box::new(csv::Csv::new(create(path)?, tells)?),
        _ => {
            let words = WRITABLE.map(Format::word).join(", ");
            let reason = format!("this format is only read; those that are written: {words}");
            return Err(Error::invalid("write the trace", reason).with("format", format));
        }
    };
    let mut lost = Lost::default();
    let mut converted = each(trace, cut, progress, &mut |request| {
        lost.look(request);
        sink.push(request)
    })?;
    sink.finish()?;
    converted.notes.extend(lost.notes(format, tells));
    Ok(converted)
}

/// Calls `take` with each request of the cut.
fn each(
    mut trace: Trace,
    cut: &Cut,
    progress: &mut dyn FnMut(u64),
    take: &mut dyn FnMut(&Request) -> Result<()>,
) -> Result<Converted> {
    let (mut cut, mut requests, mut converted) = (*cut, Vec::new(), Converted::default());
    loop {
        trace.read(&mut requests)?;
        if requests.is_empty() {
            converted.notes = trace.notes();
            return Ok(converted);
        }
        for request in requests.iter().filter(|request| cut.keeps(request)) {
            take(request)?;
            converted.written += u64::from(request.operation.is_access());
        }
        let accesses = requests.iter().filter(|request| request.operation.is_access());
        converted.read += accesses.count() as u64;
        progress(requests.len() as u64);
    }
}

/// A file that is being written.
struct Target {
    file: BufWriter<File>,
    name: String,
}

fn create(path: &Path) -> Result<Target> {
    let name = path.display().to_string();
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let file =
        file.map_err(|error| Error::from_io("write the trace", error).with("file", &name))?;
    Ok(Target { file: BufWriter::new(file), name })
}

impl Target {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| self.failed(error))
    }

    fn finish(mut self) -> Result<()> {
        self.file.flush().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::from_io("write the trace", error).with("file", &self.name)
    }

    /// A request that the format cannot hold.
    fn unfit(&self, reason: &str, request: u64) -> Error {
        let error = Error::new(ErrorKind::Invalid, "write the trace").because(reason);
        error.with("file", &self.name).with("request", request)
    }
}
