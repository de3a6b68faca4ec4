// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Backups of the catalog.

use std::path::Path;

use terrace_backends::kv::open_kv;
use terrace_core::{ErrorKind, KvExt, KvRange};
use terrace_stack::read_backup;

use crate::input::Input;

const STORE_ID: u128 = 7;

/// A file is refused as damaged, or every pair of it is there; one that was cut off is refused. The
/// first byte says how many blocks the others make.
pub(crate) fn backup(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let blocks = 1 + input.choice(3);
    let pairs = input.rest();
    let mut file = [b"TERRBAK1".as_slice(), &STORE_ID.to_le_bytes()].concat();
    for block in pairs.chunks(pairs.len().div_ceil(blocks).max(1)) {
        file.extend((block.len() as u32).to_le_bytes());
        file.extend(crc32c::crc32c(block).to_le_bytes());
        file.extend(block);
    }
    // The last block is empty.
    file.extend([0; 8]);
    let cut = read_backup(
        &mut &file[..file.len() - 1],
        &*open_kv("memory", Path::new("")).expect("opens"),
        &mut |_| {},
    );
    assert_eq!(cut.expect_err("it was cut off").kind(), ErrorKind::Corrupt);
    let catalog = open_kv("memory", Path::new("")).expect("opens");
    match read_backup(&mut file.as_slice(), &*catalog, &mut |_| {}) {
        Ok(store_id) => {
            assert_eq!(store_id, STORE_ID);
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
