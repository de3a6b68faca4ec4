// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel has cached of files that others change, too.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use terrace_fs::{Node, Time};

/// Files that are remembered; what is forgotten is read again.
const FILES_MAX: usize = 1 << 16;

/// As what each file was last opened here.
#[derive(Default)]
pub(crate) struct Seen(Mutex<HashMap<u64, State>>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    size: u64,
    modified: Time,
    changed: Time,
}

impl Seen {
    /// Notes that a file is opened; whether it is as it was when it was last opened here, so that
    /// what is cached of it is still good.
    pub(crate) fn is_same(&self, node: &Node) -> bool {
        let Node { size, modified, changed, .. } = *node;
        let state = State { size, modified, changed };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= FILES_MAX {
            seen.clear();
        }
        // Who writes to it at the moment may write again within one tick of its clock.
        seen.insert(node.number, state) == Some(state) && !node.is_written
    }
}
