// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory in which a program finds its news: a file that both have, written here and mapped there.
//!
//! Nothing is read back and nothing is mapped on this side, so whatever a program does to it, it
//! harms itself only.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use terrace_core::{Error, Result};

/// Written from its beginning for each call.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
    /// The same, for reading only.
    lent: OwnedFd,
}

impl Memory {
    /// Memory of this size, which neither side can change. What was never written takes no room.
    pub(super) fn new(bytes: u64) -> Result<Self> {
        let failed =
            |errno: rustix::io::Errno| Error::from_io("make memory for a policy", errno.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("terrace-policy-news", flags).map_err(failed)?;
        // Without this a program could open it anew for writing.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        rustix::fs::ftruncate(&file, bytes).map_err(failed)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(failed)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let lent = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        Ok(Self { file: file.into(), lent })
    }

    pub(super) fn write(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        self.file
            .write_all_at(bytes, offset_bytes)
            .map_err(|error| Error::from_io("tell the policy", error))
    }

    /// What the program maps.
    pub(super) fn lent(&self) -> BorrowedFd<'_> {
        self.lent.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_the_memory_can_only_read_it() {
        let memory = Memory::new(4096).expect("there is some");
        memory.write(b"news", 0).expect("writes");
        let lent = File::from(memory.lent().try_clone_to_owned().expect("a descriptor"));
        let mut bytes = [0; 4];
        lent.read_exact_at(&mut bytes, 0).expect("reads");
        assert_eq!(&bytes, b"news");
        lent.write_all_at(b"lies", 0).expect_err("it is open for reading");
        lent.set_len(0).expect_err("it is open for reading");
    }

    #[test]
    fn memory_keeps_its_size() {
        let memory = Memory::new(4096).expect("there is some");
        for bytes in [0, 4095, 4097] {
            memory.file.set_len(bytes).expect_err("it is sealed");
        }
        memory.write(b"more", 4094).expect_err("it does not grow");
    }
}
