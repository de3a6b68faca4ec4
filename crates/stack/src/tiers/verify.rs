// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks whether a tier returns what a migration wrote to it.

use std::io::IoSliceMut;
use std::thread;

use terrace_core::{Buffer, Error, ErrorKind, Object, Result};

use crate::tiers::list::TierState;

/// Bytes verified at a time, behind which others get the processor.
const LOOK_BYTES: usize = 64 << 10;

/// The same where each request takes long: waiting for it is what a look costs, not its bytes.
const SLOW_LOOK_BYTES: usize = 256 << 10;

/// From this latency on a request takes long: many times as long as looking at what it returns.
pub(crate) const SLOW_LATENCY_NS: u64 = 1_000_000;

/// What was copied at a time.
pub(crate) struct Piece {
    pub(crate) offset_bytes: u64,
    pub(crate) count: usize,
    /// CRC-32C of the source's bytes from the first piece to the end of this one.
    pub(crate) checksum: u32,
}

/// Reads pieces back from the target, in the order in which they were copied.
pub(crate) struct Verifier<'a> {
    pub(crate) target: &'a dyn Object,
    /// The target's tier.
    pub(crate) tier: &'a TierState,
    /// CRC-32C of what the target returned so far.
    pub(crate) checksum: u32,
    /// Whether others get the processor in between.
    pub(crate) gives_way: bool,
    /// Empty before the first.
    pub(crate) back: Buffer,
}

impl Verifier<'_> {
    /// # Errors
    ///
    /// `Corrupt` where the target returns other bytes; what it says.
    pub(crate) fn verify(&mut self, piece: &Piece) -> Result<()> {
        let look_bytes = match self.tier.figures.latency_ns >= SLOW_LATENCY_NS {
            true => SLOW_LOOK_BYTES,
            false => LOOK_BYTES,
        };
        self.back.resize(self.back.len().max(look_bytes.min(piece.count)));
        let mut done = 0;
        while done < piece.count {
            let back = &mut self.back[..look_bytes.min(piece.count - done)];
            let want = back.len();
            let at = piece.offset_bytes + done as u64;
            let read = self.target.read_at(at, &mut [IoSliceMut::new(back)])?;
            self.checksum = crc32c::crc32c_append(self.checksum, &back[..read]);
            if read < want {
                break;
            }
            done += read;
            if self.gives_way {
                thread::yield_now();
            }
        }
        if done == piece.count && self.checksum == piece.checksum {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "verify a migrated segment")
            .because("the target returned other bytes than were written to it")
            .with("offset_bytes", piece.offset_bytes)
            .with("tier", &self.tier.name))
    }
}
