// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that only their owner may read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use terrace_core::{Error, ErrorKind, Result};

/// Reads a file that only its owner can read.
///
/// # Errors
///
/// `Denied` where others than its owner can read or write the file, or it belongs to another user
/// than this one or root; `NotFound`, `Invalid` (longer than `bytes_max`), `Io`.
pub(crate) fn read_private_file(
    operation: &'static str,
    path: &Path,
    bytes_max: u64,
) -> Result<Vec<u8>> {
    let failed = |error| Error::from_io(operation, error).with("file", path.display());
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let denied = |reason: String| {
        Err(Error::new(ErrorKind::Denied, operation).because(reason).with("file", path.display()))
    };
    if metadata.mode() & 0o077 != 0 {
        return denied(format!(
            "others can read or write it (mode {:04o}); `chmod 600` it, and make a new one if others may have read it",
            metadata.mode() & 0o7777
        ));
    }
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user && metadata.uid() != 0 {
        return denied(format!("it belongs to user {}, not to user {user}", metadata.uid()));
    }
    read_bounded(operation, file, path, bytes_max)
}

/// Reads a file that anybody may know. Errors: `NotFound`, `Denied`, `Invalid` (too long), `Io`.
pub(crate) fn read_public_file(
    operation: &'static str,
    path: &Path,
    bytes_max: u64,
) -> Result<Vec<u8>> {
    let file = File::open(path)
        .map_err(|error| Error::from_io(operation, error).with("file", path.display()))?;
    read_bounded(operation, file, path, bytes_max)
}

fn read_bounded(
    operation: &'static str,
    file: File,
    path: &Path,
    bytes_max: u64,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::from_io(operation, error).with("file", path.display()))?;
    if bytes.len() as u64 > bytes_max {
        return Err(Error::invalid(operation, "the file is too long to be one")
            .with("file", path.display())
            .with("bytes_max", bytes_max));
    }
    Ok(bytes)
}
