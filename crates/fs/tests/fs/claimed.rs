// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Claims to the objects of small files, where the metadata do not answer who has one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, Clock, SystemClock};
use terrace_fs::{
    File, Files, Kind, LockKind, LockRange, Locked, Made, Metadata, ROOT, Reply, Request, Session,
};
use terrace_testkit::ManualClock;

use crate::common::{files, files_with};

/// Nothing that is waited for takes nearly as long.
const WAIT_TIME_MAX: Duration = Duration::from_secs(30);

/// A request that a test knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Claim,
    MoveOut,
    GiveBack,
}

fn asked(request: &Request<'_>) -> Option<Asked> {
    match request {
        Request::Lock { locked, .. } if request.is_claim() => match locked.range.kind {
            LockKind::Unlock => Some(Asked::GiveBack),
            _ => Some(Asked::Claim),
        },
        Request::MoveOut { .. } => Some(Asked::MoveOut),
        _ => None,
    }
}

/// Metadata of one user, which are cut off from time to time.
struct Cut {
    session: Session,
    /// What gets no answer next, each once, and whether it is carried out.
    missed: Mutex<Vec<(Asked, bool)>>,
    life: AtomicU64,
    /// Told of each that is asked.
    told: Mutex<mpsc::Sender<Asked>>,
    /// What happens meanwhile.
    meanwhile: Mutex<Option<Meanwhile>>,
}

type Meanwhile = Box<dyn Fn(Asked) + Send>;

impl Metadata for Cut {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        let Some(asked) = asked(request) else { return self.session.call(request) };
        if let Some(meanwhile) = &*self.meanwhile.lock().expect("nobody panicked") {
            meanwhile(asked);
        }
        let mut missed = self.missed.lock().expect("nobody panicked");
        let place = missed.iter().position(|(one, _)| *one == asked);
        let missed = place.map(|place| missed.remove(place).1);
        let reply = match missed {
            Some(false) => Err(Errno::HOSTUNREACH.into()),
            Some(true) => self.session.call(request).and(Err(Errno::HOSTUNREACH.into())),
            None => self.session.call(request),
        };
        // Nobody listens once a test is over.
        let _ = self.told.lock().expect("nobody panicked").send(asked);
        reply
    }

    fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }
}

/// A user who is cut off, with a small file, and another one.
struct Scene {
    metadata: Arc<Cut>,
    told: mpsc::Receiver<Asked>,
    one: Arc<Files>,
    file: File,
    other: Arc<Files>,
}

impl Scene {
    fn new() -> Self {
        let tree = crate::common::tree(Arc::new(SystemClock::default()));
        let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
        let (sender, told) = mpsc::channel();
        let metadata = Arc::new(Cut {
            session: Session::new(&tree),
            missed: Mutex::default(),
            life: AtomicU64::new(1),
            told: Mutex::new(sender),
            meanwhile: Mutex::default(),
        });
        // Pauses take no time.
        let hasty = Arc::new(ManualClock::new());
        let one = files_with(Arc::<Cut>::clone(&metadata), &data, false, hasty);
        let other = files(Arc::new(Session::new(&tree)), &data, false);
        let made =
            Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
        let (_, file) = one.create(ROOT, b"file", made, false).expect("it is new");
        file.write(0, &[7; 3000], false).expect("it is with the metadata");
        Self { metadata, told, one, file, other }
    }

    fn miss(&self, missed: &[(Asked, bool)]) {
        self.metadata.missed.lock().expect("nobody panicked").extend(missed);
    }

    /// The file grows beyond what the metadata keep.
    fn grow(&self) -> terrace_fs::Result<()> {
        self.file.write(5000, b"x", false).map(drop)
    }

    fn wait_until_asked(&self, asked: Asked) {
        while self.told.recv_timeout(WAIT_TIME_MAX).expect("it is asked") != asked {}
    }

    /// How often a claim was given back, or that was tried, since.
    fn given_back(&self) -> usize {
        self.told.try_iter().filter(|asked| *asked == Asked::GiveBack).count()
    }
}

fn claim(number: u64) -> Request<'static> {
    let range = LockRange { start: 0, end: u64::MAX, kind: LockKind::Write };
    let locked = Locked { range, process: 0 };
    Request::Lock { number: number | 1 << 63, owner: 0, is_flock: false, locked }
}

#[test]
fn a_claim_is_given_back_once_the_metadata_answer_again() {
    for (missed, tries) in [
        (&[(Asked::MoveOut, false), (Asked::GiveBack, false)][..], 2),
        (&[(Asked::MoveOut, false), (Asked::GiveBack, true)], 2),
        (&[(Asked::MoveOut, false), (Asked::GiveBack, false), (Asked::GiveBack, false)], 3),
        // It was had, and its holder did not hear of it.
        (&[(Asked::Claim, true)], 1),
    ] {
        let scene = Scene::new();
        scene.miss(missed);
        let failure = scene.grow().expect_err("nobody answers");
        assert_eq!(failure.errno(), Errno::HOSTUNREACH, "{missed:?}");
        for _ in 0..tries {
            scene.wait_until_asked(Asked::GiveBack);
        }
        let (_, file) = scene.other.open(scene.file.number(), Access::Write).expect("it is there");
        file.write(6000, b"y", false).expect("nobody has the claim");
        file.close().expect("it is open");
        scene.grow().expect("it has an object");
    }
}

#[test]
fn a_claim_that_is_had_again_is_not_given_back_before_its_time() {
    /// So long nothing comes, on any machine that is not too busy: on one that is, the test shows less.
    const STILL: Duration = Duration::from_millis(100);
    let scene = Scene::new();
    let often = [(Asked::GiveBack, false); 3];
    scene.miss(&[&[(Asked::MoveOut, false)], &often[..]].concat());
    scene.grow().expect_err("nobody answers");
    let (sender, is_moving) = mpsc::channel();
    *scene.metadata.meanwhile.lock().expect("nobody panicked") = Some(Box::new(move |asked| {
        let clock = SystemClock::default();
        let end_ns = clock.now_ns() + STILL.as_nanos() as u64;
        while asked == Asked::MoveOut && clock.now_ns() < end_ns {
            std::thread::yield_now();
        }
        // Nobody listens once a test is over.
        let _ = sender.send(asked);
    }));
    scene.grow().expect("it is answered");
    let asked: Vec<_> = is_moving.try_iter().collect();
    let claimed = asked.iter().rposition(|asked| *asked == Asked::Claim).expect("it has it");
    let (first, repeated) = asked[claimed..].split_at(3);
    assert_eq!(first, [Asked::Claim, Asked::MoveOut, Asked::GiveBack]);
    // Answers that the first claim has not missed yet the second one misses, and repeats its request.
    assert!(repeated.iter().all(|asked| *asked == Asked::GiveBack), "{repeated:?}");
    assert!(repeated.len() <= often.len(), "{repeated:?}");
}

#[test]
fn a_claim_is_not_given_back_in_a_later_life_of_the_metadata() {
    let scene = Scene::new();
    scene.miss(&[(Asked::MoveOut, false), (Asked::GiveBack, false)]);
    let metadata = Arc::downgrade(&scene.metadata);
    *scene.metadata.meanwhile.lock().expect("nobody panicked") = Some(Box::new(move |asked| {
        if let (Asked::GiveBack, Some(metadata)) = (asked, metadata.upgrade()) {
            metadata.life.store(2, Ordering::Release);
        }
    }));
    scene.grow().expect_err("nobody answers");
    scene.one.close().expect("the end is the end");
    assert_eq!(scene.given_back(), 1, "the server has forgotten it by itself");
}

#[test]
fn who_waits_for_a_claim_waits_no_longer_than_one_can_last() {
    let scene = Scene::new();
    let session = Session::new(scene.metadata.session.tree());
    session.call(&claim(scene.file.number())).expect("it is free");
    let clock = Arc::new(ManualClock::new());
    let theirs = Arc::clone(&clock);
    *scene.metadata.meanwhile.lock().expect("nobody panicked") =
        Some(Box::new(move |_| theirs.advance(Duration::from_secs(1))));
    let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
    let metadata: Arc<dyn Metadata> = Arc::<Cut>::clone(&scene.metadata);
    let slow = files_with(metadata, &data, false, Arc::<ManualClock>::clone(&clock));
    let (_, file) = slow.open(scene.file.number(), Access::Write).expect("it is there");
    let failure = file.write(5000, b"x", false).expect_err("another has it");
    assert_eq!(failure.errno(), Errno::AGAIN);
    let tries = scene.told.try_iter().filter(|asked| *asked == Asked::Claim).count();
    assert!((80..=100).contains(&tries), "{tries} of a second each");
}
