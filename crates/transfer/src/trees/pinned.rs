// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Local files by descriptors, whatever becomes of their names meanwhile.
//!
//! Others may be allowed to write to a tree that root copies. So nothing below its root is reached by a path:
//! each directory is opened by its name in the one above, which follows no symbolic link, and what is
//! looked at and changed is what was opened. Else a symbolic link that replaces a directory at the right
//! moment would lead out of the tree.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timestamps, chmod, chownat, openat, utimensat};
use rustix::fs::{Gid, Uid};
use rustix::io::{Errno, Result};

/// How what is only looked at and changed is opened: also what may not be read, and without doing anything
/// to pipes and devices.
const PINNED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A file of any kind.
pub(super) struct Pinned {
    file: File,
    metadata: Metadata,
}

impl Pinned {
    /// What has a name in a directory; `None` where nothing has.
    pub(super) fn find(directory: BorrowedFd<'_>, name: &OsStr) -> std::io::Result<Option<Self>> {
        match openat(directory, name, PINNED, Mode::empty()) {
            Ok(descriptor) => Self::new(descriptor).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What has a name in a directory, and was found or made there before.
    pub(super) fn open(directory: BorrowedFd<'_>, name: &OsStr) -> std::io::Result<Self> {
        Self::find(directory, name)?.ok_or_else(|| Errno::NOENT.into())
    }

    /// A file that is open, or a directory.
    pub(super) fn of(descriptor: BorrowedFd<'_>) -> std::io::Result<Self> {
        Self::new(descriptor.try_clone_to_owned()?)
    }

    fn new(descriptor: OwnedFd) -> std::io::Result<Self> {
        let file = File::from(descriptor);
        let metadata = file.metadata()?;
        Ok(Self { file, metadata })
    }

    /// As it was when it was opened.
    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// As it is now.
    pub(super) fn look_again(&self) -> std::io::Result<Metadata> {
        self.file.metadata()
    }

    /// Gives it to its owner and its group, where it is to get others.
    pub(super) fn give(&self, user: Option<Uid>, group: Option<Gid>) -> Result<()> {
        chownat(&self.file, "", user, group, AtFlags::EMPTY_PATH)
    }

    pub(super) fn set_permissions(&self, permissions: Mode) -> Result<()> {
        chmod(self.path(), permissions)
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> Result<()> {
        utimensat(CWD, self.path(), times, AtFlags::empty())
    }

    /// A path that leads to it as long as it is open, also where it is a symbolic link itself: for calls that
    /// take no such descriptor, and follow links.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }
}

impl AsFd for Pinned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens a directory in another one, for the names in it.
pub(super) fn enter(directory: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd> {
    openat(directory, name, PINNED | OFlags::DIRECTORY, Mode::empty())
}

/// Opens the directory to which a path leads from another one.
pub(super) fn enter_below(directory: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let mut entered = openat(directory, ".", PINNED | OFlags::DIRECTORY, Mode::empty())?;
    for component in path.components() {
        let Component::Normal(name) = component else { return Err(Errno::INVAL) };
        entered = enter(entered.as_fd(), name)?;
    }
    Ok(entered)
}
