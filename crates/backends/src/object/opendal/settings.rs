// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a service is, and the credentials for it, which no setting holds.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result};

const OPERATION: &str = "open a service";

/// Longest file of credentials that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A service of OpenDAL of which a tier can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpendalService {
    /// A directory of a server that speaks WebDAV (RFC 4918).
    Webdav,
}

impl OpendalService {
    /// All services.
    pub const ALL: [Self; 1] = [Self::Webdav];

    /// Its name in the configuration, which is that of OpenDAL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Webdav => "webdav",
        }
    }
}

/// Where a service is. It holds no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpendalSettings {
    /// The service.
    pub service: OpendalService,
    /// `http://` or `https://`, a host, a port where it is not the usual one, and a path.
    pub endpoint: Option<String>,
    /// The directory of the tier, which must be there, below the endpoint.
    pub root: PathBuf,
    /// The file with the credentials; `None` for a service that asks for none.
    pub credentials: Option<PathBuf>,
    /// Longest that a request takes, with all its retries.
    pub deadline: Duration,
}

impl OpendalSettings {
    /// Longest that a request takes by default.
    pub const DEADLINE: Duration = Duration::from_secs(30);

    /// A directory of a server.
    pub fn webdav(endpoint: &str, root: &str) -> Self {
        Self {
            service: OpendalService::Webdav,
            endpoint: Some(endpoint.into()),
            root: root.into(),
            credentials: None,
            deadline: Self::DEADLINE,
        }
    }

    /// Address in logs and errors.
    pub fn target(&self) -> String {
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
        let host = host.trim_end_matches('/');
        let root = self.root.to_string_lossy();
        let root = root.trim_matches('/');
        format!("{}://{host}/{root}", self.service.name())
    }

    /// The directory of the tier for the client; it ends with `/`.
    ///
    /// # Errors
    ///
    /// `Invalid` for one that has no name of its own.
    pub(super) fn base(&self) -> Result<String> {
        let wrong = |reason: &str| {
            Err(Error::invalid(OPERATION, reason.to_string()).with("root", self.root.display()))
        };
        let Some(root) = self.root.to_str() else { return wrong("`root` is no UTF-8 text") };
        let parts: Vec<_> = root.split('/').filter(|part| !part.is_empty()).collect();
        // The client cuts them off.
        let is_plain = |part: &&str| !matches!(*part, "." | "..") && part.trim() == *part;
        match parts.is_empty() || !parts.iter().all(is_plain) {
            true => wrong("`root` names no directory of its own"),
            false => Ok(format!("{}/", parts.join("/"))),
        }
    }

    /// # Errors
    ///
    /// `Denied` for a file that cannot be read, or holds no credentials.
    pub(super) fn credentials(&self) -> Result<Credentials> {
        let Some(file) = &self.credentials else { return Ok(Credentials::default()) };
        let missing = |reason: String| {
            Error::new(ErrorKind::Denied, OPERATION).because(reason).with("file", file.display())
        };
        let text = read(file)
            .map_err(|error| missing(format!("the file of credentials cannot be read: {error}")))?;
        Credentials::find(&text).ok_or_else(|| {
            missing(
                "the file of credentials has neither `user` and `password` nor `token`, or a line \
                 that is none of them"
                    .into(),
            )
        })
    }
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// What a server is shown; never printed.
#[derive(Default)]
pub(super) struct Credentials {
    pub(super) user: Option<(String, String)>,
    pub(super) token: Option<String>,
}

impl Credentials {
    /// Those in the text of a file with lines such as `user = name`.
    fn find(text: &str) -> Option<Self> {
        let (mut user, mut password, mut token) = (None, None, None);
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (key, value) = line.split_once('=')?;
            let value = Some(value.trim().to_string()).filter(|value| !value.is_empty());
            match key.trim() {
                "user" => user = value,
                "password" => password = value,
                "token" => token = value,
                _ => return None,
            }
        }
        match (user, password, token) {
            (Some(user), Some(password), None) => {
                Some(Self { user: Some((user, password)), token: None })
            }
            (None, None, Some(token)) => Some(Self { user: None, token: Some(token) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_in_a_file() {
        let found = |text| {
            let found = Credentials::find(text)?;
            Some((found.user, found.token))
        };
        let pair = Some(("me".to_string(), "a = b".to_string()));
        assert_eq!(found("# mine\nuser = me\n\npassword=a = b\n"), Some((pair, None)));
        assert_eq!(found("token = T\n"), Some((None, Some("T".into()))));
        for wrong in
            ["", "user = me", "user = me\npassword = ", "token = T\nuser = me", "pass = x", "x"]
        {
            assert_eq!(found(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_tier_is_named_by_host_and_directory() {
        let webdav = OpendalSettings::webdav("https://cloud.example.org/dav/me/", "t/one");
        assert_eq!(webdav.target(), "webdav://cloud.example.org/dav/me/t/one");
        assert_eq!(webdav.base().expect("a directory"), "t/one/");
        for root in ["/", "", "a/../b", "./a", "a /b"] {
            let settings = OpendalSettings::webdav("https://host", root);
            assert!(settings.base().is_err(), "{root:?}");
        }
    }
}
