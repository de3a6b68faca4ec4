// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What backends return about objects and space, and pages of listings.

use crate::Key;

/// What becomes of the end of an object where room is reserved behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It moves to the end of the room, which reads as zeros.
    Grows,
    /// It stays where it is.
    Stays,
}

/// Size and times of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Length.
    pub size_bytes: u64,
    /// Room taken on the medium, as far as the backend knows.
    pub allocated_bytes: u64,
    /// When it was created, nanoseconds since 1970; 0 where unknown.
    pub created_ns: u64,
    /// When its bytes last changed, nanoseconds since 1970.
    pub modified_ns: u64,
    /// Whether it was created with a label: see [`Object::label`](super::Object::label).
    pub is_labelled: bool,
    /// Whether a process on this machine may change its bytes past the backend: see
    /// [`ObjectFile::hold_file`](super::ObjectFile::hold_file).
    pub is_held: bool,
}

/// Capacity and use of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What it can hold; `u64::MAX` where there is no bound.
    pub capacity_bytes: u64,
    /// What it holds.
    pub used_bytes: u64,
    /// The file system that its room is part of, where it is one.
    pub file_system: Option<FileSystem>,
}

/// What limits the growth of an object that is written past its handles: [`ObjectFile::held_growth`](super::ObjectFile::held_growth).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldGrowth {
    /// The file system of its file. Once that is full, no tier that may have the object's bytes has
    /// room, and no capacity or quota was exceeded before.
    Full,
    /// The file system of its file, while other tiers that may have the object's bytes have room.
    OneFile,
    /// Nothing that keeps it within a bound: the capacity of its tier, or the quota of its namespace.
    Unbounded,
}

/// A file system of a machine that backends are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Which one: on one machine, backends with the same take from each other's room.
    pub number: u64,
    /// Its size; `u64::MAX` where it has none.
    pub size_bytes: u64,
    /// What is available on it.
    pub available_bytes: u64,
}

/// Where a listing goes on; made by the backend and opaque to everyone else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

impl Cursor {
    /// Where every listing starts.
    pub fn start() -> Self {
        Self::default()
    }

    /// Whether this is the start.
    pub fn is_start(&self) -> bool {
        self.0.is_empty()
    }
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The keys found.
    pub keys: Vec<Key>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}
