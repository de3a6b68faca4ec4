// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which file systems are in use through a session with a server: each once.
//!
//! The server tells users apart by their sessions. Two of one session would close each other's
//! files, and be told of names that the other one makes as if they had made them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{Error, ErrorKind, Result};

/// The names of those that are in use.
#[derive(Clone, Default)]
pub struct InUse(Arc<Mutex<HashSet<String>>>);

/// One of them; not in use any more when it is dropped.
pub struct Using {
    all: InUse,
    name: String,
}

impl InUse {
    /// # Errors
    ///
    /// `Busy` where it is in use.
    pub fn begin(&self, name: &str) -> Result<Using> {
        match self.names().insert(name.into()) {
            true => Ok(Using { all: self.clone(), name: name.into() }),
            false => Err(Error::new(ErrorKind::Busy, "open a file system")
                .because("it is in use through this session; attach the store once more")
                .with("name", name)),
        }
    }

    fn names(&self) -> MutexGuard<'_, HashSet<String>> {
        // Names come and go one by one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.all.names().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_in_use_once() {
        let all = InUse::default();
        let using = all.begin("files").expect("nobody uses it");
        assert_eq!(all.begin("files").map(drop).expect_err("in use").kind(), ErrorKind::Busy);
        drop(all.begin("others").expect("nobody uses it"));
        drop(using);
        drop(all.begin("files").expect("nobody uses it any more"));
    }
}
