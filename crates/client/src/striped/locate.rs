// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which server has an object.

use terrace_core::{Error, ErrorKind, Key, Result};

use super::parallel::at_once;
use super::{Member, Shared};

impl Shared {
    /// Asks the servers that may have the object until one has it; returns its index and answer.
    ///
    /// # Errors
    ///
    /// `NotFound` where none has it; what the first server says that cannot tell.
    pub(super) fn locate<T: Send>(
        &self,
        operation: &'static str,
        key: &Key,
        ask: impl Fn(&Member) -> Result<T> + Sync,
    ) -> Result<(usize, T)> {
        for home in self.map.homes(key) {
            if let Some(answer) = self.ask(home, &ask)? {
                return Ok((home, answer));
            }
        }
        match self.elsewhere(key, ask)? {
            Some(found) => Ok(found),
            None => Err(Error::new(ErrorKind::NotFound, operation)
                .with("key", key)
                .with("target", &self.target)),
        }
    }

    /// Whether an object of this name is on another server than its home.
    pub(super) fn exists_elsewhere(&self, key: &Key) -> Result<bool> {
        let stat = |member: &Member| member.backend.stat(key);
        for home in self.map.homes(key).into_iter().skip(1) {
            if self.ask(home, stat)?.is_some() {
                return Ok(true);
            }
        }
        Ok(self.elsewhere(key, stat)?.is_some())
    }

    /// Where nothing says which servers are new, the object may be anywhere.
    fn elsewhere<T: Send>(
        &self,
        key: &Key,
        ask: impl Fn(&Member) -> Result<T> + Sync,
    ) -> Result<Option<(usize, T)>> {
        if self.map.has_epochs() {
            return Ok(None);
        }
        let others = self.map.ranked(key).into_iter().skip(1);
        let ask = &ask;
        let answers = at_once(others.map(|one| move || Ok((one, self.ask(one, ask)?))).collect());
        let mut refused = None;
        for answer in answers {
            match answer {
                Ok((one, Some(found))) => return Ok(Some((one, found))),
                Ok((_, None)) => {}
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    fn ask<T>(&self, index: usize, ask: impl Fn(&Member) -> Result<T>) -> Result<Option<T>> {
        let member = self.member(index);
        match ask(member) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(member.blame(error)),
        }
    }
}
