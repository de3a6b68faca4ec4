// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a store may be mounted.

use std::path::{Path, PathBuf};

use terrace_core::{Error, Result};
use terrace_store::Settings;

/// Refuses to hide the store, its catalog or a tier: each look for a file of theirs would come to the
/// mount, which would wait for itself.
pub(super) fn check(store: &Path, mountpoint: &Path) -> Result<()> {
    // What is wrong with the store or the directory, who opens them says.
    let (Ok(settings), Ok(mountpoint)) =
        (Settings::read(&store.join("terrace.toml")), mountpoint.canonicalize())
    else {
        return Ok(());
    };
    match places(store, &settings).find(|(_, path)| path.starts_with(&mountpoint)) {
        None => Ok(()),
        Some((what, path)) => {
            let reason = format!("the mount would hide {what}, and could not use it any more");
            let error = Error::invalid("mount", reason).with("directory", mountpoint.display());
            Err(error.with("hidden", path.display()))
        }
    }
}

/// What belongs to a store, and where that is.
fn places(store: &Path, settings: &Settings) -> impl Iterator<Item = (String, PathBuf)> {
    let one = |what: String, path: &Path| Some((what, store.join(path).canonicalize().ok()?));
    let tiers = settings
        .tiers
        .iter()
        .filter_map(move |tier| one(format!("tier {}", tier.name), tier.path.as_deref()?));
    let own =
        [one("the store".into(), Path::new("")), one("its catalog".into(), &settings.catalog.path)];
    own.into_iter().flatten().chain(tiers)
}
