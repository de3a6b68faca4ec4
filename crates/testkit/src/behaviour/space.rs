// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holes, reservations and capacity.

use std::ops::Range;

use terrace_core::{Backend, End, ErrorKind, Object, ObjectExt};

use super::*;
use crate::pattern_bytes;

/// Larger than the blocks of any backend, so that holes of this size are holes everywhere.
const HOLE_BYTES: u64 = 4 << 20;

/// Blocks, tails and tables that an object may take beside its data.
const SLACK_BYTES: u64 = 1 << 20;

/// Goal: punching makes a range read as zeros and leaves the bytes around it.
pub fn punching_zeros_only_its_range(backend: &dyn Backend) {
    let mut expected = pattern_bytes(1, 1, 0, 50_000);
    let object = filled(backend, "a", &expected);
    for range in [100..101, 4095..8193, 8192..12_288, 20_000..39_999] {
        object.punch(range.start as u64..range.end as u64).expect("punch");
        expected[range].fill(0);
    }
    assert_reads(backend, &*object, 0, &expected);
}

/// Goal: punching never changes the size, also at and behind the end.
pub fn punching_never_changes_the_size(backend: &dyn Backend) {
    let object = filled(backend, "a", &[7; 10_000]);
    for range in [9_000..20_000, 10_000..20_000, 50_000..60_000, 5..5] {
        object.punch(range).expect("punch");
        assert_eq!(size_bytes(&*object), 10_000);
    }
    assert_reads(backend, &*object, 0, &[7; 9_000]);
    assert_zeros(&*object, 9_000, 1000);
}

/// Goal: punching frees the room of its range.
pub fn punching_frees_room_where_sparse(backend: &dyn Backend) {
    let object = filled(backend, "a", &vec![7; HOLE_BYTES as usize]);
    let before_bytes = object.stat().expect("stat").allocated_bytes;
    object.punch(0..HOLE_BYTES).expect("punch");
    assert_zeros(&*object, HOLE_BYTES / 2, 4096);
    if backend.capability().sparse {
        let after_bytes = object.stat().expect("stat").allocated_bytes;
        assert!(before_bytes >= HOLE_BYTES, "{before_bytes}");
        assert!(after_bytes <= SLACK_BYTES, "{after_bytes}");
    }
}

/// Goal: what was never written takes no room.
pub fn holes_take_no_room_where_sparse(backend: &dyn Backend) {
    let object = created(backend, "a");
    object.set_len(HOLE_BYTES).expect("grow");
    object.write(2 * HOLE_BYTES, b"z").expect("write");
    assert_eq!(size_bytes(&*object), 2 * HOLE_BYTES + 1);
    assert_zeros(&*object, HOLE_BYTES, 4096);
    if backend.capability().sparse {
        let allocated_bytes = object.stat().expect("stat").allocated_bytes;
        assert!(allocated_bytes <= SLACK_BYTES, "{allocated_bytes}");
    }
}

/// Whether room was reserved; a backend that cannot says so and changes nothing.
fn is_allocated(object: &dyn Object, range: Range<u64>, end: End) -> bool {
    let before_bytes = size_bytes(object);
    match object.allocate(range, end) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain());
            assert_eq!(size_bytes(object), before_bytes);
            false
        }
    }
}

/// Goal: reserving room does not change the bytes.
pub fn allocating_keeps_the_bytes(backend: &dyn Backend) {
    let expected = pattern_bytes(1, 1, 0, 10_000);
    let object = filled(backend, "a", &expected);
    if is_allocated(&*object, 1000..9000, End::Grows) {
        assert!(is_allocated(&*object, 5..5, End::Grows), "an empty range");
    }
    assert_eq!(size_bytes(&*object), 10_000);
    assert_reads(backend, &*object, 0, &expected);
}

/// Goal: reserving room behind the end grows the object with zeros.
pub fn allocating_grows_with_zeros(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    if is_allocated(&*object, 100_000..200_000, End::Grows) {
        assert_eq!(size_bytes(&*object), 200_000);
        assert_zeros(&*object, 3, 199_997);
    }
    assert_reads(backend, &*object, 0, b"abc");
}

/// Goal: room can be reserved behind the end without growing the object, which grows into it.
pub fn allocating_behind_the_end_keeps_the_size(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    let before_bytes = object.stat().expect("stat").allocated_bytes;
    let is_kept = is_allocated(&*object, 0..HOLE_BYTES, End::Stays);
    assert_eq!(size_bytes(&*object), 3);
    assert_reads(backend, &*object, 0, b"abc");
    assert_eq!(object.read(0, &mut [0; 100]).expect("reads"), 3, "a read ends at the end");
    assert_eq!(object.next_data(3).expect("next data"), None, "there is no data behind the end");
    object.punch(1..HOLE_BYTES).expect("punch");
    assert_eq!(size_bytes(&*object), 3);
    object.write(100_000, b"def").expect("write");
    assert_eq!(size_bytes(&*object), 100_003);
    assert_zeros(&*object, 3, 99_997);
    assert_reads(backend, &*object, 100_000, b"def");
    // Cut to the size that it has, too.
    object.set_len(100_003).expect("set the length");
    assert_eq!(size_bytes(&*object), 100_003);
    object.set_len(3).expect("cut");
    let after_bytes = object.stat().expect("stat").allocated_bytes;
    let most_bytes = before_bytes + SLACK_BYTES;
    assert!(after_bytes <= most_bytes, "{after_bytes} of {before_bytes}, kept {is_kept}");
    if backend.capability().sparse && is_allocated(&*object, 3..HOLE_BYTES, End::Stays) {
        object.set_len(3).expect("cut to the size that it has");
        let after_bytes = object.stat().expect("stat").allocated_bytes;
        assert!(after_bytes <= most_bytes, "{after_bytes} of {before_bytes}");
    }
}

/// All ranges that may hold data. They ascend and lie inside the object.
fn data_ranges(object: &dyn Object) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while let Some(range) = object.next_data(at).expect("next data") {
        assert!(range.start >= at && !range.is_empty(), "{range:?} from {at}");
        at = range.end;
        ranges.push(range);
    }
    assert!(at <= size_bytes(object), "data behind the end");
    ranges
}

/// Goal: walking from range to range meets every byte that was written.
pub fn next_data_meets_all_data(backend: &dyn Backend) {
    let object = created(backend, "a");
    let written = [0..100, HOLE_BYTES..HOLE_BYTES + 1, 2 * HOLE_BYTES - 10..2 * HOLE_BYTES];
    for range in &written {
        let data = vec![7; (range.end - range.start) as usize];
        object.write(range.start, &data).expect("write");
    }
    let found = data_ranges(&*object);
    for range in written {
        let is_inside = |found: &Range<u64>| found.start <= range.start && range.end <= found.end;
        assert!(found.iter().any(is_inside), "{range:?} is not in {found:?}");
    }
    let inside = object.next_data(50).expect("next data").expect("data");
    assert_eq!(inside.start, 50, "a range begins where it was asked for");
}

/// Goal: large holes are not data.
pub fn next_data_skips_holes_where_sparse(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    object.write(2 * HOLE_BYTES, b"z").expect("write");
    object.set_len(4 * HOLE_BYTES).expect("grow");
    let found_bytes: u64 = data_ranges(&*object).iter().map(|range| range.end - range.start).sum();
    let most_bytes = match backend.capability().sparse {
        true => 2 * SLACK_BYTES,
        false => 4 * HOLE_BYTES,
    };
    assert!((4..=most_bytes).contains(&found_bytes), "{found_bytes}");
}

/// Goal: behind the end, and in an empty object, there is no data.
pub fn next_data_ends_with_the_object(backend: &dyn Backend) {
    let object = created(backend, "a");
    assert_eq!(object.next_data(0).expect("next data"), None);
    object.write(0, b"abc").expect("write");
    assert_eq!(object.next_data(0).expect("next data"), Some(0..3));
    assert_eq!(object.next_data(2).expect("next data"), Some(2..3));
    for offset_bytes in [3, 4, HOLE_BYTES] {
        assert_eq!(object.next_data(offset_bytes).expect("next data"), None);
    }
}

/// Goal: what is used never exceeds the capacity.
pub fn space_has_a_bound_that_holds(backend: &dyn Backend) {
    let object = filled(backend, "a", &vec![7; 1 << 20]);
    let space = backend.space().expect("space");
    assert!(space.used_bytes <= space.capacity_bytes, "{space:?}");
    assert!(space.capacity_bytes >= 1 << 20, "{space:?}");
    drop(object);
}
