// SPDX-License-Identifier: Apache-2.0 OR MIT
//! oracleGeneral: keeps the time in seconds, the object, its size, and when it is asked for again.

use terrace_core::Result;

use super::{Sink, Target};
use crate::objects::Objects;
use crate::request::Request;

const SECOND_NS: u64 = 1_000_000_000;

/// No next request.
const NEVER: i64 = -1;

/// When the object of each request is asked for again: 12 bytes of memory for each.
#[derive(Default)]
pub(super) struct Nexts {
    objects: Objects,
    numbers: Vec<u32>,
}

impl Nexts {
    pub(super) fn push(&mut self, request: &Request) -> Result<()> {
        if !request.operation.is_access() {
            return Ok(());
        }
        self.objects.numbers(std::iter::once(request.object), &mut self.numbers)
    }

    /// The numbers of the next requests, from 1.
    pub(super) fn finish(self) -> Vec<i64> {
        let mut later = vec![NEVER; self.objects.count() as usize];
        let numbers = self.numbers.iter().enumerate().rev();
        let nexts = numbers.map(|(index, number)| {
            std::mem::replace(&mut later[*number as usize], index as i64 + 1)
        });
        let mut nexts: Vec<i64> = nexts.collect();
        nexts.reverse();
        nexts
    }
}

pub(super) struct OracleGeneral {
    target: Target,
    nexts: std::vec::IntoIter<i64>,
    count: u64,
}

impl OracleGeneral {
    pub(super) fn new(target: Target, nexts: Vec<i64>) -> Self {
        Self { target, nexts: nexts.into_iter(), count: 0 }
    }
}

impl Sink for OracleGeneral {
    fn push(&mut self, request: &Request) -> Result<()> {
        if !request.operation.is_access() {
            return Ok(());
        }
        self.count += 1;
        let time_s = u32::try_from(request.time_ns / SECOND_NS)
            .map_err(|_| self.target.unfit("the time is no number of 32 bits", self.count))?;
        let bytes = u32::try_from(request.size_bytes)
            .map_err(|_| self.target.unfit("the size is no number of 32 bits", self.count))?;
        // A trace that has grown since it was read first has more.
        let next = self.nexts.next().unwrap_or(NEVER);
        let mut record = [0; 24];
        record[..4].copy_from_slice(&time_s.to_le_bytes());
        record[4..12].copy_from_slice(&request.object.to_le_bytes());
        record[12..16].copy_from_slice(&bytes.to_le_bytes());
        record[16..].copy_from_slice(&next.to_le_bytes());
        self.target.write(&record)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.target.finish()
    }
}
