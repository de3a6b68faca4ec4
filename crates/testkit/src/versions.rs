// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that say which version they are, for objects that are replaced as a whole beside readers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use terrace_core::{Backend, BackendExt, Key, Open};

/// The value of a version: of another length than its neighbours, and with none of their bytes.
pub fn content(version: u32) -> Vec<u8> {
    let length = 4 + version as usize * 7919 % 9000;
    version.to_le_bytes().into_iter().cycle().take(length.next_multiple_of(4)).collect()
}

/// The version that a value is.
///
/// # Panics
///
/// Where it is none, or a mixture of several.
#[track_caller]
pub fn version_of(found: &[u8]) -> u32 {
    let version = u32::from_le_bytes(found[..4].try_into().expect("four bytes"));
    assert!(found == content(version), "a mixture of versions");
    version
}

/// How many times objects are replaced in a test: as `TERRACE_OVERWRITES` says, or `short`.
///
/// # Panics
///
/// Where the variable is no number.
pub fn overwrites(short: u32) -> u32 {
    match std::env::var("TERRACE_OVERWRITES") {
        Ok(count) => count.parse().expect("TERRACE_OVERWRITES is a number"),
        Err(_) => short,
    }
}

/// Replaces an object with versions 1 to `versions`, which the writers share, while readers read it;
/// `between` is called after each. The object is there, as version 0.
///
/// # Panics
///
/// Where a put fails, a reader gets anything but one whole version, or, beside one writer, an older
/// version after a newer one.
pub fn overwrite_beside_readers(
    writers: &[&dyn Backend],
    readers: &[&dyn Backend],
    key: &Key,
    how: &Open,
    versions: u32,
    between: &(dyn Fn(u32) + Sync),
) {
    let left = AtomicUsize::new(writers.len());
    let has_failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in readers {
            scope.spawn(|| {
                let _ends = SetOnDrop(&has_failed);
                let mut last = 0;
                while left.load(Ordering::Relaxed) > 0 && !has_failed.load(Ordering::Relaxed) {
                    let found = reader.read_all(key);
                    let found = found.unwrap_or_else(|error| panic!("{}", error.chain()));
                    let version = version_of(&found);
                    assert!(version >= last || writers.len() > 1, "{version} after {last}");
                    last = version;
                }
            });
        }
        for (number, writer) in writers.iter().enumerate() {
            let (left, has_failed) = (&left, &has_failed);
            scope.spawn(move || {
                let _ends = SetOnDrop(has_failed);
                for version in (1..=versions).skip(number).step_by(writers.len()) {
                    if has_failed.load(Ordering::Relaxed) {
                        break;
                    }
                    let put = writer.put(key, &content(version), how);
                    put.unwrap_or_else(|error| panic!("{}", error.chain()));
                    between(version);
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    let last = version_of(&readers[0].read_all(key).expect("reads"));
    let is_last = |version: u32| version + writers.len() as u32 > versions;
    assert!(is_last(last), "{last} of {versions} was the last");
}

/// Ends the other threads where one panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
