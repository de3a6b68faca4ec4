// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of an identity, kept as the extended attribute `user.terrace` of an object's file.
//!
//! Specified, with a test vector, in `docs/formats/identity.md`.

use terrace_core::{Error, ErrorKind, Identity, Key, LABEL_BYTES_MAX, Result, Role};

/// First byte; another one is a format that this program does not know.
const VERSION: u8 = 1;

/// First byte where there is a label: what cannot keep it refuses the whole.
const VERSION_LABELLED: u8 = 2;

/// Longest encoded identity: every number at its widest, the longest label and the longest key.
pub(super) const IDENTITY_BYTES_MAX: usize =
    2 + 16 + 5 * 10 + 2 + LABEL_BYTES_MAX + KEY_BYTES_MAX + 4;

const KEY_BYTES_MAX: usize = terrace_core::NAMESPACE_BYTES_MAX + 1 + terrace_core::NAME_BYTES_MAX;

pub(in crate::object) fn encode(identity: &Identity) -> Vec<u8> {
    let label = identity.label.as_deref().unwrap_or_default();
    let mut bytes = Vec::with_capacity(64 + label.len() + identity.key.as_str().len());
    let version = if label.is_empty() { VERSION } else { VERSION_LABELLED };
    bytes.extend_from_slice(&[version, role_number(identity.role)]);
    bytes.extend_from_slice(&identity.store_id.to_le_bytes());
    push_number(&mut bytes, identity.object_id);
    push_number(&mut bytes, identity.segment.into());
    push_number(&mut bytes, identity.start_bytes);
    push_number(&mut bytes, identity.generation);
    push_number(&mut bytes, identity.epoch);
    if !label.is_empty() {
        push_number(&mut bytes, label.len() as u64);
        bytes.extend_from_slice(label);
    }
    bytes.extend_from_slice(identity.key.as_str().as_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

pub(in crate::object) fn decode(bytes: &[u8]) -> Result<Identity> {
    let (body, checksum) =
        bytes.split_last_chunk::<4>().ok_or_else(|| corrupt("it is too short"))?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(corrupt("its checksum is wrong"));
    }
    let cut = || corrupt("it ends too early");
    let (&[version, role], rest) = body.split_first_chunk::<2>().ok_or_else(cut)?;
    if version != VERSION && version != VERSION_LABELLED {
        return Err(corrupt("its version is not known").with("version", version));
    }
    let (store_id, mut rest) = rest.split_first_chunk::<16>().ok_or_else(cut)?;
    let mut number = || take_number(&mut rest).ok_or_else(|| corrupt("a number is not valid"));
    let (object_id, segment, start_bytes) = (number()?, number()?, number()?);
    let (generation, epoch) = (number()?, number()?);
    let mut label = None;
    if version == VERSION_LABELLED {
        let length = number()?;
        let is_legal = (1..=LABEL_BYTES_MAX as u64).contains(&length);
        let taken = rest.split_at_checked(length as usize).filter(|_| is_legal);
        let (bytes, key) = taken.ok_or_else(|| corrupt("the label has a wrong length"))?;
        (label, rest) = (Some(bytes.into()), key);
    }
    let key = std::str::from_utf8(rest).map_err(|source| corrupt("bad key").caused_by(source))?;
    Ok(Identity {
        store_id: u128::from_le_bytes(*store_id),
        object_id,
        segment: u32::try_from(segment).map_err(|_| corrupt("the segment is out of bounds"))?,
        start_bytes,
        generation,
        epoch,
        role: ROLES.get(usize::from(role)).copied().ok_or_else(|| corrupt("unknown role"))?,
        key: Key::parse(key).map_err(|source| corrupt("bad key").caused_by(source))?,
        label,
    })
}

const ROLES: [Role; 4] = [Role::Partial, Role::Primary, Role::Copy, Role::Dead];

fn role_number(role: Role) -> u8 {
    match role {
        Role::Partial => 0,
        Role::Primary => 1,
        Role::Copy => 2,
        Role::Dead => 3,
    }
}

/// Seven bits a byte, the least first; the high bit says that more follow. With small numbers and
/// a short key the whole fits beside a 256-byte inode of ext4 and takes no block of its own.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        // Too wide; or longer than it need be, while a number has one encoding only.
        if bits << shift >> shift != bits || byte == 0 && shift > 0 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn corrupt(reason: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, "read an identity").because(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../../docs/formats/identity.md");

    fn example() -> Identity {
        Identity {
            store_id: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            object_id: 300,
            segment: 1,
            start_bytes: 1 << 30,
            generation: 70_000,
            epoch: 3,
            role: Role::Primary,
            key: Key::parse("climate/t2m").expect("legal"),
            label: None,
        }
    }

    fn labelled() -> Identity {
        Identity { label: Some([1, 0, 0xff].into()), ..example() }
    }

    #[test]
    fn the_documented_vectors_are_made_and_read_back() {
        let mut blocks = DOCUMENT.split("```vector\n").skip(1);
        for identity in [example(), labelled()] {
            let bytes = encode(&identity);
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let block = blocks.next().expect("the document has two vectors");
            let vector: String =
                block.split("```").next().expect("it ends").split_whitespace().collect();
            assert_eq!(hex, vector);
            assert_eq!(decode(&bytes).expect("own bytes"), identity);
        }
    }

    #[test]
    fn the_widest_identity_is_within_its_bound() {
        let widest = Identity {
            object_id: u64::MAX,
            segment: u32::MAX,
            start_bytes: u64::MAX,
            generation: u64::MAX,
            epoch: u64::MAX,
            role: Role::Dead,
            key: Key::new(&"n".repeat(64), &"x".repeat(400)).expect("legal"),
            label: Some(vec![0xff; LABEL_BYTES_MAX].into()),
            ..example()
        };
        let bytes = encode(&widest);
        assert!(bytes.len() <= IDENTITY_BYTES_MAX);
        assert_eq!(decode(&bytes).expect("own bytes"), widest);
    }

    #[test]
    fn no_damage_goes_unnoticed_or_panics() {
        for bytes in [encode(&example()), encode(&labelled())] {
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]).expect_err("cut").kind(), ErrorKind::Corrupt);
            }
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    assert_eq!(decode(&damaged).expect_err("damaged").kind(), ErrorKind::Corrupt);
                }
            }
        }
    }

    #[test]
    fn wrong_fields_behind_a_right_checksum_are_refused() {
        let refused_of = |of: &Identity, change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = encode(of);
            bytes.truncate(bytes.len() - 4);
            change(&mut bytes);
            bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
            decode(&bytes).expect_err("wrong").kind() == ErrorKind::Corrupt
        };
        let refused = |change: &dyn Fn(&mut Vec<u8>)| refused_of(&example(), change);
        assert!(refused(&|bytes| bytes[0] = 3), "version");
        assert!(refused_of(&labelled(), &|bytes| bytes[0] = 1), "a label where there is none");
        let label_at = |bytes: &[u8]| {
            let at = bytes.windows(4).position(|four| four == [3, 1, 0, 0xff]);
            at.expect("the label")
        };
        for length in [0, 0x7f] {
            let change = |bytes: &mut Vec<u8>| {
                let at = label_at(bytes);
                bytes[at] = length;
            };
            assert!(refused_of(&labelled(), &change), "a label of {length} bytes");
        }
        assert!(refused(&|bytes| bytes[1] = 9), "role");
        assert!(refused(&|bytes| bytes.truncate(18)), "no numbers");
        assert!(refused(&|bytes| bytes[18..].fill(0xff)), "endless number");
        let longer = |bytes: &mut Vec<u8>| {
            assert_eq!(bytes[18..20], [0xac, 2]);
            bytes.splice(19..20, [0x82, 0]);
        };
        assert!(refused(&longer), "a number that is longer than it need be; found by fuzzing");
        assert!(refused(&|bytes| bytes.retain(|byte| *byte != b'/')), "no namespace");
        assert!(refused(&|bytes| *bytes.last_mut().expect("some") = 0xff), "not UTF-8");
    }
}
