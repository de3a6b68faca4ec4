// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux's FUSE protocol: what the kernel asks of a file system that is a program, and what it is
//! answered. Knows nothing of stores.
//!
//! A program implements [`FileSystem`], mounts with [`Session::mount`] and serves with
//! [`Session::serve`]. Requests come decoded, as [`Request`]; each is answered through its
//! [`Reply`], at once or later and from any thread.

mod answer;
mod crew;
mod decode;
mod device;
mod directory;
mod dispatch;
mod flags;
mod ioctls;
pub mod mirror;
mod mount;
mod mounter;
mod notifier;
mod options;
mod passthrough;
mod record;
mod reply;
mod request;
mod ring;
mod session;
mod slot;
mod stir;
mod unmounter;
mod uring;

pub use answer::{
    Attributes, Entry, FileSystemStatus, IoctlResult, Opened, StatxAnswer, Timestamp,
};
pub use decode::{Decoded, Malformed, decode};
pub use directory::DirectoryBuffer;
pub use flags::{InitFlags, OpenedFlags};
pub use mounter::{Mounter, mount_for};
pub use notifier::Notifier;
pub use options::{AccessTime, MountOptions};
pub use passthrough::{BackingId, Passthrough};
pub use reply::{AnswerObserver, Reply};
pub use request::{
    CopyFileRange, Forgets, Lock, LockKind, LockRequest, Operation, Request, SetAttr, SetTime,
};
pub use session::{Negotiated, Session, Wanted};
pub use unmounter::Unmounter;

/// The node of the directory that is mounted.
pub const ROOT_NODE: u64 = 1;

/// A file system: carries out what the kernel asks for.
///
/// # Contract
///
/// - Methods are called from several threads at once.
/// - Every request but `Forget` and `BatchForget` is answered exactly once. A [`Reply`] that is
///   dropped unsent answers `EIO`, so a handler that panics does, too.
/// - A node that was given out in an [`Entry`] (with `Reply::entry`, `Reply::created` or
///   `DirectoryBuffer::add_plus`) is remembered by the kernel once more each time, until `Forget`
///   counts it down to zero. Negative entries and entries of node 0 do not count.
/// - An operation that the file system does not know is answered with `ENOSYS`; for most of them
///   the kernel does not ask again then.
pub trait FileSystem: Send + Sync {
    /// Carries out one request.
    ///
    /// `request` and what it borrows end with the call; `reply` may outlive it. While the call
    /// lasts its thread serves no other request, so an operation that may wait for other requests
    /// (a lock) must keep `reply` and return.
    fn handle(&self, request: &Request<'_>, reply: Reply);

    /// The caller of the request with this `unique` stopped waiting for it, because of a signal.
    ///
    /// The request still must be answered; `EINTR` is usual. Those that are done soon may ignore
    /// this. It may come for a request that is answered already, and while `handle` still runs:
    /// [`Reply::is_interrupted`] is true from before this call on, so that a check of it under the
    /// lock that this method takes misses nothing.
    fn interrupt(&self, unique: u64);

    /// The file system was unmounted, or its connection aborted: no request comes any more.
    ///
    /// Others may still be carried out. Each thread that reads requests calls it.
    fn unmounted(&self);
}
