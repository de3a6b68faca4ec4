// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel asks for, carried out on files.

mod answer;
mod attributes;
mod dead;
mod directory;
mod handle;
mod io;
mod names;
mod node;
mod put_off;
mod xattr;

use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use terrace_core::{Key, SystemClock};
use terrace_fs::{Failure, Files, Node, is_exhaustion};
use terrace_fuse::{
    AnswerObserver, Attributes, Entry, FileSystem, Notifier, Operation, Reply, Request, SetAttr,
};

use self::dead::{DeadDirectories, Step};
use self::directory::Walk;
use self::handle::Handle;
use self::io::{Asker, Writing};
use crate::aliases::{DirectoryAliases, number_of};
use crate::behind::Behind;
use crate::below::Below;
use crate::caching::Caching;
use crate::locked::LockedDirectories;
use crate::locks::{Caches, Locks};
use crate::mode::{Modes, Unnoticed};
use crate::options::Options;
use crate::refresher::{Bounds, Refresher};
use crate::requests::Requests;
use crate::seen::Seen;
use crate::sizes::Sizes;
use crate::slots::Slots;
use crate::tiers::Tiers;
use crate::waiters::{Waiter, Waiters};

type Result<T, E = Failure> = std::result::Result<T, E>;

/// Attribute timeout of a file that the kernel passes through for writing: its room may change on the tier.
const ROOM_SEEN_AFTER: Duration = Duration::from_millis(100);

/// Bounds the direct writes that wait at a time until the kernel has dropped cached pages of their range.
const DIRECT_WRITES_MAX: usize = 192;

/// Slots of the kernel for background requests of the mount: asynchronous direct I/O, readahead, writeback.
/// Readahead that waits for a slot holds page locks, and direct writes that wait for these locks hold slots:
/// so there are more than [`DIRECT_WRITES_MAX`], and no more than threads may serve one queue.
pub(crate) const BACKGROUND_MAX: u16 = 256;

/// The file system as the kernel sees it.
pub(crate) struct Front {
    files: Arc<Files>,
    tiers: Option<Tiers>,
    below: Option<Below>,
    modes: Modes,
    locks: Locks,
    seen: Seen,
    /// Of use where others move directories, too.
    aliases: DirectoryAliases,
    /// Of use where others change files, too.
    caching: Caching,
    behind: Behind,
    refresher: Option<Arc<Refresher>>,
    locked: Arc<LockedDirectories>,
    sizes: Sizes,
    notifier: Notifier,
    waiters: Waiters,
    handles: Slots<Handle>,
    walks: Slots<Walk>,
    dead: DeadDirectories,
    cached_for: Duration,
    is_shared: bool,
    is_strict: bool,
    /// Whether a program that makes or removes a file, or writes a little, goes on before the server has done so.
    goes_on: bool,
    keeps_access_times: bool,
    keeps_directory_access_times: bool,
    heeds_labels: bool,
    clock: SystemClock,
    requests: Option<(Arc<Requests>, Arc<dyn AnswerObserver>)>,
}

impl Front {
    pub(crate) fn new(
        files: &Arc<Files>,
        tiers: Option<Tiers>,
        modes: Modes,
        notifier: Notifier,
        options: &Options,
    ) -> std::io::Result<Self> {
        files.keep_unlinked();
        let keeps_access_times = options.mount.access_time != terrace_fuse::AccessTime::Never
            && !options.mount.read_only;
        let bounds = match (options.is_shared, options.is_strict) {
            (true, true) => None,
            // These writes hold no slots, and the reads that they wait for may take as long as a server.
            (true, false) => Some(Bounds { calling_max: 0, queued_max: usize::MAX }),
            // The other usual threads go on to answer reads.
            (false, _) => {
                let calling_max = (options.threads / 2).min(DIRECT_WRITES_MAX);
                Some(Bounds { calling_max, queued_max: DIRECT_WRITES_MAX - calling_max })
            }
        };
        let refresher =
            bounds.map(|bounds| Refresher::new(notifier.clone(), bounds)).transpose()?;
        let refresher = refresher.map(Arc::new);
        let locked = Arc::new(LockedDirectories::new(Arc::new(SystemClock::default())));
        let sharing = refresher.as_ref().filter(|_| options.is_shared);
        let caches = sharing.map(|refresher| Caches {
            refresher: Arc::clone(refresher),
            directories: Arc::clone(&locked),
        });
        Ok(Self {
            files: Arc::clone(files),
            below: tiers.as_ref().map(|tiers| Below::new(files, tiers.store())),
            tiers,
            modes,
            locks: Locks::new(files, caches),
            seen: Seen::new(Arc::new(SystemClock::default())),
            aliases: DirectoryAliases::new(Arc::new(SystemClock::default())),
            caching: Caching::default(),
            behind: Behind::new(Arc::new(SystemClock::default())),
            refresher,
            locked,
            sizes: Sizes::default(),
            notifier,
            waiters: Waiters::new(Arc::new(SystemClock::default())),
            handles: Slots::default(),
            walks: Slots::default(),
            dead: DeadDirectories::new(Arc::new(SystemClock::default())),
            cached_for: if options.is_strict { Duration::ZERO } else { options.cached_for },
            is_shared: options.is_shared,
            is_strict: options.is_strict,
            goes_on: options.is_shared && !options.is_strict && !options.cached_for.is_zero(),
            keeps_access_times,
            keeps_directory_access_times: keeps_access_times
                && !options.mount.no_directory_access_time,
            heeds_labels: xattr::heeds_labels(),
            clock: SystemClock::default(),
            requests: options.requests.as_ref().map(|one| (Arc::clone(one), Arc::clone(one) as _)),
        })
    }

    /// How long names in a directory, and what is known of what is there, are believed.
    fn believed_for(&self, directory: u64) -> Duration {
        let is_asked_for = self.locked.are_asked_for(directory)
            || self.is_shared && self.aliases.has_several(directory);
        if is_asked_for { Duration::ZERO } else { self.cached_for }
    }

    /// The entry of a node that the kernel looked up or made by name.
    fn entry(&self, node: &Node) -> Entry {
        self.entry_for(node, self.believed_for(node.parent))
    }

    /// The same, and that it may believe it for so long.
    fn entry_for(&self, node: &Node, timeout: Duration) -> Entry {
        self.note_named(node);
        answer::entry(node, timeout, self.attributes_for(node, timeout))
    }

    /// The attribute timeout of a node whose entry timeout is `timeout`. The kernel does not notice stores
    /// through mappings of a file that it passes through, and requests single fields again only after the timeout.
    fn attributes_for(&self, node: &Node, timeout: Duration) -> Duration {
        let is_asked_for = self.is_shared
            && (self.files.is_read_pending(node.number) || self.aliases.has_several(node.number));
        if timeout.is_zero() || is_asked_for {
            return Duration::ZERO;
        }
        match self.modes.unnoticed(node) {
            Unnoticed::Nothing => timeout,
            Unnoticed::Room => timeout.min(ROOM_SEEN_AFTER),
            Unnoticed::Stores => Duration::ZERO,
        }
    }

    /// Notes that the kernel gets a node by a name.
    fn note_named(&self, node: &Node) {
        if self.is_shared {
            self.seen.name(node);
            self.files.metadata().note_returned(node.changed);
        }
    }

    /// The attributes of a node for the kernel.
    fn told(&self, node: &Node) -> Attributes {
        if self.is_shared {
            self.seen.tell(node);
            self.files.metadata().note_returned(node.changed);
        }
        answer::attributes(node)
    }

    pub(crate) fn prefers_passthrough(&self) -> bool {
        self.modes.prefers_passthrough()
    }

    /// Waits until all acknowledged operations are carried out.
    pub(crate) fn settle(&self) {
        self.behind.settle_all();
    }

    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    pub(crate) fn tiers(&self) -> Option<&Tiers> {
        self.tiers.as_ref()
    }

    /// What submits migrations of everything below a directory.
    pub(crate) fn below(&self) -> Option<&Below> {
        self.below.as_ref()
    }

    /// Whether a file is open, and then whether the kernel reads and writes it itself.
    pub(crate) fn is_passed(&self, number: u64) -> Option<bool> {
        self.modes.is_passed(number)
    }

    /// The key of a file's object.
    pub(crate) fn key(&self, node: &Node) -> Result<Key> {
        self.files.key(node.number)
    }

    /// The reply to a request, which is sent at once where its program dies while servers are waited for.
    /// Not one that holds a thread: only that thread can send it.
    fn answering(&self, request: &Request<'_>, reply: Reply) -> Answering {
        let is_question = is_question(&request.operation);
        let ends_early = self.is_shared && request.pid != 0 && is_question;
        let due = match ends_early && !reply.holds_thread() {
            true => Due::Waiting(self.waiters.add(request.pid, reply)),
            false => Due::Here(reply),
        };
        Answering { due: Some(due), only_reads: is_question && !opens_to_write(&request.operation) }
    }

    /// Carries out a request; `reply` is taken where it was answered.
    fn carry_out(&self, request: &Request<'_>, reply: &mut Answering) -> Result<()> {
        let node = number_of(request.node);
        match &request.operation {
            Operation::Lookup { name } => self.lookup(request, name, reply),
            Operation::GetAttr { .. } => self.attributes(node, reply),
            Operation::Statx { .. } => self.statx(node, reply),
            Operation::SetAttr(changes) => {
                self.set_attributes(node, changes, changing_stranger(request, changes), reply)
            }
            Operation::ReadLink => self.read_link(node, reply),
            Operation::SymLink { name, target } => self.make_link(request, name, target, reply),
            Operation::MkNod { name, mode, device, umask } => {
                self.make_node(request, name, *mode, *device, *umask, reply)
            }
            Operation::MkDir { name, mode, umask } => {
                let mode = terrace_fs::Kind::Directory.bits() | mode & 0o7777;
                self.make_node(request, name, mode, 0, *umask, reply)
            }
            Operation::Unlink { name } => self.remove(node, name, false, reply),
            Operation::RmDir { name } => self.remove(node, name, true, reply),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(request, name, (*new_parent, new_name), *flags, reply)
            }
            Operation::Link { target, new_name } => self.link(*target, node, new_name, reply),
            Operation::Open { flags, .. } => self.open(node, *flags, reply),
            Operation::Create { name, flags, mode, umask, .. } => {
                self.create(request, name, *flags, (*mode, *umask), reply)
            }
            Operation::TmpFile { flags, mode, umask } => {
                self.create(request, b"", *flags, (*mode, *umask), reply)
            }
            Operation::Read { handle, offset, bytes, .. } => {
                self.read(*handle, *offset, *bytes, reply)
            }
            Operation::Write {
                handle,
                offset,
                data,
                flags,
                lock_owner,
                is_from_cache,
                kills_suid_sgid,
            } => {
                let (offset, flags) = (*offset, OFlags::from_bits_retain(*flags));
                let is_from_cache = *is_from_cache;
                let stranger = kills_suid_sgid.then(|| Asker::of(request));
                let (thread, owner) = (request.pid, *lock_owner);
                let writing =
                    Writing { offset, data, flags, is_from_cache, stranger, thread, owner };
                self.write(*handle, &writing, reply)
            }
            Operation::StatFs => self.status(reply),
            Operation::Release { handle, lock_owner, ends_flock, .. } => {
                let flock_owner = ends_flock.then_some(*lock_owner);
                self.release(node, *handle, flock_owner, reply)
            }
            // Without others the kernel keeps the locks, and need not ask.
            Operation::Flush { handle, lock_owner } if self.is_shared => {
                // Before: what its process has lost is over with this.
                let checked = self.files.check_to_close(node);
                let handle = self.handle(*handle)?;
                self.show_times(&handle);
                let missed = handle.tell_closer(*lock_owner);
                let unlocked = self.locks.flush(node, *lock_owner);
                checked.and(missed).and(unlocked)?;
                reply.with(Reply::empty)
            }
            Operation::GetLock(lock) if self.is_shared => {
                let found = self.locks.find(node, lock)?;
                reply.with(|reply| reply.lock(&found))
            }
            Operation::SetLock { lock, is_waiting } if self.is_shared => {
                reply.with(|reply| self.locks.set(node, *lock, *is_waiting, reply))
            }
            Operation::Fsync { handle, .. } => self.sync_file(*handle, reply),
            Operation::FsyncDir { handle, .. } => self.sync_directory(*handle, reply),
            Operation::SyncFs => {
                self.files.sync()?;
                reply.with(Reply::empty)
            }
            Operation::SetXattr { name, value, flags, kills_sgid } => {
                self.set_xattr(node, name, value, *flags, *kills_sgid)?;
                reply.with(Reply::empty)
            }
            Operation::GetXattr { name, bytes } => {
                let value = self.xattr(node, name)?;
                reply.with_bytes(&value, *bytes)
            }
            Operation::ListXattr { bytes } => {
                let names = self.xattrs(node, request.uid)?;
                reply.with_bytes(&names, *bytes)
            }
            Operation::RemoveXattr { name } => {
                self.remove_xattr(node, name)?;
                reply.with(Reply::empty)
            }
            Operation::OpenDir { .. } => self.open_directory(request.node, reply),
            Operation::ReadDir { handle, offset, bytes } => {
                self.read_directory(*handle, *offset, *bytes, false, reply)
            }
            Operation::ReadDirPlus { handle, offset, bytes } => {
                self.read_directory(*handle, *offset, *bytes, true, reply)
            }
            Operation::ReleaseDir { handle } => {
                if let Some(walk) = self.walks.take(*handle) {
                    self.close_directory(&walk);
                }
                reply.with(Reply::empty)
            }
            Operation::Fallocate { handle, offset, length, mode } => {
                self.allocate(*handle, *offset, *length, *mode, stranger(request), reply)
            }
            Operation::Seek { handle, offset, whence } => {
                self.seek(*handle, *offset, *whence, reply)
            }
            Operation::CopyFileRange(copy) => self.copy(copy, stranger(request), reply),
            Operation::Forget { count } => {
                self.forget(request.node, *count);
                reply.with(drop)
            }
            Operation::BatchForget(forgets) => {
                forgets.clone().for_each(|(node, count)| self.forget(node, count));
                reply.with(drop)
            }
            // The kernel then does without; for `Flush` and locks it does the work itself.
            Operation::Ioctl { .. } => Err(Errno::NOTTY.into()),
            _ => Err(Errno::NOSYS.into()),
        }
    }
}

impl FileSystem for Front {
    fn handle(&self, request: &Request<'_>, mut reply: Reply) {
        if let Some((requests, observer)) = &self.requests
            && let Some((group, started_ns)) = requests.begin(&request.operation)
        {
            reply = reply.observed_by(observer, group, started_ns);
        }
        let mut answering = self.answering(request, reply);
        if self.is_shared {
            let is_lookup = is_part_of_lookup(&request.operation);
            self.aliases.note_request(request.pid, request.node, is_lookup);
        }
        self.settle_before(request);
        let ended = self.carry_out(request, &mut answering);
        let ended = ended.map_err(|failure| self.failure_by_name(request, failure));
        if self.is_shared {
            let step = Step::of(&request.operation);
            let errno = ended.as_ref().err().map(Failure::errno);
            self.dead.note_end(request.pid, request.node, step, errno);
        }
        answering.end(request.node, ended);
    }

    fn interrupt(&self, unique: u64) {
        self.locks.interrupt(unique);
        self.waiters.note_signal(unique);
    }

    fn unmounted(&self) {
        // No program waits for a server any more.
        if let Some(tiers) = &self.tiers {
            tiers.store().end_soon();
        }
    }
}

/// The caller, where set-user-ID and set-group-ID bits do not stay where this user changes bytes. The
/// kernel sends that with a write, and leaves it to the file system for other changes.
fn stranger(request: &Request<'_>) -> Option<Asker> {
    (request.uid != 0).then(|| Asker::of(request))
}

/// The same for changes of attributes: nothing is changed where the kernel itself writes for
/// a caller that may not keep the bits.
fn changing_stranger(request: &Request<'_>, changes: &SetAttr) -> Option<Asker> {
    match changes.is_empty() {
        true => stranger(request),
        false => {
            (changes.kills_suid_sgid && changes.size_bytes.is_some()).then(|| Asker::of(request))
        }
    }
}

/// Logs an error: loudly what broke, and at debug level what was refused.
fn log(node: u64, failure: &Failure) {
    match (failure.text(), failure.errno()) {
        (Some(text), Errno::IO | Errno::HOSTUNREACH | Errno::NOSPC) => {
            tracing::warn!(node, text, "cannot do what a program asked for");
        }
        (Some(text), errno) if is_exhaustion(errno) => {
            tracing::warn!(node, text, %errno, "cannot do what a program asked for");
        }
        (Some(text), _) => tracing::debug!(node, text, "refused what a program asked for"),
        (None, _) => {}
    }
}

/// Whether an operation may wait for servers and changes nothing. Over the network each of these takes note of what the kernel
/// gets only once it has the reply ([`Answering::keep`]): the kernel may see its end before.
fn is_question(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Lookup { .. }
            | Operation::GetAttr { .. }
            | Operation::Statx { .. }
            | Operation::ReadLink
            | Operation::Open { .. }
            | Operation::Read { .. }
            | Operation::Seek { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::OpenDir { .. }
            | Operation::ReadDir { .. }
            | Operation::ReadDirPlus { .. }
            | Operation::GetLock(_)
            | Operation::StatFs
    )
}

/// Whether the kernel may ask this while it looks up a path.
fn is_part_of_lookup(operation: &Operation<'_>) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::Lookup { .. } | O::GetAttr { .. } | O::Statx { .. } | O::ReadLink | O::GetXattr { .. }
    )
}

/// Whether what is opened may be changed through it.
fn opens_to_write(operation: &Operation<'_>) -> bool {
    let Operation::Open { flags, .. } = operation else { return false };
    OFlags::from_bits_retain(*flags).intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// A reply that is sent at most once.
#[derive(Default)]
struct Answering {
    due: Option<Due>,
    /// Whether nothing is changed, nor opened to be.
    only_reads: bool,
}

/// Where a reply is that was not sent yet.
enum Due {
    Here(Reply),
    /// With those that send it where its program dies.
    Waiting(Waiter),
}

impl Answering {
    /// The reply, unless it was sent.
    fn take(&mut self) -> Option<Reply> {
        match self.due.take()? {
            Due::Here(reply) => Some(reply),
            Due::Waiting(waiter) => waiter.take(),
        }
    }

    /// Reserves sending it for this thread; false where it was sent already, and the kernel gets
    /// nothing of the result.
    fn keep(&mut self) -> bool {
        self.due = self.take().map(Due::Here);
        self.due.is_some()
    }

    /// Whether a thread waits until it is sent.
    fn holds_thread(&self) -> bool {
        matches!(&self.due, Some(Due::Here(reply)) if reply.holds_thread())
    }

    /// Answers.
    fn with(&mut self, send: impl FnOnce(Reply)) -> Result<()> {
        if let Some(reply) = self.take() {
            send(reply);
        }
        Ok(())
    }

    /// Answers what failed, and was not answered.
    fn end(mut self, node: u64, ended: Result<()>) {
        if let Err(failure) = ended {
            log(node, &failure);
            if let Some(reply) = self.take() {
                reply.error(match failure.errno() {
                    // A server that refuses the client does not report that it takes no changes.
                    Errno::ROFS if self.only_reads => Errno::ACCESS,
                    errno => errno,
                });
            }
        }
    }

    /// Answers with bytes for which there is room, or how many there are where none was given.
    fn with_bytes(&mut self, bytes: &[u8], room: u32) -> Result<()> {
        match room as usize {
            0 => self.with(|reply| reply.xattr_size(bytes.len() as u32)),
            room if room < bytes.len() => Err(Errno::RANGE.into()),
            _ => self.with(|reply| reply.data(bytes)),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // Dropped unsent it is an answer, also where another thread has it.
        drop(self.take());
    }
}
