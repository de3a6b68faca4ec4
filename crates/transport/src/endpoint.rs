// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a server listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use terrace_core::{Error, Result};

/// The default port of a server. Not assigned to anything by IANA.
pub const PORT_DEFAULT: u16 = 7420;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `HOST:PORT`, or `HOST` with the default port; an IPv6 address in brackets.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// 0 for a free one, where a server listens.
        port: u16,
    },
    /// A socket in the file system, `unix:PATH`.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason: &str| {
            Err(Error::invalid("read an address", reason).with("address", format!("{text:?}")))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => wrong("a path is expected behind `unix:`"),
                path => Ok(Endpoint::Unix(path.into())),
            };
        }
        let (host, rest) = match text.strip_prefix('[') {
            Some(inner) => match inner.split_once(']') {
                Some((host, rest)) => (host, rest),
                None => return wrong("a `]` is missing"),
            },
            None => match text.find(':') {
                Some(at) => text.split_at(at),
                None => (text, ""),
            },
        };
        let is_legal = |letter: char| !letter.is_whitespace() && !letter.is_control();
        if host.is_empty() || !host.chars().all(is_legal) || host.contains(['/', ',', '@', '?']) {
            return wrong("HOST:PORT is expected; an IPv6 address is put in brackets");
        }
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => PORT_DEFAULT,
            Some(port) if port.bytes().all(|digit| digit.is_ascii_digit()) => match port.parse() {
                Ok(port) => port,
                Err(_) => return wrong("a port is a number from 0 to 65535"),
            },
            _ => {
                return wrong(
                    "a port is a number from 0 to 65535; an IPv6 address is put in brackets",
                );
            }
        };
        Ok(Endpoint::Tcp { host: host.into(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_prints_as_it_is_read() {
        for text in ["host:7", "127.0.0.1:0", "[::1]:65535", "unix:/run/terrace.sock"] {
            assert_eq!(text.parse::<Endpoint>().expect("legal").to_string(), text);
        }
        assert_eq!("host".parse::<Endpoint>().expect("legal").to_string(), "host:7420");
        assert_eq!("[::1]".parse::<Endpoint>().expect("legal").to_string(), "[::1]:7420");
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for text in [
            "",
            ":7",
            "host:",
            "host:x",
            "host:65536",
            "::1",
            "[::1",
            "[]:7",
            "a b:7",
            "unix:",
            "a/b:7",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
