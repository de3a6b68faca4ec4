// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel is answered.

use std::time::Duration;

use crate::flags::OpenedFlags;
use crate::passthrough::BackingId;

/// A moment, counted from 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// The rest, below 1 000 000 000.
    pub nanoseconds: u32,
}

/// What `stat` says of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The number that programs see; need not be the node.
    pub inode: u64,
    /// Kind and permissions.
    pub mode: u32,
    /// How many names it has.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Which device, where it is one.
    pub device: u32,
    /// The length.
    pub size_bytes: u64,
    /// Storage that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// A good size for reads and writes; 0 lets the kernel choose.
    pub block_bytes: u32,
    /// When it was last read.
    pub accessed: Timestamp,
    /// When it was last written.
    pub modified: Timestamp,
    /// When its attributes last changed.
    pub changed: Timestamp,
}

/// A name that was found, or that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The node; 0 says that the name does not exist.
    pub node: u64,
    /// Tells apart nodes that had the same number one after the other; 0 where numbers are not
    /// used again.
    pub generation: u64,
    /// What the node is.
    pub attributes: Attributes,
    /// How long the kernel may believe that the name means this node.
    pub entry_timeout: Duration,
    /// How long the kernel may believe the attributes.
    pub attributes_timeout: Duration,
}

impl Entry {
    /// The name does not exist, and the kernel may believe it for `timeout`.
    pub fn negative(timeout: Duration) -> Self {
        Self { entry_timeout: timeout, ..Self::default() }
    }
}

/// A file or directory that was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opened<'a> {
    /// Names it in later requests.
    pub handle: u64,
    /// How. With `backing` only `DIRECT_IO`, `NOFLUSH` and `PARALLEL_DIRECT_WRITES` count.
    pub flags: OpenedFlags,
    /// The file that reads and writes go to. All opens of a node at one time must name the same
    /// `BackingId`, or none may. It may be dropped after the answer.
    pub backing: Option<&'a BackingId>,
}

/// What `statfs` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystemStatus {
    /// Capacity, in `fragment_bytes`.
    pub blocks: u64,
    /// What is free, in `fragment_bytes`.
    pub blocks_free: u64,
    /// What is free to everybody, in `fragment_bytes`.
    pub blocks_available: u64,
    /// How many files there can be.
    pub files: u64,
    /// How many more there can be.
    pub files_free: u64,
    /// A good size for reads and writes.
    pub block_bytes: u32,
    /// The unit of the capacities; 0 means `block_bytes`.
    pub fragment_bytes: u32,
    /// Longest name.
    pub name_bytes_max: u32,
}

/// What `statx` says of a file. All of `attributes` are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatxAnswer {
    /// What `stat` says.
    pub attributes: Attributes,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// How long the kernel may believe the attributes.
    pub timeout: Duration,
}

/// What an `ioctl` returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoctlResult<'a> {
    /// What the call returns.
    pub result: i32,
    /// What is passed out.
    pub output: &'a [u8],
}
