// SPDX-License-Identifier: Apache-2.0 OR MIT
//! States that outlive a process: JSON, with segments named by key.

use std::collections::HashMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use terrace_core::{Error, ErrorKind, Result, SegmentView, Slot, View};

/// A segment's lasting name: its key and its index in the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Name(pub(crate) String, pub(crate) u32);

impl Name {
    pub(crate) fn of(segment: &SegmentView) -> Self {
        Self(segment.key.as_str().into(), segment.segment)
    }
}

/// Finds slots by name. Only looked up, never walked: its order is chance.
pub(crate) struct Names<'a> {
    slots: HashMap<(&'a str, u32), Option<Slot>>,
}

impl<'a> Names<'a> {
    /// The slots of these names. A state names few of the segments that a view may have, so what
    /// is kept is by the former.
    pub(crate) fn new(view: &'a View, wanted: impl IntoIterator<Item = &'a Name>) -> Self {
        let wanted = wanted.into_iter().map(|name| ((name.0.as_str(), name.1), None));
        let mut slots: HashMap<_, Option<Slot>> = wanted.collect();
        if !slots.is_empty() {
            for (slot, segment) in view.live() {
                if let Some(found) = slots.get_mut(&(segment.key.as_str(), segment.segment)) {
                    *found = Some(slot);
                }
            }
        }
        Self { slots }
    }

    /// The slot of one of the wanted names, where a live segment has it.
    pub(crate) fn slot(&self, name: &Name) -> Option<Slot> {
        self.slots.get(&(name.0.as_str(), name.1)).copied().flatten()
    }
}

/// Appends a state.
pub(crate) fn write<T: Serialize>(state: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, state).expect("states have text keys, and a vector takes all");
}

/// Reads a state of this version.
///
/// # Errors
///
/// `Unsupported` for another version, `Corrupt`.
pub(crate) fn read<T: DeserializeOwned>(own: u32, version: u32, state: &[u8]) -> Result<T> {
    if version != own {
        let reason = format!("only version {own} of the state can be read");
        return Err(Error::new(ErrorKind::Unsupported, "restore a policy")
            .because(reason)
            .with("version", version));
    }
    serde_json::from_slice(state)
        .map_err(|error| Error::new(ErrorKind::Corrupt, "restore a policy").caused_by(error))
}

/// The reply to a message.
pub(crate) fn reply(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// The error for a message that a policy does not know.
pub(crate) fn unknown_message(kind: &str, known: &str) -> Error {
    Error::new(ErrorKind::Unsupported, "answer a message")
        .because(format!("the policy knows the messages {known}"))
        .with("kind", format!("{kind:?}"))
}
