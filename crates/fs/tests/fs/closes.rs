// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closes that the metadata does not answer.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, ErrorKind, SystemClock};
use terrace_fs::{Closed, Files, Kind, Made, Metadata, Node, ROOT, Reply, Request, Session};

use crate::common::files;

/// Longer than what is kept with the metadata.
const LENGTH: usize = 10_000;

/// Nothing that is waited for takes nearly as long.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// What becomes of a request to close.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    /// It is not carried out.
    Lost,
    /// It is carried out.
    AnswerLost,
    /// There will never be another answer.
    Refused,
}

/// Metadata of one user, whose requests to close end as a test says, one after the other.
struct Fated {
    session: Session,
    fates: Mutex<Receiver<Fate>>,
    closed: Sender<Vec<Closed>>,
}

impl Metadata for Fated {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        let Request::Close { closed, .. } = request else { return self.session.call(request) };
        let fate = self.fates.lock().expect("nobody panicked").recv().unwrap_or(Fate::Lost);
        let outcome = match fate {
            Fate::Answered => self.session.call(request),
            Fate::Lost => Err(Errno::HOSTUNREACH.into()),
            Fate::AnswerLost => self.session.call(request).and(Err(Errno::HOSTUNREACH.into())),
            Fate::Refused => Err(Errno::STALE.into()),
        };
        // Nobody listens once a test is over.
        let _ = self.closed.send(closed.clone());
        outcome
    }
}

/// Two users of the files of one file system.
struct Scene {
    one: Arc<Files>,
    other: Arc<Files>,
    data: Arc<dyn Backend>,
    fates: Sender<Fate>,
    closed: Receiver<Vec<Closed>>,
}

impl Scene {
    fn new() -> Self {
        let tree = crate::common::tree(Arc::new(SystemClock::default()));
        let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
        let (fates, receiver) = mpsc::channel();
        let (sender, closed) = mpsc::channel();
        let fated =
            Fated { session: Session::new(&tree), fates: Mutex::new(receiver), closed: sender };
        let one = files(Arc::new(fated), &data, false);
        let other = files(Arc::new(Session::new(&tree)), &data, false);
        Self { one, other, data, fates, closed }
    }

    /// Makes a file with an object.
    fn make(&self, name: &[u8]) -> Node {
        let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
        let (node, file) = self.other.create(ROOT, name, made, false).expect("it is new");
        file.write(0, &vec![7; LENGTH], false).expect("there is room");
        file.close().expect("it is open");
        node
    }

    /// What is closed with the next request, which ends so.
    fn next(&self, fate: Fate) -> Vec<Closed> {
        self.fates.send(fate).expect("it is asked");
        self.closed()
    }

    /// What is closed with the next request.
    fn closed(&self) -> Vec<Closed> {
        self.closed.recv_timeout(WAIT_TIME_MAX).expect("it is asked")
    }

    fn is_stored(&self, number: u64) -> bool {
        match self.data.stat(&self.one.key(number).expect("a key")) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                false
            }
        }
    }
}

#[test]
fn a_close_without_an_answer_is_told_again() {
    for access in [Access::Read, Access::Write] {
        for fate in [Fate::Lost, Fate::AnswerLost] {
            let scene = Scene::new();
            let number = scene.make(b"file").number;
            let (_, file) = scene.one.open(number, access).expect("it is there");
            scene.other.remove(ROOT, b"file", false).expect("it is there");
            assert!(scene.is_stored(number), "it is open");
            for fate in [fate, fate] {
                scene.fates.send(fate).expect("it is asked");
            }
            // Only what was written is told before this ends.
            let _ = file.close();
            for _ in 0..2 {
                scene.closed();
            }
            assert_eq!(scene.next(Fate::Answered)[0].number, number, "{access:?} {fate:?}");
            scene.one.close().expect("everything can be told");
            assert!(!scene.is_stored(number), "{access:?} {fate:?}");
        }
    }
}

#[test]
fn a_close_that_is_told_again_leaves_open_what_was_opened_since() {
    for fate in [Fate::Lost, Fate::AnswerLost] {
        let scene = Scene::new();
        let number = scene.make(b"file").number;
        let (_, file) = scene.one.open(number, Access::Read).expect("it is there");
        file.close().expect("it is told later");
        scene.next(fate);
        let (_, file) = scene.one.open(number, Access::Read).expect("it is there");
        scene.next(Fate::Answered);
        scene.other.remove(ROOT, b"file", false).expect("it is there");
        scene.other.sweep().expect("it can be deleted");
        let mut found = [0; 10];
        assert_eq!(file.read(LENGTH as u64 - 10, &mut found).expect("it is open"), 10);
        assert!(scene.is_stored(number), "{fate:?}");
        scene.fates.send(Fate::Answered).expect("it is asked");
        file.close().expect("it is told later");
        scene.one.close().expect("everything can be told");
        assert!(!scene.is_stored(number), "{fate:?}");
    }
}

#[test]
fn a_close_that_never_succeeds_is_told_once() {
    let scene = Scene::new();
    let numbers = [b"a", b"b"].map(|name| scene.make(name).number);
    for (number, fate) in numbers.into_iter().zip([Fate::Refused, Fate::Answered]) {
        let (_, file) = scene.one.open(number, Access::Read).expect("it is there");
        file.close().expect("it is told later");
        let closed: Vec<_> = scene.next(fate).iter().map(|closed| closed.number).collect();
        assert_eq!(closed, [number]);
    }
    scene.one.close().expect("nothing is left to be told");
    assert!(scene.closed.try_recv().is_err(), "it is told once");
}

#[test]
fn the_end_does_not_wait_for_an_answer_that_does_not_come() {
    let scene = Scene::new();
    let number = scene.make(b"file").number;
    let Scene { one, fates, closed, .. } = scene;
    let (_, file) = one.open(number, Access::Write).expect("it is there");
    fates.send(Fate::Lost).expect("it is asked");
    file.close().expect_err("it is told, in vain");
    // From now on nothing is answered.
    drop(fates);
    one.close().expect("the end is the end");
    assert!(closed.try_iter().count() <= 3, "the close itself, and at the end a look or two");
}
