// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory as a source: NFS, Lustre, a disk.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, StatxFlags};
use rustix::io::Errno;
use terrace_core::{Error, ErrorKind, Result};
use terrace_fuse::FileSystemStatus;

use crate::meta::Meta;
use crate::mount_table::MountTable;
use crate::options::SourceOptions;
use crate::source::{Listing, MountedBelow, Name, Source, SourceFile};

const OPERATION: &str = "open the source";
/// Names are read in pieces of this.
const NAMES_BYTES: usize = 32 * 1024;
/// Files are read in pieces of this.
const PIECE_BYTES: usize = 1 << 20;
/// So often a path is resolved again where a rename beside it made that uncertain.
const RESOLVE_TRIES: usize = 4;

/// A directory as a source.
#[derive(Debug)]
pub struct Directory {
    target: String,
    identity: String,
    /// Keeps the file system below in use: what is mounted there later is another one.
    root: OwnedFd,
    root_device: u64,
    mounts: MountTable,
}

impl Directory {
    /// Opens a directory, within [`SourceOptions::DEADLINE`].
    ///
    /// # Errors
    ///
    /// Those of [`Directory::open_within`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_within(path, SourceOptions::DEADLINE)
    }

    /// Opens a directory that has to answer within a deadline. A thread that it holds up for longer is left
    /// behind.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Denied` (also where it may not be listed), `Invalid` for what is no directory, `Io`, also
    /// where it does not answer in time.
    pub fn open_within(path: &Path, deadline: Duration) -> Result<Self> {
        let (sender, receiver) = sync_channel(1);
        let asked = path.to_path_buf();
        let opening = thread::Builder::new().name("terrace-source".into());
        let started = opening.spawn(move || {
            // The caller may have left.
            let _ = sender.send(Self::open_now(&asked));
        });
        started.map_err(|error| Error::from_io(OPERATION, error))?;
        receiver.recv_timeout(deadline).unwrap_or_else(|_| {
            let reason = format!(
                "it does not answer within {deadline:?}; mount when its file server answers again, or with a longer --deadline"
            );
            let error = Error::new(ErrorKind::Io, OPERATION).because(reason);
            Err(error.with("source", path.display()))
        })
    }

    fn open_now(path: &Path) -> Result<Self> {
        let failed = |errno: Errno| {
            let error = match errno {
                Errno::NOTDIR => Error::invalid(OPERATION, "it is no directory"),
                _ => Error::from_io(OPERATION, errno.into()),
            };
            error.with("source", path.display())
        };
        let absolute = path
            .canonicalize()
            .map_err(|error| Error::from_io(OPERATION, error).with("source", path.display()))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &absolute, flags, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&root).map_err(failed)?;
        let Some(target) = absolute.to_str().map(String::from) else {
            let error = Error::new(ErrorKind::Invalid, OPERATION).because("its path is no UTF-8");
            return Err(error.with("source", path.display()));
        };
        // A directory on which nothing is mounted any more has another number.
        let identity = format!("directory {target} inode {}", stat.st_ino);
        Ok(Self {
            target,
            identity,
            root,
            root_device: stat.st_dev,
            mounts: MountTable::new(&absolute),
        })
    }

    fn open_below(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // What is named may be a link itself with `O_PATH`.
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..RESOLVE_TRIES {
            result = rustix::fs::openat2(&self.root, path, flags, Mode::empty(), how);
            if !matches!(result, Err(Errno::AGAIN)) {
                break;
            }
        }
        // Something in the path has become a link since the kernel looked it up.
        result.map_err(|errno| match errno {
            Errno::XDEV | Errno::LOOP => Errno::NOENT,
            other => other,
        })
    }
}

impl Source for Directory {
    fn target(&self) -> &str {
        &self.target
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn mounted_below(&self, path: &Path) -> Option<MountedBelow> {
        self.mounts.mounted_below(path)
    }

    fn look(&self, path: &Path) -> Result<Meta, Errno> {
        let file = self.open_below(path, OFlags::PATH)?;
        Ok(meta_below(self.root_device, &rustix::fs::fstat(&file)?))
    }

    fn shown(&self, meta: Meta) -> Meta {
        meta
    }

    fn look_in(&self, directory: &Path, seen: &Meta, name: &OsStr) -> Result<Meta, Errno> {
        let above = self.open_below(directory, OFlags::PATH | OFlags::DIRECTORY)?;
        if !meta_below(self.root_device, &rustix::fs::fstat(&above)?).admits_as(seen) {
            return Err(Errno::STALE);
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        // Also of what is mounted on the name.
        let stat = rustix::fs::statat(&above, name, flags)?;
        Ok(meta_below(self.root_device, &stat))
    }

    fn list(&self, path: &Path, seen: Option<&Meta>) -> Result<Box<dyn Listing>, Errno> {
        let file = self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let stat = rustix::fs::fstat(&file)?;
        if seen.is_some_and(|seen| !meta_below(self.root_device, &stat).admits_as(seen)) {
            return Err(Errno::STALE);
        }
        Ok(Box::new(Names { file, device: stat.st_dev, root_device: self.root_device }))
    }

    fn open(&self, path: &Path, _: &Meta) -> Result<Box<dyn SourceFile>, Errno> {
        // Without it the open of a pipe, which may have come in place of the file, waits for a writer.
        let file = self.open_below(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        if !Meta::of(&rustix::fs::fstat(&file)?).is_file() {
            return Err(Errno::STALE);
        }
        Ok(Box::new(Opened { file, root_device: self.root_device }))
    }

    fn piece_bytes(&self) -> usize {
        PIECE_BYTES
    }

    fn read_link(&self, path: &Path, seen: &Meta) -> Result<Vec<u8>, Errno> {
        let file = self.open_below(path, OFlags::PATH)?;
        let found = meta_below(self.root_device, &rustix::fs::fstat(&file)?);
        if !found.is_same_inode(seen) {
            return Err(Errno::STALE);
        }
        Ok(rustix::fs::readlinkat(&file, "", Vec::new())?.into_bytes())
    }

    fn status(&self) -> Result<FileSystemStatus, Errno> {
        let found = rustix::fs::fstatvfs(&self.root)?;
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(FileSystemStatus {
            blocks: found.f_blocks,
            blocks_free: found.f_bfree,
            blocks_available: found.f_bavail,
            files: found.f_files,
            files_free: found.f_ffree,
            block_bytes: short(found.f_bsize),
            fragment_bytes: short(found.f_frsize),
            name_bytes_max: short(found.f_namemax),
        })
    }
}

/// Attributes of a file below a root on a device.
fn meta_below(root_device: u64, stat: &Stat) -> Meta {
    Meta { inode: number_below(root_device, stat.st_dev, stat.st_ino), ..Meta::of(stat) }
}

/// The inode number that programs see: the source's on the device of its root, mixed with the device elsewhere.
///
/// The mount is one device to programs, and file systems mounted below the source count from 1 as it does.
/// All files of one device get different numbers. Those of two devices meet only where they have numbers that
/// differ in the same high bits as the masks do.
fn number_below(root_device: u64, device: u64, inode: u64) -> u64 {
    if device == root_device {
        return inode;
    }
    // The finalizer of splitmix64.
    let mut mask = device.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mask = (mask ^ (mask >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mask = (mask ^ (mask >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    inode ^ (mask ^ (mask >> 31) | 1 << 63)
}

struct Opened {
    file: OwnedFd,
    root_device: u64,
}

impl SourceFile for Opened {
    fn look(&self) -> Result<Meta, Errno> {
        let stat = rustix::fs::statat(&self.file, "", AtFlags::EMPTY_PATH)?;
        Ok(meta_below(self.root_device, &stat))
    }

    /// An NFS client answers for some seconds from what it knows, unless it is asked to ask.
    fn look_again(&self) -> Result<Meta, Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let asked = rustix::fs::statx(&self.file, "", flags, StatxFlags::BASIC_STATS);
        match asked {
            // What was asked for is known now.
            Ok(_) => self.look(),
            Err(errno) => Err(errno),
        }
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < buffer.len() {
            let read =
                rustix::io::pread(&self.file, &mut buffer[done..], offset_bytes + done as u64);
            match read {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }
}

struct Names {
    file: OwnedFd,
    /// That of the directory.
    device: u64,
    root_device: u64,
}

impl Listing for Names {
    fn next_page(&mut self) -> Result<Vec<Name>, Errno> {
        let mut space = [MaybeUninit::uninit(); NAMES_BYTES];
        let mut entries = RawDir::new(&self.file, &mut space);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let mode = match entry.file_type() {
                FileType::Unknown => 0,
                kind => kind.as_raw_mode(),
            };
            names.push(Name {
                name: entry.file_name().to_bytes().into(),
                inode: number_below(self.root_device, self.device, entry.ino()),
                mode,
                meta: None,
            });
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_two_devices_have_two_numbers() {
        let root = Directory::open(Path::new("/")).expect("the root");
        let number = |path: &str| root.look(Path::new(path)).expect("it is mounted").inode;
        // Both kernel file systems give their root the number 1.
        for path in ["/proc", "/sys"] {
            assert_eq!(rustix::fs::stat(path).expect("it is mounted").st_ino, 1);
        }
        assert_ne!(number("proc"), number("sys"));
        let of_root = rustix::fs::stat("/").expect("the root").st_ino;
        assert_eq!(number(""), of_root, "the source's own numbers stay");
        let mut page = root.list(Path::new("proc"), None).expect("it is mounted");
        let names = page.next_page().expect("names");
        let listed = names.iter().find(|name| &*name.name == b"meminfo").expect("it is there");
        assert_eq!(listed.inode, number("proc/meminfo"));
        let path = Path::new("proc/meminfo");
        let open = root.open(path, &root.look(path).expect("it is there")).expect("readable");
        assert_eq!(open.look().expect("it is open").inode, listed.inode);
    }
}
