// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mends the file systems of a store.

use terrace_admin::FilesReport;
use terrace_core::Result;
use terrace_fs::Mending;

use crate::store::{Side, Store};

impl Store {
    /// Mends every unused file system of an owned store; what is returned is as it was
    /// before. Of one that came from a backup or a checkpoint metadata is older than the objects are:
    /// what has no object any more was deleted since.
    ///
    /// # Errors
    ///
    /// `Busy` where the store is attached; what tiers and catalog say.
    pub fn mend_files(&self, progress: &mut dyn FnMut(u64)) -> Result<Vec<FilesReport>> {
        let owned = match &self.side {
            Side::Owned(owned) => owned,
            Side::Attached(link) => return Err(link.busy("mend file systems")),
        };
        owned.check_writable("mend file systems")?;
        let mut entropy = [0; 32];
        terrace_transport::random_bytes(&mut entropy)?;
        owned.check_files(Some(Mending { entropy }), &[], progress)
    }
}
