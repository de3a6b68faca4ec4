// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairs and objects in the order of their numbers, page by page.

use std::collections::VecDeque;
use std::ops::Bound;

use terrace_core::{Backend, Cursor, Kv, KvRange, Pair};

use crate::failure::Result;
use crate::pairs;

/// Pairs that are read together. Contents of 64 KiB make it 16 MiB.
const PAGE: usize = 256;

/// The pairs whose keys begin with one letter, in order.
pub(super) struct Walk<'a> {
    kv: &'a dyn Kv,
    range: KvRange,
    page: VecDeque<Pair>,
    is_at_end: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(kv: &'a dyn Kv, letter: u8) -> Self {
        let range = KvRange::prefix(&[letter]);
        Self { kv, range, page: VecDeque::new(), is_at_end: false }
    }

    /// The next pair, left in place.
    fn peek(&mut self) -> Result<Option<&Pair>> {
        if self.page.is_empty() && !self.is_at_end {
            let page = self.kv.scan(&self.range, PAGE)?;
            self.is_at_end = page.len() < PAGE;
            if let Some((last, _)) = page.last() {
                self.range = self.range.after(last);
            }
            self.page = page.into();
        }
        Ok(self.page.front())
    }

    fn next(&mut self) -> Result<Option<Pair>> {
        self.peek()?;
        Ok(self.page.pop_front())
    }

    /// The number of the next pair; those whose keys have another form are passed by and counted.
    pub(super) fn number(&mut self, foreign: &mut u64) -> Result<Option<u64>> {
        loop {
            let Some((key, _)) = self.peek()? else { return Ok(None) };
            if has_form(key) {
                return Ok(pairs::number_of(key));
            }
            *foreign += 1;
            self.next()?;
        }
    }

    /// The next pair where it is that of a number.
    pub(super) fn take(&mut self, number: u64) -> Result<Option<Pair>> {
        match self.peek()? {
            Some((key, _)) if has_form(key) && pairs::number_of(key) == Some(number) => self.next(),
            _ => Ok(None),
        }
    }

    /// Goes on behind a key, with what is there by now.
    pub(super) fn resume_after(&mut self, key: &[u8]) {
        self.page.clear();
        self.is_at_end = false;
        self.range = self.range.after(key);
    }
}

/// Whether a key is as long as those of its letter.
fn has_form(key: &[u8]) -> bool {
    match key[0] {
        pairs::XATTR => key.len() > 9,
        pairs::ENTRY => key.len() == 17,
        _ => key.len() == 9,
    }
}

/// The numbers of directories that have entries, each once.
pub(super) struct Listings<'a> {
    kv: &'a dyn Kv,
    range: KvRange,
    number: Option<u64>,
    is_at_end: bool,
}

impl<'a> Listings<'a> {
    pub(super) fn new(kv: &'a dyn Kv) -> Self {
        let range = KvRange::prefix(&[pairs::ENTRY]);
        Self { kv, range, number: None, is_at_end: false }
    }

    pub(super) fn number(&mut self) -> Result<Option<u64>> {
        while self.number.is_none() && !self.is_at_end {
            let page = self.kv.scan(&self.range, 1)?;
            match page.first() {
                None => self.is_at_end = true,
                Some((key, _)) => {
                    self.number = pairs::number_of(key).filter(|_| has_form(key));
                    self.range = self.range.after(key);
                }
            }
        }
        Ok(self.number)
    }

    /// Goes on with the next directory.
    pub(super) fn pass(&mut self) {
        match self.number.take().and_then(|number| number.checked_add(1)) {
            Some(next) => self.range.start = Bound::Included(pairs::entry(next, 0)),
            None => self.is_at_end = true,
        }
    }
}

/// The numbers of the objects that a namespace holds, in order.
pub(super) struct Objects<'a> {
    data: &'a dyn Backend,
    namespace: &'a str,
    cursor: Option<Cursor>,
    numbers: VecDeque<u64>,
    /// Objects whose names are no numbers.
    pub(super) foreign: u64,
}

impl<'a> Objects<'a> {
    /// No objects at all.
    pub(super) fn none(data: &'a dyn Backend) -> Self {
        Self { data, namespace: "", cursor: None, numbers: VecDeque::new(), foreign: 0 }
    }

    /// Lists in order, which is that of the numbers; a backend that lists otherwise is listed as
    /// a whole and sorted, 8 bytes an object.
    pub(super) fn new(data: &'a dyn Backend, namespace: &'a str) -> Result<Self> {
        let (cursor, numbers) = (Some(Cursor::start()), VecDeque::new());
        let mut objects = Self { data, namespace, cursor, numbers, foreign: 0 };
        if !data.capability().ordered_listing {
            while objects.cursor.is_some() {
                objects.list()?;
            }
            objects.numbers.make_contiguous().sort_unstable();
        }
        Ok(objects)
    }

    pub(super) fn number(&mut self) -> Result<Option<u64>> {
        while self.numbers.is_empty() && self.cursor.is_some() {
            self.list()?;
        }
        Ok(self.numbers.front().copied())
    }

    pub(super) fn pass(&mut self) {
        self.numbers.pop_front();
    }

    fn list(&mut self) -> Result<()> {
        let Some(cursor) = self.cursor.take() else { return Ok(()) };
        let page = self.data.list(self.namespace, "", &cursor, PAGE)?;
        self.cursor = page.next;
        for key in &page.keys {
            match number_of(key.name()) {
                Some(number) => self.numbers.push_back(number),
                None => self.foreign += 1,
            }
        }
        Ok(())
    }
}

/// The number that the name of an object says, exactly as it is written.
pub fn number_of(name: &str) -> Option<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_number = name.len() == 16 && name.bytes().all(is_digit);
    is_number.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}
