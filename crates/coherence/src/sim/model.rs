// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file system of the simulation: two directories whose entries lead to files, each of which holds a number.

use std::collections::{BTreeMap, HashMap};

use crate::{Access, Caps, Claim, Grant, Logged, Recall, Release, Session, Touch};

pub(super) const DIRECTORIES: [u64; 2] = [1, 2];
pub(super) const NAMES: u8 = 3;
/// Files that are there from the start; others have the number with which they were made.
pub(super) const FILES: [u64; 2] = [11, 12];
/// Numbers from here on are unlike those.
pub(super) const TAGS: u64 = 100;

/// Milliseconds as the clocks of the simulation count them.
pub(super) const MS: u64 = 1_000_000;

/// What is linearizable by itself: a name in a directory, or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Register(pub(super) u64, pub(super) u8);

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Also returns what is in the file.
    Lookup(Register),
    /// Makes a file with this number, and an entry with this tag.
    Create(Register, u64),
    Remove(Register),
    /// Moves an entry, perhaps over another one, and gives it this tag.
    Rename(Register, Register, u64),
    Read(u64),
    Write(u64, u64),
    /// Ends when what this client deferred on the inode is with the server.
    Fsync(u64),
}

/// A change that a client may defer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// With the contents.
    Create(Register, u64, u64),
    /// And the file.
    Remove(Register, u64),
    /// And what the entry is from then on, and the file that it replaces.
    Rename(Register, Register, Entry, Option<u64>),
    Write(u64, u64),
}

/// An entry of a directory: a number that no other one has, and the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) tag: u64,
    pub(super) inode: u64,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// A rename over another entry.
    Replaced,
    /// What a file holds.
    Found(u64),
    /// An entry, and what its file holds where that is known.
    Entry(Entry, Option<u64>),
    Missing,
    Exists,
    /// Nothing is done: an entry leads to this file, which the client holds and did not name.
    LeadsTo(u64),
    /// It may have been carried out.
    Unknown,
    /// Deferred changes were lost.
    Lost,
}

/// What a client knows of an inode, and the server of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Entries(BTreeMap<u8, Entry>),
    /// What it holds, and how many entries lead to it.
    File(u64, u32),
}

impl Default for Data {
    fn default() -> Self {
        Self::File(0, 0)
    }
}

impl Data {
    pub(super) fn entries(&self) -> &BTreeMap<u8, Entry> {
        match self {
            Self::Entries(entries) => entries,
            Self::File(..) => panic!("a file is used as a directory"),
        }
    }

    pub(super) fn entries_mut(&mut self) -> &mut BTreeMap<u8, Entry> {
        match self {
            Self::Entries(entries) => entries,
            Self::File(..) => panic!("a file is used as a directory"),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::File(bytes, _) => *bytes,
            Self::Entries(_) => panic!("a directory is used as a file"),
        }
    }
}

impl Change {
    /// Does to an inode what the change does to it; whether that fits what is there.
    pub(super) fn apply(self, inode: u64, data: &mut Data) -> bool {
        match (self, data) {
            (Self::Create(at, tag, _), Data::Entries(entries)) => {
                entries.insert(at.1, Entry { tag, inode: tag }).is_none()
            }
            (Self::Remove(at, file), Data::Entries(entries)) => {
                entries.remove(&at.1).is_some_and(|entry| entry.inode == file)
            }
            (Self::Remove(..), Data::File(_, links)) => {
                *links = links.saturating_sub(1);
                true
            }
            (Self::Rename(from, to, entry, replaced), Data::Entries(entries)) => {
                let is_moved = from.0 != inode
                    || entries.remove(&from.1).is_some_and(|old| old.inode == entry.inode);
                let is_its = |old: Option<Entry>| old.map(|old| old.inode) == replaced;
                is_moved && (to.0 != inode || is_its(entries.insert(to.1, entry)))
            }
            (Self::Rename(.., replaced), Data::File(_, links)) => {
                if replaced == Some(inode) {
                    *links = links.saturating_sub(1);
                }
                true
            }
            (Self::Write(_, tag), Data::File(bytes, _)) => {
                *bytes = tag;
                true
            }
            (Self::Create(..), Data::File(..)) | (Self::Write(..), Data::Entries(_)) => false,
        }
    }

    /// The file that it makes.
    pub(super) fn born(self) -> Option<(u64, Data)> {
        match self {
            Self::Create(_, tag, bytes) => Some((tag, Data::File(bytes, 1))),
            _ => None,
        }
    }
}

/// The capabilities that make a file a client's own.
pub(super) fn file_caps() -> Caps {
    Caps::ATTR | Caps::READ | Caps::WRITE
}

impl Op {
    /// What it touches, where `file` is what an entry leads to.
    pub(super) fn touches(self, file: impl Fn(Register) -> Option<u64>) -> Vec<Touch> {
        let touch = |inode, access| Touch { inode, access };
        let target = |at, access| file(at).map(|inode| touch(inode, access));
        let mut touches = match self {
            Self::Lookup(at) => vec![touch(at.0, Access::ReadEntries)],
            Self::Create(at, _) | Self::Remove(at) => vec![touch(at.0, Access::ChangeEntries)],
            Self::Rename(from, to, _) if from.0 == to.0 => {
                vec![touch(to.0, Access::ChangeEntries)]
            }
            Self::Rename(from, to, _) => {
                vec![touch(from.0, Access::ChangeEntries), touch(to.0, Access::ChangeEntries)]
            }
            Self::Read(file) | Self::Fsync(file) => vec![touch(file, Access::ReadData)],
            Self::Write(file, _) => vec![touch(file, Access::WriteData)],
        };
        let (read, changed) = match self {
            Self::Lookup(at) => (Some(at), Vec::new()),
            _ => (None, self.changes_files_of()),
        };
        touches.extend(read.and_then(|at| target(at, Access::ReadData)));
        for file in changed.into_iter().filter_map(|at| target(at, Access::ChangeAttributes)) {
            if !touches.iter().any(|touch| touch.inode == file.inode) {
                touches.push(file);
            }
        }
        touches
    }

    /// The entries whose files it changes.
    pub(super) fn changes_files_of(self) -> Vec<Register> {
        match self {
            Self::Remove(at) => vec![at],
            Self::Rename(from, to, _) => vec![from, to],
            _ => Vec::new(),
        }
    }

    pub(super) fn is_change(self) -> bool {
        self.touches(|_| None).iter().any(|touch| touch.access.is_change())
    }

    /// What its client wants of an inode.
    pub(super) fn wants(self, inode: u64) -> Caps {
        match self {
            _ if !DIRECTORIES.contains(&inode) => match self {
                Self::Write(..) | Self::Create(..) => file_caps(),
                Self::Lookup(_) if inode.is_multiple_of(2) => file_caps(),
                _ => Caps::ATTR | Caps::READ,
            },
            Self::Lookup(_) => Caps::DENTRIES,
            _ => Caps::DENTRIES | Caps::DENTRIES_X,
        }
    }

    /// Carries it out, and says how it ended.
    pub(super) fn carry_out(self, inodes: &mut BTreeMap<u64, Data>) -> Ended {
        fn entries(inodes: &mut BTreeMap<u64, Data>, inode: u64) -> &mut BTreeMap<u8, Entry> {
            inodes.get_mut(&inode).expect("directories are there").entries_mut()
        }
        match self {
            Self::Lookup(at) => match entries(inodes, at.0).get(&at.1).copied() {
                Some(entry) => Ended::Entry(entry, Some(inodes[&entry.inode].bytes())),
                None => Ended::Missing,
            },
            Self::Create(at, tag) => {
                if entries(inodes, at.0).contains_key(&at.1) {
                    return Ended::Exists;
                }
                entries(inodes, at.0).insert(at.1, Entry { tag, inode: tag });
                inodes.insert(tag, Data::File(0, 1));
                Ended::Done
            }
            Self::Remove(at) => match entries(inodes, at.0).remove(&at.1) {
                Some(entry) => {
                    let file = inodes.get_mut(&entry.inode).expect("an entry leads to it");
                    Change::Remove(at, entry.inode).apply(entry.inode, file);
                    Ended::Done
                }
                None => Ended::Missing,
            },
            Self::Rename(from, to, tag) => {
                let Some(Entry { inode, .. }) = entries(inodes, from.0).get(&from.1).copied()
                else {
                    return Ended::Missing;
                };
                entries(inodes, from.0).remove(&from.1);
                match entries(inodes, to.0).insert(to.1, Entry { tag, inode }) {
                    Some(replaced) => {
                        let file = inodes.get_mut(&replaced.inode).expect("an entry leads to it");
                        let moved = Entry { tag, inode };
                        Change::Rename(from, to, moved, Some(replaced.inode))
                            .apply(replaced.inode, file);
                        Ended::Replaced
                    }
                    None => Ended::Done,
                }
            }
            Self::Read(file) => match inodes.get(&file) {
                Some(data) => Ended::Found(data.bytes()),
                None => Ended::Missing,
            },
            Self::Write(file, tag) => match inodes.get_mut(&file) {
                Some(data) => {
                    Change::Write(file, tag).apply(file, data);
                    Ended::Done
                }
                None => Ended::Missing,
            },
            Self::Fsync(_) => Ended::Done,
        }
    }
}

/// What survives the server: its pairs, each change of them a transaction.
#[derive(Debug)]
pub(super) struct Durable {
    pub(super) inodes: BTreeMap<u64, Data>,
    /// By session: the last deferred change whose fate is decided, and the fates that are not acknowledged.
    pub(super) decided: HashMap<u64, Decided>,
    /// Sessions, and whether each is fenced.
    pub(super) remembered: BTreeMap<u64, bool>,
    pub(super) instances: u64,
}

#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) last: u64,
    pub(super) are_applied: BTreeMap<u64, bool>,
}

impl Durable {
    /// The file that an entry leads to.
    pub(super) fn file(&self, at: Register) -> Option<u64> {
        self.inodes[&at.0].entries().get(&at.1).map(|entry| entry.inode)
    }

    /// Applies a deferred change; whether it fits what is there.
    pub(super) fn apply(&mut self, logged: &Logged<Change>) -> bool {
        let mut fits = true;
        for cover in &logged.covers {
            let data = self.inodes.get_mut(&cover.inode);
            fits &= data.is_some_and(|data| logged.change.apply(cover.inode, data));
        }
        self.inodes.extend(logged.change.born());
        fits
    }

    /// With empty directories, and 0 in each file.
    pub(super) fn new() -> Self {
        let directories = DIRECTORIES.map(|one| (one, Data::Entries(BTreeMap::new())));
        let inodes =
            directories.into_iter().chain(FILES.map(|one| (one, Data::File(0, 0)))).collect();
        let (decided, remembered) = (HashMap::new(), BTreeMap::new());
        Self { inodes, decided, remembered, instances: 0 }
    }
}

/// A message of a client.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Hello,
    Reclaim(Vec<Claim>),
    /// And whether capabilities are wanted, and the files that it changes, as far as the client knows them.
    Op(Op, bool, Vec<u64>),
    /// Deferred changes, and what is given back behind them.
    Flush(Vec<Logged<Change>>, Vec<Release>),
    Release(Vec<Release>),
    Renew,
}

/// A message of the server.
#[derive(Clone, Debug)]
pub(super) enum Tell {
    /// To a message with this number; and how many recalls were sent.
    Reply(u64, u64, Body),
    Recall(Recall),
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Session(Session),
    Granted(Vec<Grant>),
    Ended(Ended, Vec<(Grant, Data)>),
    /// And what is granted of the inodes that were made.
    Flushed(Vec<bool>, Vec<Grant>),
    /// All recalls without an answer.
    Renewed(Vec<Recall>),
    /// And which instance it is.
    UnknownSession(u64),
}
