// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of one length, one after the other.

use terrace_core::Result;

use super::{BATCH, Source, Tells};
use crate::input::Input;
use crate::request::Request;

/// What a record is.
pub(super) trait Record: Send {
    /// How long it is.
    fn bytes(&self) -> usize;

    /// Reads one of [`Record::bytes`] bytes, or says what is wrong.
    fn request(&self, record: &[u8]) -> Result<Request, &'static str>;

    /// What requests have.
    fn tells(&self) -> Tells;
}

/// Reads records until the file ends.
pub(super) struct Fixed<R> {
    input: Input,
    record: R,
    count: u64,
    /// How many there are, where the file says so.
    total: Option<u64>,
}

impl<R: Record> Fixed<R> {
    pub(super) fn new(input: Input, record: R, total: Option<u64>) -> Self {
        Self { input, record, count: 0, total }
    }

    /// Why there are no more, if that is wrong.
    fn check_end(&self, left: usize) -> Result<()> {
        if left > 0 {
            let reason = "it ends within a record: it is cut short";
            return Err(self.input.wrong_record(self.count + 1, reason).with("bytes", left));
        }
        match self.total {
            Some(total) if total != self.count => {
                let reason = "it has not as many records as its header says";
                let error = self.input.wrong_record(self.count, reason);
                Err(error.with("header_says", total))
            }
            _ => Ok(()),
        }
    }
}

impl<R: Record> Source for Fixed<R> {
    fn fill(&mut self, requests: &mut Vec<Request>) -> Result<()> {
        let bytes = self.record.bytes();
        while requests.len() < BATCH {
            let seen = self.input.peek(bytes)?;
            let whole = (seen.len() / bytes).min(BATCH - requests.len());
            if whole == 0 {
                let left = seen.len();
                return self.check_end(left);
            }
            let mut wrong = None;
            requests.extend(seen.chunks_exact(bytes).take(whole).map_while(|record| {
                self.record.request(record).map_err(|reason| wrong = Some(reason)).ok()
            }));
            if let Some(reason) = wrong {
                let record = self.count + requests.len() as u64 + 1;
                return Err(self.input.wrong_record(record, reason));
            }
            self.count += whole as u64;
            self.input.consume(whole * bytes);
        }
        Ok(())
    }

    fn tells(&self) -> Tells {
        self.record.tells()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The little-endian numbers of a record, by where they begin. The record is as long as its format
/// says, so that they are there.
pub(super) fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(record, at))
}

pub(super) fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(record, at))
}

pub(super) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(record, at))
}

pub(super) fn i64_at(record: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(array(record, at))
}

fn array<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record[at..at + N].try_into().expect("a slice of this length")
}
