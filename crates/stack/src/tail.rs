// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are shorter than what they hold: their end is lost, and the zeros that a reader, or a
//! copy, would find there were never written.
//!
//! Whatever makes a segment longer changes its file first and notes the length afterwards, and
//! whatever cuts one does both behind the gate. So whoever passes the guard, or has closed the gate,
//! finds a file that is as long as the segment, or longer.

use terrace_core::{Error, ErrorKind, Result};

use crate::entry::{Segment, Site};
use crate::shared::Shared;

impl Shared {
    /// Refuses a file with fewer bytes than the segment has: `found_bytes`, of `length`.
    ///
    /// # Errors
    ///
    /// `Corrupt`.
    pub(crate) fn check_tail(
        &self,
        operation: &'static str,
        site: &Site,
        found_bytes: u64,
        length: u64,
    ) -> Result<()> {
        if found_bytes >= length {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, operation)
            .because("its file has lost its end; see terrace scrub")
            .with("file", &site.key)
            .with("tier", &self.tier(site.place.tier).name)
            .with("file_bytes", found_bytes)
            .with("expected_bytes", length))
    }

    /// The same of the primary of a segment as it is now, for whoever has not closed the gate.
    ///
    /// # Errors
    ///
    /// `Corrupt`, what the tier says.
    pub(crate) fn check_primary(&self, operation: &'static str, segment: &Segment) -> Result<()> {
        // As a writer, so that nobody cuts the file between the two looks, or moves it.
        let (_entered, _) = segment.guard.enter(&self.parking);
        let length = segment.length();
        let site = &segment.location.load_full().primary;
        let found_bytes = site.open_once(self.backend(site))?.stat()?.size_bytes;
        self.check_tail(operation, site, found_bytes, length)
    }
}
