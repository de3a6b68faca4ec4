// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written gets its name when it is complete; until then it has another one beside it.

use std::fs;
use std::io::ErrorKind::AlreadyExists;
use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Result};

/// Names that are tried: what earlier processes with our number may have left when they were killed.
const LEFTOVERS_MAX: u32 = 100;

/// A file or a directory that is being written, and goes away unless it is finished.
pub(super) struct Fresh {
    path: PathBuf,
    partial: PathBuf,
}

impl Fresh {
    /// Chooses a name for the time until it is complete.
    ///
    /// # Errors
    ///
    /// `Exists` where something has the name that it gets.
    pub(super) fn new(path: &Path) -> Result<Self> {
        // Short, because names have a bound.
        let name = |attempt| format!(".terrace-partial-{}-{attempt}", std::process::id());
        let mut partials = (0..LEFTOVERS_MAX).map(|attempt| path.with_file_name(name(attempt)));
        let partial = partials.find(|partial| partial.symlink_metadata().is_err());
        match (path.symlink_metadata(), partial) {
            (Err(_), Some(partial)) => Ok(Self { path: path.into(), partial }),
            (Ok(_), _) => Err(exists(path)),
            (_, None) => Err(exists(&path.with_file_name(name(0)))),
        }
    }

    /// Where it is until it is complete.
    pub(super) fn partial(&self) -> &Path {
        &self.partial
    }

    /// What messages call it.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Gives it its name.
    ///
    /// # Errors
    ///
    /// `Exists` where something has it by now; `Io` and others of renaming. Nothing is left then.
    pub(super) fn finish(self) -> Result<()> {
        let is_directory = self.partial.is_dir();
        // A link takes no name that there is. Where there are none, the faster caller may lose; an
        // empty directory that takes one's place loses nothing.
        let named = match is_directory {
            false => fs::hard_link(&self.partial, &self.path),
            true => self.rename(),
        };
        match named {
            Err(error) if error.kind() == AlreadyExists => Err(exists(&self.path)),
            Err(_) if !is_directory => self.rename().map_err(|error| self.failed(error)),
            other => other.map_err(|error| self.failed(error)),
        }
    }

    fn rename(&self) -> std::io::Result<()> {
        match self.path.symlink_metadata() {
            Ok(_) => Err(AlreadyExists.into()),
            Err(_) => fs::rename(&self.partial, &self.path),
        }
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::from_io("write the trace", error).with("file", self.path.display())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Nothing more can be done about what cannot be removed; what has its name is not there.
        let _ = match self.partial.is_dir() {
            true => fs::remove_dir_all(&self.partial),
            false => fs::remove_file(&self.partial),
        };
    }
}

fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::Exists, "write the trace").with("file", path.display())
}
