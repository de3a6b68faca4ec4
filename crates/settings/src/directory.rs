// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of a store, and what is where in it.

use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Result};

use crate::url::Url;

/// What an address may begin with.
const SCHEME: &str = "terrace+dir:";

/// The directory of a store; absolute, so that a process may change its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory at a path. Errors: `Invalid` for an empty one, `NotFound` where there is no working directory.
    pub fn of(path: &Path) -> Result<Self> {
        // An empty path is refused by `absolute`.
        let path = std::path::absolute(path).map_err(|error| {
            Error::from_io("find the directory of the store", error)
                .with("directory", format!("{:?}", path.display()))
        })?;
        Ok(Self { path })
    }

    /// The directory of an address.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an address of servers and for an unknown scheme, `Invalid`.
    pub fn at(address: &str) -> Result<Self> {
        match address.strip_prefix(SCHEME) {
            Some(path) => Self::of(Path::new(path)),
            None if Url::is_one(address) => {
                Err(Error::new(ErrorKind::Unsupported, "find the directory of the store")
                    .because(
                        "it is behind servers; run the command on the machine of one of them, \
                         with its directory",
                    )
                    .with("address", address))
            }
            None if address.starts_with("terrace+") => {
                Err(Error::new(ErrorKind::Unsupported, "find the store")
                    .because(EXPECTED)
                    .with("address", format!("{address:?}")))
            }
            None if address.contains("://") && !Path::new(address).exists() => {
                Err(Error::invalid("find the store", EXPECTED)
                    .with("address", format!("{address:?}")))
            }
            None => Self::of(Path::new(address)),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file with its settings.
    pub fn settings(&self) -> PathBuf {
        self.path.join("terrace.toml")
    }

    /// The file that its owner has locked.
    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Where the trace goes by default.
    pub fn trace(&self) -> PathBuf {
        self.path.join(TRACE)
    }

    /// The control socket of its owner.
    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }
}

/// Makes names in a directory durable.
pub fn sync_directory(path: &Path) -> Result<()> {
    std::fs::File::open(path).and_then(|directory| directory.sync_all()).map_err(|error| {
        Error::from_io("sync a directory", error).with("directory", path.display())
    })
}

/// The name of the directory for the trace.
pub(crate) const TRACE: &str = "trace";

/// What an address may be.
const EXPECTED: &str = "a directory, terrace+dir: and a directory, terrace://HOST[:PORT], \
                        terrace+unix:///PATH or terrace+map:///FILE is expected";

/// The name of the control socket in the directory.
const SOCKET: &str = "control.sock";

/// Refuses a directory without a store. Errors: `NotFound`, `Denied`, `Io`.
pub fn check_there(directory: &Directory) -> Result<()> {
    let settings = directory.settings();
    match settings.metadata() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::new(ErrorKind::NotFound, "open the store")
                .because(
                    "there is none: the directory has no terrace.toml; `terrace init` makes one",
                )
                .with("directory", directory.path().display()))
        }
        Err(error) => Err(Error::from_io("open the store", error).with("file", settings.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_directory_with_or_without_its_scheme() {
        let of = |address| Directory::at(address).map(|directory| directory.path);
        assert_eq!(of("/srv/s").expect("legal"), Path::new("/srv/s"));
        assert_eq!(of("terrace+dir:/srv/s").expect("legal"), Path::new("/srv/s"));
        assert!(of("s").expect("legal").is_absolute());
        assert_eq!(of("").expect_err("empty").kind(), ErrorKind::Invalid);
        let error = of("terrace+tcp://host").expect_err("another scheme");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("terrace+dir:"), "{error}");
        let error = of("terrace://host").expect_err("a server");
        assert!(error.to_string().contains("behind servers"), "{error}");
        assert_eq!(of("http://host").expect_err("no store").kind(), ErrorKind::Invalid);
    }
}
