// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DFTracer's events, which are those of Chrome's trace format.
//!
//! Reads and writes of the categories POSIX and STDIO are requests; a file is an object, whose number
//! is a hash of its name or of the hash that the trace has for that. Where an event has no offset, it
//! goes on where the last one of the same process and file ended. A client is a thread of a process.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use terrace_core::Result;

use super::events::Events;
use super::ids::object_of;
use super::sorted::Sorted;
use crate::input::Input;
use crate::request::{Operation, Request};

/// Whether the first line is one of such a file.
pub(crate) fn is_sign(first: &[u8]) -> bool {
    let object = first.strip_prefix(b"[").unwrap_or(first).trim_ascii();
    first == b"[" || object == b"{" || object.starts_with(b"{\"")
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    name: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    cat: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    ph: Option<std::borrow::Cow<'a, str>>,
    /// Numbers; tools other than DFTracer have texts.
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
    /// When it began, and how long it took, in microseconds.
    #[serde(default)]
    ts: Option<Value>,
    #[serde(default)]
    dur: Option<Value>,
    #[serde(default)]
    args: Option<HashMap<String, Value>>,
}

/// The names of arguments that say how much, the most telling first: what a call returned, and what
/// it was asked for.
const LENGTHS: [&str; 4] = ["ret", "bytes", "size", "count"];

/// What is known of the clients so far.
#[derive(Default)]
struct Askers {
    /// Where the last access of a process to a file ended.
    places: HashMap<(u64, u64), u64>,
    /// The numbers of threads of processes.
    clients: HashMap<(u64, u64), u32>,
}

pub(super) fn read(input: Input) -> Result<Sorted> {
    let mut sorted = Sorted::default();
    let mut askers = Askers::default();
    let (mut events, mut count) = (Events::new(input), 0_u64);
    while let Some(text) = events.next()? {
        let parsed: serde_json::Result<Event<'_>> = serde_json::from_slice(text);
        let (found, name) = match &parsed {
            Ok(event) => {
                let argument = |key: &&str| event.args.as_ref()?.get(*key)?.as_str();
                let name = ["fname", "name"].iter().find_map(argument);
                (request(event, &mut askers), name.map(str::to_string))
            }
            Err(_) => (Ok(None), None),
        };
        if let Err(error) = parsed {
            return Err(events.wrong("this is not an event in JSON").caused_by(error));
        }
        let Some(request) = found.map_err(|reason| events.wrong(reason))? else { continue };
        if let Some(name) = name {
            sorted.name(request.object, name.as_bytes());
        }
        sorted.push(request)?;
        count += 1;
    }
    if count == 0 {
        let reason = "none of its events is a read or write of category POSIX or STDIO with `ph` X";
        return Err(events.wrong_whole(reason).with("events", events.count()));
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
    let argument = |key: &str| event.args.as_ref()?.get(key);
    let file = ["fhash", "fname", "name"].into_iter().find_map(argument);
    let file = match file {
        Some(Value::String(name)) => object_of(name.as_bytes()),
        Some(Value::Number(number)) => object_of(number.to_string().as_bytes()),
        _ => return Ok(None),
    };
    let process = number_of(&event.pid);
    let place = (process, file);
    let operation = match name {
        "read" | "pread" | "pread64" | "readv" | "preadv" | "fread" => Operation::Read,
        "write" | "pwrite" | "pwrite64" | "writev" | "pwritev" | "fwrite" => Operation::Write,
        "open" | "open64" | "openat" | "fopen" | "fopen64" | "creat" => {
            askers.places.remove(&place);
            return Ok(None);
        }
        _ => return Ok(None),
    };
    let length = LENGTHS.into_iter().find_map(argument);
    let length_bytes = match length.map(integer) {
        // A call that failed.
        Some(Some(length)) if length < 0 => return Ok(None),
        Some(Some(length)) => length as u64,
        Some(None) => return Err("the length of an access is no number"),
        None => return Err("an access has no length: none of ret, bytes, size, count"),
    };
    let offset_bytes = match argument("offset").map(integer) {
        Some(Some(offset)) if offset >= 0 => offset as u64,
        Some(_) => return Err("the offset of an access is no number"),
        None => askers.places.get(&place).copied().unwrap_or(0),
    };
    askers.places.insert(place, offset_bytes.saturating_add(length_bytes));
    let time_ns = nanoseconds(event.ts.as_ref()).ok_or("the time is none, or too late")?;
    let latency_ns = nanoseconds(event.dur.as_ref()).ok_or("the duration is none, or too long")?;
    let next = askers.clients.len() as u32;
    let client = *askers.clients.entry((process, number_of(&event.tid))).or_insert(next);
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

/// Microseconds, which may have a fraction, in nanoseconds; none are 0.
fn nanoseconds(microseconds: Option<&Value>) -> Option<u64> {
    let Some(value) = microseconds else { return Some(0) };
    match (value.as_u64(), value.as_f64()) {
        (Some(whole), _) => whole.checked_mul(1000),
        (None, Some(part)) if (0.0..1e16).contains(&part) => Some((part * 1000.0).round() as u64),
        _ => None,
    }
}

/// The number of a process or thread, or one for its name.
fn number_of(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        value => value.as_u64().unwrap_or_else(|| object_of(value.to_string().as_bytes())),
    }
}

/// A whole number, also one that was written as text.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.parse().ok(),
        _ => value.as_i64(),
    }
}
