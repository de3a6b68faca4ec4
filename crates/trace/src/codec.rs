// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of variable length, texts and little-endian words.

/// Longest number of variable length: 64 bits in groups of seven.
pub(crate) const NUMBER_BYTES_MAX: usize = 10;

/// Why bytes are not what they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) &'static str);

/// Writes a number at `at` and returns where it ends. Seven bits in each byte, the least
/// significant first; the high bit says that another one follows.
#[inline]
pub(crate) fn put_number(bytes: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        bytes[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    bytes[at] = value as u8;
    at + 1
}

/// A difference as a number that is small for small differences of either sign.
#[inline]
pub(crate) fn fold_sign(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// What [`fold_sign`] was given as `to`.
#[inline]
pub(crate) fn unfold_sign(from: u64, folded: u64) -> u64 {
    from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg())
}

/// Appends fields to a list of bytes.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    pub(crate) bytes: Vec<u8>,
}

impl Encoder {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
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

    pub(crate) fn f64(&mut self, value: f64) -> &mut Self {
        self.u64(value.to_bits())
    }

    pub(crate) fn number(&mut self, value: u64) -> &mut Self {
        let mut small = [0; NUMBER_BYTES_MAX];
        let end = put_number(&mut small, 0, value);
        self.raw(&small[..end])
    }

    /// A list of bytes with its length in front.
    pub(crate) fn list(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u64).raw(value)
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.list(value.as_bytes())
    }

    pub(crate) fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(value);
        self
    }
}

/// Takes fields off the front of bytes; every length is checked before it is used.
#[derive(Clone, Debug)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Wrong> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Wrong> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Wrong> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Wrong> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64, Wrong> {
        self.u64().map(f64::from_bits)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Wrong> {
        let mut value = 0;
        for (index, byte) in self.bytes.iter().take(NUMBER_BYTES_MAX).enumerate() {
            let part = u64::from(byte & 0x7f);
            value |= part << (7 * index);
            if byte & 0x80 == 0 {
                // One value has one form: no zeros on top, nothing above 64 bits.
                let is_padded = part == 0 && index > 0;
                if is_padded || (index == NUMBER_BYTES_MAX - 1 && part > 1) {
                    return Err(Wrong("a number has a form that is never written"));
                }
                self.bytes = &self.bytes[index + 1..];
                return Ok(value);
            }
        }
        Err(Wrong("a number does not end"))
    }

    #[inline]
    pub(crate) fn number_u32(&mut self) -> Result<u32, Wrong> {
        u32::try_from(self.number()?).map_err(|_| Wrong("a number is too large"))
    }

    /// A byte that must be 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, Wrong> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Wrong("a flag is neither 0 nor 1")),
        }
    }

    /// The number of things that follow, each of at least `bytes_min` bytes: so many fit, and no
    /// more are ever allocated.
    pub(crate) fn count(&mut self, bytes_min: usize) -> Result<usize, Wrong> {
        let count = self.number()?;
        let most = self.left() / bytes_min;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= most)
            .ok_or(Wrong("a list is longer than its record"))
    }

    pub(crate) fn list(&mut self) -> Result<&'a [u8], Wrong> {
        let length = self.count(1)?;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Wrong> {
        std::str::from_utf8(self.list()?).map_err(|_| Wrong("a text is not UTF-8"))
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Wrong> {
        let (head, rest) = self.bytes.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.bytes = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let (head, rest) = self.bytes.split_first_chunk::<N>().ok_or(TOO_SHORT)?;
        self.bytes = rest;
        Ok(*head)
    }

    /// Ends reading; anything left over is damage.
    pub(crate) fn finish(self) -> Result<(), Wrong> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Wrong("it is too long")) }
    }
}

const TOO_SHORT: Wrong = Wrong("it is too short");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_form() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut encoder = Encoder::default();
            encoder.number(value);
            let mut decoder = Decoder::new(&encoder.bytes);
            assert_eq!(decoder.number(), Ok(value));
            assert_eq!(decoder.finish(), Ok(()));
        }
        for wrong in [&[0x80, 0][..], &[0x80; 10], &[0x80; 11], &[0xff; 9], &[]] {
            assert!(Decoder::new(wrong).number().is_err(), "{wrong:x?}");
        }
        let mut above = [0xff; 10];
        above[9] = 2;
        assert!(Decoder::new(&above).number().is_err());
    }

    #[test]
    fn a_difference_comes_back_also_over_the_ends() {
        for (from, to) in [(0, 0), (5, 3), (3, 5), (0, u64::MAX), (u64::MAX, 0), (1 << 63, 0)] {
            assert_eq!(unfold_sign(from, fold_sign(from, to)), to);
        }
        assert_eq!([fold_sign(9, 9), fold_sign(9, 8), fold_sign(9, 10)], [0, 1, 2]);
    }

    #[test]
    fn a_length_is_checked_before_it_is_used() {
        let mut encoder = Encoder::default();
        encoder.number(u64::MAX).raw(b"abc");
        assert!(Decoder::new(&encoder.bytes).list().is_err());
        assert!(Decoder::new(&[3, b'a', b'b']).text().is_err());
        assert!(Decoder::new(&[1, 0xff]).text().is_err());
    }
}
