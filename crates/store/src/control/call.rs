// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be asked of the control plane. Specified in `docs/formats/control.md`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use terrace_core::Key;
use terrace_fs::{Reached, TreeReport};
use terrace_stack::{MoveKind, WatchFilter};

/// What to record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The directory of the trace, absolute or relative to the working directory; `None` for the
    /// configured one, or `trace` in the directory of the store.
    pub directory: Option<String>,
    /// Record the policy's inputs and decisions, too.
    pub has_decisions: bool,
    /// Hash names.
    pub has_hashed_names: bool,
    /// Most bytes of all its files; `None` for the configured bound, or 1 GB.
    pub max_bytes: Option<u64>,
    /// Ends by itself after so many nanoseconds, also where whoever began it is gone; `None` for
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<u64>,
}

/// What a check found in one file system of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesReport {
    /// The file system.
    pub name: String,
    /// Whether somebody uses it, so that it was not checked.
    pub is_in_use: bool,
    /// The stores over which it lies, where these are several and recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// How the files are reached that places are about, of which was asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, Reached>,
    /// What was found.
    #[serde(flatten)]
    pub found: TreeReport,
}

/// A request. Bytes that belong to it are its message's body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub(crate) enum Call {
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
    UseGuest {
        name: String,
        socket: PathBuf,
        parameters: Vec<(String, String)>,
    },
    EndGuest {
        socket: PathBuf,
    },
    SetShadow {
        name: String,
        parameters: Vec<(String, String)>,
    },
    EndShadow,
    Shadow,
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
    CheckFiles {
        #[serde(default)]
        places: Vec<String>,
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
    /// Goes on until the caller ends it.
    Watch(WatchFilter),
    Quotas,
    SpaceOf {
        namespace: String,
    },
    SetQuota {
        namespace: String,
        bytes_max: Option<u64>,
        objects_max: Option<u64>,
    },
    ClearQuota {
        namespace: String,
    },
}

impl Call {
    /// Whether it changes the store; refused in sessions for reading.
    pub(super) fn is_change(&self) -> bool {
        matches!(
            self,
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
                | Call::UseGuest { .. }
                | Call::EndGuest { .. }
                | Call::SetShadow { .. }
                | Call::EndShadow
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
        )
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
#[serde(remote = "MoveKind", rename_all = "kebab-case")]
enum MoveKindWord {
    Move,
    Promote,
    Copy,
}
