// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One use of a file.

use std::sync::Arc;

use terrace_core::{Access, Object};

use super::Files;
use super::losses::Heard;
use super::open::Shared;
use crate::failure::Result;

/// A file that somebody opened. Dropping it closes it; call [`File::close`] to hear of errors.
pub struct File {
    files: Arc<Files>,
    shared: Arc<Shared>,
    access: Access,
    heard: Heard,
    is_open: bool,
}

impl File {
    pub(super) fn new(files: &Arc<Files>, shared: Arc<Shared>, access: Access) -> Self {
        let heard = files.losses.open(shared.number);
        Self { files: Arc::clone(files), shared, access, heard, is_open: true }
    }

    /// The number of the file.
    pub fn number(&self) -> u64 {
        self.shared.number
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The object with the bytes; `None` while they are with the metadata.
    pub fn object(&self) -> Option<Arc<dyn Object>> {
        self.shared.object()
    }

    /// Gives a small file an object, so that it can be placed.
    ///
    /// # Errors
    ///
    /// `NOSPC`, what tiers and metadata say.
    pub fn give_object(&self) -> Result<()> {
        self.move_out()
    }

    /// Closes it.
    ///
    /// # Errors
    ///
    /// What the metadata says; the file is closed all the same.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    /// Closes what could not be used: nothing was done with it.
    pub fn close_unused(mut self) {
        self.is_open = false;
        // Why it could not be used is what its user hears.
        if let Err(failure) = self.files.close_file(self.shared.number, self.access, true) {
            tracing::debug!(file = self.shared.number, %failure, "cannot close a file");
        }
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Which losses its user has heard of.
    pub(super) fn heard(&self) -> &Heard {
        &self.heard
    }

    fn end(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.is_open, false) {
            true => self.files.close_file(self.shared.number, self.access, false),
            false => Ok(()),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            tracing::warn!(file = self.shared.number, %failure, "cannot close a file");
        }
    }
}
