// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be asked of the control plane. Specified in `docs/formats/control.md`.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use terrace_core::Key;
use terrace_stack::{MoveKind, WatchFilter};

use crate::recording::Recording;

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
