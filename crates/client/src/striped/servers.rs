// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file that names the servers of a cluster, for all clients; `docs/how-to/cluster.md`
//! describes it.

use std::collections::BTreeSet;

use serde::Deserialize;
use terrace_core::{Error, Result};

use super::map::{SERVERS_MAX, WEIGHT_MAX};

/// Longest file that is read.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Longest name of a server.
const NAME_BYTES_MAX: usize = 64;

/// The servers of a cluster, as their file has them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerMap {
    /// Counts the changes; a server that is added gets the next number as its `since`.
    pub epoch: u64,
    /// The servers; their order means nothing.
    #[serde(rename = "server")]
    pub servers: Vec<Server>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// What people call it.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Its share of objects that are distributed by weight.
    #[serde(default = "one")]
    pub weight: u32,
    /// The epoch in which it came.
    #[serde(default)]
    pub since: u64,
}

fn one() -> u32 {
    1
}

impl ServerMap {
    /// Reads the text of a file and checks it.
    ///
    /// # Errors
    ///
    /// `Invalid`, with the line where there is one.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > FILE_BYTES_MAX {
            return Err(wrong("it is too long").with("bytes_max", FILE_BYTES_MAX));
        }
        let map: Self = toml::from_str(text).map_err(|error| {
            let refused = wrong(error.message());
            match error.span() {
                Some(span) => {
                    let before = text.get(..span.start).unwrap_or(text);
                    refused.with("line", before.matches('\n').count() + 1)
                }
                None => refused,
            }
        })?;
        map.check()?;
        Ok(map)
    }

    fn check(&self) -> Result<()> {
        if self.servers.is_empty() || self.servers.len() > SERVERS_MAX {
            return Err(wrong("there is no [[server]] or there are too many")
                .with("servers", self.servers.len())
                .with("servers_max", SERVERS_MAX));
        }
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for server in &self.servers {
            let Server { name, address, weight, since } = server;
            let refused = |reason: &str| Err(wrong(reason).with("server", name.escape_debug()));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
                return refused(
                    "a name has up to 64 letters from a to z, digits, `.`, `_` and `-`",
                );
            }
            if address.is_empty() || address.chars().any(char::is_control) {
                return refused("its address is empty or has a control character");
            }
            if !names.insert(name) {
                return refused("two servers have this name");
            }
            if !addresses.insert(address) {
                return refused("its address is that of another server");
            }
            if !(1..=WEIGHT_MAX).contains(weight) {
                return refused("its weight is out of bounds")
                    .map_err(|error| error.with("weight", weight).with("weight_max", WEIGHT_MAX));
            }
            if *since > self.epoch {
                return refused("it came after the epoch of the file; raise `epoch`")
                    .map_err(|error| error.with("since", since).with("epoch", self.epoch));
            }
        }
        Ok(())
    }
}

fn wrong(reason: &str) -> Error {
    Error::invalid("read a server map", reason.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/how-to/cluster.md");

    #[test]
    fn the_documented_file_is_read() {
        let block = DOCUMENT.split("```toml\n").nth(1).expect("the document has a file");
        let map = ServerMap::parse(block.split("```").next().expect("it ends")).expect("legal");
        assert_eq!((map.epoch, map.servers.len()), (1, 3));
        let last = &map.servers[2];
        assert_eq!((last.name.as_str(), last.weight, last.since), ("c", 2, 1));
        assert_eq!((map.servers[0].weight, map.servers[0].since), (1, 0), "the defaults");
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        let server = |rest: &str| format!("epoch = 1\n[[server]]\nname = \"a\"\n{rest}");
        let address = "address = \"h:1\"\n";
        for (text, reason) in [
            ("epoch = 1\nserver = []".into(), "no [[server]]"),
            ("epoch = ".into(), "line=1"),
            (server(""), "address"),
            (server("address = 5"), "line=4"),
            (server(&format!("{address}colour = 1")), "colour"),
            (server(&format!("{address}weight = 0")), "weight=0"),
            (server(&format!("{address}weight = -1")), "line=5"),
            (server(&format!("{address}since = 2")), "raise `epoch`"),
            (server("address = \"\""), "address is empty"),
            (server(&format!("{address}[[server]]\nname = \"a\"\naddress = \"x\"")), "this name"),
            (server(&format!("{address}[[server]]\nname = \"b\"\n{address}")), "another server"),
            (server(address).replace("\"a\"", "\"a b\""), "letters"),
            ("#".repeat(FILE_BYTES_MAX + 1), "too long"),
        ] {
            let error = ServerMap::parse(&text).expect_err("wrong").to_string();
            assert!(error.contains(reason), "{error}");
            assert!(error.len() < 400 && !error.contains('\n'), "{error}");
        }
        let many = |count: usize| {
            let one = |i| format!("[[server]]\nname = \"n{i}\"\naddress = \"h:{i}\"\n");
            format!("epoch = 0\n{}", (0..count).map(one).collect::<String>())
        };
        assert_eq!(ServerMap::parse(&many(SERVERS_MAX)).expect("legal").servers.len(), SERVERS_MAX);
        assert!(ServerMap::parse(&many(SERVERS_MAX + 1)).is_err());
    }
}
