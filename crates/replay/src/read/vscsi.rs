// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces of virtual SCSI disks (CloudPhysics), little-endian and packed.
//!
//! Version 1, 32 bytes: u32 serial number, u32 length in bytes, u32 segments, u16 opcode, u16 version,
//! u64 first block, u64 time in microseconds. Version 2, 40 bytes: u16 opcode, u16 version, u32 serial
//! number, u32 length, u32 segments, u64 first block, u64 time, u64 how long it took, in microseconds.
//! The version is 0x0100 or 0x0200. An object is a first block.

use terrace_core::Result;

use super::Tells;
use super::fixed::{Fixed, Record, u16_at, u32_at, u64_at};
use crate::input::Input;
use crate::request::{Operation, Request};

/// Records that a version is recognised from, fewer in a shorter file.
const SIGNS: usize = 4;

/// Where what is in a record.
pub(super) struct Vscsi {
    bytes: usize,
    version: u16,
    version_at: usize,
    opcode_at: usize,
    length_at: usize,
    block_at: usize,
    time_at: usize,
    /// Only version 2 tells how long answers took.
    latency_at: Option<usize>,
}

const VERSION_1: Vscsi = Vscsi {
    bytes: 32,
    version: 0x0100,
    version_at: 14,
    opcode_at: 12,
    length_at: 4,
    block_at: 16,
    time_at: 24,
    latency_at: None,
};

const VERSION_2: Vscsi = Vscsi {
    bytes: 40,
    version: 0x0200,
    version_at: 2,
    opcode_at: 0,
    length_at: 8,
    block_at: 16,
    time_at: 24,
    latency_at: Some(32),
};

pub(super) fn open(mut input: Input) -> Result<Fixed<Vscsi>> {
    let start = input.peek(SIGNS * VERSION_2.bytes)?;
    let layout = if VERSION_2.begins(start) { VERSION_2 } else { VERSION_1 };
    Ok(Fixed::new(input, layout, None))
}

/// Whether these bytes may be the beginning of such a file.
pub(crate) fn is_likely(start: &[u8]) -> bool {
    VERSION_1.begins(start) || VERSION_2.begins(start)
}

impl Vscsi {
    fn begins(&self, start: &[u8]) -> bool {
        let has_version = |record: &[u8]| u16_at(record, self.version_at) == self.version;
        start.len() >= self.bytes && start.chunks_exact(self.bytes).take(SIGNS).all(has_version)
    }
}

impl Record for Vscsi {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn request(&self, record: &[u8]) -> Result<Request, &'static str> {
        if u16_at(record, self.version_at) != self.version {
            return Err("a record is of another version than the file");
        }
        // READ and WRITE with 6, 10, 12 and 16 bytes (SCSI Block Commands 3, section 5).
        let operation = match u16_at(record, self.opcode_at) {
            0x08 | 0x28 | 0xa8 | 0x88 => Operation::Read,
            0x0a | 0x2a | 0xaa | 0x8a => Operation::Write,
            _ => Operation::Unknown,
        };
        let time_ns =
            u64_at(record, self.time_at).checked_mul(1000).ok_or("the time is too late")?;
        let block = u64_at(record, self.block_at);
        let bytes = u64::from(u32_at(record, self.length_at));
        let latency_ns = match self.latency_at {
            Some(at) => u64_at(record, at).checked_mul(1000).ok_or("the duration is too long")?,
            None => 0,
        };
        Ok(Request { latency_ns, ..Request::whole(time_ns, block, bytes, operation) })
    }

    fn tells(&self) -> Tells {
        Tells { clients: false, latencies: self.latency_at.is_some() }
    }
}
