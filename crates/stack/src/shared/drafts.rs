// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the store keeps of a draft that is not published.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::memory::entry::Entry;

pub(crate) struct Unpublished {
    pub(crate) entry: Arc<Entry>,
    /// Histories of segments that did not come to their tier. The catalog gets them with the object:
    /// after a crash, the rows of garbage that a draft has there would leave them behind.
    pub(crate) histories: BTreeMap<u32, Vec<u8>>,
}
