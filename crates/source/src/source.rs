// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a mount asks of the storage that it shows.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use terrace_fuse::FileSystemStatus;

use crate::meta::Meta;

/// The [`Source::target`] in an identity, which has one of these forms; all of it where it has another one.
pub(crate) fn target_of(identity: &str) -> &str {
    for (kind, separator) in [("directory ", " inode "), ("bucket ", " at ")] {
        if let Some((target, _)) =
            identity.strip_prefix(kind).and_then(|rest| rest.rsplit_once(separator))
        {
            return target;
        }
    }
    identity
}

/// Storage that is shown as it is: a directory or a bucket.
///
/// # Contract
///
/// - Paths are relative to the root and contain no `..`; the root is the empty path.
/// - Symbolic links are never followed: the kernel does that, above the mount.
/// - Calls may block for as long as the storage does; the caller has a deadline.
/// - Errors are the numbers that a program on the mount gets.
pub trait Source: Send + Sync + 'static {
    /// What errors and logs call it.
    fn target(&self) -> &str;

    /// Tells this storage from another one, also after a restart: copies of one are none of the other.
    fn identity(&self) -> &str;

    /// The file system that a path is on, where that is mounted below the root. Asks no file system: calls of one may
    /// hang while others answer.
    fn mounted_below(&self, path: &Path) -> Option<MountedBelow>;

    /// Attributes of what a path names.
    fn look(&self, path: &Path) -> Result<Meta, Errno>;

    /// Attributes of a name in a directory, which the caller may search by what it knows of the directory.
    ///
    /// # Errors
    ///
    /// `ESTALE` where the path leads to another directory by now, or that has other permissions: what is in there may
    /// be for others. So does [`Source::list`].
    fn look_in(&self, directory: &Path, seen: &Meta, name: &OsStr) -> Result<Meta, Errno>;

    /// What attributes are shown as that were seen at an earlier time, perhaps on another mount of this storage: owner
    /// and permissions may be those of the mount. No request.
    fn shown(&self, meta: Meta) -> Meta;

    /// Begins to list a directory, which was seen like this.
    fn list(&self, path: &Path, seen: Option<&Meta>) -> Result<Box<dyn Listing>, Errno>;

    /// Opens a regular file for reading, which was seen in a state.
    ///
    /// - A file in another state may be opened; its `look` returns that state then.
    /// - Storage that reads on a condition may make no request before the first read, and open a file that is gone.
    fn open(&self, path: &Path, seen: &Meta) -> Result<Box<dyn SourceFile>, Errno>;

    /// The most that one read should ask for.
    fn piece_bytes(&self) -> usize;

    /// The target of a symbolic link.
    ///
    /// # Errors
    ///
    /// `ESTALE` where the path leads to another link than was seen, which may be for others.
    fn read_link(&self, path: &Path, seen: &Meta) -> Result<Vec<u8>, Errno>;

    /// Capacity and free space.
    fn status(&self) -> Result<FileSystemStatus, Errno>;
}

/// A file system that is mounted below the root of a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MountedBelow {
    /// The number of the mount. That of one which does not answer is not given to another one.
    pub number: u64,
    /// Where it is, below the root.
    pub path: PathBuf,
}

/// An open file of a source. It stays readable when its name is removed, where the storage allows that.
pub trait SourceFile: Send + Sync {
    /// Its attributes: those that it has now, or those of the one state that it reads.
    fn look(&self) -> Result<Meta, Errno>;

    /// Its attributes now: those of before are not good enough to say what was read since.
    fn look_again(&self) -> Result<Meta, Errno>;

    /// Reads from an offset; returns fewer bytes than there is room for only at the end of the file.
    ///
    /// # Errors
    ///
    /// `ESTALE` where it reads one state, and the file has another one or is gone.
    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize, Errno>;
}

/// A directory that is being listed.
pub trait Listing: Send {
    /// The next names, a bounded number; none at the end.
    fn next_page(&mut self) -> Result<Vec<Name>, Errno>;
}

/// A name in a directory, also `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub name: Box<[u8]>,
    /// The inode number that programs see.
    pub inode: u64,
    /// The kind of file, as in a mode; 0 where it is not known.
    pub mode: u32,
    /// What it names, where the listing has its attributes.
    pub meta: Option<Box<Meta>>,
}
