// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capabilities, what they exclude, and the parts of messages that name them.

use std::ops::BitOr;

/// A set of capabilities of one session on one inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caps(u8);

impl Caps {
    /// No capability.
    pub const NONE: Self = Self(0);
    /// Answer for attributes from the cache.
    pub const ATTR: Self = Self(1);
    /// Answer for entries of a directory from the cache.
    pub const DENTRIES: Self = Self(2);
    /// Change entries of a directory and acknowledge locally.
    pub const DENTRIES_X: Self = Self(4);
    /// Keep data of a file.
    pub const READ: Self = Self(8);
    /// Buffer writes, size and times of a file.
    pub const WRITE: Self = Self(16);

    const EACH: [Self; 5] = [Self::ATTR, Self::DENTRIES, Self::DENTRIES_X, Self::READ, Self::WRITE];

    /// The set as a message has it.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The set that a message has; capabilities that are not known here are left out.
    pub fn of_bits(bits: u8) -> Self {
        Self(bits & 31)
    }

    /// Whether all of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is in this set.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The capabilities of this set that another session may have beside `others`.
    pub fn beside(self, others: Self) -> Self {
        let fits = |one: &Self| self.contains(*one) && !one.excludes().intersects(others);
        Self::EACH.into_iter().filter(fits).fold(Self::NONE, Self::bitor)
    }

    /// What no other session may have beside any of this set.
    fn excludes(self) -> Self {
        let excluded = |one| match one {
            Self::ATTR => Self::DENTRIES_X | Self::WRITE,
            Self::DENTRIES => Self::DENTRIES_X,
            Self::DENTRIES_X => Self::ATTR | Self::DENTRIES | Self::DENTRIES_X,
            Self::READ => Self::WRITE,
            _ => Self::ATTR | Self::READ | Self::WRITE,
        };
        let ours = Self::EACH.into_iter().filter(|one| self.contains(*one));
        ours.map(excluded).fold(Self::NONE, Self::bitor)
    }
}

impl BitOr for Caps {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A session as a client names it in each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session {
    /// Its number, the same as long as it lasts.
    pub number: u64,
    /// The server instance that the message is for. A message that is late must not reach the next one, which may
    /// know the session again.
    pub instance: u64,
}

/// What a request does to an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads attributes.
    ReadAttributes,
    /// Changes attributes.
    ChangeAttributes,
    /// Looks up or lists entries of a directory.
    ReadEntries,
    /// Changes entries of a directory, and with them its attributes.
    ChangeEntries,
    /// Reads data of a file.
    ReadData,
    /// Writes data of a file, and with them its attributes.
    WriteData,
}

impl Access {
    /// Capabilities of other sessions that the server recalls before it carries the request out.
    pub fn conflicts(self) -> Caps {
        match self {
            Self::ReadAttributes => Caps::DENTRIES_X | Caps::WRITE,
            Self::ChangeAttributes => Caps::ATTR | Caps::DENTRIES_X | Caps::WRITE,
            Self::ReadEntries => Caps::DENTRIES_X,
            Self::ChangeEntries => Caps::ATTR | Caps::DENTRIES | Caps::DENTRIES_X,
            Self::ReadData => Caps::WRITE,
            Self::WriteData => Caps::ATTR | Caps::READ | Caps::WRITE,
        }
    }

    /// Whether it changes the inode.
    pub fn is_change(self) -> bool {
        matches!(self, Self::ChangeAttributes | Self::ChangeEntries | Self::WriteData)
    }
}

/// An inode and what a request does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The inode.
    pub inode: u64,
    /// What is done to it.
    pub access: Access,
}

/// Capabilities that a reply grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The inode.
    pub inode: u64,
    /// The capabilities.
    pub caps: Caps,
    /// Number of the grant; later grants of a server have larger numbers, also after a restart.
    pub number: u64,
}

/// A message to a client: it must give back all capabilities on an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The inode.
    pub inode: u64,
    /// The last grant that is recalled.
    pub grant: u64,
    /// Recalls of a session are numbered from 1 without gaps, in each server instance.
    pub number: u64,
    /// That instance: a recall of the one before may come late.
    pub instance: u64,
}

/// A message to the server: the client holds nothing on an inode by this grant or earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The inode.
    pub inode: u64,
    /// The last grant that is given back.
    pub grant: u64,
}

/// The capability under which a client deferred a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover {
    /// The inode.
    pub inode: u64,
    /// The exclusive capability.
    pub caps: Caps,
    /// The last grant of it that the client knew; 0 of an inode that an earlier deferred change has made, and of
    /// which the client knew none.
    pub grant: u64,
}

/// What a client held when its server ended, for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The inode.
    pub inode: u64,
    /// The capabilities.
    pub caps: Caps,
    /// The grant since which the client has held them without a gap; 0: since it made the inode.
    pub since: u64,
    /// A release went behind the deferred change with this number: if the server has decided that change, the
    /// capabilities are given back, although no answer came.
    pub released_behind: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusion_is_symmetric() {
        for one in Caps::EACH {
            for other in Caps::EACH {
                let excludes = |a: Caps, b| a.excludes().intersects(b);
                assert_eq!(excludes(one, other), excludes(other, one), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_is_granted_excludes_nothing_that_others_hold() {
        let all = Caps::EACH.into_iter().fold(Caps::NONE, Caps::bitor);
        assert_eq!(all.beside(Caps::NONE), all);
        assert_eq!(
            all.beside(Caps::READ),
            Caps::ATTR | Caps::DENTRIES | Caps::DENTRIES_X | Caps::READ
        );
        assert_eq!(all.beside(Caps::WRITE), Caps::DENTRIES | Caps::DENTRIES_X);
        assert_eq!(all.beside(Caps::DENTRIES_X), Caps::READ | Caps::WRITE);
    }

    #[test]
    fn a_set_crosses_as_bits() {
        let all = Caps::EACH.into_iter().fold(Caps::NONE, Caps::bitor);
        for caps in Caps::EACH.into_iter().chain([Caps::NONE, all]) {
            assert_eq!(Caps::of_bits(caps.bits()), caps);
        }
        assert_eq!(Caps::of_bits(0xff), all, "others are of a later version");
    }
}
