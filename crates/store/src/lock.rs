// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who owns a store: whoever holds the lock on the file `lock` in its directory.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use terrace_core::{Access, Error, Result};

use crate::directory::Directory;

/// Longest number of a process, with what is behind it.
const HOLDER_BYTES_MAX: u64 = 32;

/// Behind the number of one that only reads.
const READING: &str = " reading";

/// Ownership of a store; ends when it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; `None` where somebody has it. The file is never removed: a lock on a file
    /// that was removed and made anew would be another one.
    pub(crate) fn try_take(directory: &Directory, access: Access) -> Result<Option<Self>> {
        let path = directory.lock();
        let failed = |error: std::io::Error| {
            Error::from_io("lock the store", error).with("file", path.display())
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| failed(errno.into()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(failed(errno.into())),
        }
        let mut file = File::from(file);
        let how = if access == Access::Read { READING } else { "" };
        let line = format!("{}{how}\n", std::process::id());
        file.set_len(0).and_then(|()| file.write_all(line.as_bytes())).map_err(failed)?;
        Ok(Some(Self { _file: file }))
    }

    /// The process that took the lock last, and what for, as far as it is known.
    pub(crate) fn holder(directory: &Directory) -> Option<(u32, Access)> {
        let mut text = String::new();
        let file = File::open(directory.lock()).ok()?;
        file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
        let text = text.trim();
        match text.strip_suffix(READING) {
            Some(process) => Some((process.parse().ok()?, Access::Read)),
            None => Some((text.parse().ok()?, Access::Write)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_and_tells_its_process() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = Directory::of(home.path()).expect("legal");
        for access in [Access::Write, Access::Read, Access::Write] {
            let first = Lock::try_take(&directory, access).expect("writable").expect("free");
            assert!(Lock::try_take(&directory, Access::Read).expect("writable").is_none());
            assert_eq!(Lock::holder(&directory), Some((std::process::id(), access)));
            drop(first);
        }
        assert!(Lock::try_take(&directory, Access::Read).expect("writable").is_some());
    }
}
