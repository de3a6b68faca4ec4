// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a caller may ask for beside the bytes.

use terrace_core::{Access, Create, Hint, Open, Semantics};

/// How objects are opened, created and replaced. [`Options::default`] asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Requirements on every operation: met, or refused with `Unsupported`.
    pub semantics: Semantics,
    /// Advice for the policy.
    pub hint: Hint,
    /// Stored with an object that is created, 1 to 512 bytes, and never changed.
    pub label: Option<Vec<u8>>,
    /// The size that an object that is created will have, where it is known: the placement heeds it.
    pub size_bytes: Option<u64>,
}

impl Options {
    pub(crate) fn open(&self, create: Create, access: Access) -> Open {
        Open {
            create,
            access,
            size_hint_bytes: self.size_bytes,
            semantics: self.semantics,
            hint: self.hint,
            label: self.label.as_deref().map(Into::into),
            ..Open::default()
        }
    }
}
