// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and small documents of what a store keeps in a bucket of its catalog; specified in
//! `docs/formats/shared-log.md`.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use terrace_core::{Error, ErrorKind, Result};

/// The version of the documents.
const FORMAT: u32 = 1;

/// The owner of the store.
pub(crate) const OWNER: &str = "owner";

/// Bits of numbers of objects and files that each term has for itself.
const TERM_BITS: u32 = 48;

/// The owner of a store. Replaced on the condition that it is what was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnerRecord {
    format: u32,
    pub(crate) store: String,
    /// Counts takeovers, from 1.
    pub(crate) term: u16,
    /// Drawn at random by the owner; it is in the store's directory too.
    pub(crate) token: String,
    pub(crate) host: String,
    /// Nanoseconds since 1970.
    pub(crate) taken_ns: u64,
    /// The tier whose bucket has the log; the file in the store's directory keeps the log there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tier: Option<String>,
}

/// Where the catalog of a term begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Root {
    format: u32,
    pub(crate) checkpoint: String,
    /// The log behind it, as 16 hexadecimal digits.
    pub(crate) log: String,
    /// The first object of the term's log that may be needed.
    pub(crate) first: u64,
    pub(crate) bytes: u64,
    /// The owner that comes next has written it again, so that no write under way replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sealed_by_term: Option<u16>,
}

/// The end of the log of a term, written by the owner that comes next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    format: u32,
    pub(crate) sealed_by_term: u16,
    token: String,
}

impl OwnerRecord {
    pub(crate) fn new(store: u128, term: u16, token: String, taken_ns: u64) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().to_string();
        let store = format!("{store:032x}");
        Self { format: FORMAT, store, term, token, host, taken_ns, tier: None }
    }

    /// The same, with the log in the bucket of this tier.
    pub(crate) fn on(self, tier: &str) -> Self {
        Self { tier: Some(tier.into()), ..self }
    }

    pub(crate) fn is_of(&self, store: u128) -> bool {
        self.store == format!("{store:032x}")
    }

    pub(crate) fn store_id(&self) -> Result<u128> {
        u128::from_str_radix(&self.store, 16).map_err(|_| corrupt("the id of the store"))
    }
}

impl Root {
    pub(crate) fn new(checkpoint: String, log: u64, first: u64, bytes: u64) -> Self {
        let log = format!("{log:016x}");
        Self { format: FORMAT, checkpoint, log, first, bytes, sealed_by_term: None }
    }

    /// The root of a term that has no catalog.
    pub(crate) fn none() -> Self {
        Self::new(String::new(), 0, 0, 0)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.checkpoint.is_empty()
    }

    /// The same, of a term that has ended.
    pub(crate) fn sealed(self, owner: &OwnerRecord) -> Self {
        Self { sealed_by_term: Some(owner.term), ..self }
    }
}

impl Seal {
    pub(crate) fn by(owner: &OwnerRecord) -> Self {
        Self { format: FORMAT, sealed_by_term: owner.term, token: owner.token.clone() }
    }

    /// What is in the place of an object of the log, where it is a seal.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// The bytes of a document.
pub(crate) fn encode<T: Serialize>(document: &T) -> Bytes {
    let mut text = serde_json::to_vec_pretty(document).expect("it has only text and numbers");
    text.push(b'\n');
    text.into()
}

/// # Errors
///
/// `Corrupt`.
pub(crate) fn decode<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| corrupt(name).caused_by(error))
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read the shared catalog")
        .because(format!("{what} is not as this version of terrace writes it"))
}

/// What the names of all checkpoints begin with.
pub(crate) const CHECKPOINT: &str = "checkpoint-";

/// What the names of all objects of logs begin with.
pub(crate) const LOG: &str = "log-";

/// The term in the name of a checkpoint or of an object of a log.
pub(crate) fn term(name: &str) -> Option<u16> {
    u16::from_str_radix(name.split('-').nth(1)?, 16).ok()
}

pub(crate) fn root(term: u16) -> String {
    format!("root-{term:04x}")
}

pub(crate) fn checkpoint(term: u16, random: u64) -> String {
    format!("{CHECKPOINT}{term:04x}-{random:016x}")
}

/// What the names of all objects of a term's log begin with.
pub(crate) fn log_prefix(term: u16) -> String {
    format!("{LOG}{term:04x}-")
}

pub(crate) fn log(term: u16, number: u64) -> String {
    format!("{}{number:016x}", log_prefix(term))
}

/// The number in the name of an object of a log.
pub(crate) fn log_number(name: &str) -> Option<u64> {
    u64::from_str_radix(name.rsplit_once('-')?.1, 16).ok()
}

/// The first number of an object or a file that an owner of this term gives out: it is in the names of
/// all files that it creates.
pub(crate) fn first_number(term: u16) -> u64 {
    u64::from(term.saturating_sub(1)) << TERM_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_share_no_number_and_no_name() {
        assert_eq!(first_number(1), 0);
        assert_eq!(first_number(2), 1 << 48);
        assert_eq!(first_number(u16::MAX) >> TERM_BITS, u64::from(u16::MAX) - 1);
        assert_eq!(log(2, 31), "log-0002-000000000000001f");
        assert_eq!(log_number(&log(2, 31)), Some(31));
        assert_eq!([term(&log(2, 31)), term(&checkpoint(513, 7))], [Some(2), Some(513)]);
    }

    #[test]
    fn documents_come_back() {
        let owner = OwnerRecord::new(7, 3, "token".into(), 9);
        assert_eq!(decode::<OwnerRecord>("owner", &encode(&owner)).expect("read"), owner);
        assert_eq!(owner.store_id().expect("legal"), 7);
        let owner = owner.on("cold");
        assert_eq!(decode::<OwnerRecord>("owner", &encode(&owner)).expect("read"), owner);
        assert!(owner.is_of(7) && !owner.is_of(8));
        let root = Root::new("checkpoint-0001-0".into(), 5, 17, 9);
        assert_eq!(decode::<Root>("root", &encode(&root)).expect("read"), root);
        let sealed = root.sealed(&owner);
        assert_eq!(decode::<Root>("root", &encode(&sealed)).expect("read"), sealed);
        assert_eq!((sealed.sealed_by_term, sealed.is_none()), (Some(3), false));
        assert!(Root::none().sealed(&owner).is_none());
        let seal = Seal::by(&owner);
        assert_eq!(Seal::of(&encode(&seal)), Some(seal));
        assert_eq!(Seal::of(b"TERRLOG1"), None);
        assert_eq!(Seal::of(&encode(&owner)), None);
    }
}
