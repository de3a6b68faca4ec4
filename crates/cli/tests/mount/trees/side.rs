// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One of the two trees, with the files that are open in it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timespec, Timestamps,
    Uid, XattrFlags,
};
use rustix::io::Errno;
use terrace_core::Random;

use super::operation::{AT, HELD, Operation, SLOTS};

/// What became of an operation: something to compare, or the error.
pub(super) type Outcome = Result<Vec<u8>, Errno>;

/// Name and value of an attribute.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// An operation by paths alone.
pub(super) enum ByPath {
    Same,
    Other(Operation),
    /// A directory that it leads on from has none any more, or none is held.
    Removed,
}

/// A tree.
pub(super) struct Side {
    root: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
    /// Directories from which paths lead on.
    held: [Option<OwnedFd>; HELD],
}

impl Side {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), slots: Default::default(), held: Default::default() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn close_all(&mut self) {
        self.slots = Default::default();
        self.held = Default::default();
    }

    /// Where a path leads, which may begin at a directory that is held.
    pub(super) fn at(&self, path: &str) -> Result<PathBuf, Errno> {
        let Some((place, below)) = path.strip_prefix(AT).and_then(|path| path.split_once('/'))
        else {
            return Ok(self.root.join(path));
        };
        let held = self.held(place.parse().expect("a number"))?.as_raw_fd();
        Ok(PathBuf::from(format!("/proc/self/fd/{held}/{below}")))
    }

    fn held(&self, place: usize) -> Result<&OwnedFd, Errno> {
        self.held[place].as_ref().ok_or(Errno::BADF)
    }

    /// A rename that leads on from directories that are held, by their paths instead.
    pub(super) fn by_path(&self, operation: &Operation) -> ByPath {
        let Operation::Rename { from, to, flags } = operation else { return ByPath::Same };
        let mut is_held = false;
        let mut named = |path: &String| {
            let Some((place, below)) = path.strip_prefix(AT).and_then(|path| path.split_once('/'))
            else {
                return Some(path.clone());
            };
            is_held = true;
            let held = self.held(place.parse().expect("a number")).ok()?.as_raw_fd();
            let held = std::fs::read_link(format!("/proc/self/fd/{held}")).ok()?;
            let held = held.strip_prefix(&self.root).ok().filter(|_| held.exists())?;
            Some(held.join(below).to_str().expect("ASCII").to_string())
        };
        match (named(from), named(to)) {
            _ if !is_held => ByPath::Same,
            (Some(from), Some(to)) => ByPath::Other(Operation::Rename { from, to, flags: *flags }),
            _ => ByPath::Removed,
        }
    }

    pub(super) fn open_files(&self) -> impl Iterator<Item = Option<&OwnedFd>> {
        self.slots.iter().map(Option::as_ref)
    }

    /// Carries out an operation.
    pub(super) fn apply(&mut self, operation: &Operation) -> Outcome {
        use Operation as O;
        match operation {
            O::MakeDirectory { path, mode } => {
                rustix::fs::mkdir(self.at(path)?, Mode::from_raw_mode(*mode))?;
            }
            O::RemoveDirectory { path } => rustix::fs::rmdir(self.at(path)?)?,
            O::Unlink { path } => rustix::fs::unlink(self.at(path)?)?,
            O::Symlink { path, target } => rustix::fs::symlink(target, self.at(path)?)?,
            O::Link { from, to } => rustix::fs::link(self.at(from)?, self.at(to)?)?,
            O::Rename { from, to, flags } => {
                let (from, to) = (self.at(from)?, self.at(to)?);
                let renamed = rename(&from, &to, *flags);
                return renamed.map(|()| Vec::new());
            }
            O::MakeNode { path, kind, mode } => {
                rustix::fs::mknodat(CWD, self.at(path)?, *kind, Mode::from_raw_mode(*mode), 0)?;
            }
            O::Open { slot, path, flags, mode } => {
                // Whoever opens a pipe does not wait for another.
                let flags = *flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let opened = rustix::fs::open(self.at(path)?, flags, Mode::from_raw_mode(*mode))?;
                let kind = FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode);
                // Of all else a mount is not told that it is open: it is gone with its last name.
                self.slots[*slot] = Some(opened).filter(|_| kind.is_file());
            }
            O::OpenUnnamed { slot, directory, mode } => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let opened =
                    rustix::fs::open(self.at(directory)?, flags, Mode::from_raw_mode(*mode));
                self.slots[*slot] = Some(opened?);
            }
            O::LinkOpen { slot, to } => {
                let open = format!("/proc/self/fd/{}", self.slot(*slot)?.as_raw_fd());
                rustix::fs::linkat(CWD, open, CWD, self.at(to)?, AtFlags::SYMLINK_FOLLOW)?;
            }
            O::Close { slot } => self.slots[*slot] = None,
            O::Hold { place, path } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = rustix::fs::open(self.at(path)?, flags, Mode::empty())?;
                self.held[*place] = Some(opened);
            }
            O::Drop { place } => self.held[*place] = None,
            O::StatHeld { place } => {
                return Ok(describe(&rustix::fs::fstat(self.held(*place)?)?).into());
            }
            O::ListHeld { place } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = rustix::fs::openat(self.held(*place)?, ".", flags, Mode::empty());
                return list_open(opened?);
            }
            O::Write { slot, offset, length, fill } => {
                let mut bytes = vec![0; *length as usize];
                Random::new(*fill).fill(&mut bytes);
                return write(self.slot(*slot)?, *offset, &bytes);
            }
            O::Read { slot, offset, length } => {
                return read(self.slot(*slot)?, *offset, *length);
            }
            O::SetLength { slot, size } => rustix::fs::ftruncate(self.slot(*slot)?, *size)?,
            O::Truncate { path, size } => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let opened = rustix::fs::open(self.at(path)?, flags, Mode::empty())?;
                rustix::fs::ftruncate(opened, *size)?;
            }
            O::Allocate { slot, mode, offset, length } => {
                rustix::fs::fallocate(self.slot(*slot)?, *mode, *offset, *length)?;
            }
            O::Copy { from, from_offset, to, to_offset, length } => {
                let (from, to) = (self.slot(*from)?, self.slot(*to)?);
                return copy(from, *from_offset, to, *to_offset, *length);
            }
            O::Seek { slot, offset, is_hole } => return seek(self.slot(*slot)?, *offset, *is_hole),
            O::Sync { slot } => rustix::fs::fsync(self.slot(*slot)?)?,
            O::ChangeMode { path, mode } => {
                rustix::fs::chmod(self.at(path)?, Mode::from_raw_mode(*mode))?;
            }
            O::ChangeOwner { path, user, group, follows } => {
                let (user, group) = (Uid::from_raw(*user), Gid::from_raw(*group));
                rustix::fs::chownat(CWD, self.at(path)?, Some(user), Some(group), flags(*follows))?;
            }
            O::SetTimes { path, accessed, modified, nanos, follows } => {
                let time = |tv_sec| Timespec { tv_sec, tv_nsec: *nanos };
                let times =
                    Timestamps { last_access: time(*accessed), last_modification: time(*modified) };
                rustix::fs::utimensat(CWD, self.at(path)?, &times, flags(*follows))?;
                let stat = rustix::fs::statat(CWD, self.at(path)?, flags(*follows))?;
                return Ok(format!("{:?}", times_of(&stat)).into());
            }
            O::SetXattr { path, name, value, how } => {
                rustix::fs::lsetxattr(self.at(path)?, *name, value, *how)?;
            }
            O::RemoveXattr { path, name } => rustix::fs::lremovexattr(self.at(path)?, *name)?,
            O::List { path } => return list(&self.at(path)?),
            O::Stat { path, follows } => {
                let stat = rustix::fs::statat(CWD, self.at(path)?, flags(*follows))?;
                return Ok(describe(&stat).into());
            }
        }
        Ok(Vec::new())
    }

    fn slot(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }
}

/// Renames. A rename with a whiteout that is refused leaves the times of the former parent as they are;
/// ext4 sets them when it takes back what it began (`ext4_resetent` in fs/ext4/namei.c).
fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    let parent = from.parent().filter(|_| flags.contains(RenameFlags::WHITEOUT));
    let before = parent.map(rustix::fs::stat).transpose().unwrap_or_default();
    let renamed = rustix::fs::renameat_with(CWD, from, CWD, to, flags);
    if let (Err(_), Some(parent), Some(before)) = (renamed, parent, before)
        && rustix::fs::stat(parent).is_ok_and(|now| times_of(&now)[1] != times_of(&before)[1])
    {
        let [last_access, last_modification] =
            times_of(&before).map(|(tv_sec, nanos)| Timespec { tv_sec, tv_nsec: nanos });
        let times = Timestamps { last_access, last_modification };
        rustix::fs::utimensat(CWD, parent, &times, AtFlags::empty())?;
    }
    renamed
}

fn flags(follows: bool) -> AtFlags {
    if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
}

/// What is the same of a file wherever it lies. The size of a directory is what its file system makes
/// of it, and blocks are what it needs.
pub(super) fn describe(stat: &Stat) -> String {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let size = if kind.is_dir() { 0 } else { stat.st_size };
    let (mode, links) = (stat.st_mode & 0o7777, stat.st_nlink);
    let (user, group, device) = (stat.st_uid, stat.st_gid, stat.st_rdev);
    format!("{kind:?} {mode:o} {user}:{group} links {links} size {size} device {device}")
}

fn times_of(stat: &Stat) -> [(i64, i64); 2] {
    [(stat.st_atime, stat.st_atime_nsec as i64), (stat.st_mtime, stat.st_mtime_nsec as i64)]
}

fn write(file: &OwnedFd, offset: u64, bytes: &[u8]) -> Outcome {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(file, &bytes[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done.to_string().into())
}

pub(super) fn read(file: &OwnedFd, offset: u64, length: u64) -> Outcome {
    let mut bytes = vec![0; length as usize];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn copy(
    from: &OwnedFd,
    mut from_offset: u64,
    to: &OwnedFd,
    mut to_offset: u64,
    length: u64,
) -> Outcome {
    // Where another client has made it longer, the kernel copies up to the end that it knows.
    rustix::fs::fstat(from)?;
    let mut left = length as usize;
    while left > 0 {
        let offsets = (Some(&mut from_offset), Some(&mut to_offset));
        match rustix::fs::copy_file_range(from, offsets.0, to, offsets.1, left)? {
            0 => break,
            count => left -= count,
        }
    }
    Ok((length as usize - left).to_string().into())
}

/// Where holes are is told as roughly as a file system likes: what is compared is whether it may say
/// so.
fn seek(file: &OwnedFd, offset: u64, is_hole: bool) -> Outcome {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    let what = if is_hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
    let found = match rustix::fs::seek(file, what) {
        // There is only a hole from here on.
        Err(Errno::NXIO) if !is_hole && offset < size => size,
        found => found?,
    };
    assert!((offset..=size).contains(&found), "found {found} from {offset} in {size} bytes");
    if !is_hole && let Ok(skipped) = read(file, offset, found - offset) {
        assert!(skipped.iter().all(|byte| *byte == 0), "data in {offset}..{found} was skipped");
    }
    Ok(Vec::new())
}

fn list(path: &Path) -> Outcome {
    list_open(rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?)
}

fn list_open(directory: OwnedFd) -> Outcome {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        names.push(format!("{:?} {:?}", entry.file_name(), entry.file_type()));
    }
    names.sort();
    Ok(names.join("\n").into())
}

/// The names of attributes of a file, sorted, each with its value.
pub(super) fn xattrs(path: &Path) -> Result<Vec<Xattr>, Errno> {
    let mut names = vec![0; 4096];
    let bytes = rustix::fs::llistxattr(path, &mut names)?;
    let names = names[..bytes].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut found = Vec::new();
    for name in names {
        let mut value = vec![0; 4096];
        let bytes = rustix::fs::lgetxattr(path, name, &mut value)?;
        value.truncate(bytes);
        found.push((name.to_vec(), value));
    }
    found.sort();
    Ok(found)
}

/// Asks for a migration of a file.
pub(super) fn migrate(path: &Path, tier: &str) -> Result<(), Errno> {
    rustix::fs::lsetxattr(path, "user.terrace.tier", tier.as_bytes(), XattrFlags::empty())
}

/// Where the segments of a file are; nothing of what is no file, or has none.
pub(super) fn tiers(path: &Path) -> Option<String> {
    let mut value = [0; 64];
    let length = rustix::fs::lgetxattr(path, "user.terrace.tier", &mut value).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}
