// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that is written comes back.

use terrace_core::{EventKind, Random};
use terrace_trace::{ObjectName, Reader, Record, Settings, Writer};

use crate::world::{self, STORE, files, key, object_id, origin, read, see, settings};

#[test]
fn every_record_comes_back_in_order() {
    for seed in 0..20 {
        let directory = tempfile::tempdir().expect("a directory");
        let mut writer = Writer::begin(settings(directory.path()), origin()).expect("begins");
        let written = world::write(&mut writer, &mut Random::new(seed), 20_000);
        let report = writer.end();
        let seen = read(directory.path());
        assert_eq!(report.failure, None);
        assert_eq!((report.lost_records, seen.problems, seen.nameless), (0, vec![], 0));
        assert!(report.records >= written.len() as u64, "parts of long ones count, too");
        for (index, (written, read)) in written.iter().zip(&seen.records).enumerate() {
            assert_eq!(written, read, "record {index} of seed {seed}");
        }
        assert_eq!(written.len(), seen.records.len());
        for ((slot, incarnation), subject) in seen.subjects {
            assert_eq!(subject.object_id, object_id(slot, incarnation));
            assert_eq!(subject.name, ObjectName::Key(key(slot)));
        }
        let head = &seen.heads[0];
        assert_eq!((head.store_id, head.number, head.has_decisions), (STORE, 1, true));
        assert_eq!(head.tiers, origin().tiers);
        assert_eq!(head.wall_of(head.monotonic_ns + 5), origin().wall_ns + 5);
        assert_eq!(head.monotonic_of(head.wall_ns - 5), head.monotonic_ns - 5);
    }
}

#[test]
fn summed_up_events_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::begin(settings(directory.path()), origin()).expect("begins");
    let written = world::write(&mut writer, &mut Random::new(3), 1000);
    let summed_up = written.iter().filter_map(|record| match record {
        Record::Access(access) if access.event.count > 1 => Some(u64::from(access.event.count)),
        _ => None,
    });
    assert_eq!(writer.end().summed_up_events, summed_up.sum::<u64>());
}

#[test]
fn hashed_names_tell_objects_apart_and_hide_their_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let hashed = Settings { salt: Some(99), has_decisions: false, ..settings(directory.path()) };
    let mut writer = Writer::begin(hashed, origin()).expect("begins");
    let mut random = Random::new(5);
    for time_ns in 0..1000 {
        let access = world::access(&mut random, time_ns);
        world::put(&mut writer, &Record::Access(access), time_ns);
    }
    writer.end();
    let seen = read(directory.path());
    let mut names: Vec<_> = seen
        .subjects
        .iter()
        .map(|((slot, _), subject)| match &subject.name {
            ObjectName::Hash(hash) => (*slot, *hash),
            ObjectName::Key(key) => panic!("{key} is told"),
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut slots: Vec<_> = names.iter().map(|(slot, _)| *slot).collect();
    slots.dedup();
    assert_eq!(slots.len(), names.len(), "one name for each object, whatever its incarnation");
    for file in files(directory.path()) {
        let bytes = std::fs::read(file).expect("reads");
        let tells = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
        assert!(!tells(b"object") && !tells(b"run/"));
    }
}

#[test]
fn hashed_names_and_decisions_exclude_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let both = Settings { salt: Some(99), ..settings(directory.path()) };
    let error = Writer::begin(both, origin()).err().expect("refused");
    assert_eq!(error.kind(), terrace_core::ErrorKind::Invalid);
}

#[test]
fn a_span_of_time_leaves_out_blocks_outside_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::begin(settings(directory.path()), origin()).expect("begins");
    let mut random = Random::new(8);
    let mut put = |range: std::ops::Range<u64>, writer: &mut Writer| {
        for time_ns in range {
            let mut access = world::access(&mut random, time_ns);
            access.event.kind = EventKind::Read;
            world::put(writer, &Record::Access(access), time_ns);
        }
    };
    put(1000..200_000, &mut writer);
    let wall = |time_ns: u64| origin().wall_ns + time_ns - origin().monotonic_ns;
    let span = |from: u64, until: u64| {
        let reader = Reader::open(directory.path()).expect("opens");
        let seen = see(reader.between(wall(from), wall(until)));
        assert!(seen.problems.is_empty() && seen.nameless == 0);
        let time = |record: &Record| match record {
            Record::Access(access) => access.event.time_ns,
            other => panic!("{other:?}"),
        };
        let times: Vec<_> = seen.records.iter().map(time).collect();
        assert!((from..=until).all(|time_ns| times.binary_search(&time_ns).is_ok()));
        times.len()
    };
    assert!(writer.flush());
    let while_written = span(100_000, 100_010);
    writer.end();
    let by_index = span(100_000, 100_010);
    assert_eq!(while_written, by_index);
    assert!(by_index < 20_000, "one block of 64 KiB or two, of {by_index} records");
}
