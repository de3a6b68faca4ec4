// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a store that is made begins with: its directories, and the places of its tiers. All of it, or nothing.

use std::fs::{self, DirBuilder, TryLockError};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_backends::kv::open_kv;
use terrace_backends::object::{Opendal, OpendalSettings, Rados, RadosSettings, S3, S3Settings};
use terrace_core::{Backend, Error, ErrorKind, Kv, Result, TierBackend};
use terrace_stack::Stack;

use crate::directory::{Directory, sync_directory};
use crate::file::Settings;
use crate::tiers;

const OPERATION: &str = "make a store";

/// Refuses a directory that has a store already. Errors: `Exists`, `Denied`, `Io`.
pub fn check_new(directory: &Directory) -> Result<()> {
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

/// Writes a new file, durably. Errors: `Exists`, `NoSpace`, `Io`.
pub fn write_durably(path: &Path, text: &str) -> Result<()> {
    fs::File::create_new(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(|error| Error::from_io(OPERATION, error).with("file", path.display()))
}

/// What was made so far; dropped before [`Made::keep`], all of it is removed again.
#[derive(Default)]
pub struct Made {
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
    pub fn directory(&mut self, path: &Path) -> Result<()> {
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
    pub fn new_directory(&mut self, path: &Path) -> Result<()> {
        match path.is_dir() {
            true => Ok(()),
            false => self.empty_directory(path),
        }
    }

    /// The same for one that must be as good as new, and that no other process may take until this is dropped.
    pub fn empty_directory(&mut self, path: &Path) -> Result<()> {
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
    pub fn empty_bucket(&mut self, settings: &S3Settings) -> Result<()> {
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
    pub fn empty_pool(&mut self, settings: &RadosSettings) -> Result<()> {
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
    pub fn empty_service(&mut self, settings: &OpendalSettings) -> Result<()> {
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
    pub fn catalog_directory(&mut self, path: &Path) -> Result<()> {
        self.directory(path)?;
        check_empty(path).inspect_err(|_| self.leave(path))?;
        self.things.push(Thing::Contents(path.into(), None));
        Ok(())
    }

    /// Opens the catalog of a store that is made.
    pub fn catalog(&mut self, settings: &Settings) -> Result<Arc<dyn Kv>> {
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

    /// Notes the id of the store, before a superblock has it.
    pub fn set_store_id(&mut self, store_id: u128) {
        self.store_id = Some(store_id);
    }

    /// Forgets a directory: it is another one's.
    fn leave(&mut self, path: &Path) {
        self.things.retain(|thing| match thing {
            Thing::File(_) | Thing::Bucket(_) | Thing::Pool(_) | Thing::Service(_) => true,
            Thing::Directory(made) | Thing::Contents(made, _) => made != path,
        });
    }

    /// Notes a file.
    pub fn file(&mut self, path: PathBuf) {
        self.things.push(Thing::File(path));
    }

    /// Keeps all of it.
    pub fn keep(mut self) {
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
pub fn clear_own<T: TierBackend>(
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
