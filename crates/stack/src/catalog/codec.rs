// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Little-endian records with a version in front and a CRC-32C behind.

use std::ops::RangeInclusive;

use terrace_core::{Error, ErrorKind, Result};

/// Room for most records, so that they are allocated once.
const USUAL_BYTES: usize = 128;

/// Builds a record.
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Starts a record of this version.
    pub(crate) fn new(version: u8) -> Self {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        bytes.push(version);
        Self { bytes }
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u128(&mut self, value: u128) -> &mut Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u32(value.len() as u32);
        self.bytes.extend(value);
        self
    }

    /// Appends the checksum and returns the record.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let checksum = crc32c::crc32c(&self.bytes);
        self.u32(checksum);
        self.bytes
    }
}

/// Takes a record apart; every length is checked before it is used.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Checks version and checksum.
    ///
    /// # Errors
    ///
    /// `Corrupt`; `Unsupported` for a version that is newer than this program.
    pub(crate) fn new(bytes: &'a [u8], version: u8, what: &'static str) -> Result<Self> {
        Self::with_versions(bytes, version..=version, what).map(|(reader, _)| reader)
    }

    /// The same for a record that has one of several versions; also which.
    pub(crate) fn with_versions(
        bytes: &'a [u8],
        versions: RangeInclusive<u8>,
        what: &'static str,
    ) -> Result<(Self, u8)> {
        let short = || corrupt(what, "it is too short");
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or_else(short)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(corrupt(what, "its checksum is wrong"));
        }
        let (found, rest) = body.split_first().ok_or_else(short)?;
        if !versions.contains(found) {
            return Err(Error::new(ErrorKind::Unsupported, "read a catalog record")
                .because("its format is of another version of terrace")
                .with("record", what)
                .with("found", found)
                .with("expected", versions.end()));
        }
        Ok((Self { bytes: rest, what }, *found))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// A byte that is 0 or 1: a record has one encoding only.
    pub(crate) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("a flag is neither 0 nor 1")),
        }
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128> {
        self.take().map(u128::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let text = self.bytes()?;
        String::from_utf8(text.to_vec()).map_err(|_| self.wrong("a text is not UTF-8"))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()? as usize;
        let Some((bytes, rest)) = self.bytes.split_at_checked(length) else {
            return Err(self.wrong("a text is longer than the record"));
        };
        self.bytes = rest;
        Ok(bytes)
    }

    /// Ends reading; anything left over is damage.
    pub(crate) fn finish(self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.wrong("it is too long")) }
    }

    pub(crate) fn wrong(&self, reason: &str) -> Error {
        corrupt(self.what, reason)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) =
            self.bytes.split_first_chunk::<N>().ok_or_else(|| self.wrong("it is too short"))?;
        self.bytes = rest;
        Ok(*head)
    }
}

pub(crate) fn corrupt(what: &'static str, reason: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read a catalog record").because(reason).with("record", what)
}
