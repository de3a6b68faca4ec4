// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file system of the simulation: two directories whose entries have numbers, two files that hold one.

use std::collections::{BTreeMap, HashMap};

use crate::{Access, Caps, Cover, Grant, Logged, Recall, Release, Session, Touch};

pub(super) const DIRECTORIES: [u64; 2] = [1, 2];
pub(super) const NAMES: u8 = 3;
pub(super) const FILES: [u64; 2] = [11, 12];

/// Milliseconds as the clocks of the simulation count them.
pub(super) const MS: u64 = 1_000_000;

/// What is linearizable by itself: a name in a directory, or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Register(pub(super) u64, pub(super) u8);

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Lookup(Register),
    Create(Register, u64),
    Remove(Register),
    /// Moves an entry to a free name, and gives it this number.
    Rename(Register, Register, u64),
    Read(u64),
    Write(u64, u64),
    /// Ends when what this client deferred is with the server.
    Fsync(u64),
}

/// A change that a client may defer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create(Register, u64),
    Remove(Register),
    Write(u64, u64),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    Found(u64),
    Missing,
    Exists,
    /// It may have been carried out.
    Unknown,
    /// Deferred changes were lost.
    Lost,
}

/// What a client knows of an inode, and the server of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Entries(BTreeMap<u8, u64>),
    Bytes(u64),
}

impl Default for Data {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl Data {
    pub(super) fn entries(&self) -> &BTreeMap<u8, u64> {
        match self {
            Self::Entries(entries) => entries,
            Self::Bytes(_) => panic!("a file is used as a directory"),
        }
    }

    pub(super) fn entries_mut(&mut self) -> &mut BTreeMap<u8, u64> {
        match self {
            Self::Entries(entries) => entries,
            Self::Bytes(_) => panic!("a file is used as a directory"),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => *bytes,
            Self::Entries(_) => panic!("a directory is used as a file"),
        }
    }

    /// Applies a deferred change; whether it fits what is there.
    pub(super) fn apply(&mut self, change: Change) -> bool {
        match change {
            Change::Create(Register(_, name), tag) => {
                self.entries_mut().insert(name, tag).is_none()
            }
            Change::Remove(Register(_, name)) => self.entries_mut().remove(&name).is_some(),
            Change::Write(_, tag) => {
                *self = Self::Bytes(tag);
                true
            }
        }
    }
}

impl Op {
    pub(super) fn touches(self) -> Vec<Touch> {
        let touch = |inode, access| Touch { inode, access };
        match self {
            Self::Lookup(at) => vec![touch(at.0, Access::ReadEntries)],
            Self::Create(at, _) | Self::Remove(at) => vec![touch(at.0, Access::ChangeEntries)],
            Self::Rename(from, to, _) if from.0 == to.0 => {
                vec![touch(to.0, Access::ChangeEntries)]
            }
            Self::Rename(from, to, _) => {
                vec![touch(from.0, Access::ChangeEntries), touch(to.0, Access::ChangeEntries)]
            }
            Self::Read(file) => vec![touch(file, Access::ReadData)],
            Self::Write(file, _) => vec![touch(file, Access::WriteData)],
            Self::Fsync(_) => Vec::new(),
        }
    }

    pub(super) fn is_change(self) -> bool {
        self.touches().iter().any(|touch| touch.access.is_change())
    }

    /// Carries it out, and says how it ended.
    pub(super) fn carry_out(self, inodes: &mut BTreeMap<u64, Data>) -> Ended {
        fn at(inodes: &mut BTreeMap<u64, Data>, inode: u64) -> &mut Data {
            inodes.get_mut(&inode).expect("all inodes are there")
        }
        match self {
            Self::Lookup(Register(directory, name)) => {
                let found = at(inodes, directory).entries().get(&name);
                found.map_or(Ended::Missing, |tag| Ended::Found(*tag))
            }
            Self::Create(Register(directory, name), tag) => {
                let entries = at(inodes, directory).entries_mut();
                if entries.contains_key(&name) {
                    return Ended::Exists;
                }
                entries.insert(name, tag);
                Ended::Done
            }
            Self::Remove(Register(directory, name)) => {
                let removed = at(inodes, directory).entries_mut().remove(&name);
                removed.map_or(Ended::Missing, |_| Ended::Done)
            }
            Self::Rename(from, to, tag) => {
                if !at(inodes, from.0).entries().contains_key(&from.1) {
                    return Ended::Missing;
                }
                if at(inodes, to.0).entries().contains_key(&to.1) {
                    return Ended::Exists;
                }
                at(inodes, from.0).entries_mut().remove(&from.1);
                at(inodes, to.0).entries_mut().insert(to.1, tag);
                Ended::Done
            }
            Self::Read(file) => Ended::Found(at(inodes, file).bytes()),
            Self::Write(file, tag) => {
                *at(inodes, file) = Data::Bytes(tag);
                Ended::Done
            }
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
    /// With entries of no directory, and 0 in each file.
    pub(super) fn new() -> Self {
        let directories = DIRECTORIES.map(|one| (one, Data::Entries(BTreeMap::new())));
        let inodes =
            directories.into_iter().chain(FILES.map(|one| (one, Data::Bytes(0)))).collect();
        let (decided, remembered) = (HashMap::new(), BTreeMap::new());
        Self { inodes, decided, remembered, instances: 0 }
    }
}

/// A message of a client.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Hello,
    Reclaim(Vec<crate::Claim>),
    Op(Op, Vec<(u64, Caps)>),
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
    Flushed(Vec<bool>),
    /// All recalls without an answer.
    Renewed(Vec<Recall>),
    /// And which instance it is.
    UnknownSession(u64),
}

/// The cover of each change.
pub(super) fn covers(changes: &[Logged<Change>]) -> Vec<Cover> {
    changes.iter().map(|logged| logged.cover).collect()
}
