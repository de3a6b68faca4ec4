// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `sieve`: what is touched again before the hand comes by.

use terrace_core::{Policy, Result, View};

use super::Filtering;
use crate::replacement::Sieve;

/// Makes the policy; `docs/policies/sieve.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    super::create::<Sieve>(view, parameters)
}

impl Filtering for Sieve {
    const NAME: &'static str = "sieve";
    const WORD: &'static str = "SIEVE";

    fn new(_: u64) -> Self {
        Self::default()
    }
}
