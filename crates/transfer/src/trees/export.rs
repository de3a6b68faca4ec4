// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tree of a file system of the store into a local directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, linkat, mkdirat,
    mknodat, openat, removexattr, setxattr, symlinkat, unlinkat,
};
use rustix::io::Errno;
use terrace_console::failure::{Failure, Result, from_local};
use terrace_core::{Access, Buffer, Error, ErrorKind};
use terrace_fs::{Kind, Listed, Node, Reply, Request, Time};

use super::disks::Disks;
use super::pinned::{self, Pinned};
use super::unsettled::Unsettled;
use super::{PIECE_BYTES, Work, about, local, stored};

#[cfg(test)]
mod tests;

/// Entries that are fetched at once.
const LISTED: u32 = 512;

/// So often a name is looked up that others give to one file after the other.
const TRIES_MAX: usize = 100;

/// What the security module of the machine notes of every file: it says nothing of the source.
const LABEL: &[u8] = b"security.selinux";

/// A directory on the way down.
struct Level {
    path: PathBuf,
    directory: OwnedFd,
    node: Node,
    entries: std::vec::IntoIter<Listed>,
    /// Behind which the next entries are.
    position: u64,
    is_at_end: bool,
}

/// Where something is to be.
#[derive(Clone, Copy)]
struct Spot<'a> {
    directory: BorrowedFd<'a>,
    name: &'a OsStr,
    /// The same for people.
    path: &'a Path,
}

/// Which local file it is: device and inode.
type Identity = (u64, u64);

/// A file that was copied, and the times that it is to have.
struct Copied {
    /// From the root.
    path: PathBuf,
    looks: Looks,
    times: Timestamps,
}

/// By what a file that was copied is known again: only its times are still to be set. On some file systems
/// (FAT, network and FUSE ones) an inode gets another number each time it comes into memory, and on some
/// the time of a write is set once more when it arrives.
#[derive(PartialEq, Eq)]
struct Looks {
    device: u64,
    is_file: bool,
    size: u64,
}

impl Looks {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), is_file: metadata.is_file(), size: metadata.len() }
    }
}

struct Export<'a, 'w> {
    work: &'a mut Work<'w>,
    root: Root,
    /// What has several names, but for directories: the first of these, from the root.
    linked: HashMap<u64, PathBuf>,
    /// Local files with several names that are left as they are, by device and inode: of which file
    /// each is the copy.
    kept: HashMap<Identity, u64>,
    keeper: Keeper,
    disks: Disks,
    unsettled: Unsettled<Copied>,
    buffer: Buffer,
}

/// Copies what is in a directory of the file system into a local one, which is made if it is missing.
pub fn export(work: &mut Work<'_>, source: Node, target: &Path) -> Result<()> {
    fs::create_dir_all(target)
        .map_err(|error| about(from_local("make a directory", error), target))?;
    let mut export = Export::new(work, target)?;
    let walked = export.walk(source);
    // Also where a signal ends it: what was copied so far is not copied again.
    let settled = export.settle();
    // These times, and what has no bytes.
    let synced = export.disks.sync();
    let noted = export.work.note(synced);
    walked.and(settled).and(noted.map(drop))
}

impl Level {
    fn new(path: PathBuf, directory: OwnedFd, node: Node) -> Self {
        Self {
            path,
            directory,
            node,
            entries: Vec::new().into_iter(),
            position: 0,
            is_at_end: false,
        }
    }
}

impl<'a, 'w> Export<'a, 'w> {
    fn new(work: &'a mut Work<'w>, target: &Path) -> Result<Self> {
        let failed = |error| about(from_local("open a directory", error), target);
        let (linked, kept, mut disks) = (HashMap::new(), HashMap::new(), Disks::default());
        let file = fs::File::open(target).map_err(failed)?;
        disks.note(target, &file).map_err(failed)?;
        // Where it is by now, whatever led there.
        let opened = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
        let checked = work.places.check_outside("export", &opened);
        checked.map_err(|error| about(error, target))?;
        let root = Root { path: target.into(), directory: file.into() };
        let (keeper, unsettled) = (Keeper::here()?, Unsettled::default());
        let buffer = Buffer::zeroed(PIECE_BYTES);
        Ok(Self { work, root, linked, kept, keeper, disks, unsettled, buffer })
    }

    /// The root of the tree.
    fn top(&self, source: Node) -> Result<Level> {
        let path = self.root.path.clone();
        let directory = self.root.enter(Path::new(""));
        let directory = directory.map_err(|errno| unopened(errno, &path))?;
        Ok(Level::new(path, directory, source))
    }

    fn walk(&mut self, source: Node) -> Result<()> {
        let mut levels = vec![self.top(source)?];
        while let Some(level) = levels.last_mut() {
            self.work.interrupt.check("run it again to go on")?;
            if self.unsettled.is_due() {
                self.settle()?;
            }
            let next = self.next(level);
            let Some(entry) = self.work.note(next)?.flatten() else {
                let Some(level) = levels.pop() else { break };
                self.work.summary.directories += 1;
                let done = self.leave(&level);
                self.work.note(done)?;
                continue;
            };
            let result = self.one(level, &entry);
            if let Some(Some(below)) = self.work.note(result)? {
                levels.push(below);
            }
        }
        Ok(())
    }

    /// Makes the files durable that were copied; then these can get their times. They do not where
    /// something may be lost: the next run copies them again.
    fn settle(&mut self) -> Result<()> {
        let copied = self.unsettled.take();
        if copied.is_empty() {
            return Ok(());
        }
        let synced = self.disks.sync();
        if self.work.note(synced)?.is_none() {
            return Ok(());
        }
        for one in copied {
            let set = self.root.set_times(&one);
            self.work.note(set)?;
        }
        Ok(())
    }

    fn next(&self, level: &mut Level) -> Result<Option<Listed>> {
        if let Some(entry) = level.entries.next() {
            return Ok(Some(entry));
        }
        if level.is_at_end {
            return Ok(None);
        }
        let listed = self.work.files.list(level.node.number, level.position, LISTED, true);
        let listed = listed.map_err(|failure| said(failure, &level.path))?;
        level.is_at_end = listed.len() < LISTED as usize;
        level.position = listed.last().map_or(level.position, |entry| entry.position);
        level.entries = listed.into_iter();
        Ok(level.entries.next())
    }

    /// Everything in a directory is there: now it can get its times.
    fn leave(&mut self, level: &Level) -> Result<()> {
        // Without root, the files in it cannot be reached afterwards.
        if !self.keeper.is_root && level.node.permissions & Mode::XUSR.bits() == 0 {
            self.settle()?;
        }
        let pinned = Pinned::of(level.directory.as_fd());
        let pinned = pinned.map_err(|error| unread(error, &level.path))?;
        self.attributes(&level.node, &pinned, &level.path)
    }

    /// Copies one entry; a directory is returned, to go on in it.
    fn one(&mut self, level: &Level, entry: &Listed) -> Result<Option<Level>> {
        let name = entry.name.as_slice();
        // Whatever its source: it must not lead out of the directory.
        if name.contains(&b'/') || name == b"." || name == b".." {
            let reason = "the name cannot be that of a local file";
            return Err(Error::invalid("export", reason).with("name", name.escape_ascii()).into());
        }
        let name = OsStr::from_bytes(name);
        let path = level.path.join(name);
        let spot = Spot { directory: level.directory.as_fd(), name, path: &path };
        let node = match &entry.node {
            Some(node) => node,
            None => match self.find(level.node.number, entry) {
                // The name was removed meanwhile.
                Err(failure) if is_gone(&failure) => return Ok(None),
                node => &node.map_err(|failure| said(failure, &path))?,
            },
        };
        let there = Pinned::find(spot.directory, name).map_err(|error| unread(error, &path))?;
        let there = there.as_ref();
        if let Some(there) = there {
            let checked = self.work.places.check("export", there.metadata());
            checked.map_err(|error| about(error, &path))?;
        }
        if node.kind.is_directory() {
            return directory(spot, node, there).map(Some);
        }
        if node.links > 1
            && let Some(first) = self.linked.get(&node.number)
        {
            self.root.link(first, spot, there)?;
            self.work.summary.links += 1;
            return Ok(None);
        }
        match node.kind {
            Kind::File => self.file(spot, node, there)?,
            _ => self.other(spot, node, there)?,
        }
        if node.links > 1 {
            self.linked.insert(node.number, self.root.below(&path));
        }
        Ok(None)
    }

    /// What an entry leads to by now: what it led to may have been replaced since.
    fn find(&self, directory: u64, entry: &Listed) -> terrace_fs::Result<Node> {
        let files = &self.work.files;
        let mut found = files.node(entry.number);
        for _ in 0..TRIES_MAX {
            match &found {
                Err(failure) if failure.errno() == Errno::STALE => {
                    found = files.lookup(directory, &entry.name);
                }
                _ => break,
            }
        }
        found
    }

    fn file(&mut self, spot: Spot<'_>, node: &Node, there: Option<&Pinned>) -> Result<()> {
        let is_kept = |there: &&Pinned| {
            let metadata = there.metadata();
            self.is_unchanged(node, metadata) && !self.is_of_another(node, metadata)
        };
        if let Some(there) = there.filter(is_kept) {
            let metadata = there.metadata();
            if metadata.nlink() > 1 {
                self.kept.insert(identity(metadata), node.number);
            }
            if self.has_attributes(node, there, spot.path)? {
                self.permissions(node, metadata);
            } else {
                self.attributes(node, there, spot.path)?;
            }
            self.work.summary.unchanged += 1;
        } else {
            let copied = self.copy(spot, node, there)?;
            self.rights(node, &copied, spot.path)?;
            let looks = Looks::of(copied.metadata());
            let (path, times) = (self.root.below(spot.path), times(node));
            self.unsettled.push(Copied { path, looks, times }, node.size);
            self.work.summary.files += 1;
        }
        Ok(())
    }

    /// Whether a local file has the bytes of a file by its size and time, and of its owner, group and
    /// permissions what the user of this process can give.
    fn is_unchanged(&self, node: &Node, there: &Metadata) -> bool {
        let (_, modified) = local::times(there);
        there.is_file()
            && there.len() == node.size
            && modified == node.modified
            && self.keeper.is_given(node, there)
            && there.mode() & 0o7777 == lent(node, there).bits()
    }

    /// Whether a local file is the copy of another file already, of which this was a further name once.
    fn is_of_another(&self, node: &Node, there: &Metadata) -> bool {
        self.kept.get(&identity(there)).is_some_and(|of| *of != node.number)
    }

    /// Whether a local file has the extended attributes of a file.
    fn has_attributes(&self, node: &Node, there: &Pinned, path: &Path) -> Result<bool> {
        let wanted = stored::attributes(&self.work.files, node);
        let wanted = wanted.map_err(|failure| said(failure, path))?;
        let mut given = local::attributes(there, path)?;
        given.retain(|name, _| name != LABEL || wanted.contains_key(name));
        Ok(given == wanted)
    }

    /// Copies the bytes of a file.
    fn copy(&mut self, spot: Spot<'_>, node: &Node, there: Option<&Pinned>) -> Result<Pinned> {
        let path = spot.path;
        let failed = |error| about(from_local("write a file", error), path);
        // First of all: what was copied before stays where this cannot be.
        let (_, source) = self
            .work
            .files
            .open(node.number, Access::Read)
            .map_err(|failure| said(failure, path))?;
        let mut range = source.next_data(0).map_err(|failure| said(failure, path))?;
        if let Some(range) = &range {
            let first = &mut self.buffer[..1];
            source.read(range.start, first).map_err(|failure| said(failure, path))?;
        }
        // One with other names keeps its bytes there.
        let is_shared = |there: &Metadata| !there.is_file() || there.nlink() > 1;
        if there.is_some_and(|there| is_shared(there.metadata())) {
            clear(spot, there)?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(0o600);
        let opened = openat(spot.directory, spot.name, flags | OFlags::CLOEXEC, mode);
        let target = fs::File::from(opened.map_err(|errno| failed(errno.into()))?);
        if is_shared(&target.metadata().map_err(failed)?) {
            return Err(replaced(path));
        }
        target.set_len(0).map_err(failed)?;
        self.disks.note(path, &target).map_err(failed)?;
        while let Some(data) = range {
            let mut position = data.start;
            while position < data.end {
                let left = usize::try_from(data.end - position).unwrap_or(PIECE_BYTES);
                let piece = &mut self.buffer[..left.min(PIECE_BYTES)];
                let count = source.read(position, piece).map_err(|failure| said(failure, path))?;
                if count == 0 {
                    break;
                }
                target.write_all_at(&piece[..count], position).map_err(failed)?;
                position += count as u64;
                self.work.copied(count)?;
            }
            if position < data.end {
                break;
            }
            range = source.next_data(position).map_err(|failure| said(failure, path))?;
        }
        let size = source.size().map_err(|failure| said(failure, path))?;
        target.set_len(size).map_err(failed)?;
        source.close().map_err(|failure| said(failure, path))?;
        Ok(Pinned::of(target.as_fd()).map_err(failed)?)
    }

    /// Symbolic links, pipes, sockets, devices.
    fn other(&mut self, spot: Spot<'_>, node: &Node, there: Option<&Pinned>) -> Result<()> {
        clear(spot, there)?;
        let Spot { directory, name, path } = spot;
        let failed = |errno: Errno| about(from_local("make a file", errno.into()), path);
        if node.kind == Kind::Symlink {
            let asked = self.work.files.metadata().call(&Request::Target { number: node.number });
            let Reply::Bytes(target) = asked.map_err(|failure| said(failure, path))? else {
                return Ok(());
            };
            symlinkat(OsStr::from_bytes(&target), directory, name)
                .map_err(|errno| about(from_local("make a link", errno.into()), path))?;
            self.work.summary.symlinks += 1;
        } else {
            let kind = FileType::from_raw_mode(node.mode());
            let device = local::device(node.device);
            mknodat(directory, name, kind, Mode::from_raw_mode(0o600), device).map_err(failed)?;
            self.work.summary.special += 1;
        }
        let made = Pinned::open(directory, name).map_err(|error| unread(error, path))?;
        if local::kind(made.metadata()) != node.kind {
            return Err(replaced(path));
        }
        self.attributes(node, &made, path)
    }

    /// Owner, permissions, attributes, times: in this order, because each changes what is behind it.
    fn attributes(&mut self, node: &Node, there: &Pinned, path: &Path) -> Result<()> {
        self.rights(node, there, path)?;
        Ok(there.set_times(&times(node)).map_err(|errno| unset(errno, path))?)
    }

    /// Owner, permissions, attributes.
    fn rights(&mut self, node: &Node, there: &Pinned, path: &Path) -> Result<()> {
        let failed = |errno: Errno| unset(errno, path);
        give(node, there).map_err(failed)?;
        let given = there.look_again().map_err(|error| unread(error, path))?;
        let permissions = self.permissions(node, &given);
        if node.kind != Kind::Symlink {
            there.set_permissions(permissions).map_err(failed)?;
        }
        let wanted = stored::attributes(&self.work.files, node);
        let wanted = wanted.map_err(|failure| said(failure, path))?;
        let mut is_lost = false;
        for name in local::attributes(there, path)?.keys() {
            if !wanted.contains_key(name) && name != LABEL {
                let removed = removexattr(there.path(), name.as_slice());
                is_lost |= self.keeper.is_refused(name, removed).map_err(failed)?;
            }
        }
        for (name, value) in &wanted {
            let set = setxattr(there.path(), name.as_slice(), value, XattrFlags::empty());
            is_lost |= self.keeper.is_refused(name, set).map_err(failed)?;
        }
        self.work.summary.xattrs_lost += u64::from(is_lost);
        Ok(())
    }

    /// The permissions for a file that has the owner and the group that it can have; counts what is
    /// lost of these.
    fn permissions(&mut self, node: &Node, given: &Metadata) -> Mode {
        let permissions = lent(node, given);
        let is_lost = (given.uid(), given.gid()) != (node.user, node.group);
        let summary = &mut self.work.summary;
        summary.owners_lost += u64::from(is_lost);
        summary.set_ids_lost += u64::from(permissions != Mode::from_raw_mode(node.permissions));
        permissions
    }
}

/// The times that a local file is to have.
fn times(node: &Node) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
    Timestamps { last_access: time(node.accessed), last_modification: time(node.modified) }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Where the tree is copied to.
struct Root {
    path: PathBuf,
    directory: OwnedFd,
}

impl Root {
    /// A path below it, from it.
    fn below(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.path).unwrap_or(path).into()
    }

    /// Opens a directory below it.
    fn enter(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        pinned::enter_below(self.directory.as_fd(), path)
    }

    /// Makes a further name of what has one already, but of a directory, where it is not one already.
    fn link(&self, first: &Path, spot: Spot<'_>, there: Option<&Pinned>) -> Result<()> {
        let failed = |error| about(from_local("make a link", error), spot.path);
        let (directory, name) = self.find(first).map_err(|errno| failed(errno.into()))?;
        let other = Pinned::open(directory.as_fd(), name).map_err(failed)?;
        let is_same = |there: &Pinned| identity(there.metadata()) == identity(other.metadata());
        if !there.is_some_and(is_same) {
            clear(spot, there)?;
            let linked = linkat(directory, name, spot.directory, spot.name, AtFlags::empty());
            linked.map_err(|errno| failed(errno.into()))?;
        }
        Ok(())
    }

    /// Gives a file its times that was copied, where it still is.
    fn set_times(&self, copied: &Copied) -> Result<()> {
        let path = self.path.join(&copied.path);
        let (directory, name) = self.find(&copied.path).map_err(|errno| unset(errno, &path))?;
        let there = Pinned::open(directory.as_fd(), name).map_err(|error| unread(error, &path))?;
        if Looks::of(there.metadata()) != copied.looks {
            return Err(replaced(&path));
        }
        Ok(there.set_times(&copied.times).map_err(|errno| unset(errno, &path))?)
    }

    /// The directory and the name to which a path leads that was made before.
    fn find<'a>(&self, path: &'a Path) -> rustix::io::Result<(OwnedFd, &'a OsStr)> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL);
        };
        Ok((self.enter(directory)?, name))
    }
}

fn directory(spot: Spot<'_>, node: &Node, there: Option<&Pinned>) -> Result<Level> {
    let Spot { directory, name, path } = spot;
    if !there.is_some_and(|there| there.metadata().is_dir()) {
        clear(spot, there)?;
        mkdirat(directory, name, Mode::from_raw_mode(0o777))
            .map_err(|errno| about(from_local("make a directory", errno.into()), path))?;
    }
    let entered = pinned::enter(directory, name).map_err(|errno| unopened(errno, path))?;
    Ok(Level::new(path.into(), entered, node.clone()))
}

/// Gives a file to its owner and its group. Only root may give to any; others keep it, as with
/// `cp -a`, and give it to a group alone that they are in.
fn give(node: &Node, there: &Pinned) -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(node.user), Gid::from_raw(node.group));
    let to = |user| there.give(user, Some(group));
    let is_root = rustix::process::geteuid().is_root();
    match to(Some(user)) {
        Err(Errno::PERM) if !is_root => match to(None) {
            Err(Errno::PERM) => Ok(()),
            done => done,
        },
        done => done,
    }
}

/// Makes room for something of another kind; a directory only where it is empty.
fn clear(spot: Spot<'_>, there: Option<&Pinned>) -> Result<()> {
    let flags = match there {
        None => return Ok(()),
        Some(there) if there.metadata().is_dir() => AtFlags::REMOVEDIR,
        Some(_) => AtFlags::empty(),
    };
    let removed = unlinkat(spot.directory, spot.name, flags);
    Ok(removed.map_err(|errno| about(from_local("remove a file", errno.into()), spot.path))?)
}

/// The permissions for a file with this owner and this group. Its set-user-ID bit lends what its owner
/// may do and its set-group-ID bit what its group may: each goes with its owner or its group, or
/// else the file would lend what others may.
fn lent(node: &Node, given: &Metadata) -> Mode {
    let wanted = Mode::from_raw_mode(node.permissions);
    let (has_user, has_group) = (given.uid() == node.user, given.gid() == node.group);
    let mut permissions = wanted;
    permissions.set(Mode::SUID, has_user && wanted.contains(Mode::SUID));
    permissions.set(Mode::SGID, has_group && wanted.contains(Mode::SGID));
    permissions
}

/// The user that keeps files which it cannot give to their owners.
struct Keeper {
    user: u32,
    is_root: bool,
    groups: Vec<u32>,
}

impl Keeper {
    /// The user of this process.
    fn here() -> Result<Self> {
        let failed = |errno: Errno| from_local("ask for the groups", errno.into());
        let user = rustix::process::geteuid();
        let groups = rustix::process::getgroups().map_err(failed)?;
        let groups = groups.into_iter().chain([rustix::process::getegid()]);
        Ok(Self {
            user: user.as_raw(),
            is_root: user.is_root(),
            groups: groups.map(Gid::as_raw).collect(),
        })
    }

    /// Whether an extended attribute could not be set or removed because only root may.
    fn is_refused(&self, name: &[u8], done: rustix::io::Result<()>) -> rustix::io::Result<bool> {
        match done {
            Err(Errno::PERM) if !self.is_root && !name.starts_with(b"user.") => Ok(true),
            done => done.map(|()| false),
        }
    }

    /// Whether a local file has the owner and the group that it can be given.
    fn is_given(&self, node: &Node, there: &Metadata) -> bool {
        let keeps_user = !self.is_root && there.uid() == self.user;
        let keeps_group = !self.is_root && !self.groups.contains(&node.group);
        (there.uid() == node.user || keeps_user) && (there.gid() == node.group || keeps_group)
    }
}

/// Whether a name leads nowhere any more, or its directory is gone.
fn is_gone(failure: &terrace_fs::Failure) -> bool {
    matches!(failure.errno(), Errno::NOENT | Errno::STALE)
}

fn said(failure: terrace_fs::Failure, path: &Path) -> Failure {
    about(failure.into_error("export"), path).into()
}

fn unread(error: std::io::Error, path: &Path) -> Error {
    about(from_local("read a file", error), path)
}

fn unopened(errno: Errno, path: &Path) -> Error {
    about(from_local("open a directory", errno.into()), path)
}

fn unset(errno: Errno, path: &Path) -> Error {
    about(from_local("set attributes", errno.into()), path)
}

/// Another process has put something in the place of what was found or made.
fn replaced(path: &Path) -> Failure {
    let error = Error::new(ErrorKind::Stale, "copy a file");
    about(error.because("it was replaced while it was copied"), path).into()
}
