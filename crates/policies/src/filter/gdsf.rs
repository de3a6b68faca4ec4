// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gdsf`: what is touched often for its size.

use terrace_core::{Policy, Result, View};

use super::Filtering;
use crate::replacement::Gdsf;

/// Makes the policy; `docs/policies/gdsf.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    super::create::<Gdsf>(view, parameters)
}

impl Filtering for Gdsf {
    const NAME: &'static str = "gdsf";
    const WORD: &'static str = "GDSF";

    fn new(_: u64) -> Self {
        Self::default()
    }
}
