// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers from numbers: the same for the same input on every host.

/// Spreads the bits of `value` over all 64; a bijection.
/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, section 5).
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
