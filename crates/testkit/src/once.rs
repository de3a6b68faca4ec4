// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes that would show if they were made twice: records of a log, and a number that is counted
//! up.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use terrace_core::{Kv, Object};

use crate::registers::is_unknown;

/// A log that all threads append to, and the answers that they got: where their records are, or
/// `None` where it is unknown whether they are.
#[derive(Debug, Default)]
pub struct Log {
    appended: Mutex<BTreeMap<u64, Option<u64>>>,
}

const RECORD_BYTES: usize = 16;

impl Log {
    /// Appends a record with a number that no other has; whether it is known to be there.
    pub fn append(&self, object: &dyn Object, number: u64) -> bool {
        let record = [number.to_le_bytes(), (!number).to_le_bytes()].concat();
        let place = match object.append(&[IoSlice::new(&record)]) {
            Ok(place) => Some(place),
            Err(error) if is_unknown(&error) => None,
            Err(_) => return false,
        };
        let mut appended = self.appended.lock().unwrap_or_else(PoisonError::into_inner);
        appended.insert(number, place);
        place.is_some()
    }

    /// Compares with the bytes of the object: what was acknowledged is there, everything is there
    /// once, and nothing else is.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn compare(&self, found: &[u8]) -> Result<(), String> {
        let mut appended = self.appended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !found.len().is_multiple_of(RECORD_BYTES) {
            return Err(format!("a part of a record: {} bytes", found.len()));
        }
        for (place, record) in (0..).step_by(RECORD_BYTES).zip(found.chunks(RECORD_BYTES)) {
            let number = read_number(&record[..8]);
            match appended.remove(&number) {
                Some(Some(said)) if said != place => {
                    return Err(format!("record {number} is at {place}, not at {said}"));
                }
                Some(_) => {}
                None => return Err(format!("record {number} came twice, or from nowhere")),
            }
        }
        match appended.iter().find(|(_, place)| place.is_some()) {
            Some((number, _)) => Err(format!("record {number} is lost")),
            None => Ok(()),
        }
    }
}

/// How often a pair was counted up.
#[derive(Debug, Default)]
pub struct Counter {
    sure: AtomicU64,
    unknown: AtomicU64,
}

const COUNTER: &[u8] = b"counter";

impl Counter {
    /// Counts up; whether that is known to be done.
    pub fn increment(&self, pairs: &dyn Kv) -> bool {
        let counted = pairs.transact(&mut |txn| {
            let value = txn.get(COUNTER)?.map_or(0, |value| read_number(&value));
            txn.put(COUNTER, &(value + 1).to_le_bytes())
        });
        let count = match &counted {
            Ok(_) => &self.sure,
            Err(error) if is_unknown(error) => &self.unknown,
            Err(_) => return false,
        };
        count.fetch_add(1, Ordering::SeqCst);
        counted.is_ok()
    }

    /// Compares with the number that is there: each time that is known to be done counts once, and
    /// each other time at most once.
    ///
    /// # Errors
    ///
    /// What is wrong.
    ///
    /// # Panics
    ///
    /// Where the number cannot be read.
    pub fn compare(&self, pairs: &dyn Kv) -> Result<(), String> {
        let value = pairs.get(COUNTER).expect("it can be read");
        let found = value.map_or(0, |value| read_number(&value));
        let sure = self.sure.load(Ordering::SeqCst);
        let most = sure + self.unknown.load(Ordering::SeqCst);
        match (sure..=most).contains(&found) {
            true => Ok(()),
            false => Err(format!("counted {sure} to {most} times, found {found}")),
        }
    }
}

fn read_number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("eight bytes"))
}
