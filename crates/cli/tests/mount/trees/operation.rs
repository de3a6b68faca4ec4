// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done to both trees, and how it is chosen.

use rustix::fs::{FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags};
use terrace_core::Random;

/// Files that may be open at a time.
pub(super) const SLOTS: usize = 6;

/// Directories that may be held open at a time, where that is tried.
pub(super) const HELD: usize = 3;

/// Before the place of a held directory, at the beginning of a path that leads on from it.
pub(super) const AT: char = '@';

/// Names of things in a directory: few, so that they meet.
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// Directories lie in each other so deep.
const DEPTH_MAX: usize = 4;

/// With more than so many names, removals are preferred.
const NAMES_MAX: usize = 90;

/// Sizes around which files are kept elsewhere: a small file with its name, others as objects.
const SMALL_BYTES_MAX: u64 = 6_000;
const LARGE_BYTES_MAX: u64 = 400_000;

/// Longest range that is written, read or copied at once.
const RANGE_BYTES_MAX: u64 = 150_000;

/// Something that both trees are asked to do.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    MakeDirectory {
        path: String,
        mode: u32,
    },
    RemoveDirectory {
        path: String,
    },
    Unlink {
        path: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    Link {
        from: String,
        to: String,
    },
    Rename {
        from: String,
        to: String,
        flags: RenameFlags,
    },
    MakeNode {
        path: String,
        kind: FileType,
        mode: u32,
    },
    Open {
        slot: usize,
        path: String,
        flags: OFlags,
        mode: u32,
    },
    /// Opens a file without a name.
    OpenUnnamed {
        slot: usize,
        directory: String,
        mode: u32,
    },
    /// Gives an open file a name.
    LinkOpen {
        slot: usize,
        to: String,
    },
    Close {
        slot: usize,
    },
    /// Opens a directory, from which paths lead on.
    Hold {
        place: usize,
        path: String,
    },
    /// Closes one.
    Drop {
        place: usize,
    },
    /// Looks at one that is held.
    StatHeld {
        place: usize,
    },
    /// Lists one that is held.
    ListHeld {
        place: usize,
    },
    Write {
        slot: usize,
        offset: u64,
        length: u64,
        fill: u64,
    },
    Read {
        slot: usize,
        offset: u64,
        length: u64,
    },
    SetLength {
        slot: usize,
        size: u64,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Allocate {
        slot: usize,
        mode: FallocateFlags,
        offset: u64,
        length: u64,
    },
    Copy {
        from: usize,
        from_offset: u64,
        to: usize,
        to_offset: u64,
        length: u64,
    },
    Seek {
        slot: usize,
        offset: u64,
        is_hole: bool,
    },
    Sync {
        slot: usize,
    },
    ChangeMode {
        path: String,
        mode: u32,
    },
    ChangeOwner {
        path: String,
        user: u32,
        group: u32,
        follows: bool,
    },
    SetTimes {
        path: String,
        accessed: i64,
        modified: i64,
        nanos: i64,
        follows: bool,
    },
    SetXattr {
        path: String,
        name: &'static str,
        value: Vec<u8>,
        how: XattrFlags,
    },
    RemoveXattr {
        path: String,
        name: &'static str,
    },
    List {
        path: String,
    },
    Stat {
        path: String,
        follows: bool,
    },
}

/// Chooses operations.
pub(super) struct Chooser {
    random: Random,
    /// Names that there are, and those of them that are directories.
    names: Vec<String>,
    directories: Vec<String>,
    /// Whether names change more often than bytes, also by way of directories that are held.
    prefers_names: bool,
    /// Whether access control lists are set.
    sets_access_lists: bool,
}

impl Chooser {
    pub(super) fn new(seed: u64, prefers_names: bool, sets_access_lists: bool) -> Self {
        let directories = vec![String::new()];
        let random = Random::new(seed);
        Self { random, names: Vec::new(), directories, prefers_names, sets_access_lists }
    }

    /// Learns what there is: paths and whether they are directories.
    pub(super) fn learn(&mut self, found: &[(String, bool)]) {
        self.names = found.iter().map(|(path, _)| path.clone()).collect();
        self.directories = vec![String::new()];
        let directories = found.iter().filter(|(_, is_directory)| *is_directory);
        self.directories.extend(directories.map(|(path, _)| path.clone()));
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// A path that there is, mostly.
    pub(super) fn path(&mut self) -> String {
        let path = self.path_from_root();
        if self.prefers_names && self.random.chance(0.15) {
            let name = path.rsplit('/').next().expect("it has a name");
            return format!("{AT}{}/{name}", self.below(HELD as u64));
        }
        path
    }

    fn path_from_root(&mut self) -> String {
        if self.names.is_empty() || self.random.chance(0.1) {
            return self.new_path();
        }
        let index = self.below(self.names.len() as u64) as usize;
        self.names[index].clone()
    }

    /// A path in a directory that there is, taken or not.
    fn new_path(&mut self) -> String {
        let index = self.below(self.directories.len() as u64) as usize;
        let directory = &self.directories[index];
        let directory = if directory.matches('/').count() < DEPTH_MAX { directory } else { "" };
        let name = NAMES[self.random.below(NAMES.len() as u64) as usize];
        if directory.is_empty() { name.to_string() } else { format!("{directory}/{name}") }
    }

    pub(super) fn next(&mut self) -> Operation {
        if self.names.len() > NAMES_MAX && self.random.chance(0.4) {
            return self.removal();
        }
        if self.prefers_names && self.random.chance(0.4) {
            return self.change_of_names();
        }
        match self.below(100) {
            0..6 => Operation::MakeDirectory { path: self.new_path(), mode: self.mode() },
            6..12 => self.removal(),
            12..15 => Operation::Symlink { path: self.new_path(), target: self.path() },
            15..19 => Operation::Link { from: self.path(), to: self.new_path() },
            19..26 => self.rename(),
            26..28 => self.node(),
            28..41 => self.open(),
            41..43 => {
                let index = self.below(self.directories.len() as u64) as usize;
                let directory = self.directories[index].clone();
                Operation::OpenUnnamed { slot: self.slot(), directory, mode: self.mode() }
            }
            43..45 => Operation::LinkOpen { slot: self.slot(), to: self.new_path() },
            45..48 => Operation::Close { slot: self.slot() },
            48..60 => {
                let (offset, length) = self.range();
                Operation::Write { slot: self.slot(), offset, length, fill: self.random.next_u64() }
            }
            60..65 => {
                let (offset, length) = self.range();
                Operation::Read { slot: self.slot(), offset, length }
            }
            65..69 => Operation::SetLength { slot: self.slot(), size: self.size() },
            69..72 => Operation::Truncate { path: self.path(), size: self.size() },
            72..77 => self.allocation(),
            77..80 => {
                let ((from_offset, length), (to_offset, _)) = (self.range(), self.range());
                let (from, to) = (self.slot(), self.slot());
                Operation::Copy { from, from_offset, to, to_offset, length }
            }
            80..82 => {
                let is_hole = self.random.chance(0.5);
                Operation::Seek { slot: self.slot(), offset: self.size(), is_hole }
            }
            82..83 => Operation::Sync { slot: self.slot() },
            83..86 => Operation::ChangeMode { path: self.path(), mode: self.mode() },
            86..88 => Operation::ChangeOwner {
                path: self.path(),
                user: self.below(3) as u32,
                group: self.below(3) as u32,
                follows: self.random.chance(0.5),
            },
            88..90 => Operation::SetTimes {
                path: self.path(),
                // Long ago, so that what was set can be told from what happened.
                accessed: self.below(1 << 30) as i64,
                modified: self.below(1 << 30) as i64,
                nanos: self.below(1_000_000_000) as i64,
                follows: self.random.chance(0.5),
            },
            90..95 => self.xattr(),
            95..97 => Operation::List { path: self.path() },
            _ => Operation::Stat { path: self.path(), follows: self.random.chance(0.5) },
        }
    }

    /// What another client is to find when it opens a file.
    pub(super) fn rewrite(&mut self, path: &str) -> [Operation; 3] {
        let (offset, length) = self.range();
        let (slot, fill) = (self.slot(), self.random.next_u64());
        let cuts = if self.random.chance(0.3) { OFlags::TRUNC } else { OFlags::empty() };
        [
            Operation::Open { slot, path: path.into(), flags: OFlags::WRONLY | cuts, mode: 0 },
            Operation::Write { slot, offset, length, fill },
            Operation::Close { slot },
        ]
    }

    /// How it finds that.
    pub(super) fn reread(&mut self, path: &str) -> [Operation; 3] {
        let slot = self.slot();
        [
            Operation::Open { slot, path: path.into(), flags: OFlags::RDONLY, mode: 0 },
            Operation::Read { slot, offset: 0, length: LARGE_BYTES_MAX + RANGE_BYTES_MAX },
            Operation::Close { slot },
        ]
    }

    fn change_of_names(&mut self) -> Operation {
        let place = self.below(HELD as u64) as usize;
        match self.below(20) {
            0..5 => Operation::MakeDirectory { path: self.new_path(), mode: 0o755 },
            5..12 => self.rename(),
            12..14 => self.removal(),
            14 => Operation::Link { from: self.path(), to: self.new_path() },
            15 => {
                let index = self.below(self.directories.len() as u64) as usize;
                Operation::Hold { place, path: self.directories[index].clone() }
            }
            16 => Operation::Drop { place },
            17 => Operation::StatHeld { place },
            18 => Operation::ListHeld { place },
            _ => Operation::Stat { path: self.path(), follows: false },
        }
    }

    fn removal(&mut self) -> Operation {
        match self.random.chance(0.35) {
            true => Operation::RemoveDirectory { path: self.path() },
            false => Operation::Unlink { path: self.path() },
        }
    }

    fn rename(&mut self) -> Operation {
        let flags = match self.below(10) {
            0..5 => RenameFlags::empty(),
            5..7 => RenameFlags::NOREPLACE,
            7..9 => RenameFlags::EXCHANGE,
            _ => RenameFlags::WHITEOUT,
        };
        let to = if self.random.chance(0.4) { self.path() } else { self.new_path() };
        Operation::Rename { from: self.path(), to, flags }
    }

    fn node(&mut self) -> Operation {
        let kind = match self.below(4) {
            0 => FileType::Fifo,
            1 => FileType::Socket,
            2 => FileType::CharacterDevice,
            _ => FileType::RegularFile,
        };
        Operation::MakeNode { path: self.new_path(), kind, mode: self.mode() }
    }

    fn open(&mut self) -> Operation {
        let mut flags = match self.below(10) {
            0..2 => OFlags::RDONLY,
            2..4 => OFlags::WRONLY,
            _ => OFlags::RDWR,
        };
        for (flag, chance) in [
            (OFlags::CREATE, 0.6),
            (OFlags::EXCL, 0.1),
            (OFlags::TRUNC, 0.1),
            (OFlags::APPEND, 0.15),
            (OFlags::NOFOLLOW, 0.1),
            (OFlags::DIRECTORY, 0.03),
        ] {
            flags.set(flag, self.random.chance(chance));
        }
        let path = if self.random.chance(0.4) { self.new_path() } else { self.path() };
        Operation::Open { slot: self.slot(), path, flags, mode: self.mode() }
    }

    fn allocation(&mut self) -> Operation {
        let mode = match self.below(10) {
            0..3 => FallocateFlags::empty(),
            3..4 => FallocateFlags::KEEP_SIZE,
            4..8 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            8..9 => FallocateFlags::ZERO_RANGE,
            _ => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        let (offset, length) = self.range();
        Operation::Allocate { slot: self.slot(), mode, offset, length }
    }

    fn xattr(&mut self) -> Operation {
        let path = self.path();
        let kinds = if self.sets_access_lists { 8 } else { 6 };
        let name = match self.below(kinds) {
            0..3 => "user.one",
            3..5 => "user.two",
            5..6 => "trusted.three",
            6..7 => ACCESS,
            _ => DEFAULT,
        };
        if self.random.chance(0.25) {
            return Operation::RemoveXattr { path, name };
        }
        let value = match name {
            ACCESS | DEFAULT => self.access_list(),
            _ => {
                let mut value = vec![0; self.below(200) as usize];
                self.random.fill(&mut value);
                value
            }
        };
        let how = match self.below(6) {
            0 => XattrFlags::CREATE,
            1 => XattrFlags::REPLACE,
            _ => XattrFlags::empty(),
        };
        Operation::SetXattr { path, name, value, how }
    }

    /// An access control list in the form of the kernel (linux/posix_acl_xattr.h): version 2, then
    /// tag, permissions and id of each entry. One that says no more than a mode, or one that does.
    fn access_list(&mut self) -> Vec<u8> {
        const NOBODY: u32 = u32::MAX;
        let mut entries = vec![(0x01, self.permissions(), NOBODY)];
        let is_long = self.random.chance(0.7);
        if is_long {
            entries.push((0x02, self.permissions(), 1));
        }
        entries.push((0x04, self.permissions(), NOBODY));
        if is_long {
            entries.push((0x08, self.permissions(), 2));
            entries.push((0x10, self.permissions(), NOBODY));
        }
        entries.push((0x20, self.permissions(), NOBODY));
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend(u16::to_le_bytes(tag));
            value.extend(u16::to_le_bytes(permissions));
            value.extend(u32::to_le_bytes(id));
        }
        value
    }

    fn permissions(&mut self) -> u16 {
        self.below(8) as u16
    }

    fn mode(&mut self) -> u32 {
        let special = if self.random.chance(0.15) { self.below(8) << 9 } else { 0 };
        (special | self.below(0o1000)) as u32
    }

    fn slot(&mut self) -> usize {
        self.below(SLOTS as u64) as usize
    }

    fn size(&mut self) -> u64 {
        let max = if self.random.chance(0.5) { SMALL_BYTES_MAX } else { LARGE_BYTES_MAX };
        self.below(max)
    }

    fn range(&mut self) -> (u64, u64) {
        let max = if self.random.chance(0.5) { SMALL_BYTES_MAX } else { RANGE_BYTES_MAX };
        (self.size(), self.below(max))
    }
}

/// Names of access control lists.
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
