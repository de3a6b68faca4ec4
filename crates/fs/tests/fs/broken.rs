// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files whose objects cannot be asked for anything.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::object::{Effect, FaultPoint, Faults, Faulty, Memory, When};
use terrace_core::{Access, Applied, Backend, Begun, Clock, ErrorKind, SystemClock};
use terrace_fs::{
    Changes, Files, FilesOptions, Kind, Made, Metadata, ROOT, Reply, Request, Session, Time, Tree,
    When as At,
};
use terrace_testkit::ManualClock;

use crate::common::{files, files_with, options};

const NAME: &[u8] = b"file";

/// Longer than what is kept with the metadata.
const LENGTH: usize = 10_000;

/// Nothing that is waited for takes nearly as long.
const WAIT_TIME_MAX: Duration = Duration::from_secs(20);

struct Scene {
    tree: Arc<Tree>,
    data: Arc<dyn Backend>,
    faults: Arc<Faults>,
}

impl Scene {
    fn new() -> Self {
        let tree = crate::common::tree(Arc::new(SystemClock::default()));
        let faults = Faults::new(1);
        let data = Faulty::new(Arc::new(Memory::new(1 << 20)), Arc::clone(&faults));
        Self { tree, data: Arc::new(data), faults }
    }

    fn user(&self) -> Arc<Files> {
        files(Arc::new(Session::new(&self.tree)), &self.data, false)
    }

    fn break_objects(&self, kind: ErrorKind) {
        let points = [FaultPoint::Stat, FaultPoint::Open, FaultPoint::Read];
        self.faults.add(&points, When::Always, Effect::Fail(kind));
    }
}

fn create(files: &Arc<Files>, name: &[u8]) -> (u64, terrace_fs::File) {
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (node, file) = files.create(ROOT, name, made, false).expect("it is new");
    file.write(0, &vec![7; LENGTH], false).expect("there is room");
    (node.number, file)
}

#[test]
fn a_broken_file_is_listed_with_the_others_and_can_be_removed() {
    let scene = Scene::new();
    let (writer, user) = (scene.user(), scene.user());
    // Open for writing, so that its object is asked how long it is.
    let (number, _file) = create(&writer, NAME);
    create(&writer, b"other").1.close().expect("closed");
    for kind in [ErrorKind::Io, ErrorKind::NotFound] {
        scene.faults.clear();
        scene.break_objects(kind);
        let listed = user.list(ROOT, 0, 10, true).expect("the others are there");
        assert_eq!(listed.iter().filter(|entry| entry.node.is_some()).count(), 2);
        assert_eq!(user.lookup(ROOT, NAME).expect("it is there").number, number);
        assert_eq!(user.node(number).expect("it is there").permissions, 0o644);
        let opened = user.open(number, Access::Read).map(drop);
        assert_eq!(opened.expect_err("it cannot be read").errno(), Errno::IO);
    }
    user.remove(ROOT, NAME, false).expect("removed");
    assert_eq!(user.lookup(ROOT, NAME).expect_err("it is gone").errno(), Errno::NOENT);
}

#[test]
fn who_does_not_answer_hides_no_other_file() {
    let scene = Scene::new();
    let (writer, user) = (scene.user(), scene.user());
    let (number, _file) = create(&writer, NAME);
    create(&writer, b"other").1.close().expect("closed");
    scene.break_objects(ErrorKind::Unreachable { applied: Applied::Unknown });
    let listed = user.list(ROOT, 0, 10, true).expect("the others are there");
    let known = listed.iter().map(|entry| (entry.number == number, entry.node.is_some()));
    let mut known: Vec<_> = known.collect();
    known.sort_unstable();
    assert_eq!(known, [(false, true), (true, false)]);
    let failure = user.lookup(ROOT, NAME).expect_err("nobody knows how long it is");
    assert_eq!(failure.errno(), Errno::HOSTUNREACH);
    assert_eq!(user.parent(number), Ok(ROOT));
}

#[test]
fn who_only_reads_deletes_objects_where_it_can_and_leaves_others() {
    let unreachable = ErrorKind::Unreachable { applied: Applied::Unknown };
    for kind in [None, Some(ErrorKind::Denied), Some(unreachable), Some(ErrorKind::NotFound)] {
        let scene = Scene::new();
        let writer = scene.user();
        let reader = {
            let clock = Arc::new(SystemClock::default());
            // It may write, as an export may that reads.
            let metadata = Arc::new(Session::new(&scene.tree));
            let options = FilesOptions { access: Access::Read, ..options(false) };
            Files::new(metadata, Arc::clone(&scene.data), clock, options).expect("opens")
        };
        let (number, file) = create(&writer, NAME);
        let (_, opened) = reader.open(number, Access::Read).expect("it is there");
        file.close().expect("it is open");
        writer.remove(ROOT, NAME, false).expect("it is there");
        writer.close().expect("everything can be told");
        if let Some(kind) = kind {
            scene.faults.add(&[FaultPoint::Delete], When::Always, Effect::Fail(kind));
        }
        opened.close().expect("it is open");
        reader.close().expect("others delete what it cannot");
        let used_bytes = || scene.data.space().expect("it knows").used_bytes;
        assert_eq!(used_bytes() == 0, kind.is_none(), "{kind:?}");
        scene.faults.clear();
        scene.user().sweep().expect("it may");
        assert_eq!(used_bytes(), 0, "{kind:?}");
    }
}

#[test]
fn a_file_whose_time_was_set_while_it_was_open_is_known_once_it_is_closed() {
    let scene = Scene::new();
    let user = scene.user();
    let (number, file) = create(&user, NAME);
    let modified = Time { seconds: 1_000_000, nanos: 5 };
    let changes = Changes { modified: Some(At::At(modified)), ..Changes::default() };
    user.change(number, changes).expect("changed");
    file.close().expect("closed");
    user.close().expect("closed");
    let session = Session::new(&scene.tree);
    let Ok(Reply::Node(node)) = session.call(&Request::Node { number }) else { panic!("gone") };
    assert_eq!((node.size, node.is_written), (LENGTH as u64, false));
    assert_eq!(node.modified, modified);
}

#[test]
fn nobody_waits_twice_for_servers_that_do_not_answer() {
    let scene = Scene::new();
    let writer = scene.user();
    let clock = Arc::new(ManualClock::new());
    let session = Arc::new(Session::new(&scene.tree));
    let user = files_with(session, &scene.data, false, Arc::clone(&clock) as Arc<dyn Clock>);
    let (number, _file) = create(&writer, NAME);
    let (other, _other_file) = create(&writer, b"other");
    scene.break_objects(ErrorKind::Unreachable { applied: Applied::Unknown });
    let look = || user.lookup(ROOT, NAME).map(|node| node.size).map_err(|it| it.errno());
    assert_eq!(look(), Err(Errno::HOSTUNREACH));
    scene.faults.clear();
    // They would answer now, if they were asked.
    assert_eq!(look(), Err(Errno::HOSTUNREACH));
    let changes = Changes { modified: Some(At::Now), ..Changes::default() };
    let failure = user.change(number, changes).expect_err("its length cannot be told");
    assert_eq!(failure.errno(), Errno::HOSTUNREACH);
    assert_eq!(user.node(other).expect("it was not asked for before").size, LENGTH as u64);
    clock.advance(Duration::from_secs(1));
    assert_eq!(look(), Ok(LENGTH as u64));
}

#[test]
fn nobody_waits_twice_for_bytes_that_do_not_come() {
    let scene = Scene::new();
    let clock = Arc::new(ManualClock::new());
    let session = Arc::new(Session::new(&scene.tree));
    let user = files_with(session, &scene.data, false, Arc::clone(&clock) as Arc<dyn Clock>);
    let (_, file) = create(&user, NAME);
    let read = |offset: u64, bytes: usize| read(&file, offset, bytes).map_err(|it| it.errno());
    let unreachable = ErrorKind::Unreachable { applied: Applied::Unknown };
    let points = [FaultPoint::ReadLater];
    for _ in 0..2 {
        scene.faults.add(&points, When::Always, Effect::Fail(unreachable));
        // As the kernel does: first ahead of who reads, then what is wanted of it.
        assert_eq!(read(1000, 8192), Err(Errno::HOSTUNREACH));
        // They would answer from now on, if they were asked.
        scene.faults.clear();
        assert_eq!(read(1000, 4096), Err(Errno::HOSTUNREACH));
        assert_eq!(read(5000, 4192), Err(Errno::HOSTUNREACH));
        assert_eq!(read(0, 1000), Ok(1000), "other servers may have these");
        assert_eq!(read(5001, 4192), Ok(4192));
        clock.advance(Duration::from_secs(1));
        assert_eq!(read(1000, 4096), Ok(4096));
        scene.faults.add(&points, When::Nth(1), Effect::Fail(unreachable));
        assert_eq!(read(1000, 4096), Err(Errno::HOSTUNREACH));
        file.write(0, b"bytes", false).expect("somebody answers");
        assert_eq!(read(1000, 4096), Ok(4096));
        scene.faults.clear();
    }
    // What is read of several servers at once says nothing of each of them.
    scene.faults.add(&[FaultPoint::Read], When::Nth(1), Effect::Fail(unreachable));
    assert_eq!(read(1000, 8192), Err(Errno::HOSTUNREACH));
    assert_eq!(read(1000, 4096), Ok(4096));
}

#[test]
fn who_waits_for_bytes_holds_up_nobody_who_opens_the_file() {
    let scene = Scene::new();
    let user = scene.user();
    let (number, file) = create(&user, NAME);
    file.close().expect("closed");
    let (_, file) = user.open(number, Access::Read).expect("it is there");
    let file = Arc::new(file);
    let waits: [fn(&terrace_fs::File) -> bool; 3] = [
        |file| file.read(0, &mut [0; 10]).is_ok(),
        |file| file.next_data(0).is_ok(),
        |file| file.size().is_ok(),
    ];
    for wait in waits {
        let points = [FaultPoint::Read, FaultPoint::Stat];
        scene.faults.add(&points, When::Nth(1), Effect::Hang);
        let waiting = {
            let file = Arc::clone(&file);
            thread::spawn(move || wait(&file))
        };
        scene.faults.wait_hanging(1);
        let (sender, opened) = mpsc::channel();
        let opening = {
            let user = Arc::clone(&user);
            thread::spawn(move || sender.send(user.open(number, Access::Write).map(drop)))
        };
        let opened = opened.recv_timeout(WAIT_TIME_MAX);
        scene.faults.release();
        assert!(waiting.join().expect("no panic"));
        opened.expect("nobody waits").expect("it is there");
        opening.join().expect("no panic").expect("somebody listens");
        scene.faults.clear();
    }
}

/// Reads as a mount does, and waits for it.
fn read(file: &terrace_fs::File, offset: u64, bytes: usize) -> terrace_fs::Result<usize> {
    let (sender, read) = mpsc::channel();
    let begun = file.read_later(offset, bytes, &mut || {
        let sender = sender.clone();
        Box::new(move |read| {
            let _ = sender.send(read.expect("it is told").map(<[u8]>::len));
        })
    });
    match begun {
        None => file.read(offset, &mut vec![0; bytes]),
        Some(Begun::Answering(answer)) => {
            answer();
            Ok(read.recv_timeout(WAIT_TIME_MAX).expect("it was told")?)
        }
        Some(Begun::Sent) => panic!("nobody else would tell"),
    }
}

/// What is known of a file, without asking its object.
fn noted(scene: &Scene, number: u64) -> (u64, bool) {
    let session = Session::new(&scene.tree);
    let Ok(Reply::Node(node)) = session.call(&Request::Node { number }) else { panic!("gone") };
    (node.size, node.is_written)
}

#[test]
fn a_file_that_cannot_be_opened_is_left_as_it_was() {
    let scene = Scene::new();
    let (user, other) = (scene.user(), scene.user());
    let (number, file) = create(&user, NAME);
    file.close().expect("closed");
    let unreachable = ErrorKind::Unreachable { applied: Applied::Unknown };
    for point in [FaultPoint::Open, FaultPoint::Stat] {
        for is_read in [false, true] {
            let reader = is_read.then(|| user.open(number, Access::Read).expect("it is there"));
            scene.faults.add(&[point], When::Always, Effect::Fail(unreachable));
            let opened = user.open(number, Access::Write).map(drop);
            assert_eq!(opened.expect_err("it cannot be").errno(), Errno::HOSTUNREACH);
            scene.faults.clear();
            drop(reader);
            assert_eq!(noted(&scene, number), (LENGTH as u64, false), "{point:?} {is_read}");
        }
    }
    // Who has it open at the same time may have written to it.
    let (_, written) = other.open(number, Access::Write).expect("it is there");
    scene.break_objects(unreachable);
    let opened = user.open(number, Access::Write).map(drop);
    assert_eq!(opened.expect_err("it cannot be").errno(), Errno::HOSTUNREACH);
    written.close().expect("closed");
    other.close().expect("closed");
    assert!(noted(&scene, number).1, "nobody knows how long it is");
}

#[test]
fn who_cannot_cut_a_file_does_not_wait_to_close_it() {
    let scene = Scene::new();
    let user = scene.user();
    let (number, file) = create(&user, NAME);
    file.close().expect("closed");
    let unreachable = ErrorKind::Unreachable { applied: Applied::Unknown };
    scene.faults.add(&[FaultPoint::Resize], When::Always, Effect::Fail(unreachable));
    let changes = Changes { size: Some(5), ..Changes::default() };
    let failure = user.change(number, changes).expect_err("it cannot be cut");
    assert_eq!(failure.errno(), Errno::HOSTUNREACH);
    user.close().expect("closed");
    assert!(noted(&scene, number).1, "its object was not asked for its length");
    // That nobody knows what became of it does not mean that nobody answers.
    assert_eq!(user.node(number).expect("somebody answers").size, LENGTH as u64);
}

#[test]
fn a_file_whose_servers_are_silent_holds_up_no_other_file() {
    let scene = Scene::new();
    let user = scene.user();
    let others: Vec<_> =
        (0..80).map(|it| create(&user, format!("other-{it}").as_bytes()).0).collect();
    let (number, file) = create(&user, NAME);
    file.close().expect("closed");
    scene.faults.add(&[FaultPoint::Open], When::Nth(1), Effect::Hang);
    let opening = {
        let user = Arc::clone(&user);
        thread::spawn(move || user.open(number, Access::Read).map(drop))
    };
    scene.faults.wait_hanging(1);
    let (sender, opened) = mpsc::channel();
    let looking = thread::spawn(move || {
        let open = |other: u64| user.open(other, Access::Read)?.1.close();
        let _ = sender.send(others.into_iter().try_for_each(open));
    });
    let opened = opened.recv_timeout(WAIT_TIME_MAX);
    scene.faults.release();
    opened.expect("nobody waits").expect("they are there");
    opening.join().expect("no panic").expect("it is there in the end");
    looking.join().expect("no panic");
}
