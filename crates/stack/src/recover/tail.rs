// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are shorter than what they hold: their end is lost, and the zeros that a reader, or a
//! copy, would find there were never written.
//!
//! Whatever makes a segment longer changes its file first and notes the length afterwards, and
//! whatever cuts one does both behind the gate. So inside the guard, and with the gate closed, a caller
//! finds a file that is as long as the segment, or longer.

use std::sync::Arc;

use terrace_core::{Error, ErrorKind, Result};

use crate::memory::entry::Segment;
use crate::memory::site::Site;
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

    /// The same of the primary of a segment as it is now, where the caller has not closed the gate.
    ///
    /// # Errors
    ///
    /// `Corrupt`, what the tier says.
    pub(crate) fn check_primary(&self, operation: &'static str, segment: &Segment) -> Result<()> {
        let location = segment.location.load_full();
        self.check_file(operation, segment, &location.primary)
    }

    /// The same of a file of the segment; nothing is returned for one that is none any more.
    ///
    /// # Errors
    ///
    /// `Corrupt`, what the tier says.
    pub(crate) fn check_file(
        &self,
        operation: &'static str,
        segment: &Segment,
        site: &Site,
    ) -> Result<()> {
        // As a writer, so that the file is neither cut between the looks nor moved.
        let (_entered, _) = segment.guard.enter(&self.parking);
        // Before the location: a copy that is one then was one when this was its length.
        let length = segment.length();
        let location = segment.location.load_full();
        let is_it = |one: &Arc<Site>| one.place == site.place;
        let Some(site) = location.sites().find(|one| is_it(one)) else { return Ok(()) };
        let found_bytes = site.open_once(self.backend(site))?.stat()?.size_bytes;
        // Asked behind the look at the file, which a cut comes before.
        if segment.was_cut() || self.is_unrecovered {
            return Ok(());
        }
        self.check_tail(operation, site, found_bytes, length)
    }

    /// Refuses a cut behind a closed gate of which the new end would be one of zeros: the primary has
    /// lost bytes in front of it.
    ///
    /// # Errors
    ///
    /// `Corrupt`, what the tier says.
    pub(crate) fn check_new_end(&self, segment: &Segment, end_bytes: u64) -> Result<()> {
        if end_bytes == 0 || segment.is_whole() || segment.was_cut() {
            return Ok(());
        }
        let location = segment.location.load_full();
        let site = &location.primary;
        let found_bytes = site.open_once(self.backend(site))?.stat()?.size_bytes;
        self.check_tail("cut a file", site, found_bytes, end_bytes)
    }

    /// Whether a file of the segment has all of its bytes; says so in the log where it has not.
    ///
    /// # Errors
    ///
    /// What the tier says.
    pub(crate) fn has_its_end(
        &self,
        operation: &'static str,
        segment: &Segment,
        site: &Site,
    ) -> Result<bool> {
        match self.check_file(operation, segment, site) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(%error, "a file of a tier is damaged");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Finds out whether the primary has all bytes of the segment, which is noted there. Refuses one
    /// that has lost some in front of `end_bytes`: what is written behind these would make zeros of
    /// them.
    ///
    /// # Errors
    ///
    /// `Corrupt`, what the tier says.
    #[cold]
    pub(crate) fn check_left(&self, segment: &Segment, end_bytes: u64) -> Result<()> {
        let (_entered, _) = segment.guard.enter(&self.parking);
        let length = segment.length();
        let location = segment.location.load_full();
        let site = &location.primary;
        let found_bytes = site.open_once(self.backend(site))?.stat()?.size_bytes;
        if found_bytes >= length || segment.was_cut() {
            segment.note_whole();
            return Ok(());
        }
        self.check_tail("write", site, found_bytes, end_bytes.min(length))
    }
}
