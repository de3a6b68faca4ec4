// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written is read back; what is damaged is noticed.

use std::fs;

use partdiff::{InFiles, InStore, Method, Settings, read, run};
use terrace_backends::object::Memory;
use terrace_store::{Backend, ErrorKind, Key, ObjectExt, Open, Persistency, Semantics};

const CHECKPOINTS: u64 = 23;
const NAMESPACE: &str = "run";

fn settings() -> Settings {
    Settings {
        dimension: 9,
        checkpoints: CHECKPOINTS,
        interval: 3,
        // Main memory gives no more.
        persistency: Persistency::None,
        ..Settings::default()
    }
}

fn written() -> Memory {
    let store = Memory::new(1 << 20);
    run(&InStore::new(&store, NAMESPACE), &settings(), &mut |_| {}).expect("there is room");
    store
}

#[test]
fn the_reader_finds_what_the_solver_wrote_in_order() {
    let store = Memory::new(1 << 20);
    let mut headers = Vec::new();
    let wrote =
        run(&InStore::new(&store, NAMESPACE), &settings(), &mut |header| headers.push(*header))
            .expect("there is room");
    let mut readings = Vec::new();
    let found =
        read(&InStore::new(&store, NAMESPACE), &mut |reading| readings.push(reading.clone()));
    assert_eq!(found.expect("nothing is damaged"), wrote);
    assert_eq!(wrote.checkpoints, CHECKPOINTS);
    assert_eq!(wrote.bytes, CHECKPOINTS * (64 + 9 * 9 * 8));
    let read_headers: Vec<_> = readings.iter().map(|reading| reading.header).collect();
    assert_eq!(read_headers, headers);
    // The plate warms up, so the diagonal grows with every checkpoint.
    assert!(readings.is_sorted_by(|a, b| a.diagonal < b.diagonal));
}

#[test]
fn the_same_settings_give_the_same_checksum_and_others_do_not() {
    let checksum = |method| {
        let settings = Settings { method, ..settings() };
        let summary = run(&InStore::new(&Memory::new(1 << 20), NAMESPACE), &settings, &mut |_| {});
        summary.expect("there is room").checksum
    };
    assert_eq!(checksum(Method::Jacobi), checksum(Method::Jacobi));
    assert_ne!(checksum(Method::Jacobi), checksum(Method::GaussSeidel));
}

#[test]
fn a_grid_that_no_reader_would_take_is_refused() {
    for dimension in [0, 2, (1 << 15) + 1] {
        let store = Memory::new(1 << 20);
        let settings = Settings { dimension, ..settings() };
        let error = run(&InStore::new(&store, NAMESPACE), &settings, &mut |_| {}).expect_err("no");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_second_run_does_not_overwrite_the_first() {
    let store = written();
    let error = run(&InStore::new(&store, NAMESPACE), &settings(), &mut |_| {})
        .expect_err("they are there");
    assert_eq!(error.kind(), ErrorKind::Exists);
}

#[test]
fn damaged_and_cut_checkpoints_are_named() {
    let key = Key::new(NAMESPACE, "checkpoint-000011").expect("legal");
    let how = Open::read().with_semantics(Semantics::at_level(Persistency::None));
    let bytes = written().open(&key, &how).and_then(|it| it.read_to_end()).expect("it is there");
    for (damaged_byte, length) in [(0, 712), (30, 712), (711, 712), (700, 63), (700, 400)] {
        let store = written();
        let how = Open::write().with_semantics(Semantics::at_level(Persistency::None));
        let object = store.open(&key, &how).expect("it is there");
        object.write(damaged_byte, &[bytes[damaged_byte as usize] ^ 1]).expect("there is room");
        object.set_len(length).expect("shorter");
        let error = read(&InStore::new(&store, NAMESPACE), &mut |_| {}).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("checkpoint-000011"), "{error}");
    }
}

#[test]
fn files_hold_what_objects_hold() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = InFiles::new(directory.path());
    let settings = Settings { persistency: Persistency::Storage, ..settings() };
    let wrote = run(&place, &settings, &mut |_| {}).expect("there is room");
    assert_eq!(read(&place, &mut |_| {}).expect("nothing is damaged"), wrote);
    let store = written();
    let kept = InStore::new(&store, NAMESPACE);
    assert_eq!(read(&kept, &mut |_| {}).expect("nothing is damaged"), wrote);
    let again = run(&place, &settings, &mut |_| {}).expect_err("they are there");
    assert_eq!(again.kind(), ErrorKind::Exists);

    let file = directory.path().join("checkpoint-000011");
    let bytes = fs::read(&file).expect("it is there");
    let how = Open::read().with_semantics(Semantics::at_level(Persistency::None));
    let key = Key::new(NAMESPACE, "checkpoint-000011").expect("legal");
    assert_eq!(store.open(&key, &how).and_then(|it| it.read_to_end()).expect("there"), bytes);
    for cut in [0, 63, 64, bytes.len() - 1] {
        fs::write(&file, &bytes[..cut]).expect("there is room");
        let error = read(&place, &mut |_| {}).expect_err("cut");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("checkpoint-000011"), "{error}");
    }
    let nowhere = InFiles::new(directory.path().join("nowhere"));
    assert_eq!(read(&nowhere, &mut |_| {}).expect_err("none").kind(), ErrorKind::NotFound);
}
