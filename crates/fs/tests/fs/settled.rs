// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the metadata knows of the length of a file, once nobody has it open for writing.

use std::sync::Arc;

use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, SystemClock};
use terrace_fs::{
    Changes, Closed, Files, Kind, Left, Made, Metadata, Node, ROOT, Reply, Request, Session,
    Settled, Time, When,
};

use crate::common::files;

/// Longer than what is kept with the metadata.
const LENGTH: usize = 10_000;

/// A time that no file has by itself.
const AT: Time = Time { seconds: 1_000, nanos: 5 };

/// Two users of the files of one file system, and what the metadata says without either.
struct Scene {
    one: Arc<Files>,
    other: Arc<Files>,
    noted: Session,
}

impl Scene {
    fn new() -> Self {
        let tree = crate::common::tree(Arc::new(SystemClock::default()));
        let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
        let user = || files(Arc::new(Session::new(&tree)), &data, false);
        Self { one: user(), other: user(), noted: Session::new(&tree) }
    }

    /// Makes a file with an object.
    fn make(&self) -> u64 {
        let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
        let (node, file) = self.one.create(ROOT, b"file", made, false).expect("it is new");
        file.write(0, &vec![7; LENGTH], false).expect("there is room");
        file.close().expect("it is open");
        node.number
    }

    /// What is known without the object.
    fn noted(&self, number: u64) -> Node {
        match self.noted.call(&Request::Node { number }).expect("it is there") {
            Reply::Node(node) => node,
            other => panic!("{other:?}"),
        }
    }
}

fn cut(size: usize) -> Changes {
    Changes { size: Some(size as u64), ..Changes::default() }
}

#[test]
fn the_length_of_a_file_that_was_cut_is_noted() {
    for size in [0, LENGTH / 2, LENGTH, 2 * LENGTH] {
        let scene = Scene::new();
        let number = scene.make();
        let changed = scene.one.change(number, cut(size)).expect("there is room");
        let noted = scene.noted(number);
        assert!(!noted.is_written, "{size}");
        assert_eq!((noted.size, noted.modified), (size as u64, changed.modified));
    }
}

#[test]
fn the_length_of_a_file_that_was_cut_while_it_was_open_is_noted_when_it_is_closed() {
    for size in [0, LENGTH / 2, LENGTH, 2 * LENGTH] {
        for is_cut_by_other in [false, true] {
            let scene = Scene::new();
            let number = scene.make();
            let (_, file) = scene.one.open(number, Access::Write).expect("it is there");
            let cutter = if is_cut_by_other { &scene.other } else { &scene.one };
            let changed = cutter.change(number, cut(size)).expect("there is room");
            assert!(scene.noted(number).is_written, "it is open, {size} {is_cut_by_other}");
            file.close().expect("it is open");
            let noted = scene.noted(number);
            assert!(!noted.is_written, "{size} {is_cut_by_other}");
            assert_eq!((noted.size, noted.modified), (size as u64, changed.modified));
        }
    }
}

#[test]
fn the_length_of_a_file_whose_time_was_set_while_it_was_written_is_noted_when_it_is_closed() {
    for is_set_by_other in [false, true] {
        let scene = Scene::new();
        let number = scene.make();
        let (_, file) = scene.one.open(number, Access::Write).expect("it is there");
        file.write(LENGTH as u64, &[7], false).expect("there is room");
        let setter = if is_set_by_other { &scene.other } else { &scene.one };
        let changes = Changes { modified: Some(When::At(AT)), ..Changes::default() };
        setter.change(number, changes).expect("it is there");
        file.close().expect("it is open");
        let noted = scene.noted(number);
        assert!(!noted.is_written, "{is_set_by_other}");
        assert_eq!((noted.size, noted.modified), (LENGTH as u64 + 1, AT), "{is_set_by_other}");
    }
}

/// Closes a file that was open for writing.
fn close(session: &Session, number: u64, left: Left) {
    let closed = vec![Closed { number, is_for_writing: true, left }];
    let request = Request::Close { closed, read: Vec::new(), id: 1, acknowledged: 1 };
    session.call(&request).expect("it is open");
}

#[test]
fn a_late_close_does_not_settle_what_another_user_may_have_written_since() {
    for other_left in [Some(Left::Unknown), Some(Left::Untouched), None] {
        let scene = Scene::new();
        let number = scene.make();
        let noted = scene.noted(number);
        let sessions = [(); 2].map(|()| Session::new(scene.noted.tree()));
        for session in &sessions {
            let open = Request::Open { number, is_for_writing: true };
            session.call(&open).expect("it is there");
        }
        let [late, other] = sessions;
        // What this one saw is newer than all that is known, and nobody knows how long ago it saw it.
        let saw = Settled { size: 5, allocated_bytes: 5, modified_ns: noted.settled_ns + 1 };
        match other_left {
            Some(left) => close(&other, number, left),
            // It is missed for too long.
            None => drop(other),
        }
        close(&late, number, Left::Settled(saw));
        let is_known = other_left == Some(Left::Untouched);
        assert_eq!(scene.noted(number).is_written, !is_known, "{other_left:?}");
        // It says nothing of those who open it later.
        late.call(&Request::Open { number, is_for_writing: true }).expect("it is there");
        let saw = Settled { size: 6, allocated_bytes: 6, modified_ns: saw.modified_ns + 1 };
        let closed = vec![Closed { number, is_for_writing: true, left: Left::Settled(saw) }];
        let request = Request::Close { closed, read: Vec::new(), id: 2, acknowledged: 2 };
        late.call(&request).expect("it is open");
        let noted = scene.noted(number);
        assert_eq!((noted.size, noted.is_written), (6, false), "{other_left:?}");
    }
}

#[test]
fn who_closes_a_small_file_leaves_nothing_in_doubt() {
    let scene = Scene::new();
    let [reader, writer] = [(); 2].map(|()| Session::new(scene.noted.tree()));
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let number = scene.one.make(ROOT, b"small", made).expect("it is new").number;
    let open = |session: &Session, is_for_writing| {
        session.call(&Request::Open { number, is_for_writing }).expect("it is there");
    };
    // All the time, so that what was open before counts.
    open(&reader, false);
    open(&writer, true);
    let (data, at_end) = (&[7; 10][..], false);
    let write = Request::Write { number, offset: 0, data, at_end, clears_set_id: false };
    writer.call(&write).expect("it is small");
    close(&writer, number, Left::Unknown);
    open(&writer, true);
    let moved_ns = scene.noted(number).modified.to_ns() + 1;
    let size = data.len() as u64;
    let moved = Request::MoveOut { number, size, content: data, object_modified_ns: moved_ns };
    writer.call(&moved).expect("it is as it was");
    let saw = Settled { size: 5000, allocated_bytes: 8192, modified_ns: moved_ns + 1 };
    let closed = vec![Closed { number, is_for_writing: true, left: Left::Settled(saw) }];
    let request = Request::Close { closed, read: Vec::new(), id: 2, acknowledged: 2 };
    writer.call(&request).expect("it is open");
    let noted = scene.noted(number);
    assert_eq!((noted.size, noted.is_written), (5000, false));
}
