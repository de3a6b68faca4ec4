// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vectors of `docs/formats/fs.md`, in both directions.

use crate::entries::{Bucket, hash};
use crate::node::{Kind, Marks, Node, Place, ROOT, Time, object_key};
use crate::stores::{Belonging, KnownStore, decode_record, encode_record};
use crate::superblock::Superblock;
use crate::{pairs, record};

const DOCUMENT: &str = include_str!("../../../docs/formats/fs.md");

/// The key of the hash of names, as its bytes are written.
const SEED: u128 = u128::from_be_bytes([
    0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00,
]);

const NUMBER: u64 = 4097;

/// The value behind a word of the vectors.
fn vector(word: &str) -> &'static str {
    let block = DOCUMENT.split("```vectors\n").nth(1).expect("the document has vectors");
    let lines = block.lines().take_while(|line| *line != "```");
    let find = |line: &'static str| line.split_once(' ').filter(|(first, _)| *first == word);
    lines.filter_map(find).next().expect("the word has a vector").1.trim_start()
}

fn bytes(word: &str) -> Vec<u8> {
    let digits = vector(word);
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn node() -> Node {
    let time = |seconds| Time { seconds, nanos: 5 };
    Node {
        number: NUMBER,
        kind: Kind::File,
        permissions: 0o644,
        user: 1000,
        group: 100,
        links: 2,
        device: 0,
        size: 10_000,
        allocated_bytes: 12_288,
        accessed: time(1),
        modified: time(2),
        changed: time(3),
        created: time(4),
        parent: ROOT,
        place: Place::Object,
        is_written: false,
        settled_ns: 2_000_000_005,
        has_xattrs: true,
        has_default_acl: false,
        marks: Marks::default(),
        may_have_object: false,
    }
}

#[test]
fn a_superblock_is_as_the_document_says() {
    let superblock = Superblock { id: 1, seed: SEED, inline_bytes_max: 4096, next_number: 8193 };
    assert_eq!(hex(&superblock.encode()), vector("superblock"));
    assert_eq!(Superblock::decode(&bytes("superblock")), Ok(superblock));
}

#[test]
fn servers_are_as_the_document_says() {
    let id = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
    let keeper = KnownStore::new(id, "node1:7420");
    let servers = vec![keeper.clone(), KnownStore::new(1, "b")];
    assert_eq!(hex(&encode_record(&servers)), vector("servers"));
    assert_eq!(decode_record(&bytes("servers")), Ok(servers));
    let mark = Belonging { file_system: 1, keeper };
    assert_eq!(hex(&mark.encode()), vector("mark"));
    assert_eq!(Belonging::decode(&bytes("mark")), Ok(mark));
}

#[test]
fn a_record_is_as_the_document_says() {
    let marks = Marks {
        is_movable: Some(true),
        pin: Some("fast".into()),
        is_hot: Some(false),
        segment_bytes: Some(1 << 20),
    };
    for (word, node) in [("node", node()), ("marked", Node { marks, ..node() })] {
        assert_eq!(hex(&record::encode(&node)), vector(word));
        assert_eq!(record::decode(NUMBER, &bytes(word)), Ok(node));
    }
}

#[test]
fn entries_are_as_the_document_says() {
    let mut bucket = Bucket::default();
    bucket.add(b"t2m.nc", NUMBER, Kind::File).expect("there is room");
    assert_eq!(hex(&bucket.encode().expect("it has an entry")), vector("entry"));
    assert_eq!(Bucket::decode(&bytes("entry")), Ok(bucket));
    let at = hash(SEED, b"t2m.nc");
    assert_eq!(hex(&pairs::entry(ROOT, at)), vector("entry-key"));
    let key = bytes("entry-key");
    assert_eq!((pairs::number_of(&key), pairs::hash_of(&key)), (Some(ROOT), Some(at)));
}

#[test]
fn keys_are_as_the_document_says() {
    let xattr = pairs::xattr(NUMBER, b"user.colour");
    for (word, key) in [
        ("node-key", pairs::node(NUMBER)),
        ("xattr-key", xattr),
        ("content-key", pairs::content(NUMBER)),
        ("nameless", pairs::nameless(NUMBER)),
        ("garbage", pairs::garbage(NUMBER)),
    ] {
        assert_eq!(hex(&key), vector(word));
        assert_eq!(pairs::number_of(&bytes(word)), Some(NUMBER));
    }
    assert_eq!(pairs::xattr_name(&bytes("xattr-key")), b"user.colour");
    assert_eq!(object_key("files", NUMBER).expect("a key").name(), vector("object"));
}
