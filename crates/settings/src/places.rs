// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What belongs to a store on this machine, and where that is.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use terrace_core::{Error, Result};

use crate::{Directory, Settings};

/// What marks the directory of a tier.
const TIER_MARK: &str = ".terrace-superblock";

const CATALOG: &str = "its catalog";

/// The directories of a store: its own, that of its catalog, those of its tiers.
#[derive(Default)]
pub struct Places(Vec<Place>);

/// One of these directories.
pub struct Place {
    /// As people name it.
    pub what: String,
    /// Where it is, without links.
    pub path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Places {
    /// Those of the store with this address; none where it is behind servers. An error of the store itself is
    /// reported by the opening.
    pub fn of(address: &str) -> Self {
        Directory::at(address)
            .map_or_else(|_| Self::default(), |directory| Self::of_directory(directory.path()))
    }

    fn of_directory(store: &Path) -> Self {
        let Ok(settings) = Settings::read(&store.join("terrace.toml")) else {
            return Self::default();
        };
        let one = |what: String, path: &Path| {
            let path = store.join(path).canonicalize().ok()?;
            let identity = identity(&path.metadata().ok()?);
            Some(Place { what, path, identity })
        };
        let tier = |name: &str, path: &Path| one(format!("tier {name}"), path);
        let tiers = settings.tiers.iter().filter_map(|of| tier(&of.name, of.path.as_deref()?));
        let own =
            [one("the store".into(), Path::new("")), one(CATALOG.into(), &settings.catalog.path)];
        Self(own.into_iter().flatten().chain(tiers).collect())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter()
    }

    /// The one of them that a directory is.
    pub fn find(&self, directory: &Metadata) -> Option<&Place> {
        let identity = identity(directory);
        self.0.iter().find(|place| place.identity == identity)
    }

    /// Refuses a directory that is one of them.
    ///
    /// # Errors
    ///
    /// `Invalid`.
    pub fn check(&self, operation: &'static str, directory: &Metadata) -> Result<()> {
        self.find(directory).map_or(Ok(()), |place| Err(place.refusal(operation)))
    }

    /// Refuses a file that a command is to write, where it is in a directory of this store, or of any other on
    /// this machine: it may be one of those that the store consists of.
    ///
    /// # Errors
    ///
    /// `Invalid`.
    pub fn check_output(&self, file: &Path) -> Result<()> {
        const OPERATION: &str = "write the file";
        let refused = |error: Error| error.with("file", file.display());
        // A link that leads nowhere is written through by some, and replaced by others.
        let led = std::fs::read_link(file).map(|to| file.with_file_name("").join(to));
        for file in [file.canonicalize().ok().as_deref(), led.ok().as_deref(), Some(file)] {
            let Some(directory) = file.and_then(Path::parent) else { continue };
            // The directory of a plain name is empty, and absolute that in which this process is.
            let Ok(directory) = std::path::absolute(Path::new(".").join(directory)) else {
                continue;
            };
            self.check_outside(OPERATION, &directory).map_err(refused)?;
            let there = directory.ancestors().find_map(|above| above.canonicalize().ok());
            for above in there.iter().flat_map(|there| there.ancestors()) {
                let what = if above.join(TIER_MARK).is_file() {
                    "a tier"
                } else if is_store(above) {
                    "a store"
                } else {
                    continue;
                };
                let error = Error::invalid(OPERATION, format!("it belongs to {what}"));
                return Err(refused(error.with("place", above.display())));
            }
        }
        Ok(())
    }

    /// The same of a log, which may be beside the configuration of a store as `NAME.log`.
    ///
    /// # Errors
    ///
    /// `Invalid`.
    pub fn check_log(&self, file: &Path) -> Result<()> {
        let is_beside = file.with_file_name("terrace.toml").is_file();
        match file.extension().is_some_and(|extension| extension == "log") && is_beside {
            true => Ok(()),
            false => self.check_output(file),
        }
    }

    /// The same of one that is in one of them. Where it is yet to be made, what there is of its path counts.
    ///
    /// # Errors
    ///
    /// `Invalid`.
    pub fn check_outside(&self, operation: &'static str, directory: &Path) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let Ok(directory) = std::path::absolute(directory) else { return Ok(()) };
        let is_there = |path: &&Path| path.canonicalize().is_ok();
        let Some(there) = directory.ancestors().find(is_there) else { return Ok(()) };
        let missing = directory.strip_prefix(there).unwrap_or(&directory);
        if missing.components().any(|part| part == Component::ParentDir) {
            return Err(Error::invalid(operation, "it goes up from a directory that is not there"));
        }
        let there = there.canonicalize();
        let above = there.iter().flat_map(|there| there.ancestors());
        for metadata in above.filter_map(|path| path.metadata().ok()) {
            self.check(operation, &metadata)?;
        }
        Ok(())
    }
}

impl Place {
    fn refusal(&self, operation: &'static str) -> Error {
        let error = Error::invalid(operation, format!("it belongs to {}", self.what));
        error.with("place", self.path.display())
    }
}

/// Whether a directory is that of a store, and not only one with a configuration.
fn is_store(directory: &Path) -> bool {
    Places::of_directory(directory).iter().any(|place| place.what == CATALOG)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
