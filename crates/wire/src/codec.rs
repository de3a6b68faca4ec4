// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Little-endian fields of fixed length, and texts with their length in front.

use std::ops::Bound;

use terrace_core::{Error, ErrorKind, Key, Result};

/// Appends fields to a list of bytes.
#[derive(Debug)]
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u128(&mut self, value: u128) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(value);
        self
    }

    /// A list of bytes with its length in front; the limits keep it below 64 KiB.
    pub(crate) fn list(&mut self, value: &[u8]) -> &mut Self {
        let length = u16::try_from(value.len()).expect("short lists are below 64 KiB");
        self.u16(length).raw(value)
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.list(value.as_bytes())
    }

    pub(crate) fn key(&mut self, key: &Key) -> &mut Self {
        self.text(key.namespace()).text(key.name())
    }

    pub(crate) fn optional_u64(&mut self, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.u8(1).u64(value),
            None => self.u8(0),
        }
    }

    pub(crate) fn bound(&mut self, bound: &Bound<Vec<u8>>) -> &mut Self {
        match bound {
            Bound::Unbounded => self.u8(0),
            Bound::Included(key) => self.u8(1).list(key),
            Bound::Excluded(key) => self.u8(2).list(key),
        }
    }
}

/// Takes fields off the front of bytes; every length is checked before it is used.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Refuses bytes behind the last field.
    pub(crate) fn end(&self) -> Result<()> {
        match self.bytes {
            [] => Ok(()),
            _ => Err(wrong("it is longer than what it says")),
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or_else(|| wrong("it ends too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("so many were taken"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(wrong("a flag is neither 0 nor 1")),
        }
    }

    pub(crate) fn list(&mut self) -> Result<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.list()?).map_err(|_| wrong("a text is not UTF-8"))
    }

    pub(crate) fn key(&mut self) -> Result<Key> {
        let namespace = self.text()?;
        Key::new(namespace, self.text()?)
    }

    pub(crate) fn optional_u64(&mut self) -> Result<Option<u64>> {
        self.flag()?.then(|| self.u64()).transpose()
    }

    pub(crate) fn bound(&mut self) -> Result<Bound<Vec<u8>>> {
        match self.u8()? {
            0 => Ok(Bound::Unbounded),
            1 => Ok(Bound::Included(self.list()?.to_vec())),
            2 => Ok(Bound::Excluded(self.list()?.to_vec())),
            _ => Err(wrong("a bound is of an unknown kind")),
        }
    }
}

/// A message of a later version.
pub(crate) fn unknown(reason: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, "read a message").because(reason)
}

/// A message that is none.
pub(crate) fn wrong(reason: &'static str) -> Error {
    Error::invalid("read a message", reason)
}
