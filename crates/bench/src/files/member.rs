// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that uses a part of a file that others use, too.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use terrace_core::{Error, ErrorKind, Result};
use terrace_measure::shared_now_ns;
use terrace_measure::team::{self, gone, odd};

use super::order::{Answer, Order, Part};
use crate::mount::steps::failed;

/// Every so many bytes there is a number, so that a read of other bytes is detected.
pub(super) const PAGE_BYTES: usize = 4096;

/// Does what it is ordered.
pub fn obey() {
    team::obey(|conversation| {
        while let Some(order) = conversation.hear()? {
            let Order::Open(part) = order else { return Err(odd("no file is open")) };
            let is_write = part.pieces.is_write;
            let file = OpenOptions::new().read(!is_write).write(is_write).open(&part.path);
            let file = file.map_err(failed)?;
            let mut buffer = vec![7; part.pieces.bytes];
            conversation.say(&Answer::Ready)?;
            match conversation.hear()?.ok_or_else(gone)? {
                Order::Go => {}
                Order::Open(_) => return Err(odd("another order is due")),
            }
            let started_ns = shared_now_ns();
            use_part(&file, &part, &mut buffer)?;
            let ended_ns = shared_now_ns();
            // Before it says so: the file system may be unmounted then.
            drop(file);
            conversation.say(&Answer::Done { started_ns, ended_ns })?;
        }
        Ok(())
    });
}

fn use_part(file: &File, part: &Part, buffer: &mut [u8]) -> Result<()> {
    for index in 0..part.count {
        let place = part.pieces.place(part.first + index * part.step);
        if part.pieces.is_write {
            stamp(buffer, place);
            file.write_all_at(buffer, place).map_err(failed)?;
        } else {
            file.read_exact_at(buffer, place).map_err(failed)?;
            check(buffer, place)?;
        }
    }
    match part.pieces.is_write {
        true => file.sync_all().map_err(failed),
        false => Ok(()),
    }
}

/// Numbers the pages of a piece by their place in the file.
pub(super) fn stamp(piece: &mut [u8], place: u64) {
    for (index, page) in piece.chunks_exact_mut(PAGE_BYTES).enumerate() {
        page[..8].copy_from_slice(&(place + (index * PAGE_BYTES) as u64).to_le_bytes());
    }
}

/// Fails where the first page of a piece is not that of this place.
fn check(piece: &[u8], place: u64) -> Result<()> {
    match piece[..8] == place.to_le_bytes() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Corrupt, "read a file that was written")
            .because("other bytes are there")
            .with("offset_bytes", place)),
    }
}
