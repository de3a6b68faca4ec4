// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passing the messages of the kernel to the file system.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::FileSystem;
use crate::decode::{Decoded, decode};
use crate::flags::InitFlags;
use crate::reply::{Asker, Reply};
use crate::request::{CopyFileRange, Operation};

/// Carries out one message of the kernel.
pub(crate) fn handle(message: &[u8], flags: InitFlags, files: &dyn FileSystem, asker: &Asker) {
    match decode(message, flags) {
        Ok(Decoded::Request(request)) => {
            let reply = match request.operation {
                Operation::Forget { .. } | Operation::BatchForget(_) => {
                    Reply::none(asker, request.unique)
                }
                Operation::CopyFileRange(CopyFileRange { is_64_bit: true, .. }) => {
                    Reply::new(asker, request.unique).with_copied_64_bit()
                }
                _ => Reply::new(asker, request.unique),
            };
            // A reply that is dropped while unwinding answers; what else a handler leaves
            // behind is its own affair, as with a thread that panics.
            let _ = catch_unwind(AssertUnwindSafe(|| files.handle(&request, reply)));
        }
        Ok(Decoded::Interrupt { interrupted }) => {
            asker.interrupts().add(interrupted);
            let _ = catch_unwind(AssertUnwindSafe(|| files.interrupt(interrupted)));
        }
        Ok(Decoded::Destroy { unique }) => Reply::new(asker, unique).empty(),
        Ok(Decoded::Unknown { unique, .. }) => Reply::new(asker, unique).error(Errno::NOSYS),
        Ok(Decoded::Init { unique, .. }) => Reply::new(asker, unique).error(Errno::IO),
        Err(malformed) => Reply::new(asker, malformed.unique).error(Errno::IO),
    }
}
