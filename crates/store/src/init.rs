// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making a store, or nothing at all; and clearing its tiers.

use std::path::Path;
use std::sync::Arc;

use terrace_backends::kv::open_kv;
use terrace_backends::object::{File, FileSettings, Opendal, Rados, S3};
use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock};
use terrace_recovery::far;
use terrace_settings::{
    Directory, Lock, Made, Settings, TierSettings, check_new, clear_own, policy, sync_directory,
    tiers, write_durably,
};
use terrace_stack::{Parts, Stack};

use crate::Store;

const OPERATION: &str = "make a store";

impl Store {
    /// Makes a store in `directory` with the text of its configuration: directories of the
    /// tiers, catalog, `terrace.toml`. [`Settings::example`] is such a text.
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
        far::check_owner(&settings, directory.path())?;
        for tier in &settings.tiers {
            clear_tier(tier, store_id).map_err(|error| error.with("tier", &tier.name))?;
        }
        Ok(())
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
    made.set_store_id(store_id);
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
