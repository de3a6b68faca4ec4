// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The value of a pair: what is known of a collection or an item beside its name and its id.
//! Specified in `docs/formats/items.md`.

use terrace_core::{Error, ErrorKind, Result};

/// The version that is written.
const VERSION: u8 = 1;

/// Version, time of creation, checksum.
const RECORD_BYTES: usize = 1 + 8 + 4;

/// What a pair says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// When it was written, nanoseconds since 1970 by the clock of its writer.
    pub(crate) created_ns: u64,
}

impl Record {
    /// The bytes of the value.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.created_ns.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a value. Errors: `Corrupt`, `Unsupported` (of a later version).
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |reason: &str| {
            Error::new(ErrorKind::Corrupt, "read the record of an item").because(reason)
        };
        let (body, checksum) =
            bytes.split_last_chunk().ok_or_else(|| corrupt("it is shorter than a checksum"))?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(corrupt("its checksum is another"));
        }
        match body.split_first() {
            Some((&VERSION, created)) => {
                let created = created.try_into().map_err(|_| corrupt("it has another length"))?;
                Ok(Self { created_ns: u64::from_le_bytes(created) })
            }
            Some((&version, _)) if version > VERSION => {
                Err(Error::new(ErrorKind::Unsupported, "read the record of an item")
                    .because("a later version of the command wrote it")
                    .with("version", version))
            }
            _ => Err(corrupt("it has no version")),
        }
    }
}
