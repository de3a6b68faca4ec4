// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Backends by name.

use std::path::Path;
use std::sync::Arc;

use terrace_core::{Backend, Error, Persistency, Result};

use crate::object::{File, FileSettings, Memory, Null};

/// A backend that [`open_backend`] knows.
#[derive(Debug)]
pub struct BackendEntry {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// The strongest level that it gives, known before one is opened.
    pub persistency: Persistency,
    /// Whether [`Place::path`] must be given; otherwise it must not.
    pub needs_path: bool,
    /// Whether what was written can be read; one for measurements may keep sizes alone.
    pub keeps_bytes: bool,
    open: fn(&Place<'_>) -> Result<Arc<dyn Backend>>,
}

/// Where a backend is and how much it may hold.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The directory, for backends that have one. It must exist.
    pub path: Option<&'a Path>,
    /// What it may hold; `u64::MAX` for no bound.
    pub capacity_bytes: u64,
    /// Whether every change is refused. Means nothing to backends that start empty.
    pub read_only: bool,
}

/// Every backend of this crate that is no wrapper. The behaviour suite runs on each.
pub const BACKENDS: &[BackendEntry] = &[
    BackendEntry {
        name: "file",
        summary: "files in a directory of a local file system",
        persistency: Persistency::Storage,
        needs_path: true,
        keeps_bytes: true,
        open: open_file,
    },
    BackendEntry {
        name: "memory",
        summary: "main memory: gone with the process",
        persistency: Persistency::None,
        needs_path: false,
        keeps_bytes: true,
        open: |place| Ok(Arc::new(Memory::new(place.capacity_bytes))),
    },
    BackendEntry {
        name: "null",
        summary: "keeps sizes and forgets bytes, for measurements",
        persistency: Persistency::None,
        needs_path: false,
        keeps_bytes: false,
        open: |place| Ok(Arc::new(Null::new(place.capacity_bytes))),
    },
];

/// A service of which a tier can be made.
#[derive(Debug)]
pub struct ServiceEntry {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// The strongest level that it gives, known before one is opened.
    pub persistency: Persistency,
}

/// Every service. Each has settings of its own.
pub const SERVICES: &[ServiceEntry] = &[
    ServiceEntry {
        name: "s3",
        summary: "objects in a bucket of S3, or of what speaks its protocol",
        persistency: Persistency::Shared,
    },
    ServiceEntry {
        name: "rados",
        summary: "objects in a pool of Ceph, written in place",
        persistency: Persistency::Shared,
    },
    ServiceEntry {
        name: "opendal",
        summary: "objects in a directory of a WebDAV server, or of any file system",
        // A server may survive the machine, but no other one can take the tier over safely.
        persistency: Persistency::Storage,
    },
];

/// Opens the backend called `name`.
///
/// # Errors
///
/// `Invalid` (no such backend, a path too many or too few), and those of the backend.
pub fn open_backend(name: &str, place: &Place<'_>) -> Result<Arc<dyn Backend>> {
    let wrong = |reason: String| Error::invalid("open a backend", reason).with("backend", name);
    let Some(entry) = BACKENDS.iter().find(|entry| entry.name == name) else {
        let names: Vec<_> = BACKENDS.iter().map(|entry| entry.name).collect();
        return Err(wrong(format!("there is no such backend; known are {}", names.join(", "))));
    };
    match (entry.needs_path, place.path) {
        (true, None) => Err(wrong("it needs a path".into())),
        (false, Some(path)) => Err(wrong("it takes no path".into()).with("path", path.display())),
        _ => (entry.open)(place),
    }
}

fn open_file(place: &Place<'_>) -> Result<Arc<dyn Backend>> {
    let path = place.path.expect("checked: it needs a path");
    let settings =
        FileSettings { capacity_bytes: place.capacity_bytes, read_only: place.read_only };
    Ok(Arc::new(File::open(path, settings)?))
}
