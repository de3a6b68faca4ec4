// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `s3-fifo`: what comes back soon after a short queue, or proves itself there.

use terrace_core::{Policy, Result, View};

use super::Filtering;
use crate::replacement::S3Fifo;

/// Makes the policy; `docs/policies/s3-fifo.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    super::create::<S3Fifo>(view, parameters)
}

impl Filtering for S3Fifo {
    const NAME: &'static str = "s3-fifo";
    const WORD: &'static str = "S3-FIFO";

    fn new(capacity_bytes: u64) -> Self {
        Self::new(capacity_bytes)
    }
}
