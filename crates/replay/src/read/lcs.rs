// SPDX-License-Identifier: Apache-2.0 OR MIT
//! lcs, the format of libCacheSim, versions 1 to 8, little-endian and packed.
//!
//! A header of 8192 bytes: a magic number, u64 version, statistics, of which the second number is how
//! many requests there are, and the magic number again. A request has u32 time in seconds, u64 object,
//! the size (u32; from version 3 on i64), from version 2 on u32 with the operation in its lowest 8
//! bits and the tenant above, from version 3 on u32 time to live, i64 the next request, and from
//! version 4 on 1, 2, 4, 8 or 16 times u32.

use terrace_core::Result;

use super::fixed::{Fixed, Record, i64_at, u32_at, u64_at};
use super::{Source, Tells};
use crate::input::Input;
use crate::request::{Operation, Request};

const MAGIC: u64 = 0x1234_5678_9abc_def0;
const HEADER_BYTES: usize = 8192;
const VERSION_AT: usize = 8;
const COUNT_AT: usize = 24;
const END_MAGIC_AT: usize = HEADER_BYTES - 8;

/// Operations are numbered from 1.
const OPERATIONS: [Operation; 13] = [
    Operation::Read,    // get
    Operation::Read,    // gets
    Operation::Write,   // set
    Operation::Write,   // add
    Operation::Write,   // cas
    Operation::Write,   // replace
    Operation::Write,   // append
    Operation::Write,   // prepend
    Operation::Unknown, // delete
    Operation::Write,   // incr
    Operation::Write,   // decr
    Operation::Read,    // read
    Operation::Write,   // write
];

const SECOND_NS: u64 = 1_000_000_000;

struct Lcs {
    version: u64,
    bytes: usize,
}

/// Whether a file that begins so is of this format.
pub(crate) fn begins(start: &[u8]) -> bool {
    start.starts_with(&MAGIC.to_le_bytes())
}

pub(super) fn open(mut input: Input) -> Result<Box<dyn Source>> {
    let header = input.peek(HEADER_BYTES)?;
    if header.len() < HEADER_BYTES {
        return Err(input.corrupt("it ends within its header: it is cut short"));
    }
    if u64_at(header, 0) != MAGIC || u64_at(header, END_MAGIC_AT) != MAGIC {
        return Err(input.corrupt("its header has not the numbers that mark an lcs file"));
    }
    let (version, count) = (u64_at(header, VERSION_AT), u64_at(header, COUNT_AT));
    let bytes = match version {
        1 => 24,
        2 => 28,
        3 => 36,
        4..=8 => 36 + (4 << (version - 4)),
        _ => {
            let error = input.corrupt("its version is not one of 1 to 8");
            return Err(error.with("version", version));
        }
    };
    input.consume(HEADER_BYTES);
    // A writer without statistics leaves zeros.
    let total = Some(count).filter(|count| *count > 0);
    Ok(Box::new(Fixed::new(input, Lcs { version, bytes }, total)))
}

impl Record for Lcs {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn request(&self, record: &[u8]) -> Result<Request, &'static str> {
        let time_ns = u64::from(u32_at(record, 0)) * SECOND_NS;
        let object = u64_at(record, 4);
        let (bytes, rest_at) = match self.version {
            1 | 2 => (u64::from(u32_at(record, 12)), 16),
            _ => (u64::try_from(i64_at(record, 12)).map_err(|_| "the size is negative")?, 20),
        };
        let mut request = Request::whole(time_ns, object, bytes, Operation::Unknown);
        if self.version > 1 {
            let word = u32_at(record, rest_at);
            let number = (word & 0xff) as usize;
            request.client = word >> 8;
            request.operation = match number {
                0 => Operation::Unknown,
                _ => OPERATIONS.get(number - 1).copied().unwrap_or(Operation::Unknown),
            };
        }
        Ok(request)
    }

    fn tells(&self) -> Tells {
        Tells { clients: self.version > 1, latencies: false }
    }
}
