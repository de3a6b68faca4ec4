// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mounted source.

use std::io;
use std::path::Path;
use std::sync::Arc;

use terrace_fuse::{InitFlags, Session, Unmounter, Wanted};

use crate::cache::Cache;
use crate::front::Front;
use crate::options::SourceOptions;
use crate::source::Source;

/// A mounted source. Dropping it unmounts.
pub struct SourceMount {
    session: Session,
    front: Front,
    threads: usize,
    passthrough_refusal: Option<String>,
}

impl SourceMount {
    /// Mounts a source at a directory.
    ///
    /// # Errors
    ///
    /// Those of `mount(2)` or `fusermount3`; those of the source's root.
    pub fn new(
        source: &Arc<dyn Source>,
        cache: &Arc<Cache>,
        mountpoint: &Path,
        options: &SourceOptions,
    ) -> io::Result<Self> {
        let mut mount = options.mount.clone();
        mount.read_only = true;
        let session = Session::mount(mountpoint, &mount, &wanted(options))?;
        let (passthrough, passthrough_refusal) = match session.passthrough() {
            None => (
                None,
                Some("the kernel allows it to root alone (CAP_SYS_ADMIN), since Linux 6.9".into()),
            ),
            Some(kernel) => match kernel.refusal(cache.directory()) {
                None => (Some(kernel), None),
                refusal => (None, refusal),
            },
        };
        let front = Front::new(source, cache, passthrough, options)?;
        Ok(Self { session, front, threads: options.threads.max(1), passthrough_refusal })
    }

    /// Whether the kernel reads copies itself.
    pub fn passes_through(&self) -> bool {
        self.front.passes_through()
    }

    /// Why the kernel cannot read copies itself, also where it was not to.
    pub fn passthrough_refusal(&self) -> Option<&str> {
        self.passthrough_refusal.as_deref()
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
        self.session.serve(self.threads, &self.front)
    }
}

fn wanted(options: &SourceOptions) -> Wanted {
    let mut wanted = Wanted::default();
    wanted.flags |= InitFlags::ASYNC_DIO
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::DIRECT_IO_ALLOW_MMAP
        | InitFlags::NO_EXPORT_SUPPORT;
    if options.passes_through {
        wanted.flags |= InitFlags::PASSTHROUGH;
        wanted.max_stack_depth = 1;
    }
    wanted
}
