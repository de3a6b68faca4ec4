// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of collections and items, and the ids that are never used twice.

use std::fmt;

use terrace_core::{Error, Key, Result};
use terrace_transport::random_bytes;

/// Longest name of an item, in bytes of UTF-8: that of a file on Linux, so that every directory
/// can be kept as a collection. A collection's name has the limits of a namespace.
pub const ITEM_NAME_BYTES_MAX: usize = 255;

/// Digits of an id.
pub(crate) const ID_DIGITS: usize = 32;

/// What tells a collection, or an item, from all others that ever had its name: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(u128);

impl Id {
    /// A new one.
    pub(crate) fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        random_bytes(&mut bytes)?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    /// Reads the form that is printed: there is one for each id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != ID_DIGITS || !text.bytes().all(is_digit) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Refuses what no collection can be called. Errors: `Invalid`.
pub(crate) fn check_collection(name: &str) -> Result<()> {
    // The rules for namespaces, with their reasons.
    Key::new(name, "item").map(drop).map_err(|error| error.with("as", "collection"))
}

/// Refuses what no item can be called. Errors: `Invalid`.
pub(crate) fn check_item(name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "the name of the item is empty".to_string()
    } else if name.len() > ITEM_NAME_BYTES_MAX {
        format!(
            "the name of the item has {} bytes, at most {ITEM_NAME_BYTES_MAX} are allowed",
            name.len()
        )
    } else if name.contains('\0') {
        "the name of the item contains a NUL byte".to_string()
    } else {
        return Ok(());
    };
    Err(Error::invalid("name an item", reason))
}

/// Refuses what no name begins with: a NUL would reach what comes behind a name in a pair's key.
/// Errors: `Invalid`.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.contains('\0') {
        return Err(Error::invalid("list names", "the prefix contains a NUL byte"));
    }
    Ok(())
}
