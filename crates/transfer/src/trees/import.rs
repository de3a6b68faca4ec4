// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A local tree into a file system of the store.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, SeekFrom, openat, readlinkat, seek};
use rustix::io::Errno;
use terrace_console::failure::Result;
use terrace_core::{Access, Buffer, Error, ErrorKind};
use terrace_fs::{Changes, File, Kind, Made, Node, Request, SetHow, Time, When};

use super::pinned::Pinned;
use super::unsettled::Unsettled;
use super::{PIECE_BYTES, Work, about, local, made, stored};

#[cfg(test)]
mod tests;

/// Smaller files are kept with the metadata and get no object.
const SMALL_BYTES: u64 = 4096;

/// A directory on the way down.
struct Level {
    path: PathBuf,
    number: u64,
    metadata: Metadata,
    entries: Dir,
}

/// What is copied.
struct Source<'a> {
    /// Where it is.
    directory: BorrowedFd<'a>,
    name: &'a OsStr,
    /// The same for people.
    path: &'a Path,
    pinned: &'a Pinned,
}

/// Where a name is to be.
#[derive(Clone, Copy)]
struct Spot<'a> {
    directory: u64,
    name: &'a [u8],
    /// What has it already.
    there: Option<&'a Node>,
}

/// Which local file it is: device and inode.
type Identity = (u64, u64);

/// A file that was copied, and when its source was last read and changed.
struct Copied {
    number: u64,
    path: PathBuf,
    times: (Time, Time),
}

struct Import<'a, 'w> {
    work: &'a mut Work<'w>,
    /// What has several names, but for directories, by device and inode.
    linked: HashMap<Identity, u64>,
    /// What was there with several names and is left as it is: of which file it is the copy.
    kept: HashMap<u64, Identity>,
    unsettled: Unsettled<Copied>,
    buffer: Buffer,
}

/// Copies what is in a local directory into one of the file system.
pub fn import(work: &mut Work<'_>, source: &Path, target: &Node) -> Result<()> {
    let mut import = Import::new(work);
    let walked = import.walk(source, target);
    // Also where a signal ends it: what was copied so far is not copied again.
    let settled = import.settle();
    walked.and(settled)
}

impl<'a, 'w> Import<'a, 'w> {
    fn new(work: &'a mut Work<'w>) -> Self {
        let (linked, kept) = (HashMap::new(), HashMap::new());
        let (unsettled, buffer) = (Unsettled::default(), Buffer::zeroed(PIECE_BYTES));
        Self { work, linked, kept, unsettled, buffer }
    }

    /// The root of the tree. It is where its user says: links are followed.
    fn top(&self, source: &Path, number: u64) -> Result<Level> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, source, flags, Mode::empty()).and_then(Dir::new);
        if directory.as_ref().is_err_and(|errno| *errno == Errno::NOTDIR) {
            return Err(about(Error::invalid("read a directory", "it is none"), source).into());
        }
        Level::new(source.into(), number, directory)
    }

    fn walk(&mut self, source: &Path, target: &Node) -> Result<()> {
        let mut levels = vec![self.top(source, target.number)?];
        while let Some(level) = levels.last_mut() {
            self.work.interrupt.check("run it again to go on")?;
            if self.unsettled.is_due() {
                self.settle()?;
            }
            let Some(entry) = level.entries.next() else {
                let Some(level) = levels.pop() else { break };
                let done = self.leave(&level);
                self.work.note(done)?;
                continue;
            };
            let name = match entry {
                Ok(entry) => entry.file_name().to_owned(),
                Err(errno) => {
                    let error = unlisted(errno, &level.path);
                    self.work.note::<()>(Err(error.into()))?;
                    continue;
                }
            };
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let result = self.one(level, OsStr::from_bytes(name.to_bytes()));
            if let Some(Some(below)) = self.work.note(result)? {
                levels.push(below);
            }
        }
        Ok(())
    }

    /// Makes the files durable that were copied; then these can get the times of their sources. They do
    /// not where something may be lost: the next run copies them again.
    fn settle(&mut self) -> Result<()> {
        let copied = self.unsettled.take();
        if copied.is_empty() {
            return Ok(());
        }
        let synced = self.work.files.sync();
        let synced = synced.map_err(|failure| failure.into_error("import").into());
        if self.work.note(synced)?.is_none() {
            return Ok(());
        }
        for Copied { number, path, times } in copied {
            let set = self.times(number, &path, times);
            self.work.note(set)?;
        }
        Ok(())
    }

    /// Everything in a directory is there: now it can get its times.
    fn leave(&mut self, level: &Level) -> Result<()> {
        self.work.summary.directories += 1;
        let directory = level.entries.fd().map_err(|errno| unlisted(errno, &level.path))?;
        let pinned = Pinned::of(directory).map_err(|error| unread(error, &level.path))?;
        self.attributes(level.number, &pinned, &level.path, &level.metadata)
    }

    /// Copies one entry; a directory is returned, to go on in it.
    fn one(&mut self, level: &Level, name: &OsStr) -> Result<Option<Level>> {
        let (path, number) = (level.path.join(name), level.number);
        let directory = level.entries.fd().map_err(|errno| unlisted(errno, &level.path))?;
        let pinned = Pinned::open(directory, name).map_err(|error| unread(error, &path))?;
        let (source, metadata) =
            (Source { directory, name, path: &path, pinned: &pinned }, pinned.metadata());
        let (directory, name) = (number, name.as_bytes());
        let there = match self.work.files.lookup(directory, name) {
            Ok(node) => Some(node),
            Err(failure) if failure.errno() == Errno::NOENT => None,
            Err(failure) => return Err(said(failure, &path)),
        };
        let spot = Spot { directory, name, there: there.as_ref() };
        let kind = local::kind(metadata);
        if kind.is_directory() {
            if let Some(place) = self.work.places.find(metadata) {
                let text = format!("left out, it belongs to {}: {}", place.what, path.display());
                self.work.progress.aside(|| self.work.failures.tell(&text));
                self.work.summary.left_out += 1;
                return Ok(None);
            }
            return self.directory(&source, spot).map(Some);
        }
        let identity = (metadata.nlink() > 1).then(|| identity(metadata));
        let first = identity.and_then(|identity| self.linked.get(&identity).copied());
        if let Some(number) = first {
            self.link(&path, number, spot)?;
            return Ok(None);
        }
        let number = match kind {
            Kind::File => self.file(&source, spot)?,
            kind => self.other(&source, kind, spot)?,
        };
        if let Some(identity) = identity {
            self.linked.insert(identity, number);
        }
        Ok(None)
    }

    /// Makes a further name of what was copied, where it is not one already.
    fn link(&mut self, path: &Path, number: u64, spot: Spot<'_>) -> Result<()> {
        if spot.there.is_none_or(|there| there.number != number) {
            self.clear(path, spot)?;
            let linked = self.work.files.link(number, spot.directory, spot.name);
            linked.map_err(|failure| said(failure, path))?;
        }
        self.work.summary.links += 1;
        Ok(())
    }

    fn directory(&mut self, source: &Source<'_>, spot: Spot<'_>) -> Result<Level> {
        let path = source.path;
        let number = match spot.there {
            Some(node) if node.kind.is_directory() => node.number,
            _ => {
                self.clear(path, spot)?;
                // Only for its owner, until its permissions come with everything else.
                let made = made(Kind::Directory, 0o700);
                let node = self.work.files.make(spot.directory, spot.name, made);
                node.map_err(|failure| said(failure, path))?.number
            }
        };
        let directory = source.open(OFlags::DIRECTORY).and_then(Dir::new);
        Level::new(path.into(), number, directory)
    }

    /// Copies a file where it is new or changed; its number.
    fn file(&mut self, source: &Source<'_>, spot: Spot<'_>) -> Result<u64> {
        let Source { path, pinned, .. } = *source;
        let metadata = pinned.metadata();
        let is_kept =
            |there: &&Node| is_unchanged(there, metadata) && !self.is_of_another(there, metadata);
        match spot.there.filter(is_kept) {
            Some(there) => {
                self.keep(there, metadata);
                self.work.summary.unchanged += 1;
                if !self.has_attributes(there, pinned, path)? {
                    self.attributes(there.number, pinned, path, metadata)?;
                }
                Ok(there.number)
            }
            None => {
                let number = self.copy(source, spot)?;
                self.work.summary.files += 1;
                Ok(number)
            }
        }
    }

    /// Whether what is there is the copy of another file already, of which this was a further name once.
    fn is_of_another(&self, there: &Node, metadata: &Metadata) -> bool {
        self.kept.get(&there.number).is_some_and(|of| *of != identity(metadata))
    }

    fn keep(&mut self, there: &Node, metadata: &Metadata) {
        if there.links > 1 {
            self.kept.insert(there.number, identity(metadata));
        }
    }

    /// Copies a file, but for its times, which it gets when it is settled; its number.
    fn copy(&mut self, from: &Source<'_>, spot: Spot<'_>) -> Result<u64> {
        let Source { path, pinned, .. } = *from;
        let metadata = pinned.metadata();
        let failed = |error| about(Error::from_io("read a file", error), path);
        let source = from.open(OFlags::NONBLOCK).map_err(|errno| failed(errno.into()))?;
        let source = fs::File::from(source);
        // One that has other names elsewhere keeps its bytes there.
        let there = spot.there.filter(|there| there.kind == Kind::File && there.links == 1);
        let target = match there.map(|node| self.emptied(node)) {
            Some(Ok(target)) => target,
            // One whose bytes are lost is made anew.
            Some(Err(failure)) if failure.errno() != Errno::IO => return Err(said(failure, path)),
            Some(Err(_)) | None => {
                self.clear(path, spot)?;
                let gets_object = metadata.len() > SMALL_BYTES;
                let made = made(Kind::File, 0o600);
                let files = &self.work.files;
                let (_, target) = files
                    .create(spot.directory, spot.name, made, gets_object)
                    .map_err(|failure| said(failure, path))?;
                target
            }
        };
        let end = self.bytes(path, &source, &target)?;
        let number = target.number();
        let read = source.metadata().map_err(failed)?;
        // A hole at the end.
        if end < read.len() {
            let changes = Changes { size: Some(read.len()), ..Changes::default() };
            let grown = self.work.files.change(number, changes);
            grown.map_err(|failure| said(failure, path))?;
        }
        // Also of one that has changed: else users that may read it could not until it is copied again.
        self.rights(number, pinned, path, &read)?;
        target.close().map_err(|failure| said(failure, path))?;
        if version(&read) != version(metadata) {
            let error = Error::new(ErrorKind::Stale, "copy a file");
            return Err(about(error.because("it changed while it was copied"), path).into());
        }
        let times = local::times(&read);
        self.unsettled.push(Copied { number, path: path.into(), times }, read.len());
        Ok(number)
    }

    /// Opens what is there to get other bytes, and cuts it off.
    fn emptied(&self, node: &Node) -> terrace_fs::Result<File> {
        let files = &self.work.files;
        let (_, target) = files.open(node.number, Access::Write)?;
        files.change(node.number, Changes { size: Some(0), ..Changes::default() })?;
        Ok(target)
    }

    /// Copies the ranges with data; where the last one ends.
    fn bytes(&mut self, path: &Path, source: &fs::File, target: &File) -> Result<u64> {
        let failed = |error| about(Error::from_io("read a file", error), path);
        let mut position = 0;
        loop {
            let start = match seek(source, SeekFrom::Data(position)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(position),
                // No holes are known here.
                Err(Errno::INVAL) => position,
                Err(errno) => return Err(failed(errno.into()).into()),
            };
            let end = seek(source, SeekFrom::Hole(start)).unwrap_or(u64::MAX);
            position = start;
            while position < end {
                let left = usize::try_from(end - position).unwrap_or(PIECE_BYTES);
                let piece = &mut self.buffer[..left.min(PIECE_BYTES)];
                let count = source.read_at(piece, position).map_err(failed)?;
                if count == 0 {
                    return Ok(position);
                }
                let written = target.write(position, &piece[..count], false);
                written.map_err(|failure| said(failure, path))?;
                position += count as u64;
                self.work.copied(count)?;
            }
        }
    }

    /// Symbolic links, pipes, sockets, devices; the number.
    fn other(&mut self, source: &Source<'_>, kind: Kind, spot: Spot<'_>) -> Result<u64> {
        let Source { path, pinned, .. } = *source;
        let metadata = pinned.metadata();
        let failed = |errno: Errno| about(Error::from_io("read a link", errno.into()), path);
        let target = match kind {
            Kind::Symlink => readlinkat(pinned, "", Vec::new()).map_err(failed)?.into_bytes(),
            _ => Vec::new(),
        };
        let device = local::encoded_device(metadata.rdev());
        let is_same = |there: &Node| {
            let has_target = || {
                let asked =
                    self.work.files.metadata().call(&Request::Target { number: there.number });
                asked == Ok(terrace_fs::Reply::Bytes(target.clone()))
            };
            let is_device = matches!(kind, Kind::CharacterDevice | Kind::BlockDevice);
            // One that is a further name there alone would lend its attributes to the others.
            there.kind == kind
                && !self.is_of_another(there, metadata)
                && (there.links == 1 || metadata.nlink() > 1)
                && (!is_device || there.device == device)
                && (kind != Kind::Symlink || has_target())
        };
        let number = match spot.there.filter(|there| is_same(there)) {
            Some(there) => {
                self.keep(there, metadata);
                there.number
            }
            None => {
                self.clear(path, spot)?;
                let made = Made { device, target: &target, ..made(kind, 0o600) };
                let node = self.work.files.make(spot.directory, spot.name, made);
                node.map_err(|failure| said(failure, path))?.number
            }
        };
        match kind {
            Kind::Symlink => self.work.summary.symlinks += 1,
            _ => self.work.summary.special += 1,
        }
        self.attributes(number, pinned, path, metadata)?;
        Ok(number)
    }

    /// Makes room for something of another kind; a directory only where it is empty.
    fn clear(&self, path: &Path, spot: Spot<'_>) -> Result<()> {
        let Some(there) = spot.there else { return Ok(()) };
        let removed = self.work.files.remove(spot.directory, spot.name, there.kind.is_directory());
        removed.map_err(|failure| said(failure, path))
    }

    /// Owner, permissions, attributes, times: in this order, because each changes what is behind it.
    fn attributes(
        &mut self,
        number: u64,
        pinned: &Pinned,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<()> {
        self.rights(number, pinned, path, metadata)?;
        self.times(number, path, local::times(metadata))
    }

    /// Whether what is there has the owner, the permissions and the attributes of the local file.
    fn has_attributes(&self, there: &Node, pinned: &Pinned, path: &Path) -> Result<bool> {
        let metadata = pinned.metadata();
        let mode = metadata.mode() & 0o7777;
        let owner = (metadata.uid(), metadata.gid());
        if there.permissions != mode || (there.user, there.group) != owner {
            return Ok(false);
        }
        Ok(self.given(there, path)? == local::attributes(pinned, path)?)
    }

    /// The attributes of what is there, as far as the user of this process would see them of the local file.
    fn given(&self, there: &Node, path: &Path) -> Result<local::Attributes> {
        let given = stored::attributes(&self.work.files, there);
        let mut given = given.map_err(|failure| said(failure, path))?;
        if !rustix::process::geteuid().is_root() {
            given.retain(|name, _| !name.starts_with(b"trusted."));
        }
        Ok(given)
    }

    /// Owner, permissions, attributes.
    fn rights(
        &mut self,
        number: u64,
        pinned: &Pinned,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<()> {
        let files = &self.work.files;
        let changes = Changes {
            user: Some(metadata.uid()),
            group: Some(metadata.gid()),
            permissions: Some(metadata.mode() & 0o7777),
            ..Changes::default()
        };
        let node = files.change(number, changes).map_err(|failure| said(failure, path))?;
        let wanted = local::attributes(pinned, path)?;
        for name in self.given(&node, path)?.keys() {
            if !wanted.contains_key(name) {
                let request = Request::RemoveXattr { number, name };
                files.metadata().call(&request).map_err(|failure| said(failure, path))?;
            }
        }
        for (name, value) in &wanted {
            let how = SetHow::Any;
            let request = Request::SetXattr { number, name, value, how, clears_set_group: false };
            files.metadata().call(&request).map_err(|failure| said(failure, path))?;
        }
        Ok(())
    }

    fn times(&self, number: u64, path: &Path, (accessed, modified): (Time, Time)) -> Result<()> {
        let changes = Changes {
            accessed: Some(When::At(accessed)),
            modified: Some(When::At(modified)),
            ..Changes::default()
        };
        let changed = self.work.files.change(number, changes);
        changed.map(drop).map_err(|failure| said(failure, path))
    }
}

impl Level {
    fn new(path: PathBuf, number: u64, directory: rustix::io::Result<Dir>) -> Result<Self> {
        let entries = directory.map_err(|errno| unlisted(errno, &path))?;
        let opened = entries.fd().map_err(|errno| unlisted(errno, &path))?;
        let pinned = Pinned::of(opened).map_err(|error| unread(error, &path))?;
        let metadata = pinned.metadata().clone();
        Ok(Self { number, metadata, entries, path })
    }
}

impl Source<'_> {
    /// Opens what has its name for reading, which may be another file by now.
    fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | flags;
        openat(self.directory, self.name, flags, Mode::empty())
    }
}

fn unlisted(errno: Errno, path: &Path) -> Error {
    about(Error::from_io("read a directory", errno.into()), path)
}

fn unread(error: std::io::Error, path: &Path) -> Error {
    about(Error::from_io("read a file", error), path)
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// What differs once a file has been changed, or another has its name.
fn version(metadata: &Metadata) -> (Identity, u64, [(i64, i64); 2]) {
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    (identity(metadata), metadata.len(), [modified, changed])
}

fn is_unchanged(there: &Node, metadata: &Metadata) -> bool {
    let (_, modified) = local::times(metadata);
    there.kind == Kind::File && there.size == metadata.len() && there.modified == modified
}

fn said(failure: terrace_fs::Failure, path: &Path) -> terrace_console::failure::Failure {
    about(failure.into_error("import"), path).into()
}
