// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making a store, or nothing at all.

use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_backends::kv::open_kv;
use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock};
use terrace_stack::{Parts, Stack};

use crate::directory::{Directory, sync_directory};
use crate::lock::Lock;
use crate::settings::Settings;
use crate::{policy, tiers};

const OPERATION: &str = "make a store";

pub(crate) fn init(directory: &Directory, settings_text: &str) -> Result<()> {
    let settings = Settings::parse(settings_text, "terrace.toml")?.resolved(directory.path())?;
    // Dropped last: what was made is removed under the lock.
    let held;
    let mut made = Made::default();
    made.directory(directory.path())?;
    check_new(directory)?;
    let has_lock_file = directory.lock().exists();
    held = Lock::try_take(directory, Access::Write)?;
    if held.is_none() {
        return Err(Error::new(ErrorKind::Busy, OPERATION)
            .because("another process uses the directory")
            .with("directory", directory.path().display()));
    }
    if !has_lock_file {
        made.file(directory.lock());
    }
    // Whoever had the lock before may have made one.
    check_new(directory)?;
    for tier in &settings.tiers {
        if let Some(path) = &tier.path {
            made.empty_directory(path).map_err(|error| error.with("tier", &tier.name))?;
        }
    }
    if settings.keeps_catalog() {
        made.empty_directory(&settings.catalog.path)?;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let tiers = tiers::open(&settings, Access::Write, false, &clock)?;
    if let Some(policy) = &settings.policy {
        // Only to see that it can be made.
        policy::tactics(policy, &tiers)?;
    }
    let parts = Parts::new(tiers, open_kv(&settings.catalog.engine, &settings.catalog.path)?);
    Stack::create(&parts)?;
    // The catalog is closed before anybody can open the store.
    drop(parts);
    // The settings come last: a directory that has them is a store.
    made.file(directory.settings());
    write_durably(&directory.settings(), settings_text)?;
    sync_directory(directory.path())?;
    made.keep();
    Ok(())
}

fn check_new(directory: &Directory) -> Result<()> {
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

fn write_durably(path: &Path, text: &str) -> Result<()> {
    File::create_new(path)
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
}

enum Thing {
    File(PathBuf),
    /// With everything in it.
    Directory(PathBuf),
    /// Everything in a directory that was empty before.
    Contents(PathBuf),
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
                // Somebody else was faster; then it is not ours to remove.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
            if let Some(parent) = path.parent() {
                sync_directory(parent)?;
            }
        }
        Ok(())
    }

    /// The same for one that must be as good as new.
    fn empty_directory(&mut self, path: &Path) -> Result<()> {
        if path.is_dir() {
            if let Some(entry) = tiers::first_entry(path)? {
                let reason = match tiers::is_tier(path) {
                    true => "a directory for it is a tier of a store already",
                    false => "a directory for it is not empty; an empty or a new one is expected",
                };
                return Err(Error::new(ErrorKind::Exists, OPERATION)
                    .because(reason)
                    .with("directory", path.display())
                    .with("file", entry));
            }
            self.things.push(Thing::Contents(path.into()));
        }
        self.directory(path)
    }

    /// Notes a file.
    fn file(&mut self, path: PathBuf) {
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
            let _ = match thing {
                Thing::File(path) => fs::remove_file(path),
                Thing::Directory(path) => fs::remove_dir_all(path),
                Thing::Contents(path) => tiers::clear(&path),
            };
        }
    }
}
