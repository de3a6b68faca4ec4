// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading: the trailer and the index of an object, and the frames that a range touches.

use std::ops::Range;
use std::sync::Arc;

use terrace_core::{Error, Key, Object, ObjectExt, Result};
use zstd::bulk::Decompressor;

use super::Shared;
use super::format::{Index, Place, TRAILER_BYTES, Trailer, corrupt};
use super::seal::Part;

/// Read from the end of an object when it is opened: trailer and index of up to 2 GiB, or a small object as
/// a whole.
const TAIL_BYTES: u64 = 64 << 10;

/// Most stored bytes that one request of a read fetches.
const FETCH_BYTES_MAX: u64 = 8 << 20;

/// Frames of a small object that are decoded when it is opened, because its bytes are at hand.
const AHEAD_FRAMES_MAX: u64 = 2;

/// Reads trailer and index of an object, and caches frames that came along for `handle`, unless that is 0.
///
/// # Errors
///
/// `Corrupt`; errors of the backend below.
pub(super) fn open_index(
    shared: &Shared,
    name: &Key,
    object: &dyn Object,
    handle: u64,
) -> Result<Index> {
    let stored_bytes = object.stat()?.size_bytes;
    let (trailer, mut tail) = read_tail(shared, name, object, stored_bytes)?;
    let index_bytes = trailer.index_bytes();
    if index_bytes + TRAILER_BYTES as u64 > stored_bytes {
        return Err(corrupt(name, "it is shorter than its index"));
    }
    let index_at = stored_bytes - TRAILER_BYTES as u64 - index_bytes;
    let tail_at = stored_bytes - tail.len() as u64;
    let key = shared.packing.key.as_ref();
    let mut far;
    let sealed = if index_at < tail_at {
        far = vec![0; index_bytes as usize];
        object.read_exact(index_at, &mut far)?;
        &mut far[..]
    } else {
        let at = (index_at - tail_at) as usize;
        &mut tail[at..at + index_bytes as usize]
    };
    let index = Index::open(name, key, &trailer, sealed, stored_bytes)?;
    let frames = trailer.size_bytes.div_ceil(index.frame_bytes());
    if handle != 0 && tail_at == 0 && frames <= AHEAD_FRAMES_MAX {
        for number in 0..frames {
            let place = index.place(number);
            let at = place.offset_bytes as usize;
            let sealed = &mut tail[at..at + place.stored_bytes];
            let data = decode(name, &index, number, &place, sealed, &mut None)?;
            shared.cache.put(handle, number, data.into());
        }
    }
    Ok(index)
}

/// The trailer, and the last bytes.
pub(super) fn read_tail(
    shared: &Shared,
    name: &Key,
    object: &dyn Object,
    stored_bytes: u64,
) -> Result<(Trailer, Vec<u8>)> {
    let mut tail = vec![0; stored_bytes.min(TAIL_BYTES) as usize];
    object.read_exact(stored_bytes - tail.len() as u64, &mut tail)?;
    let trailer = tail.last_chunk::<TRAILER_BYTES>().and_then(|bytes| Trailer::decode(bytes));
    let trailer = trailer.ok_or_else(|| {
        corrupt(name, "it has no trailer: it was cut, changed, or never written to its end")
    })?;
    if trailer.shape.is_encrypted != shared.packing.key.is_some() {
        let reason = match trailer.shape.is_encrypted {
            true => "it is encrypted, and its tier is not",
            false => "it is not encrypted, and its tier is",
        };
        return Err(corrupt(name, reason));
    }
    Ok((trailer, tail))
}

/// Reads a range that is inside an object, and gives its parts to `put` in their order.
///
/// # Errors
///
/// `Corrupt`; errors of the backend below.
pub(super) fn read(
    shared: &Shared,
    name: &Key,
    object: &dyn Object,
    handle: u64,
    index: &Index,
    wanted: Range<u64>,
    mut put: impl FnMut(&[u8]),
) -> Result<()> {
    let frame_bytes = index.frame_bytes();
    let last = (wanted.end - 1) / frame_bytes;
    let mut number = wanted.start / frame_bytes;
    let mut decompressor = None;
    // The part of a frame that is wanted.
    let inside = |number: u64, data: &[u8]| {
        let at = number * frame_bytes;
        let end = wanted.end.min(at + data.len() as u64);
        (wanted.start.max(at) - at) as usize..(end - at) as usize
    };
    let mut stored = Vec::new();
    while number <= last {
        if let Some(data) = shared.cache.get(handle, number) {
            put(&data[inside(number, &data)]);
            number += 1;
            continue;
        }
        let first = index.place(number).offset_bytes;
        let mut end = number + 1;
        let stored_to = |frame: u64| {
            let place = index.place(frame);
            place.offset_bytes + place.stored_bytes as u64
        };
        while end <= last && stored_to(end) - first <= FETCH_BYTES_MAX {
            end += 1;
        }
        stored.resize((stored_to(end - 1) - first) as usize, 0);
        object.read_exact(first, &mut stored)?;
        for number in number..end {
            let place = index.place(number);
            let at = (place.offset_bytes - first) as usize;
            let sealed = &mut stored[at..at + place.stored_bytes];
            let data = decode(name, index, number, &place, sealed, &mut decompressor)?;
            let range = inside(number, &data);
            put(&data[range.clone()]);
            // Its end is wanted next.
            if range.end < data.len() {
                shared.cache.put(handle, number, Arc::from(data));
            }
        }
        number = end;
    }
    Ok(())
}

fn decode(
    name: &Key,
    index: &Index,
    number: u64,
    place: &Place,
    sealed: &mut [u8],
    decompressor: &mut Option<Decompressor<'static>>,
) -> Result<Vec<u8>> {
    let damaged = |reason: &'static str| corrupt(name, reason).with("frame", number);
    let data = index.seal.open(Part::Frame(number), sealed).ok_or_else(|| {
        damaged("a frame fails its check: it was changed, or belongs to another object")
    })?;
    if !place.is_compressed {
        return Ok(data.to_vec());
    }
    let decompressor = match decompressor {
        Some(decompressor) => decompressor,
        None => {
            let new = Decompressor::new();
            decompressor.insert(new.map_err(|error| Error::from_io("decompress a frame", error))?)
        }
    };
    let plain = decompressor.decompress(data, place.plain_bytes);
    let plain =
        plain.map_err(|error| damaged("a frame cannot be decompressed").caused_by(error))?;
    match plain.len() == place.plain_bytes {
        true => Ok(plain),
        false => Err(damaged("a frame has another length than its index says")),
    }
}
