// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that say whose they are, so that foreign, old and torn ones are told apart.

use terrace_core::Random;

/// Length of one stamp; offsets and lengths of stamped data are multiples of it.
pub(crate) const STAMP_BYTES: usize = 32;

/// `length_bytes` of stamps of a version of an object, as they belong at `offset_bytes`.
pub(crate) fn stamped(
    object: u64,
    version: u64,
    offset_bytes: u64,
    length_bytes: usize,
) -> Vec<u8> {
    assert_eq!(offset_bytes % STAMP_BYTES as u64, 0, "stamps are aligned");
    assert_eq!(length_bytes % STAMP_BYTES, 0, "stamps are whole");
    let mut data = Vec::with_capacity(length_bytes);
    for index in 0..length_bytes / STAMP_BYTES {
        let at = offset_bytes + (index * STAMP_BYTES) as u64;
        for word in [object, version, at, seal(object, version, at)] {
            data.extend_from_slice(&word.to_le_bytes());
        }
    }
    data
}

/// The versions that `data`, read at `offset_bytes` of `object`, holds: one a stamp, 0 for zeros.
///
/// # Errors
///
/// Says what is foreign, misplaced or torn.
pub(crate) fn versions(object: u64, offset_bytes: u64, data: &[u8]) -> Result<Vec<u64>, String> {
    let stamps = data.chunks_exact(STAMP_BYTES).enumerate();
    stamps
        .map(|(index, stamp)| version(object, offset_bytes + (index * STAMP_BYTES) as u64, stamp))
        .collect()
}

fn version(object: u64, at: u64, stamp: &[u8]) -> Result<u64, String> {
    if stamp.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let word = |index: usize| {
        let bytes = stamp[index * 8..][..8].try_into().expect("a word has eight bytes");
        u64::from_le_bytes(bytes)
    };
    let [found, version, found_at, found_seal] = [0, 1, 2, 3].map(word);
    if found_seal != seal(found, version, found_at) {
        return Err(format!("torn bytes at {at} of object {object}: {stamp:02x?}"));
    }
    if (found, found_at) != (object, at) {
        return Err(format!(
            "bytes of object {found} at {found_at} were read at {at} of object {object}"
        ));
    }
    Ok(version)
}

fn seal(object: u64, version: u64, at: u64) -> u64 {
    let mut random = Random::new(object ^ version.rotate_left(24) ^ at.rotate_left(44));
    random.next_u64() | 1
}

/// Bytes without structure.
pub(crate) fn noise(random: &mut Random, length_bytes: usize) -> Vec<u8> {
    let mut data = vec![0; length_bytes];
    random.fill(&mut data);
    data
}

/// Where two contents differ first, for messages that fit a screen.
pub(crate) fn difference(found: &[u8], expected: &[u8]) -> String {
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    let at = at.unwrap_or(found.len().min(expected.len()));
    let part = |data: &[u8]| format!("{:02x?}", &data[at.min(data.len())..data.len().min(at + 8)]);
    format!(
        "found {} bytes, expected {}; from {at} on {} instead of {}",
        found.len(),
        expected.len(),
        part(found),
        part(expected)
    )
}
