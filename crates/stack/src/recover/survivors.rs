// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which objects may be written past the store, for the process that opens it next.
//!
//! What a kernel has open outlives the process that held it, but not the machine. So a row is
//! written before a file is held for writing, no more durably than a crash of the process asks
//! for, and means something to openings of the same boot alone.

use std::sync::Arc;

use terrace_core::{Key, Result};

use crate::catalog::codec::{Reader, Writer, corrupt};
use crate::catalog::map::Write;
use crate::memory::entry::Entry;
use crate::shared::Shared;

const WRITTEN: u8 = b'w';
const VERSION: u8 = 1;

fn row_key(object_id: u64) -> Vec<u8> {
    [&[WRITTEN][..], &object_id.to_be_bytes()].concat()
}

/// Notes that an object may be written past the store from now on.
pub(crate) fn note(shared: &Shared, entry: &Entry) -> Result<()> {
    let mut out = Writer::new(VERSION);
    out.u64(shared.boot).text(entry.key.as_str());
    let row = Write::Row(row_key(entry.object_id), Some(out.finish()));
    shared.catalog.commit(&[row]).map(drop)
}

/// Notes that it may not be any more.
pub(crate) fn forget(shared: &Shared, object_id: u64) -> Result<()> {
    shared.catalog.commit(&[Write::Row(row_key(object_id), None)]).map(drop)
}

/// Holds what a process of this boot held for writing when it ended, until it can no longer be written to;
/// how many objects that are.
pub(crate) fn adopt(shared: &Shared) -> Result<u64> {
    let (mut adopted, mut gone) = (0, Vec::new());
    for (row, value) in shared.catalog.rows(WRITTEN)? {
        match find(shared, &row, &value)? {
            Some(entry) => {
                shared.hold_left(&entry);
                adopted += 1;
            }
            None => gone.push(Write::Row(row, None)),
        }
    }
    if !gone.is_empty() {
        shared.catalog.commit(&gone)?;
    }
    Ok(adopted)
}

/// The object of a row, where that is still true.
fn find(shared: &Shared, row: &[u8], value: &[u8]) -> Result<Option<Arc<Entry>>> {
    let mut input = Reader::new(value, VERSION, "written object")?;
    let (boot, key) = (input.u64()?, input.text()?);
    input.finish()?;
    if boot != shared.boot {
        return Ok(None);
    }
    let key = Key::parse(&key).map_err(|_| corrupt("written object", "its key is illegal"))?;
    let entry = shared.borrow_entry(&key)?;
    // Another object of the same name has another number.
    Ok(entry.filter(|entry| row == row_key(entry.object_id)))
}
