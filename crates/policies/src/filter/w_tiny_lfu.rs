// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `w-tinylfu`: what is touched more often than what would have to go.

use terrace_core::{Policy, Result, View};

use super::Filtering;
use crate::replacement::WTinyLfu;

/// Makes the policy; `docs/policies/w-tinylfu.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    super::create::<WTinyLfu>(view, parameters)
}

impl Filtering for WTinyLfu {
    const NAME: &'static str = "w-tinylfu";
    const WORD: &'static str = "W-TinyLFU";

    fn new(capacity_bytes: u64) -> Self {
        Self::new(capacity_bytes)
    }
}
