// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DFTracer's events (Chrome's trace format), a JSON value a line.
//!
//! Reads and writes of the categories POSIX and STDIO are requests; a file is an object, whose number
//! is a hash of its name or of the hash that the trace has for that. Where an event has no offset, it
//! goes on where the last one of the same process and file ended. A client is a thread of a process.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use terrace_core::Result;

use super::ids::object_of;
use super::sorted::Sorted;
use crate::input::Input;
use crate::request::{Operation, Request};

/// Whether the first line is one of such a file.
pub(crate) fn is_sign(first: &[u8]) -> bool {
    first == b"[" || first.starts_with(b"{\"") || first.starts_with(b"[{\"")
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    name: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    cat: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    ph: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    tid: u64,
    /// When it began, and how long it took, in microseconds.
    #[serde(default)]
    ts: u64,
    #[serde(default)]
    dur: u64,
    #[serde(default)]
    args: HashMap<String, Value>,
}

/// The names of arguments that say how much, the most telling first: what a call returned, and what
/// it was asked for.
const LENGTHS: [&str; 4] = ["ret", "bytes", "size", "count"];

/// What is known of those who asked by now.
#[derive(Default)]
struct Askers {
    /// Where the last access of a process to a file ended.
    places: HashMap<(u64, u64), u64>,
    /// The numbers of threads of processes.
    clients: HashMap<(u64, u64), u32>,
}

pub(super) fn read(mut input: Input) -> Result<Sorted> {
    let mut sorted = Sorted::default();
    let mut askers = Askers::default();
    while let Some(line) = input.line()? {
        let line = line.trim_ascii();
        let line = line.strip_prefix(b"[").unwrap_or(line);
        let line = line.strip_suffix(b"]").unwrap_or(line);
        let line = line.strip_suffix(b",").unwrap_or(line).trim_ascii();
        if line.is_empty() {
            continue;
        }
        let event: Event<'_> = match serde_json::from_slice(line) {
            Ok(event) => event,
            Err(error) => {
                let reason = "a line is not an event in JSON; is the trace cut short?";
                return Err(input.wrong(reason).caused_by(error));
            }
        };
        let found = request(&event, &mut askers);
        let name = ["fname", "name"].iter().find_map(|key| event.args.get(*key)?.as_str());
        if let (Ok(Some(request)), Some(name)) = (&found, name) {
            sorted.name(request.object, name.as_bytes());
        }
        if let Some(request) = found.map_err(|reason| input.wrong(reason))? {
            sorted.push(request)?;
        }
    }
    Ok(sorted.finish(Vec::new()))
}

/// The request that an event is, if it is one.
fn request(event: &Event<'_>, askers: &mut Askers) -> Result<Option<Request>, &'static str> {
    let is_io = matches!(event.cat.as_deref(), Some("POSIX" | "STDIO"));
    if event.ph.as_deref() != Some("X") || !is_io {
        return Ok(None);
    }
    let name = event.name.as_deref().unwrap_or_default();
    let file = ["fhash", "fname", "name"].iter().find_map(|key| event.args.get(*key));
    let file = match file {
        Some(Value::String(name)) => object_of(name.as_bytes()),
        Some(Value::Number(number)) => object_of(number.to_string().as_bytes()),
        _ => return Ok(None),
    };
    let place = (event.pid, file);
    let operation = match name {
        "read" | "pread" | "pread64" | "readv" | "preadv" | "fread" => Operation::Read,
        "write" | "pwrite" | "pwrite64" | "writev" | "pwritev" | "fwrite" => Operation::Write,
        "open" | "open64" | "openat" | "fopen" | "fopen64" | "creat" => {
            askers.places.remove(&place);
            return Ok(None);
        }
        _ => return Ok(None),
    };
    let length = LENGTHS.iter().find_map(|key| event.args.get(*key));
    let length_bytes = match length.map(integer) {
        // A call that failed.
        Some(Some(length)) if length < 0 => return Ok(None),
        Some(Some(length)) => length as u64,
        Some(None) => return Err("the length of an access is no number"),
        None => return Err("an access has no length: none of ret, bytes, size, count"),
    };
    let offset_bytes = match event.args.get("offset").map(integer) {
        Some(Some(offset)) if offset >= 0 => offset as u64,
        Some(_) => return Err("the offset of an access is no number"),
        None => askers.places.get(&place).copied().unwrap_or(0),
    };
    askers.places.insert(place, offset_bytes.saturating_add(length_bytes));
    let time_ns = event.ts.checked_mul(1000).ok_or("the time is too late")?;
    let latency_ns = event.dur.checked_mul(1000).ok_or("the duration is too long")?;
    let next = askers.clients.len() as u32;
    let client = *askers.clients.entry((event.pid, event.tid)).or_insert(next);
    Ok(Some(Request {
        time_ns,
        object: file,
        size_bytes: 0,
        offset_bytes,
        length_bytes,
        latency_ns,
        client,
        operation,
    }))
}

/// A whole number, also one that was written as text.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.parse().ok(),
        _ => value.as_i64(),
    }
}
