// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations on many small files and directories: what mdtest does.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::clock::{Stamp, raw_ns};
use crate::content::{Aligned, Content};
use crate::crew::{Shares, work_together};
use crate::error::{Error, Result};
use crate::latency::Latencies;
use crate::mix::mix;
use crate::phase::{Outcome, Phase};
use crate::tree::Tree;

/// Room for the name of an item below its directory.
const NAME_BYTES_MAX: usize = 64;

/// What is done to each item.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Action {
    Create,
    Stat,
    ReadFiles,
    Remove,
}

/// All that defines the work of a metadata phase, the same in every process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct ItemsPattern {
    pub(crate) action: Action,
    /// Of each kind, for each process.
    pub(crate) items: u64,
    pub(crate) has_files: bool,
    pub(crate) has_directories: bool,
    pub(crate) tree: Tree,
    /// A tree for each process in place of one for all.
    pub(crate) is_unique_directory: bool,
    pub(crate) threads: u64,
    /// Process `r` works on the items of process `r + stride`.
    pub(crate) stride: u64,
    /// Written to each file, or read from it.
    pub(crate) bytes: u64,
    pub(crate) is_synced: bool,
    pub(crate) is_checked: bool,
    pub(crate) seed: u64,
}

impl ItemsPattern {
    fn operations(&self) -> u64 {
        self.items * (u64::from(self.has_files) + u64::from(self.has_directories))
    }

    /// Directories come before files.
    #[inline]
    fn item(&self, operation: u64) -> Item {
        let is_directory = self.has_directories && operation < self.items;
        let number =
            if self.has_directories && !is_directory { operation - self.items } else { operation };
        Item { is_directory, number }
    }
}

#[derive(Clone, Copy)]
struct Item {
    is_directory: bool,
    number: u64,
}

/// The part of one process.
#[derive(Debug)]
pub(crate) struct Items {
    pattern: ItemsPattern,
    directory: PathBuf,
    rank: u64,
    /// Whose items these are.
    owner: u64,
    /// Of the owner's tree; its root is the first.
    paths: Vec<PathBuf>,
}

/// What one thread works with and has done.
struct Hand {
    /// A path with its NUL.
    path: Vec<u8>,
    content: Content,
    read: Aligned,
    latencies: Latencies,
    files: u64,
    directories: u64,
}

impl Items {
    pub(crate) fn new(pattern: ItemsPattern, directory: &Path, rank: u64, processes: u64) -> Self {
        let owner = (rank + pattern.stride) % processes;
        let paths = pattern.tree.paths(&root(&pattern, directory, owner));
        Self { pattern, directory: directory.to_owned(), rank, owner, paths }
    }

    /// The tree that this process makes and removes, if any.
    fn own(&self) -> Option<Vec<PathBuf>> {
        let is_own = self.pattern.is_unique_directory || self.rank == 0;
        let root = || root(&self.pattern, &self.directory, self.rank);
        is_own.then(|| self.pattern.tree.paths(&root()))
    }

    fn hand(&self) -> Hand {
        let longest = self.paths.iter().map(|path| path.as_os_str().len()).max().unwrap_or(0);
        let bytes = self.pattern.bytes as usize;
        Hand {
            path: Vec::with_capacity(longest + NAME_BYTES_MAX),
            content: Content::new(self.pattern.seed, bytes),
            read: Aligned::new(bytes),
            latencies: Latencies::new(),
            files: 0,
            directories: 0,
        }
    }

    /// Puts the path of an item into a buffer that has room for it.
    fn name(&self, item: Item, path: &mut Vec<u8>) {
        let directory = self.pattern.tree.directory_of(item.number, self.pattern.items);
        path.clear();
        path.extend_from_slice(self.paths[directory as usize].as_os_str().as_bytes());
        let kind = if item.is_directory { "dir" } else { "file" };
        write!(path, "/{kind}.{}.{}\0", self.owner, item.number).expect("a vector takes all");
    }

    /// The operations of one thread.
    fn operate(&self, hand: &mut Hand, shares: &Shares) -> Result<()> {
        let count = self.pattern.operations();
        while let Some(share) = shares.take().filter(|share| *share < count) {
            let item = self.pattern.item(share);
            self.name(item, &mut hand.path);
            let path = CStr::from_bytes_with_nul(&hand.path).expect("only its end is NUL");
            let piece = match self.pattern.action {
                // Directories have no bytes, and a stat reads none.
                Action::Create if !item.is_directory => self.piece(&mut hand.content, item.number),
                _ => &[],
            };
            let begin_ns = raw_ns();
            let done = self.act(item, path, piece, &mut hand.read);
            let end_ns = raw_ns();
            done.map_err(|error| self.failed(error, path))?;
            hand.latencies.record(end_ns - begin_ns);
            if item.is_directory {
                hand.directories += 1;
            } else {
                hand.files += 1;
                if self.pattern.is_checked && self.pattern.action == Action::ReadFiles {
                    self.compare(&mut hand.content, item.number, hand.read.bytes(), path)?;
                }
            }
        }
        Ok(())
    }

    /// What is measured: one item.
    fn act(&self, item: Item, path: &CStr, piece: &[u8], buffer: &mut Aligned) -> io::Result<()> {
        match (self.pattern.action, item.is_directory) {
            (Action::Create, true) => Ok(rustix::fs::mkdir(path, Mode::from(0o777))?),
            (Action::Create, false) => {
                // Exclusively: a file that was there before would not have been created.
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let mut file = File::from(rustix::fs::open(path, flags, Mode::from(0o666))?);
                if !piece.is_empty() {
                    file.write_all(piece)?;
                }
                if self.pattern.is_synced {
                    file.sync_all()?;
                }
                Ok(())
            }
            (Action::Stat, is_directory) => {
                let found = FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode);
                let expected =
                    if is_directory { FileType::Directory } else { FileType::RegularFile };
                if found == expected {
                    Ok(())
                } else {
                    Err(io::Error::other("it is no longer what was created"))
                }
            }
            (Action::ReadFiles, _) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
                io::Read::read_exact(&mut file, buffer.bytes_mut())
            }
            (Action::Remove, true) => Ok(rustix::fs::rmdir(path)?),
            (Action::Remove, false) => Ok(rustix::fs::unlink(path)?),
        }
    }

    /// The bytes of a file: every one has its own.
    fn piece<'a>(&self, content: &'a mut Content, number: u64) -> &'a [u8] {
        content.piece(self.file_number(number), 0, self.pattern.bytes as usize)
    }

    fn file_number(&self, number: u64) -> u64 {
        mix(self.owner) ^ number
    }

    fn compare(&self, content: &mut Content, number: u64, found: &[u8], path: &CStr) -> Result<()> {
        match content.difference(self.file_number(number), 0, found) {
            None => Ok(()),
            Some(offset) => Err(Error::new("read", "the bytes are not those that were written")
                .with("path", path.to_string_lossy())
                .with("offset_bytes", offset)),
        }
    }

    fn failed(&self, error: io::Error, path: &CStr) -> Error {
        let operation = match self.pattern.action {
            Action::Create => "create",
            Action::Stat => "stat",
            Action::ReadFiles => "read",
            Action::Remove => "remove",
        };
        Error::system(operation, error).with("path", path.to_string_lossy())
    }
}

impl Phase for Items {
    fn prepare(&mut self) -> Result<()> {
        let Some(paths) = self.own().filter(|_| self.pattern.action == Action::Create) else {
            return Ok(());
        };
        for path in paths {
            match fs::create_dir(&path) {
                // Files and directories may be created one after the other in the same tree.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::system("make a tree", error).with("path", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn measure(&mut self, begin: &mut dyn FnMut() -> Result<()>) -> Result<Outcome> {
        let hands = (0..self.pattern.threads).map(|_| self.hand()).collect();
        let shares = Shares::default();
        let stamp = || begin().map(|()| Stamp::now());
        let work = |hand: &mut Hand, _: &Stamp| self.operate(hand, &shares);
        let (begin, hands) = work_together(hands, &shares, stamp, work)?;
        let end = Stamp::now();
        let mut latencies = Latencies::new();
        for hand in &hands {
            latencies.add(&hand.latencies.counts())?;
        }
        let files = hands.iter().map(|hand| hand.files).sum::<u64>();
        let directories = hands.iter().map(|hand| hand.directories).sum::<u64>();
        let has_bytes = matches!(self.pattern.action, Action::Create | Action::ReadFiles);
        Ok(Outcome {
            begin,
            end,
            bytes: if has_bytes { files * self.pattern.bytes } else { 0 },
            operations: files + directories,
            files,
            directories,
            open_ns: 0,
            sync_ns: 0,
            close_ns: 0,
            is_stonewalled: false,
            latency: latencies.counts(),
        })
    }

    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        let Some(paths) = self.own().filter(|_| self.pattern.action == Action::Remove) else {
            return Ok(());
        };
        for path in paths.iter().rev() {
            match fs::remove_dir(path) {
                // Items of the other kind are still there, and keep the tree.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => {
                    return Err(Error::system("remove", error).with("path", path.display()));
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// The root of the tree of one process, or of all.
fn root(pattern: &ItemsPattern, directory: &Path, rank: u64) -> PathBuf {
    match pattern.is_unique_directory {
        true => directory.join(format!("tree.{rank}")),
        false => directory.join("tree"),
    }
}
