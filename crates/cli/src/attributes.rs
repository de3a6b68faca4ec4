// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of the files of a mounted store, as any program reads them.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::lgetxattr;
use rustix::io::Errno;
use terrace_core::{Error, ErrorKind};

use crate::failure::Result;
use crate::reached::Reached;

/// Attributes by which a mounted file says what it is.
pub(crate) const STORE: &str = "user.terrace.store";
pub(crate) const KEY: &str = "user.terrace.key";
pub(crate) const TIER: &str = "user.terrace.tier";

pub(crate) const OPERATION: &str = "find the object of a file";

/// Longest value of these attributes: an address, or a key.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The address of the store that is mounted where a path leads; `None` for any other.
pub(crate) fn store_of(path: &Path) -> Option<String> {
    attribute(&followed(path).ok()?, STORE).ok()
}

/// Where a path leads, links followed.
pub(crate) fn followed(path: &Path) -> Result<PathBuf> {
    let failed = |error| Error::from_io(OPERATION, error).with("path", path.display());
    Ok(std::fs::canonicalize(path).map_err(failed)?)
}

/// What is at a path, links not followed.
pub(crate) fn look(path: &Path) -> io::Result<Metadata> {
    std::fs::symlink_metadata(Reached::new(path)?)
}

/// The value of an attribute.
///
/// # Errors
///
/// `Invalid` for what is no file of a mounted store; `NotFound`, `Denied`, `Io`.
pub(crate) fn attribute(path: &Path, name: &str) -> Result<String> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let read = Reached::new(path)
        .and_then(|reached| Ok(lgetxattr(reached.as_ref(), name, &mut value[..])?));
    let read = read.map_err(|failure| {
        let error = match Errno::from_io_error(&failure) {
            Some(Errno::NODATA | Errno::OPNOTSUPP) => {
                let is_other = |found: Metadata| !found.is_file() && !found.is_dir();
                let reason = match look(path).is_ok_and(is_other) {
                    true => "it is no regular file, and only those of a mounted store are on tiers",
                    false => "it is no file of a mounted store",
                };
                Error::invalid(OPERATION, reason)
            }
            _ => Error::from_io(OPERATION, failure),
        };
        error.with("path", path.display())
    })?;
    value.truncate(read);
    String::from_utf8(value).map_err(|_| {
        Error::new(ErrorKind::Corrupt, OPERATION)
            .because("its attribute is no text")
            .with("attribute", name)
            .into()
    })
}
