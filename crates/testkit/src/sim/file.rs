// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of one simulated file, and what a medium would still have of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use terrace_core::{End, Random};

/// Unit in which room is taken and in which unsynced bytes survive or not.
pub(super) const PAGE_BYTES: u64 = 4096;

type Page = [u8; PAGE_BYTES as usize];

/// Sparse pages, and the state of the last sync of everything that changed since.
///
/// Bytes beyond the length are zeros; pages beyond it exist only where they were promised.
#[derive(Debug, Default)]
pub(super) struct SimFile {
    pages: BTreeMap<u64, Arc<Page>>,
    length_bytes: u64,
    /// To where room was promised, where that is behind the end.
    promised_bytes: u64,
    /// What the medium holds of each page that changed since the last sync.
    unsynced: BTreeMap<u64, Option<Arc<Page>>>,
    durable_length_bytes: u64,
    pub(super) created_ns: u64,
    pub(super) modified_ns: u64,
    /// A real file with the same bytes, once it was lent.
    twin: Option<File>,
}

impl SimFile {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { created_ns: now_ns, modified_ns: now_ns, ..Self::default() }
    }

    pub(super) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Room taken: whole pages, of the last one only what lies before the end, so that a file
    /// without holes takes exactly its length.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes_with(&(0..0), self.length_bytes)
    }

    /// Room that would be taken with `filled` present and this length, which is not less than
    /// the present one.
    pub(super) fn allocated_bytes_with(&self, filled: &Range<u64>, length_bytes: u64) -> u64 {
        let filled = pages_touched(filled);
        let there = self.pages.range(filled.clone()).count() as u64;
        let count = self.pages.len() as u64 + (filled.end - filled.start) - there;
        let reach_bytes = length_bytes.max(self.promised_bytes);
        let beyond = reach_bytes % PAGE_BYTES;
        let last = reach_bytes / PAGE_BYTES;
        if beyond > 0 && (filled.contains(&last) || self.pages.contains_key(&last)) {
            count * PAGE_BYTES - (PAGE_BYTES - beyond)
        } else {
            count * PAGE_BYTES
        }
    }

    /// Reads up to the end and returns the bytes read.
    pub(super) fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> usize {
        let left = self.length_bytes.saturating_sub(offset_bytes);
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        each_page(offset_bytes, count, |index, inside, part| match self.pages.get(&index) {
            Some(page) => buffer[part].copy_from_slice(&page[inside]),
            None => buffer[part].fill(0),
        });
        count
    }

    pub(super) fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        each_page(offset_bytes, data.len(), |index, inside, part| {
            self.page(index)[inside].copy_from_slice(&data[part]);
        });
        self.length_bytes = self.length_bytes.max(offset_bytes + data.len() as u64);
        self.change_twin(|twin| twin.write_all_at(data, offset_bytes));
    }

    pub(super) fn set_length(&mut self, bytes: u64) {
        if bytes <= self.length_bytes {
            // With it goes what was promised behind the end.
            self.promised_bytes = 0;
            let last = self.pages.last_key_value().map_or(0, |(index, _)| (index + 1) * PAGE_BYTES);
            self.clear(bytes..last.max(bytes));
        }
        self.length_bytes = bytes;
        self.change_twin(|twin| twin.set_len(bytes));
    }

    /// Makes every page of a range present.
    pub(super) fn allocate(&mut self, range: Range<u64>, end: End) {
        pages_touched(&range).for_each(|index| {
            self.page(index);
        });
        match end {
            End::Grows => self.length_bytes = self.length_bytes.max(range.end),
            End::Stays => self.promised_bytes = self.promised_bytes.max(range.end),
        }
        let length_bytes = self.length_bytes;
        self.change_twin(|twin| twin.set_len(length_bytes));
    }

    /// Frees whole pages and zeroes parts of pages.
    pub(super) fn punch(&mut self, range: Range<u64>) {
        let inside = range.start..range.end.min(self.length_bytes);
        self.change_twin(|twin| write_zeros(twin, inside));
        self.clear(range);
    }

    fn clear(&mut self, range: Range<u64>) {
        let present: Vec<u64> = self.pages.range(pages_touched(&range)).map(|(i, _)| *i).collect();
        for index in present {
            let start_bytes = index * PAGE_BYTES;
            let from = range.start.max(start_bytes) - start_bytes;
            let to = range.end.min(start_bytes + PAGE_BYTES) - start_bytes;
            if to - from == PAGE_BYTES {
                let old = self.pages.remove(&index);
                self.unsynced.entry(index).or_insert(old);
            } else {
                self.page(index)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// A descriptor for reading of a real file that holds what this one does, until the next loss
    /// of power.
    pub(super) fn lend(&mut self) -> io::Result<File> {
        let twin = match self.twin.take() {
            Some(twin) => twin,
            None => self.make_twin()?,
        };
        let lent = rustix::fs::open(
            format!("/proc/self/fd/{}", twin.as_raw_fd()),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        self.twin = Some(twin);
        Ok(lent.into())
    }

    fn make_twin(&self) -> io::Result<File> {
        let twin = File::from(rustix::fs::memfd_create("terrace-sim", MemfdFlags::CLOEXEC)?);
        twin.set_len(self.length_bytes)?;
        for (index, page) in &self.pages {
            let start_bytes = index * PAGE_BYTES;
            let bytes = PAGE_BYTES.min(self.length_bytes.saturating_sub(start_bytes));
            twin.write_all_at(&page[..bytes as usize], start_bytes)?;
        }
        Ok(twin)
    }

    fn change_twin(&self, change: impl FnOnce(&File) -> io::Result<()>) {
        if let Some(twin) = &self.twin {
            change(twin).expect("there is memory for what was lent");
        }
    }

    /// The first run of present pages at or after `offset_bytes`.
    pub(super) fn next_data(&self, offset_bytes: u64) -> Option<Range<u64>> {
        let mut pages = self.pages.range(offset_bytes / PAGE_BYTES..).map(|(index, _)| *index);
        let first = pages.next()?;
        let last = pages.zip(first + 1..).take_while(|(a, b)| a == b).last();
        let end = last.map_or(first, |(index, _)| index) + 1;
        let start_bytes = offset_bytes.max(first * PAGE_BYTES);
        let end_bytes = self.length_bytes.min(end * PAGE_BYTES);
        (start_bytes < end_bytes).then_some(start_bytes..end_bytes)
    }

    /// Brings everything to the medium.
    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
        self.durable_length_bytes = self.length_bytes;
    }

    /// Forgets what was not synced: everything, or by chance any subset of pages and the length.
    pub(super) fn lose_unsynced(&mut self, mut chance: Option<&mut Random>) {
        self.twin = None;
        let mut survives = || chance.as_mut().is_some_and(|random| random.chance(0.5));
        for (index, old) in std::mem::take(&mut self.unsynced) {
            match old {
                _ if survives() => {}
                Some(page) => drop(self.pages.insert(index, page)),
                None => drop(self.pages.remove(&index)),
            }
        }
        let length_bytes = if survives() { self.length_bytes } else { self.durable_length_bytes };
        self.length_bytes = self.pages.last_key_value().map_or(0, |(i, _)| (i + 1) * PAGE_BYTES);
        self.set_length(length_bytes);
        self.sync();
    }

    /// A page for writing; notes what the medium has of it.
    fn page(&mut self, index: u64) -> &mut Page {
        let old = self.pages.get(&index).cloned();
        self.unsynced.entry(index).or_insert(old);
        let page = self.pages.entry(index).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize]));
        Arc::make_mut(page)
    }
}

fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let count = (range.end - at).min(PAGE_BYTES);
        file.write_all_at(&[0; PAGE_BYTES as usize][..count as usize], at)?;
        at += count;
    }
    Ok(())
}

fn pages_touched(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

/// Calls `each` with a page's index, the range inside it and the range of the caller's buffer.
fn each_page(
    offset_bytes: u64,
    length_bytes: usize,
    mut each: impl FnMut(u64, Range<usize>, Range<usize>),
) {
    let mut done = 0;
    while done < length_bytes {
        let at = offset_bytes + done as u64;
        let start = (at % PAGE_BYTES) as usize;
        let count = (PAGE_BYTES as usize - start).min(length_bytes - done);
        each(at / PAGE_BYTES, start..start + count, done..done + count);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(file: &SimFile) -> Vec<u8> {
        let mut bytes = vec![9; file.length_bytes() as usize];
        assert_eq!(file.read(0, &mut bytes), bytes.len());
        bytes
    }

    #[test]
    fn a_dense_file_takes_its_length_and_holes_take_nothing() {
        let mut file = SimFile::new(0);
        file.write(0, &[1; 5000]);
        assert_eq!(file.allocated_bytes(), 5000);
        file.set_length(1 << 40);
        assert_eq!(file.allocated_bytes(), 8192);
        assert_eq!(file.next_data(0), Some(0..8192));
        assert_eq!(file.next_data(8192), None);
        file.punch(0..4096);
        assert_eq!(file.next_data(0), Some(4096..8192));
    }

    #[test]
    fn a_cut_end_reads_as_zeros_when_it_grows_again() {
        let mut file = SimFile::new(0);
        file.write(0, &[1; 100]);
        file.set_length(10);
        file.set_length(20);
        assert_eq!(contents(&file), [[1; 10], [0; 10]].concat());
    }

    #[test]
    fn everything_unsynced_is_lost() {
        let mut file = SimFile::new(0);
        file.write(0, &[1; 10_000]);
        file.sync();
        file.write(4000, &[2; 200]);
        file.set_length(50);
        file.lose_unsynced(None);
        assert_eq!(contents(&file), [1; 10_000]);
        assert_eq!(file.allocated_bytes(), 10_000);
    }

    #[test]
    fn by_chance_each_page_is_old_or_new() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let mut file = SimFile::new(0);
            file.write(0, &[1; 8192]);
            file.sync();
            file.write(0, &[2; 8192]);
            file.lose_unsynced(Some(&mut Random::new(seed)));
            let bytes = contents(&file);
            assert_eq!(bytes[..4096], [bytes[0]; 4096]);
            assert_eq!(bytes[4096..], [bytes[4096]; 4096]);
            seen.insert((bytes[0], bytes[4096]));
        }
        assert_eq!(seen, [(1, 1), (1, 2), (2, 1), (2, 2)].into());
    }
}
