// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to close that come again: each closes once.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rustix::io::Errno;

use crate::failure::Result;
use crate::lock;

/// Requests whose answer may be asked for again, at most: more than a client asks at a time.
const KEPT_MAX: usize = 4096;

/// What became of the requests to close of one user, as long as they may come again.
#[derive(Default)]
pub(super) struct Once(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Those with a smaller id do not come again.
    acknowledged: u64,
    /// By id, the objects that are to be deleted since; `None` while it is carried out.
    ended: BTreeMap<u64, Option<Vec<u64>>>,
}

impl Once {
    /// Begins a request; the objects that are to be deleted where it was carried out before. One
    /// that is new has to be ended.
    ///
    /// # Errors
    ///
    /// `BUSY` while it is carried out, or with too many; `STALE` where it was not to come again.
    pub(super) fn begin(&self, id: u64, acknowledged: u64) -> Result<Option<Vec<u64>>> {
        let mut kept = lock(&self.0);
        if acknowledged > kept.acknowledged {
            kept.acknowledged = acknowledged;
            kept.ended = kept.ended.split_off(&acknowledged);
        }
        match kept.ended.get(&id) {
            Some(Some(garbage)) => return Ok(Some(garbage.clone())),
            Some(None) => return Err(Errno::BUSY.into()),
            None if id < kept.acknowledged => return Err(Errno::STALE.into()),
            None if kept.ended.len() >= KEPT_MAX => return Err(Errno::BUSY.into()),
            None => {}
        }
        kept.ended.insert(id, None);
        Ok(None)
    }

    /// Ends a request that was begun.
    pub(super) fn end(&self, id: u64, garbage: &[u64]) {
        let mut kept = lock(&self.0);
        if id >= kept.acknowledged {
            kept.ended.insert(id, Some(garbage.to_vec()));
        }
    }

    /// The objects that are to be deleted and may not have reached the user.
    pub(super) fn unheard(&self) -> Vec<u64> {
        lock(&self.0).ended.values().flatten().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_again_is_not_carried_out_again() {
        let once = Once::default();
        assert_eq!(once.begin(5, 5), Ok(None));
        assert_eq!(once.begin(5, 5), Err(Errno::BUSY.into()), "it is being carried out");
        once.end(5, &[7]);
        assert_eq!(once.begin(5, 5), Ok(Some(vec![7])));
        assert_eq!(once.begin(6, 5), Ok(None), "another one");
        assert_eq!(once.begin(5, 6), Err(Errno::STALE.into()), "its answer was there");
        once.end(6, &[]);
        assert_eq!(once.begin(6, 6), Ok(Some(Vec::new())));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let once = Once::default();
        for id in 0..KEPT_MAX as u64 {
            assert_eq!(once.begin(id, 0), Ok(None));
            once.end(id, &[]);
        }
        let next = KEPT_MAX as u64;
        assert_eq!(once.begin(next, 0), Err(Errno::BUSY.into()));
        assert_eq!(once.begin(next, 1), Ok(None), "one was acknowledged");
    }
}
