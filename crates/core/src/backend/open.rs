// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a backend can do, and how objects are opened.

use std::sync::Arc;

use crate::{Atomicity, Error, ErrorKind, Hint, Identity, Key, Persistency, Result, Semantics};

/// Longest label of an object: room for a layout over some dozens of servers, small enough for an
/// extended attribute beside the rest of an identity.
pub const LABEL_BYTES_MAX: usize = 512;

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The strongest that operations on objects get; more is refused as `Unsupported`.
    pub atomicity: Atomicity,
    /// The strongest level that `sync` gives.
    pub persistency: Persistency,
    /// Holes take no room and `next_data` finds them.
    pub sparse: bool,
    /// `list` returns names in order.
    pub ordered_listing: bool,
    /// Identities and superblocks are kept.
    pub identity: bool,
    /// `lease_file` and `hold_file` may give descriptors; without it there are none.
    pub leases: bool,
    /// What is written can be read back (false only for `null`).
    pub keeps_data: bool,
    /// Labels are kept.
    pub labels: bool,
    /// How an object gets its bytes.
    pub writes: Writes,
    /// Largest object; `u64::MAX` without a bound.
    pub object_bytes_max: u64,
    /// Objects are packed: what one takes is its [`allocated_bytes`](crate::Stat::allocated_bytes), known once it
    /// is written as a whole, and not its length.
    pub packed: bool,
}

/// How the objects of a backend get their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// At any offset, at any time.
    #[default]
    InPlace,
    /// Once, as a whole, as object stores take them.
    ///
    /// - An object is written through the handle that created it, each write where the one before
    ///   ended or behind that; a gap reads as zeros. It is not visible before
    ///   [`Object::sync`](super::Object::sync) has succeeded on this handle. A handle that is dropped before leaves nothing.
    /// - Afterwards its bytes never change: every handle refuses writes, cuts and holes as
    ///   `Unsupported`. Time and identity can be replaced.
    /// - Bytes cannot be read before the sync.
    /// - The caller never uses a name twice, and the backend need not notice.
    /// - A deletion of what is not there may succeed.
    Whole,
}

impl Writes {
    /// The word used in reports.
    pub fn word(self) -> &'static str {
        match self {
            Writes::InPlace => "in-place",
            Writes::Whole => "whole",
        }
    }
}

impl Capability {
    /// What every backend can do; others say what they can do beyond it.
    pub const LEAST: Self = Self {
        atomicity: Atomicity::None,
        persistency: Persistency::None,
        sparse: false,
        ordered_listing: false,
        identity: false,
        leases: false,
        keeps_data: true,
        labels: false,
        writes: Writes::InPlace,
        object_bytes_max: u64::MAX,
        packed: false,
    };

    /// Refuses to open an object with semantics that the backend cannot meet, or a label that it
    /// cannot keep.
    ///
    /// # Errors
    ///
    /// `Unsupported`, `Invalid`.
    pub fn check_open(&self, operation: &'static str, how: &Open) -> Result<()> {
        self.check_atomicity(operation, how.semantics.atomicity)?;
        let asked = how.semantics.persistency;
        if how.access == Access::Write && asked > self.persistency {
            return Err(Error::new(ErrorKind::Unsupported, operation)
                .because("the backend keeps less over a crash")
                .with("persistency", asked)
                .with("strongest", self.persistency));
        }
        how.check_label(self)
    }

    /// Refuses an atomicity that the backend does not give.
    ///
    /// # Errors
    ///
    /// `Unsupported`.
    pub fn check_atomicity(&self, operation: &'static str, asked: Atomicity) -> Result<()> {
        if asked <= self.atomicity {
            return Ok(());
        }
        let reason = match asked {
            Atomicity::Batch => {
                "operations on objects take effect one by one; only pairs are changed together"
            }
            Atomicity::None | Atomicity::Operation => "parts of an operation may be seen here",
        };
        Err(Error::new(ErrorKind::Unsupported, operation)
            .because(reason)
            .with("atomicity", asked)
            .with("strongest", self.atomicity))
    }
}

/// What to do when an object is missing or there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The object must exist.
    #[default]
    Never,
    /// Make it if it is missing.
    IfMissing,
    /// It must not exist.
    New,
}

/// What a handle may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Read only; writing is `Denied`.
    Read,
    /// Read and write.
    #[default]
    Write,
}

impl Access {
    /// Refuses a change of an object that was opened for reading. Errors: `Denied`.
    pub fn check_change(self, key: &Key) -> Result<()> {
        match self {
            Access::Write => Ok(()),
            Access::Read => Err(Error::new(ErrorKind::Denied, "change an object")
                .because("it was opened for reading")
                .with("key", key)),
        }
    }
}

/// How to open an object.
#[derive(Clone, Debug, Default)]
pub struct Open {
    /// Whether to create it.
    pub create: Create,
    /// What the handle may do.
    pub access: Access,
    /// The size that the object will have, where known.
    pub size_hint_bytes: Option<u64>,
    /// Length of the pieces that an object is cut into that is created; `None` leaves it to the
    /// backend.
    pub segment_bytes: Option<u64>,
    /// Requirements on every operation through the handle.
    pub semantics: Semantics,
    /// Advice for the policy.
    pub hint: Hint,
    /// Stored with an object that is created.
    pub identity: Option<Arc<Identity>>,
    /// Stored with an object that is created and never changed: 1 to [`LABEL_BYTES_MAX`] bytes that
    /// mean something to the caller that wrote them.
    pub label: Option<Arc<[u8]>>,
}

impl Open {
    /// An existing object for reading.
    pub fn read() -> Self {
        Self { access: Access::Read, ..Self::default() }
    }

    /// An existing object for reading and writing.
    pub fn write() -> Self {
        Self::default()
    }

    /// An object for reading and writing that is made if it is missing.
    pub fn create() -> Self {
        Self { create: Create::IfMissing, ..Self::default() }
    }

    /// A new object for reading and writing.
    pub fn create_new() -> Self {
        Self { create: Create::New, ..Self::default() }
    }

    /// The same with these semantics.
    pub fn with_semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// The same with this label.
    pub fn with_label(mut self, label: &[u8]) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Whether a backend with this capability can keep the label that is asked for.
    ///
    /// # Errors
    ///
    /// `Unsupported`, `Invalid`.
    pub fn check_label(&self, capability: &Capability) -> Result<()> {
        let Some(label) = &self.label else { return Ok(()) };
        if !capability.labels {
            return Err(Error::new(ErrorKind::Unsupported, "open an object")
                .because("no labels are kept here"));
        }
        if label.is_empty() || label.len() > LABEL_BYTES_MAX {
            return Err(Error::invalid("open an object", "the label has a wrong length")
                .with("label_bytes", label.len())
                .with("label_bytes_max", LABEL_BYTES_MAX));
        }
        Ok(())
    }
}
