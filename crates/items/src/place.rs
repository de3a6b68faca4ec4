// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where everything is kept: keys of pairs and of objects. Specified in `docs/formats/items.md`.

use terrace_core::Key;

use crate::name::{ID_DIGITS, Id, check_collection, check_item};

/// The namespace of all pairs and objects that items are made of.
pub const NAMESPACE: &str = "terrace.items";

/// The first byte of a collection's pair, and of an item's.
const COLLECTION: u8 = b'c';
const ITEM: u8 = b'i';

/// What the names of objects begin with.
pub(crate) const ITEM_OBJECTS: &str = "item/";
pub(crate) const CLAIM_OBJECTS: &str = "claim/";
const COLLECTION_CLAIMS: &str = "claim/collection/";
const ITEM_CLAIMS: &str = "claim/item/";

/// The pairs of one kind in one place: all collections, or the items of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shelf {
    /// What their keys begin with, before the name.
    head: Vec<u8>,
}

impl Shelf {
    /// All collections.
    pub(crate) fn collections() -> Self {
        Self { head: vec![COLLECTION] }
    }

    /// The items of a collection.
    pub(crate) fn items(collection: Id) -> Self {
        let mut head = vec![ITEM];
        head.extend_from_slice(collection.to_string().as_bytes());
        Self { head }
    }

    /// What the keys of names with this prefix begin with.
    pub(crate) fn prefix(&self, prefix: &str) -> Vec<u8> {
        [&self.head, prefix.as_bytes()].concat()
    }

    /// What the keys of everything with this name begin with.
    pub(crate) fn named(&self, name: &str) -> Vec<u8> {
        [&self.head, name.as_bytes(), b"\0"].concat()
    }

    /// The key of a pair.
    pub(crate) fn key(&self, name: &str, id: Id) -> Vec<u8> {
        [&self.head, name.as_bytes(), b"\0", id.to_string().as_bytes()].concat()
    }

    /// Behind everything with this name, and before every other name.
    pub(crate) fn behind(&self, name: &str) -> Vec<u8> {
        // No id has this byte.
        [&self.head, name.as_bytes(), b"\0\xff"].concat()
    }

    /// Name and id in a key; `None` for one that nothing here wrote.
    pub(crate) fn parse<'a>(&self, key: &'a [u8]) -> Option<(&'a str, Id)> {
        let rest = std::str::from_utf8(key.strip_prefix(self.head.as_slice())?).ok()?;
        let (name, id) = rest.split_once('\0')?;
        let is_legal = match self.head[0] {
            COLLECTION => check_collection(name).is_ok(),
            _ => check_item(name).is_ok(),
        };
        let id = Id::parse(id)?;
        is_legal.then_some((name, id))
    }
}

/// What all keys of items begin with, whatever their collection.
pub(crate) fn all_items() -> Vec<u8> {
    vec![ITEM]
}

/// The collection of an item's pair.
pub(crate) fn collection_of(key: &[u8]) -> Option<Id> {
    let id = key.strip_prefix(&[ITEM])?.get(..ID_DIGITS)?;
    Id::parse(std::str::from_utf8(id).ok()?)
}

/// An item as the name of its object says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemObject {
    pub(crate) collection: Id,
    pub(crate) id: Id,
    pub(crate) name: String,
}

impl ItemObject {
    /// The key of the object.
    pub(crate) fn key(&self) -> Key {
        let Self { collection, id, name } = self;
        object(&format!("{ITEM_OBJECTS}{collection}/{id}/{name}"))
    }

    /// Reads the name of an object; `None` for one that nothing here wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (collection, rest) = text.strip_prefix(ITEM_OBJECTS)?.split_once('/')?;
        let (id, name) = rest.split_once('/')?;
        let (collection, id) = (Id::parse(collection)?, Id::parse(id)?);
        check_item(name).ok()?;
        Some(Self { collection, id, name: name.into() })
    }
}

/// The object that a caller that makes or deletes a collection of this name holds meanwhile.
pub(crate) fn collection_claim(name: &str) -> Key {
    object(&format!("{COLLECTION_CLAIMS}{name}"))
}

/// The object that a caller that makes an item of this name holds meanwhile.
pub(crate) fn item_claim(collection: Id, name: &str) -> Key {
    object(&format!("{ITEM_CLAIMS}{collection}/{name}"))
}

/// Whether an object is a claim.
pub(crate) fn is_claim(name: &str) -> bool {
    if let Some(collection) = name.strip_prefix(COLLECTION_CLAIMS) {
        return check_collection(collection).is_ok();
    }
    let parts = name.strip_prefix(ITEM_CLAIMS).and_then(|rest| rest.split_once('/'));
    parts.is_some_and(|(id, item)| Id::parse(id).is_some() && check_item(item).is_ok())
}

fn object(name: &str) -> Key {
    Key::new(NAMESPACE, name).expect("a checked name and two ids are shorter than a key may be")
}
