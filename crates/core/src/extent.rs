// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of objects, which must fit in 63 bits.

use std::ops::Range;

use crate::{Error, Result};

/// Returns the end of an extent of an object. Errors: `Invalid`.
pub fn check_extent(offset_bytes: u64, length_bytes: u64) -> Result<u64> {
    match offset_bytes.checked_add(length_bytes) {
        Some(end_bytes) if end_bytes <= i64::MAX as u64 => Ok(end_bytes),
        _ => Err(Error::invalid("use a range", "offset and length do not fit in 63 bits")
            .with("offset_bytes", offset_bytes)
            .with("length_bytes", length_bytes)),
    }
}

/// Refuses a range of an object that is reversed or too far. Errors: `Invalid`.
pub fn check_range(range: &Range<u64>) -> Result<()> {
    if range.start > range.end {
        return Err(Error::invalid("use a range", "it ends before it begins")
            .with("start_bytes", range.start)
            .with("end_bytes", range.end));
    }
    check_extent(range.end, 0).map(|_| ())
}
