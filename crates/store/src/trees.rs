// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a file system is made, and what is in its namespace before.

use terrace_core::{Backend, Cursor, Key, Kv, Result};
use terrace_fs::{Tree, TreeOptions};

pub(crate) const OPEN: &str = "open a file system";
pub(crate) const MAKE: &str = "make a file system";

pub(crate) fn make_tree(kv: &dyn Kv, options: &TreeOptions) -> Result<()> {
    let mut entropy = [0; 32];
    terrace_transport::random_bytes(&mut entropy)?;
    let clock = terrace_core::SystemClock::default();
    Tree::create(kv, options, &clock, &entropy).map_err(|failure| failure.into_error(MAKE))
}

/// An object of a namespace, if there is any.
pub(crate) fn first_object(data: &dyn Backend, namespace: &str) -> Result<Option<Key>> {
    let mut cursor = Some(Cursor::start());
    while let Some(from) = cursor {
        let mut page = data.list(namespace, "", &from, 1)?;
        if let found @ Some(_) = page.keys.pop() {
            return Ok(found);
        }
        cursor = page.next;
    }
    Ok(None)
}
