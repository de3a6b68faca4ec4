// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mounted file system and the threads that serve it.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use rustix::io::Errno;

use crate::FileSystem;
use crate::crew::{Crew, Watch};
use crate::decode::{Decoded, decode};
use crate::device::Device;
use crate::dispatch::handle;
use crate::flags::InitFlags;
use crate::mount::{self, Mounted};
use crate::mounter::Mounter;
use crate::notifier::Notifier;
use crate::options::MountOptions;
use crate::passthrough::Passthrough;
use crate::record::{HEADER_BYTES, Record, header};
use crate::reply::Asker;
use crate::ring::Ring;
use crate::stir::{Stirrer, Told};
use crate::unmounter::Unmounter;
use crate::uring::{self, RingWorker};

/// The version that is spoken here, 7.45 of Linux 6.18. The smaller of the kernel's and this counts.
const MAJOR: u32 = 7;
const MINOR: u32 = 45;
/// Linux 5.4: messages have had one layout since.
const MINOR_MIN: u32 = 31;
/// What comes before the data of a write: `fuse_in_header` and `fuse_write_in`.
const WRITE_HEADER_BYTES: usize = 80;
/// The largest page of the machines that this runs on; data of writes begins at a multiple.
const PAGE_BYTES_MAX: usize = 64 * 1024;
/// The kernel reads no request into less (`FUSE_MIN_READ_BUFFER`).
const BUFFER_BYTES_MIN: usize = 8192;
/// Pages of a request, unless `/proc/sys/fs/fuse/max_pages_limit` says otherwise (Linux 6.13).
const PAGES_MAX_DEFAULT: u32 = 256;

/// So often in a row a thread fails to read before it ends, and the pause after the first time; it is
/// longer by as much each time, some 4 s in all.
const READ_FAILURES_MAX: u32 = 40;
const READ_PAUSE: Duration = Duration::from_millis(5);

/// What the kernel is asked for when a file system is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What the file system can do and wants; the kernel may not know all of them.
    pub flags: InitFlags,
    /// Longest write. Every thread has a buffer of that length.
    pub max_write_bytes: u32,
    /// The most that is read ahead. Bounded by the kernel's own, 128 KiB unless
    /// `/sys/class/bdi` says otherwise.
    pub max_readahead_bytes: u32,
    /// Requests that no caller waits for (reading ahead, writing back) at one time.
    pub max_background: u16,
    /// How many of them make the file system count as congested.
    pub congestion_threshold: u16,
    /// What times are rounded to, 1 to 1 000 000 000.
    pub time_granularity_ns: u32,
    /// How many file systems may be stacked below files that are passed through: 1 where they are
    /// on an ordinary one. 0 does without passing through.
    pub max_stack_depth: u32,
    /// Whether requests are to come over `io_uring` where that can be had (Linux 6.14).
    pub uring: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            flags: InitFlags::ASYNC_READ | InitFlags::BIG_WRITES | InitFlags::PARALLEL_DIROPS,
            max_write_bytes: 1024 * 1024,
            max_readahead_bytes: 1024 * 1024,
            max_background: 64,
            congestion_threshold: 48,
            time_granularity_ns: 1,
            max_stack_depth: 0,
            uring: false,
        }
    }
}

/// What was agreed on with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Version 7 of the protocol, and this.
    pub minor: u32,
    /// What both sides can do and want.
    pub flags: InitFlags,
    /// Longest write, and longest read.
    pub max_write_bytes: u32,
    /// The most that is read ahead.
    pub max_readahead_bytes: u32,
    /// As in [`Wanted`]; 0 without `InitFlags::PASSTHROUGH`.
    pub max_stack_depth: u32,
}

/// A mounted file system. Dropping it ends the connection, with `ENOTCONN` for processes that still
/// use it, and unmounts.
#[derive(Debug)]
pub struct Session {
    /// Dropped before `mounted`: the kernel must not wait for answers to unmount.
    device: Arc<Device>,
    negotiated: Negotiated,
    /// For each queue of the kernel, those of its usual threads that have not been started.
    rings: Mutex<Vec<Vec<Ring>>>,
    /// Why there are none although they were wanted and offered.
    no_rings: Option<io::Error>,
    unmounter: Unmounter,
    mounted: UnmountedOnDrop,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.device.is_disconnected() {
            // Unmounted elsewhere; what is there now is not ours.
            self.mounted.0 = None;
        }
    }
}

#[derive(Debug)]
struct UnmountedOnDrop(Option<Arc<Mounted>>);

impl Drop for UnmountedOnDrop {
    fn drop(&mut self) {
        if let Some(mounted) = self.0.take() {
            // There is no one left to report to where this fails.
            let _ = mounted.unmount(true);
        }
    }
}

impl Session {
    /// Mounts at the directory `mountpoint`, and agrees with the kernel on how to talk.
    ///
    /// Needs root, or the program `fusermount3` of libfuse. No request is answered until
    /// [`Session::serve`] runs.
    ///
    /// # Errors
    ///
    /// Those of `mount(2)`, `Unsupported` where the kernel is too old, `Other` with the words of
    /// `fusermount3`.
    pub fn mount(mountpoint: &Path, options: &MountOptions, wanted: &Wanted) -> io::Result<Self> {
        let (file, mounted) = mount::mount(mountpoint, options)?;
        Self::agree(file, mounted, wanted)
    }

    /// The same where another process mounts, which calls [`mount_for`] once this one waits for it. Such a mount
    /// is not ended from here, but by an `umount` there.
    ///
    /// # Errors
    ///
    /// As with [`Session::mount`]; `TimedOut` where no process comes, `Other` where it cannot mount.
    ///
    /// [`mount_for`]: crate::mount_for
    pub fn mount_by(
        mounter: &Mounter,
        mountpoint: &Path,
        options: &MountOptions,
        wanted: &Wanted,
    ) -> io::Result<Self> {
        let (file, served) = mounter.wait(options)?;
        let session = Self::agree(file, Mounted::by_other(mountpoint), wanted)?;
        served.report(wanted.max_readahead_bytes)?;
        Ok(session)
    }

    fn agree(file: OwnedFd, mounted: Mounted, wanted: &Wanted) -> io::Result<Self> {
        let device = Arc::new(Device::new(file));
        let mounted = Arc::new(mounted);
        let unmounter = Unmounter::new(&device, Arc::clone(&mounted));
        // From here on an error unmounts.
        let on_drop = UnmountedOnDrop(Some(Arc::clone(&mounted)));
        let (mut negotiated, rings) = negotiate(&device, wanted)?;
        let (rings, no_rings) =
            rings.map_or_else(|error| (Vec::new(), Some(error)), |some| (some, None));
        let readahead_bytes = wanted.max_readahead_bytes;
        if readahead_bytes > negotiated.max_readahead_bytes
            && mounted.set_readahead(readahead_bytes).is_ok()
        {
            negotiated.max_readahead_bytes = readahead_bytes;
        }
        let rings = Mutex::new(rings);
        Ok(Self { device, negotiated, rings, no_rings, unmounter, mounted: on_drop })
    }

    /// What was agreed on.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Why requests do not come over `io_uring` although that was wanted and the kernel offers it.
    pub fn uring_refusal(&self) -> Option<&io::Error> {
        self.no_rings.as_ref()
    }

    /// Serves with `threads` threads, at least one, until the file system is unmounted; with more of
    /// them while all are held up by their requests. Where requests come over `io_uring` there are
    /// several for each processor besides.
    ///
    /// The calling thread is one of them. A handler that panics answers `EIO` and ends nothing
    /// else.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` where the connection was aborted and `InitFlags::ABORT_ERROR` agreed on, and
    /// those of starting a thread; then the file system may still be mounted.
    pub fn serve(&self, threads: usize, files: &dyn FileSystem) -> io::Result<()> {
        let watch = &Watch::default();
        // The threads that read from the device, and those that serve each queue of requests that
        // come over rings.
        let mut crews = vec![Crew::new(threads, watch)];
        crews.extend(self.rings().iter().map(|rings| Crew::new(rings.len(), watch)));
        let crews = &crews[..];
        let (stirrer, told) = Stirrer::new();
        let are_started = OnceLock::new();
        let serving = Serving { session: self, files, crews, stirrer, are_started };
        let serving = &serving;
        thread::scope(|scope| {
            thread::Builder::new().name("fuse-watch".into()).spawn_scoped(scope, move || {
                watch.over(crews, |crew| serving.start(scope, crew, false).map(drop));
            })?;
            // Whatever happens from here on.
            let _over = End(serving, watch);
            // This thread is one of those that read from the device, and enough of them where no other
            // can be had.
            let readers = (1..crews[0].usual()).filter_map(|_| {
                let lost = |error: &io::Error| {
                    tracing::warn!(%error, "a thread that serves cannot be started");
                    crews[0].lose();
                };
                serving.start(scope, 0, true).inspect_err(lost).ok()
            });
            let readers: Vec<_> = readers.collect();
            if let Err(error) = serving.start_rings(scope, told) {
                tracing::warn!(%error, "requests come over the device: no threads for io_uring");
                self.rings().clear();
                if let Err(error) = uring::refuse(&self.device) {
                    tracing::error!(%error, "no request is answered: the kernel waits for io_uring");
                }
            }
            let mut result = serving.reader().serve(true);
            for reader in readers {
                // Handlers are caught, so that a reader itself does not panic.
                result = result.and(reader.join().expect("a reader does not panic"));
            }
            result
        })
    }

    /// For telling the kernel what has changed.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
    }

    /// For ending the mount from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// For files that are passed through, where that was agreed on.
    pub fn passthrough(&self) -> Option<Passthrough> {
        let agreed = self.negotiated.flags.contains(InitFlags::PASSTHROUGH);
        agreed.then(|| Passthrough::new(&self.device))
    }

    fn rings(&self) -> MutexGuard<'_, Vec<Vec<Ring>>> {
        // Taking one leaves the others whole.
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor for one more thread; the first one's where there can be no other.
    fn another_device(&self) -> Arc<Device> {
        self.device.another().map_or_else(|_| Arc::clone(&self.device), Arc::new)
    }
}

/// What all threads of a session serve.
struct Serving<'a> {
    session: &'a Session,
    files: &'a dyn FileSystem,
    /// The first reads from the device, the others serve the kernel's queues.
    crews: &'a [Crew<'a>],
    stirrer: Stirrer,
    /// Whether the threads of all queues could be started. They wait for that.
    are_started: OnceLock<bool>,
}

impl<'a> Serving<'a> {
    /// Starts the usual threads of the kernel's queues, and the one that stirs these. Where one cannot be
    /// there are none: rings are agreed on with the kernel, which has to be refused them.
    fn start_rings<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        told: Receiver<Told>,
    ) -> io::Result<()> {
        let Some(mounted) = self.session.mounted.0.as_ref().filter(|_| self.crews.len() > 1) else {
            return Ok(());
        };
        let place = mounted.path().to_owned();
        let stirring = thread::Builder::new().name("fuse-stir".into());
        let stirring = stirring
            .spawn_scoped(scope, move || self.stirrer.run(&told, &place, &self.crews[1..]))
            .map(drop);
        let threads = self.crews.iter().enumerate().skip(1);
        let mut threads = threads.flat_map(|(crew, one)| std::iter::repeat_n(crew, one.usual()));
        let started = stirring
            .and_then(|()| threads.try_for_each(|crew| self.start(scope, crew, true).map(drop)));
        let _ = self.are_started.set(started.is_ok());
        started
    }

    /// Starts a thread of one of the crews.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        crew: usize,
        is_usual: bool,
    ) -> io::Result<ScopedJoinHandle<'scope, io::Result<()>>> {
        if crew == 0 {
            let reader = self.reader();
            return thread::Builder::new()
                .name("fuse".into())
                .spawn_scoped(scope, move || reader.serve(is_usual));
        }
        let queue = crew - 1;
        let left = self.session.rings()[queue].pop();
        let ring = match left {
            Some(ring) => ring,
            None => {
                uring::ring(&self.session.device, queue, self.session.negotiated.max_write_bytes)?
            }
        };
        let worker = RingWorker {
            ring,
            flags: self.session.negotiated.flags,
            files: self.files,
            crew: &self.crews[crew],
            stirrer: &self.stirrer,
            is_usual,
        };
        thread::Builder::new().name(format!("fuse-{queue}")).spawn_scoped(scope, move || {
            if *self.are_started.wait() {
                worker.serve(|| self.start(scope, crew, false).map(drop));
            }
            Ok(())
        })
    }

    /// A thread that reads from the device.
    fn reader(&self) -> Worker<'_> {
        let device = self.session.another_device();
        Worker::new(device, self.session.negotiated, self.files, &self.crews[0])
    }
}

/// Ends what has no requests of its own to end with when it is dropped.
struct End<'a>(&'a Serving<'a>, &'a Watch);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.1.end();
        self.0.stirrer.end();
    }
}

/// One thread's part of serving.
struct Worker<'a> {
    device: Arc<Device>,
    flags: InitFlags,
    files: &'a dyn FileSystem,
    crew: &'a Crew<'a>,
    memory: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(
        device: Arc<Device>,
        negotiated: Negotiated,
        files: &'a dyn FileSystem,
        crew: &'a Crew<'a>,
    ) -> Self {
        let needed_bytes = WRITE_HEADER_BYTES + negotiated.max_write_bytes as usize;
        let memory = vec![0; PAGE_BYTES_MAX + needed_bytes.max(BUFFER_BYTES_MIN)];
        Self { device, flags: negotiated.flags, files, crew, memory }
    }

    /// Serves until the end; a thread that is not usual, until there is no more need of it.
    fn serve(mut self, is_usual: bool) -> io::Result<()> {
        // So that the data of a write begins at a page.
        let page = self.memory.as_ptr().align_offset(PAGE_BYTES_MAX);
        let start = if page < WRITE_HEADER_BYTES { page + PAGE_BYTES_MAX } else { page };
        let start = start - WRITE_HEADER_BYTES;
        let mut memory = std::mem::take(&mut self.memory);
        let buffer = &mut memory[start..];
        let asker = Asker::Device(Arc::clone(&self.device));
        let (mut is_aborted, mut failures) = (false, 0);
        loop {
            match self.device.read(buffer) {
                Ok(bytes) => {
                    (is_aborted, failures) = (false, 0);
                    self.crew.begin();
                    handle(&buffer[..bytes], self.flags, self.files, &asker);
                    self.crew.end();
                    if !is_usual && self.crew.may_leave() {
                        return Ok(());
                    }
                }
                // An unmount can find a request half read; the next read tells whether it was one.
                Err(Errno::CONNABORTED) if !is_aborted => is_aborted = true,
                // `NOENT`: the caller was killed before the request was read.
                Err(Errno::NOENT | Errno::INTR) => {}
                // Unmounted, or aborted.
                Err(Errno::NODEV) => {
                    // A handler that panics ends nothing else, as with a request.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.files.unmounted()));
                    return Ok(());
                }
                // Memory was short, for example: the kernel has returned an error to the caller.
                Err(errno) if failures < READ_FAILURES_MAX => {
                    if failures == 0 {
                        tracing::warn!(error = %errno, "cannot read what the kernel asks; tried again");
                    }
                    failures += 1;
                    thread::park_timeout(READ_PAUSE * failures);
                }
                Err(errno) => {
                    tracing::error!(error = %errno, "a thread takes no more requests");
                    self.crew.lose();
                    return Err(errno.into());
                }
            }
        }
    }
}

/// Answers the first message of the kernel.
///
/// Where requests are to come over rings all of these are made first: once that is agreed on the
/// kernel waits for them. Where they cannot be made it is not agreed on.
fn negotiate(
    device: &Arc<Device>,
    wanted: &Wanted,
) -> io::Result<(Negotiated, io::Result<Vec<Vec<Ring>>>)> {
    let mut buffer = [0; BUFFER_BYTES_MIN];
    loop {
        let bytes = device.read(&mut buffer)?;
        let decoded = decode(&buffer[..bytes], InitFlags::NONE);
        let Ok(Decoded::Init { unique, major, minor, max_readahead_bytes, flags }) = decoded else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the kernel did not begin with a greeting",
            ));
        };
        if major > MAJOR {
            // The kernel says it again in this version.
            let mut record = Record::<64>::new();
            record.u32(MAJOR).u32(MINOR);
            answer(device, unique, record.bytes())?;
            continue;
        }
        if major < MAJOR || minor < MINOR_MIN {
            let message = format!(
                "the kernel is too old have=FUSE {major}.{minor} \
                 need=FUSE {MAJOR}.{MINOR_MIN}"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let page_bytes = u32::try_from(rustix::param::page_size()).expect("pages are small");
        let (mut negotiated, pages_max) =
            agree(minor, flags, max_readahead_bytes, wanted, page_bytes, pages_limit());
        let mut rings = Ok(Vec::new());
        if negotiated.flags.contains(InitFlags::OVER_IO_URING) {
            rings = uring::rings(device, negotiated.max_write_bytes);
            if rings.is_err() {
                negotiated.flags = negotiated.flags.without(InitFlags::OVER_IO_URING);
            }
        }
        let mut record = Record::<64>::new();
        record
            .u32(MAJOR)
            .u32(MINOR)
            .u32(negotiated.max_readahead_bytes)
            .u32(negotiated.flags.0 as u32)
            .u16(wanted.max_background)
            .u16(wanted.congestion_threshold)
            .u32(negotiated.max_write_bytes)
            .u32(wanted.time_granularity_ns)
            .u16(pages_max)
            .u16(0)
            .u32((negotiated.flags.0 >> 32) as u32)
            .u32(negotiated.max_stack_depth);
        answer(device, unique, record.bytes())?;
        return Ok((negotiated, rings));
    }
}

/// What comes out of what both sides want, and the pages of the longest request.
fn agree(
    minor: u32,
    offered: InitFlags,
    max_readahead_bytes: u32,
    wanted: &Wanted,
    page_bytes: u32,
    pages_limit: u32,
) -> (Negotiated, u16) {
    let mut flags = offered
        & (wanted.flags
            | InitFlags::MAX_PAGES
            | InitFlags::INIT_EXT
            | InitFlags::BIG_WRITES
            | InitFlags::OVER_IO_URING);
    if !wanted.uring {
        flags = flags.without(InitFlags::OVER_IO_URING);
    }
    // What the kernel demands of file systems that pass through (fs/fuse/inode.c,
    // `process_init_reply`).
    if wanted.max_stack_depth == 0 || flags.contains(InitFlags::WRITEBACK_CACHE) {
        flags = flags.without(InitFlags::PASSTHROUGH);
    }
    // Without `MAX_PAGES` a request has 32 (`FUSE_DEFAULT_MAX_PAGES_PER_REQ`).
    let limit = if flags.contains(InitFlags::MAX_PAGES) { pages_limit } else { 32 };
    let pages = wanted.max_write_bytes.div_ceil(page_bytes).clamp(1, limit.min(65535));
    let negotiated = Negotiated {
        minor: minor.min(MINOR),
        flags,
        max_write_bytes: wanted.max_write_bytes.clamp(4096, pages * page_bytes),
        max_readahead_bytes: wanted.max_readahead_bytes.min(max_readahead_bytes),
        max_stack_depth: match flags.contains(InitFlags::PASSTHROUGH) {
            true => wanted.max_stack_depth,
            false => 0,
        },
    };
    (negotiated, u16::try_from(pages).expect("clamped"))
}

fn pages_limit() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").unwrap_or_default();
    text.trim().parse().unwrap_or(PAGES_MAX_DEFAULT)
}

fn answer(device: &Device, unique: u64, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(HEADER_BYTES + bytes.len()).expect("a greeting is short");
    let header = header(length, 0, unique);
    Ok(device.write(&[IoSlice::new(header.bytes()), IoSlice::new(bytes)])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    const PAGE_BYTES: u32 = 4096;

    fn agreed(offered: InitFlags, wanted: &Wanted) -> (Negotiated, u16) {
        agree(45, offered, 128 * 1024, wanted, PAGE_BYTES, PAGES_MAX_DEFAULT)
    }

    #[test]
    fn only_what_both_sides_want_is_agreed_on() {
        let flags = InitFlags::ASYNC_READ | InitFlags::WRITEBACK_CACHE;
        let wanted = Wanted { flags, ..Wanted::default() };
        let offered = InitFlags::ASYNC_READ | InitFlags::POSIX_LOCKS | InitFlags::INIT_EXT;
        let (negotiated, _) = agreed(offered, &wanted);
        assert_eq!(negotiated.flags, InitFlags::ASYNC_READ | InitFlags::INIT_EXT);
        assert_eq!(negotiated.minor, 45);
        assert_eq!(negotiated.max_readahead_bytes, 128 * 1024);
        assert_eq!(agree(99, offered, 0, &wanted, PAGE_BYTES, 1).0.minor, MINOR);
    }

    #[test]
    fn a_write_is_as_long_as_the_kernel_s_requests_may_be() {
        let with = |max_write_bytes| Wanted { max_write_bytes, ..Wanted::default() };
        let many = InitFlags::MAX_PAGES;
        let longest = |offered, wanted| {
            let (negotiated, pages) = agreed(offered, &with(wanted));
            (negotiated.max_write_bytes, pages)
        };
        assert_eq!(longest(many, 1 << 20), (1 << 20, 256));
        assert_eq!(longest(many, 16 << 20), (1 << 20, 256));
        assert_eq!(longest(many, 5000), (5000, 2));
        assert_eq!(longest(many, 1), (4096, 1));
        assert_eq!(longest(InitFlags::NONE, 1 << 20), (32 * PAGE_BYTES, 32));
    }

    #[test]
    fn files_pass_through_where_the_kernel_can_and_does_not_collect_writes() {
        let with = |flags, max_stack_depth| Wanted { flags, max_stack_depth, ..Wanted::default() };
        let passes = |wanted: &Wanted| {
            let offered = InitFlags::PASSTHROUGH | InitFlags::WRITEBACK_CACHE;
            let (negotiated, _) = agreed(offered, wanted);
            let passes = negotiated.flags.contains(InitFlags::PASSTHROUGH);
            assert_eq!(negotiated.max_stack_depth != 0, passes);
            passes
        };
        assert!(passes(&with(InitFlags::PASSTHROUGH, 1)));
        assert!(!passes(&with(InitFlags::PASSTHROUGH, 0)));
        assert!(!passes(&with(InitFlags::PASSTHROUGH | InitFlags::WRITEBACK_CACHE, 1)));
        let (negotiated, _) = agreed(InitFlags::NONE, &with(InitFlags::PASSTHROUGH, 1));
        assert_eq!(negotiated.max_stack_depth, 0);
    }

    #[test]
    fn a_thread_that_cannot_read_tries_again_and_is_missed_in_the_end() {
        // Which cannot be read.
        let directory = std::fs::File::open("/").expect("there is one");
        let device = Arc::new(Device::new(directory.into()));
        let watch = Watch::default();
        let crews = [Crew::new(1, &watch)];
        let (negotiated, _) = agreed(InitFlags::NONE, &Wanted::default());
        let (add, added) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let (watch, crews) = (&watch, &crews);
            let add = move |crew| {
                add.send(crew).expect("the test listens");
                Ok(())
            };
            scope.spawn(move || watch.over(crews, add));
            let worker = Worker::new(Arc::clone(&device), negotiated, &Nothing, &crews[0]);
            let served = scope.spawn(|| worker.serve(true)).join().expect("no panic");
            let error = served.expect_err("it cannot read");
            assert_eq!(error.raw_os_error(), Some(Errno::ISDIR.raw_os_error()));
            let added = added.recv_timeout(Duration::from_secs(20));
            assert_eq!(added, Ok(0), "another one takes its place");
            watch.end();
        });
    }

    /// Answers everything with an error.
    struct Nothing;

    impl FileSystem for Nothing {
        fn handle(&self, _: &crate::Request<'_>, reply: Reply) {
            reply.error(Errno::IO);
        }

        fn interrupt(&self, _: u64) {}

        fn unmounted(&self) {}
    }

    #[test]
    fn the_kernel_asks_over_the_device_once_it_is_told_that_no_rings_come() {
        let place = tempfile::tempdir().expect("directory");
        let wanted = Wanted { uring: true, ..Wanted::default() };
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can mount here");
            return;
        }
        let session = Session::mount(place.path(), &MountOptions::default(), &wanted);
        let session = session.expect("mount");
        if !session.negotiated().flags.contains(InitFlags::OVER_IO_URING) {
            let error = session.uring_refusal();
            eprintln!("skipped: requests cannot come over io_uring error={error:?}");
            return;
        }
        session.rings().clear();
        uring::refuse(&session.device).expect("refuse");
        thread::scope(|scope| {
            let serving = scope.spawn(|| session.serve(1, &Nothing));
            // In another process, which can be given up.
            let mut asking = std::process::Command::new("stat")
                .arg("-f")
                .arg(place.path())
                .stderr(std::process::Stdio::null())
                .spawn()
                .expect("stat");
            let mut has_ended = None;
            for _ in 0..1000 {
                has_ended = asking.try_wait().expect("wait");
                if has_ended.is_some() {
                    break;
                }
                thread::park_timeout(Duration::from_millis(10));
            }
            // Nothing holds the mount where it waits in vain.
            let _ = asking.kill();
            asking.wait().expect("wait");
            session.unmounter().unmount_lazily().expect("unmount");
            serving.join().expect("no panic").expect("serve");
            assert!(has_ended.is_some(), "nobody was answered");
        });
    }
}
