// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers in the text of a page: one to two characters each where they are small.

/// The alphabet of base64 (RFC 4648, section 4).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Numbers in groups of seven bits, the least significant first, the high bit set in all but the last, as base64.
/// Empty where all are 0.
pub(super) fn packed(numbers: impl Iterator<Item = u64>) -> String {
    let mut bytes = Vec::new();
    let mut all = 0;
    for number in numbers {
        all |= number;
        let mut rest = number;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    if all == 0 { String::new() } else { base64(&bytes) }
}

/// Numbers that ascend, each as the difference to the one before.
pub(super) fn packed_ascending(numbers: impl Iterator<Item = u64>) -> String {
    let mut before = 0;
    packed(numbers.map(move |number| number - std::mem::replace(&mut before, number)))
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let sextet = ALPHABET[(bits >> (18 - 6 * index)) as usize & 63];
            text.push(if index <= chunk.len() { char::from(sextet) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_rfc_4648_has_it() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn numbers_are_packed_by_seven_bits() {
        assert_eq!(packed([0, 0].into_iter()), "");
        assert_eq!(packed([1, 300].into_iter()), base64(&[1, 0xac, 2]));
        assert_eq!(packed_ascending([5, 5, 305].into_iter()), base64(&[5, 0, 0xac, 2]));
        assert_eq!(packed(std::iter::once(u64::MAX)).len(), 16, "ten bytes");
    }
}
