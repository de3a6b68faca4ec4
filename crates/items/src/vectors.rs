// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vectors of `docs/formats/items.md`, in both directions.

use crate::name::Id;
use crate::place::{ItemObject, Shelf, collection_claim, collection_of, is_claim, item_claim};
use crate::record::Record;

const DOCUMENT: &str = include_str!("../../../docs/formats/items.md");

/// The value behind a word of the vectors.
fn vector(word: &str) -> &'static str {
    let block = DOCUMENT.split("```vectors\n").nth(1).expect("the document has vectors");
    let lines = block.lines().take_while(|line| *line != "```");
    let find = |line: &'static str| line.split_once(' ').filter(|(first, _)| *first == word);
    lines.filter_map(find).next().expect("the word has a vector").1.trim_start()
}

fn id(word: &str) -> Id {
    Id::parse(vector(word)).expect("it is an id")
}

#[test]
fn a_collection_is_where_the_document_says() {
    let shelf = Shelf::collections();
    let key = shelf.key("climate", id("collection-id"));
    assert_eq!(key.escape_ascii().to_string(), vector("collection-pair"));
    assert_eq!(shelf.parse(&key), Some(("climate", id("collection-id"))));
    assert_eq!(collection_claim("climate").as_str(), vector("collection-claim"));
}

#[test]
fn an_item_is_where_the_document_says() {
    let (collection, item) = (id("collection-id"), id("item-id"));
    let key = Shelf::items(collection).key("t2m/1", item);
    assert_eq!(key.escape_ascii().to_string(), vector("item-pair"));
    assert_eq!(collection_of(&key), Some(collection));
    assert_eq!(Shelf::items(collection).parse(&key), Some(("t2m/1", item)));
    let object = ItemObject { collection, id: item, name: "t2m/1".into() };
    assert_eq!(object.key().as_str(), vector("item-object"));
    assert_eq!(ItemObject::parse(object.key().name()), Some(object));
    let claim = item_claim(collection, "t2m/1");
    assert_eq!(claim.as_str(), vector("item-claim"));
    assert!(is_claim(claim.name()));
}

#[test]
fn a_record_is_as_the_document_says() {
    let record = Record { created_ns: 1_700_000_000_000_000_000 };
    let bytes = record.encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, vector("record"));
    assert_eq!(Record::decode(&bytes).expect("its own"), record);
    for cut in 0..bytes.len() {
        Record::decode(&bytes[..cut]).expect_err("it was cut");
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        Record::decode(&changed).expect_err("a bit was changed");
    }
}

#[test]
fn the_longest_names_are_legal_everywhere() {
    let id = id("item-id");
    let name = "x".repeat(crate::ITEM_NAME_BYTES_MAX);
    let object = ItemObject { collection: id, id, name: name.clone() };
    assert!(object.key().name().len() <= terrace_core::NAME_BYTES_MAX);
    item_claim(id, &name);
    collection_claim(&"c".repeat(terrace_core::NAMESPACE_BYTES_MAX));
    // What the catalog puts before a pair's key is shorter than this and the namespace.
    let head_bytes = 40 + crate::NAMESPACE.len();
    let key = Shelf::items(id).key(&name, id);
    assert!(head_bytes + key.len() <= terrace_core::KV_KEY_BYTES_MAX);
}
