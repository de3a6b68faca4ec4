// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory in which a program finds its news: a file that both have mapped, and that only this side
//! can write.
//!
//! Nothing is read back, so whatever a program does to it, it harms itself only.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use memmap2::{MmapMut, MmapOptions};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use terrace_core::{Error, Result};

/// Written from its beginning for each call.
#[derive(Debug)]
pub(super) struct Memory {
    map: MmapMut,
    file: File,
}

impl Memory {
    /// Memory of this size, which neither side can change. It is taken at once: where there is none
    /// left, this fails, and no write.
    #[expect(unsafe_code, reason = "who maps a file promises what others do to it")]
    pub(super) fn new(bytes: usize) -> Result<Self> {
        const OPERATION: &str = "make memory for a policy";
        let failed = |errno: rustix::io::Errno| Error::from_io(OPERATION, errno.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("terrace-policy-news", flags).map_err(failed)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64).map_err(failed)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(failed)?;
        // SAFETY: the file was made above and has no name. It cannot be cut, so that the map never
        // points behind its end, and from the next seal on only this map can write to it. Other
        // processes only read, and may see a change half made.
        let map = unsafe { MmapOptions::new().len(bytes).map_mut(&file) }
            .map_err(|error| Error::from_io(OPERATION, error))?;
        let seals = SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(failed)?;
        Ok(Self { map, file: file.into() })
    }

    /// All of it.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// What the program maps.
    pub(super) fn lent(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn whoever_has_the_memory_can_only_read_it() {
        let mut memory = Memory::new(4096).expect("there is some");
        let lent = File::from(memory.lent().try_clone_to_owned().expect("a descriptor"));
        memory.bytes()[..4].copy_from_slice(b"news");
        let mut bytes = [0; 4];
        lent.read_exact_at(&mut bytes, 0).expect("reads");
        assert_eq!(&bytes, b"news");
        let path = format!("/proc/self/fd/{}", lent.as_raw_fd());
        let anew = File::options().write(true).open(path).expect("root may");
        for file in [&lent, &anew] {
            file.write_all_at(b"lies", 0).expect_err("it is sealed");
        }
        lent.read_exact_at(&mut bytes, 0).expect("reads");
        assert_eq!(&bytes, b"news");
    }

    #[test]
    fn memory_keeps_its_size() {
        let memory = Memory::new(4096).expect("there is some");
        for bytes in [0, 4095, 4097] {
            memory.file.set_len(bytes).expect_err("it is sealed");
        }
        assert_eq!(memory.file.metadata().expect("has attributes").len(), 4096);
    }
}
