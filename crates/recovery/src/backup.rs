// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of a backup.

use std::io::{BufWriter, Write};
use std::path::Path;

use terrace_core::{Error, ErrorKind, Result};
use terrace_settings::sync_directory;
use terrace_stack::Stack;
use terrace_stack::report::BackupReport;

/// Writes a backup beside its place and puts it there when it is durable.
///
/// # Errors
///
/// `Exists` where the file is there, unless `replace`; `Denied`, `NoSpace`, `Io`.
pub fn write_backup(
    stack: &Stack,
    file: &Path,
    replace: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<BackupReport> {
    const OPERATION: &str = "write a backup";
    let failed = |error| Error::from_io(OPERATION, error).with("file", file.display());
    let exists = || {
        Error::new(ErrorKind::Exists, OPERATION)
            .because("the file is there already")
            .with("file", file.display())
    };
    if !replace && file.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let mut part =
        tempfile::Builder::new().prefix(".terrace-backup-").tempfile_in(parent).map_err(failed)?;
    let mut out = BufWriter::new(part.as_file_mut());
    let report =
        stack.backup(&mut out, progress).map_err(|error| error.with("file", file.display()))?;
    out.flush().map_err(failed)?;
    drop(out);
    part.as_file().sync_all().map_err(failed)?;
    if replace {
        part.persist(file).map_err(|error| failed(error.error))?;
    } else {
        part.persist_noclobber(file).map_err(|error| match error.error.kind() {
            std::io::ErrorKind::AlreadyExists => exists(),
            _ => failed(error.error),
        })?;
    }
    sync_directory(parent)?;
    Ok(report)
}
