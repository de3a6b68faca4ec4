// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a store may be mounted.

use std::path::Path;

use terrace_core::{Error, Result};
use terrace_settings::Places;

/// Refuses to hide the store, its catalog or a tier: each look for a file of theirs would come to the
/// mount, which would wait for itself.
pub(super) fn check(store: &str, mountpoint: &Path) -> Result<()> {
    // Opening the directory reports what is wrong with it.
    let Ok(mountpoint) = mountpoint.canonicalize() else { return Ok(()) };
    match Places::of(store).iter().find(|place| place.path.starts_with(&mountpoint)) {
        None => Ok(()),
        Some(place) => {
            let reason =
                format!("the mount would hide {}, and could not use it any more", place.what);
            let error = Error::invalid("mount", reason).with("directory", mountpoint.display());
            Err(error.with("hidden", place.path.display()))
        }
    }
}
