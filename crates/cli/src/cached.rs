// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of files on a mount of `terrace mount --source`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::lgetxattr;
use rustix::io::Errno;
use terrace_core::Error;

use crate::failure::Result;

const FIND: &str = "find the cache";
/// Longest value of these attributes: a path.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The attribute that names the directory of the cache.
const CACHE: &str = "user.terrace.cache";
/// The attribute that has the path below the root of the source.
const PATH: &str = "user.terrace.path";
/// The attribute that says how many bytes of a file are in the cache.
const CACHED: &str = "user.terrace.cached";

/// A path on such a mount, without links.
///
/// # Errors
///
/// `Invalid` for what is on no such mount; `NotFound`, `Denied`, `Io`.
pub(crate) fn on_mount(path: &Path, operation: &'static str) -> Result<PathBuf> {
    let failed = |error| Error::from_io(operation, error).with("path", path.display());
    let real = path.canonicalize().map_err(failed)?;
    match attribute(&real, CACHE) {
        Ok(_) => Ok(real),
        Err(errno) if is_elsewhere(errno) => {
            let reason = "it is on no mount of `terrace mount --source DIR|URL --cache DIR`";
            Err(Error::invalid(operation, reason).with("path", path.display()).into())
        }
        Err(errno) => Err(failed(errno.into()).into()),
    }
}

/// The directory of the cache of the mount that a path is on; `None` where it is on none with a cache.
pub(crate) fn cache_of(path: &Path) -> Result<Option<PathBuf>> {
    let failed = |error| Error::from_io(FIND, error).with("path", path.display());
    let real = path.canonicalize().map_err(failed)?;
    match attribute(&real, CACHE) {
        Ok(cache) => Ok(Some(OsString::from_vec(cache).into())),
        Err(errno) if is_elsewhere(errno) => Ok(None),
        Err(errno) => Err(failed(errno.into()).into()),
    }
}

/// The directory of the cache of the mount that a path is on, and the path below its source.
pub(crate) fn place_of(path: &Path) -> Result<(PathBuf, PathBuf)> {
    let failed = |errno: Errno| Error::from_io(FIND, errno.into()).with("path", path.display());
    let real = on_mount(path, FIND)?;
    let read = |name| attribute(&real, name).map(|value| PathBuf::from(OsString::from_vec(value)));
    Ok((read(CACHE).map_err(failed)?, read(PATH).map_err(failed)?))
}

/// How many bytes of a file on such a mount are in the cache.
pub(crate) fn cached_bytes(file: &Path) -> io::Result<u64> {
    let text = attribute(file, CACHED)?;
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Whether an error says that a file has no such attribute.
fn is_elsewhere(errno: Errno) -> bool {
    matches!(errno, Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM)
}

fn attribute(path: &Path, name: &str) -> std::result::Result<Vec<u8>, Errno> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let length = lgetxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}
