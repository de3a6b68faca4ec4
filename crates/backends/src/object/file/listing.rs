// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listing a namespace, one bucket after the other.
//!
//! A page reads the buckets it needs and no more. Within a bucket names are sorted, so a cursor is
//! a bucket and the last name met there: objects that come and go before it shift nothing.

use std::os::fd::BorrowedFd;

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use terrace_core::{Cursor, Error, Key, Page, Result};

use super::{path, system};

pub(super) fn list(
    root: BorrowedFd<'_>,
    namespace: &str,
    prefix: &str,
    cursor: &Cursor,
    max: usize,
) -> Result<Page> {
    let (first, after) = read_cursor(cursor)?;
    // No object can be there, and a path for it may be longer than the file system takes.
    if Key::new(namespace, "any").is_err() {
        return Ok(Page::default());
    }
    let mut keys = Vec::new();
    for bucket in buckets(root, namespace)?.into_iter().filter(|bucket| *bucket >= first) {
        let after = if bucket == first { after } else { "" };
        let mut found = keys_in(root, namespace, bucket)?;
        found.retain(|key| key.name() > after && key.name().starts_with(prefix));
        found.sort();
        // A directory that changes while it is read may name a file twice.
        found.dedup();
        let room = max - keys.len();
        if found.len() > room {
            let last = found[..room].last().map_or(after, Key::name);
            let next = Some(write_cursor(bucket, last));
            keys.extend(found.drain(..room));
            return Ok(Page { keys, next });
        }
        keys.append(&mut found);
    }
    Ok(Page { keys, next: None })
}

/// The namespaces that hold objects, in order.
pub(super) fn namespaces(root: BorrowedFd<'_>) -> Result<Vec<String>> {
    let mut namespaces = Vec::new();
    for entry in entries(root, b".")? {
        let Some(namespace) = path::parse_namespace(&entry) else { continue };
        for bucket in buckets(root, &namespace)? {
            if !keys_in(root, &namespace, bucket)?.is_empty() {
                namespaces.push(namespace);
                break;
            }
        }
    }
    namespaces.sort();
    Ok(namespaces)
}

fn buckets(root: BorrowedFd<'_>, namespace: &str) -> Result<Vec<u16>> {
    let entries = entries(root, &path::namespace_directory(namespace))?;
    let mut buckets: Vec<u16> =
        entries.iter().filter_map(|entry| path::parse_bucket(entry)).collect();
    buckets.sort_unstable();
    Ok(buckets)
}

fn keys_in(root: BorrowedFd<'_>, namespace: &str, bucket: u16) -> Result<Vec<Key>> {
    let directory = path::bucket_directory(namespace, bucket);
    let mut keys = Vec::new();
    // Directories still to read, by their paths below the bucket.
    let mut continued = vec![Vec::new()];
    while let Some(below) = continued.pop() {
        let full = [directory.as_slice(), &below].concat();
        for entry in entries(root, &full)? {
            let found = [below.as_slice(), b"/", &entry].concat();
            if !path::is_continued(&entry) {
                keys.extend(path::parse_key(namespace, bucket, &found[1..]));
            } else if found.len() < path::NAME_PATH_BYTES_MAX {
                continued.push(found);
            }
        }
    }
    Ok(keys)
}

/// The files and directories in a directory; none where it is missing.
fn entries(root: BorrowedFd<'_>, directory: &[u8]) -> Result<Vec<Vec<u8>>> {
    let failed = |errno| {
        system::error("read a directory", errno)
            .with("directory", String::from_utf8_lossy(directory))
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(root, directory, flags, Mode::empty()) {
        Ok(opened) => opened,
        // Foreign files look like no directory of ours, and ours may have gone.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno)),
    };
    let mut entries = Vec::new();
    for entry in Dir::new(opened).map_err(failed)? {
        let entry = match entry {
            Ok(entry) => entry,
            // Removed while it was read.
            Err(Errno::NOENT) => break,
            Err(errno) => return Err(failed(errno)),
        };
        let is_ours = matches!(
            entry.file_type(),
            FileType::RegularFile | FileType::Directory | FileType::Unknown
        );
        let name = entry.file_name().to_bytes();
        if is_ours && name != b"." && name != b".." {
            entries.push(name.to_vec());
        }
    }
    Ok(entries)
}

/// First byte of every cursor; a bucket and a name follow.
const CURSOR_TAG: u8 = b'f';

fn write_cursor(bucket: u16, after: &str) -> Cursor {
    Cursor([&[CURSOR_TAG], &bucket.to_be_bytes()[..], after.as_bytes()].concat())
}

/// The bucket to go on with and the name after which to.
fn read_cursor(cursor: &Cursor) -> Result<(u16, &str)> {
    if cursor.is_start() {
        return Ok((0, ""));
    }
    let parts = match cursor.0.split_first_chunk::<3>() {
        Some(([CURSOR_TAG, high, low], after)) => {
            let bucket = u16::from_be_bytes([*high, *low]);
            std::str::from_utf8(after).ok().map(|after| (bucket, after))
        }
        _ => None,
    };
    parts
        .filter(|(bucket, _)| *bucket < path::BUCKETS)
        .ok_or_else(|| Error::invalid("list objects", "the cursor was not made by this backend"))
}
