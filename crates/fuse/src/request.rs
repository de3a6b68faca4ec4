// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel asks for.

use crate::answer::Timestamp;

/// One request of the kernel.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Names the request until it is answered, and never another one of this mount.
    pub unique: u64,
    /// What the operation is about; the directory where the operation has a name. 0 where it is
    /// about nothing in particular (`BatchForget`).
    pub node: u64,
    /// The user of the caller; 0 where the kernel asks for itself, for example when it writes back.
    pub uid: u32,
    /// The group of the caller.
    pub gid: u32,
    /// The thread that asks; 0 where it is not known.
    pub pid: u32,
    /// A supplementary group of the caller that is also the group of the directory. Comes only
    /// where something is created and `InitFlags::CREATE_SUPP_GROUP` was agreed on.
    pub supplementary_group: Option<u32>,
    /// What is to be done.
    pub operation: Operation<'a>,
}

/// What is to be done.
///
/// Names contain neither NUL nor `/` and are not empty. `flags` are those of `open(2)` unless
/// stated otherwise. What is not here (`bmap`, `poll`, DAX) is answered `ENOSYS` by the session.
/// Each states with which method of `Reply` it is answered when it succeeds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Finds a name in a directory. `entry`, also a negative one, or `ENOENT`.
    Lookup {
        /// The name.
        name: &'a [u8],
    },
    /// Takes back `count` of the times that the node was given out. Not answered.
    Forget {
        /// How many times.
        count: u64,
    },
    /// `Forget` of several nodes. Not answered.
    BatchForget(Forgets<'a>),
    /// Asks for attributes. `attributes`.
    GetAttr {
        /// The open file through which they are asked for.
        handle: Option<u64>,
    },
    /// Asks for attributes, also for the time of creation. `statx`.
    Statx {
        /// The open file through which they are asked for.
        handle: Option<u64>,
        /// Flags of `statx(2)`: `AT_STATX_FORCE_SYNC`, `AT_STATX_DONT_SYNC`.
        flags: u32,
        /// Which attributes are wanted, as `STATX_` bits.
        mask: u32,
    },
    /// Changes attributes, all or none of them. `attributes`.
    SetAttr(SetAttr),
    /// Reads a symbolic link. `data`, with the target, without NUL.
    ReadLink,
    /// Makes a symbolic link. `entry`.
    SymLink {
        /// Its name.
        name: &'a [u8],
        /// What it points to.
        target: &'a [u8],
    },
    /// Makes a file of any kind but a directory or link, without opening it. `entry`.
    MkNod {
        /// Its name.
        name: &'a [u8],
        /// Kind and permissions.
        mode: u32,
        /// Which device, where `mode` says that it is one.
        device: u32,
        /// The umask of the caller; applied already unless `InitFlags::DONT_MASK`.
        umask: u32,
    },
    /// Makes a directory. `entry`.
    MkDir {
        /// Its name.
        name: &'a [u8],
        /// Permissions.
        mode: u32,
        /// The umask of the caller; applied already unless `InitFlags::DONT_MASK`.
        umask: u32,
    },
    /// Removes a name that is not of a directory. `empty`.
    Unlink {
        /// The name.
        name: &'a [u8],
    },
    /// Removes an empty directory. `empty`.
    RmDir {
        /// Its name.
        name: &'a [u8],
    },
    /// Renames. `empty`.
    Rename {
        /// The name in the directory that is the request's node.
        name: &'a [u8],
        /// The directory that it comes to.
        new_parent: u64,
        /// The name that it gets.
        new_name: &'a [u8],
        /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
        flags: u32,
    },
    /// Gives a file another name, in the directory that is the request's node. `entry`.
    Link {
        /// The file.
        target: u64,
        /// The name that it gets.
        new_name: &'a [u8],
    },
    /// Opens a file. `opened`.
    Open {
        /// How, without `O_CREAT`, `O_EXCL` and `O_NOCTTY`.
        flags: u32,
        /// Whether set-id bits are to be cleared, as the file is truncated.
        kills_suid_sgid: bool,
    },
    /// Makes a file where the name is free (or `O_EXCL` fails), and opens it. `created`.
    Create {
        /// Its name.
        name: &'a [u8],
        /// How it is opened.
        flags: u32,
        /// Kind and permissions.
        mode: u32,
        /// The umask of the caller; applied already unless `InitFlags::DONT_MASK`.
        umask: u32,
        /// Whether set-id bits are to be cleared, as an existing file is truncated.
        kills_suid_sgid: bool,
    },
    /// Makes a file without a name (`O_TMPFILE`) in the directory that is the request's node, and
    /// opens it. `created`. `Link` may give it a name later.
    TmpFile {
        /// How it is opened.
        flags: u32,
        /// Kind and permissions.
        mode: u32,
        /// The umask of the caller; applied already unless `InitFlags::DONT_MASK`.
        umask: u32,
    },
    /// Reads. `data` (or one of its relatives), shorter than asked for only at the end of the
    /// file, unless it was opened with `OpenedFlags::DIRECT_IO`.
    Read {
        /// The open file.
        handle: u64,
        /// From where.
        offset: u64,
        /// How much.
        bytes: u32,
        /// How the file is open.
        flags: u32,
        /// The owner of locks, where known.
        lock_owner: Option<u64>,
    },
    /// Writes. `written`, with all bytes of `data` unless there is an error.
    Write {
        /// The open file; any of those of the node where `is_from_cache`.
        handle: u64,
        /// To where.
        offset: u64,
        /// What; begins at a page of memory.
        data: &'a [u8],
        /// How the file is open.
        flags: u32,
        /// The owner of locks, where known.
        lock_owner: Option<u64>,
        /// Whether the kernel writes back what it had in its cache.
        is_from_cache: bool,
        /// Whether set-id bits are to be cleared.
        kills_suid_sgid: bool,
    },
    /// Asks for the state of the file system. `file_system_status`.
    StatFs,
    /// Closes a file: this handle is not used any more. `empty`; errors go nowhere.
    Release {
        /// The open file.
        handle: u64,
        /// How the file is open.
        flags: u32,
        /// The owner of locks; those of `fcntl` end with `Flush`.
        lock_owner: u64,
        /// Whether the `flock` locks of `lock_owner` end.
        ends_flock: bool,
    },
    /// Makes durable what was written. `empty`.
    Fsync {
        /// The open file.
        handle: u64,
        /// Attributes that are not needed to find the data may wait.
        is_data_only: bool,
    },
    /// A descriptor was closed, perhaps not the last one. `empty`; an error is what `close`
    /// returns.
    Flush {
        /// The open file.
        handle: u64,
        /// The owner of locks, whose `fcntl` locks on the node end.
        lock_owner: u64,
    },
    /// Sets an extended attribute. `empty`.
    SetXattr {
        /// Its name.
        name: &'a [u8],
        /// What it is to be.
        value: &'a [u8],
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32,
        /// Whether the set-group-id bit is to be cleared, as this is an ACL.
        kills_sgid: bool,
    },
    /// Reads an extended attribute. `xattr_size` where `bytes` is 0, otherwise `data`, or `ERANGE`
    /// where it is longer than `bytes`.
    GetXattr {
        /// Its name.
        name: &'a [u8],
        /// Room for the value.
        bytes: u32,
    },
    /// Lists the names of extended attributes, each with a NUL behind it. As `GetXattr`.
    ListXattr {
        /// Room for the names.
        bytes: u32,
    },
    /// Removes an extended attribute. `empty`.
    RemoveXattr {
        /// Its name.
        name: &'a [u8],
    },
    /// Opens a directory. `opened`.
    OpenDir {
        /// How.
        flags: u32,
    },
    /// Reads names of a directory. `directory`; empty at the end.
    ReadDir {
        /// The open directory.
        handle: u64,
        /// 0, or what an entry was added with, after which to go on.
        offset: u64,
        /// Room for the answer.
        bytes: u32,
    },
    /// Reads names of a directory and looks them up. `directory`; empty at the end.
    ReadDirPlus {
        /// The open directory.
        handle: u64,
        /// 0, or what an entry was added with, after which to go on.
        offset: u64,
        /// Room for the answer.
        bytes: u32,
    },
    /// Closes a directory. `empty`.
    ReleaseDir {
        /// The open directory.
        handle: u64,
    },
    /// Makes durable which names a directory has. `empty`.
    FsyncDir {
        /// The open directory.
        handle: u64,
        /// Attributes may wait.
        is_data_only: bool,
    },
    /// Makes durable all of the file system. `empty`.
    SyncFs,
    /// Asks whether a lock could be had. `lock`, with one in the way or of kind `Unlock`.
    GetLock(LockRequest),
    /// Takes or gives back a lock. `empty`; `EAGAIN` where another is in the way and the caller
    /// does not wait.
    SetLock {
        /// Which lock.
        lock: LockRequest,
        /// Whether to wait until it can be had.
        is_waiting: bool,
    },
    /// Asks whether the caller may do something. `empty`. Not asked with `default_permissions`.
    Access {
        /// What, as bits of `access(2)`.
        mask: u32,
    },
    /// Allocates, frees or zeroes a range. `empty`.
    Fallocate {
        /// The open file.
        handle: u64,
        /// From where.
        offset: u64,
        /// How much.
        length: u64,
        /// `FALLOC_FL_` bits.
        mode: u32,
    },
    /// Looks for data or for a hole. `offset`, or `ENXIO`.
    Seek {
        /// The open file.
        handle: u64,
        /// From where.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
    },
    /// Copies from file to file. `copied`.
    CopyFileRange(CopyFileRange),
    /// An `ioctl` whose number says how long its data is. `ioctl`.
    Ioctl {
        /// The open file or directory.
        handle: u64,
        /// Its number.
        command: u32,
        /// Its argument as the caller gave it; not an address of this process.
        argument: u64,
        /// What the caller passes in.
        input: &'a [u8],
        /// Room for what is passed out.
        output_bytes_max: u32,
        /// Whether `handle` is of a directory.
        is_directory: bool,
    },
}

/// Attributes that are to be changed; those that are `None` stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// The open file through which this is asked for.
    pub handle: Option<u64>,
    /// Permissions; what kind of file it is does not change.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The length.
    pub size_bytes: Option<u64>,
    /// When it was last read.
    pub accessed: Option<SetTime>,
    /// When it was last written.
    pub modified: Option<SetTime>,
    /// When attributes last changed; only with `InitFlags::WRITEBACK_CACHE`.
    pub changed: Option<Timestamp>,
    /// The owner of locks, where `size_bytes` is set and it is known.
    pub lock_owner: Option<u64>,
    /// Whether set-id bits are to be cleared.
    pub kills_suid_sgid: bool,
}

impl SetAttr {
    /// Whether nothing is asked for: so the kernel signals that a file loses its set-id bits,
    /// because its owner is set to what it is, or a process writes to the file that is passed
    /// through. (`fuse_setattr` drops what `notify_change` makes of it, where the file system
    /// clears them.)
    pub fn is_empty(&self) -> bool {
        let Self { mode, uid, gid, size_bytes, accessed, modified, .. } = self;
        let has_time = accessed.is_some() || modified.is_some();
        !has_time && [*mode, *uid, *gid].iter().all(Option::is_none) && size_bytes.is_none()
    }
}

/// What a time is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Now, by the clock of the file system.
    Now,
    /// This.
    At(Timestamp),
}

/// A range of a file that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Where it begins.
    pub start: u64,
    /// Its last byte; `i64::MAX` where it goes to the end of the file.
    pub end: u64,
    /// How.
    pub kind: LockKind,
    /// The process that has it.
    pub pid: u32,
}

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// Not at all.
    Unlock,
}

/// A lock that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub handle: u64,
    /// The owner that is to hold it.
    pub owner: u64,
    /// What is to be locked.
    pub lock: Lock,
    /// Whether it is a lock of `flock`, of the whole file and apart from those of `fcntl`.
    pub is_flock: bool,
}

/// A copy from the request's node to another one, or within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// The open file to read.
    pub handle: u64,
    /// From where.
    pub offset: u64,
    /// The node to write.
    pub target_node: u64,
    /// The open file to write.
    pub target_handle: u64,
    /// To where.
    pub target_offset: u64,
    /// How much; fewer may be copied.
    pub length: u64,
    /// None are defined; what is set must be refused.
    pub flags: u64,
    /// Whether the answer has 64 bits; `Reply::copied` sees to it.
    pub(crate) is_64_bit: bool,
}

/// Nodes and how many times each is forgotten.
#[derive(Clone, Debug)]
pub struct Forgets<'a> {
    pub(crate) records: std::slice::ChunksExact<'a, u8>,
}

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let record = self.records.next()?;
        let (node, count) = record.split_at(8);
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        Some((number(node), number(count)))
    }
}
