// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether anybody can write to a file: through a descriptor, in any process, or through a mapping.
//!
//! The kernel grants a read lease only on a file that is not open for writing, and a writable
//! mapping keeps a file open. See fcntl(2), `F_SETLEASE`.

#![allow(unsafe_code, reason = "no safe wrapper of fcntl knows leases")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `F_SETSIG` of all architectures that Terrace is built for
/// (`include/uapi/asm-generic/fcntl.h`); `libc` does not have it everywhere.
const F_SETSIG: libc::c_int = 10;

/// Whether the file that `file`, opened for reading alone, is can be written to.
///
/// # Errors
///
/// Unknown: the file system has no leases, or the file is another user's.
pub(crate) fn are_left(file: &File) -> io::Result<bool> {
    // An open of the file for writing before the lease is given back a moment later makes the
    // kernel send a signal. The usual one, SIGIO, would end a process that does not expect it.
    command(file, F_SETSIG, libc::SIGURG)?;
    match command(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            command(file, libc::F_SETLEASE, libc::F_UNLCK)?;
            Ok(false)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

fn command(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: these commands take an integer and reach no memory of this process, and the
    // descriptor is open as long as `file` is borrowed.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::Path;

    use super::*;

    fn opened_for_writing(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).open(path).expect("opens")
    }

    #[test]
    fn a_writer_is_found_until_the_last_descriptor_is_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, b"abc").expect("writes");
        let reader = File::open(&path).expect("opens");
        assert!(!are_left(&reader).expect("tells"));
        let other_reader = File::open(&path).expect("opens");
        assert!(!are_left(&reader).expect("tells"), "readers do not count");
        let writer = opened_for_writing(&path);
        let twin = writer.try_clone().expect("duplicates");
        drop(writer);
        assert!(are_left(&reader).expect("tells"));
        drop(twin);
        assert!(!are_left(&other_reader).expect("tells"));
        // Nothing is left behind: opening for writing does not wait for anybody.
        drop(opened_for_writing(&path));
    }

    #[test]
    fn a_file_without_a_name_can_be_asked_about() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, b"abc").expect("writes");
        let (reader, writer) = (File::open(&path).expect("opens"), opened_for_writing(&path));
        std::fs::remove_file(&path).expect("removes");
        assert!(are_left(&reader).expect("tells"));
        drop(writer);
        assert!(!are_left(&reader).expect("tells"));
    }

    #[test]
    fn a_mapping_that_can_be_written_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, b"abc").expect("writes");
        let (reader, writer) = (File::open(&path).expect("opens"), opened_for_writing(&path));
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (to, how) = (writer.as_raw_fd(), libc::MAP_SHARED);
        // SAFETY: a new mapping at a place that the kernel chooses; nothing here looks into it.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), 3, access, how, to, 0) };
        assert_ne!(mapping, libc::MAP_FAILED);
        drop(writer);
        assert!(are_left(&reader).expect("tells"));
        // SAFETY: it is the mapping that was just made, to which there are no references.
        assert_eq!(unsafe { libc::munmap(mapping, 3) }, 0);
        assert!(!are_left(&reader).expect("tells"));
    }

    #[test]
    fn whoever_cannot_tell_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = File::open(directory.path()).expect("opens");
        are_left(&folder).expect_err("a directory has no leases");
    }
}
