// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What local files say beside their bytes.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Dev, getxattr, listxattr, major, makedev, minor};
use rustix::io::Errno;
use terrace_console::failure::Result;
use terrace_core::Error;
use terrace_fs::{Kind, Time};

use super::about;
use super::pinned::Pinned;

/// Longest list of names, and longest value (Linux, `XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// What the attributes of a mounted store begin with: they say where a file is, not what.
const OF_TIERS: &[u8] = b"user.terrace.";

/// Extended attributes: their values by their names.
pub(super) type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a local file is.
pub(super) fn kind(metadata: &Metadata) -> Kind {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => Kind::Directory,
        () if kind.is_symlink() => Kind::Symlink,
        () if kind.is_fifo() => Kind::Fifo,
        () if kind.is_socket() => Kind::Socket,
        () if kind.is_char_device() => Kind::CharacterDevice,
        () if kind.is_block_device() => Kind::BlockDevice,
        () => Kind::File,
    }
}

/// When it was last read, and changed.
pub(super) fn times(metadata: &Metadata) -> (Time, Time) {
    let time = |seconds, nanos: i64| Time { seconds, nanos: nanos as u32 };
    (time(metadata.atime(), metadata.atime_nsec()), time(metadata.mtime(), metadata.mtime_nsec()))
}

/// A device in 32 bits, as the kernel passes it to file systems (`new_encode_dev`).
pub(super) fn encoded_device(device: Dev) -> u32 {
    let (major, minor) = (major(device), minor(device));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// The reverse.
pub(super) fn device(encoded: u32) -> Dev {
    makedev((encoded & 0xf_ff00) >> 8, encoded & 0xff | (encoded >> 12) & 0xf_ff00)
}

/// The extended attributes of a local file; none where its file system knows none.
pub(super) fn attributes(pinned: &Pinned, path: &Path) -> Result<Attributes> {
    let failed = |errno: Errno| about(Error::from_io("read attributes", errno.into()), path);
    let mut names = Vec::with_capacity(XATTR_BYTES_MAX);
    let here = pinned.path();
    match listxattr(&here, rustix::buffer::spare_capacity(&mut names)) {
        Err(Errno::NOTSUP) => return Ok(Attributes::new()),
        listed => listed.map_err(failed)?,
    };
    let mut attributes = Attributes::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = Vec::with_capacity(XATTR_BYTES_MAX);
        match getxattr(&here, name, rustix::buffer::spare_capacity(&mut value)) {
            // Removed meanwhile, or not visible to this user.
            Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM) => continue,
            read => read.map_err(failed)?,
        };
        if !name.starts_with(OF_TIERS) {
            attributes.insert(name.to_vec(), value);
        }
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_encoded_both_ways() {
        for (major, minor) in [(0, 0), (8, 1), (4095, 1_048_575), (1, 300)] {
            let there = makedev(major, minor);
            assert_eq!(device(encoded_device(there)), there);
        }
        assert_eq!(encoded_device(makedev(8, 1)), 0x801);
    }
}
