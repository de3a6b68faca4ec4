// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole trees of files between a local file system and one of the store.
//!
//! A file is unchanged where size and modification time are; times are set when everything else
//! is, and durable, so that whatever was interrupted is copied again. In memory are the directories on
//! the way down, the files that wait for their times and, for whatever else has several names, one of
//! these and of which file it is the copy.

mod disks;
mod export;
mod import;
mod local;
mod pinned;
#[cfg(test)]
mod scene;
mod stored;
mod unsettled;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use terrace_console::failure::{Failures, Result};
use terrace_console::interrupt::Interrupt;
use terrace_console::progress::Progress;
use terrace_core::{Access, Error};
use terrace_fs::{Files, Kind, Made, Node, ROOT, TreeOptions};
use terrace_mount::Opening;
use terrace_settings::Places;
use terrace_store::Store;

pub use self::export::export;
pub use self::import::import;

/// Copied in pieces of so many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Objects that are made ahead of files.
const READY_OBJECTS: usize = 64;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Directories that were copied, or were there already.
    pub directories: u64,
    /// Files that were copied.
    pub files: u64,
    /// Files that were there already.
    pub unchanged: u64,
    /// Further names of whatever is no directory.
    pub links: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Pipes, sockets and devices.
    pub special: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Of what was copied: what could not be given to its owner or its group, as only root may.
    pub owners_lost: u64,
    /// Of these: what has lost its set-user-ID or set-group-ID bit with them.
    pub set_ids_lost: u64,
    /// Of what was copied: what lacks extended attributes, or has others, as only root may set them.
    pub xattrs_lost: u64,
    /// Directories of the store itself; each was reported.
    pub left_out: u64,
    /// What could not be copied; each was reported.
    pub failed: u64,
}

/// One run over a tree.
pub struct Work<'a> {
    /// The file system.
    pub files: Arc<Files>,
    /// What is left out, and not written over.
    pub places: Places,
    /// What may end it.
    pub interrupt: &'a Interrupt,
    /// How far it is.
    pub progress: Progress,
    /// What failed; the rest goes on.
    pub failures: Failures,
    /// What was done so far.
    pub summary: Summary,
}

impl Work<'_> {
    /// Goes on past a failure.
    fn note<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        let failures = &mut self.failures;
        let value = self.progress.aside(|| failures.note(result))?;
        self.summary.failed += u64::from(value.is_none());
        Ok(value)
    }

    fn copied(&mut self, bytes: usize) -> Result<()> {
        self.summary.bytes += bytes as u64;
        self.progress.advance(bytes as u64);
        self.interrupt.check("run it again to go on")
    }
}

/// What a file system is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To copy into it; it is made where it is not there.
    Import,
    /// To copy from it.
    Export,
    /// The same where servers are missing over which it lies.
    ExportDegraded,
}

/// Opens a file system of a store.
pub fn open(store: &Store, name: &str, purpose: Purpose) -> Result<Arc<Files>> {
    let creates = purpose == Purpose::Import;
    let options = TreeOptions {
        user: rustix::process::getuid().as_raw(),
        group: rustix::process::getgid().as_raw(),
        ..TreeOptions::default()
    };
    let opening = Opening {
        name: name.into(),
        create: creates.then_some(options),
        ready_objects: if creates { READY_OBJECTS } else { 0 },
        access: if creates { Access::Write } else { Access::Read },
        degraded: purpose == Purpose::ExportDegraded,
        believed_for: Duration::from_secs(1),
    };
    Ok(terrace_mount::open(store, &opening)?)
}

/// The directory that a path names, from the root of the file system; made on the way where
/// `creates`.
pub fn directory(files: &Files, path: &str, creates: bool) -> Result<Node> {
    let failed =
        |failure: terrace_fs::Failure| failure.into_error("find a directory").with("path", path);
    let mut node = files.node(ROOT).map_err(failed)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        node = match files.lookup(node.number, name.as_bytes()) {
            Err(failure) if creates && failure.errno() == rustix::io::Errno::NOENT => {
                let made = made(Kind::Directory, 0o755);
                files.make(node.number, name.as_bytes(), made).map_err(failed)?
            }
            found => found.map_err(failed)?,
        };
        if !node.kind.is_directory() {
            let reason = "it is no directory";
            return Err(Error::invalid("find a directory", reason).with("path", path).into());
        }
    }
    Ok(node)
}

/// Something new, owned by the user of this process.
fn made<'a>(kind: Kind, permissions: u32) -> Made<'a> {
    Made {
        kind,
        permissions,
        user: rustix::process::getuid().as_raw(),
        group: rustix::process::getgid().as_raw(),
        ..Made::default()
    }
}

/// Names the file that a failed operation is about.
fn about(error: Error, path: &Path) -> Error {
    error.with("file", path.display())
}
