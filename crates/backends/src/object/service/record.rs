// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept of an object beside its bytes: in its metadata as it was written, and in an object of
//! its own once it was changed. Specified in `docs/formats/s3-tier.md`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use terrace_core::{Error, ErrorKind, Identity, Result};

use crate::object::file::identity;

/// First byte.
const VERSION: u8 = 1;

/// The attributes of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) created_ns: u64,
    pub(crate) modified_ns: u64,
    pub(crate) identity: Option<Identity>,
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.created_ns.to_le_bytes());
        bytes.extend_from_slice(&self.modified_ns.to_le_bytes());
        if let Some(identity) = &self.identity {
            bytes.extend_from_slice(&identity::encode(identity));
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// # Errors
    ///
    /// `Corrupt`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |reason: &'static str| {
            Error::new(ErrorKind::Corrupt, "read the attributes of an object").because(reason)
        };
        let (body, checksum) =
            bytes.split_last_chunk::<4>().ok_or_else(|| corrupt("they are too short"))?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(corrupt("their checksum is wrong"));
        }
        let cut = || corrupt("they end too early");
        let (&version, rest) = body.split_first().ok_or_else(cut)?;
        if version != VERSION {
            return Err(corrupt("their version is not known").with("version", version));
        }
        let (created_ns, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
        let (modified_ns, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
        Ok(Self {
            created_ns: u64::from_le_bytes(*created_ns),
            modified_ns: u64::from_le_bytes(*modified_ns),
            identity: match rest {
                [] => None,
                rest => Some(identity::decode(rest)?),
            },
        })
    }

    /// For the metadata of an object.
    pub(crate) fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.encode())
    }

    /// # Errors
    ///
    /// `Corrupt`.
    pub(crate) fn from_text(text: &str) -> Result<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            Error::new(ErrorKind::Corrupt, "read the attributes of an object").caused_by(error)
        })?;
        Self::decode(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::{Key, LABEL_BYTES_MAX, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, Role};

    use super::*;

    /// Most bytes that S3 takes as metadata of an object, names included.
    const METADATA_BYTES_MAX: usize = 2048;

    #[test]
    fn attributes_come_back_and_fit_the_metadata() {
        let key = Key::new(&"n".repeat(NAMESPACE_BYTES_MAX), &"o".repeat(NAME_BYTES_MAX));
        let identity = Identity {
            store_id: u128::MAX,
            object_id: u64::MAX,
            segment: u32::MAX,
            start_bytes: u64::MAX,
            generation: u64::MAX,
            epoch: u64::MAX,
            role: Role::Copy,
            key: key.expect("legal"),
            label: Some(vec![7; LABEL_BYTES_MAX].into()),
        };
        for identity in [None, Some(identity)] {
            let record = Record { created_ns: u64::MAX, modified_ns: 5, identity };
            let text = record.to_text();
            assert!(text.len() < METADATA_BYTES_MAX - 100, "{}", text.len());
            assert_eq!(Record::from_text(&text).expect("whole"), record);
        }
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = Record { created_ns: 1, modified_ns: 2, identity: None }.encode();
        for cut in 0..bytes.len() {
            assert!(Record::decode(&bytes[..cut]).is_err());
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(Record::decode(&bytes).is_err());
        }
    }
}
