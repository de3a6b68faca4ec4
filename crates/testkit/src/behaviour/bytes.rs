// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and writing.

use terrace_core::{Access, Backend, End, ErrorKind, ObjectExt};

use super::*;
use crate::{assert_pattern, pattern_bytes};

/// Goal: an object that is created is empty and visible to others.
pub fn a_created_object_is_empty(backend: &dyn Backend) {
    let object = created(backend, "new");
    assert_eq!(size_bytes(&*object), 0);
    assert_eq!(object.read(0, &mut [0; 8]).expect("read"), 0);
    assert_eq!(backend.stat(&key("new")).expect("visible").size_bytes, 0);
    assert_eq!(size_bytes(&*opened(backend, "new")), 0);
}

/// Goal: a short read happens only at the end of the object.
pub fn read_stops_at_end(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abcdef");
    let mut buffer = [0xee; 8];
    assert_eq!(object.read(4, &mut buffer).expect("read"), 2);
    assert_eq!(buffer[2..], [0xee; 6], "bytes behind the end were touched");
    assert_eq!(object.read(0, &mut buffer).expect("read"), 6);
    assert_reads(backend, &*object, 4, b"ef");
    let mut parts = [vec![0xee; 4], vec![0xee; 4], vec![0xee; 4]];
    assert_eq!(object.read_at(0, &mut slices_mut(&mut parts)).expect("read"), 6);
    assert_eq!((parts[1][2], parts[2][0]), (0xee, 0xee));
}

/// Goal: reading at or behind the end gives nothing.
pub fn reading_behind_the_end_gives_nothing(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    for offset_bytes in [3, 4, 1 << 20, i64::MAX as u64 - 1] {
        assert_eq!(object.read(offset_bytes, &mut [0; 1]).expect("read"), 0);
    }
    assert_eq!(object.read(1, &mut []).expect("no buffer"), 0);
    assert_eq!(object.read_at(1, &mut []).expect("no buffers"), 0);
}

/// Goal: a gap before what is written reads as zeros.
pub fn gap_reads_as_zeros(backend: &dyn Backend) {
    let object = filled(backend, "a", b"ab");
    object.write(10_000, b"z").expect("write");
    assert_eq!(size_bytes(&*object), 10_001);
    assert_zeros(&*object, 2, 9_998);
    assert_reads(backend, &*object, 0, b"ab");
    assert_reads(backend, &*object, 10_000, b"z");
}

/// Goal: a write changes its extent and nothing else.
pub fn overwriting_keeps_the_surroundings(backend: &dyn Backend) {
    let mut expected = pattern_bytes(1, 1, 0, 20_000);
    let object = filled(backend, "a", &expected);
    for (offset, length) in [(0, 1), (4095, 2), (8192, 4096), (5000, 3333), (19_990, 10)] {
        let new = pattern_bytes(1, 2, offset as u64, length);
        object.write(offset as u64, &new).expect("write");
        expected[offset..offset + length].copy_from_slice(&new);
        assert_eq!(size_bytes(&*object), 20_000);
    }
    assert_reads(backend, &*object, 0, &expected);
}

/// Goal: several buffers are read and written one after the other, empty ones included.
pub fn vectors_are_in_order(backend: &dyn Backend) {
    let object = created(backend, "a");
    object.write_at(3, &slices(&[b"", b"abc", b"", b"d", b"efghij", b""])).expect("write");
    assert_eq!(size_bytes(&*object), 13);
    assert_reads(backend, &*object, 0, b"\0\0\0abcdefghij");
    let mut parts = [vec![], vec![9; 5], vec![], vec![9; 1], vec![9; 7], vec![]];
    assert_eq!(object.read_at(0, &mut slices_mut(&mut parts)).expect("read"), 13);
    if backend.capability().keeps_data {
        assert_eq!(parts.concat(), b"\0\0\0abcdefghij");
    }
}

/// Goal: there may be more buffers than an operating system takes at once.
pub fn many_buffers_are_taken(backend: &dyn Backend) {
    let expected = pattern_bytes(1, 1, 0, 3000 * 3);
    let parts: Vec<&[u8]> = expected.chunks(3).collect();
    let object = created(backend, "a");
    object.write_at(0, &slices(&parts)).expect("write");
    assert_eq!(object.append(&slices(&parts)).expect("append"), 9000);
    assert_reads(backend, &*object, 0, &expected);
    assert_reads(backend, &*object, 9000, &expected);
    let mut buffers = vec![vec![9; 5]; 3600];
    assert_eq!(object.read_at(0, &mut slices_mut(&mut buffers)).expect("read"), 18_000);
    if backend.capability().keeps_data {
        assert_pattern(1, 1, 0, &buffers.concat()[..9000]);
    }
}

/// Goal: writing no bytes is fine and does not grow the object.
pub fn empty_writes_change_nothing(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    object.write(100, b"").expect("empty");
    object.write_at(100, &[]).expect("no buffers");
    object.write_at(100, &slices(&[b"", b""])).expect("empty buffers");
    assert_eq!(object.append(&[]).expect("no buffers"), 3);
    assert_eq!(size_bytes(&*object), 3);
    // Nor where the object has been longer before.
    object.write(0, &[1; 200]).expect("write");
    object.set_len(3).expect("cut");
    object.write(100, b"").expect("empty");
    assert_eq!(size_bytes(&*object), 3);
}

/// Goal: many megabytes are kept as they were, whatever the sizes of the transfers.
pub fn large_objects_are_whole(backend: &dyn Backend) {
    const LENGTH_BYTES: usize = 5 << 20;
    let object = created(backend, "a");
    let expected = pattern_bytes(7, 1, 0, LENGTH_BYTES);
    object.write(0, &expected[..3 << 20]).expect("write");
    object.write(3 << 20, &expected[3 << 20..]).expect("write");
    assert_eq!(size_bytes(&*object), LENGTH_BYTES as u64);
    assert_reads(backend, &*object, 0, &expected);
    for (offset, length) in [(1, 4096), (123_457, 1 << 20), (LENGTH_BYTES - 1, 1)] {
        assert_reads(backend, &*object, offset as u64, &expected[offset..offset + length]);
    }
}

/// Goal: an append writes at the end and says where that was.
pub fn append_returns_where_it_begins(backend: &dyn Backend) {
    let object = created(backend, "a");
    assert_eq!(object.append(&slices(&[b"abc"])).expect("append"), 0);
    assert_eq!(object.append(&slices(&[b"d", b"ef"])).expect("append"), 3);
    object.set_len(10).expect("grow");
    assert_eq!(opened(backend, "a").append(&slices(&[b"g"])).expect("append"), 10);
    assert_eq!(size_bytes(&*object), 11);
    assert_reads(backend, &*object, 0, b"abcdef\0\0\0\0g");
}

/// Goal: cutting removes the bytes behind the new end and no others.
pub fn set_len_cuts(backend: &dyn Backend) {
    let expected = pattern_bytes(1, 1, 0, 10_000);
    let object = filled(backend, "a", &expected);
    object.set_len(5000).expect("cut");
    assert_eq!(size_bytes(&*object), 5000);
    assert_eq!(object.read(5000, &mut [0; 8]).expect("read"), 0);
    assert_reads(backend, &*object, 0, &expected[..5000]);
    object.set_len(0).expect("cut");
    assert_eq!(size_bytes(&*object), 0);
}

/// Goal: bytes that were cut off read as zeros when the object grows again, by whatever means.
pub fn cut_bytes_do_not_come_back(backend: &dyn Backend) {
    let object = filled(backend, "a", &[7; 10_000]);
    object.set_len(1234).expect("cut");
    object.set_len(5000).expect("grow");
    object.write(9000, b"z").expect("write");
    assert_reads(backend, &*object, 0, &[7; 1234]);
    assert_zeros(&*object, 1234, 9000 - 1234);
}

/// Goal: growing adds zeros.
pub fn set_len_grows_with_zeros(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    object.set_len(100_000).expect("grow");
    assert_eq!(size_bytes(&*object), 100_000);
    assert_reads(backend, &*object, 0, b"abc");
    assert_zeros(&*object, 3, 99_997);
    object.set_len(100_000).expect("as it is");
    assert_eq!(size_bytes(&*object), 100_000);
}

/// Goal: what one handle writes the others read, at once.
pub fn handles_see_each_other(backend: &dyn Backend) {
    let one = created(backend, "a");
    let other = opened(backend, "a");
    let reader = opened_for_reading(backend, "a");
    one.write(0, b"one").expect("write");
    assert_reads(backend, &*reader, 0, b"one");
    other.write(1, b"other").expect("write");
    assert_reads(backend, &*one, 0, b"oother");
    one.set_len(2).expect("cut");
    assert_eq!((size_bytes(&*other), size_bytes(&*reader)), (2, 2));
}

/// Goal: a handle that was opened for reading changes nothing.
pub fn reading_handles_change_nothing(backend: &dyn Backend) {
    drop(filled(backend, "a", b"abc"));
    let before = backend.stat(&key("a")).expect("stat");
    let reader = opened_for_reading(backend, "a");
    assert_fails(reader.write(0, b"x"), ErrorKind::Denied);
    assert_fails(reader.append(&slices(&[b"x"])), ErrorKind::Denied);
    assert_fails(reader.set_len(1), ErrorKind::Denied);
    assert_fails(reader.punch(0..1), ErrorKind::Denied);
    assert_fails(reader.set_modified(1), ErrorKind::Denied);
    assert!(reader.allocate(0..100, End::Grows).is_err(), "allocate is Denied or Unsupported");
    reader.sync().expect("others may have written");
    assert_reads(backend, &*reader, 0, b"abc");
    assert_eq!(backend.stat(&key("a")).expect("stat"), before);
    let asked = how(backend, Create::New, Access::Read);
    assert_eq!(size_bytes(&*backend.open(&key("b"), &asked).expect("created to be read")), 0);
}

/// Goal: an offset plus a length beyond 63 bits is refused and harms nothing.
pub fn offsets_beyond_63_bits_are_invalid(backend: &dyn Backend) {
    const LAST: u64 = i64::MAX as u64;
    let object = filled(backend, "a", b"abc");
    for offset_bytes in [LAST, LAST + 1, u64::MAX] {
        assert_fails(object.write(offset_bytes, b"x"), ErrorKind::Invalid);
        assert_fails(object.read(offset_bytes, &mut [0; 1]), ErrorKind::Invalid);
    }
    for bytes in [LAST + 1, u64::MAX] {
        assert_fails(object.set_len(bytes), ErrorKind::Invalid);
        assert_fails(object.next_data(bytes), ErrorKind::Invalid);
        assert_fails(object.punch(0..bytes), ErrorKind::Invalid);
        assert!(
            object.allocate(0..bytes, End::Grows).is_err(),
            "allocate is Invalid or Unsupported"
        );
    }
    #[expect(clippy::reversed_empty_ranges, reason = "this is what must be refused")]
    let reversed = 2..1;
    assert_fails(object.punch(reversed), ErrorKind::Invalid);
    assert_reads(backend, &*object, 0, b"abc");
    assert_eq!(size_bytes(&*object), 3);
}
