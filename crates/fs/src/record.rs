// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node as the value of a pair. Specified in `docs/formats/fs.md`.

use crate::failure::{Failure, Result};
use crate::node::{Kind, Marks, Node, Place, Time};

/// The version that is written.
const VERSION: u8 = 1;

const HAS_XATTRS: u8 = 1;
const HAS_DEFAULT_ACL: u8 = 1 << 1;
const IS_WRITTEN: u8 = 1 << 2;
const HAS_MARKS: u8 = 1 << 3;
const IN_OBJECT: u8 = 1 << 4;
const MAY_HAVE_OBJECT: u8 = 1 << 5;

/// The bytes of a node's record.
pub(crate) fn encode(node: &Node) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    let flags = [
        (node.has_xattrs, HAS_XATTRS),
        (node.has_default_acl, HAS_DEFAULT_ACL),
        (node.is_written, IS_WRITTEN),
        (!node.marks.is_empty(), HAS_MARKS),
        (node.place == Place::Object, IN_OBJECT),
        (node.may_have_object, MAY_HAVE_OBJECT),
    ];
    bytes.push(VERSION);
    bytes.push(flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, bit)| all | bit));
    for field in [node.mode(), node.user, node.group, node.links, node.device] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    for field in [node.size, node.allocated_bytes, node.settled_ns, node.parent] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    for time in [node.accessed, node.modified, node.changed, node.created] {
        bytes.extend_from_slice(&time.seconds.to_le_bytes());
        bytes.extend_from_slice(&time.nanos.to_le_bytes());
    }
    if !node.marks.is_empty() {
        encode_marks(&node.marks, &mut bytes);
    }
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Optional booleans and lengths: 0 for none.
fn encode_marks(marks: &Marks, bytes: &mut Vec<u8>) {
    let boolean = |value: Option<bool>| value.map_or(0, |value| 1 + u8::from(value));
    bytes.push(boolean(marks.is_movable));
    bytes.push(boolean(marks.is_hot));
    bytes.extend_from_slice(&marks.segment_bytes.unwrap_or(0).to_le_bytes());
    match &marks.pin {
        None => bytes.push(0),
        Some(tier) => {
            // Names of tiers have at most 64 bytes.
            bytes.push(1 + tier.len().min(254) as u8);
            bytes.extend_from_slice(&tier.as_bytes()[..tier.len().min(254)]);
        }
    }
}

/// Reads the record of node `number`.
///
/// # Errors
///
/// `IO` where it is damaged, or of a later version.
pub(crate) fn decode(number: u64, bytes: &[u8]) -> Result<Node> {
    let damaged = || Failure::corrupt(&format!("the record of node {number} has another form"));
    let Some((body, checksum)) = bytes.split_last_chunk() else { return Err(damaged()) };
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(Failure::corrupt(&format!("the record of node {number} has another checksum")));
    }
    let mut reader = Reader(body);
    if reader.u8() != Some(VERSION) {
        return Err(Failure::corrupt(&format!(
            "the record of node {number} is of a version that is not known here"
        )));
    }
    decode_body(number, &mut reader).filter(|_| reader.0.is_empty()).ok_or_else(damaged)
}

/// Whether a value ends with its checksum: what cannot be read then is of another version.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let parts = bytes.split_last_chunk();
    parts.is_some_and(|(body, checksum)| crc32c::crc32c(body) == u32::from_le_bytes(*checksum))
}

fn decode_body(number: u64, reader: &mut Reader<'_>) -> Option<Node> {
    let flags = reader.u8()?;
    let has = |bit| flags & bit != 0;
    let mode = reader.u32()?;
    Some(Node {
        number,
        kind: Kind::from_mode(mode)?,
        permissions: mode & 0o7777,
        user: reader.u32()?,
        group: reader.u32()?,
        links: reader.u32()?,
        device: reader.u32()?,
        size: reader.u64()?,
        allocated_bytes: reader.u64()?,
        settled_ns: reader.u64()?,
        parent: reader.u64()?,
        accessed: reader.time()?,
        modified: reader.time()?,
        changed: reader.time()?,
        created: reader.time()?,
        place: if has(IN_OBJECT) { Place::Object } else { Place::Inline },
        is_written: has(IS_WRITTEN),
        has_xattrs: has(HAS_XATTRS),
        has_default_acl: has(HAS_DEFAULT_ACL),
        marks: if has(HAS_MARKS) { reader.marks()? } else { Marks::default() },
        may_have_object: has(MAY_HAVE_OBJECT),
    })
}

/// Takes fields off the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.chunk().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.chunk().map(u128::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Time> {
        let seconds = self.chunk().map(i64::from_le_bytes)?;
        self.u32().filter(|nanos| *nanos < 1_000_000_000).map(|nanos| Time { seconds, nanos })
    }

    fn boolean(&mut self) -> Option<Option<bool>> {
        match self.u8()? {
            0 => Some(None),
            1 => Some(Some(false)),
            2 => Some(Some(true)),
            _ => None,
        }
    }

    fn marks(&mut self) -> Option<Marks> {
        Some(Marks {
            is_movable: self.boolean()?,
            is_hot: self.boolean()?,
            segment_bytes: Some(self.u64()?).filter(|bytes| *bytes > 0),
            pin: match self.u8()? {
                0 => None,
                length => {
                    let tier = self.take(usize::from(length) - 1)?;
                    Some(std::str::from_utf8(tier).ok()?.into())
                }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        let time = |seconds| Time { seconds, nanos: 999_999_999 };
        Node {
            number: 77,
            kind: Kind::File,
            permissions: 0o4755,
            user: 1000,
            group: 100,
            links: 2,
            device: 0,
            size: 1 << 40,
            allocated_bytes: 4096,
            accessed: time(1),
            modified: time(-2),
            changed: time(3),
            created: time(4),
            parent: 1,
            place: Place::Object,
            is_written: true,
            settled_ns: 5,
            has_xattrs: true,
            has_default_acl: false,
            marks: Marks {
                is_movable: Some(true),
                pin: Some("fast".into()),
                is_hot: Some(false),
                segment_bytes: Some(1 << 20),
            },
            may_have_object: false,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let plain =
            Node { marks: Marks::default(), is_written: false, place: Place::Inline, ..node() };
        let pinned = Node { marks: Marks { pin: Some("".into()), ..Marks::default() }, ..node() };
        let tried = Node { may_have_object: true, ..plain.clone() };
        for node in [node(), plain, pinned, tried] {
            assert_eq!(decode(77, &encode(&node)), Ok(node));
        }
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let good = encode(&node());
        for position in 0..good.len() {
            let mut bad = good.clone();
            bad[position] ^= 1;
            assert!(decode(77, &bad).is_err(), "byte {position}");
            assert!(decode(77, &good[..position]).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut later = encode(&node());
        later[0] = VERSION + 1;
        let body = later.len() - 4;
        let checksum = crc32c::crc32c(&later[..body]).to_le_bytes();
        later[body..].copy_from_slice(&checksum);
        let failure = decode(77, &later).expect_err("the version is not known");
        assert!(failure.text().is_some_and(|text| text.contains("version")), "{failure}");
    }
}
