// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When files that are open here last changed, as far as their users know.
//!
//! A program that knows that a file changed does not get bytes from before. This stands apart from the files
//! themselves, because an answer about a node does not wait for one that is being opened.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::node::Node;

/// When each open file last changed: nanoseconds since 1970.
#[derive(Default)]
pub(super) struct Told(Mutex<HashMap<u64, Arc<AtomicU64>>>);

impl Told {
    /// A file is opened; where it is noted when it changed.
    pub(super) fn open(&self, node: &Node) -> Arc<AtomicU64> {
        let changed_ns = Arc::clone(lock(&self.0).entry(node.number).or_default());
        changed_ns.fetch_max(node.changed.to_ns(), Ordering::AcqRel);
        changed_ns
    }

    /// It is not open here any more.
    pub(super) fn close(&self, number: u64) {
        lock(&self.0).remove(&number);
    }

    /// The attributes of a node are returned to a user.
    pub(super) fn hear(&self, node: &Node) {
        if let Some(changed_ns) = lock(&self.0).get(&node.number) {
            changed_ns.fetch_max(node.changed.to_ns(), Ordering::AcqRel);
        }
    }
}
