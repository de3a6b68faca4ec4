// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a write does beside its bytes, and what it does where there is hardly any room.

mod common;

use std::sync::Arc;

use rustix::io::Errno;
use terrace_backends::kv;
use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, SystemClock};
use terrace_fs::{
    CAPABILITY, Changes, File, FileClock, Files, Kind, Made, ROOT, Reply, Request, Session, SetHow,
    Tree, TreeOptions,
};

use common::files;

const ROOM: usize = 1 << 20;

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 10_000];

/// Files with room for [`ROOM`] bytes.
fn scene() -> Arc<Files> {
    users().0
}

/// The same of two users.
fn users() -> (Arc<Files>, Arc<Files>) {
    let kv = Arc::new(kv::Memory::default());
    let clock = SystemClock::default();
    Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    let tree = Tree::open(kv, FileClock::following(Arc::new(clock))).expect("it was just made");
    let data: Arc<dyn Backend> = Arc::new(Memory::new(ROOM as u64));
    let user = || files(Arc::new(Session::new(&tree)), &data, false);
    (user(), user())
}

fn make(files: &Arc<Files>, name: &[u8], bytes: usize) -> File {
    let made = Made { kind: Kind::File, permissions: 0o4755, is_opened: true, ..Made::default() };
    let (_, file) = files.create(ROOT, name, made, false).expect("it is new");
    file.write(0, &vec![7; bytes], false).expect("there is room");
    file
}

#[test]
fn what_a_program_may_do_goes_with_a_write_of_anybody() {
    let files = scene();
    let ask = |request: &Request<'_>| files.metadata().call(request).map_err(|it| it.errno());
    for length in LENGTHS {
        let file = make(&files, format!("{length}").as_bytes(), length);
        let number = file.number();
        let is_capable = || match ask(&Request::Xattr { number, name: CAPABILITY }) {
            Ok(Reply::Bytes(_)) => true,
            Err(Errno::NODATA) => false,
            other => panic!("{other:?}"),
        };
        let set = || {
            let (name, value, how) = (CAPABILITY, &b"all"[..], SetHow::Any);
            let set = Request::SetXattr { number, name, value, how, clears_set_group: false };
            ask(&set).expect("it can be set");
        };
        // While it is open, and by somebody else, before it is opened once more.
        for is_open in [true, false] {
            set();
            let opened = match is_open {
                true => {
                    files.note_capability(number);
                    None
                }
                false => {
                    let opened = files.open(number, Access::Write);
                    Some(opened.expect("it is there").1)
                }
            };
            let file = opened.as_ref().unwrap_or(&file);
            let mut buffer = [0];
            file.read(0, &mut buffer).expect("readable");
            assert!(is_capable(), "{length}, {is_open}");
            file.write(0, b"x", false).expect("there is room");
            assert!(!is_capable(), "{length}, {is_open}");
        }
        assert_eq!(files.node(number).expect("it is there").permissions, 0o4755);
    }
}

#[test]
fn a_directory_keeps_its_group_for_what_is_made_in_it() {
    let files = scene();
    let made = Made { kind: Kind::Directory, permissions: 0o2755, ..Made::default() };
    let directory = files.make(ROOT, b"directory", made).expect("it is new").number;
    let changes = Changes { clears_set_id: true, ..Changes::default() };
    assert_eq!(files.change(directory, changes).expect("it is there").permissions, 0o2755);
    let number = make(&files, b"file", 1).number();
    assert_eq!(files.change(number, changes).expect("it is there").permissions, 0o755);
}

#[test]
fn a_write_takes_what_room_there_is_and_says_so() {
    let files = scene();
    let file = make(&files, b"file", LENGTHS[1]);
    let permissions = || files.node(file.number()).expect("it is there").permissions;
    let mut length = LENGTHS[1];
    let data: Vec<u8> = (0..ROOM / 3).map(|at| at as u8).collect();
    let failure = loop {
        // In turn at the end that is known, and at the one that is not.
        let written = match length % 2 {
            0 => file.write_some(length as u64, &data, false),
            _ => file.append_some(length as u64, &data, false).map(|(count, start)| {
                assert_eq!(start, length as u64);
                count
            }),
        };
        assert_eq!(file.size().expect("it says"), (length + written.as_ref().unwrap_or(&0)) as u64);
        match written {
            Ok(count) => length += count,
            Err(failure) => break failure,
        }
    };
    assert_eq!(failure.errno(), Errno::NOSPC);
    assert!(length > ROOM - 4096, "{length} of {ROOM}");
    // Who may not leave it takes a bit away with what is written, not with what is not.
    let zeros = [0; ROOM];
    file.write_some(length as u64, &zeros, true).expect_err("there is no room");
    assert_eq!(permissions(), 0o4755);
    assert!(file.write_some(length as u64 - 4096, &zeros, true).expect("some fits") >= 4096);
    assert_eq!(permissions(), 0o755);
    file.write(length as u64, &data, false).expect_err("all of it or an error");
    let mut found = vec![0; data.len()];
    assert_eq!(file.read(LENGTHS[1] as u64, &mut found).expect("readable"), data.len());
    assert!(found == data);
}

#[test]
fn a_writer_stays_one_where_another_user_has_the_file_outgrow_the_metadata() {
    let (one, other) = users();
    let writer = make(&one, b"file", LENGTHS[0]);
    let (_, grown) = other.open(writer.number(), Access::Write).expect("it is there");
    grown.write(0, &[8; LENGTHS[1]], false).expect("there is room");
    // Who opens it for reading hears of the object first.
    let (_, reader) = one.open(writer.number(), Access::Read).expect("it is there");
    writer.write(0, b"x", false).expect("it is open for writing");
    one.change(writer.number(), Changes { size: Some(5000), ..Changes::default() }).expect("cut");
    let mut bytes = vec![0; LENGTHS[1]];
    assert_eq!(reader.read(0, &mut bytes).expect("readable"), 5000);
    assert_eq!(bytes[..2], [b'x', 8]);
}
