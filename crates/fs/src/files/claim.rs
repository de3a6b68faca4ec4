// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The right to make the object of a file, where several clients use it.

use std::time::Duration;

use rustix::io::Errno;

use super::Files;
use crate::failure::Result;
use crate::request::{LockKind, LockRange, Locked, Request};

/// What is locked with the metadata: numbers of nodes stay below.
const CLAIMED: u64 = 1 << 63;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// Longer than a session lasts whose client died: 90 s.
const TRIES_MAX: u32 = 45_000;

/// The right of one client to write what was small into the object of a file. Two that did so at
/// once would each undo what the other wrote there since.
pub(super) struct Claim<'a> {
    files: &'a Files,
    number: u64,
}

impl<'a> Claim<'a> {
    /// Waits until no other client has it.
    ///
    /// # Errors
    ///
    /// `AGAIN` where another has it for longer than a client that died can; what the metadata say.
    pub(super) fn wait(files: &'a Files, number: u64) -> Result<Self> {
        for _ in 0..TRIES_MAX {
            match ask(files, number, LockKind::Write) {
                Err(failure) if failure.errno() == Errno::AGAIN => files.clock.sleep(PAUSE),
                other => return other.map(|()| Self { files, number }),
            }
        }
        Err(Errno::AGAIN.into())
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
    let range = LockRange { start: 0, end: u64::MAX, kind };
    let locked = Locked { range, process: 0 };
    let number = number | CLAIMED;
    let request = Request::Lock { number, owner: 0, is_flock: false, locked };
    files.metadata.call(&request).map(drop)
}
