// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers creates by the library's `place`, from bytes that it published.

use std::ptr;
use std::sync::Arc;

use terrace_core::{Layout, Placed, Placement, Placer, TierIndex};
use terrace_policy_abi::{self as abi, layout, status};

use super::library::Library;
use crate::mechanism::boundary::temperature;

/// What a policy published last, with the code that reads it.
#[derive(Debug)]
pub(super) struct Published {
    library: Arc<Library>,
    /// In units of 16 bytes, for the alignment that the header promises.
    units: Box<[u128]>,
    length: usize,
}

impl Published {
    pub(super) fn new(library: Arc<Library>, bytes: &[u8]) -> Self {
        const UNIT_BYTES: usize = size_of::<u128>();
        let unit = |chunk: &[u8]| {
            let mut unit = [0; UNIT_BYTES];
            unit[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(unit)
        };
        Self { library, units: bytes.chunks(UNIT_BYTES).map(unit).collect(), length: bytes.len() }
    }
}

impl Placer for Published {
    fn place(&self, new: &Placement<'_>) -> Placed {
        let Some(place) = self.library.place else { return Placed::on(TierIndex(0)) };
        let placement = abi::Placement {
            struct_bytes: size_of::<abi::Placement>() as u32,
            segment: new.segment,
            key: abi::Text::new(new.key.as_str()),
            namespace_length: new.key.namespace().len() as u32,
            temperature: temperature(new.hint.temperature).into(),
            size_hint_bytes: new.size_hint_bytes.unwrap_or(abi::SIZE_UNKNOWN),
            start_bytes: new.start_bytes,
        };
        let mut placed = abi::Placed {
            struct_bytes: size_of::<abi::Placed>() as u32,
            tier: 0,
            layout: layout::ONE,
            start_count: 0,
            segment_bytes: 0,
            starts_bytes: [0; abi::STARTS_MAX],
        };
        let published = if self.length == 0 { ptr::null() } else { self.units.as_ptr().cast() };
        // SAFETY: everything passed is valid during the call; the header requires that `place` may
        // run in many threads at once.
        let status = unsafe { place(published, self.length, &placement, &mut placed) };
        if status != status::OK {
            return Placed::on(TierIndex(0));
        }
        // Tiers and layouts that make no sense are put right by the stack; this keeps them such.
        Placed {
            tier: TierIndex(u8::try_from(placed.tier).unwrap_or(u8::MAX)),
            layout: cut(&placed),
        }
    }

    fn is_foreign(&self) -> bool {
        self.library.place.is_some()
    }
}

fn cut(placed: &abi::Placed) -> Layout {
    match placed.layout {
        layout::FIXED => Layout::Fixed { segment_bytes: placed.segment_bytes },
        layout::STEPS => match placed.starts_bytes.get(..placed.start_count as usize) {
            Some(starts_bytes) => Layout::Steps { starts_bytes: starts_bytes.into() },
            None => Layout::One,
        },
        _ => Layout::One,
    }
}
