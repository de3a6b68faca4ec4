// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The local file systems that a tree is copied to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::syncfs;
use terrace_console::failure::{Result, from_local};

use super::about;

/// A file on each by the number of its device, with its path. The kernel reports what could not be written to
/// descriptors that were open before: each was opened before its file system was written to.
#[derive(Default)]
pub(super) struct Disks(HashMap<u64, (PathBuf, File)>);

impl Disks {
    /// Takes note of the file system of a file that was just opened.
    pub(super) fn note(&mut self, path: &Path, file: &File) -> std::io::Result<()> {
        let device = file.metadata()?.dev();
        if let Entry::Vacant(place) = self.0.entry(device) {
            place.insert((path.into(), file.try_clone()?));
        }
        Ok(())
    }

    /// Makes everything durable that was written there; the first failure, once all were asked.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = self.0.values().map(|(path, file)| {
            let failed = |errno: rustix::io::Errno| from_local("sync files", errno.into());
            syncfs(file).map_err(|errno| about(failed(errno), path))
        });
        Ok(synced.fold(Ok(()), std::result::Result::and)?)
    }
}
