// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all parts of a framed object have in common.

/// Plain bytes of a frame: small enough that a read of a page fetches and decodes little, large enough that
/// compression finds most of what repeats.
pub(super) const FRAME_BYTES: usize = 1 << FRAME_BITS;
pub(super) const FRAME_BITS: u8 = 17;

pub(super) const SALT_BYTES: usize = 16;

pub(super) const ENCRYPTED: u8 = 1;

/// How an object is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) salt: [u8; SALT_BYTES],
    pub(super) is_encrypted: bool,
    pub(super) frame_bits: u8,
}

impl Shape {
    pub(super) fn new(salt: [u8; SALT_BYTES], is_encrypted: bool) -> Self {
        Self { salt, is_encrypted, frame_bits: FRAME_BITS }
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        1 << self.frame_bits
    }

    /// 18 bytes of the trailer, to which every seal is bound.
    pub(super) fn encode(&self) -> [u8; SALT_BYTES + 2] {
        let mut bytes = [0; SALT_BYTES + 2];
        bytes[..SALT_BYTES].copy_from_slice(&self.salt);
        bytes[SALT_BYTES] = if self.is_encrypted { ENCRYPTED } else { 0 };
        bytes[SALT_BYTES + 1] = self.frame_bits;
        bytes
    }
}
