// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths that are longer than the kernel takes.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// What the kernel takes, with a zero behind it (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

/// The same behind `/proc/self/fd/` and a number.
const BYTES_MAX: usize = PATH_BYTES_MAX - 64;

/// A path as the kernel takes it: where it is too long, from a directory on the way that is held open.
pub(crate) struct Reached {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl Reached {
    /// # Errors
    ///
    /// What opening the directories on the way says.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let mut directory: Option<OwnedFd> = None;
        let mut rest = path;
        while bytes(rest) > BYTES_MAX && bytes(path) >= PATH_BYTES_MAX {
            let Some(head) = rest.ancestors().find(|head| bytes(head) <= BYTES_MAX) else { break };
            let Ok(tail) = rest.strip_prefix(head) else { break };
            if bytes(head) == 0 {
                // A name that is too long: its use fails with an error.
                break;
            }
            let above = directory.as_ref().map_or(CWD, AsFd::as_fd);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            directory = Some(openat(above, head, flags, Mode::empty())?);
            rest = tail;
        }
        let path = match &directory {
            Some(directory) => {
                Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(rest)
            }
            None => path.into(),
        };
        Ok(Self { path, _directory: directory })
    }
}

impl AsRef<Path> for Reached {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

fn bytes(path: &Path) -> usize {
    AsRef::<OsStr>::as_ref(path).len()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_too_deep_for_a_path_is_reached() {
        let root = tempfile::tempdir().expect("a directory");
        let mut path = root.path().to_path_buf();
        for _ in 0..50 {
            path.push("d".repeat(250));
            fs::create_dir(Reached::new(&path).expect("it is there")).expect("made");
        }
        let file = path.join("file");
        assert!(fs::write(&file, "bytes").is_err(), "the kernel takes no such path");
        fs::write(Reached::new(&file).expect("it is there"), "bytes").expect("written");
        let found = fs::read(Reached::new(&file).expect("it is there")).expect("readable");
        assert_eq!(found, b"bytes");
        let missing = path.join("missing").join("n".repeat(250)).join("file");
        let error = Reached::new(&missing).and_then(fs::read).expect_err("no");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let name = Reached::new(Path::new(&"n".repeat(5000))).expect("it is one name");
        assert!(fs::read(name).is_err());
        let short = root.path().join("short");
        assert_eq!(Reached::new(&short).expect("as it is").as_ref(), short);
    }
}
