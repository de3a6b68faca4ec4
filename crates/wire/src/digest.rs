// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Digests of what a transaction read, compared by the server when it commits.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use terrace_core::Pair;

/// What a key without a value has; no value is likely to have it.
const ABSENT: u128 = 0;

/// The digest of a key's value.
pub fn digest_value(value: Option<&[u8]>) -> u128 {
    let Some(value) = value else { return ABSENT };
    let mut hasher = SipHasher13::new();
    hasher.write(value);
    hasher.finish128().as_u128()
}

/// The digest of a page of pairs.
pub fn digest_pairs(pairs: &[Pair]) -> u128 {
    let mut digest = PairsDigest::default();
    digest.add(pairs);
    digest.end()
}

/// The digest of pairs that come one after the other.
#[derive(Clone, Debug, Default)]
pub struct PairsDigest(SipHasher13);

impl PairsDigest {
    /// Adds pairs that follow those before.
    pub fn add(&mut self, pairs: &[Pair]) {
        for (key, value) in pairs {
            self.0.write_u64(key.len() as u64);
            self.0.write(key);
            self.0.write_u64(value.len() as u64);
            self.0.write(value);
        }
    }

    /// The digest of all of them.
    pub fn end(&self) -> u128 {
        self.0.finish128().as_u128()
    }
}
