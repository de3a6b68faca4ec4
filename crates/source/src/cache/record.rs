// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept beside a copy: which state of which file it is.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::meta::Meta;

/// The attribute of a file of the cache that has its record.
const ATTRIBUTE: &str = "user.terrace.copy";
/// Longest record: a block of ext4 holds all attributes of a file.
const RECORD_BYTES_MAX: usize = 3584;
/// Longest path that a record repeats; the name of the file in the cache stands for all of it.
const PATH_BYTES_MAX: usize = 1024;

/// The name of a copy: a hash of the path at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CopyKey(u128);

impl CopyKey {
    pub(crate) fn of(path: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let hash = Sha256::digest(path.as_os_str().as_bytes());
        Self(u128::from_be_bytes(hash[..16].try_into().expect("a hash has 32 bytes")))
    }

    /// The path below the directory of copies.
    pub(super) fn place(self) -> PathBuf {
        let text = format!("{:032x}", self.0);
        [&text[..2], &text[2..]].iter().collect()
    }

    /// The key of the file with this name in a directory of copies.
    pub(super) fn of_place(directory: &str, name: &str) -> Option<Self> {
        let is_name = directory.len() == 2 && name.len() == 30;
        let text = is_name.then(|| format!("{directory}{name}"))?;
        u128::from_str_radix(&text, 16).ok().map(Self)
    }
}

/// What is kept beside a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The path at the source, or its end.
    pub(crate) path: String,
    pub(crate) meta: Meta,
    /// When the copy was made, in the counting of [`super::epochs::Epochs`].
    pub(crate) epoch: u64,
    /// Whether blocks may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_in_blocks: bool,
    /// The target of a symbolic link, as bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<Vec<u8>>,
}

impl Record {
    pub(crate) fn new(path: &Path, meta: &Meta, epoch: u64) -> Self {
        let path = path.to_string_lossy();
        let mut start = path.len().saturating_sub(PATH_BYTES_MAX);
        while !path.is_char_boundary(start) {
            start += 1;
        }
        Self {
            path: path[start..].into(),
            meta: meta.clone(),
            epoch,
            is_in_blocks: false,
            link: None,
        }
    }

    /// Whether it is of what is below a path. A path of which the beginning is not repeated may be.
    pub(super) fn may_be_below(&self, path: &Path) -> bool {
        // A character has at most four bytes.
        self.path.len() + 4 > PATH_BYTES_MAX || Path::new(&self.path).starts_with(path)
    }

    /// The record of a file; `None` where it has none that can be read.
    pub(super) fn read(file: impl AsFd) -> Result<Option<Self>, Errno> {
        let mut bytes = [0; RECORD_BYTES_MAX];
        match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes) {
            Ok(length) => Ok(serde_json::from_slice(&bytes[..length]).ok()),
            Err(Errno::NODATA | Errno::RANGE) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn write(&self, file: impl AsFd) -> Result<(), Errno> {
        let bytes = serde_json::to_vec(self).expect("it has only text keys");
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(Errno::TOOBIG);
        }
        rustix::fs::fsetxattr(file, ATTRIBUTE, &bytes, XattrFlags::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_again_from_its_place() {
        let key = CopyKey::of(Path::new("a/b"));
        let place = key.place();
        let text = place.to_str().expect("hexadecimal");
        let (directory, name) = text.split_once('/').expect("two parts");
        assert_eq!(CopyKey::of_place(directory, name), Some(key));
        assert_ne!(CopyKey::of(Path::new("a/c")), key);
        assert_eq!(CopyKey::of_place("ab", "short"), None);
    }

    #[test]
    fn what_is_below_a_directory_is_found_by_whole_names() {
        let stat = rustix::fs::stat("/").expect("root");
        let record = Record::new(Path::new("a/bc/d"), &Meta::of(&stat), 1);
        let below = ["", "a", "a/bc", "a/bc/d"];
        assert!(below.iter().all(|path| record.may_be_below(Path::new(path))));
        assert!(!["a/b", "b", "a/bc/d/e"].iter().any(|path| record.may_be_below(Path::new(path))));
    }

    #[test]
    fn a_long_path_is_repeated_by_its_end() {
        let stat = rustix::fs::stat("/").expect("root");
        let path = format!("{}/é-end", "é".repeat(PATH_BYTES_MAX));
        let record = Record::new(Path::new(&path), &Meta::of(&stat), 1);
        assert!(record.path.len() <= PATH_BYTES_MAX && record.path.ends_with("é-end"));
        assert!(record.may_be_below(Path::new("any")));
        let file = tempfile::tempfile().expect("a file");
        record.write(&file).expect("attributes");
        assert_eq!(Record::read(&file).expect("attributes"), Some(record));
    }
}
