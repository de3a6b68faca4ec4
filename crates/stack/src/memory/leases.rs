// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words that say whether a file that was lent still is the object: a page of them, which
//! readers in other processes look at after every read.
//!
//! A word only grows, and grows when it changes its user: no value is ever good twice.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use terrace_core::{Error, GenerationWord, Result, WORD_BYTES};

/// Objects that may be lent at a time; with more, reads go the ordinary way. The page of so many
/// words takes half a megabyte.
pub(crate) const WORDS_MAX: u32 = 1 << 16;

/// The words of a stack.
#[derive(Debug)]
pub(crate) struct Leases {
    words_max: u32,
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words {
    /// Made with the first lease.
    page: Option<Page>,
    /// What each word holds that was ever used.
    values: Vec<u64>,
    /// Unused words.
    free: Vec<u32>,
    is_closed: bool,
}

#[derive(Debug)]
struct Page {
    file: File,
    /// The same for reading alone.
    lent: Arc<File>,
}

impl Default for Leases {
    fn default() -> Self {
        Self::new(WORDS_MAX)
    }
}

impl Leases {
    pub(crate) fn new(words_max: u32) -> Self {
        Self { words_max, words: Mutex::default() }
    }

    /// Takes a word; `None` where all are in use, and once the stack is closed.
    ///
    /// # Errors
    ///
    /// What the operating system says to the page.
    pub(crate) fn take(&self) -> Result<Option<u32>> {
        let mut words = crate::lock(&self.words);
        if words.is_closed {
            return Ok(None);
        }
        if let Some(index) = words.free.pop() {
            return Ok(Some(index));
        }
        let index = words.values.len() as u32;
        if index == self.words_max {
            return Ok(None);
        }
        if words.page.is_none() {
            words.page = Some(Page::new(self.words_max)?);
        }
        // A page of the file that was written once needs no more memory later, when there is no
        // way back.
        let page = words.page.as_ref().expect("it was just made");
        page.write(index, 1).map_err(|error| Error::from_io(OPERATION, error))?;
        words.values.push(1);
        Ok(Some(index))
    }

    /// A word as it is now; `None` once the stack is closed.
    pub(crate) fn word(&self, index: u32) -> Option<GenerationWord> {
        let words = crate::lock(&self.words);
        let page = words.page.as_ref().filter(|_| !words.is_closed)?;
        let value = words.values[index as usize];
        Some(GenerationWord { page: Arc::clone(&page.lent), index, value })
    }

    /// Changes a word: a later look at it finds that the lease is over.
    pub(crate) fn change(&self, index: u32) {
        crate::lock(&self.words).change(index);
    }

    /// Changes a word and makes it anybody's.
    pub(crate) fn give_back(&self, index: u32) {
        let mut words = crate::lock(&self.words);
        words.change(index);
        words.free.push(index);
    }

    /// Changes all words; there are no new leases.
    pub(crate) fn close(&self) {
        let mut words = crate::lock(&self.words);
        if !words.is_closed {
            words.is_closed = true;
            (0..words.values.len() as u32).for_each(|index| words.change(index));
        }
    }
}

impl Words {
    fn change(&mut self, index: u32) {
        let value = &mut self.values[index as usize];
        *value += 1;
        let page = self.page.as_ref().expect("there is no word without a page");
        // A lease that cannot be revoked must stop the process: the write that would follow could be
        // missed by a reader. Nothing is acknowledged behind a panic.
        page.write(index, *value).expect("a page that was written once can be written again");
    }
}

const OPERATION: &str = "make a page of generation words";

impl Page {
    fn new(words_max: u32) -> Result<Self> {
        let failed = |errno: rustix::io::Errno| Error::from_io(OPERATION, errno.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("terrace-leases", flags).map_err(failed)?;
        // Without this a process with the page could open it anew for writing.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let bytes = u64::from(words_max) * WORD_BYTES as u64;
        rustix::fs::ftruncate(&file, bytes).map_err(failed)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(failed)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let lent: OwnedFd = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        Ok(Self { file: file.into(), lent: Arc::new(lent.into()) })
    }

    /// Readers may see some bytes of a word before others. They take the old value for good only
    /// where they saw its lowest byte, which this changes: so they looked before this returned.
    fn write(&self, index: u32, value: u64) -> std::io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes(), u64::from(index) * WORD_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_good(word: &GenerationWord) -> bool {
        word.is_unchanged().expect("reads")
    }

    fn taken(leases: &Leases) -> GenerationWord {
        let index = leases.take().expect("there is memory").expect("one is free");
        leases.word(index).expect("it is open")
    }

    #[test]
    fn a_word_is_good_until_it_changes_and_never_again() {
        let leases = Leases::new(2);
        let (first, other) = (taken(&leases), taken(&leases));
        assert!(is_good(&first) && is_good(&other));
        leases.change(first.index);
        assert!(!is_good(&first) && is_good(&other));
        let mut past = vec![first];
        for _ in 0..300 {
            let index = past[0].index;
            let again = leases.word(index).expect("it is open");
            assert!(is_good(&again));
            leases.give_back(index);
            assert!(!is_good(&again));
            past.push(again);
            assert_eq!(taken(&leases).index, index);
            assert!(!past.iter().any(is_good));
        }
    }

    #[test]
    fn there_are_no_more_words_than_the_bound() {
        let leases = Leases::new(3);
        let words: Vec<_> = (0..3).map(|_| taken(&leases)).collect();
        assert_eq!(leases.take().expect("no failure"), None);
        leases.give_back(words[1].index);
        let again = taken(&leases);
        assert_eq!(again.index, words[1].index);
        assert!(is_good(&again) && !is_good(&words[1]) && is_good(&words[2]));
        assert_eq!(leases.take().expect("no failure"), None);
    }

    #[test]
    fn closing_ends_all_and_lends_no_more() {
        let leases = Leases::new(3);
        let words = [taken(&leases), taken(&leases)];
        leases.close();
        assert!(!words.iter().any(is_good));
        assert!(leases.word(words[0].index).is_none());
        assert_eq!(leases.take().expect("no failure"), None);
        leases.give_back(words[0].index);
        assert_eq!(leases.take().expect("no failure"), None);
    }

    #[test]
    fn nobody_who_gets_the_page_can_change_it() {
        use std::os::unix::fs::MetadataExt;

        let leases = Leases::default();
        let page = taken(&leases).page;
        assert!(page.write_all_at(&[0; 8], 0).is_err());
        assert!(page.set_len(0).is_err());
        let metadata = page.metadata().expect("stats");
        // A process of another user cannot open it anew either.
        assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o600, 8 * u64::from(WORDS_MAX)));
        let words = crate::lock(&leases.words);
        let own = &words.page.as_ref().expect("it was made").file;
        assert!(own.set_len(0).is_err() && own.set_len(1 << 30).is_err(), "it is sealed");
    }
}
