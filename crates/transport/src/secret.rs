// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file with the secret that servers and clients share.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use terrace_core::{Error, Result};

use crate::private::read_private_file;

/// Longest file that is taken for a secret.
const FILE_BYTES_MAX: u64 = 4096;

/// Length of a secret that is made here; as text it is twice as long.
const MADE_BYTES: usize = 32;

/// The default place of the secret: `terrace/secret` in the user's configuration directory. `None`
/// where the user has no home.
pub fn default_secret_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let directory = directory.or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("terrace").join("secret"))
}

/// Reads a secret; a line break at its end does not belong to it.
///
/// # Errors
///
/// `Denied` where others than its owner can read or write the file, or it belongs to another user
/// than this one or root; `NotFound`, `Invalid` (too long), `Io`.
pub fn read_secret_file(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = read_private_file("read the secret", path, FILE_BYTES_MAX)?;
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    bytes.truncate(end.map_or(0, |last| last + 1));
    Ok(bytes)
}

/// Makes a file with a new secret that only this user can read, and directories up to it. One that
/// is there stays as it is.
///
/// # Errors
///
/// `Denied`, `NoSpace`, `Io`.
pub fn make_secret_file(path: &Path) -> Result<()> {
    let failed = |error| Error::from_io("make a secret", error).with("file", path.display());
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let mut random = [0; MADE_BYTES];
    random_bytes(&mut random)?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    // Whole or not there at all: written beside it, then given its name, unless that is taken.
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        std::fs::hard_link(&draft, path)
    };
    let written = write();
    // It may not have been made.
    let _ = std::fs::remove_file(&draft);
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.exists() => Ok(()),
        other => other.map_err(failed),
    }
}

/// Fills the buffer with unguessable bytes.
///
/// # Errors
///
/// `Io` where the operating system has none.
pub fn random_bytes(buffer: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::rand::getrandom(&mut buffer[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::from_io("make a random number", error.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use terrace_core::ErrorKind;

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_only_for_its_owner() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a/b/secret");
        make_secret_file(&path).expect("make");
        let first = read_secret_file(&path).expect("read");
        assert_eq!(first.len(), 2 * MADE_BYTES);
        make_secret_file(&path).expect("is there");
        assert_eq!(read_secret_file(&path).expect("read"), first);
        assert_eq!(std::fs::read_dir(path.parent().expect("has one")).expect("list").count(), 1);
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("secret");
        make_secret_file(&path).expect("make");
        for mode in [0o640, 0o604, 0o620, 0o644] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).expect("chmod");
            let error = read_secret_file(&path).expect_err("open to others");
            assert_eq!(error.kind(), ErrorKind::Denied);
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_missing_or_endless_secret_is_refused() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("secret");
        assert_eq!(read_secret_file(&path).expect_err("missing").kind(), ErrorKind::NotFound);
        make_secret_file(&path).expect("make");
        std::fs::write(&path, vec![b'x'; 5000]).expect("write");
        assert_eq!(read_secret_file(&path).expect_err("long").kind(), ErrorKind::Invalid);
    }
}
