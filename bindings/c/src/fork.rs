// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forked children, which must not use handles of their parent: the threads behind these are the parent's.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace::{Error, Result};

use crate::arguments::wrong;

/// Forks between the process that loaded the library and this one. A handler counts them, so that a call need not ask
/// the kernel which process it is in.
static GENERATION: AtomicU64 = AtomicU64::new(0);

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A process, as one that differs from all that it was forked from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    /// This process. Forks are counted from the first time on.
    pub(crate) fn first() -> Result<Self> {
        static REGISTERED: OnceLock<i32> = OnceLock::new();
        // SAFETY: the handler is async-signal-safe; the C library forgets it where this library is unloaded.
        let result =
            *REGISTERED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
        match result {
            0 => Ok(Self::current()),
            number => Err(Error::from_io("count forks", io::Error::from_raw_os_error(number))),
        }
    }

    /// This process, where a store was opened before.
    pub(crate) fn current() -> Self {
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Fails in a forked child for what its parent opened.
    pub(crate) fn check(self) -> Result<()> {
        match self == Self::current() {
            true => Ok(()),
            false => {
                Err(wrong("the process that this one was forked from opened it; open it again"))
            }
        }
    }
}
