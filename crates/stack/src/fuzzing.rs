// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the catalog's private formats. Not for anybody else: it may change with
//! every version.

use terrace_core::Result;

use crate::catalog::format::FORMAT_VERSION;
use crate::catalog::header::Header;
use crate::catalog::map::{self, GarbageRow};
use crate::catalog::record::{Record, TierNumbers};
use crate::catalog::versions::{KeptRow, Marker, Version};
use crate::migrate::history;
use crate::shared::promises::PromiseRow;

/// Reads a record, and returns the bytes that it is written as.
pub type Reencode = fn(&[u8]) -> Result<Vec<u8>>;

/// Every kind of record in the catalog.
pub const RECORDS: &[(&str, Reencode)] = &[
    ("object", |bytes| Ok(Record::decode(bytes, &tiers())?.encode(&tiers()))),
    ("header", reencode_header),
    ("garbage", |bytes| Ok(GarbageRow::decode(bytes, &tiers())?.encode(&tiers()))),
    ("superblock", |bytes| Ok(map::encode_superblock(&map::decode_superblock(bytes)?))),
    ("history", reencode_history),
    ("promise", |bytes| Ok(PromiseRow::decode(bytes)?.encode())),
    ("version", |bytes| Ok(Version::decode(0, bytes)?.encode())),
    ("kept", |bytes| Ok(KeptRow::decode(bytes, &tiers())?.encode(&tiers()))),
    ("marker", |bytes| Ok(Marker::decode(bytes)?.encode())),
];

/// A history of the version before is written in the present one; what that says must be the same.
fn reencode_history(bytes: &[u8]) -> Result<Vec<u8>> {
    let again = history::encode(&history::decode(bytes)?);
    if bytes.first() == again.first() {
        return Ok(again);
    }
    assert_eq!(history::encode(&history::decode(&again)?), again);
    Ok(bytes.into())
}

/// A header of the version before is written in the present one; what that says must be the same.
fn reencode_header(bytes: &[u8]) -> Result<Vec<u8>> {
    let header = Header::decode(bytes)?;
    let again = header.encode();
    if header.format == FORMAT_VERSION {
        return Ok(again);
    }
    let upgraded = Header::decode(&again)?;
    assert_eq!(upgraded, Header { format: FORMAT_VERSION, ..header });
    Ok(bytes.into())
}

/// Three tiers; a configuration that was reordered numbers them like this.
fn tiers() -> TierNumbers {
    TierNumbers::new(&[2, 0, 1])
}
