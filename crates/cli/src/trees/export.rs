// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tree of a file system of the store into a local directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat,
    chownat, linkat, lremovexattr, lsetxattr, mknodat, utimensat,
};
use rustix::io::Errno;
use terrace_core::{Access, Buffer, Error};
use terrace_fs::{Kind, Listed, Node, Reply, Request, Time};

use super::disks::Disks;
use super::unsettled::Unsettled;
use super::{PIECE_BYTES, Work, about, local, stored};
use crate::failure::{Failure, Result, from_local};

/// Entries that are fetched at once.
const LISTED: u32 = 512;

/// What the security module of the machine notes of every file: it says nothing of the source.
const LABEL: &[u8] = b"security.selinux";

/// A directory on the way down.
struct Level {
    path: PathBuf,
    node: Node,
    entries: std::vec::IntoIter<Listed>,
    /// Behind which the next entries are.
    position: u64,
    is_at_end: bool,
}

/// A file that was copied, and the times that it is to have.
struct Copied {
    path: PathBuf,
    times: Timestamps,
}

struct Export<'a, 'w> {
    work: &'a mut Work<'w>,
    /// What has several names, but for directories: the first of these.
    linked: HashMap<u64, PathBuf>,
    /// Local files with several names that are left as they are, by device and inode: of which file
    /// each is the copy.
    kept: HashMap<(u64, u64), u64>,
    keeper: Keeper,
    disks: Disks,
    unsettled: Unsettled<Copied>,
    buffer: Buffer,
}

/// Copies what is in a directory of the file system into a local one, which is made if it is missing.
pub(crate) fn export(work: &mut Work<'_>, source: Node, target: &Path) -> Result<()> {
    fs::create_dir_all(target)
        .map_err(|error| about(from_local("make a directory", error), target))?;
    let mut export = Export::new(work, target)?;
    let walked = export.walk(source, target);
    // Also where a signal ends it: what was copied so far is not copied again.
    let settled = export.settle();
    // These times, and what has no bytes.
    let synced = export.disks.sync();
    let noted = export.work.note(synced);
    walked.and(settled).and(noted.map(drop))
}

impl Level {
    fn new(path: PathBuf, node: Node) -> Self {
        Self { path, node, entries: Vec::new().into_iter(), position: 0, is_at_end: false }
    }
}

impl<'a, 'w> Export<'a, 'w> {
    fn new(work: &'a mut Work<'w>, target: &Path) -> Result<Self> {
        let failed = |error| about(from_local("open a directory", error), target);
        let (linked, kept, mut disks) = (HashMap::new(), HashMap::new(), Disks::default());
        let directory = fs::File::open(target).map_err(failed)?;
        disks.note(target, &directory).map_err(failed)?;
        let (keeper, unsettled) = (Keeper::here()?, Unsettled::default());
        let buffer = Buffer::zeroed(PIECE_BYTES);
        Ok(Self { work, linked, kept, keeper, disks, unsettled, buffer })
    }

    fn walk(&mut self, source: Node, target: &Path) -> Result<()> {
        let mut levels = vec![Level::new(target.into(), source)];
        while let Some(level) = levels.last_mut() {
            self.work.interrupt.check("run it again to go on")?;
            if self.unsettled.is_due() {
                self.settle()?;
            }
            let next = self.next(level);
            let Some(entry) = self.work.note(next)?.flatten() else {
                let Some(level) = levels.pop() else { break };
                self.work.summary.directories += 1;
                let done = self.attributes(&level.node, &level.path);
                self.work.note(done)?;
                continue;
            };
            let directory = level.path.clone();
            let result = self.one(&directory, &entry);
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
        for Copied { path, times } in copied {
            let set = set_times(&path, &times);
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

    /// Copies one entry; a directory is returned, to go on in it.
    fn one(&mut self, directory: &Path, entry: &Listed) -> Result<Option<Level>> {
        let name = entry.name.as_slice();
        // Whoever sent it: it must not lead out of the directory.
        if name.contains(&b'/') || name == b"." || name == b".." {
            let reason = "the name cannot be that of a local file";
            return Err(Error::invalid("export", reason).with("name", name.escape_ascii()).into());
        }
        let path = directory.join(OsStr::from_bytes(name));
        let node = match &entry.node {
            Some(node) => node,
            None => match self.work.files.node(entry.number) {
                // It was removed meanwhile.
                Err(failure) if failure.errno() == Errno::STALE => return Ok(None),
                node => &node.map_err(|failure| said(failure, &path))?,
            },
        };
        let there = match fs::symlink_metadata(&path) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(about(from_local("read a file", error), &path).into()),
        };
        if node.kind.is_directory() {
            return self.directory(&path, node, there.as_ref()).map(Some);
        }
        if node.links > 1
            && let Some(first) = self.linked.get(&node.number)
        {
            link(first, &path, there.as_ref())?;
            self.work.summary.links += 1;
            return Ok(None);
        }
        match node.kind {
            Kind::File => self.file(&path, node, there.as_ref())?,
            _ => self.other(&path, node, there.as_ref())?,
        }
        if node.links > 1 {
            self.linked.insert(node.number, path);
        }
        Ok(None)
    }

    fn directory(&self, path: &Path, node: &Node, there: Option<&Metadata>) -> Result<Level> {
        if !there.is_some_and(Metadata::is_dir) {
            clear(path, there)?;
            fs::create_dir(path)
                .map_err(|error| about(from_local("make a directory", error), path))?;
        }
        Ok(Level::new(path.into(), node.clone()))
    }

    fn file(&mut self, path: &Path, node: &Node, there: Option<&Metadata>) -> Result<()> {
        let is_kept =
            |there: &&Metadata| self.is_unchanged(node, there) && !self.is_of_another(node, there);
        if let Some(there) = there.filter(is_kept) {
            if there.nlink() > 1 {
                self.kept.insert((there.dev(), there.ino()), node.number);
            }
            if self.has_attributes(node, path)? {
                self.permissions(node, there);
            } else {
                self.attributes(node, path)?;
            }
            self.work.summary.unchanged += 1;
        } else {
            self.copy(path, node, there)?;
            self.rights(node, path)?;
            self.unsettled.push(Copied { path: path.into(), times: times(node) }, node.size);
            self.work.summary.files += 1;
        }
        Ok(())
    }

    /// Whether a local file has the bytes of a file by its size and time, and of its owner, group and
    /// permissions what whoever runs this can give.
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
        self.kept.get(&(there.dev(), there.ino())).is_some_and(|of| *of != node.number)
    }

    /// Whether a local file has the extended attributes of a file.
    fn has_attributes(&self, node: &Node, path: &Path) -> Result<bool> {
        let wanted = stored::attributes(&self.work.files, node);
        let wanted = wanted.map_err(|failure| said(failure, path))?;
        let mut given = local::attributes(path)?;
        given.retain(|name, _| name != LABEL || wanted.contains_key(name));
        Ok(given == wanted)
    }

    /// Copies the bytes of a file.
    fn copy(&mut self, path: &Path, node: &Node, there: Option<&Metadata>) -> Result<()> {
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
        if there.is_some_and(|there| !there.is_file() || there.nlink() > 1) {
            clear(path, there)?;
        }
        let target = fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(failed)?;
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
        source.close().map_err(|failure| said(failure, path))
    }

    /// Symbolic links, pipes, sockets, devices.
    fn other(&mut self, path: &Path, node: &Node, there: Option<&Metadata>) -> Result<()> {
        clear(path, there)?;
        let failed = |errno: Errno| about(from_local("make a file", errno.into()), path);
        if node.kind == Kind::Symlink {
            let asked = self.work.files.metadata().call(&Request::Target { number: node.number });
            let Reply::Bytes(target) = asked.map_err(|failure| said(failure, path))? else {
                return Ok(());
            };
            std::os::unix::fs::symlink(OsStr::from_bytes(&target), path)
                .map_err(|error| about(from_local("make a link", error), path))?;
            self.work.summary.symlinks += 1;
        } else {
            let kind = FileType::from_raw_mode(node.mode());
            let device = local::device(node.device);
            mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device).map_err(failed)?;
            self.work.summary.special += 1;
        }
        self.attributes(node, path)
    }

    /// Owner, permissions, attributes, times: in this order, because each changes what is behind it.
    fn attributes(&mut self, node: &Node, path: &Path) -> Result<()> {
        self.rights(node, path)?;
        set_times(path, &times(node))
    }

    /// Owner, permissions, attributes.
    fn rights(&mut self, node: &Node, path: &Path) -> Result<()> {
        let failed = |errno: Errno| about(from_local("set attributes", errno.into()), path);
        give(node, path).map_err(failed)?;
        let given = fs::symlink_metadata(path)
            .map_err(|error| about(from_local("set attributes", error), path))?;
        let permissions = self.permissions(node, &given);
        if node.kind != Kind::Symlink {
            chmodat(CWD, path, permissions, AtFlags::empty()).map_err(failed)?;
        }
        let wanted = stored::attributes(&self.work.files, node);
        let wanted = wanted.map_err(|failure| said(failure, path))?;
        let mut is_lost = false;
        for name in local::attributes(path)?.keys() {
            if !wanted.contains_key(name) && name != LABEL {
                let removed = lremovexattr(path, name.as_slice());
                is_lost |= self.keeper.is_refused(name, removed).map_err(failed)?;
            }
        }
        for (name, value) in &wanted {
            let set = lsetxattr(path, name.as_slice(), value, XattrFlags::empty());
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

fn set_times(path: &Path, times: &Timestamps) -> Result<()> {
    let set = utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW);
    Ok(set.map_err(|errno| about(from_local("set attributes", errno.into()), path))?)
}

/// Makes a further name of a file, or of anything else but a directory, where it is not one already.
fn link(first: &Path, path: &Path, there: Option<&Metadata>) -> Result<()> {
    let failed = |error| about(from_local("make a link", error), path);
    let other = fs::symlink_metadata(first).map_err(failed)?;
    if there.is_none_or(|there| (there.dev(), there.ino()) != (other.dev(), other.ino())) {
        clear(path, there)?;
        linkat(CWD, first, CWD, path, AtFlags::empty()).map_err(|errno| failed(errno.into()))?;
    }
    Ok(())
}

/// Gives a file to its owner and its group. Only root may give to any; others keep it, as with
/// `cp -a`, and give it to a group alone that they are in.
fn give(node: &Node, path: &Path) -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(node.user), Gid::from_raw(node.group));
    let to = |user| chownat(CWD, path, user, Some(group), AtFlags::SYMLINK_NOFOLLOW);
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
fn clear(path: &Path, there: Option<&Metadata>) -> Result<()> {
    let removed = match there {
        None => return Ok(()),
        Some(there) if there.is_dir() => fs::remove_dir(path),
        Some(_) => fs::remove_file(path),
    };
    Ok(removed.map_err(|error| about(from_local("remove a file", error), path))?)
}

/// The permissions for a file with this owner and this group. Its set-user-ID bit lends what its owner
/// may do and its set-group-ID bit what its group may: each goes with the one for whom it was set, or
/// else the file would lend what others may.
fn lent(node: &Node, given: &Metadata) -> Mode {
    let wanted = Mode::from_raw_mode(node.permissions);
    let (has_user, has_group) = (given.uid() == node.user, given.gid() == node.group);
    let mut permissions = wanted;
    permissions.set(Mode::SUID, has_user && wanted.contains(Mode::SUID));
    permissions.set(Mode::SGID, has_group && wanted.contains(Mode::SGID));
    permissions
}

/// Who keeps files that it cannot give to their owners.
struct Keeper {
    user: u32,
    is_root: bool,
    groups: Vec<u32>,
}

impl Keeper {
    /// Whoever runs this.
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

fn said(failure: terrace_fs::Failure, path: &Path) -> Failure {
    about(failure.into_error("export"), path).into()
}
