// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of a file, a directory or anything else that has a name.

use serde::{Deserialize, Serialize};
use terrace_core::{Hint, Key, Stat, Temperature};

/// The number of the root directory. Numbers are given once and never again.
pub const ROOT: u64 = 1;

/// Longest name of an entry in a directory, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest target of a symbolic link, in bytes: a path with its NUL fits Linux's `PATH_MAX`.
pub const TARGET_BYTES_MAX: usize = 4095;

/// The extended attribute with the capabilities of a program. A write to the file takes it away.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The key of the object that holds the bytes of file `number`.
pub(crate) fn object_key(namespace: &str, number: u64) -> terrace_core::Result<Key> {
    Key::new(namespace, &format!("{number:016x}"))
}

/// A point in time as files have it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time {
    /// Seconds since 1970, also before.
    pub seconds: i64,
    /// Nanoseconds of the second, below 10^9.
    pub nanos: u32,
}

impl Time {
    /// From nanoseconds since 1970.
    pub fn from_ns(ns: u64) -> Self {
        Self { seconds: (ns / 1_000_000_000) as i64, nanos: (ns % 1_000_000_000) as u32 }
    }

    /// The next moment that differs from this one.
    pub fn next(self) -> Self {
        match self.nanos {
            999_999_999 => Self { seconds: self.seconds.saturating_add(1), nanos: 0 },
            nanos => Self { nanos: nanos + 1, ..self },
        }
    }

    /// Nanoseconds since 1970; what does not fit is cut off at the ends.
    pub fn to_ns(self) -> u64 {
        let seconds = u64::try_from(self.seconds).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(self.nanos.into())
    }
}

/// What something with a name is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    #[default]
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// All kinds with the bits of the mode that stand for them.
    const BITS: [(Kind, u32); 7] = [
        (Kind::File, 0o100_000),
        (Kind::Directory, 0o040_000),
        (Kind::Symlink, 0o120_000),
        (Kind::Fifo, 0o010_000),
        (Kind::Socket, 0o140_000),
        (Kind::CharacterDevice, 0o020_000),
        (Kind::BlockDevice, 0o060_000),
    ];

    /// The bits of a mode that stand for it (`S_IFMT`).
    pub fn bits(self) -> u32 {
        let found = Self::BITS.iter().find(|(kind, _)| *kind == self);
        found.expect("every kind is in the table").1
    }

    /// The kind that a mode says; `None` for bits that stand for none.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Self::BITS.iter().find(|(_, bits)| *bits == mode & 0o170_000).map(|(kind, _)| *kind)
    }

    /// Whether it is a directory.
    pub fn is_directory(self) -> bool {
        self == Kind::Directory
    }
}

/// Where the bytes of a file are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// With the metadata. Bytes behind those that are kept, up to the size, are zeros.
    #[default]
    Inline,
    /// In the object that is named by the file's number.
    Object,
}

/// What a user asked of the tiers for a file, or for what is made in a directory. `None`: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Whether it may be moved while it is open; it is then served by the daemon.
    pub is_movable: Option<bool>,
    /// The tier that it is to stay on; empty: wherever it is.
    pub pin: Option<Box<str>>,
    /// Whether it will be touched again soon; `false`: not soon.
    pub is_hot: Option<bool>,
    /// Length of a segment of the object.
    pub segment_bytes: Option<u64>,
}

/// One of [`Marks`], as it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marking {
    /// Of [`Marks::is_movable`].
    Movable(Option<bool>),
    /// Of [`Marks::pin`].
    Pin(Option<Box<str>>),
    /// Of [`Marks::is_hot`].
    Hot(Option<bool>),
    /// Of [`Marks::segment_bytes`].
    Segment(Option<u64>),
}

impl Marks {
    /// Sets one of them.
    pub fn set(&mut self, marking: &Marking) {
        match marking {
            Marking::Movable(is_movable) => self.is_movable = *is_movable,
            Marking::Pin(pin) => self.pin.clone_from(pin),
            Marking::Hot(is_hot) => self.is_hot = *is_hot,
            Marking::Segment(bytes) => self.segment_bytes = *bytes,
        }
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The advice for the policy.
    pub fn hint(&self) -> Hint {
        let temperature = match self.is_hot {
            None => Temperature::Unknown,
            Some(true) => Temperature::Hot,
            Some(false) => Temperature::Cold,
        };
        Hint { temperature }
    }
}

/// What is known of a file, a directory or anything else that has a name: an *inode*.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number, never given again.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
    /// Permissions with the set-user-ID, set-group-ID and sticky bits: the lower 12 bits of a mode.
    pub permissions: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// How many names it has; of a directory two and one for each directory in it.
    pub links: u32,
    /// Of a device: which.
    pub device: u32,
    /// Length in bytes; of a directory how many entries it has.
    pub size: u64,
    /// Room on the media, as of the last time that the file was closed.
    pub allocated_bytes: u64,
    /// When it was last read.
    pub accessed: Time,
    /// When its bytes or entries last changed.
    pub modified: Time,
    /// When anything of it last changed.
    pub changed: Time,
    /// When it was made.
    pub created: Time,
    /// The directory that it was last given a name in; of a directory the one that it is in.
    pub parent: u64,
    /// Where its bytes are.
    pub place: Place,
    /// Whether it is open for writing, or its writer did not come to close it: its object then has
    /// its length, and the time when it was modified where that is not `settled_ns`.
    pub is_written: bool,
    /// When the object last changed, as far as is known here, nanoseconds since 1970; `modified` has
    /// taken account of it.
    pub settled_ns: u64,
    /// Whether it has extended attributes.
    pub has_xattrs: bool,
    /// Of a directory: whether what is made in it inherits an access control list.
    pub has_default_acl: bool,
    /// What is asked of the tiers.
    pub marks: Marks,
    /// Whether an object may be there beside bytes that are with the metadata: a client was about to
    /// move them there. The keeper of the metadata knows it alone, and has it deleted with the file.
    #[serde(skip)]
    pub may_have_object: bool,
}

/// What gives a process that executes a file the rights of its group, if that may execute it.
const SET_USER_ID: u32 = 0o4000;
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

impl Node {
    /// The whole mode: kind and permissions.
    pub fn mode(&self) -> u32 {
        self.kind.bits() | self.permissions
    }

    /// Whether it is no directory and has a set-group-ID bit that lends nothing, because its group may not
    /// execute it. A change of its bytes leaves that alone, unless its user is not in its group.
    pub fn has_idle_set_group(&self) -> bool {
        let bits = self.permissions & (SET_GROUP_ID | GROUP_EXECUTES);
        !self.kind.is_directory() && bits == SET_GROUP_ID
    }

    /// Takes away the bits that would run the file with other rights; a set-group-ID bit without the right to
    /// execute means something else.
    pub(crate) fn clear_set_id(&mut self) {
        self.permissions &= !SET_USER_ID;
        if self.permissions & GROUP_EXECUTES != 0 {
            self.permissions &= !SET_GROUP_ID;
        }
    }

    /// What is known of it with what its object says of a file that is being written.
    pub fn with_object(mut self, object: &Stat) -> Self {
        self.size = object.size_bytes;
        self.allocated_bytes = object.allocated_bytes;
        if object.modified_ns != self.settled_ns {
            // The clock of the tier may be one step behind; the change must be seen all the same.
            let modified = Time::from_ns(object.modified_ns);
            self.modified = if modified > self.created { modified } else { self.created.next() };
            self.changed = if modified > self.changed { modified } else { self.changed.next() };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_says_its_kind() {
        for (kind, _) in Kind::BITS {
            assert_eq!(Kind::from_mode(kind.bits() | 0o7777), Some(kind));
        }
        assert_eq!(Kind::from_mode(0o644), None);
    }

    #[test]
    fn times_before_1970_are_cut_off_in_nanoseconds() {
        assert_eq!(Time { seconds: -1, nanos: 5 }.to_ns(), 5);
        assert_eq!(Time::from_ns(1_500_000_001).to_ns(), 1_500_000_001);
    }
}
