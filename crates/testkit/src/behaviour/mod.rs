// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every backend must do, as runnable cases: one function for each promise of `Backend` and
//! `Object`.
//!
//! [`behaviour_suite!`](crate::behaviour_suite) makes a test of each. A case is given a backend
//! that is empty and has room for 64 MiB, and asks its `Capability`, never its name.

mod batch;
mod bytes;
mod concurrency;
mod drafts;
mod labels;
mod lifetime;
mod listing;
mod names;
mod records;
mod semantics;
mod space;

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_core::{
    Access, Backend, Create, Error, ErrorKind, Key, Object, ObjectExt, Open, Persistency, Result,
    Semantics,
};

pub use self::batch::*;
pub use self::bytes::*;
pub use self::concurrency::*;
pub use self::drafts::*;
pub use self::labels::*;
pub use self::lifetime::*;
pub use self::listing::*;
pub use self::names::*;
pub use self::records::*;
pub use self::semantics::*;
pub use self::space::*;

const NAMESPACE: &str = "behaviour";

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name).expect("legal")
}

/// The default level, or what the backend gives where that is weaker.
fn semantics(backend: &dyn Backend) -> Semantics {
    Semantics::at_level(backend.capability().persistency.min(Persistency::Process))
}

fn how(backend: &dyn Backend, create: Create, access: Access) -> Open {
    Open { create, access, ..Open::default() }.with_semantics(semantics(backend))
}

fn open_key(backend: &dyn Backend, key: &Key, create: Create) -> Result<Box<dyn Object>> {
    backend.open(key, &how(backend, create, Access::Write))
}

/// A new object.
fn created(backend: &dyn Backend, name: &str) -> Box<dyn Object> {
    open_key(backend, &key(name), Create::New).expect("create")
}

/// An object that is there.
fn opened(backend: &dyn Backend, name: &str) -> Box<dyn Object> {
    open_key(backend, &key(name), Create::Never).expect("open")
}

fn opened_for_reading(backend: &dyn Backend, name: &str) -> Box<dyn Object> {
    backend.open(&key(name), &how(backend, Create::Never, Access::Read)).expect("open")
}

/// A new object that holds `data`.
fn filled(backend: &dyn Backend, name: &str, data: &[u8]) -> Box<dyn Object> {
    let object = created(backend, name);
    object.write(0, data).expect("write");
    object
}

fn size_bytes(object: &dyn Object) -> u64 {
    object.stat().expect("stat").size_bytes
}

/// Reads a range that lies inside the object.
fn read(object: &dyn Object, offset_bytes: u64, length_bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length_bytes];
    let count = object.read(offset_bytes, &mut buffer).expect("read");
    assert_eq!(count, length_bytes, "a short read inside the object");
    buffer
}

/// What was written where the backend keeps it, and zeros where it does not.
#[track_caller]
fn assert_reads(backend: &dyn Backend, object: &dyn Object, offset_bytes: u64, expected: &[u8]) {
    if !backend.capability().keeps_data {
        return assert_zeros(object, offset_bytes, expected.len());
    }
    let bytes = read(object, offset_bytes, expected.len());
    if let Some(at) = bytes.iter().zip(expected).position(|(have, want)| have != want) {
        let at_bytes = offset_bytes + at as u64;
        panic!("{:#04x} instead of {:#04x} at {at_bytes}", bytes[at], expected[at]);
    }
}

/// Holes, gaps and growth, also where nothing is kept. Names the first byte that is wrong, not all.
#[track_caller]
fn assert_zeros(object: &dyn Object, offset_bytes: u64, length_bytes: usize) {
    let bytes = read(object, offset_bytes, length_bytes);
    if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
        panic!("{:#04x} instead of zero at {}", bytes[at], offset_bytes + at as u64);
    }
}

#[track_caller]
fn assert_fails<T>(result: Result<T>, kind: ErrorKind) -> Error {
    match result {
        Ok(_) => panic!("it worked instead of failing with {kind:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{}", error.chain());
            error
        }
    }
}

fn slices<'a>(parts: &'a [&'a [u8]]) -> Vec<IoSlice<'a>> {
    parts.iter().map(|part| IoSlice::new(part)).collect()
}

fn slices_mut(parts: &mut [Vec<u8>]) -> Vec<IoSliceMut<'_>> {
    parts.iter_mut().map(|part| IoSliceMut::new(part)).collect()
}

/// Tells other threads to stop, also when a case fails: they would wait for ever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Makes a test of every case in [`behaviour`](crate::behaviour), each on a new backend.
///
/// `$make` gives the backend, as something that dereferences to it, and whatever must live as long:
/// `behaviour_suite!(memory, (Arc::new(Memory::new(64 << 20)), ()))`.
#[macro_export]
macro_rules! behaviour_suite {
    ($name:ident, $make:expr) => {
        $crate::behaviour_suite!(@cases $name, $make,
            // bytes
            a_created_object_is_empty, read_stops_at_end, reading_behind_the_end_gives_nothing,
            gap_reads_as_zeros, overwriting_keeps_the_surroundings, vectors_are_in_order,
            many_buffers_are_taken, empty_writes_change_nothing, large_objects_are_whole,
            append_returns_where_it_begins, set_len_cuts, cut_bytes_do_not_come_back,
            set_len_grows_with_zeros, handles_see_each_other,
            reading_handles_change_nothing, offsets_beyond_63_bits_are_invalid,
            // space
            punching_zeros_only_its_range, punching_never_changes_the_size,
            punching_frees_room_where_sparse, holes_take_no_room_where_sparse,
            allocating_keeps_the_bytes, allocating_grows_with_zeros,
            allocating_behind_the_end_keeps_the_size, next_data_meets_all_data,
            next_data_skips_holes_where_sparse, next_data_ends_with_the_object,
            space_has_a_bound_that_holds,
            // lifetime
            missing_objects_are_not_found, create_new_refuses_what_exists,
            create_if_missing_opens_what_exists, weaker_semantics_are_taken_stronger_refused,
            deleting_frees_the_name, delete_twice, a_handle_outlives_its_object,
            a_new_object_is_not_the_old_one, sync_succeeds, leases_are_the_object,
            // labels
            labels_are_kept, labels_never_change, labels_go_with_their_objects,
            labels_need_the_capability,
            // drafts
            a_draft_is_seen_once_it_is_published, a_dropped_draft_leaves_nothing,
            drafts_heed_what_is_there, handles_on_a_replaced_value_never_see_the_new_one,
            a_put_without_room_leaves_the_old_value, readers_see_the_old_value_or_the_new,
            // names
            names_are_kept_apart, names_hold_any_character, long_names_are_kept_apart,
            names_may_begin_with_other_names, namespaces_are_apart, namespaces_hold_any_character,
            errors_name_the_object,
            // listing
            listing_nothing, pages_meet_every_object_once, prefixes_filter,
            order_is_kept_where_promised, listing_while_objects_come_and_go,
            foreign_cursors_are_invalid, pages_of_any_length_are_taken,
            damaged_cursors_do_no_harm, impossible_names_hold_nothing,
            listing_beside_other_threads,
            // records
            stat_counts_bytes, times_are_set_and_kept, writing_moves_the_time,
            identities_are_kept, identities_can_be_replaced, identities_go_with_their_objects,
            superblocks_are_kept, records_need_the_capability,
            // batch
            a_batch_fills_every_slot, a_batch_keeps_the_order_on_an_object,
            a_failure_stays_in_its_slot, an_empty_batch_is_fine, a_large_batch_is_carried_out,
            a_batch_refuses_stronger_semantics,
            // semantics
            atomicity_is_given_or_refused, whole_writes_are_never_torn,
            whole_appends_are_never_torn, whole_creates_are_never_torn,
            whole_operations_have_a_bound, less_is_met_by_more,
            a_strict_batch_takes_effect_in_order, runs_in_a_batch_are_as_one_by_one,
            // concurrency
            appends_never_overlap, one_creator_wins, objects_do_not_disturb_each_other,
            readers_see_old_or_new_bytes, creating_and_deleting_one_name,
            writes_to_one_object_are_all_kept);
    };
    (@cases $name:ident, $make:expr, $($case:ident),+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[test] fn $case() {
                let (backend, _kept) = $make;
                $crate::behaviour::$case(&*backend);
            })+
        }
    };
}

#[cfg(test)]
mod tests {
    /// A case that is not in the list of the macro would never run.
    #[test]
    fn every_case_is_in_the_suite() {
        let list = include_str!("mod.rs").split("macro_rules!").nth(1).expect("the macro");
        let sources = [
            include_str!("batch.rs"),
            include_str!("bytes.rs"),
            include_str!("concurrency.rs"),
            include_str!("drafts.rs"),
            include_str!("labels.rs"),
            include_str!("lifetime.rs"),
            include_str!("listing.rs"),
            include_str!("names.rs"),
            include_str!("records.rs"),
            include_str!("semantics.rs"),
            include_str!("space.rs"),
        ];
        for source in sources {
            for item in source.split("\npub fn ").skip(1) {
                let name = item.split('(').next().expect("a name");
                let is_listed =
                    list.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
                assert!(is_listed, "{name} is not in behaviour_suite!");
            }
        }
    }
}
