// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requirements as one number of a header.

use terrace_core::{Error, ErrorKind, Persistency, Result, Semantics};

/// Where the level of persistency begins in the number; each axis has four bits.
const PERSISTENCY_SHIFT: u32 = 16;

const PERSISTENCIES: [Persistency; 3] =
    [Persistency::None, Persistency::Process, Persistency::Storage];

/// Packs requirements into a number: four bits for each axis.
pub fn pack_semantics(semantics: &Semantics) -> u32 {
    (semantics.persistency as u32) << PERSISTENCY_SHIFT
}

/// Reads what [`pack_semantics`] wrote.
///
/// # Errors
///
/// `Unsupported` for a requirement that this build does not know: it is not ignored.
pub fn unpack_semantics(number: u32) -> Result<Semantics> {
    let unknown = || {
        Error::new(ErrorKind::Unsupported, "meet the semantics of a request")
            .because("this version of Terrace does not know them")
            .with("semantics", format!("{number:#x}"))
    };
    let level = (number >> PERSISTENCY_SHIFT) as usize;
    let persistency = *PERSISTENCIES.get(level).ok_or_else(unknown)?;
    let semantics = Semantics { persistency };
    if pack_semantics(&semantics) != number {
        return Err(unknown());
    }
    Ok(semantics)
}
