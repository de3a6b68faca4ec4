// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lets the policy of another process decide, and notices that the process has ended: one that was
//! killed cannot say so.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use terrace_core::{Error, ErrorKind, Result};
use terrace_settings::Guest;
use terrace_stack::Tactics;

use super::owned::{Owned, Visit};

/// How soon the thread finds that the visit, or the store, is over.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

impl Owned {
    /// Lets a policy in another process decide until [`Owned::end_guest`], or until that process ends.
    /// The configuration keeps its own.
    pub(super) fn use_guest(
        self: &Arc<Self>,
        guest: &Guest,
        parameters: &[(String, String)],
    ) -> Result<()> {
        self.check_writable("change the policy")?;
        let _turn = self.amending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = self.running_guest() {
            return Err(Error::new(ErrorKind::Busy, "use the policy of another process")
                .because(format!("that of another command decides: {}", running.name)));
        }
        let stream = guest.reach()?;
        let process = process_behind(&stream);
        let policy = guest.take(stream, &self.view(), parameters)?;
        let was_dry_run = self.policy().is_some_and(|now| now.is_dry_run);
        self.stack.set_policy(self.called_as_now(Tactics::new(&guest.name, policy)))?;
        *self.visit() = Some(Visit { guest: guest.clone(), was_dry_run });
        let watched = process.map_or(Ok(()), |process| watch(self, process, guest));
        watched.inspect_err(|_| _ = self.end_guest(&guest.socket))
    }
}

/// The process at the other end; `None` for this one, and where the system cannot tell, as between
/// containers that do not see each other's processes.
fn process_behind(stream: &UnixStream) -> Option<OwnedFd> {
    let pid = rustix::net::sockopt::socket_peercred(stream).ok()?.pid;
    if pid == getpid() {
        return None;
    }
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Goes back from a guest to the configured policy once its process has ended.
fn watch(owned: &Arc<Owned>, process: OwnedFd, guest: &Guest) -> Result<()> {
    let (owned, guest) = (Arc::downgrade(owned), guest.clone());
    std::thread::Builder::new()
        .name("terrace-guest".into())
        .spawn(move || look(&owned, &process, &guest))
        .map(drop)
        .map_err(|error| Error::from_io("watch the policy's process", error))
}

fn look(owned: &Weak<Owned>, process: &OwnedFd, guest: &Guest) {
    loop {
        let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&LOOK));
        if let Err(errno) = ended
            && errno != Errno::INTR
        {
            tracing::warn!(%errno, policy = guest.name, "cannot watch the policy's process");
            return;
        }
        let Some(owned) = owned.upgrade() else { return };
        if !owned.is_visited_at(&guest.socket) {
            return;
        }
        if ended.is_ok_and(|count| count > 0) {
            let policy = &guest.name;
            tracing::warn!(policy, "its command was ended; the configured policy decides again");
            if let Err(error) = owned.end_guest(&guest.socket) {
                tracing::warn!(%error, "cannot go back to the configured policy");
            }
            return;
        }
    }
}
