// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether two files hold the same bytes.

use std::io::IoSliceMut;

use terrace_core::{Buffer, Open, Persistency, Result, Semantics};

use crate::Tier;
use crate::catalog::files::FileName;

const STEP_BYTES: usize = 256 << 10;

/// Compares two files byte by byte.
///
/// # Errors
///
/// Those of opening and reading either.
pub(super) fn have_same_bytes(tiers: &[Tier], one: &FileName, other: &FileName) -> Result<bool> {
    let how = Open::read().with_semantics(Semantics::at_level(Persistency::None));
    let open = |name: &FileName| tiers[name.tier.index()].backend.open(&name.key(), &how);
    let (one, other) = (open(one)?, open(other)?);
    let (mut left, mut right) = (Buffer::zeroed(STEP_BYTES), Buffer::zeroed(STEP_BYTES));
    let mut at = 0;
    loop {
        let count = one.read_at(at, &mut [IoSliceMut::new(&mut left)])?;
        let other_count = other.read_at(at, &mut [IoSliceMut::new(&mut right)])?;
        if left[..count] != right[..other_count] {
            return Ok(false);
        }
        if count < STEP_BYTES {
            return Ok(true);
        }
        at += count as u64;
    }
}
