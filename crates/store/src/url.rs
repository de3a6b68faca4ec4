// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of stores behind servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use terrace_client::{Address, Options, Remote};
use terrace_core::units::parse_duration;
use terrace_core::{Access, Clock, Error, ErrorKind, Result};
use terrace_transport::{Endpoint, default_secret_file, read_secret_file};
use terrace_wire::Secret;

use crate::control::Link;

/// Servers behind TCP: `terrace://HOST:PORT`.
const TCP: &str = "terrace://";

/// A server behind a Unix socket: `terrace+unix:///PATH`.
const UNIX: &str = "terrace+unix://";

/// Names the file with the secret, where the address does not.
const SECRET_VARIABLE: &str = "TERRACE_SECRET_FILE";

/// What the address says instead of a file to use none.
const NO_SECRET: &str = "none";

/// The address of a store behind a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) endpoint: Endpoint,
    deadline: Option<Duration>,
    secret: Option<SecretFrom>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SecretFrom {
    File(PathBuf),
    Nowhere,
}

impl Url {
    /// Whether an address is one; anything else is a directory.
    pub(crate) fn is_one(address: &str) -> bool {
        address.starts_with(TCP) || address.starts_with(UNIX)
    }

    /// Reads `terrace://HOST:PORT[/][?NAME=VALUE[&…]]` or `terrace+unix:///PATH[?…]`.
    ///
    /// # Errors
    ///
    /// `Invalid`, which says what is expected.
    pub(crate) fn parse(address: &str) -> Result<Self> {
        let wrong = |reason: String| {
            Error::invalid("read the address of a store", reason)
                .with("address", format!("{address:?}"))
        };
        let (place, query) = address.split_once('?').unwrap_or((address, ""));
        let endpoint = if let Some(path) = place.strip_prefix(UNIX) {
            if !path.starts_with('/') {
                return Err(wrong(format!("an absolute path is expected behind {UNIX}")));
            }
            Endpoint::Unix(path.into())
        } else {
            let hosts = place.strip_prefix(TCP).unwrap_or(place);
            let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
            hosts.parse().map_err(|error: Error| error.with("store", format!("{address:?}")))?
        };
        let mut url = Self { endpoint, deadline: None, secret: None };
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "deadline" => url.deadline = Some(parse_duration(value)?),
                "secret" if value == NO_SECRET => url.secret = Some(SecretFrom::Nowhere),
                "secret" if !value.is_empty() => url.secret = Some(SecretFrom::File(value.into())),
                _ => {
                    return Err(wrong(format!(
                        "there is no setting {name:?} with the value {value:?}; known are \
                         deadline=TIME, secret=FILE and secret={NO_SECRET}"
                    )));
                }
            }
        }
        if url.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(wrong("a deadline above zero is expected".into()));
        }
        Ok(url)
    }

    /// Reaches the server.
    pub(crate) fn open(&self, access: Access, clock: &Arc<dyn Clock>) -> Result<Link> {
        let defaults = Options::default();
        let deadline = self.deadline.unwrap_or(defaults.deadline);
        let options = Options {
            access,
            secret: self.secret()?,
            deadline,
            connect_timeout: defaults.connect_timeout.min(deadline),
            ..defaults
        };
        let address = Address { endpoint: self.endpoint.clone(), clock: Arc::clone(clock) };
        let remote = Remote::connect(Box::new(address), options, Arc::clone(clock));
        Ok(Link::over(remote.map_err(|error| self.explained(error))?, clock))
    }

    /// The secret that the address names, or else the environment, or else the user's own.
    fn secret(&self) -> Result<Option<Secret>> {
        let read = |path: &Path| Secret::new(&read_secret_file(path)?).map(Some);
        if matches!(self.endpoint, Endpoint::Unix(_)) {
            return Ok(None);
        }
        match &self.secret {
            Some(SecretFrom::File(path)) => return read(path),
            Some(SecretFrom::Nowhere) => return Ok(None),
            None => {}
        }
        if let Some(path) = std::env::var_os(SECRET_VARIABLE).filter(|path| !path.is_empty()) {
            return read(Path::new(&path));
        }
        match default_secret_file() {
            Some(path) if path.exists() => read(&path),
            _ => Ok(None),
        }
    }

    fn explained(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Denied if matches!(self.endpoint, Endpoint::Tcp { .. }) => error.with(
                "see",
                format!("?secret=FILE or {SECRET_VARIABLE} name the secret of the server, ?secret={NO_SECRET} none"),
            ),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Result<String> {
        Url::parse(address).map(|url| url.endpoint.to_string())
    }

    #[test]
    fn an_address_names_a_server() {
        assert_eq!(of("terrace://host").expect("legal"), "host:7420");
        assert_eq!(of("terrace://host:7/").expect("legal"), "host:7");
        assert_eq!(of("terrace://[::1]:7?deadline=5s").expect("legal"), "[::1]:7");
        assert_eq!(of("terrace+unix:///run/t.sock").expect("legal"), "unix:/run/t.sock");
        assert!(Url::is_one("terrace://host") && !Url::is_one("terrace+dir:/srv"));
    }

    #[test]
    fn settings_follow_a_question_mark() {
        let url = Url::parse("terrace://host?deadline=2s&secret=none").expect("legal");
        assert_eq!(url.deadline, Some(Duration::from_secs(2)));
        assert_eq!(url.secret, Some(SecretFrom::Nowhere));
        let url = Url::parse("terrace://host?secret=/etc/terrace/secret").expect("legal");
        assert_eq!(url.secret, Some(SecretFrom::File("/etc/terrace/secret".into())));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (address, reason) in [
            ("terrace://", "HOST:PORT"),
            ("terrace://host:x", "port"),
            ("terrace://host/path", "HOST:PORT"),
            ("terrace+unix://relative", "absolute"),
            ("terrace://host?dedline=5s", "deadline=TIME"),
            ("terrace://host?secret=", "secret=FILE"),
            ("terrace://host?deadline=0s", "above zero"),
        ] {
            let error = Url::parse(address).expect_err(address).to_string();
            assert!(error.contains(reason), "{address}: {error}");
        }
    }
}
