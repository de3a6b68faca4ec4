// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The right to make the object of a file, where several clients use it.

use std::time::Duration;

use rustix::io::Errno;

use super::Files;
use crate::failure::Result;
use crate::request::{CLAIMED, LockKind, Request, claim};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// Longer than a session lasts whose client died: 90 s.
const TRIES_MAX: u32 = 45_000;

/// So long it surely holds: a session without a connection is kept twice as long.
const CERTAIN_FOR: Duration = Duration::from_secs(30);

/// The right of one client to write what was small into the object of a file. Two that did so at
/// once would each undo what the other wrote there since.
pub(super) struct Claim<'a> {
    files: &'a Files,
    number: u64,
    /// When it was asked for.
    asked_ns: u64,
}

impl<'a> Claim<'a> {
    /// Waits until no other client has it.
    ///
    /// # Errors
    ///
    /// `AGAIN` where another has it for longer than a client that died can; what the metadata say.
    pub(super) fn wait(files: &'a Files, number: u64) -> Result<Self> {
        for _ in 0..TRIES_MAX {
            let asked_ns = files.clock.now_ns();
            match ask(files, number, LockKind::Write) {
                Err(failure) if failure.errno() == Errno::AGAIN => files.clock.sleep(PAUSE),
                other => return other.map(|()| Self { files, number, asked_ns }),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Whether no other client can have it: one that was cut off for long may have lost it, and the
    /// object may be in use by now.
    pub(super) fn is_certain(&self) -> bool {
        let age_ns = self.files.clock.now_ns().saturating_sub(self.asked_ns);
        Duration::from_nanos(age_ns) < CERTAIN_FOR
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Err(failure) = ask(self.files, self.number, LockKind::Unlock) {
            tracing::warn!(file = self.number, %failure, "cannot give back the claim to an object");
        }
    }
}

fn ask(files: &Files, number: u64, kind: LockKind) -> Result<()> {
    let locked = claim(kind);
    let number = number | CLAIMED;
    let request = Request::Lock { number, owner: 0, is_flock: false, locked };
    files.metadata.call(&request).map(drop)
}
