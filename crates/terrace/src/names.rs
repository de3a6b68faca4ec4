// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of objects.

use terrace_core::{Error, Key, Result};

/// The namespace of a name that has none.
const NAMESPACE_DEFAULT: &str = "default";

/// Reads a name: `namespace/name`, or `name` in the namespace `default`.
pub(crate) fn key(name: &str) -> Result<Key> {
    match name.contains('/') {
        true => Key::parse(name),
        false => Key::new(NAMESPACE_DEFAULT, name),
    }
    .map_err(|error: Error| error.with("name", format!("{name:?}")))
}
