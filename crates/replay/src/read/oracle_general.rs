// SPDX-License-Identifier: Apache-2.0 OR MIT
//! oracleGeneral: 24 bytes a request, little-endian and packed.
//!
//! u32 time in seconds, u64 object, u32 size in bytes, i64 the next request for the object, counted
//! from 1, or -1 for none.

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

/// Whether these bytes may be the beginning of such a file: time does not go back, and the next
/// request for an object comes later.
pub(crate) fn is_likely(start: &[u8]) -> bool {
    let records = || start.chunks_exact(BYTES);
    let times = records().map(|record| u32_at(record, 0));
    let mut nexts = records().map(|record| i64_at(record, 16)).zip(1..);
    start.len() >= BYTES
        && times.is_sorted()
        && nexts.all(|(next, number): (i64, i64)| next == -1 || next > number)
}
