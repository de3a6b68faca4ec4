// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the settings of tiers to tiers: what their directories must be like.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Access as Permission;
use terrace_backends::object::{
    File, FileSettings, FrameKey, Framed, Opendal, OpendalSettings, Packing, Rados, RadosSettings,
    Rates, S3, S3Settings, Throttle, path_below,
};
use terrace_backends::{Place, open_backend};
use terrace_core::{Access, Backend, Clock, Error, ErrorKind, Key, Result, TierBackend};
use terrace_stack::{Offline, Tier};
use terrace_transport::read_secret_file;

use crate::file::{Compress, Settings, ThrottleSettings, TierSettings};

/// What a new file system has in its root.
const LOST_AND_FOUND: &str = "lost+found";

/// Opens all tiers. One that cannot be used is an error, or offline where tiers `may_miss`.
pub fn open(
    settings: &Settings,
    access: Access,
    may_miss: bool,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Tier>> {
    let mut homes = HashMap::new();
    let mut tiers = Vec::new();
    for tier in &settings.tiers {
        let opened = open_one(tier, access, clock).and_then(|backend| {
            check_distinct(tier, &mut homes)?;
            Ok(backend)
        });
        let (backend, offline) = match opened {
            Ok(backend) => (backend, None),
            Err(error) if may_miss && is_missing(&error, access) => {
                let reason = error.chain();
                let offline = Offline::new(target(tier), reason.clone());
                let offline = offline.with_object_bytes_max(object_bytes_max(tier));
                (Arc::new(offline) as _, Some(reason))
            }
            Err(error) => return Err(error.with("tier", &tier.name)),
        };
        tiers.push(tier_of(tier, backend, offline));
    }
    Ok(tiers)
}

/// Whether a tier that cannot be opened is one that may be offline. Where something is changed, a
/// directory that holds something else is a mistake, and not a missing disk.
fn is_missing(error: &Error, access: Access) -> bool {
    access == Access::Read || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Io)
}

/// Opens a tier that is to be added to a store with these settings, which have it already.
pub fn open_further(
    tier: &TierSettings,
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<Tier> {
    let mut homes = HashMap::new();
    // One that is missing cannot be the same.
    for other in settings.tiers.iter().filter(|other| other.name != tier.name) {
        let _ = check_distinct(other, &mut homes);
    }
    let backend = open_one(tier, Access::Write, clock)
        .and_then(|backend| check_distinct(tier, &mut homes).map(|()| backend))
        .map_err(|error| error.with("tier", &tier.name))?;
    Ok(tier_of(tier, backend, None))
}

fn tier_of(tier: &TierSettings, backend: Arc<dyn Backend>, offline: Option<String>) -> Tier {
    Tier {
        name: tier.name.clone(),
        backend,
        figures: tier.figures,
        watermarks: tier.watermarks,
        keep_deleted: tier.keep_deleted,
        offline,
        path_of: tier.path.is_some().then_some(path_below as fn(&Key) -> String),
    }
}

fn open_one(
    tier: &TierSettings,
    access: Access,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Backend>> {
    if let Some(bucket) = &tier.s3 {
        let backend = open_bucket(bucket, tier.figures.capacity_bytes, access)?;
        return framed(tier, throttled(tier, backend, clock));
    }
    if let Some(pool) = &tier.rados {
        let backend = open_pool(pool, tier.figures.capacity_bytes, access)?;
        return framed(tier, throttled(tier, backend, clock));
    }
    if let Some(service) = &tier.opendal {
        let backend = open_service(service, tier.figures.capacity_bytes, access)?;
        return framed(tier, throttled(tier, backend, clock));
    }
    let place = Place {
        path: tier.path.as_deref(),
        capacity_bytes: tier.figures.capacity_bytes,
        read_only: access == Access::Read,
    };
    let backend = open_backend(&tier.backend, &place)?;
    if let Some(path) = &tier.path {
        if access == Access::Write {
            check_writable(path)?;
        }
        check_own(&*backend, path)?;
    }
    framed(tier, throttled(tier, backend, clock))
}

/// Wraps the backend of a tier whose objects are compressed or encrypted.
fn framed(tier: &TierSettings, backend: Arc<dyn Backend>) -> Result<Arc<dyn Backend>> {
    if !tier.is_framed() {
        return Ok(backend);
    }
    let level = match tier.compress {
        Some(Compress::Zstd(level)) => Some(level),
        Some(Compress::Off) | None => None,
    };
    let read = |path: &PathBuf| {
        read_secret_file(path)
            .and_then(|text| FrameKey::from_text(&text))
            .map_err(|error| match error.kind() {
                // A tier without its key is no disk that is missing.
                ErrorKind::NotFound | ErrorKind::Io => Error::new(ErrorKind::Denied, "open a tier")
                    .because("the file with its key is missing or cannot be read")
                    .caused_by(error),
                _ => error,
            })
            .map_err(|error| error.with("key_file", path.display()))
    };
    let key = tier.encrypt.as_ref().map(read).transpose()?;
    Ok(Arc::new(Framed::open(backend, Packing { level, key })?))
}

fn throttled(
    tier: &TierSettings,
    backend: Arc<dyn Backend>,
    clock: &Arc<dyn Clock>,
) -> Arc<dyn Backend> {
    match &tier.throttle {
        Some(throttle) => Arc::new(Throttle::new(backend, rates(throttle), Arc::clone(clock))),
        None => backend,
    }
}

/// Opens a bucket: one with a superblock, or with nothing below the prefix.
fn open_bucket(
    bucket: &S3Settings,
    capacity_bytes: u64,
    access: Access,
) -> Result<Arc<dyn Backend>> {
    let backend = S3::open(bucket, capacity_bytes, access == Access::Read)?;
    if backend.superblock()?.is_none() && !backend.is_empty()? {
        return Err(Error::new(ErrorKind::Denied, "open a tier")
            .because(
                "the bucket holds objects with this prefix, but not those of a tier: choose another \
                 `prefix`",
            )
            .with("target", backend.target()));
    }
    Ok(Arc::new(backend))
}

/// Opens a namespace of a pool: one with a superblock, or without objects.
fn open_pool(
    pool: &RadosSettings,
    capacity_bytes: u64,
    access: Access,
) -> Result<Arc<dyn Backend>> {
    let backend = Rados::open(pool, capacity_bytes, access == Access::Read)?;
    if backend.superblock()?.is_none() && !backend.is_empty()? {
        return Err(Error::new(ErrorKind::Denied, "open a tier")
            .because(
                "the pool holds objects in this namespace, but not those of a tier: choose another \
                 `namespace`",
            )
            .with("target", backend.target()));
    }
    Ok(Arc::new(backend))
}

/// Opens a directory of a service: one with a superblock, or without files.
fn open_service(
    service: &OpendalSettings,
    capacity_bytes: u64,
    access: Access,
) -> Result<Arc<dyn Backend>> {
    let backend = Opendal::open(service, capacity_bytes, access == Access::Read)?;
    if backend.superblock()?.is_none() && !backend.is_empty()? {
        return Err(Error::new(ErrorKind::Denied, "open a tier")
            .because("the directory holds files, but not those of a tier: choose another `root`")
            .with("target", backend.target()));
    }
    Ok(Arc::new(backend))
}

fn rates(throttle: &ThrottleSettings) -> Rates {
    Rates {
        latency: throttle.latency,
        read_bytes_per_s: throttle.read_bandwidth,
        write_bytes_per_s: throttle.write_bandwidth,
        parallelism: throttle.parallelism,
    }
}

/// The largest object of a tier that cannot be asked for it; `u64::MAX` where no object is cut because of it.
fn object_bytes_max(tier: &TierSettings) -> u64 {
    let below_bytes = match (&tier.rados, &tier.opendal) {
        (Some(_), _) => Rados::OBJECT_BYTES_MAX,
        (None, Some(_)) => Opendal::OBJECT_BYTES_MAX,
        (None, None) => u64::MAX,
    };
    match tier.is_framed() {
        true => Framed::object_bytes_max(below_bytes, tier.encrypt.is_some()),
        false => below_bytes,
    }
}

fn target(tier: &TierSettings) -> String {
    if let Some(bucket) = &tier.s3 {
        return bucket.target();
    }
    if let Some(pool) = &tier.rados {
        return pool.target();
    }
    if let Some(service) = &tier.opendal {
        return service.target();
    }
    let path = tier.path.as_ref().map(|path| path.display().to_string());
    format!("{}:{}", tier.backend, path.unwrap_or_default())
}

/// Finds a tier that was mounted read-only before anything is changed elsewhere.
fn check_writable(path: &Path) -> Result<()> {
    rustix::fs::access(path, Permission::WRITE_OK | Permission::EXEC_OK).map_err(|errno| {
        Error::from_io("open a tier", errno.into())
            .because(
                "its directory cannot be written; mount it for writing, or open the store \
                      for reading only",
            )
            .with("directory", path.display())
    })
}

/// Refuses a directory with files and no superblock: it is used for something else, or the tier's disk is
/// not mounted there. The stack compares superblocks that are there.
fn check_own(backend: &dyn Backend, path: &Path) -> Result<()> {
    let is_known = match backend.superblock() {
        Ok(superblock) => superblock.is_some(),
        // The stack says why such a file system will not do.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        Err(error) => return Err(error),
    };
    match first_entry(path)? {
        Some(entry) if !is_known => Err(Error::new(ErrorKind::Denied, "open a tier")
            .because(
                "its directory holds files, but not those of a tier: it is not the tier's, or it \
                 lost its superblock",
            )
            .with("directory", path.display())
            .with("file", entry)),
        _ => Ok(()),
    }
}

/// Compares directories by what they are, whatever links lead there.
fn check_distinct(tier: &TierSettings, homes: &mut HashMap<PathBuf, String>) -> Result<()> {
    if let Some(bucket) = &tier.s3 {
        let home = format!("{}:{}", bucket.endpoint.as_deref().unwrap_or("s3:"), bucket.target());
        return match homes.insert(home.into(), tier.name.clone()) {
            Some(other) => {
                Err(Error::invalid("open a tier", "its bucket and prefix are also those of a tier")
                    .with("other", other)
                    .with("target", bucket.target()))
            }
            None => Ok(()),
        };
    }
    if let Some(pool) = &tier.rados {
        let configuration = pool.configuration.as_deref().unwrap_or(Path::new("ceph.conf"));
        let home = format!("{}:{}", configuration.display(), pool.target());
        return match homes.insert(home.into(), tier.name.clone()) {
            Some(other) => Err(Error::invalid(
                "open a tier",
                "its pool and namespace are also those of a tier",
            )
            .with("other", other)
            .with("target", pool.target())),
            None => Ok(()),
        };
    }
    if let Some(service) = &tier.opendal {
        return match homes.insert(service.target().into(), tier.name.clone()) {
            Some(other) => {
                Err(Error::invalid("open a tier", "its directory is also that of a tier")
                    .with("other", other)
                    .with("target", service.target()))
            }
            None => Ok(()),
        };
    }
    let Some(path) = &tier.path else { return Ok(()) };
    let home = path
        .canonicalize()
        .map_err(|error| Error::from_io("open a tier", error).with("directory", path.display()))?;
    match homes.insert(home, tier.name.clone()) {
        Some(other) => Err(Error::invalid("open a tier", "its directory is also that of a tier")
            .with("other", other)
            .with("directory", path.display())),
        None => Ok(()),
    }
}

/// The name of something in a directory; `None` where it is as good as new.
pub fn first_entry(path: &Path) -> Result<Option<String>> {
    let failed =
        |error| Error::from_io("look into a directory", error).with("directory", path.display());
    for entry in path.read_dir().map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name != LOST_AND_FOUND {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Whether a directory is a tier of some store.
pub fn is_tier(path: &Path) -> bool {
    let settings = FileSettings { capacity_bytes: u64::MAX, read_only: true };
    File::open(path, settings).and_then(|tier| tier.superblock()).is_ok_and(|it| it.is_some())
}

/// Removes what is in a directory that was as good as new, what says whose it is at the end.
pub fn clear(path: &Path) -> std::io::Result<()> {
    let mut entries = path.read_dir()?.collect::<std::io::Result<Vec<_>>>()?;
    // Directories have the objects.
    entries.sort_by_key(|entry| !entry.file_type().is_ok_and(|it| it.is_dir()));
    for entry in entries {
        if entry.file_name() == LOST_AND_FOUND {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_a_missing_tier_follows_from_its_settings() {
        let text = "[[tier]]\nname = \"fast\"\npath = \"fast\"\n\
                    [[tier]]\nname = \"cold\"\nbackend = \"rados\"\npool = \"p\"\n";
        let on_service = "[[tier]]\nname = \"dav\"\nbackend = \"opendal\"\nservice = \"webdav\"\n\
                          endpoint = \"https://h\"\nroot = \"x\"\n";
        let bounds = |further: &str| -> Vec<u64> {
            let text = format!("{text}{further}");
            let settings = Settings::parse(&text, "terrace.toml").expect("legal");
            settings.tiers.iter().map(object_bytes_max).collect()
        };
        assert_eq!(bounds(""), [u64::MAX, Rados::OBJECT_BYTES_MAX]);
        let framed_bytes = Framed::object_bytes_max(Rados::OBJECT_BYTES_MAX, true);
        assert!(framed_bytes < Rados::OBJECT_BYTES_MAX);
        assert_eq!(bounds("encrypt = \"key\"\n"), [u64::MAX, framed_bytes]);
        assert_eq!(bounds(on_service)[2], Opendal::OBJECT_BYTES_MAX);
    }
}
