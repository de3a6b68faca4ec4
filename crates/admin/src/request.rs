// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests for operations, and their answers. Specified in `docs/formats/control.md`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use terrace_core::{Access, Applied, Error, ErrorKind, Key, Result};
use terrace_server::{Call, Called};
use terrace_settings::policy::nanoseconds;
use terrace_settings::{Guest, PolicySource};
use terrace_stack::{MoveKind, MoveTicket, ScrubOptions, WatchFilter};

use crate::reports::{Recording, first_places};

/// Gets how much is done, and of how much, now and then. False ends a scrub of a store that this process owns;
/// nothing else heeds it.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// A request for an operation, and what its client may do.
pub struct Request<'a> {
    /// The verb and the members.
    content: Value,
    /// Bytes that belong to it.
    pub(crate) body: &'a [u8],
    access: Access,
    is_local: bool,
}

impl<'a> Request<'a> {
    /// A request that is to be sent.
    pub(crate) fn new(operation: &str, body: &'a [u8]) -> Self {
        let content = json!({ "verb": operation.replace('_', "-") });
        Self { content, body, access: Access::Write, is_local: true }
    }

    /// The same with an argument.
    pub(crate) fn with<'b, A: Argument<'b>>(mut self, name: &str, argument: A) -> Result<Self> {
        match (argument.send()?, &mut self.content, A::UNIT) {
            (Value::Object(members), Value::Object(all), None) => all.extend(members),
            (value, all, unit) => all[[name, unit.unwrap_or_default()].concat()] = value,
        }
        Ok(self)
    }

    /// Reads a request that was received. Errors: `Invalid` for what is none.
    pub fn read(call: &Call<'a>) -> Result<Self> {
        let content = serde_json::from_slice(call.json).map_err(not_a_call)?;
        Ok(Self { content, body: call.body, access: call.access, is_local: call.is_local })
    }

    /// The operation, as [`Admin`](crate::Admin) names it.
    pub fn operation(&self) -> String {
        self.content["verb"].as_str().unwrap_or_default().replace('-', "_")
    }

    /// An argument as it was received. Errors: `Invalid` for another type.
    pub fn argument<'b, A: Argument<'b>>(&self, name: &str) -> Result<A::Received> {
        let value = match A::UNIT {
            Some(unit) => &self.content[[name, unit].concat()],
            None => &self.content,
        };
        A::receive(value).map_err(not_a_call)
    }

    /// Refuses a change to a client that may only read.
    pub(crate) fn check(&self, needs: Access) -> Result<()> {
        if needs == Access::Write && self.access == Access::Read {
            return Err(Error::new(ErrorKind::Denied, "change the store")
                .because("the store is open for reading only"));
        }
        Ok(())
    }

    /// Refuses what names files of the server's machine, or loads code there, to users of other machines.
    pub(crate) fn check_local(&self, operation: &'static str, is_here: bool) -> Result<()> {
        if is_here && !self.is_local {
            return Err(Error::new(ErrorKind::Denied, operation).because(
                "it concerns files of the server; run the command there, with the store's directory",
            ));
        }
        Ok(())
    }

    pub(crate) fn json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(&self.content).map_err(not_json)
    }
}

/// The error of a request for an operation that there is not, or with other arguments.
pub(crate) fn not_a_call(error: serde_json::Error) -> Error {
    Error::invalid("serve a call", "it is not one of those there are").caused_by(error)
}

fn not_json(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Invalid, "ask the server").because("no JSON").caused_by(error)
}

/// An answer without bytes.
pub fn answer(value: &impl Serialize) -> Result<Called> {
    let json = serde_json::to_vec(value).map_err(|error| {
        Error::new(ErrorKind::Io, "answer a call").because("no JSON").caused_by(error)
    })?;
    Ok(Called { json, body: Vec::new() })
}

/// The value of an answer, or of a notice.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    let kind = ErrorKind::Unreachable { applied: Applied::Unknown };
    serde_json::from_slice(json).map_err(|error| {
        let error = Error::new(kind, "reach the owner of the store").caused_by(error);
        error.because("its answer is not as it must be")
    })
}

/// An argument of an operation: how it is sent, and what it is received as.
pub trait Argument<'a>: Copy {
    /// What it is received as.
    type Received;

    /// Ends the name of its member of a request. Without, it has no member: its own are the request's.
    const UNIT: Option<&'static str> = Some("");

    /// Its value. Errors: `Invalid` for what cannot be sent.
    fn send(self) -> Result<Value>;

    /// Reads a value. Errors: those of another type.
    fn receive(value: &Value) -> serde_json::Result<Self::Received>;

    /// The argument of what was received.
    fn lend(received: &'a Self::Received) -> Self;
}

/// `TYPE = RECEIVED: |received| argument;`, and where it is sent as something else `, |argument| sent`.
macro_rules! arguments {
    ($(
        $type:ty = $received:ty: |$lent:ident| $lend:expr
        $(, |$argument:ident| $send:expr)? $(, unit $unit:expr)?;
    )*) => {$(
        impl<'a> Argument<'a> for $type {
            type Received = $received;
            $(const UNIT: Option<&'static str> = $unit;)?

            fn send(self) -> Result<Value> {
                let sent = self;
                $(let sent = { let $argument = sent; $send };)?
                serde_json::to_value(sent).map_err(not_json)
            }

            fn receive(value: &Value) -> serde_json::Result<$received> {
                <$received>::deserialize(value)
            }

            fn lend($lent: &'a $received) -> Self {
                $lend
            }
        }
    )*};
}

arguments! {
    bool = bool: |it| *it;
    i32 = i32: |it| *it;
    Option<u64> = Option<u64>: |it| *it;
    MoveKind = MoveKind: |it| *it;
    MoveTicket = u64: |id| MoveTicket(*id), |ticket| ticket.0;
    Duration = u64: |ns| Duration::from_nanos(*ns), |it| nanoseconds(it), unit Some("_ns");
    Option<Duration> = Option<u64>: |ns| ns.map(Duration::from_nanos), |it| it.map(nanoseconds), unit Some("_ns");
    &'a str = String: |text| text;
    Option<&'a str> = Option<String>: |text| text.as_deref();
    &'a [String] = Option<Vec<String>>: |all| all.as_deref().unwrap_or_default(),
        |all| first_places(all);
    &'a [(String, String)] = Vec<(String, String)>: |pairs| pairs;
    // The working directory of the owner is another one.
    &'a Path = PathBuf: |path| path, |path| absolute(path)?;
    &'a PolicySource = PolicySource: |source| source, |source| source.text()?;
    &'a Guest = Guest: |guest| guest, unit None;
    &'a Recording = Recording: |recording| recording, |it| it.absolute()?, unit None;
    &'a ScrubOptions = ScrubOptions: |options| options, |it| finite(it), unit None;
    &'a WatchFilter = WatchFilter: |filter| filter, unit None;
}

impl<'a> Argument<'a> for &'a Key {
    type Received = Key;

    fn send(self) -> Result<Value> {
        Ok(self.as_str().into())
    }

    fn receive(value: &Value) -> serde_json::Result<Key> {
        Key::parse(&String::deserialize(value)?).map_err(serde_json::Error::custom)
    }

    fn lend(key: &'a Key) -> Self {
        key
    }
}

fn absolute(path: &Path) -> Result<String> {
    const OPERATION: &str = "ask the owner of the store";
    let path = std::path::absolute(path).map_err(|error| Error::from_io(OPERATION, error))?;
    path.into_os_string().into_string().map_err(|path| {
        Error::invalid(OPERATION, "the path is not UTF-8").with("file", path.display())
    })
}

/// The same with a rate beyond every device in the place of infinity, which JSON does not know.
fn finite(options: &ScrubOptions) -> ScrubOptions {
    let bytes_per_s = options.bytes_per_s.clamp(1.0, u64::MAX as f64);
    ScrubOptions { bytes_per_s, ..options.clone() }
}
