// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the private format of framed objects. It may change with every version.

use std::io::IoSlice;
use std::sync::Arc;

use terrace_core::{Backend, BackendExt, Key, Open, Persistency, Result, Semantics};

use super::format::Lengths;
use super::seal::{Part, Seal};
use super::shape::Shape;
use super::{Framed, Packing};
use crate::object::Memory;

/// Reads the object that consists of these frames, each compressed or not, sealed as they are.
///
/// # Errors
///
/// `Corrupt` where they are no object of this size.
pub fn read_frames(frame_bits: u8, size_bytes: u64, frames: &[(bool, &[u8])]) -> Result<Vec<u8>> {
    let name = Key::new("seg", "object")?;
    let shape = Shape { frame_bits, ..Shape::new([0; 16], false) };
    let seal = Seal::new(&shape, None, &name);
    let (mut stored, mut lengths) = (Vec::new(), Lengths::default());
    for (number, (is_compressed, data)) in frames.iter().enumerate() {
        let from = stored.len();
        stored.extend_from_slice(data);
        lengths.push(data.len(), *is_compressed);
        seal.close(Part::Frame(number as u64), &mut stored, from);
    }
    stored.extend(lengths.finish(size_bytes, &shape, &seal));
    let below = Arc::new(Memory::new(u64::MAX));
    let how = Open::create_new().with_semantics(Semantics::at_level(Persistency::None));
    below.open(&name, &how)?.write_at(0, &[IoSlice::new(&stored)])?;
    Framed::open(below, Packing::default())?.read_all(&name)
}
