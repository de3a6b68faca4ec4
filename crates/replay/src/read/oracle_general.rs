// SPDX-License-Identifier: Apache-2.0 OR MIT
//! oracleGeneral: 24 bytes a request, little-endian and packed.
//!
//! u32 time in seconds, u64 object, u32 size in bytes, i64 the next request for the object, counted
//! from 1, or -1 for none.

use std::collections::HashMap;

use super::Tells;
use super::fixed::{Fixed, Record, i64_at, u32_at, u64_at};
use crate::input::Input;
use crate::request::{Operation, Request};

const BYTES: usize = 24;

const SECOND_NS: u64 = 1_000_000_000;

pub(super) struct OracleGeneral;

pub(super) fn open(input: Input) -> Fixed<OracleGeneral> {
    Fixed::new(input, OracleGeneral, None)
}

impl Record for OracleGeneral {
    #[inline]
    fn bytes(&self) -> usize {
        BYTES
    }

    #[inline]
    fn request(&self, record: &[u8]) -> Result<Request, &'static str> {
        if i64_at(record, 16) < -1 {
            return Err("the next request for the object is neither a number nor -1");
        }
        let time_ns = u64::from(u32_at(record, 0)) * SECOND_NS;
        let (object, bytes) = (u64_at(record, 4), u64::from(u32_at(record, 12)));
        Ok(Request::whole(time_ns, object, bytes, Operation::Unknown))
    }

    fn tells(&self) -> Tells {
        Tells::default()
    }
}

/// A next request that is further away is none.
const REQUESTS_MAX: i64 = 1 << 48;

/// Whether a file that begins with these bytes can hardly be anything else: the next request for an
/// object is for that object, and where there is none, none comes. `is_all` where the file has no more
/// than these.
pub(crate) fn is_certain(start: &[u8], is_all: bool) -> bool {
    let records: Vec<_> =
        start.chunks_exact(BYTES).map(|one| (u64_at(one, 4), i64_at(one, 16))).collect();
    if records.is_empty() || is_all && !start.len().is_multiple_of(BYTES) {
        return false;
    }
    let mut awaited = HashMap::new();
    let follows = records.iter().zip(1..).all(|((object, next), number)| {
        let fits = match awaited.insert(*object, *next) {
            Some(wanted) => wanted == number,
            None => true,
        };
        fits && (*next == -1 || *next > number && *next < REQUESTS_MAX)
    });
    // What is awaited among these would have come.
    let count = records.len() as i64;
    follows && awaited.values().all(|next| *next == -1 || *next > count && !is_all)
}

/// Whether a file says in its name that it is one.
pub(crate) fn is_named(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.to_ascii_lowercase().contains("oraclegeneral")
}

/// Whether these bytes may be the beginning of such a file: time does not go back, and the next
/// request for an object comes later, or is unknown.
pub(crate) fn is_likely(start: &[u8]) -> bool {
    let records = || start.chunks_exact(BYTES);
    let times = records().map(|record| u32_at(record, 0));
    let mut nexts = records().map(|record| i64_at(record, 16)).zip(1..);
    let has_bytes = records().any(|record| u32_at(record, 12) > 0);
    start.len() >= BYTES
        && times.is_sorted()
        && has_bytes
        && nexts.all(|(next, number): (i64, i64)| next == -1 || next == 0 || next > number)
}
