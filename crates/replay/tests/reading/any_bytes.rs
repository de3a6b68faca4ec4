// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any bytes at all are read, or refused with a word: nothing panics.

use terrace_core::Random;
use terrace_replay::{Columns, Format, Options};

use super::read;

const SEEDS: u64 = 3000;

/// Pieces that readers look for, between bytes that nobody does.
const PIECES: [&[u8]; 16] = [
    b"time,id,size\n",
    b"1,2,3\n",
    b"\"a,",
    b"\"\"",
    b"# DXT, file_id: 7,\n",
    b" X_POSIX 0 read 0 0 1 0.1 0.2\n",
    b" X_MPIIO 0 write 0 N/A 99999999999999999999 0.1 .\n",
    b"[\n",
    b"{\"name\":\"read\",\"cat\":\"POSIX\",\"ph\":\"X\",\"ts\":18446744073709551615,",
    b"\"args\":{\"fhash\":1,\"ret\":5}}\n",
    &[0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12],
    &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0],
    &[0x2a, 0, 0, 2],
    &[0xff; 24],
    &[0; 40],
    b"18446744073709551616.99999999999999999999\n",
];

fn bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(12) {
        let piece = PIECES[random.below(PIECES.len() as u64) as usize];
        match random.below(4) {
            0 => bytes.extend((0..random.below(60)).map(|_| random.below(256) as u8)),
            1 => bytes.resize(bytes.len() + random.below(9000) as usize, random.below(256) as u8),
            _ => bytes.extend_from_slice(piece),
        }
    }
    bytes
}

#[test]
fn any_bytes_are_read_or_refused() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let bytes = bytes(&mut random);
        let formats = Format::ALL.into_iter().map(Some).chain([None]);
        for format in formats {
            let columns = random.chance(0.2).then(|| Columns::parse("id=2,size=1,time=3").unwrap());
            // Either is right; that it comes to an end is what is tried.
            let _ = read(&bytes, &Options { format, columns, ..Options::default() });
        }
    }
}
