// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of objects of a service: below the root `o/NAMESPACE/NAME` for bytes and `a/NAMESPACE/NAME` for
//! what was changed of their attributes since. Specified in `docs/formats/s3-tier.md`.

use object_store::path::Path;
use terrace_core::{Error, Key, Result};

/// Longest name that S3 takes, and others do.
const NAME_BYTES_MAX: usize = 1024;

pub(crate) const OBJECTS: &str = "o/";
pub(crate) const ATTRIBUTES: &str = "a/";
/// What the store keeps of its catalog, and its owner.
pub(crate) const CATALOG: &str = "c/";
pub(crate) const SUPERBLOCK: &str = "superblock";

/// Letters, digits, `_`, `-` and `.` behind the first character stay; other bytes become `=` and two
/// hexadecimal digits.
pub(crate) fn escape(part: &str) -> String {
    let mut text = String::with_capacity(part.len());
    for (index, byte) in part.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => text.push(char::from(byte)),
            b'.' if index > 0 => text.push('.'),
            _ => text.push_str(&format!("={byte:02X}")),
        }
    }
    text
}

/// `None` for what [`escape`] does not write.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'=' {
            bytes.push(byte);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        rest = behind;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
    }
    let part = String::from_utf8(bytes).ok()?;
    (escape(&part) == text).then_some(part)
}

/// The name of an object, or of its attributes.
pub(crate) fn path(root: &str, kind: &str, key: &Key) -> Result<Path> {
    let text = format!("{root}{kind}{}/{}", escape(key.namespace()), escape(key.name()));
    if text.len() > NAME_BYTES_MAX {
        return Err(Error::invalid(
            "name an object of a service",
            "the name is too long for a service",
        )
        .with("key", key)
        .with("name_bytes", text.len())
        .with("name_bytes_max", NAME_BYTES_MAX));
    }
    Path::parse(&text)
        .map_err(|error| Error::invalid("name an object of a service", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_stack_stay_as_they_are() {
        let key = Key::new("seg", "00000000000000ff.3.1a").expect("legal");
        let path = path("root/", OBJECTS, &key).expect("short");
        assert_eq!(path.as_ref(), "root/o/seg/00000000000000ff.3.1a");
    }

    #[test]
    fn any_name_comes_back() {
        for name in ["a", "..", ".", "a/b", "=", "=2F", "ü %\n", "-_.", "A=41"] {
            let escaped = escape(name);
            assert!(!escaped.starts_with('.') && !escaped.contains('/'), "{escaped}");
            assert_eq!(unescape(&escaped).as_deref(), Some(name));
        }
        for foreign in ["=", "=4", "=zz", "=41", "a b", ".a", "=2f"] {
            assert_eq!(unescape(foreign), None, "{foreign}");
        }
    }
}
