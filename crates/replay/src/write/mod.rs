// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes traces, in the formats that others read.

mod copy;
mod csv;
mod fresh;
mod lost;
mod oracle_general;
mod own;
mod recorder;

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use terrace_core::{Error, ErrorKind, Result};

use self::fresh::Fresh;
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
    /// Notes about the trace that was read, and what the format could not hold.
    pub notes: Vec<String>,
}

/// What takes the requests of a trace.
trait Sink {
    fn push(&mut self, request: &Request) -> Result<()>;

    /// Ends what is written.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Writes a part of a trace to a new file, or to a new directory for a trace of our own, which has
/// its name when it is complete. `again` opens the trace once more: for oracleGeneral, where each
/// request has the time of the next one. `progress` is called with the number of requests read
/// since the call before; once it returns false, nothing is left, and the outcome is `None`. What
/// makes and ends objects is written where [`crate::Options::has_lives`] asks for it; a trace of
/// our own that becomes another one keeps every event.
///
/// # Errors
///
/// Those of reading; `Exists` where something is there; `Invalid` for a format that cannot be
/// written, or a request that it cannot hold; `NoSpace`, `Denied`, `Io`. Nothing is left then.
pub fn convert(
    trace: Trace,
    again: &dyn Fn() -> Result<Trace>,
    cut: &Cut,
    format: Format,
    path: &Path,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Converted>> {
    let fresh = Fresh::new(path)?;
    let converted = write(trace, again, cut, format, &fresh, progress)?;
    // It may have ended because its writer was asked to stop, too.
    match converted.filter(|_| progress(0)) {
        Some(converted) => fresh.finish().map(|()| Some(converted)),
        None => Ok(None),
    }
}

/// Writes the file or directory that gets its name later.
fn write(
    mut trace: Trace,
    again: &dyn Fn() -> Result<Trace>,
    cut: &Cut,
    format: Format,
    fresh: &Fresh,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Converted>> {
    let tells = trace.tells();
    if let (Format::Terrace, Some(directory)) = (format, trace.directory()) {
        return copy::copy(directory, cut, fresh.partial(), progress);
    }
    let mut sink: Box<dyn Sink> = match format {
        Format::Terrace => Box::new(own::Own::new(fresh.partial())),
        Format::OracleGeneral => {
            let mut nexts = oracle_general::Nexts::default();
            if each(trace, cut, progress, &mut |request| nexts.push(request))?.is_none() {
                return Ok(None);
            }
            trace = again()?;
            Box::new(oracle_general::OracleGeneral::new(create(fresh)?, nexts.finish()))
        }
        Format::Csv => Box::new(csv::Csv::new(create(fresh)?, tells)?),
        _ => {
            let words = WRITABLE.map(Format::word).join(", ");
            let reason = format!("this format is only read; those that are written: {words}");
            return Err(Error::invalid("write the trace", reason).with("format", format));
        }
    };
    let mut lost = Lost::default();
    let converted = each(trace, cut, progress, &mut |request| {
        lost.look(request);
        sink.push(request)
    })?;
    sink.finish()?;
    Ok(converted.map(|mut converted| {
        converted.notes.extend(lost.notes(format, tells));
        converted
    }))
}

/// Calls `take` with each request of the cut; `None` where it was stopped before.
fn each(
    mut trace: Trace,
    cut: &Cut,
    progress: &mut dyn FnMut(u64) -> bool,
    take: &mut dyn FnMut(&Request) -> Result<()>,
) -> Result<Option<Converted>> {
    let (mut cut, mut requests, mut converted) = (*cut, Vec::new(), Converted::default());
    loop {
        trace.read(&mut requests)?;
        if requests.is_empty() {
            converted.notes = trace.notes();
            return Ok(Some(converted));
        }
        for request in requests.iter().filter(|request| cut.keeps(request)) {
            take(request)?;
            converted.written += u64::from(request.operation.is_access());
        }
        let accesses = requests.iter().filter(|request| request.operation.is_access());
        converted.read += accesses.count() as u64;
        if !progress(requests.len() as u64) {
            return Ok(None);
        }
    }
}

/// A file that is being written.
struct Target {
    file: BufWriter<File>,
    name: String,
}

fn create(fresh: &Fresh) -> Result<Target> {
    let name = fresh.name();
    let file = OpenOptions::new().write(true).create_new(true).open(fresh.partial());
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
