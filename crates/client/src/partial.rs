// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of which only a part was carried out.

use terrace_core::{Applied, Error, ErrorKind};

/// Whether it says that nothing was carried out.
pub(crate) fn is_undone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable { applied: Applied::No })
}

/// What is told of a change that ended with this error, and of which another part may have been
/// carried out: nobody is to take it for not carried out.
pub(crate) fn in_part(error: Error) -> Error {
    if !is_undone(&error) {
        return error;
    }
    Error::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "write to an object")
        .because("a part of it may have been written")
        .caused_by(error)
}
