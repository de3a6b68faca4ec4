// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store opened on another machine, from the bucket of a tier alone.

use std::path::Path;

use terrace_core::{Error, Result};
use terrace_recovery::TakenOver;
use terrace_settings::Directory;

use crate::store::{OpenOptions, Side, Store};

impl Store {
    /// Makes `directory` the owner of a store whose catalog is in a bucket, with everything that was
    /// acknowledged at the level `shared`. The owner before is fenced. `settings_text` is the configuration:
    /// the tier in the bucket, and new tiers of this machine before it; tiers of the machine before are
    /// added as missing. Nothing is changed, and the owner before stays the owner, until the configuration, the
    /// keys and all its tiers were checked. A takeover that fails may be tried again with the same directory.
    ///
    /// # Errors
    ///
    /// `NotFound` where no catalog is there, `Busy` where another takeover came first, `Exists` where a store
    /// is in the directory, `Invalid` for a new tier with the name of one before, `Denied` for a tier of another
    /// store, or with settings of compression and encryption that are not its own, `Corrupt`, and what the service
    /// says.
    pub fn take_over(
        directory: &Path,
        settings_text: &str,
        progress: &mut dyn FnMut(u64),
    ) -> Result<TakenOver> {
        terrace_recovery::take_over(directory, settings_text, &root_anew, progress)
    }
}

/// Opens the store once, so that its own checkpoint is in the bucket.
fn root_anew(directory: &Directory) -> Result<()> {
    let address = directory.path().to_str().ok_or_else(|| {
        Error::invalid("take a store over", "the path of the directory is not UTF-8")
    })?;
    let options = OpenOptions { attach: false, serve: false, ..OpenOptions::default() };
    let store = Store::open_with(address, options)?;
    if let Side::Owned(owner) = &store.side {
        owner.root_shared()?;
    }
    store.close()
}
