// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is fixed when a file system is made, and its lowest free number, as bytes.

use crate::failure::{Failure, Result};
use crate::node::ROOT;
use crate::record::Reader;

/// The version that is written.
const VERSION: u8 = 1;

/// Longest content that may be asked to be kept with the metadata.
pub const INLINE_BYTES_LIMIT: u32 = 64 << 10;

/// The value of the pair of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) id: u128,
    /// Key of the hash of names: without it names with one hash cannot be made.
    pub(crate) seed: u128,
    pub(crate) inline_bytes_max: u32,
    /// The lowest number that was not taken.
    pub(crate) next_number: u64,
}

impl Superblock {
    /// That of an empty file system.
    pub(crate) fn new(inline_bytes_max: u32, entropy: &[u8; 32]) -> Self {
        let (id, seed) = entropy.split_at(16);
        let wide = |bytes: &[u8]| u128::from_le_bytes(bytes.try_into().expect("half of 32 bytes"));
        Self { id: wide(id), seed: wide(seed), inline_bytes_max, next_number: ROOT + 1 }
    }

    /// The value of the pair.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        bytes.extend_from_slice(&self.inline_bytes_max.to_le_bytes());
        bytes.extend_from_slice(&self.next_number.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the value of the pair. Errors: `IO` where it is damaged, or of a later version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || Failure::corrupt("the superblock has another form or checksum");
        let (body, checksum) = bytes.split_last_chunk().ok_or_else(damaged)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(damaged());
        }
        let mut reader = Reader(body);
        match reader.u8() {
            Some(VERSION) => {}
            Some(version) => {
                return Err(Failure::corrupt(&format!("version {version} is not known here")));
            }
            None => return Err(damaged()),
        }
        let found = (|| {
            Some(Self {
                id: reader.u128()?,
                seed: reader.u128()?,
                inline_bytes_max: reader.u32()?,
                next_number: reader.u64()?,
            })
        })();
        found.filter(|_| reader.0.is_empty()).ok_or_else(damaged)
    }
}
