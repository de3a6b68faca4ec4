// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A copy of the catalog as of one moment, while commits go on.
//!
//! Pairs are read page by page. Commits note the keys that they write, as far as the copy has passed
//! them; behind each page those are read again, and a page ends sooner where they are many. So memory
//! holds what changes while a page is copied, not what changes while all of them are.

use std::sync::PoisonError;

use terrace_core::{KvRange, Pair, Result};

use crate::catalog::log::LogPoint;
use crate::catalog::map::Catalog;
use crate::catalog::touched::{Touched, too_fast};

/// Why a log ends whose checkpoint was not written.
const NO_CHECKPOINT: &str = "its checkpoint could not be written";

/// Pairs that are read at a time.
const PAGE_PAIRS: usize = 1000;

/// So many pages in a row may be left early: commits that change as much as is written all the time would make
/// a copy grow without an end.
const LEFT_EARLY_MAX: u32 = 100;

/// Behind the last page, what changed is read again so often at most, before commits wait for the
/// rest; sooner, when so few keys are left.
const ROUNDS_MAX: usize = 20;
const LAST_KEYS: usize = 1000;

/// For so many changed keys commits do not wait where no caller waits for the copy.
const ALONE_KEYS_MAX: usize = 100_000;

impl Catalog {
    /// Gives `each` every pair of the catalog as of one moment near the end of the call, while
    /// commits go on: what changes meanwhile is given again, a pair that is gone as `None`. What
    /// was given last counts. Where `log` is a number, changes since that moment are kept for a
    /// log, which is this one unless there is one already; the return value is its point then.
    #[expect(clippy::type_complexity, reason = "a name for the callback would hide its arguments")]
    pub(crate) fn copy(
        &self,
        log: Option<u64>,
        each: &mut dyn FnMut(&[u8], Option<&[u8]>) -> Result<()>,
    ) -> Result<LogPoint> {
        let _turn = crate::lock(&self.copying);
        let _watching = Watching::begin(self);
        let mut range = KvRange::all();
        let mut left_early = 0;
        loop {
            let pairs = self.kv().scan(&range, PAGE_PAIRS)?;
            let last = pairs.last().filter(|_| pairs.len() == PAGE_PAIRS);
            let last = last.map(|(key, _)| key.clone());
            // A commit that notes nothing from now on was there before the next page is read.
            crate::lock(&self.touched).pass(last.clone());
            let end = self.give_page(&pairs, each)?;
            left_early = if end.is_some() { left_early + 1 } else { 0 };
            if left_early > LEFT_EARLY_MAX {
                return Err(too_fast());
            }
            let Some(end) = end.or(last.as_deref()) else { break };
            self.give_touched(each)?;
            crate::lock(&self.touched).pass(None);
            range = range.after(end);
        }
        for _ in 0..ROUNDS_MAX {
            if self.give_touched(each)? <= LAST_KEYS {
                break;
            }
        }
        // No commit is in flight while these are read.
        let alone = self.is_watched.write().unwrap_or_else(PoisonError::into_inner);
        let keys = crate::lock(&self.touched).take()?;
        if log.is_some() && keys.len() > ALONE_KEYS_MAX {
            return Err(too_fast());
        }
        let values: Result<Vec<_>> =
            keys.into_iter().map(|key| self.kv().get(&key).map(|value| (key, value))).collect();
        let values = values?;
        let (point, is_new) = match log {
            Some(log) => self.changes().cut(log, self.last_ticket_now()?),
            None => (LogPoint::default(), false),
        };
        drop(alone);
        let given = values.into_iter().try_for_each(|(key, value)| each(&key, value.as_deref()));
        if given.is_err() && is_new {
            self.changes().stop(NO_CHECKPOINT);
        }
        given.map(|()| point)
    }

    /// Gives a page; the key at which it was left, because much was touched meanwhile. What is behind
    /// that is read once more, as it is then.
    #[expect(clippy::type_complexity, reason = "a name for the callback would hide its arguments")]
    fn give_page<'a>(
        &self,
        pairs: &'a [Pair],
        each: &mut dyn FnMut(&[u8], Option<&[u8]>) -> Result<()>,
    ) -> Result<Option<&'a [u8]>> {
        for (key, value) in pairs {
            each(key, Some(value))?;
            if crate::lock(&self.touched).is_much() {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Gives what was touched as it is now; how many keys that were.
    #[expect(clippy::type_complexity, reason = "a name for the callback would hide its arguments")]
    fn give_touched(
        &self,
        each: &mut dyn FnMut(&[u8], Option<&[u8]>) -> Result<()>,
    ) -> Result<usize> {
        let keys = crate::lock(&self.touched).take()?;
        let count = keys.len();
        for key in keys {
            each(&key, self.kv().get(&key)?.as_deref())?;
        }
        Ok(count)
    }
}

/// While it lives, keys that are written are noted.
struct Watching<'a>(&'a Catalog);

impl<'a> Watching<'a> {
    fn begin(catalog: &'a Catalog) -> Self {
        *crate::lock(&catalog.touched) = Touched::default();
        *catalog.is_watched.write().unwrap_or_else(PoisonError::into_inner) = true;
        Self(catalog)
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        *self.0.is_watched.write().unwrap_or_else(PoisonError::into_inner) = false;
        *crate::lock(&self.0.touched) = Touched::default();
    }
}
