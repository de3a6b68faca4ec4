// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The name of an object: a namespace and a name inside it.

use std::fmt;
use std::sync::Arc;

use crate::error::shorten;
use crate::{Error, Result};

/// Longest namespace, in bytes of UTF-8.
pub const NAMESPACE_BYTES_MAX: usize = 64;

/// Longest name, in bytes of UTF-8.
///
/// A namespace, a name and 40 bytes of catalog prefix fit LMDB's 511-byte keys, so that every
/// engine behind `Kv` can take every legal key.
pub const NAME_BYTES_MAX: usize = 400;

/// Names an object: a namespace and a name, both opaque UTF-8 without NUL.
///
/// A namespace has no `/`; a name may hold anything else, `..` and `/` included, and never leaves
/// its namespace. Cloning is cheap. Keys order by namespace, then by the bytes of the name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// `namespace/name`; the first `/` separates them.
    text: Arc<str>,
    namespace_bytes: u16,
}

impl Key {
    /// Makes a key from its two parts.
    ///
    /// # Errors
    ///
    /// `Invalid` for an empty part, one that is too long, a NUL, or a `/` in the namespace.
    pub fn new(namespace: &str, name: &str) -> Result<Self> {
        check_part("namespace", namespace, NAMESPACE_BYTES_MAX)?;
        check_part("name", name, NAME_BYTES_MAX)?;
        if namespace.contains('/') {
            return Err(Error::invalid("name an object", "a namespace has no '/'")
                .with("namespace", namespace));
        }
        let namespace_bytes = namespace.len() as u16;
        Ok(Self { text: [namespace, "/", name].concat().into(), namespace_bytes })
    }

    /// Reads `namespace/name`, the form that [`fmt::Display`] prints.
    ///
    /// # Errors
    ///
    /// `Invalid` as [`Key::new`], and where there is no `/`.
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once('/') {
            Some((namespace, name)) => Self::new(namespace, name),
            None => Err(Error::invalid("name an object", "a key has the form namespace/name")
                .with("key", shorten(text))),
        }
    }

    /// The part before the first `/`.
    pub fn namespace(&self) -> &str {
        &self.text[..usize::from(self.namespace_bytes)]
    }

    /// The part after the first `/`.
    pub fn name(&self) -> &str {
        &self.text[usize::from(self.namespace_bytes) + 1..]
    }

    /// The whole, `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn check_part(what: &'static str, part: &str, bytes_max: usize) -> Result<()> {
    let reason = if part.is_empty() {
        format!("the {what} is empty")
    } else if part.len() > bytes_max {
        format!("the {what} has {} bytes, at most {bytes_max} are allowed", part.len())
    } else if part.contains('\0') {
        format!("the {what} contains a NUL byte")
    } else {
        return Ok(());
    };
    Err(Error::invalid("name an object", reason).with(what, shorten(part)))
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.namespace(), self.name()).cmp(&(other.namespace(), other.name()))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_slashes_and_dots() {
        let key = Key::parse("run/../../etc/passwd").expect("legal");
        assert_eq!((key.namespace(), key.name()), ("run", "../../etc/passwd"));
    }

    #[test]
    fn a_key_is_refused_with_its_reason() {
        let long = "x".repeat(10_000);
        for (namespace, name, reason) in [
            ("", "a", "empty"),
            ("a", "", "empty"),
            ("a/b", "c", "no '/'"),
            ("a", "b\0c", "NUL"),
            ("a", long.as_str(), "10000 bytes"),
        ] {
            let error = Key::new(namespace, name).expect_err("illegal").to_string();
            assert!(error.contains(reason), "{error}");
            assert!(error.len() < 300, "{error}");
        }
    }

    #[test]
    fn keys_order_by_namespace_then_name() {
        // '-' sorts before '/', so comparing the joined text would order these wrongly.
        let key = |text| Key::parse(text).expect("legal");
        assert!(key("a/z") < key("a-b/a"));
    }
}
