// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the private formats of distributed objects. Not for anybody else: it may
//! change with every version.

use terrace_core::Result;

use super::layout::Layout;
use super::piece::Piece;

/// The label of the layout that this label is.
///
/// # Errors
///
/// `Corrupt` or `Unsupported` where it is none.
pub fn reencode_layout(label: &[u8]) -> Result<Vec<u8>> {
    let layout = Layout::decode(label)?;
    // Where each byte is must be known, wherever it is.
    for offset in [0, 1, 1 << 20, i64::MAX as u64 - 1] {
        let run = layout.run_at(offset);
        let at = layout.below(run.piece, offset);
        assert_eq!(layout.offset_of(run.piece, at), offset, "{layout:?}");
        assert!(run.length_bytes > 0);
    }
    Ok(layout.encode())
}

/// The label of the piece that this label is.
///
/// # Errors
///
/// `Corrupt` or `Unsupported` where it is none.
pub fn reencode_piece(label: &[u8]) -> Result<Vec<u8>> {
    Piece::decode("fuzzing", label).map(|piece| piece.encode())
}
