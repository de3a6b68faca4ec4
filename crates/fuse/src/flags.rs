// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of flags, with the values of `linux/fuse.h`.

use std::ops::{BitAnd, BitOr, BitOrAssign};

/// What the kernel and a file system may agree on when they are mounted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InitFlags(pub u64);

impl InitFlags {
    /// Several reads of one file at a time, also ahead of the reader.
    pub const ASYNC_READ: Self = Self(1 << 0);
    /// `fcntl` locks are asked of the file system (`GetLock`, `SetLock`), not kept by the kernel.
    pub const POSIX_LOCKS: Self = Self(1 << 1);
    /// `O_TRUNC` comes with `Open` instead of as a `SetAttr` after it.
    pub const ATOMIC_O_TRUNC: Self = Self(1 << 3);
    /// `Lookup` of `.` and `..` works for every node, as NFS needs it.
    pub const EXPORT_SUPPORT: Self = Self(1 << 4);
    /// Writes longer than a page.
    pub const BIG_WRITES: Self = Self(1 << 5);
    /// The umask is not applied to modes; the file system does it.
    pub const DONT_MASK: Self = Self(1 << 6);
    /// `flock` locks are asked of the file system, not kept by the kernel.
    pub const FLOCK_LOCKS: Self = Self(1 << 10);
    /// Cached pages of a file go when its size or time of modification is seen to have changed.
    pub const AUTO_INVAL_DATA: Self = Self(1 << 12);
    /// `ReadDirPlus` instead of `ReadDir`.
    pub const DO_READDIRPLUS: Self = Self(1 << 13);
    /// `ReadDirPlus` only where entries are looked up afterwards.
    pub const READDIRPLUS_AUTO: Self = Self(1 << 14);
    /// Direct I/O of asynchronous callers is sent as several requests at a time.
    pub const ASYNC_DIO: Self = Self(1 << 15);
    /// The kernel collects writes in its cache and writes them later.
    pub const WRITEBACK_CACHE: Self = Self(1 << 16);
    /// `ENOSYS` to `Open` means that it need never be asked.
    pub const NO_OPEN_SUPPORT: Self = Self(1 << 17);
    /// Several lookups and readings of one directory at a time.
    pub const PARALLEL_DIROPS: Self = Self(1 << 18);
    /// The file system clears set-id bits on write, chown and truncate.
    pub const HANDLE_KILLPRIV: Self = Self(1 << 19);
    /// The kernel checks POSIX ACLs, which it gets as extended attributes.
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// An aborted connection ends `Session::serve` with an error.
    pub const ABORT_ERROR: Self = Self(1 << 21);
    /// Requests of more than 32 pages; the session asks for it by itself.
    pub const MAX_PAGES: Self = Self(1 << 22);
    /// Targets of symbolic links are cached.
    pub const CACHE_SYMLINKS: Self = Self(1 << 23);
    /// `ENOSYS` to `OpenDir` means that it need never be asked.
    pub const NO_OPENDIR_SUPPORT: Self = Self(1 << 24);
    /// Cached pages go only when the file system says so.
    pub const EXPLICIT_INVAL_DATA: Self = Self(1 << 25);
    /// As `HANDLE_KILLPRIV`, but the kernel says in each request whether bits are to be cleared.
    pub const HANDLE_KILLPRIV_V2: Self = Self(1 << 28);
    /// `SetXattr` comes with flags of its own.
    pub const SETXATTR_EXT: Self = Self(1 << 29);
    /// The upper half of the flags exists; the session asks for it by itself.
    pub const INIT_EXT: Self = Self(1 << 30);
    /// Requests that create something name a supplementary group that owns the directory.
    pub const CREATE_SUPP_GROUP: Self = Self(1 << 34);
    /// Entries can be made to expire without being removed.
    pub const HAS_EXPIRE_ONLY: Self = Self(1 << 35);
    /// Files opened with `OpenedFlags::DIRECT_IO` may be mapped shared.
    pub const DIRECT_IO_ALLOW_MMAP: Self = Self(1 << 36);
    /// Reads and writes of a file may go to another file without asking.
    pub const PASSTHROUGH: Self = Self(1 << 37);
    /// Nodes are not exported, so that `Lookup` of `.` and `..` is never asked.
    pub const NO_EXPORT_SUPPORT: Self = Self(1 << 38);
    /// Requests come over `io_uring`; asked for with `Wanted::uring`.
    pub const OVER_IO_URING: Self = Self(1 << 41);
}

/// How a file or directory was opened, as the kernel needs to know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenedFlags(pub u32);

impl OpenedFlags {
    /// Reads and writes pass the kernel's cache by.
    pub const DIRECT_IO: Self = Self(1 << 0);
    /// What is in the kernel's cache of an earlier open is still good.
    pub const KEEP_CACHE: Self = Self(1 << 1);
    /// Cannot be positioned.
    pub const NONSEEKABLE: Self = Self(1 << 2);
    /// The kernel may keep the entries of this directory.
    pub const CACHE_DIR: Self = Self(1 << 3);
    /// Has no position at all.
    pub const STREAM: Self = Self(1 << 4);
    /// No `Flush` when it is closed, unless `InitFlags::WRITEBACK_CACHE`.
    pub const NOFLUSH: Self = Self(1 << 5);
    /// Several direct writes at a time, also of one file.
    pub const PARALLEL_DIRECT_WRITES: Self = Self(1 << 6);
    /// Goes to another file; set where `Opened::backing` is.
    pub const PASSTHROUGH: Self = Self(1 << 7);
    /// The only flags that a file that is passed through may have: the kernel refuses to open it
    /// with others (`FOPEN_PASSTHROUGH_MASK` in fs/fuse/iomode.c).
    pub(crate) const WITH_PASSTHROUGH: Self =
        Self(Self::DIRECT_IO.0 | Self::NOFLUSH.0 | Self::PARALLEL_DIRECT_WRITES.0);
}

macro_rules! set_of_flags {
    ($($name:ident),+) => {$(
        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);

            /// Whether all of `other` are set.
            pub fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These without `other`.
            pub fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl BitAnd for $name {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }
    )+};
}

set_of_flags!(InitFlags, OpenedFlags);
