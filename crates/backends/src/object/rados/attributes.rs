// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of objects in a pool, and what is kept beside their bytes. Specified in
//! `docs/formats/rados-tier.md`.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use terrace_core::{Error, ErrorKind, Identity, Key, Result, Stat};

use super::library::Looked;
use crate::object::file::identity;

/// What the names of objects begin with that hold bytes of the store.
pub(super) const OBJECTS: &str = "o/";
pub(super) const SUPERBLOCK: &CStr = c"superblock";

/// When the object was created, and random bytes: another object of the same name has others.
pub(super) const INSTANCE: &CStr = c"terrace.instance";
pub(super) const MODIFIED: &CStr = c"terrace.modified";
pub(super) const IDENTITY: &CStr = c"terrace.identity";
pub(super) const LABEL: &CStr = c"terrace.label";

/// What an object has beside its bytes.
pub(super) struct Attributes {
    pub(super) stat: Stat,
    /// The value of [`INSTANCE`]; empty where the object is foreign.
    pub(super) instance: Vec<u8>,
    pub(super) label: Option<Arc<[u8]>>,
    /// The value of [`IDENTITY`].
    identity: Option<Vec<u8>>,
}

impl Attributes {
    pub(super) fn of(mut looked: Looked) -> Self {
        let mut take = |name: &CStr| looked.attributes.remove(name.to_bytes());
        let instance = take(INSTANCE).unwrap_or_default();
        let label = take(LABEL).map(Into::into);
        let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let modified_ns = take(MODIFIED).and_then(|bytes| number(&bytes));
        let changed_ns =
            u64::try_from(looked.modified_s).unwrap_or(0).saturating_mul(1_000_000_000);
        let stat = Stat {
            size_bytes: looked.size_bytes,
            allocated_bytes: looked.size_bytes,
            created_ns: number(&instance).unwrap_or(0),
            modified_ns: modified_ns.unwrap_or(changed_ns),
            is_labelled: label.is_some(),
            is_held: false,
        };
        Self { stat, instance, label, identity: take(IDENTITY) }
    }

    /// # Errors
    ///
    /// `Corrupt`.
    pub(super) fn identity(&self) -> Result<Option<Identity>> {
        self.identity.as_deref().map(identity::decode).transpose()
    }
}

/// The value of [`INSTANCE`] of an object that is created now.
pub(super) fn new_instance(created_ns: u64, random: [u8; 8]) -> Vec<u8> {
    [created_ns.to_le_bytes(), random].concat()
}

/// The name of the object of a key: names of RADOS may have any byte, and a key has no null byte.
pub(super) fn name(key: &Key) -> Result<CString> {
    CString::new(format!("{OBJECTS}{}/{}", key.namespace(), key.name()))
        .map_err(|error| Error::invalid("name an object in a pool", error.to_string()))
}

/// Namespace and name of an object that [`name`] names; `None` where it is foreign.
pub(super) fn parts(name: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix(OBJECTS)?;
    text.split_once('/').filter(|(namespace, name)| Key::new(namespace, name).is_ok())
}

/// A text of the settings for the library.
pub(super) fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| {
        Error::new(ErrorKind::Invalid, super::OPEN).because("a setting holds a null byte")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn names_come_back() {
        for text in ["seg/00000000000000ff.3.1a", "../..", "ü\n/a/b"] {
            let key = Key::parse(text).expect("legal");
            let name = name(&key).expect("no null byte");
            assert_eq!(parts(name.to_bytes()), Some((key.namespace(), key.name())));
        }
        for foreign in ["superblock", "o/", "o/a", "o//a", "o/a/", "rbd_data.1"] {
            assert_eq!(parts(foreign.as_bytes()), None, "{foreign}");
        }
        assert_eq!(parts(b"o/a/\xff"), None);
        // Names of RADOS are up to 2 KiB, and longer than those of keys.
        let long = format!("o/a/{}", "x".repeat(2000));
        assert!(Key::new("a", &long[4..]).is_err());
        assert_eq!(parts(long.as_bytes()), None);
    }

    #[test]
    fn a_foreign_object_has_a_size_and_a_time() {
        let looked =
            Looked { size_bytes: 5, modified_s: 7, attributes: HashMap::new(), version: 1 };
        let attributes = Attributes::of(looked);
        assert_eq!(attributes.stat.size_bytes, 5);
        assert_eq!((attributes.stat.modified_ns, attributes.stat.created_ns), (7_000_000_000, 0));
        assert!(attributes.instance.is_empty());
        assert_eq!(attributes.identity().expect("none"), None);
    }
}
