// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files in doubt: older primaries whose bytes the newer ones do not have.
//!
//! After a loss of power in the middle of a migration either may be right, and the catalog that
//! knew is gone. The object uses the newer; the older is kept and accounted until a person removes
//! one of them.

use std::fmt::Display;

use terrace_core::{ErrorKind, Key, Result};

use crate::catalog::format::DOUBTFUL;
use crate::catalog::map::{Catalog, GarbageRow, Write};
use crate::report::Problem;
use crate::shared::Shared;
use crate::tiers::account::Class;

/// Notes a file in doubt.
pub(crate) fn note(row: &GarbageRow, catalog: &Catalog) -> Write<'static> {
    Write::Row(key(row), Some(row.encode(&catalog.tiers)))
}

fn key(row: &GarbageRow) -> Vec<u8> {
    [&[DOUBTFUL][..], &row.place.file.to_be_bytes()].concat()
}

/// All files in doubt: few, if any.
pub(crate) fn rows(catalog: &Catalog) -> Result<Vec<GarbageRow>> {
    let rows = catalog.rows(DOUBTFUL)?;
    rows.iter().map(|(_, value)| GarbageRow::decode(value, &catalog.tiers)).collect()
}

/// Accounts the files in doubt as garbage, and forgets those that a person has removed.
pub(crate) fn account(shared: &Shared) -> Result<()> {
    let mut gone = Vec::new();
    for row in rows(&shared.catalog)? {
        let tier = shared.tier(row.place.tier);
        let bytes = if tier.offline.is_some() {
            row.bytes
        } else {
            match tier.backend.stat(&name(&row)) {
                Ok(stat) => tier.media_bytes(&stat),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    gone.push(Write::Row(key(&row), None));
                    continue;
                }
                Err(_) => row.bytes,
            }
        };
        tier.account.found(Class::Garbage, bytes);
    }
    if gone.is_empty() { Ok(()) } else { shared.catalog.commit(&gone).map(drop) }
}

/// What a check says of a file in doubt.
pub(crate) fn problem(shared: &Shared, row: &GarbageRow) -> Problem {
    let tier = shared.tier(row.place.tier);
    let name = name(row);
    let identity = tier.backend.identity(&name).ok().flatten();
    let Some(identity) = identity else {
        let name = tier.name_of(&name);
        return finding(&tier.name, format!("{name} on {} cannot be read", tier.name));
    };
    let record = shared.catalog.get(&identity.key).ok().flatten();
    let record = record.filter(|record| record.object_id == row.object_id);
    let segments = record.iter().flat_map(|record| &record.segments);
    match segments.into_iter().find(|segment| segment.number == row.segment) {
        Some(segment) => {
            let other = shared.tier(segment.primary.tier);
            let newer = File {
                name: other.name_of(&segment.primary.key(row.object_id, row.segment)),
                tier: &other.name,
                bytes: segment.length_bytes,
            };
            let older = File { name: tier.name_of(&name), tier: &tier.name, bytes: row.bytes };
            differing(&identity.key, &older, &newer)
        }
        None => of_nobody(&identity.key, &tier.name_of(&name), &tier.name),
    }
}

/// One of two files that differ.
pub(crate) struct File<'a> {
    /// What people know it by.
    pub(crate) name: String,
    pub(crate) tier: &'a str,
    pub(crate) bytes: u64,
}

/// The report on two files of one segment.
pub(crate) fn differing(key: &Key, older: &File<'_>, newer: &File<'_>) -> Problem {
    let detail = format!(
        "{} on {}, {} bytes, may have what {} on {}, {} bytes, has lost: compare them and remove \
         the wrong one",
        older.name, older.tier, older.bytes, newer.name, newer.tier, newer.bytes
    );
    finding(key, detail)
}

/// The report on a file in doubt whose object was deleted since.
pub(crate) fn of_nobody(key: &Key, name: &str, tier: &str) -> Problem {
    finding(key, format!("{name} on {tier} is of an object that was deleted: remove it"))
}

fn finding(place: impl Display, detail: String) -> Problem {
    Problem { kind: "doubtful-file".into(), place: place.to_string(), detail }
}

fn name(row: &GarbageRow) -> Key {
    row.place.key(row.object_id, row.segment)
}
