// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file, read at the pace that is allowed.

use std::io::IoSliceMut;
use std::time::Duration;

use terrace_core::{ErrorKind, Key, Object, Open, Persistency, Result, Semantics, TierIndex};

use super::Scrub;
use crate::catalog::record::Place;
use crate::memory::marks;
use crate::shared::Shared;
use crate::tiers::list::TierState;

/// Bytes that are read at a time.
pub(super) const STEP_BYTES: usize = 256 << 10;

/// Longest sleep before it is asked again whether to go on.
const NAP: Duration = Duration::from_millis(20);

/// The problem of a file that is not certainly the one that the catalog means.
pub(super) const WRONG_IDENTITY: &str = "wrong-identity";

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// As many bytes as it should, with this CRC-32C.
    Whole(u32),
    /// Something else: the kind of problem, and more about it.
    Bad(&'static str, String),
    /// Unknown: its tier cannot be used.
    Offline,
    /// Unknown: the scrub is to end.
    Stopped,
}

impl Scrub<'_> {
    /// Reads the file of a segment, given by the number of its object and its own, that is in
    /// `place`. Fails only where that says nothing about the file.
    pub(super) fn file(
        &mut self,
        (object_id, segment): (u64, u32),
        place: &Place,
        length: u64,
    ) -> Result<Found> {
        let (tier, name) = (place.tier, &place.key(object_id, segment));
        let state = self.shared.tier(tier);
        if state.offline.is_some() {
            return Ok(Found::Offline);
        }
        let how = Open::read().with_semantics(Semantics::at_level(Persistency::None));
        let opened = state.backend.open(name, &how);
        let wrong = match &opened {
            Ok(_) => wrong_mark(self.shared, state, name, (object_id, segment), place),
            Err(_) => Ok(None),
        };
        self.report.files += 1;
        let at = |text: String| format!("{name} on {}: {text}", state.name);
        let read = match wrong {
            Ok(None) => opened.and_then(|object| self.bytes(tier, &*object, length)),
            Ok(Some(says)) => return Ok(Found::Bad(WRONG_IDENTITY, at(says))),
            Err(error) => Err(error),
        };
        Ok(match read {
            Ok(Some((bytes, sum))) if bytes == length => Found::Whole(sum),
            Ok(Some((bytes, _))) => {
                Found::Bad("wrong-length", at(format!("it has {bytes} bytes, not {length}")))
            }
            Ok(None) => Found::Stopped,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Found::Bad("missing-file", at(error.chain()))
            }
            Err(error) => Found::Bad("unreadable-file", at(error.chain())),
        })
    }

    /// Length and CRC-32C of an open file; `None` where the scrub ends before.
    fn bytes(
        &mut self,
        tier: TierIndex,
        object: &dyn Object,
        length: u64,
    ) -> Result<Option<(u64, u32)>> {
        let is_from_medium = forget_pages(object);
        let end = object.stat()?.size_bytes;
        if end != length {
            return Ok(Some((end, 0)));
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(STEP_BYTES);
        let (mut at, mut sum) = (0, 0);
        let result = loop {
            let data = match object.next_data(at) {
                Ok(Some(data)) => data.start.min(end)..data.end.min(end),
                Ok(None) => end..end,
                Err(error) => break Err(error),
            };
            // Holes read as zeros, which nothing has to read.
            sum = append_zeros(sum, data.start - at);
            at = data.start;
            if at >= end {
                break Ok(Some((end, sum)));
            }
            match self.range(tier, object, data, &mut buffer, &mut sum, is_from_medium) {
                Ok(Some(reached)) if reached > at => at = reached,
                // It was cut meanwhile.
                Ok(Some(_)) => break Ok(Some((at, sum))),
                other => break other.map(|_| None),
            }
        };
        self.buffer = buffer;
        if is_from_medium {
            // What was not cached before is not kept in the place of what is in use.
            forget_pages(object);
        }
        result
    }

    /// Reads a range without holes; how far that came, `None` where the scrub is to end.
    fn range(
        &mut self,
        tier: TierIndex,
        object: &dyn Object,
        data: std::ops::Range<u64>,
        buffer: &mut [u8],
        sum: &mut u32,
        is_from_medium: bool,
    ) -> Result<Option<u64>> {
        let mut at = data.start;
        while at < data.end {
            let want = buffer.len().min((data.end - at) as usize);
            if !self.pace(want as u64) {
                return Ok(None);
            }
            let started_ns = self.shared.clock.now_ns();
            let count = object.read_at(at, &mut [IoSliceMut::new(&mut buffer[..want])])?;
            if count == 0 {
                break;
            }
            *sum = crc32c::crc32c_append(*sum, &buffer[..count]);
            at += count as u64;
            self.report.read_bytes += count as u64;
            if is_from_medium {
                self.report.medium_bytes += count as u64;
            }
            let took_ns = self.shared.clock.now_ns() - started_ns;
            self.shared.yield_to_foreground(&[tier], took_ns);
        }
        Ok(Some(at))
    }

    /// Waits until bytes may be read; false where the scrub is to end.
    pub(super) fn pace(&mut self, bytes: u64) -> bool {
        let clock = &self.shared.clock;
        let start_ns = self.free_ns.max(clock.now_ns());
        self.free_ns = start_ns.saturating_add((bytes as f64 / self.bytes_per_s * 1e9) as u64);
        loop {
            if self.is_stopped() {
                return false;
            }
            let left_ns = start_ns.saturating_sub(self.shared.clock.now_ns());
            if left_ns == 0 {
                return true;
            }
            self.shared.clock.sleep(Duration::from_nanos(left_ns).min(NAP));
        }
    }
}

/// What speaks against a file being the one that the catalog means; readers are not given such a file.
fn wrong_mark(
    shared: &Shared,
    state: &TierState,
    name: &Key,
    (object_id, segment): (u64, u32),
    place: &Place,
) -> Result<Option<String>> {
    if !state.capability.identity {
        return Ok(None);
    }
    Ok(match state.backend.identity(name)? {
        Some(found) if marks::is_of(&found, object_id, segment, place) => None,
        Some(found) => Some(format!("it says {}", marks::in_words(&found, shared.store_id))),
        None => Some("it has no identity".into()),
    })
}

/// Asks the operating system to forget the clean pages of a file, so that it is read from its
/// medium; false where the tier lends no files, and bytes may come from anywhere.
fn forget_pages(object: &dyn Object) -> bool {
    let Ok(Some(lease)) = object.lease_file() else { return false };
    rustix::fs::fadvise(&lease.file, 0, None, rustix::fs::Advice::DontNeed).is_ok()
}

/// The CRC-32C after so many more zeros.
fn append_zeros(sum: u32, mut count: u64) -> u32 {
    let mut sum = sum;
    // The sum of as many zeros as this bit of the count stands for.
    let (mut zeros, mut bytes) = (crc32c::crc32c(&[0]), 1);
    while count > 0 {
        if count & 1 == 1 {
            sum = crc32c::crc32c_combine(sum, zeros, bytes);
        }
        zeros = crc32c::crc32c_combine(zeros, zeros, bytes);
        bytes = bytes.wrapping_mul(2);
        count >>= 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::append_zeros;

    #[test]
    fn zeros_count_as_if_they_were_read() {
        let before = crc32c::crc32c(b"before");
        for count in [0, 1, 2, 3, 255, 4096, 100_001] {
            let zeros = vec![0; count];
            assert_eq!(append_zeros(before, count as u64), crc32c::crc32c_append(before, &zeros));
            assert_eq!(append_zeros(0, count as u64), crc32c::crc32c(&zeros), "{count}");
        }
    }
}
