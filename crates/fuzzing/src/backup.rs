// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Backups of the catalog.

use std::io::Cursor;
use std::path::Path;

use terrace_backends::kv::open_kv;
use terrace_core::{ErrorKind, KvExt, KvRange};
use terrace_stack::{BackupMoment, LogPoint, read_backup, read_backup_moment};

use crate::input::Input;

const STORE_ID: u128 = 7;

/// A file is refused as damaged, or every pair of it is there; one that was cut off is refused. The
/// first byte says how many blocks the others make, the second of which version the file is.
pub(crate) fn backup(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let blocks = 1 + input.choice(3);
    let is_old = input.choice(2) == 1;
    let pairs = input.rest();
    let magic: &[u8] = if is_old { b"TERRBAK1" } else { b"TERRBAK2" };
    let mut file = [magic, &STORE_ID.to_le_bytes()].concat();
    for block in pairs.chunks(pairs.len().div_ceil(blocks).max(1)) {
        file.extend((block.len() as u32).to_le_bytes());
        file.extend(crc32c::crc32c(block).to_le_bytes());
        file.extend(block);
    }
    // The last block is empty.
    file.extend([0; 8]);
    if !is_old {
        let trailer = [5_u64, 6, 7, 8].map(u64::to_le_bytes).concat();
        file.extend(&trailer);
        file.extend(crc32c::crc32c(&trailer).to_le_bytes());
    }
    let cut = read_backup(
        &mut &file[..file.len() - 1],
        &*open_kv("memory", Path::new("")).expect("opens"),
        &mut |_| {},
    );
    assert_eq!(cut.expect_err("it was cut off").kind(), ErrorKind::Corrupt);
    let catalog = open_kv("memory", Path::new("")).expect("opens");
    match read_backup(&mut file.as_slice(), &*catalog, &mut |_| {}) {
        Ok(moment) => {
            let point = LogPoint { log: 5, sequence: 6 };
            let new = BackupMoment { store_id: STORE_ID, point, epoch: 7, written_ns: 8 };
            let old = BackupMoment { store_id: STORE_ID, ..BackupMoment::default() };
            assert_eq!(moment, if is_old { old } else { new });
            let at_end = read_backup_moment(&mut Cursor::new(&file)).expect("reads");
            assert_eq!(at_end, moment);
            let mut bytes = 0;
            let sum = &mut |key: &[u8], value: &[u8]| {
                bytes += 6 + key.len() + value.len();
                Ok(())
            };
            catalog.for_each(KvRange::all(), sum).expect("reads");
            assert!(bytes <= pairs.len(), "{bytes} bytes came out of {}", pairs.len());
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            false
        }
    }
}
