// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where an object is below the directory of a tier. Names are those of the other services, but objects and
//! attributes are spread over subdirectories, since a server answers a listing of a directory at once.

use super::slot::SECOND;
use crate::object::service::names::{ATTRIBUTES, OBJECTS, SUPERBLOCK};

/// Objects that are being written.
pub(super) const UPLOADS: &str = "t/";

/// Subdirectories of a namespace.
const SHARDS: u32 = 64;

/// The path of an object by its name.
pub(super) fn path_of(name: &str) -> String {
    match parts(name) {
        Some((kind, namespace, last)) => {
            format!("{kind}{namespace}/{}/{last}", shard(last))
        }
        None => name.into(),
    }
}

/// The path of one of both files of what is replaced.
pub(super) fn file_of(name: &str, at: usize) -> String {
    match at {
        0 => path_of(name),
        _ => path_of(&format!("{name}{SECOND}")),
    }
}

/// The name of an object by its path; `None` for what [`path_of`] does not give.
pub(super) fn name_of(path: &str) -> Option<String> {
    if ![OBJECTS, ATTRIBUTES].into_iter().any(|kind| path.starts_with(kind)) {
        return Some(path.into());
    }
    let (kind, namespace, rest) = parts(path)?;
    let (_, last) = rest.split_once('/')?;
    let name = format!("{kind}{namespace}/{last}");
    (!last.contains('/') && path_of(&name) == path).then_some(name)
}

/// The name of the attributes of an object by its own.
pub(super) fn attributes_of(name: &str) -> Option<String> {
    name.strip_prefix(OBJECTS).map(|rest| format!("{ATTRIBUTES}{rest}"))
}

/// The name of an object by that of its attributes, or of their second file.
pub(super) fn object_of(attributes: &str) -> Option<String> {
    let rest = attributes.strip_prefix(ATTRIBUTES)?;
    Some(format!("{OBJECTS}{}", rest.strip_suffix(SECOND).unwrap_or(rest)))
}

/// Whether an object of this name is replaced, and so consists of two files.
pub(super) fn is_replaced(name: &str) -> bool {
    name == SUPERBLOCK || name.starts_with(ATTRIBUTES)
}

/// Kind, namespace and the rest of what is spread over subdirectories.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let kind = [OBJECTS, ATTRIBUTES].into_iter().find(|kind| name.starts_with(kind))?;
    let (namespace, rest) = name[kind.len()..].split_once('/')?;
    (!rest.is_empty()).then_some((kind, namespace, rest))
}

/// Whether a file of [`UPLOADS`] has the form that this backend gives: 16 hexadecimal digits, `-`, a number.
pub(super) fn is_upload(name: &str) -> bool {
    let Some((process, number)) = name.split_once('-') else { return false };
    let is_hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    process.len() == 16
        && process.bytes().all(is_hexadecimal)
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The subdirectory for a name: both files of one are in the same.
fn shard(last: &str) -> String {
    let name = last.strip_suffix(SECOND).unwrap_or(last);
    format!("{:02x}", crc32c::crc32c(name.as_bytes()) % SHARDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_from_paths() {
        for name in ["superblock", "superblock=2", "o/seg/00ff.3.1a", "a/seg/x", "a/seg/x=2"] {
            assert_eq!(name_of(&path_of(name)).as_deref(), Some(name));
        }
        assert_eq!(path_of("a/seg/x").rsplit_once('/').expect("a directory").0.len(), 8);
        assert!(path_of("a/seg/x=2").starts_with(path_of("a/seg/x").as_str()));
        for foreign in ["o/x", "o/seg/x", "o/seg/zz/x", "o/seg/00/11/x"] {
            assert_eq!(name_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn uploads_have_a_form_of_their_own() {
        assert!(is_upload("00112233445566aa-0") && is_upload("00112233445566aa-17"));
        for foreign in
            ["left", "0-0", "00112233445566AA-0", "00112233445566aa-", "00112233445566aa"]
        {
            assert!(!is_upload(foreign), "{foreign}");
        }
    }

    #[test]
    fn attributes_belong_to_an_object() {
        let attributes = attributes_of("o/seg/x").expect("an object");
        assert_eq!(attributes, "a/seg/x");
        assert!(is_replaced(&attributes) && !is_replaced("o/seg/x") && is_replaced("superblock"));
        for file in ["a/seg/x", "a/seg/x=2"] {
            assert_eq!(object_of(file).as_deref(), Some("o/seg/x"));
        }
    }
}
