// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for the descriptors of objects.

use std::fs::File;

use rustix::process::{Resource, Rlimit};

/// For how many there is room at once.
const ROOM: u64 = 16 << 10;

/// Raises the limit of descriptors as far as it goes, since every open object is one and the usual
/// 1024 are few, and makes room for the first 16,384. What is not allowed is let be.
///
/// The kernel makes room for twice as many when it has to, and in a process with several threads
/// every open of a file waits for that, 10 ms and more. Once made, the room stays. Opening a store
/// does this, too; a program that calls it before it starts threads does not wait at all.
pub fn make_room_for_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    let allowed = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(ROOM);
    if let Ok(any) = File::open("/")
        && let Some(last) = allowed.min(ROOM).checked_sub(1)
    {
        let _ = rustix::io::fcntl_dupfd_cloexec(&any, last as i32);
    }
}
