// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file system is asked: from caches, put off, or from the server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use terrace_fs::{
    CacheReport, DELEGATED_FOR, Delegated, ENTRIES_AHEAD_MAX, Listed, Marks, Metadata, Node, Reply,
    Request, Result, Time, file_in,
};

use super::{ALONE_MIN, NUMBERS, RemoteFiles, unless_away};
use crate::cache_counts::Cache;

impl Metadata for RemoteFiles {
    fn call(&self, request: &Request<'_>) -> Result<Reply> {
        if let Request::Lookup { directory, name } = request {
            let is_nowhere = self.delegated.is_nowhere(*directory, name);
            self.counts.count(Cache::AbsentNames, is_nowhere);
            if is_nowhere {
                return Ok(Reply::Nowhere);
            }
        }
        if !(self.later.is_empty() && self.removals.is_empty())
            && let Some(reply) = self.make_before(request)?
        {
            return Ok(reply);
        }
        if let Request::Close { closed, .. } = request {
            self.recent.forget_objects(closed);
            return self.close(request, closed);
        }
        self.ask(request)
    }

    fn make_later(&self, request: &Request<'_>) -> Option<Reply> {
        let Request::Make { directory, name, made } = request else { return None };
        let stays_nowhere = || self.delegated.stays_nowhere(*directory, name, ALONE_MIN);
        if !self.later.may_take(made) || !stays_nowhere() || !self.is_looked_for() {
            return None;
        }
        // Its times are the last one of the directory, or that was returned since.
        if !self.later.is_busy(*directory) || !self.has_last_time(*directory) {
            return None;
        }
        let (parent, _) = self.recent(*directory, DELEGATED_FOR)?;
        let node = file_in(&parent, 0, made).filter(|_| parent.marks == Marks::default())?;
        let number = self.later.number(self.held.life(), || {
            match self.held.carry_out(&Request::Numbers { count: NUMBERS })? {
                Reply::Numbers(numbers) => Ok(numbers),
                _ => Err(Errno::INVAL.into()),
            }
        })?;
        // To get numbers may have taken long. That this one is lost does no harm.
        if !stays_nowhere() {
            return None;
        }
        self.later.add(number, (*directory, name), made, self.begin_noting(request));
        self.soon.wake();
        // The server stamps it when it makes it, which is later.
        let now = node.changed.max(self.returned());
        let (accessed, modified, changed, created) = (now, now, now, now);
        let node = Node { number, accessed, modified, changed, created, ..node };
        Some(Reply::Made { node, directory: parent, delegated: Delegated::default() })
    }

    fn remove_later(&self, directory: u64, name: &[u8]) -> Result<Option<Reply>> {
        let Some(file) = self.removable(directory, name) else { return Ok(None) };
        match self.say_gone(directory, name, file) {
            None => self.remove_now(directory, name, file),
            said => Ok(said),
        }
    }

    fn note_returned(&self, changed: Time) {
        self.returned_ns.fetch_max(changed.to_ns(), Ordering::Relaxed);
    }

    fn note_object_written(&self) {
        self.written_ns.fetch_max(self.clock.now_ns(), Ordering::AcqRel);
    }

    fn finish(&self) -> Result<()> {
        let finished = self.catch_up(Duration::ZERO);
        if let Err(failure) = &finished {
            self.log_lost(failure);
        }
        finished
    }

    fn life(&self) -> u64 {
        self.held.life()
    }

    fn whole_since(&self) -> u64 {
        self.held.whole_since()
    }

    fn recent(&self, number: u64, age_max: Duration) -> Option<(Node, Duration)> {
        let is_written = self.held.is_written(number);
        let found = if is_written { None } else { self.recent.find(number, age_max) };
        self.counts.count(Cache::Inodes, found.is_some());
        found
    }

    fn ahead(
        &self,
        directory: u64,
        name: &[u8],
        age_max: Duration,
    ) -> Result<Option<(Node, Duration)>> {
        let take = || {
            let (number, age) = self.ahead.take(directory, name, age_max)?;
            let (node, node_age) = self.recent(number, age_max)?;
            Some((node, age.max(node_age)))
        };
        let found = take();
        self.counts.count(Cache::Names, found.is_some());
        if found.is_some() {
            return Ok(found);
        }
        let size = || match self.recent(directory, age_max) {
            Some((node, _)) => Ok(Some(node.size)),
            None => match unless_away(self.call(&Request::Node { number: directory }))? {
                Ok(Reply::Node(node)) => Ok(Some(node.size)),
                _ => Ok(None),
            },
        };
        let Some(fetch) = self.ahead.wanted(directory, age_max, size)? else { return Ok(None) };
        let asked = self.call(&fetch.request());
        self.ahead.fetched(&fetch, &asked);
        let _ = unless_away(asked)?;
        Ok(take())
    }

    fn list_ahead(
        &self,
        directory: u64,
        after: u64,
        max: usize,
        age_max: Duration,
    ) -> Result<Option<(Vec<Listed>, Duration)>> {
        let kept = self.listings.take(directory, after, max, age_max);
        self.counts.count(Cache::Listings, kept.is_some());
        if let Some(kept) = kept {
            let certain = self.certain(directory, kept);
            if certain.is_none() {
                self.listings.note_useless(directory, after == 0);
            }
            return Ok(certain);
        }
        let is_long = |(node, _): (Node, Duration)| node.size > u64::from(ENTRIES_AHEAD_MAX);
        if after > 0 || self.recent(directory, age_max).is_some_and(is_long) {
            return Ok(None);
        }
        let count = self.recent.count();
        let Some(fetch) = self.listings.wanted(directory, count) else { return Ok(None) };
        let asked = self.call(&fetch.request());
        let found = self.listings.fetched(&fetch, &asked, max);
        let _ = unless_away(asked)?;
        let certain = found.and_then(|found| self.certain(directory, found));
        if certain.is_none() {
            self.listings.note_useless(directory, false);
        }
        Ok(certain)
    }

    fn neighbours(&self, number: u64, max: usize, bytes_max: u64) -> Vec<u64> {
        self.neighbours.take(number, max, bytes_max)
    }

    fn forgotten(&self, number: u64) {
        self.ahead.forgotten(number);
    }

    fn check(&self, number: u64) -> Result<()> {
        self.later.check(number)?;
        self.held.check(number)
    }

    fn check_to_close(&self, number: u64) -> Result<()> {
        if let Some(due) = self.later.find(number) {
            self.make_now(&due, b"")?;
        }
        self.later.check(number)?;
        self.held.check_to_close(number)
    }

    fn take_loss(&self, of: Option<u64>) -> bool {
        let is_kept = self.removals.take_kept(of);
        self.held.take_loss(of) || is_kept
    }

    fn lacks_xattr(&self, number: u64, name: Option<&[u8]>, age_max: Duration) -> bool {
        // What is to be made has none.
        let lacks =
            self.later.find(number).is_some() || self.absent.is_absent(number, name, age_max);
        self.counts.count(Cache::AbsentXattrs, lacks);
        lacks
    }

    fn caches(&self) -> Vec<CacheReport> {
        self.counts.report()
    }
}
