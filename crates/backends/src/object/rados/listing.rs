// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listing a pool. RADOS lists all objects of a namespace in the order of their hashes and knows no
//! prefix. A walk goes over equal parts of all hashes: an object stays in its part, and a part is listed
//! as a whole, in order of the names, so that a cursor is a part and a name.

use std::collections::BTreeSet;

use terrace_core::{Cursor, Error, Key, Page, Result};

use super::Shared;
use super::attributes::parts;

const OPERATION: &str = "list objects";

/// First byte of every cursor.
const CURSOR_TAG: u8 = b'r';

/// Objects of a part on the average.
const PART_OBJECTS: u64 = 512;

/// Most parts, as a power of two: 33 million objects at that average.
const PARTS_LOG_MAX: u8 = 16;

/// Parts of which one page is made at most: of a pool in which few objects match.
const PAGE_PARTS_MAX: usize = 64;

/// Where a walk is.
struct Place<'a> {
    parts_log: u8,
    part: usize,
    /// The name of the last object that was returned of the part.
    after: &'a str,
}

impl<'a> Place<'a> {
    fn read(cursor: &'a Cursor) -> Result<Option<Self>> {
        let bad = |reason: &'static str| {
            Error::invalid(OPERATION, "the cursor was not made by this backend").caused_by(reason)
        };
        let Some((tag, rest)) = cursor.0.split_first() else { return Ok(None) };
        if *tag != CURSOR_TAG {
            return Err(bad("the tag is wrong"));
        }
        let (&parts_log, rest) = rest.split_first().ok_or_else(|| bad("it is too short"))?;
        let (part, name) = rest.split_first_chunk::<4>().ok_or_else(|| bad("it is too short"))?;
        let part = u32::from_le_bytes(*part) as usize;
        if parts_log > PARTS_LOG_MAX || part >= 1 << parts_log {
            return Err(bad("there is no such part"));
        }
        let after = std::str::from_utf8(name).map_err(|_| bad("the name is no UTF-8"))?;
        Ok(Some(Self { parts_log, part, after }))
    }

    fn cursor(&self) -> Cursor {
        let part = (self.part as u32).to_le_bytes();
        Cursor([&[CURSOR_TAG, self.parts_log], &part[..], self.after.as_bytes()].concat())
    }
}

pub(super) fn page(
    shared: &Shared,
    namespace: &str,
    prefix: &str,
    cursor: &Cursor,
    max: usize,
) -> Result<Page> {
    let place = Place::read(cursor)?;
    let mut page = Page::default();
    if max == 0 {
        page.next = Some(cursor.clone());
        return Ok(page);
    }
    let place = match place {
        Some(place) => place,
        None => Place { parts_log: parts_log(shared)?, part: 0, after: "" },
    };
    let parts = 1 << place.parts_log;
    for part in place.part..parts {
        let after = if part == place.part { place.after } else { "" };
        let names = names_of(shared, part, parts, namespace, prefix)?;
        for name in names.into_iter().filter(|name| name.as_str() > after) {
            if page.keys.len() == max {
                let last = page.keys.last().map_or(after, |key| key.name());
                page.next = Some(Place { part, after: last, ..place }.cursor());
                return Ok(page);
            }
            page.keys.push(Key::new(namespace, &name)?);
        }
        let is_enough = page.keys.len() == max || part + 1 - place.part >= PAGE_PARTS_MAX;
        if is_enough && part + 1 < parts {
            page.next = Some(Place { part: part + 1, after: "", ..place }.cursor());
            return Ok(page);
        }
    }
    Ok(page)
}

/// The power of two of parts into which a pool with this many objects is divided. The count of the pool is
/// some seconds old, and also of its other namespaces: parts may be longer or shorter.
fn parts_log(shared: &Shared) -> Result<u8> {
    let stat = shared.pool.stat().map_err(|errno| shared.failed(OPERATION, errno))?;
    let parts = (stat.objects / PART_OBJECTS).max(1).next_power_of_two();
    Ok((parts.ilog2() as u8).min(PARTS_LOG_MAX))
}

/// Names in a part that begin with the prefix, in order.
fn names_of(
    shared: &Shared,
    part: usize,
    parts_count: usize,
    namespace: &str,
    prefix: &str,
) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let listed = shared.pool.list(part, parts_count, |name| {
        if let Some((of, name)) = parts(name)
            && of == namespace
            && name.starts_with(prefix)
        {
            names.insert(name.to_owned());
        }
    });
    listed.map_err(|errno| shared.failed(OPERATION, errno))?;
    Ok(names)
}

pub(super) fn namespaces(shared: &Shared) -> Result<Vec<String>> {
    let mut found = BTreeSet::new();
    let listed = shared.pool.list(0, 1, |name| {
        if let Some((namespace, _)) = parts(name)
            && !found.contains(namespace)
        {
            found.insert(namespace.to_owned());
        }
    });
    listed.map_err(|errno| shared.failed("list namespaces", errno))?;
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use terrace_core::ErrorKind;

    use super::*;

    #[test]
    fn cursors_come_back_and_others_are_refused() {
        let cursor = Place { parts_log: 3, part: 7, after: "é/b" }.cursor();
        let place = Place::read(&cursor).expect("its own").expect("not the start");
        assert_eq!((place.parts_log, place.part, place.after), (3, 7, "é/b"));
        assert!(Place::read(&Cursor::start()).expect("the start").is_none());
        for bytes in [
            &b"x"[..],
            b"r",
            b"r\x03\0\0",
            b"r\x03\x08\0\0\0",
            b"r\x11\0\0\0\0",
            b"r\0\0\0\0\0\xff",
        ] {
            let error = Place::read(&Cursor(bytes.to_vec())).err().expect("refused");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}
