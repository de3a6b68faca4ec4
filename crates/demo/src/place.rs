// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of the demo: made anew by every run, and never one that the demo did not make.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Result};

use super::slow;

/// A directory with this file was made by the demo.
const MARKER: &str = ".terrace-demo";

/// Where the demo works.
#[derive(Debug)]
pub(crate) struct Place {
    dir: PathBuf,
}

impl Place {
    /// Empties the directory of an earlier demo, or makes a new one.
    ///
    /// # Errors
    ///
    /// `Exists` where something else is there, `Busy` where a process uses the store in it, `Io`.
    pub(crate) fn prepare(dir: &Path) -> Result<Self> {
        let place = Self { dir: dir.to_owned() };
        let explain = |error| Error::from_io("prepare the demo", error).with("dir", dir.display());
        match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(explain(error)),
            Ok(mut entries) => {
                if !dir.join(MARKER).is_file() && entries.next().is_some() {
                    return Err(Error::new(ErrorKind::Exists, "prepare the demo")
                        .because(
                            "the directory was not made by the demo, choose another with --dir",
                        )
                        .with("dir", dir.display()));
                }
                if UnixStream::connect(place.kept_store().join("control.sock")).is_ok() {
                    return Err(Error::new(ErrorKind::Busy, "prepare the demo")
                        .because("a process uses the store of the demo before, end it first")
                        .with("store", place.kept_store().display()));
                }
                if place.elsewhere().exists() {
                    place.empty_elsewhere()?;
                }
                fs::remove_dir_all(dir).map_err(explain)?;
            }
        }
        fs::create_dir_all(place.runs()).map_err(explain)?;
        let text = "Made by `terrace demo`, which empties this directory when it runs again.\n";
        fs::write(dir.join(MARKER), text).map_err(explain)?;
        Ok(place)
    }

    /// The store of one run.
    pub(crate) fn store(&self, id: &str) -> PathBuf {
        self.runs().join(id)
    }

    /// Where the stores of all runs are.
    pub(crate) fn runs(&self) -> PathBuf {
        self.dir.join("runs")
    }

    /// Removes the store of one run.
    pub(crate) fn drop_store(&self, id: &str) -> Result<()> {
        let store = self.store(id);
        fs::remove_dir_all(&store)
            .map_err(|error| Error::from_io("clean up", error).with("dir", store.display()))
    }

    /// Keeps the store of one run; all others are gone by then.
    pub(crate) fn keep_store(&self, id: &str) -> Result<()> {
        let kept = self.kept_store();
        fs::rename(self.store(id), &kept)
            .and_then(|()| fs::remove_dir(self.runs()))
            .map_err(|error| Error::from_io("keep the store", error).with("store", kept.display()))
    }

    /// The store that stays.
    pub(crate) fn kept_store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// Removes what the stores of an earlier demo, which may have failed, have outside the directory.
    fn empty_elsewhere(&self) -> Result<()> {
        let runs = fs::read_dir(self.runs()).into_iter().flatten().flatten();
        let stores = runs.map(|run| run.path()).chain([self.kept_store()]);
        for store in stores.filter(|store| store.join("terrace.toml").exists()) {
            slow::empty(&store).map_err(|error| {
                Error::new(error.kind(), "remove a store of the demo before")
                    .because("its slow tier could not be emptied; --dir chooses another directory")
                    .with("store", store.display())
                    .caused_by(error)
            })?;
        }
        Ok(())
    }

    /// Is there where stores have files outside the directory.
    pub(super) fn elsewhere(&self) -> PathBuf {
        self.dir.join(".slow-tier-elsewhere")
    }

    /// Notes that stores have files elsewhere.
    pub(super) fn note_elsewhere(&self) -> Result<()> {
        fs::write(self.elsewhere(), "The next demo in this directory removes them.\n")
            .map_err(|error| Error::from_io("note the slow tier", error))
    }

    /// The page.
    pub(crate) fn page(&self) -> PathBuf {
        self.dir.join("demo-report.html")
    }

    /// The directory itself.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}
