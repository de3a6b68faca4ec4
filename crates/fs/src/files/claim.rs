// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The right to make the object of a file, where several clients use it.

use std::time::Duration;

use rustix::io::Errno;

use super::Files;
use crate::failure::Result;
use crate::metadata::Metadata;
use crate::request::{CLAIMED, LockKind, Request, claim};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// Longer than a session lasts whose client died.
const WAIT_MAX: Duration = Duration::from_secs(90);

/// So long it surely holds: a session without a connection is kept twice as long.
const CERTAIN_FOR: Duration = Duration::from_secs(30);

/// The right of one client to write what was small into the object of a file. Two that did so at
/// once would each undo what the other wrote there since.
pub(super) struct Claim<'a> {
    files: &'a Files,
    number: u64,
    /// When it was asked for.
    asked_ns: u64,
    /// The life of the metadata that it is had in.
    life: u64,
}

impl<'a> Claim<'a> {
    /// Waits until no other client has it.
    ///
    /// # Errors
    ///
    /// `AGAIN` where another has it for longer than a client that died can; what the metadata say.
    pub(super) fn wait(files: &'a Files, number: u64) -> Result<Self> {
        // What it had before, and could not give back so far, is its own again.
        files.closing.keep_claim(number);
        let end_ns = files.clock.now_ns().saturating_add(WAIT_MAX.as_nanos() as u64);
        loop {
            let asked_ns = files.clock.now_ns();
            let asked = ask(&*files.metadata, number, LockKind::Write);
            // A later instance than the one that granted it is as good: its server has forgotten the claim.
            let life = files.metadata.life();
            match asked {
                Ok(()) => return Ok(Self { files, number, asked_ns, life }),
                Err(failure) if failure.errno() == Errno::AGAIN && asked_ns < end_ns => {
                    files.clock.sleep(PAUSE);
                }
                Err(failure) => {
                    if failure.may_pass() {
                        // It may be had.
                        files.closing.give_back_claim(number, life);
                    }
                    return Err(failure);
                }
            }
        }
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
        match ask(&*self.files.metadata, self.number, LockKind::Unlock) {
            Ok(()) => {}
            Err(failure) if failure.may_pass() => {
                tracing::warn!(file = self.number, %failure, "cannot give back the claim to an object yet");
                self.files.closing.give_back_claim(self.number, self.life);
            }
            Err(failure) => {
                tracing::warn!(file = self.number, %failure, "cannot give back the claim to an object");
            }
        }
    }
}

/// Takes a claim, or gives it back.
pub(super) fn ask(metadata: &dyn Metadata, number: u64, kind: LockKind) -> Result<()> {
    let locked = claim(kind);
    let number = number | CLAIMED;
    let request = Request::Lock { number, owner: 0, is_flock: false, locked };
    metadata.call(&request).map(drop)
}
