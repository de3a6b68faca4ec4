// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the system calls of this backend share.

use std::io;

use rustix::fs::{Mode, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use terrace_core::{Error, ErrorKind, Stat};

/// Only the owner: other users reach an object through a store.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

pub(super) const DIRECTORY_MODE: Mode = Mode::RWXU;

pub(super) const STAT_MASK: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::SIZE)
    .union(StatxFlags::BLOCKS)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::BTIME);

/// Turns an error of a system call into ours.
pub(super) fn error(operation: &'static str, errno: Errno) -> Error {
    let error = Error::from_io(operation, io::Error::from(errno));
    match errno {
        Errno::FBIG => Error::new(ErrorKind::NoSpace, operation)
            .because("the file system takes no file of this size")
            .caused_by(io::Error::from(errno)),
        Errno::MFILE => error
            .because("this process has no descriptor left (ulimit -n, LimitNOFILE=)")
            .with("RLIMIT_NOFILE", getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)),
        Errno::NFILE => error.because("this machine has no descriptor left (fs.file-max)"),
        Errno::NOMEM => error.because("there is no memory left for it"),
        Errno::LOOP => error.because("a symbolic link is in its place"),
        Errno::ISDIR | Errno::NOTDIR => error.because("something foreign is in its place"),
        _ => error,
    }
}

/// The parent of everything vanished.
pub(super) fn root_is_gone(operation: &'static str) -> Error {
    Error::new(ErrorKind::Io, operation)
        .because("the directory of the tier was removed while it was open")
}

pub(super) fn stat(status: &rustix::fs::Statx) -> Stat {
    let has_created = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
    Stat {
        size_bytes: status.stx_size,
        allocated_bytes: status.stx_blocks * 512,
        created_ns: if has_created { wall_ns(&status.stx_btime) } else { 0 },
        modified_ns: wall_ns(&status.stx_mtime),
        is_labelled: false,
        is_held: false,
    }
}

/// A time before 1970 reads as 1970, one after 2554 as 2554.
fn wall_ns(time: &StatxTimestamp) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.into())
}
