// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be asked through the control socket, and how answers and errors cross it.
//!
//! Specified in `docs/formats/control.md`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use terrace_core::{
    Access, Applied, Atomicity, Create, Error, ErrorKind, Key, Persistency, Result, Semantics,
    Space, Stat, Temperature,
};
use terrace_stack::MoveKind;
use terrace_wire::{messages, relay};

use crate::recording::Recording;

/// Version of the protocol; other versions are refused.
pub(super) const PROTOCOL_VERSION: u32 = 2;

/// A request. Bytes that belong to it are its message's body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub(crate) enum Call {
    /// The first request of every connection.
    Hello {
        version: u32,
        /// Connections with one number share their handles.
        session: u64,
        #[serde(with = "AccessWord")]
        access: Access,
    },
    Tiers,
    AddTier {
        section: String,
        before: Option<String>,
    },
    DrainTier {
        tier: String,
    },
    UndrainTier {
        tier: String,
    },
    RemoveTier {
        tier: String,
    },
    Explain {
        #[serde(with = "key_text")]
        key: Key,
    },
    Migrate {
        #[serde(with = "key_text")]
        key: Key,
        to: String,
        #[serde(with = "MoveKindWord")]
        kind: MoveKind,
        priority: i32,
        reason: String,
    },
    DropCopy {
        #[serde(with = "key_text")]
        key: Key,
        tier: String,
    },
    Wait {
        ticket: u64,
        timeout_ns: u64,
    },
    Moves,
    Cancel {
        ticket: u64,
    },
    CancelAll,
    WaitIdle {
        timeout_ns: u64,
    },
    Pin {
        #[serde(with = "key_text")]
        key: Key,
    },
    Unpin {
        #[serde(with = "key_text")]
        key: Key,
    },
    Policy,
    SetPolicy {
        name: String,
        parameters: Vec<(String, String)>,
    },
    SetParameter {
        name: String,
        value: String,
    },
    SetDryRun {
        is_dry_run: bool,
    },
    SetCalls {
        after_events: Option<u64>,
        every_ns: Option<u64>,
    },
    /// Body: the message.
    Message {
        kind: String,
    },
    RunPolicy,
    Check {
        verify: bool,
    },
    Backup {
        /// Absolute.
        file: String,
        replace: bool,
    },
    Record(Recording),
    StopRecording,
    Recording,
    Ledger,
    Scrub {
        /// Rounded; at least 1.
        bytes_per_s: u64,
        namespace: Option<String>,
    },
    ScrubStatus,
    Quotas,
    SetQuota {
        namespace: String,
        bytes_max: Option<u64>,
        objects_max: Option<u64>,
    },
    ClearQuota {
        namespace: String,
    },
    /// Body: the key.
    KvGet {
        namespace: String,
    },
    /// Body: the key, then the value.
    KvPut {
        namespace: String,
        key_bytes: usize,
        #[serde(with = "PersistencyWord")]
        persistency: Persistency,
    },
    /// Body: the key.
    KvRemove {
        namespace: String,
        #[serde(with = "PersistencyWord")]
        persistency: Persistency,
    },
    /// Body: the prefix, then the key to start after, where there is one.
    KvScan {
        namespace: String,
        prefix_bytes: usize,
        has_after: bool,
        max: usize,
    },
    /// Body: the label, where there is one.
    Open {
        #[serde(with = "key_text")]
        key: Key,
        #[serde(with = "CreateWord")]
        create: Create,
        #[serde(with = "AccessWord")]
        access: Access,
        size_hint_bytes: Option<u64>,
        #[serde(with = "text")]
        semantics: Semantics,
        #[serde(with = "TemperatureWord")]
        temperature: Temperature,
    },
    Stat {
        #[serde(with = "key_text")]
        key: Key,
    },
    Delete {
        #[serde(with = "key_text")]
        key: Key,
    },
    /// Body: the cursor.
    List {
        namespace: String,
        prefix: String,
        max: usize,
    },
    Namespaces,
    Space,
    /// Body: the bytes of all creates and writes, one after the other.
    Execute {
        operations: Vec<Operation>,
        #[serde(with = "text")]
        semantics: Semantics,
    },
    Sync,
    ReadAt {
        handle: u64,
        offset_bytes: u64,
        length_bytes: usize,
    },
    /// Body: the bytes.
    WriteAt {
        handle: u64,
        offset_bytes: u64,
    },
    /// Body: the bytes.
    Append {
        handle: u64,
    },
    SetLen {
        handle: u64,
        length_bytes: u64,
    },
    Allocate {
        handle: u64,
        start_bytes: u64,
        end_bytes: u64,
    },
    Punch {
        handle: u64,
        start_bytes: u64,
        end_bytes: u64,
    },
    NextData {
        handle: u64,
        offset_bytes: u64,
    },
    StatHandle {
        handle: u64,
    },
    SetModified {
        handle: u64,
        wall_ns: u64,
    },
    SyncHandle {
        handle: u64,
    },
    CloseHandle {
        handle: u64,
    },
}

impl Call {
    /// Whether it changes the store itself; refused in sessions for reading. Handles refuse by
    /// themselves what they are not open for.
    pub(super) fn is_change(&self) -> bool {
        match self {
            Call::AddTier { .. }
            | Call::DrainTier { .. }
            | Call::UndrainTier { .. }
            | Call::RemoveTier { .. }
            | Call::Migrate { .. }
            | Call::DropCopy { .. }
            | Call::Cancel { .. }
            | Call::CancelAll
            | Call::Pin { .. }
            | Call::Unpin { .. }
            | Call::SetPolicy { .. }
            | Call::SetParameter { .. }
            | Call::SetDryRun { .. }
            | Call::SetCalls { .. }
            | Call::Message { .. }
            | Call::RunPolicy
            | Call::Scrub { .. }
            | Call::SetQuota { .. }
            | Call::ClearQuota { .. }
            | Call::Record(_)
            | Call::StopRecording
            | Call::KvPut { .. }
            | Call::KvRemove { .. }
            | Call::Delete { .. } => true,
            Call::Open { create, access, .. } => {
                *create != Create::Never || *access == Access::Write
            }
            Call::Execute { operations, .. } => operations.iter().any(|operation| {
                !matches!(operation, Operation::Read { .. } | Operation::Stat { .. })
            }),
            _ => false,
        }
    }
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "kebab-case")]
pub(crate) enum Operation {
    Create {
        #[serde(with = "key_text")]
        key: Key,
        data_bytes: usize,
        #[serde(with = "TemperatureWord")]
        temperature: Temperature,
    },
    Read {
        #[serde(with = "key_text")]
        key: Key,
        offset_bytes: u64,
        length_bytes: usize,
    },
    Write {
        #[serde(with = "key_text")]
        key: Key,
        offset_bytes: u64,
        data_bytes: usize,
    },
    Stat {
        #[serde(with = "key_text")]
        key: Key,
    },
    Delete {
        #[serde(with = "key_text")]
        key: Key,
    },
}

/// How one operation of a batch ended. The bytes of all reads follow the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    Done,
    Count(usize),
    Stat(#[serde(with = "StatFields")] Stat),
    Error(Failure),
}

/// What an owner says of itself.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) version: u32,
    /// Another number for every time that a store is served.
    pub(super) instance: u64,
    pub(super) process: u32,
    pub(super) target: String,
    pub(super) capability: CapabilityFields,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CapabilityFields {
    #[serde(with = "text")]
    pub(super) atomicity: Atomicity,
    #[serde(with = "PersistencyWord")]
    pub(super) persistency: Persistency,
    pub(super) sparse: bool,
    pub(super) ordered_listing: bool,
    pub(super) keeps_data: bool,
    pub(super) labels: bool,
}

/// A page of a listing; its cursor follows as bytes, where there is one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) names: Vec<String>,
    pub(super) has_next: bool,
}

/// Lengths of key and value of each pair; their bytes follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Scanned {
    pub(super) lengths_bytes: Vec<(usize, usize)>,
    pub(super) is_end: bool,
}

/// How a request ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// The body begins with so many bytes of JSON, the answer; bytes follow.
    Ok {
        json_bytes: usize,
    },
    /// It goes on; another reply follows.
    Progress {
        done: u64,
        total: u64,
    },
    Error(Failure),
}

/// An error on its way to another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    kind: String,
    /// Of kind `unreachable`: whether it is certain that nothing happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_not_applied: bool,
    message: String,
    /// Messages of the errors underneath, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<String>,
}

/// Longest message of an error; the rest is cut off.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

impl Failure {
    pub(super) fn of(error: &Error) -> Self {
        let (message, sources) = messages(error, MESSAGE_BYTES_MAX);
        let applied = ErrorKind::Unreachable { applied: Applied::No };
        Self {
            kind: error.kind().word().into(),
            is_not_applied: error.kind() == applied,
            message,
            sources,
        }
    }

    pub(super) fn into_error(self) -> Error {
        let kind = match ErrorKind::from_word(&self.kind) {
            Some(ErrorKind::Unreachable { .. }) if self.is_not_applied => {
                ErrorKind::Unreachable { applied: Applied::No }
            }
            Some(kind) => kind,
            // A kind of a later version; what can be done about it is unknown here.
            None => ErrorKind::Io,
        };
        relay(kind, &self.message, self.sources)
    }
}

/// What is written and read as people do it.
mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use super::*;

    pub(super) fn serialize<S: Serializer>(
        value: &impl Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: FromStr<Err = Error>>(
        source: D,
    ) -> Result<T, D::Error> {
        String::deserialize(source)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A key as `namespace/name`.
mod key_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(key: &Key, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(key.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Key, D::Error> {
        let text = String::deserialize(source)?;
        Key::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Access", rename_all = "kebab-case")]
enum AccessWord {
    Read,
    Write,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Create", rename_all = "kebab-case")]
enum CreateWord {
    Never,
    IfMissing,
    New,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Persistency", rename_all = "kebab-case")]
enum PersistencyWord {
    None,
    Process,
    Storage,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Temperature", rename_all = "kebab-case")]
enum TemperatureWord {
    Unknown,
    Hot,
    Cold,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "MoveKind", rename_all = "kebab-case")]
enum MoveKindWord {
    Move,
    Promote,
    Copy,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Stat")]
pub(super) struct StatFields {
    size_bytes: u64,
    allocated_bytes: u64,
    created_ns: u64,
    modified_ns: u64,
    is_labelled: bool,
}

/// A [`Stat`] as an answer by itself.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Stated(#[serde(with = "StatFields")] pub(super) Stat);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Space")]
struct SpaceFields {
    capacity_bytes: u64,
    used_bytes: u64,
}

/// A [`Space`] as an answer by itself.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Room(#[serde(with = "SpaceFields")] pub(super) Space);
