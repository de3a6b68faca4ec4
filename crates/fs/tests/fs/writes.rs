// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a write does beside its bytes, and what it does where there is hardly any room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use terrace_backends::object::{Effect, FaultPoint, Faults, Faulty, Memory, When};
use terrace_core::{Access, Backend, End, ErrorKind, SystemClock};
use terrace_fs::{
    CAPABILITY, Changes, File, Files, Kind, Made, Metadata, ROOT, Reply, Request, Session, SetHow,
};

use crate::common::files;

const ROOM: usize = 1 << 20;

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 10_000];

/// Files with room for [`ROOM`] bytes.
fn scene() -> Arc<Files> {
    users().0
}

/// The same, which fail when told to.
fn failing(faults: &Arc<Faults>) -> Arc<Files> {
    let data: Arc<dyn Backend> = Arc::new(Memory::new(ROOM as u64));
    users_of(Arc::new(Faulty::new(data, Arc::clone(faults)))).0
}

/// The same of two users.
fn users() -> (Arc<Files>, Arc<Files>) {
    users_of(Arc::new(Memory::new(ROOM as u64)))
}

fn users_of(data: Arc<dyn Backend>) -> (Arc<Files>, Arc<Files>) {
    let tree = crate::common::tree(Arc::new(SystemClock::default()));
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
    // Who may not leave a bit takes it away before anything is written, as natively.
    assert_eq!(permissions(), 0o4755);
    let zeros = [0; ROOM];
    file.write_some(length as u64, &zeros, true).expect_err("there is no room");
    assert_eq!(permissions(), 0o755);
    assert!(file.write_some(length as u64 - 4096, &zeros, true).expect("some fits") >= 4096);
    assert_eq!(permissions(), 0o755);
    file.write(length as u64, &data, false).expect_err("all of it or an error");
    let mut found = vec![0; data.len()];
    assert_eq!(file.read(LENGTHS[1] as u64, &mut found).expect("readable"), data.len());
    assert!(found == data);
}

/// Metadata of which nobody hears that something is to change.
struct Unchangeable(Session, AtomicBool);

impl Metadata for Unchangeable {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        match request {
            Request::Change { .. } if self.1.load(Ordering::SeqCst) => {
                Err(Errno::HOSTUNREACH.into())
            }
            _ => self.0.call(request),
        }
    }
}

#[test]
fn nothing_is_written_with_a_bit_that_cannot_be_taken_away() {
    let tree = crate::common::tree(Arc::new(SystemClock::default()));
    let metadata = Arc::new(Unchangeable(Session::new(&tree), AtomicBool::new(false)));
    let data: Arc<dyn Backend> = Arc::new(Memory::new(ROOM as u64));
    let files = files(metadata.clone(), &data, false);
    for length in LENGTHS {
        let file = make(&files, format!("{length}").as_bytes(), length);
        metadata.1.store(true, Ordering::SeqCst);
        let written = file.write(0, b"theirs", true);
        metadata.1.store(false, Ordering::SeqCst);
        let permissions = files.node(file.number()).expect("it is there").permissions;
        let mut found = [0; 6];
        file.read(0, &mut found).expect("readable");
        assert_eq!(written.is_ok(), permissions == 0o755, "{length}");
        assert_eq!(&found == b"theirs", permissions == 0o755, "{length}");
        // The next one tries again.
        file.write(0, b"theirs", true).expect("somebody answers");
        assert_eq!(files.node(file.number()).expect("it is there").permissions, 0o755);
    }
}

#[test]
fn a_file_is_as_long_as_a_write_says_that_a_full_device_took_in_part() {
    // The second is tried with less, but not with as much as the device took.
    for (bytes, refused, took) in [(4000, None, 2000), (64 << 10, Some(2), 32 << 10)] {
        let faults = Faults::new(1);
        let files = failing(&faults);
        let file = make(&files, b"file", LENGTHS[1]);
        let write = |when, effect| faults.add(&[FaultPoint::Write], When::Nth(when), effect);
        write(1, Effect::Short(ErrorKind::NoSpace));
        if let Some(at) = refused {
            write(at, Effect::Fail(ErrorKind::NoSpace));
        }
        let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        // Over the last bytes that there are, and behind them.
        let offset = LENGTHS[1] - 100;
        let count = file.write_some(offset as u64, &data, false).expect("some of it is there");
        assert_eq!(count, took);
        assert_eq!(file.size().expect("it says"), (offset + count) as u64);
        let mut found = vec![0; count];
        assert_eq!(file.read(offset as u64, &mut found).expect("readable"), count);
        assert!(found == data[..count]);
    }
}

/// Has a removed file take room until all is released, and appends to another one with these faults;
/// what came of it, how much there was before, and the file.
fn append_where_room_comes_back(
    data: &[u8],
    points: &[(FaultPoint, When, Effect)],
    wait: impl FnOnce(&Faults, &dyn Fn() -> bool),
) -> (Result<(usize, u64), Errno>, u64, File) {
    let faults = Faults::new(1);
    let files = failing(&faults);
    let file = make(&files, b"file", LENGTHS[1]);
    drop(make(&files, b"removed", LENGTHS[1]));
    faults.add(&[FaultPoint::Delete], When::Always, Effect::Hang);
    files.remove(ROOT, b"removed", false).expect("it is there");
    faults.wait_hanging(1);
    let end = file.size().expect("it says");
    points.iter().for_each(|(point, when, effect)| faults.add(&[*point], *when, *effect));
    let appended = std::thread::scope(|scope| {
        let append = scope.spawn(|| file.append_some(end, data, false));
        wait(&faults, &|| append.is_finished());
        faults.clear();
        faults.release();
        append.join().expect("no panic")
    });
    (appended.map_err(|failure| failure.errno()), end, file)
}

#[test]
fn what_an_append_left_where_there_was_no_room_is_not_followed_by_all_of_it() {
    let points = [(FaultPoint::Write, When::Nth(1), Effect::Short(ErrorKind::NoSpace))];
    let (appended, end, file) =
        append_where_room_comes_back(&[8; 10_000], &points, |faults, is_finished| {
            while faults.injected() < 2 {
                std::thread::yield_now();
            }
            // Whoever waits for the room does so by now.
            for _ in 0..100_000 {
                if is_finished() {
                    break;
                }
                std::thread::yield_now();
            }
        });
    assert_eq!(file.size().expect("it says"), end + 5000, "{appended:?}");
    assert_eq!(appended, Err(Errno::NOSPC));
}

#[test]
fn an_append_that_left_nothing_is_made_once_there_is_room() {
    let points = [
        (FaultPoint::Write, When::Nth(1), Effect::Fail(ErrorKind::NoSpace)),
        // When it looks whether it left something it knows that there will be room.
        (FaultPoint::Stat, When::Nth(2), Effect::Hang),
    ];
    let data = [8; 10_000];
    let (appended, end, file) =
        append_where_room_comes_back(&data, &points, |faults, _| faults.wait_hanging(2));
    assert_eq!(appended, Ok((data.len(), end)));
    assert_eq!(file.size().expect("it says"), end + data.len() as u64);
}

#[test]
fn a_write_without_room_says_so_where_what_was_removed_cannot_be_deleted() {
    let faults = Faults::new(1);
    let files = failing(&faults);
    drop(make(&files, b"removed", ROOM / 2));
    let file = make(&files, b"file", LENGTHS[1]);
    faults.add(&[FaultPoint::Delete], When::Always, Effect::Fail(ErrorKind::Io));
    files.remove(ROOT, b"removed", false).expect("it is there");
    let failure = file.write(0, &[8; ROOM], false).expect_err("there is no room");
    assert_eq!(failure.errno(), Errno::NOSPC);
    let written = file.write_some(0, &[8; ROOM], false).expect("there is for some");
    assert!(written > ROOM / 4, "{written}");
    faults.clear();
}

#[test]
fn a_small_file_outgrows_the_metadata_once_there_is_room() {
    let ways: [fn(&File) -> terrace_fs::Result<()>; 3] = [
        |file| file.write(5000, b"x", false),
        |file| file.allocate(0..5000, End::Grows, false),
        File::give_object,
    ];
    for outgrow in ways {
        let faults = Faults::new(1);
        let files = failing(&faults);
        let file = make(&files, b"file", LENGTHS[0]);
        drop(make(&files, b"removed", LENGTHS[1]));
        faults.add(&[FaultPoint::Delete], When::Always, Effect::Hang);
        files.remove(ROOT, b"removed", false).expect("it is there");
        faults.wait_hanging(1);
        let no_room = Effect::Fail(ErrorKind::NoSpace);
        faults.add(&[FaultPoint::Write], When::Nth(1), no_room);
        let outgrown = std::thread::scope(|scope| {
            let outgrow = scope.spawn(|| outgrow(&file));
            while faults.injected() < 2 {
                std::thread::yield_now();
            }
            // Whoever waits for the room does so by now.
            for _ in 0..100_000 {
                if outgrow.is_finished() {
                    break;
                }
                std::thread::yield_now();
            }
            faults.clear();
            faults.release();
            outgrow.join().expect("no panic")
        });
        outgrown.expect("there is room by then");
        assert!(file.object().is_some());
    }
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
