// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was open or locked here, and a later life of the session could not be told of: whoever goes on
//! to use it would change what others have by now.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use terrace_core::{Error, ErrorKind};
use terrace_fs::{Failure, LockKind, LockRange, Locked, OwnLocks, Request, Result};

/// What is lost, by node, until who had it gives it up.
#[derive(Default)]
pub(super) struct Lost {
    /// Whether there may be anything: nearly always there is not, and all who read and write ask.
    is_any: AtomicBool,
    nodes: Mutex<HashMap<u64, OfNode>>,
}

/// What is lost of a node.
#[derive(Default)]
struct OfNode {
    /// Whether it was open here, and was removed and is gone, or the server lost where its bytes are.
    is_gone: bool,
    /// Locks that others have, by owner and kind.
    locks: HashMap<(u64, bool), OwnLocks>,
}

impl OfNode {
    fn is_empty(&self) -> bool {
        !self.is_gone && self.locks.is_empty()
    }
}

impl Lost {
    /// Whether a node can be used as it was opened and locked here.
    ///
    /// # Errors
    ///
    /// `STALE` where it is gone; `IO` where somebody here has lost a lock of it.
    pub(super) fn check(&self, number: u64) -> Result<()> {
        if !self.is_any.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.nodes().get(&number) {
            None => Ok(()),
            Some(node) if node.is_gone => Err(Errno::STALE.into()),
            Some(_) => Err(lock_is_lost(number)),
        }
    }

    /// Notes that a server will never know as open or locked what it was told of.
    pub(super) fn note(&self, request: &Request<'_>) {
        let mut nodes = self.nodes();
        match request {
            Request::Open { number, .. } => nodes.entry(*number).or_default().is_gone = true,
            Request::Lock { number, owner, is_flock, locked } => {
                let node = nodes.entry(*number).or_default();
                node.locks.entry((*owner, *is_flock)).or_default().set(locked);
            }
            _ => return,
        }
        self.is_any.store(true, Ordering::Release);
    }

    /// An owner has locked or given back a range: of that nothing is lost any more.
    pub(super) fn forget_lock(&self, (number, owner, is_flock): (u64, u64, bool), of: &Locked) {
        self.change(number, |node| {
            let Some(locks) = node.locks.get_mut(&(owner, is_flock)) else { return };
            locks.set(&given_back(of));
            if locks.is_empty() {
                node.locks.remove(&(owner, is_flock));
            }
        });
    }

    /// Nobody here has a node open any more.
    pub(super) fn forget(&self, number: u64) {
        self.change(number, |node| *node = OfNode::default());
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut OfNode)) {
        if !self.is_any.load(Ordering::Acquire) {
            return;
        }
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(&number) else { return };
        change(node);
        if node.is_empty() {
            nodes.remove(&number);
        }
        self.is_any.store(!nodes.is_empty(), Ordering::Release);
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<u64, OfNode>> {
        // What is lost is noted and forgotten one by one.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request that gives a lock back.
pub(super) fn given_back(locked: &Locked) -> Locked {
    let range = LockRange { kind: LockKind::Unlock, ..locked.range };
    Locked { range, ..*locked }
}

fn lock_is_lost(number: u64) -> Failure {
    Error::new(ErrorKind::Io, "use a file")
        .because(
            "a lock of it is lost: its server ended, or did not hear of this client for too long, and \
             another client has it by now; close the file, or lock it anew",
        )
        .with("file", number)
        .into()
}
