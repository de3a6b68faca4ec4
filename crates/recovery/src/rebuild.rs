// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A new catalog in the place of the old one, and backups of it.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use terrace_backends::kv::open_kv;
use terrace_core::{Access, Clock, Error, ErrorKind, Kv, Result, SystemClock};
use terrace_settings::{
    Directory, Lock, Patience, Settings, attach, check_there, stack_settings, sync_directory, tiers,
};
use terrace_stack::report::RebuildReport;
use terrace_stack::{Parts, RebuildOptions, Saved, Stack, read_backup};

use crate::checkpoint::{self, CheckpointUsed};
use crate::far::{self, OwnCatalog};

const OPERATION: &str = "replace the catalog";

/// What a catalog is made anew from, beside the tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// The newest checkpoint that is in the place of the configuration or on a tier, and the log
    /// behind it; otherwise nothing else.
    Checkpoint,
    /// The present catalog, which is believed where it can be read.
    PresentCatalog,
    /// A file that `terrace backup` wrote.
    Backup(&'a Path),
}

/// A catalog that was made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// What is in it.
    pub report: RebuildReport,
    /// Where the old one is now, if there was one; it may be removed.
    pub old_catalog: Option<PathBuf>,
    /// The checkpoint whose names and pairs are in it.
    pub checkpoint: Option<CheckpointUsed>,
}

/// Makes the catalog of a store anew; the store must not be open. The old one is put aside and
/// stays as it was. `progress` gets the files done and their total.
///
/// # Errors
///
/// `Busy` where a process has the store open, `Denied` for tiers or a backup of another store,
/// `Stale` for a tier that is empty or, unless `accepts_old_tiers`, older than the others,
/// `Unsupported` for a store without a durable catalog, `Corrupt` for a damaged backup, `NotFound`
/// or `Io` where a tier is missing, also where the store may otherwise be used without it.
/// The old catalog is in use then, as before.
pub fn rebuild(
    address: &str,
    source: Source<'_>,
    accepts_old_tiers: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Rebuilt> {
    let directory = Directory::at(address)?;
    check_there(&directory)?;
    let _lock = lock(&directory)?;
    let settings = Settings::read(&directory.settings())?.resolved(directory.path())?;
    if !settings.keeps_catalog() {
        return Err(Error::new(ErrorKind::Unsupported, OPERATION)
            .because("the store has none that lasts")
            .with("engine", &settings.catalog.engine));
    }
    let places = Places::of(&settings.catalog.path);
    let bucket = far::own_catalog(&settings, directory.path())?;
    let (report, checkpoint) =
        build(&settings, &places, source, bucket, accepts_old_tiers, progress)?;
    let old_catalog = places.exchange()?;
    Ok(Rebuilt { report, old_catalog, checkpoint })
}

/// Takes the lock; waits for an owner that ends.
fn lock(directory: &Directory) -> Result<Lock> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let mut patience = Patience::new(&clock);
    loop {
        if let Some(lock) = Lock::try_take(directory, Access::Write, None)? {
            return Ok(lock);
        }
        let is_served = attach(directory, Access::Read, &clock).is_ok();
        if !patience.wait(is_served) {
            let reason = "a process has the store open; end it first";
            return Err(Lock::busy(directory, OPERATION, reason));
        }
    }
}

/// Directories beside the catalog.
struct Places {
    catalog: PathBuf,
    /// Where the new one is made.
    new: PathBuf,
    /// Where a backup is unpacked.
    saved: PathBuf,
}

impl Places {
    fn of(catalog: &Path) -> Self {
        Self {
            catalog: catalog.into(),
            new: beside(catalog, "new"),
            saved: beside(catalog, "saved"),
        }
    }

    /// Puts the new catalog in the place of the old one; returns where that is now.
    fn exchange(&self) -> Result<Option<PathBuf>> {
        let old = match self.catalog.exists() {
            true => Some(self.free()),
            false => None,
        };
        match &old {
            None => rename(&self.new, &self.catalog)?,
            Some(aside) => {
                // There already when the two exchange their names: the old one is put aside by that.
                rename(&self.new, aside)?;
                let swapped = swap(aside, &self.catalog);
                if !matches!(swapped, Ok(true)) {
                    rename(aside, &self.new)?;
                    swapped?;
                    self.exchange_in_steps(aside)?;
                }
            }
        }
        sync_directory(self.catalog.parent().unwrap_or(Path::new("/")))?;
        Ok(old)
    }

    /// The same where there is no catalog for a moment: a process that ends then leaves it to
    /// [`Places::finish`].
    fn exchange_in_steps(&self, aside: &Path) -> Result<()> {
        rename(&self.catalog, aside)?;
        if let Err(error) = rename(&self.new, &self.catalog) {
            rename(aside, &self.catalog)?;
            return Err(error);
        }
        Ok(())
    }

    /// Puts a new catalog in its place that was whole when a process ended, where there is none.
    fn finish(&self, engine: &str) -> Result<()> {
        // One that cannot be opened is no reason to say anything else than that there is no catalog.
        if self.catalog.exists() || !is_whole(engine, &self.new).unwrap_or(false) {
            return Ok(());
        }
        rename(&self.new, &self.catalog)?;
        sync_directory(self.catalog.parent().unwrap_or(Path::new("/")))
    }

    /// The first name for a catalog that is put aside which nothing has.
    fn free(&self) -> PathBuf {
        (1..)
            .map(|number| beside(&self.catalog, &format!("old-{number}")))
            .find(|path| !path.exists())
            .expect("numbers do not end")
    }
}

/// Puts a catalog in its place that was made anew by a process which ended before it could, where there is
/// none. Errors: `Io`.
pub fn finish_rebuild(settings: &Settings) -> Result<()> {
    match settings.keeps_catalog() {
        true => Places::of(&settings.catalog.path).finish(&settings.catalog.engine),
        false => Ok(()),
    }
}

/// Whether a directory has a catalog to its last pair, the header.
fn is_whole(engine: &str, path: &Path) -> Result<bool> {
    // An engine would make it.
    if !path.is_dir() || tiers::first_entry(path)?.is_none() {
        return Ok(false);
    }
    Stack::exists(&*open_kv(engine, path)?)
}

/// Has two directories exchange their names in one step; false where the file system cannot do that.
fn swap(one: &Path, other: &Path) -> Result<bool> {
    match rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(not_renamed(errno.into(), one, other)),
    }
}

fn beside(catalog: &Path, ending: &str) -> PathBuf {
    let mut name = catalog.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| not_renamed(error, from, to))
}

fn not_renamed(error: std::io::Error, from: &Path, to: &Path) -> Error {
    Error::from_io(OPERATION, error)
        .because("a directory cannot be renamed; is the catalog's a mount point?")
        .with("from", from.display())
        .with("to", to.display())
}

/// Removes what an earlier try has left, or nothing.
pub(crate) fn remove_left(operation: &'static str, path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::from_io(operation, error).with("directory", path.display()))
        }
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<()> {
    remove_left(OPERATION, path)
}

fn build(
    settings: &Settings,
    places: &Places,
    source: Source<'_>,
    bucket: Option<OwnCatalog>,
    accepts_old_tiers: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(RebuildReport, Option<CheckpointUsed>)> {
    let engine = &settings.catalog.engine;
    // It is put aside then, and not removed.
    places.finish(engine)?;
    remove(&places.new)?;
    remove(&places.saved)?;
    let mut used = None;
    let saved = match (source, bucket) {
        (Source::Checkpoint, Some(bucket)) => {
            let catalog = open_kv(engine, &places.saved)?;
            used = Some(bucket.read(&*catalog)?);
            Some(restored(catalog)?)
        }
        (Source::Checkpoint, None) => match checkpoint::newest(settings)? {
            Some(found) => {
                let catalog = unpack(engine, &found.place.file, &places.saved)
                    .map_err(checkpoint::or_without)?;
                used = Some(checkpoint::replay(&found, &*catalog)?);
                Some(restored(catalog)?)
            }
            None => None,
        },
        (Source::PresentCatalog, _) => {
            Some(Saved { catalog: open_kv(engine, &places.catalog)?, is_present: true })
        }
        (Source::Backup(file), _) => Some(restored(unpack(engine, file, &places.saved)?)?),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let parts = Parts {
        settings: stack_settings(settings, Access::Write),
        clock: Arc::clone(&clock),
        ..Parts::new(
            tiers::open(settings, Access::Write, false, &clock)?,
            open_kv(engine, &places.new)?,
        )
    };
    let result = Stack::rebuild(&parts, &RebuildOptions { saved, accepts_old_tiers }, progress);
    // Engines close before their directories are renamed or removed.
    drop(parts);
    remove(&places.saved)?;
    if result.is_err() {
        remove(&places.new)?;
    }
    result.map(|report| (report, used))
}

/// A catalog of an earlier time. In the new one its file systems cannot be used until they are mended,
/// whenever this process ends: numbers that were given since then would be given again.
fn restored(catalog: Arc<dyn Kv>) -> Result<Saved> {
    let saved = Saved { catalog, is_present: false };
    for (name, pairs) in saved.pairs()? {
        terrace_fs::mark_restored(&*pairs)
            .map_err(|failure| failure.into_error(OPERATION).with("name", name))?;
    }
    Ok(saved)
}

fn unpack(engine: &str, file: &Path, directory: &Path) -> Result<Arc<dyn Kv>> {
    let opened = File::open(file)
        .map_err(|error| Error::from_io("read a backup", error).with("file", file.display()))?;
    let catalog = open_kv(engine, directory)?;
    read_backup(&mut BufReader::new(opened), &*catalog, &mut |_| {})
        .map_err(|error| error.with("file", file.display()))?;
    Ok(catalog)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An old catalog and a new one.
    fn places() -> (tempfile::TempDir, Places) {
        let home = tempfile::tempdir().expect("a temporary directory");
        let places = Places::of(&home.path().join("catalog"));
        for (path, name) in [(&places.catalog, "old"), (&places.new, "new")] {
            fs::create_dir(path).expect("made");
            fs::write(path.join(name), b"").expect("written");
        }
        (home, places)
    }

    #[test]
    fn a_new_catalog_takes_the_place_of_the_old_one() {
        for is_one_step in [true, false] {
            let (_home, places) = places();
            let aside = places.free();
            match is_one_step {
                true => assert_eq!(places.exchange().expect("exchanged"), Some(aside.clone())),
                false => places.exchange_in_steps(&aside).expect("exchanged"),
            }
            assert!(aside.ends_with("catalog.old-1") && aside.join("old").exists());
            assert!(places.catalog.join("new").exists() && !places.new.exists());
        }
    }

    #[test]
    fn where_there_is_no_catalog_the_new_one_takes_its_place() {
        let (_home, places) = places();
        remove(&places.catalog).expect("removed");
        assert_eq!(places.exchange().expect("renamed"), None);
        assert!(places.catalog.join("new").exists() && !places.new.exists());
    }
}
