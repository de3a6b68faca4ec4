// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Readers of traces, from bytes that are made here.

mod any_bytes;
mod records;
mod text;

use std::io::Cursor;

use terrace_core::{Error, Result};
use terrace_replay::{Columns, Format, Options, Request, Trace};

/// Reads all requests of a trace; the format that it was taken for.
fn read(bytes: &[u8], options: &Options) -> Result<(Format, Vec<Request>, Vec<String>)> {
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let mut trace = Trace::from_stream(stream, "test", options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        trace.read(&mut batch)?;
        if batch.is_empty() {
            return Ok((trace.format(), all, trace.notes()));
        }
        all.append(&mut batch);
    }
}

/// Reads a trace whose format is recognised.
fn requests(bytes: &[u8]) -> (Format, Vec<Request>) {
    let (format, requests, notes) = read(bytes, &Options::default()).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    (format, requests)
}

/// Why bytes of a format cannot be read.
fn refusal(bytes: &[u8], format: Format) -> Error {
    read(bytes, &Options { format: Some(format), ..Options::default() }).unwrap_err()
}

fn with_columns(bytes: &[u8], columns: &str) -> Result<Vec<Request>> {
    let columns = Some(Columns::parse(columns)?);
    Ok(read(bytes, &Options { columns, ..Options::default() })?.1)
}
