// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mounted file system.

use std::io;
use std::path::Path;
use std::sync::Arc;

use terrace_fs::Files;
use terrace_fuse::{InitFlags, Session, Unmounter, Wanted};

use crate::front::{BACKGROUND_MAX, Front};
use crate::mode::Modes;
use crate::options::{IoMode, Options};
use crate::probe;
use crate::tiers::Tiers;

/// Longest request: 256 pages, Linux's default bound.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// A mounted file system. Dropping it unmounts.
pub struct Mount {
    session: Session,
    front: Front,
    /// Why the kernel passes nothing through.
    refusal: Option<String>,
    threads: usize,
}

impl Mount {
    /// Mounts `files` at a directory. `tiers` is where they can be steered, if they can.
    ///
    /// # Errors
    ///
    /// Those of `mount(2)`, and those of `fusermount3` without root; `TimedOut` where no process mounts.
    pub fn new(
        files: &Arc<Files>,
        tiers: Option<Tiers>,
        mountpoint: &Path,
        options: &Options,
    ) -> io::Result<Self> {
        let (how, wanted) = (&options.mount, &wanted(options));
        let session = match &options.mounter {
            None => Session::mount(mountpoint, how, wanted),
            Some(mounter) => Session::mount_by(mounter, mountpoint, how, wanted),
        }?;
        if let Some(reason) = session.uring_refusal() {
            tracing::info!(%reason, "requests do not come over io_uring");
        }
        let mut passthrough = session.passthrough();
        let mut refused = Vec::new();
        let mut refusal = None;
        match (&passthrough, &tiers) {
            (None, _) if may_pass(options) => {
                let reason = "the kernel allows it to root alone (CAP_SYS_ADMIN), since Linux 6.9";
                refusal = Some(reason.into());
            }
            (Some(kernel), Some(tiers)) => {
                let directories = tiers.store().directories_to_lend();
                refused = probe::refused(kernel, &directories);
                refusal = probe::refusal(&refused, directories.len());
            }
            _ => {}
        }
        if refusal.is_some() {
            // What is held in vain cannot move while it is open.
            passthrough = None;
        }
        let modes = Modes::new(passthrough, refused.iter().map(|tier| tier.device).collect());
        let front = Front::new(files, tiers, modes, session.notifier(), options)?;
        Ok(Self { session, front, refusal, threads: options.threads.max(1) })
    }

    /// Whether the kernel is to read and write tiers' files itself, where it can.
    pub fn passes_through(&self) -> bool {
        self.front.prefers_passthrough()
    }

    /// Whether requests come over `io_uring`.
    pub fn uses_uring(&self) -> bool {
        self.session.negotiated().flags.contains(InitFlags::OVER_IO_URING)
    }

    /// Why requests do not come over `io_uring` although that was wanted; `None` where they do.
    pub fn uring_refusal(&self) -> Option<String> {
        if self.uses_uring() {
            return None;
        }
        let refused = self.session.uring_refusal().map(ToString::to_string);
        Some(refused.unwrap_or_else(|| "the kernel does not offer it".into()))
    }

    /// Why the kernel reads and writes no tier's file itself; `None` where it does, or was not to. A file
    /// was made on each tier for that, and was gone at once.
    pub fn passthrough_refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// For ending the mount from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.session.unmounter()
    }

    /// Serves until it is unmounted.
    ///
    /// # Errors
    ///
    /// Those of the connection to the kernel.
    pub fn serve(&self) -> io::Result<()> {
        let outcome = self.session.serve(self.threads, &self.front);
        self.front.settle();
        if let Some(below) = self.front.below() {
            below.stop();
        }
        outcome
    }
}

/// What the kernel is asked for.
fn wanted(options: &Options) -> Wanted {
    let mut flags = InitFlags::ASYNC_READ
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::BIG_WRITES
        | InitFlags::DONT_MASK
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::POSIX_ACL
        | InitFlags::SETXATTR_EXT
        | InitFlags::DIRECT_IO_ALLOW_MMAP;
    flags |= match options.is_shared {
        // Others change files, too: what is cached goes when they are seen to have changed. Without
        // `ASYNC_DIO`: such writes take the kernel's slots for background requests until they are
        // answered, and the refresher answers when reads have ended that may wait for such a slot.
        true => InitFlags::AUTO_INVAL_DATA | InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS,
        false => InitFlags::EXPLICIT_INVAL_DATA | InitFlags::CACHE_SYMLINKS | InitFlags::ASYNC_DIO,
    };
    let max_background = match options.is_shared {
        true => Wanted::default().max_background,
        false => BACKGROUND_MAX,
    };
    let passes = may_pass(options);
    if passes {
        flags |= InitFlags::PASSTHROUGH;
    }
    Wanted {
        flags,
        max_write_bytes: REQUEST_BYTES_MAX,
        max_readahead_bytes: REQUEST_BYTES_MAX,
        max_background,
        max_stack_depth: u32::from(passes),
        uring: options.uring,
        ..Wanted::default()
    }
}

/// Whether the kernel is to pass files through where it can.
fn may_pass(options: &Options) -> bool {
    !options.is_shared && options.io != IoMode::Served
}
