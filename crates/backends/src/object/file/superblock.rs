// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The superblock: a small text file in the root of a tier.
//!
//! Specified, with a test vector, in `docs/formats/file-tier.md`.

use std::io::{Read, Write};
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use terrace_core::{Error, ErrorKind, Result, Superblock};

use super::{path, system};

const NAME: &str = ".terrace-superblock";

/// Where a new one is written before it changes places with the old: on a full disk, which must be
/// opened to be emptied, the room of the last but one is the only one left.
const NAME_NEW: &str = ".terrace-superblock.new";

/// Far more than any superblock has; a longer file is not one.
const BYTES_MAX: u64 = 4096;

pub(super) fn read(root: BorrowedFd<'_>) -> Result<Option<Superblock>> {
    const OPERATION: &str = "read the superblock";
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(root, NAME, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(system::error(OPERATION, errno).with("file", NAME)),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Error::from_io(OPERATION, source).with("file", NAME))?;
    decode(&bytes).map(Some).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, OPERATION)
            .because("its text is not as this program or an earlier one writes it")
            .with("file", NAME)
    })
}

/// Replaces the superblock: a crash leaves the old or the new one. Callers take turns.
pub(super) fn write(root: BorrowedFd<'_>, superblock: &Superblock) -> Result<()> {
    const OPERATION: &str = "write the superblock";
    let failed = |errno| system::error(OPERATION, errno).with("file", NAME);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, NAME_NEW, flags, system::FILE_MODE).map_err(failed)?;
    let mut file = std::fs::File::from(file);
    let text = encode(superblock);
    file.write_all(text.as_bytes())
        .and_then(|()| file.set_len(text.len() as u64))
        .and_then(|()| file.sync_all())
        .map_err(|source| Error::from_io(OPERATION, source).with("file", NAME_NEW))?;
    match rustix::fs::renameat_with(root, NAME_NEW, root, NAME, RenameFlags::EXCHANGE) {
        // The first superblock, or a file system that cannot exchange names.
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::renameat(root, NAME_NEW, root, NAME).map_err(failed)?;
        }
        exchanged => exchanged.map_err(failed)?,
    }
    rustix::fs::fsync(root).map_err(failed)
}

pub(in crate::object) const TITLE: &str = "terrace tier superblock 1";

pub(in crate::object) fn encode(superblock: &Superblock) -> String {
    let mut text = format!(
        "{TITLE}\nstore_id={:032x}\ntier={}\nformat_version={}\nfeature_bits={:#x}\nepoch={}\n",
        superblock.store_id,
        path::escape(&superblock.tier),
        superblock.format_version,
        superblock.feature_bits,
        superblock.epoch,
    );
    if let Some(frames) = &superblock.frames {
        text.push_str(&format!("frames={}\n", path::escape(frames)));
    }
    text.push_str(&format!("crc32c={:08x}\n", crc32c::crc32c(text.as_bytes())));
    text
}

/// `None` unless the bytes are exactly what [`encode`] writes for some superblock.
pub(in crate::object) fn decode(bytes: &[u8]) -> Option<Superblock> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    if lines.next()? != TITLE {
        return None;
    }
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix('=');
    let superblock = Superblock {
        store_id: u128::from_str_radix(value("store_id")?, 16).ok()?,
        tier: path::unescape(value("tier")?.as_bytes())?,
        format_version: value("format_version")?.parse().ok()?,
        feature_bits: u64::from_str_radix(value("feature_bits")?.strip_prefix("0x")?, 16).ok()?,
        epoch: value("epoch")?.parse().ok()?,
        frames: match lines.next()?.strip_prefix("frames=") {
            Some(frames) => Some(path::unescape(frames.as_bytes())?),
            None => None,
        },
    };
    (encode(&superblock) == text).then_some(superblock)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../../docs/formats/file-tier.md");

    fn example() -> Superblock {
        Superblock {
            store_id: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            tier: "fast disk".into(),
            format_version: 1,
            feature_bits: 0x12,
            epoch: 7,
            frames: None,
        }
    }

    fn framed() -> Superblock {
        Superblock { frames: Some("1 aes-256-gcm 00ff 11ee".into()), ..example() }
    }

    #[test]
    fn the_documented_superblock_is_made_and_read_back() {
        let block = DOCUMENT.split("```superblock\n").nth(1).expect("the document has one");
        let documented = block.split("```").next().expect("the block ends");
        assert_eq!(encode(&example()), documented);
        assert_eq!(decode(documented.as_bytes()), Some(example()));
        let line = "frames=1%20aes-256-gcm%2000ff%2011ee\n";
        assert!(encode(&framed()).contains(line));
        assert_eq!(decode(encode(&framed()).as_bytes()), Some(framed()));
    }

    #[test]
    fn no_damage_goes_unnoticed_or_panics() {
        for text in [example(), framed()].map(|superblock| encode(&superblock).into_bytes()) {
            for length in 0..text.len() {
                assert_eq!(decode(&text[..length]), None);
            }
            for at in 0..text.len() {
                for bit in 0..8 {
                    let mut damaged = text.clone();
                    damaged[at] ^= 1 << bit;
                    assert_eq!(decode(&damaged), None, "byte {at} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_tier_name_cannot_forge_a_line() {
        let sly = Superblock { tier: "a\nepoch=9\n=é\\".into(), ..example() };
        assert_eq!(decode(encode(&sly).as_bytes()), Some(sly));
    }
}
