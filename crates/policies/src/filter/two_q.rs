// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `2q`: what comes back after it left a first queue.

use terrace_core::{Policy, Result, View};

use super::Filtering;
use crate::replacement::TwoQ;

/// Makes the policy; `docs/policies/2q.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    super::create::<TwoQ>(view, parameters)
}

impl Filtering for TwoQ {
    const NAME: &'static str = "2q";
    const WORD: &'static str = "2Q";

    fn new(capacity_bytes: u64) -> Self {
        Self::new(capacity_bytes)
    }
}
