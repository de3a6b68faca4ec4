// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requirements as one number of a header.

use terrace_core::{
    Atomicity, BatchOrdering, Concurrency, Consistency, Error, ErrorKind, Persistency, Result,
    Semantics,
};

/// Bits of one axis.
const AXIS_BITS: u32 = 4;

/// Packs requirements into a number: four bits for each axis, in the order of their names.
pub fn pack_semantics(semantics: &Semantics) -> u32 {
    let codes = [
        semantics.atomicity.code(),
        semantics.concurrency.code(),
        semantics.consistency.code(),
        semantics.ordering.code(),
        semantics.persistency.code(),
    ];
    codes.iter().rev().fold(0, |number, code| number << AXIS_BITS | u32::from(*code))
}

/// Reads what [`pack_semantics`] wrote.
///
/// # Errors
///
/// `Unsupported` for a requirement that this build does not know: it is not ignored.
pub fn unpack_semantics(number: u32) -> Result<Semantics> {
    let axis = |index: u32| (number >> (index * AXIS_BITS)) as u8 & 0xf;
    let known = || {
        let semantics = Semantics {
            atomicity: Atomicity::from_code(axis(0))?,
            concurrency: Concurrency::from_code(axis(1))?,
            consistency: Consistency::from_code(axis(2))?,
            ordering: BatchOrdering::from_code(axis(3))?,
            persistency: Persistency::from_code(axis(4))?,
        };
        // Bits of axes that there are not yet.
        (pack_semantics(&semantics) == number).then_some(semantics)
    };
    known().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "meet the semantics of a request")
            .because("this version of Terrace does not know them")
            .with("semantics", format!("{number:#x}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_axis_crosses_and_nothing_unknown_is_ignored() {
        for (_, template) in Semantics::TEMPLATES {
            assert_eq!(unpack_semantics(pack_semantics(&template)).expect("known"), template);
        }
        let semantics = Semantics {
            atomicity: Atomicity::Batch,
            concurrency: Concurrency::NonOverlapping,
            consistency: Consistency::Eventual,
            ordering: BatchOrdering::Strict,
            persistency: Persistency::Storage,
        };
        assert_eq!(pack_semantics(&semantics), 0x2_1212);
        assert_eq!(unpack_semantics(0x2_1212).expect("known"), semantics);
        for unknown in [0x3, 0x30, 0x300, 0x2000, 0x4_0000, 0x10_0000, u32::MAX] {
            let error = unpack_semantics(unknown).expect_err("unknown");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }
}
