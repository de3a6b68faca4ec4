// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `arc`: recency and frequency in shares that adapt.

use terrace_core::{Policy, Result, View};

use super::Filtering;
use crate::replacement::Arc;

/// Makes the policy; `docs/policies/arc.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    super::create::<Arc>(view, parameters)
}

impl Filtering for Arc {
    const NAME: &'static str = "arc";
    const WORD: &'static str = "ARC";

    fn new(capacity_bytes: u64) -> Self {
        Self::new(capacity_bytes)
    }
}
