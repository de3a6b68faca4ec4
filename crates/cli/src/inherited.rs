// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process inherits from the one that started it: signals, resource limits, the umask, the working
//! directory.
//!
//! [`settle`] is for every command, before it does anything else. [`settle_daemon`] is for those that hold a
//! store or a mount for others: their clients are not to depend on the shell that started them. Descriptors 0
//! to 2 that are closed the standard library opens on `/dev/null` before `main`.
#![allow(
    unsafe_code,
    reason = "no safe wrapper of sigprocmask and signal (docs/adr/0047-inherited-environment.md)"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use signal_hook::consts::{SIGCHLD, SIGXFSZ};

/// So few descriptors are worth a warning: each open object is one, and so is each connection.
const DESCRIPTORS_FEW: u64 = 4096;

/// Of a file that a daemon makes for its store, all but its owner's rights.
const OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);

/// A directory that exists as long as this process, and in which no other path can be named.
const NOWHERE: &str = "/proc/self/ns";

/// Limits that a daemon raises as far as it may, with what remains where it may not.
const LIMITS: [(Resource, &str, &str); 5] = [
    (
        Resource::Nofile,
        "RLIMIT_NOFILE",
        "opening a file or a connection beyond it fails with EMFILE",
    ),
    (
        Resource::Fsize,
        "RLIMIT_FSIZE",
        "objects go on in new segments there; the catalog takes no changes once its file is as long",
    ),
    (
        Resource::As,
        "RLIMIT_AS",
        "memory, threads and mappings beyond it fail with ENOMEM or EAGAIN",
    ),
    (Resource::Data, "RLIMIT_DATA", "memory and threads beyond it fail with ENOMEM or EAGAIN"),
    (Resource::Cpu, "RLIMIT_CPU", "the kernel kills the process after so many seconds of CPU time"),
];

/// Sets right what would stop or mislead any command.
///
/// - No signal is blocked: SIGTERM and SIGINT have to come through.
/// - SIGCHLD is not ignored: the kernel would keep no status of children.
/// - A write past `RLIMIT_FSIZE` fails with `EFBIG` instead of killing the process by SIGXFSZ, whose store others
///   may use. Children die of it as usual.
/// - The umask takes no rights from the owner of what is made.
/// - A working directory that was removed is left for one where relative paths lead nowhere.
pub(crate) fn settle() {
    // SAFETY: an empty set is filled before it is used, on the only thread; the handler is the kernel's own.
    unsafe {
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(SIGCHLD, libc::SIG_DFL);
    }
    // A handler and not `SIG_IGN`, which children would inherit. Without it a write kills, as it did.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    umask(umask(OTHERS) - Mode::RWXU);
    if std::env::current_dir().is_err() {
        // Without /proc it stays where it is.
        let _ = std::env::set_current_dir(NOWHERE);
    }
}

/// Sets right what would limit a daemon: limits are raised up to the hard ones. What it makes for its store is
/// its user's alone; files on a mount have the mode that their makers give them.
///
/// Returns a sentence for each limit that remains, for a log.
pub(crate) fn settle_daemon() -> Vec<String> {
    umask(OTHERS);
    let mut notes = Vec::new();
    for (resource, name, effect) in LIMITS {
        let limit = getrlimit(resource);
        // Not beyond what it may.
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
        let Some(most) = getrlimit(resource).current else { continue };
        if !matches!(resource, Resource::Nofile) || most < DESCRIPTORS_FEW {
            notes.push(format!("{name} is {most}: {effect}"));
        }
    }
    notes
}

/// The same, and warns of what remains in the log.
pub(crate) fn settle_daemon_and_log() {
    for note in settle_daemon() {
        tracing::warn!(
            "{note}; raise it where this process is started (ulimit -H, Limit…= of systemd)"
        );
    }
}

/// Leaves the working directory, which may be removed or unmounted while this process runs. Paths that are
/// relative to it have been read.
pub(crate) fn leave_directory() {
    // The root is always there.
    let _ = std::env::set_current_dir("/");
}
