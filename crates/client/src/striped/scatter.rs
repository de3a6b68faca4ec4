// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers of one call, cut into what each piece has of them: one read or write for each.

use std::io::{IoSlice, IoSliceMut};

use terrace_core::{Object, Result};

use super::layout::Layout;

/// Calls `each` with piece and length of every part of a range, buffer by buffer.
fn cut(
    layout: &Layout,
    offset_bytes: u64,
    lengths: impl Iterator<Item = usize>,
    mut each: impl FnMut(usize, usize, usize),
) {
    let mut at = offset_bytes;
    for (buffer, mut left) in lengths.enumerate() {
        while left > 0 {
            let run = layout.run_at(at);
            let count = usize::try_from(run.length_bytes).unwrap_or(usize::MAX).min(left);
            each(buffer, run.piece, count);
            at += count as u64;
            left -= count;
        }
    }
}

/// What is to be written, by piece.
pub(super) struct Scattered<'a> {
    pieces: Vec<Option<Outgoing<'a>>>,
}

/// What one piece gets: one range without gaps.
pub(super) struct Outgoing<'a> {
    start_bytes: u64,
    parts: Vec<&'a [u8]>,
}

impl<'a> Scattered<'a> {
    pub(super) fn new(layout: &Layout, offset_bytes: u64, data: &'a [IoSlice<'_>]) -> Self {
        let mut pieces: Vec<Option<Outgoing<'a>>> = layout.servers().iter().map(|_| None).collect();
        let mut left: Vec<&'a [u8]> = data.iter().map(|part| &**part).collect();
        cut(layout, offset_bytes, data.iter().map(|part| part.len()), |buffer, piece, count| {
            let (part, rest) = left[buffer].split_at(count);
            left[buffer] = rest;
            let start_bytes = layout.below(piece, offset_bytes);
            let outgoing = Outgoing { start_bytes, parts: Vec::new() };
            pieces[piece].get_or_insert(outgoing).parts.push(part);
        });
        Self { pieces }
    }

    /// Those pieces that get something.
    pub(super) fn into_pieces(self) -> Vec<(usize, Outgoing<'a>)> {
        let pieces = self.pieces.into_iter().enumerate();
        pieces.filter_map(|(index, piece)| piece.map(|piece| (index, piece))).collect()
    }
}

impl Outgoing<'_> {
    pub(super) fn write(&self, piece: &dyn Object) -> Result<()> {
        let parts: Vec<_> = self.parts.iter().map(|part| IoSlice::new(part)).collect();
        piece.write_at(self.start_bytes, &parts)
    }
}

/// What is to be read, by piece.
pub(super) struct Gathered<'a> {
    pieces: Vec<Option<Incoming<'a>>>,
}

/// What one piece gives: one range without gaps, of which the first bytes may be there already.
pub(super) struct Incoming<'a> {
    start_bytes: u64,
    parts: Vec<&'a mut [u8]>,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(
        layout: &Layout,
        offset_bytes: u64,
        buffers: &'a mut [IoSliceMut<'_>],
    ) -> Self {
        let mut pieces: Vec<Option<Incoming<'a>>> = layout.servers().iter().map(|_| None).collect();
        let lengths: Vec<_> = buffers.iter().map(|buffer| buffer.len()).collect();
        let mut left: Vec<&'a mut [u8]> = buffers.iter_mut().map(|buffer| &mut **buffer).collect();
        cut(layout, offset_bytes, lengths.into_iter(), |buffer, piece, count| {
            let (part, rest) = std::mem::take(&mut left[buffer]).split_at_mut(count);
            left[buffer] = rest;
            let start_bytes = layout.below(piece, offset_bytes);
            let incoming = Incoming { start_bytes, parts: Vec::new() };
            pieces[piece].get_or_insert(incoming).parts.push(part);
        });
        Self { pieces }
    }

    /// Those pieces of which bytes are missing.
    pub(super) fn waiting(&mut self) -> Vec<(usize, &mut Incoming<'a>)> {
        let pieces = self.pieces.iter_mut().enumerate();
        let pieces = pieces.filter_map(|(index, piece)| Some((index, piece.as_mut()?)));
        pieces.filter(|(_, piece)| !piece.parts.is_empty()).collect()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.pieces.iter().flatten().all(|piece| piece.parts.is_empty())
    }

    /// Takes what is missing in front of the end of the object for zeros.
    pub(super) fn fill_with_zeros(&mut self, layout: &Layout, size_bytes: u64) {
        for (index, piece) in self.waiting() {
            piece.fill_with_zeros(layout.below(index, size_bytes));
        }
    }
}

impl Incoming<'_> {
    /// Reads what is missing, as far as the piece goes.
    pub(super) fn fill(&mut self, piece: &dyn Object) -> Result<()> {
        let mut buffers: Vec<_> = self.parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        let count = piece.read_at(self.start_bytes, &mut buffers)?;
        self.start_bytes += count as u64;
        let mut left = count;
        let mut whole = 0;
        for part in &mut self.parts {
            if left < part.len() {
                let rest = std::mem::take(part);
                *part = &mut rest[left..];
                break;
            }
            left -= part.len();
            whole += 1;
        }
        self.parts.drain(..whole);
        Ok(())
    }
    /// Takes what is missing in front of an offset of the piece for zeros.
    fn fill_with_zeros(&mut self, end_bytes: u64) {
        let mut left_bytes = end_bytes.saturating_sub(self.start_bytes);
        for part in &mut self.parts {
            let count = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(part.len());
            part[..count].fill(0);
            left_bytes -= count as u64;
        }
    }
}
