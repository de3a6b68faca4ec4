// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making a store, or nothing at all.

use std::fs::{self, DirBuilder, TryLockError};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_backends::kv::open_kv;
use terrace_backends::object::{
    Bucket, File, FileSettings, Opendal, OpendalSettings, Rados, RadosSettings, S3, S3Settings,
};
use terrace_core::{
    Access, Backend, Clock, Error, ErrorKind, Kv, Result, SystemClock, TierBackend,
};
use terrace_stack::{Parts, Stack};

use crate::Store;
use crate::directory::{Directory, sync_directory};
use crate::far::{self, owner};
use crate::lock::Lock;
use crate::settings::{Settings, TierSettings};
use crate::{policy, tiers};

const OPERATION: &str = "make a store";

impl Store {
    /// Makes a store in `directory` with the text of its configuration: directories of the
    /// tiers, catalog, `terrace.toml`. [`crate::Settings::example`] is such a text.
    ///
    /// # Errors
    ///
    /// `Invalid` for settings that are wrong, `Unsupported` for the address of servers, `Exists` where a store is already or a tier's
    /// directory is not empty, `Denied`, `NoSpace`, `Io`. Nothing is left behind then.
    pub fn init(directory: &Path, settings_text: &str) -> Result<()> {
        let directory = match directory.to_str() {
            // An address is no name that anybody wants for a directory.
            Some(address) => Directory::at(address)?,
            None => Directory::of(directory)?,
        };
        init(&directory, settings_text)
    }

    /// Removes everything that the tiers of a store keep, wherever they are. The store cannot be used any more:
    /// its directory is to be deleted next. It can be called again where it failed.
    ///
    /// # Errors
    ///
    /// `Busy` where a process uses the store, `Denied` where another machine has taken it over, `NotFound`, `Exists`
    /// where a tier is not one of this store, `Corrupt` where its catalog does not say which store it is, and what
    /// directories and services say.
    pub fn clear_tiers(directory: &Path) -> Result<()> {
        const OPERATION: &str = "clear the tiers of a store";
        let directory = Directory::of(directory)?;
        let settings = Settings::read(&directory.settings())?.resolved(directory.path())?;
        let Some(_held) = Lock::try_take(&directory, Access::Write, None)? else {
            return Err(Lock::busy(&directory, OPERATION, "another process uses the store"));
        };
        let catalog = open_kv(&settings.catalog.engine, &settings.catalog.path)?;
        let store_id = Stack::id_of(&*catalog)?.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, OPERATION)
                .because("its catalog has no header")
                .with("directory", directory.path().display())
        })?;
        check_owner(&directory, &settings)?;
        for tier in &settings.tiers {
            clear_tier(tier, store_id).map_err(|error| error.with("tier", &tier.name))?;
        }
        Ok(())
    }
}

/// Refuses a store that another machine has taken over.
fn check_owner(directory: &Directory, settings: &Settings) -> Result<()> {
    let tier = far::pinned_tier_of(settings, directory.path())?;
    let (Some((_, bucket)), Some(own)) = (tier, owner::own(directory.path())?) else {
        return Ok(());
    };
    match owner::other_owner(&Bucket::open(bucket)?, &own) {
        // An earlier call has removed it.
        Err(error) if error.kind() == ErrorKind::Stale => Ok(()),
        other => other?.map_or(Ok(()), Err),
    }
}

/// Clears a tier of this store.
fn clear_tier(tier: &TierSettings, store_id: u128) -> Result<()> {
    let (is_cleared, is_empty) = if let Some(settings) = &tier.s3 {
        let tier = S3::open(settings, u64::MAX, false)?;
        (clear_own(&tier, store_id, S3::clear)?, tier.is_empty()?)
    } else if let Some(settings) = &tier.rados {
        let tier = Rados::open(settings, u64::MAX, false)?;
        (clear_own(&tier, store_id, Rados::clear)?, tier.is_empty()?)
    } else if let Some(settings) = &tier.opendal {
        let tier = Opendal::open(settings, u64::MAX, false)?;
        (clear_own(&tier, store_id, Opendal::clear)?, tier.is_empty()?)
    } else {
        let Some(path) = tier.path.as_ref().filter(|path| path.exists()) else { return Ok(()) };
        let settings = FileSettings { capacity_bytes: u64::MAX, read_only: false };
        let tier = File::open(path, settings)?;
        let is_cleared = clear_own(&tier, store_id, |_| {
            tiers::clear(path).map_err(|error| {
                Error::from_io("clear a directory", error).with("directory", path.display())
            })
        })?;
        (is_cleared, tiers::first_entry(path)?.is_none())
    };
    match is_cleared || is_empty {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Exists, "clear a tier")
            .because("it holds something, and no superblock of this store")),
    }
}

fn init(directory: &Directory, settings_text: &str) -> Result<()> {
    let settings = Settings::parse(settings_text, "terrace.toml")?.resolved(directory.path())?;
    // Dropped last: what was made is removed under the lock.
    let held;
    let mut made = Made::default();
    made.directory(directory.path())?;
    check_new(directory)?;
    let has_lock_file = directory.lock().exists();
    held = Lock::try_take(directory, Access::Write, None)?;
    if held.is_none() {
        return Err(Lock::busy(directory, OPERATION, "another process uses the directory"));
    }
    // The holder of the lock before may have made one, with the file of the lock.
    check_new(directory)?;
    if !has_lock_file {
        made.file(directory.lock());
    }
    for tier in &settings.tiers {
        if let Some(path) = &tier.path {
            made.empty_directory(path).map_err(|error| error.with("tier", &tier.name))?;
        }
        if let Some(bucket) = &tier.s3 {
            made.empty_bucket(bucket).map_err(|error| error.with("tier", &tier.name))?;
        }
        if let Some(pool) = &tier.rados {
            made.empty_pool(pool).map_err(|error| error.with("tier", &tier.name))?;
        }
        if let Some(service) = &tier.opendal {
            made.empty_service(service).map_err(|error| error.with("tier", &tier.name))?;
        }
    }
    if settings.keeps_catalog() {
        made.catalog_directory(&settings.catalog.path)?;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let tiers = tiers::open(&settings, Access::Write, false, &clock)?;
    if let Some(policy) = &settings.policy {
        // Only to see that it can be made.
        policy::tactics(policy, &tiers)?;
    }
    let parts = Parts::new(tiers, made.catalog(&settings)?);
    // Before the first superblock is written: a write that fails may have been carried out.
    let store_id = Stack::new_id(&*clock);
    made.store_id = Some(store_id);
    Stack::create_with_id(&parts, store_id)?;
    // The catalog is closed before anybody can open the store.
    drop(parts);
    // The settings come last: a directory that has them is a store.
    made.file(directory.settings());
    write_durably(&directory.settings(), settings_text)?;
    sync_directory(directory.path())?;
    made.keep();
    Ok(())
}

pub(crate) fn check_new(directory: &Directory) -> Result<()> {
    match directory.settings().symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(Error::from_io(OPERATION, error).with("directory", directory.path().display()))
        }
        Ok(_) => Err(Error::new(ErrorKind::Exists, OPERATION)
            .because("there is one already: the directory has a terrace.toml")
            .with("directory", directory.path().display())),
    }
}

pub(crate) fn write_durably(path: &Path, text: &str) -> Result<()> {
    fs::File::create_new(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(|error| Error::from_io(OPERATION, error).with("file", path.display()))
}

/// What was made so far; dropped before [`Made::keep`], all of it is removed again.
#[derive(Default)]
pub(crate) struct Made {
    things: Vec<Thing>,
    /// The id of the store, once superblocks may have it.
    store_id: Option<u128>,
}

enum Thing {
    File(PathBuf),
    /// Where it is empty: what another process has made in it meanwhile is not ours to remove.
    Directory(PathBuf),
    /// Everything in a directory that was empty before, and in which no other process makes anything as long as
    /// the file is locked.
    Contents(PathBuf, Option<fs::File>),
    /// What a tier keeps in a bucket in which there was nothing before. Nothing keeps another process from making
    /// a tier there meanwhile: only the superblock tells whose it is.
    Bucket(S3Settings),
    /// The same in a namespace of a pool.
    Pool(RadosSettings),
    /// The same in a directory of a service, which stays.
    Service(OpendalSettings),
}

impl Made {
    /// Makes a directory and those above it, as far as they are missing.
    pub(crate) fn directory(&mut self, path: &Path) -> Result<()> {
        let failed = |error| Error::from_io(OPERATION, error).with("directory", path.display());
        let mut missing: Vec<&Path> = Vec::new();
        for above in path.ancestors() {
            match above.metadata() {
                Ok(found) if found.is_dir() => break,
                Ok(_) => {
                    return Err(Error::invalid(OPERATION, "a file is where a directory must be")
                        .with("file", above.display()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing.push(above),
                // Something above it is a file; the next step finds which.
                Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
                Err(error) => return Err(failed(error)),
            }
        }
        for path in missing.into_iter().rev() {
            // What is stored is its owner's, whatever the umask says.
            match DirBuilder::new().mode(0o700).create(path) {
                Ok(()) => self.things.push(Thing::Directory(path.into())),
                // Another process was faster; then it is not ours to remove.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
            if let Some(parent) = path.parent() {
                sync_directory(parent)?;
            }
        }
        Ok(())
    }

    /// The same for the directory of a tier where there is none; what comes into it goes with it.
    pub(crate) fn new_directory(&mut self, path: &Path) -> Result<()> {
        match path.is_dir() {
            true => Ok(()),
            false => self.empty_directory(path),
        }
    }

    /// The same for one that must be as good as new, and that no other process may take until this is dropped.
    fn empty_directory(&mut self, path: &Path) -> Result<()> {
        self.directory(path)?;
        let claim = match claim(path) {
            Ok(claim) => claim,
            Err(error) => {
                self.leave(path);
                return Err(error);
            }
        };
        check_empty(path).inspect_err(|_| self.leave(path))?;
        // What may be another one's by now is not removed.
        if claim.is_some() {
            self.things.push(Thing::Contents(path.into(), claim));
        }
        Ok(())
    }

    /// Notes a bucket in which there must be nothing with the prefix of the tier.
    pub(crate) fn empty_bucket(&mut self, settings: &S3Settings) -> Result<()> {
        let bucket = S3::open(settings, u64::MAX, false)?;
        let found = bucket.superblock()?;
        if found.is_some() || !bucket.is_empty()? {
            let reason = match found {
                Some(_) => "the bucket holds a tier of a store with this prefix already",
                None => "the bucket holds objects with this prefix; choose another `prefix`",
            };
            return Err(Error::new(ErrorKind::Exists, OPERATION)
                .because(reason)
                .with("target", bucket.target()));
        }
        self.things.push(Thing::Bucket(settings.clone()));
        Ok(())
    }

    /// Notes a namespace of a pool in which there must be nothing.
    pub(crate) fn empty_pool(&mut self, settings: &RadosSettings) -> Result<()> {
        let pool = Rados::open(settings, u64::MAX, false)?;
        let found = pool.superblock()?;
        if found.is_some() || !pool.is_empty()? {
            let reason = match found {
                Some(_) => "the pool holds a tier of a store in this namespace already",
                None => "the pool holds objects in this namespace; choose another `namespace`",
            };
            return Err(Error::new(ErrorKind::Exists, OPERATION)
                .because(reason)
                .with("target", pool.target()));
        }
        self.things.push(Thing::Pool(settings.clone()));
        Ok(())
    }

    /// Notes a directory of a service in which there must be nothing.
    pub(crate) fn empty_service(&mut self, settings: &OpendalSettings) -> Result<()> {
        let service = Opendal::open(settings, u64::MAX, false)?;
        let found = service.superblock()?;
        if found.is_some() || !service.is_empty()? {
            let reason = match found {
                Some(_) => "the directory holds a tier of a store already",
                None => "the directory holds files; choose another `root`",
            };
            return Err(Error::new(ErrorKind::Exists, OPERATION)
                .because(reason)
                .with("target", service.target()));
        }
        self.things.push(Thing::Service(settings.clone()));
        Ok(())
    }

    /// The same for that of the catalog, of which the engine keeps out other processes.
    fn catalog_directory(&mut self, path: &Path) -> Result<()> {
        self.directory(path)?;
        check_empty(path).inspect_err(|_| self.leave(path))?;
        self.things.push(Thing::Contents(path.into(), None));
        Ok(())
    }

    /// Opens the catalog of a store that is made.
    fn catalog(&mut self, settings: &Settings) -> Result<Arc<dyn Kv>> {
        let path = &settings.catalog.path;
        let opened = open_kv(&settings.catalog.engine, path);
        let is_taken = match &opened {
            Ok(catalog) => Stack::exists(&**catalog)?,
            Err(error) => error.kind() == ErrorKind::Busy,
        };
        if is_taken {
            self.leave(path);
        }
        opened
    }

    /// Forgets a directory: it is another one's.
    fn leave(&mut self, path: &Path) {
        self.things.retain(|thing| match thing {
            Thing::File(_) | Thing::Bucket(_) | Thing::Pool(_) | Thing::Service(_) => true,
            Thing::Directory(made) | Thing::Contents(made, _) => made != path,
        });
    }

    /// Notes a file.
    pub(crate) fn file(&mut self, path: PathBuf) {
        self.things.push(Thing::File(path));
    }

    pub(crate) fn keep(mut self) {
        self.things.clear();
    }
}

impl Drop for Made {
    /// Best effort: the error that led here is the one to tell.
    fn drop(&mut self) {
        for thing in self.things.drain(..).rev() {
            match (thing, self.store_id) {
                (Thing::File(path), _) => drop(fs::remove_file(path)),
                (Thing::Directory(path), _) => drop(fs::remove_dir(path)),
                (Thing::Contents(path, _claim), _) => drop(tiers::clear(&path)),
                (Thing::Bucket(settings), Some(id)) => {
                    let tier = S3::open(&settings, u64::MAX, false);
                    drop(tier.and_then(|tier| clear_own(&tier, id, S3::clear)));
                }
                (Thing::Pool(settings), Some(id)) => {
                    let tier = Rados::open(&settings, u64::MAX, false);
                    drop(tier.and_then(|tier| clear_own(&tier, id, Rados::clear)));
                }
                (Thing::Service(settings), Some(id)) => {
                    let tier = Opendal::open(&settings, u64::MAX, false);
                    drop(tier.and_then(|tier| clear_own(&tier, id, Opendal::clear)));
                }
                (Thing::Bucket(_) | Thing::Pool(_) | Thing::Service(_), None) => {}
            }
        }
    }
}

/// Clears what a tier keeps, where its superblock is that of the store; whether it is. Without it nothing of this
/// process is there: the superblock is the first object that a tier has, and a conditional write made it.
fn clear_own<T: TierBackend>(
    tier: &T,
    store_id: u128,
    clear: impl FnOnce(&T) -> Result<()>,
) -> Result<bool> {
    match tier.superblock()? {
        Some(found) if found.store_id == store_id => clear(tier).map(|()| true),
        _ => Ok(false),
    }
}

/// Refuses a directory that is not as good as new.
fn check_empty(path: &Path) -> Result<()> {
    let Some(entry) = tiers::first_entry(path)? else { return Ok(()) };
    let reason = match tiers::is_tier(path) {
        true => "a directory for it is a tier of a store already",
        false => "a directory for it is not empty; an empty or a new one is expected",
    };
    Err(Error::new(ErrorKind::Exists, OPERATION)
        .because(reason)
        .with("directory", path.display())
        .with("file", entry))
}

/// Takes a directory until the return value is dropped; `None` where its file system has no locks.
fn claim(path: &Path) -> Result<Option<fs::File>> {
    let directory = fs::File::open(path)
        .map_err(|error| Error::from_io(OPERATION, error).with("directory", path.display()))?;
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(Error::new(ErrorKind::Busy, OPERATION)
            .because("another process makes a tier in a directory for it")
            .with("directory", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_one_makes_meanwhile_is_left_alone() {
        let home = tempfile::tempdir().expect("a temporary directory");
        for is_there in [true, false] {
            let tier = home.path().join(format!("tier-{is_there}"));
            if is_there {
                fs::create_dir(&tier).expect("made");
            }
            let (mut one, mut other) = (Made::default(), Made::default());
            one.empty_directory(&tier).expect("nobody has it");
            let taken = other.empty_directory(&tier);
            fs::write(tier.join("superblock"), b"").expect("written");
            one.keep();
            drop(other);
            assert!(tier.join("superblock").exists());
            assert_eq!(taken.expect_err("another one has it").kind(), ErrorKind::Busy);
        }
    }
}
