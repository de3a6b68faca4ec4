// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of a length that the caller or an object determines.

use terrace_core::{Error, Result};

/// So many zeros. Errors: `Invalid` where there is not so much memory.
pub(crate) fn zeros(bytes: usize, operation: &'static str) -> Result<Vec<u8>> {
    // Only this allocation can fail without the end of the process; only the next one is of pages that the kernel zeroes
    // when they are touched, so that a read of "up to" many bytes takes memory for those that there are.
    let mut tried = Vec::<u8>::new();
    reserve(&mut tried, bytes, operation)?;
    // Without a use it is left out by the compiler.
    drop(std::hint::black_box(tried));
    Ok(vec![0; bytes])
}

/// Makes room for so many more bytes. Errors: `Invalid` where there is not so much memory.
pub(crate) fn reserve(buffer: &mut Vec<u8>, bytes: usize, operation: &'static str) -> Result<()> {
    buffer.try_reserve(bytes).map_err(|error| {
        Error::invalid(operation, "there is not so much memory")
            .with("bytes", buffer.len().saturating_add(bytes))
            .caused_by(error)
    })
}
