// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of the kernel as requests: a pure function of their bytes.

use std::error;
use std::fmt;

use crate::answer::Timestamp;
use crate::flags::InitFlags;
use crate::request::{
    CopyFileRange, Forgets, Lock, LockKind, LockRequest, Operation, Request, SetAttr, SetTime,
};

/// A message of the kernel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Decoded<'a> {
    /// A request for the file system.
    Request(Request<'a>),
    /// The caller of the request `interrupted` stopped waiting. Needs no answer.
    Interrupt {
        /// The request that is not waited for.
        interrupted: u64,
    },
    /// The first message of a connection.
    Init {
        /// To be answered.
        unique: u64,
        /// Version of the protocol, the number before the dot.
        major: u32,
        /// The number after the dot.
        minor: u32,
        /// The most that the kernel reads ahead.
        max_readahead_bytes: u32,
        /// What the kernel can do.
        flags: InitFlags,
    },
    /// The last message of some connections.
    Destroy {
        /// To be answered.
        unique: u64,
    },
    /// Something that is not known here, to be answered `ENOSYS`.
    Unknown {
        /// To be answered.
        unique: u64,
        /// What it was.
        opcode: u32,
    },
}

/// A message that is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The request, to be answered with an error; 0 where even that is not known.
    pub unique: u64,
    /// The kind of request, 0 where it is not known.
    pub opcode: u32,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unique, opcode, reason } = self;
        write!(f, "cannot decode request: {reason} opcode={opcode} unique={unique}")
    }
}

impl error::Error for Malformed {}

/// Values of `enum fuse_opcode` in `linux/fuse.h`.
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const LISTXATTR: u32 = 23;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const GETLK: u32 = 31;
    pub(super) const SETLK: u32 = 32;
    pub(super) const SETLKW: u32 = 33;
    pub(super) const ACCESS: u32 = 34;
    pub(super) const CREATE: u32 = 35;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const IOCTL: u32 = 39;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const READDIRPLUS: u32 = 44;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const COPY_FILE_RANGE: u32 = 47;
    pub(super) const SYNCFS: u32 = 50;
    pub(super) const TMPFILE: u32 = 51;
    pub(super) const STATX: u32 = 52;
    pub(super) const COPY_FILE_RANGE_64: u32 = 53;
}

/// `FUSE_EXT_GROUPS` of `linux/fuse.h`.
const EXTENSION_GROUPS: u32 = 32;
/// `struct fuse_forget_one`.
const FORGET_BYTES: usize = 16;
/// Most that a copy is asked for whose answer has 32 bits: the largest multiple of a page of
/// 64 KiB below 4 GiB.
const COPY_32_BIT_MAX: u64 = 0xffff_0000;

/// Reads one message of the kernel, whole as it was read from the device.
///
/// `flags` are those that were agreed on: some of them change the layout of messages.
///
/// # Errors
///
/// [`Malformed`] where the message is shorter than it says or must be, or where a name is empty,
/// contains `/`, or has no end.
pub fn decode(message: &[u8], flags: InitFlags) -> Result<Decoded<'_>, Malformed> {
    let mut malformed = Malformed { unique: 0, opcode: 0, reason: "" };
    let mut header = Fields(message);
    decode_message(&mut header, message.len(), flags, &mut malformed)
        .map_err(|reason| Malformed { reason, ..malformed })
}

type Field<T> = Result<T, &'static str>;

fn decode_message<'a>(
    fields: &mut Fields<'a>,
    message_bytes: usize,
    flags: InitFlags,
    seen: &mut Malformed,
) -> Field<Decoded<'a>> {
    let length = fields.u32()?;
    let opcode = fields.u32()?;
    let unique = fields.u64()?;
    let node = fields.u64()?;
    let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let extension_bytes = usize::from(fields.u16()?) * 8;
    fields.skip(2)?;
    (seen.unique, seen.opcode) = (unique, opcode);
    if length as usize != message_bytes {
        return Err("its length is not the one it names");
    }
    let body_bytes = fields.0.len().checked_sub(extension_bytes).ok_or(TOO_SHORT)?;
    let (body, extensions) = fields.0.split_at(body_bytes);
    let mut body = Fields(body);
    let decoded = match opcode {
        opcode::INIT => return body.init(unique),
        opcode::INTERRUPT => return Ok(Decoded::Interrupt { interrupted: body.u64()? }),
        opcode::DESTROY => return Ok(Decoded::Destroy { unique }),
        _ => body.operation(opcode, flags)?,
    };
    let Some(operation) = decoded else {
        return Ok(Decoded::Unknown { unique, opcode });
    };
    let supplementary_group = Fields(extensions).supplementary_group()?;
    Ok(Decoded::Request(Request { unique, node, uid, gid, pid, supplementary_group, operation }))
}

const TOO_SHORT: &str = "it is too short";

/// What is left of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The operation, or `None` where it is not known.
    fn operation(&mut self, opcode: u32, flags: InitFlags) -> Field<Option<Operation<'a>>> {
        let operation = match opcode {
            opcode::LOOKUP => Operation::Lookup { name: self.name()? },
            opcode::FORGET => Operation::Forget { count: self.u64()? },
            opcode::BATCH_FORGET => Operation::BatchForget(self.forgets()?),
            opcode::GETATTR => Operation::GetAttr { handle: self.optional_handle()? },
            opcode::STATX => Operation::Statx {
                handle: self.optional_handle()?,
                flags: self.u32()?,
                mask: self.u32()?,
            },
            opcode::SETATTR => Operation::SetAttr(self.set_attr()?),
            opcode::READLINK => Operation::ReadLink,
            opcode::SYMLINK => Operation::SymLink { name: self.name()?, target: self.text()? },
            opcode::MKNOD => self.mknod()?,
            opcode::MKDIR => {
                let (mode, umask) = (self.u32()?, self.u32()?);
                Operation::MkDir { name: self.name()?, mode, umask }
            }
            opcode::UNLINK => Operation::Unlink { name: self.name()? },
            opcode::RMDIR => Operation::RmDir { name: self.name()? },
            opcode::RENAME | opcode::RENAME2 => self.rename(opcode == opcode::RENAME2)?,
            opcode::LINK => Operation::Link { target: self.u64()?, new_name: self.name()? },
            opcode::OPEN => {
                Operation::Open { flags: self.u32()?, kills_suid_sgid: self.u32()? & 1 != 0 }
            }
            opcode::CREATE | opcode::TMPFILE => self.create(opcode == opcode::TMPFILE)?,
            opcode::READ => {
                let range = self.read()?;
                Operation::Read {
                    handle: range.handle,
                    offset: range.offset,
                    bytes: range.bytes,
                    flags: range.flags,
                    lock_owner: range.lock_owner,
                }
            }
            opcode::WRITE => self.write()?,
            opcode::STATFS => Operation::StatFs,
            opcode::RELEASE => self.release()?,
            opcode::FSYNC => {
                Operation::Fsync { handle: self.u64()?, is_data_only: self.u32()? & 1 != 0 }
            }
            opcode::FLUSH => {
                let handle = self.u64()?;
                self.skip(8)?;
                Operation::Flush { handle, lock_owner: self.u64()? }
            }
            opcode::SETXATTR => self.set_xattr(flags)?,
            opcode::GETXATTR => {
                let bytes = self.u32()?;
                self.skip(4)?;
                Operation::GetXattr { name: self.text()?, bytes }
            }
            opcode::LISTXATTR => Operation::ListXattr { bytes: self.u32()? },
            opcode::REMOVEXATTR => Operation::RemoveXattr { name: self.text()? },
            opcode::OPENDIR => Operation::OpenDir { flags: self.u32()? },
            opcode::READDIR => {
                let Range { handle, offset, bytes, .. } = self.read()?;
                Operation::ReadDir { handle, offset, bytes }
            }
            opcode::READDIRPLUS => {
                let Range { handle, offset, bytes, .. } = self.read()?;
                Operation::ReadDirPlus { handle, offset, bytes }
            }
            opcode::RELEASEDIR => Operation::ReleaseDir { handle: self.u64()? },
            opcode::FSYNCDIR => {
                Operation::FsyncDir { handle: self.u64()?, is_data_only: self.u32()? & 1 != 0 }
            }
            opcode::SYNCFS => Operation::SyncFs,
            opcode::GETLK => Operation::GetLock(self.lock()?),
            opcode::SETLK | opcode::SETLKW => {
                Operation::SetLock { lock: self.lock()?, is_waiting: opcode == opcode::SETLKW }
            }
            opcode::ACCESS => Operation::Access { mask: self.u32()? },
            opcode::FALLOCATE => Operation::Fallocate {
                handle: self.u64()?,
                offset: self.u64()?,
                length: self.u64()?,
                mode: self.u32()?,
            },
            opcode::LSEEK => {
                Operation::Seek { handle: self.u64()?, offset: self.u64()?, whence: self.u32()? }
            }
            opcode::COPY_FILE_RANGE => self.copy_file_range(false)?,
            opcode::COPY_FILE_RANGE_64 => self.copy_file_range(true)?,
            opcode::IOCTL => self.ioctl()?,
            _ => return Ok(None),
        };
        Ok(Some(operation))
    }

    fn init(&mut self, unique: u64) -> Field<Decoded<'a>> {
        let (major, minor) = (self.u32()?, self.u32()?);
        let max_readahead_bytes = self.u32()?;
        let mut flags = InitFlags(u64::from(self.u32()?));
        if flags.contains(InitFlags::INIT_EXT) {
            flags |= InitFlags(u64::from(self.u32()?) << 32);
        }
        Ok(Decoded::Init { unique, major, minor, max_readahead_bytes, flags })
    }

    fn forgets(&mut self) -> Field<Forgets<'a>> {
        let count = self.u32()? as usize;
        self.skip(4)?;
        let bytes = count.checked_mul(FORGET_BYTES).ok_or(TOO_SHORT)?;
        Ok(Forgets { records: self.take(bytes)?.chunks_exact(FORGET_BYTES) })
    }

    /// The beginning of `fuse_getattr_in` and `fuse_statx_in`.
    fn optional_handle(&mut self) -> Field<Option<u64>> {
        let flags = self.u32()?;
        self.skip(4)?;
        let handle = self.u64()?;
        Ok((flags & 1 != 0).then_some(handle))
    }

    fn set_attr(&mut self) -> Field<SetAttr> {
        let valid = self.u32()?;
        self.skip(4)?;
        let (handle, size_bytes, lock_owner) = (self.u64()?, self.u64()?, self.u64()?);
        let seconds = [self.i64()?, self.i64()?, self.i64()?];
        let nanoseconds = [self.u32()?, self.u32()?, self.u32()?];
        let mode = self.u32()?;
        self.skip(4)?;
        let (uid, gid) = (self.u32()?, self.u32()?);
        let has = |bit: u32| valid & (1 << bit) != 0;
        let time = |at: usize| Timestamp { seconds: seconds[at], nanoseconds: nanoseconds[at] };
        let set_time = |at, bit, now_bit| {
            let time = if has(now_bit) { SetTime::Now } else { SetTime::At(time(at)) };
            (has(bit) || has(now_bit)).then_some(time)
        };
        Ok(SetAttr {
            handle: has(6).then_some(handle),
            mode: has(0).then_some(mode),
            uid: has(1).then_some(uid),
            gid: has(2).then_some(gid),
            size_bytes: has(3).then_some(size_bytes),
            accessed: set_time(0, 4, 7),
            modified: set_time(1, 5, 8),
            changed: has(10).then(|| time(2)),
            lock_owner: has(9).then_some(lock_owner),
            kills_suid_sgid: has(11),
        })
    }

    fn mknod(&mut self) -> Field<Operation<'a>> {
        let (mode, device, umask) = (self.u32()?, self.u32()?, self.u32()?);
        self.skip(4)?;
        Ok(Operation::MkNod { name: self.name()?, mode, device, umask })
    }

    fn rename(&mut self, has_flags: bool) -> Field<Operation<'a>> {
        let new_parent = self.u64()?;
        let mut flags = 0;
        if has_flags {
            flags = self.u32()?;
            self.skip(4)?;
        }
        let name = self.name()?;
        Ok(Operation::Rename { name, new_parent, new_name: self.name()?, flags })
    }

    fn create(&mut self, is_unnamed: bool) -> Field<Operation<'a>> {
        let (flags, mode, umask) = (self.u32()?, self.u32()?, self.u32()?);
        let kills_suid_sgid = self.u32()? & 1 != 0;
        if is_unnamed {
            // The kernel sends `/` for a name.
            return Ok(Operation::TmpFile { flags, mode, umask });
        }
        Ok(Operation::Create { name: self.name()?, flags, mode, umask, kills_suid_sgid })
    }

    fn read(&mut self) -> Field<Range> {
        let (handle, offset) = (self.u64()?, self.u64()?);
        let (bytes, read_flags) = (self.u32()?, self.u32()?);
        let lock_owner = self.u64()?;
        let flags = self.u32()?;
        self.skip(4)?;
        let lock_owner = (read_flags & 2 != 0).then_some(lock_owner);
        Ok(Range { handle, offset, bytes, flags, lock_owner })
    }

    fn write(&mut self) -> Field<Operation<'a>> {
        let (handle, offset) = (self.u64()?, self.u64()?);
        let (bytes, write_flags) = (self.u32()?, self.u32()?);
        let lock_owner = self.u64()?;
        let flags = self.u32()?;
        self.skip(4)?;
        Ok(Operation::Write {
            handle,
            offset,
            data: self.take(bytes as usize)?,
            flags,
            lock_owner: (write_flags & 2 != 0).then_some(lock_owner),
            is_from_cache: write_flags & 1 != 0,
            kills_suid_sgid: write_flags & 4 != 0,
        })
    }

    fn release(&mut self) -> Field<Operation<'a>> {
        let handle = self.u64()?;
        let (flags, release_flags) = (self.u32()?, self.u32()?);
        let lock_owner = self.u64()?;
        Ok(Operation::Release { handle, flags, lock_owner, ends_flock: release_flags & 2 != 0 })
    }

    fn set_xattr(&mut self, agreed: InitFlags) -> Field<Operation<'a>> {
        let (bytes, flags) = (self.u32()?, self.u32()?);
        let mut kills_sgid = false;
        if agreed.contains(InitFlags::SETXATTR_EXT) {
            kills_sgid = self.u32()? & 1 != 0;
            self.skip(4)?;
        }
        let name = self.text()?;
        let value = self.take(bytes as usize)?;
        Ok(Operation::SetXattr { name, value, flags, kills_sgid })
    }

    fn lock(&mut self) -> Field<LockRequest> {
        let (handle, owner) = (self.u64()?, self.u64()?);
        let (start, end) = (self.u64()?, self.u64()?);
        let kind = match self.u32()? {
            0 => LockKind::Read,
            1 => LockKind::Write,
            2 => LockKind::Unlock,
            _ => return Err("there is no such kind of lock"),
        };
        let pid = self.u32()?;
        let is_flock = self.u32()? & 1 != 0;
        Ok(LockRequest { handle, owner, lock: Lock { start, end, kind, pid }, is_flock })
    }

    fn copy_file_range(&mut self, is_64_bit: bool) -> Field<Operation<'a>> {
        let (handle, offset) = (self.u64()?, self.u64()?);
        let (target_node, target_handle, target_offset) = (self.u64()?, self.u64()?, self.u64()?);
        let length = self.u64()?;
        Ok(Operation::CopyFileRange(CopyFileRange {
            handle,
            offset,
            target_node,
            target_handle,
            target_offset,
            length: if is_64_bit { length } else { length.min(COPY_32_BIT_MAX) },
            flags: self.u64()?,
            is_64_bit,
        }))
    }

    fn ioctl(&mut self) -> Field<Operation<'a>> {
        let handle = self.u64()?;
        let (flags, command) = (self.u32()?, self.u32()?);
        let argument = self.u64()?;
        let (input_bytes, output_bytes_max) = (self.u32()?, self.u32()?);
        Ok(Operation::Ioctl {
            handle,
            command,
            argument,
            input: self.take(input_bytes as usize)?,
            output_bytes_max,
            is_directory: flags & 16 != 0,
        })
    }

    fn supplementary_group(&mut self) -> Field<Option<u32>> {
        while !self.0.is_empty() {
            let (bytes, kind) = (self.u32()? as usize, self.u32()?);
            let mut extension = Fields(self.take(bytes.checked_sub(8).ok_or(TOO_SHORT)?)?);
            if kind == EXTENSION_GROUPS && extension.u32()? > 0 {
                return Ok(Some(extension.u32()?));
            }
        }
        Ok(None)
    }

    /// A name of a directory's entry.
    fn name(&mut self) -> Field<&'a [u8]> {
        let name = self.text()?;
        if name.contains(&b'/') { Err("a name contains a slash") } else { Ok(name) }
    }

    /// Bytes up to a NUL, at least one.
    fn text(&mut self) -> Field<&'a [u8]> {
        let length = self.0.iter().position(|byte| *byte == 0).ok_or("a name has no end")?;
        let text = self.take(length)?;
        self.skip(1)?;
        if text.is_empty() { Err("a name is empty") } else { Ok(text) }
    }

    fn skip(&mut self, bytes: usize) -> Field<()> {
        self.take(bytes).map(|_| ())
    }

    fn take(&mut self, bytes: usize) -> Field<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Field<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Field<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Field<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Field<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    fn i64(&mut self) -> Field<i64> {
        self.array().map(i64::from_ne_bytes)
    }
}

/// `struct fuse_read_in`.
struct Range {
    handle: u64,
    offset: u64,
    bytes: u32,
    flags: u32,
    lock_owner: Option<u64>,
}

#[cfg(test)]
mod tests;
