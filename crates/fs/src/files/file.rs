// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One use of a file.

use std::sync::Arc;

use terrace_core::{Access, Object};

use super::Files;
use super::losses::Heard;
use super::open::Shared;
use crate::failure::Result;

/// An open file. Dropping it closes it; call [`File::close`] to get errors.
pub struct File {
    files: Arc<Files>,
    /// Until it is closed.
    shared: Option<Arc<Shared>>,
    access: Access,
    heard: Heard,
}

impl File {
    pub(super) fn new(files: &Arc<Files>, shared: Arc<Shared>, access: Access) -> Self {
        let heard = files.losses.open(shared.number);
        Self { files: Arc::clone(files), shared: Some(shared), access, heard }
    }

    /// The number of the file.
    pub fn number(&self) -> u64 {
        self.shared().number
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The object with the bytes; `None` while they are with the metadata.
    pub fn object(&self) -> Option<Arc<dyn Object>> {
        self.shared().object()
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
        self.end(false)
    }

    /// Closes what could not be used: nothing was done with it.
    pub fn close_unused(mut self) {
        let number = self.number();
        // Its user gets the reason why it could not be used.
        if let Err(failure) = self.end(true) {
            tracing::debug!(file = number, %failure, "cannot close a file");
        }
    }

    /// An acknowledged write is lost: each handle of the file returns
    /// that from its next sync.
    pub fn note_loss(&self) {
        self.heard.count();
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    pub(super) fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("it is open")
    }

    /// The losses that were returned to its user.
    pub(super) fn heard(&self) -> &Heard {
        &self.heard
    }

    fn end(&mut self, is_unused: bool) -> Result<()> {
        let Some(shared) = self.shared.take() else { return Ok(()) };
        let number = shared.number;
        let closed = self.files.close_file(shared, self.access, is_unused);
        if self.access == Access::Read {
            self.files.look_at_left(number);
        }
        closed
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let Some(number) = self.shared.as_ref().map(|shared| shared.number) else { return };
        if let Err(failure) = self.end(false) {
            tracing::warn!(file = number, %failure, "cannot close a file");
        }
    }
}
