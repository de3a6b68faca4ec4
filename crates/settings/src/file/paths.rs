// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories of tiers, catalog and trace: side by side, and made relative to the store's.
//!
//! Compared by their names alone: nothing has to exist yet. Superblocks find what links hide.

use std::path::{Component, Path, PathBuf};

use terrace_core::{Error, Result};

use super::{CheckpointPlace, Settings};

/// What the store itself keeps in its directory.
const OWN_FILES: &[&str] = &["terrace.toml", "control.sock", "lock"];

/// Whose path it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Own,
    Catalog,
    Checkpoint,
    Tier(usize),
    Trace,
}

/// A path with its place and what people call it.
pub(super) struct Claim {
    place: Place,
    label: String,
    path: PathBuf,
}

pub(super) fn resolved(settings: &Settings, dir: &Path) -> Result<Settings> {
    let mut settings = settings.clone();
    settings.catalog.path = dir.join(&settings.catalog.path);
    if let CheckpointPlace::File(file) = &mut settings.catalog.checkpoint.place {
        *file = dir.join(&*file);
    }
    for path in settings.tiers.iter_mut().filter_map(|tier| tier.path.as_mut()) {
        *path = dir.join(&*path);
    }
    for bucket in settings.tiers.iter_mut().filter_map(|tier| tier.s3.as_mut()) {
        bucket.credentials = bucket.credentials.as_ref().map(|file| dir.join(file));
    }
    for pool in settings.tiers.iter_mut().filter_map(|tier| tier.rados.as_mut()) {
        for file in [&mut pool.configuration, &mut pool.keyring].into_iter().flatten() {
            *file = dir.join(&*file);
        }
    }
    for service in settings.tiers.iter_mut().filter_map(|tier| tier.opendal.as_mut()) {
        service.credentials = service.credentials.as_ref().map(|file| dir.join(file));
    }
    for key in settings.tiers.iter_mut().filter_map(|tier| tier.encrypt.as_mut()) {
        *key = dir.join(&*key);
    }
    if let Some(trace) = &mut settings.trace {
        trace.path = dir.join(&trace.path);
    }
    if let Some(policy) = &mut settings.policy {
        policy.source = policy.source.clone().below(dir);
        policy.files.iter_mut().for_each(|(_, path)| *path = dir.join(&*path));
    }
    let mut claims = places(&settings);
    for claim in &mut claims {
        let path = std::path::absolute(dir.join(&claim.path)).map_err(|error| {
            Error::from_io("find a path of the configuration", error)
                .with("path", claim.path.display())
        })?;
        claim.path = path;
    }
    match collision(&claims) {
        None => Ok(settings),
        Some((place, reason)) => {
            let label = claims.iter().find(|claim| claim.place == place);
            let label = label.map_or("", |claim| claim.label.as_str());
            let reason = format!("{label}: {reason}");
            Err(Error::invalid("use the configuration", reason).with("store", dir.display()))
        }
    }
}

/// All paths below which something is written.
pub(super) fn places(settings: &Settings) -> Vec<Claim> {
    let own = OWN_FILES.iter().map(|name| Claim {
        place: Place::Own,
        label: format!("the store's own {name}"),
        path: name.into(),
    });
    let catalog = settings.keeps_catalog().then(|| Claim {
        place: Place::Catalog,
        label: "the catalog".into(),
        path: settings.catalog.path.clone(),
    });
    let checkpoint = settings.catalog.checkpoint.place.file().map(|file| Claim {
        place: Place::Checkpoint,
        label: "the checkpoint".into(),
        path: file.clone(),
    });
    let tiers = settings.tiers.iter().enumerate().filter_map(|(index, tier)| {
        let label = format!("tier \"{}\"", tier.name);
        tier.path.as_ref().map(|path| Claim {
            place: Place::Tier(index),
            label,
            path: path.clone(),
        })
    });
    let trace = settings.trace.iter().map(|trace| Claim {
        place: Place::Trace,
        label: "the trace".into(),
        path: trace.path.clone(),
    });
    own.chain(catalog).chain(tiers).chain(trace).chain(checkpoint).collect()
}

/// The first place whose path is that of an earlier one, inside it or around it, and why.
pub(super) fn collision(claims: &[Claim]) -> Option<(Place, String)> {
    let paths: Vec<_> = claims.iter().map(|claim| normal(&claim.path)).collect();
    for (later, claim) in claims.iter().enumerate() {
        for earlier in 0..later {
            let how = match (&paths[later], &paths[earlier]) {
                (this, other) if this == other => "is also that of",
                (this, other) if is_inside(this, other) => "is inside that of",
                (this, other) if is_inside(other, this) => "is around that of",
                _ => continue,
            };
            let (path, other) = (claim.path.display(), &claims[earlier]);
            let reason = format!(
                "its path {path} {how} {} ({}); a directory of its own is expected",
                other.label,
                other.path.display()
            );
            return Some((claim.place, reason));
        }
    }
    None
}

/// Without `.`, and with `..` only at the beginning.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            // Above the root is the root.
            Component::ParentDir if normal.has_root() => {}
            other => normal.push(other),
        }
    }
    normal
}

/// Both [`normal`]. An absolute path is not comparable with a relative one.
fn is_inside(inner: &Path, outer: &Path) -> bool {
    let ups = |path: &Path| path.components().take_while(|c| *c == Component::ParentDir).count();
    if inner.has_root() == outer.has_root() && ups(outer) == outer.components().count() {
        return ups(inner) <= ups(outer) && inner != outer;
    }
    inner != outer && inner.starts_with(outer)
}
