// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of a small file that outgrows the metadata where that does not go as it should.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::kv;
use terrace_backends::object::{Effect, FaultPoint, Faults, Faulty, Memory, When};
use terrace_core::{Access, Backend, Clock, ErrorKind, Key, SystemClock};
use terrace_fs::{
    Changes, File, FileClock, Files, Kind, LockKind, LockRange, Locked, Made, Metadata, ROOT,
    Reply, Request, Session, Tree, TreeOptions,
};
use terrace_testkit::ManualClock;

use crate::common::{files, files_with};

const ROOM: u64 = 1_000_000;

/// Longer than a session is kept without a connection.
const CUT_OFF_FOR: Duration = Duration::from_secs(61);

fn tree() -> Arc<Tree> {
    crate::common::tree(Arc::new(SystemClock::default()))
}

fn make(files: &Arc<Files>, name: &[u8]) -> File {
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    files.create(ROOT, name, made, false).expect("it is new").1
}

/// A user whose session can be lost, as that of one who was cut off.
struct Losable {
    tree: Arc<Tree>,
    session: Mutex<Arc<Session>>,
}

impl Losable {
    fn new(tree: &Arc<Tree>) -> Arc<Self> {
        let session = Mutex::new(Arc::new(Session::new(tree)));
        Arc::new(Self { tree: Arc::clone(tree), session })
    }

    /// Goes on with another session, in which a file is open again.
    fn lose(&self, number: u64) {
        self.go_on(&self.tree, number);
    }

    /// The same with who serves the file system from now on.
    fn go_on(&self, tree: &Arc<Tree>, number: u64) {
        let session = Session::new(tree);
        session.call(&Request::Open { number, is_for_writing: true }).expect("it is there");
        self.go_on_in(session);
    }

    fn go_on_in(&self, session: Session) {
        *self.session.lock().expect("no panic") = Arc::new(session);
    }
}

impl Metadata for Losable {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        let session = Arc::clone(&self.session.lock().expect("no panic"));
        session.call(request)
    }
}

/// Two users of one file system: one whose session and objects are in the test's hands, with a small
/// file that it has just made, and another one.
struct Two {
    faults: Arc<Faults>,
    memory: Arc<dyn Backend>,
    tree: Arc<Tree>,
    clock: Arc<ManualClock>,
    metadata: Arc<Losable>,
    slow: Arc<Files>,
    quick: Arc<Files>,
    file: File,
}

impl Two {
    fn new() -> Self {
        let faults = Faults::new(1);
        let memory: Arc<dyn Backend> = Arc::new(Memory::new(ROOM));
        let data: Arc<dyn Backend> =
            Arc::new(Faulty::new(Arc::clone(&memory), Arc::clone(&faults)));
        let tree = tree();
        let clock = Arc::new(ManualClock::new());
        let metadata = Losable::new(&tree);
        let theirs: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let slow = files_with(Arc::<Losable>::clone(&metadata), &data, false, theirs);
        let quick = files(Arc::new(Session::new(&tree)), &memory, false);
        let file = make(&slow, b"file");
        file.write(0, &[7; 3000], false).expect("it is with the metadata");
        Self { faults, memory, tree, clock, metadata, slow, quick, file }
    }
}

/// The object of a small file that did not find room there is cleared at once; where it cannot be it goes
/// with the file.
#[test]
fn an_object_that_was_made_for_a_file_in_vain_goes() {
    for (is_alone, is_cleared) in [(true, true), (true, false), (false, true), (false, false)] {
        let faults = Faults::new(1);
        let data: Arc<dyn Backend> =
            Arc::new(Faulty::new(Arc::new(Memory::new(ROOM)), Arc::clone(&faults)));
        if !is_cleared {
            faults.add(&[FaultPoint::Delete], When::Nth(1), Effect::Fail(ErrorKind::Io));
        }
        let files = files(Arc::new(Session::new(&tree())), &data, is_alone);
        let other = make(&files, b"other");
        other.write(0, &vec![7; ROOM as usize - 2000], false).expect("there is room");
        let small = make(&files, b"small");
        small.write(0, &[7; 3000], false).expect("it is with the metadata");
        let failure = small.write(5000, b"x", false).expect_err("there is no room");
        assert_eq!(failure.errno(), Errno::NOSPC);
        let number = small.number();
        let key = files.key(number).expect("it is one");
        let case = format!("alone: {is_alone}, cleared: {is_cleared}");
        assert_eq!(data.stat(&key).is_err(), is_cleared, "{case}");
        let mut bytes = [0; 3000];
        assert_eq!(small.read(0, &mut bytes).expect("readable"), 3000);
        assert_eq!(bytes, [7; 3000], "{case}");
        files.remove(ROOT, b"small", false).expect("it is there");
        small.close().expect("it is open");
        files.close().expect("it closes, and deletes");
        assert!(data.stat(&key).is_err(), "{case}");
    }
}

#[test]
fn an_object_that_is_made_for_a_file_that_was_removed_meanwhile_goes() {
    // Where it notices by itself that it may have been cut off, and where it only hears of it.
    for has_taken_long in [false, true] {
        let Two { faults, memory, tree, clock, metadata, slow, quick, file } = Two::new();
        faults.add(&[FaultPoint::Create], When::Nth(1), Effect::Hang);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| file.write(5000, b"x", false));
            faults.wait_hanging(1);
            metadata.go_on_in(Session::new(&tree));
            quick.remove(ROOT, b"file", false).expect("it is there");
            quick.sweep().expect("nothing is left of it");
            if has_taken_long {
                clock.advance(CUT_OFF_FOR);
            }
            faults.release();
            let failure = writer.join().expect("no panic").expect_err("it is gone");
            assert_eq!(failure.errno(), Errno::STALE);
        });
        slow.sweep().expect("it deletes");
        let key = slow.key(file.number()).expect("it is one");
        let found = memory.stat(&key).expect_err("nobody needs it");
        assert_eq!(found.kind(), ErrorKind::NotFound, "{has_taken_long}");
    }
}

#[test]
fn who_was_cut_off_does_not_cut_what_others_wrote_since() {
    let Two { faults, clock, metadata, slow: _slow, quick, file, .. } = Two::new();
    let number = file.number();
    let (_, same) = quick.open(number, Access::Write).expect("it is there");
    faults.add(&[FaultPoint::Create], When::Nth(1), Effect::Hang);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write(5000, b"x", false));
        faults.wait_hanging(1);
        clock.advance(CUT_OFF_FOR);
        metadata.lose(number);
        let written = same.write(0, &[8; 10_000], false);
        faults.release();
        writer.join().expect("no panic").expect("there is room");
        written.expect("there is room");
    });
    let mut bytes = vec![0; 10_001];
    assert_eq!(same.read(0, &mut bytes).expect("readable"), 10_000);
    assert_eq!(bytes[5000], b'x');
    bytes[5000] = 8;
    assert!(bytes[..10_000] == [8; 10_000], "what others wrote is there");
}

#[test]
fn who_began_before_a_restart_does_not_cut_what_others_wrote_since() {
    let faults = Faults::new(1);
    let memory: Arc<dyn Backend> = Arc::new(Memory::new(ROOM));
    let data: Arc<dyn Backend> = Arc::new(Faulty::new(Arc::clone(&memory), Arc::clone(&faults)));
    let kv = Arc::new(kv::Memory::default());
    let clock = Arc::new(ManualClock::new());
    Tree::create(&*kv, &TreeOptions::default(), &*clock, &[7; 32]).expect("it is empty");
    let serve = || {
        let theirs: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let tree = Tree::open(Arc::<kv::Memory>::clone(&kv), FileClock::following(theirs));
        let tree = tree.expect("it was made");
        tree.await_claims(Duration::from_secs(90));
        tree
    };
    let tree = serve();
    let metadata = Losable::new(&tree);
    let slow = files(Arc::<Losable>::clone(&metadata), &data, false);
    let file = make(&slow, b"file");
    file.write(0, &[7; 3000], false).expect("it is with the metadata");
    let number = file.number();
    faults.add(&[FaultPoint::Create], When::Nth(1), Effect::Hang);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write(5000, b"x", false));
        faults.wait_hanging(1);
        let tree = serve();
        metadata.go_on(&tree, number);
        let quick = files(Arc::new(Session::new(&tree)), &memory, false);
        let (_, same) = quick.open(number, Access::Write).expect("it is there");
        let (done, is_done) = mpsc::channel();
        let other = scope.spawn(move || {
            let written = same.write(0, &[8; 10_000], false);
            // Nobody listens any more where it took longer.
            let _ = done.send(());
            written.map(|_| same)
        });
        // Long enough for one who does not wait.
        let _ = is_done.recv_timeout(Duration::from_millis(200));
        faults.release();
        writer.join().expect("no panic").expect("there is room");
        // Nobody can be writing there any more who began before.
        clock.advance(Duration::from_secs(41));
        let same = other.join().expect("no panic").expect("there is room");
        let mut bytes = vec![0; 10_001];
        assert_eq!(same.read(0, &mut bytes).expect("readable"), 10_000);
        bytes[5000] = 8;
        assert!(bytes[..10_000] == [8; 10_000], "what others wrote is there");
    });
}

#[test]
fn bytes_that_may_survive_a_loss_of_power_leave_the_metadata_for_what_does() {
    for is_alone in [true, false] {
        for (what, is_durable) in [
            ("new", false),
            ("synced", true),
            ("synced with all", true),
            ("opened again", true),
            ("emptied", false),
        ] {
            let faults = Faults::new(1);
            let memory: Arc<dyn Backend> = Arc::new(Memory::new(ROOM));
            let data: Arc<dyn Backend> = Arc::new(Faulty::new(memory, Arc::clone(&faults)));
            let files = files(Arc::new(Session::new(&tree())), &data, is_alone);
            let mut file = make(&files, b"file");
            file.write(0, &[7; 3000], false).expect("it is with the metadata");
            match what {
                "synced" => file.sync().expect("it is with the metadata"),
                "synced with all" => files.sync().expect("it is with the metadata"),
                "emptied" => {
                    file.sync().expect("it is with the metadata");
                    let cut = Changes { size: Some(0), ..Changes::default() };
                    files.change(file.number(), cut).expect("it is with the metadata");
                    file.write(0, &[7; 3000], false).expect("it is with the metadata");
                }
                "opened again" => {
                    let number = file.number();
                    file.close().expect("it is open");
                    file = files.open(number, Access::Write).expect("it is there").1;
                }
                _ => {}
            }
            // No object can be made durable.
            faults.add(&[FaultPoint::Sync], When::Always, Effect::Fail(ErrorKind::Io));
            let grown = file.write(3000, &[8; 3000], false);
            faults.clear();
            assert_eq!(grown.is_err(), is_durable, "{what}, alone: {is_alone}");
            let length = if is_durable { 3000 } else { 6000 };
            let mut bytes = vec![0; 6001];
            assert_eq!(file.read(0, &mut bytes).expect("readable"), length, "{what}");
            assert!(bytes[..3000] == [7; 3000], "{what}");
            file.write(3000, &[9; 3000], false).expect("it can be made durable");
            file.sync().expect("it can be made durable");
            assert_eq!(file.read(0, &mut bytes).expect("readable"), 6000, "{what}");
        }
    }
}

#[test]
fn bytes_that_were_lost_before_they_were_durable_are_written_again() {
    for (losses, is_moved) in [(1, true), (2, false)] {
        let faults = Faults::new(1);
        let memory: Arc<dyn Backend> = Arc::new(Memory::new(ROOM));
        let data: Arc<dyn Backend> = Arc::new(Faulty::new(memory, Arc::clone(&faults)));
        let files = files(Arc::new(Session::new(&tree())), &data, false);
        let file = make(&files, b"file");
        file.write(0, &[7; 3000], false).expect("it is with the metadata");
        file.sync().expect("it is with the metadata");
        // As where the server of the object is started anew between a write and its sync.
        for number in 1..=losses {
            faults.add(&[FaultPoint::Sync], When::Nth(number), Effect::Fail(ErrorKind::Io));
        }
        let grown = file.write(3000, &[8; 3000], false);
        faults.clear();
        assert_eq!(grown.is_ok(), is_moved, "{losses} losses");
        let length = if is_moved { 6000 } else { 3000 };
        let mut bytes = vec![0; 6001];
        assert_eq!(file.read(0, &mut bytes).expect("readable"), length);
        assert!(bytes[..3000] == [7; 3000] && bytes[3000..length] == vec![8; length - 3000]);
    }
}

#[test]
fn only_who_has_the_claim_moves_bytes_out() {
    let tree = tree();
    let [one, other] = [Session::new(&tree), Session::new(&tree)];
    let made = Made { kind: Kind::File, ..Made::default() };
    let make = Request::Make { directory: ROOT, name: b"file", made };
    let Ok(Reply::Made { node, .. }) = one.call(&make) else { panic!("it is new") };
    let number = node.number;
    let claim = |session: &Session, kind| {
        let range = LockRange { start: 0, end: u64::MAX, kind };
        let locked = Locked { range, process: 0 };
        let number = number | 1 << 63;
        let lock = Request::Lock { number, owner: 0, is_flock: false, locked };
        session.call(&lock).expect("nobody is in the way");
    };
    let move_out = Request::MoveOut { number, size: 0, content: b"", object_modified_ns: 1 };
    claim(&one, LockKind::Write);
    assert_eq!(other.call(&move_out), Ok(Reply::NotHere));
    // Nor does he who had it in an earlier life begin.
    assert_eq!(other.call(&Request::NoteObject { number }), Ok(Reply::NotHere));
    assert!(matches!(one.call(&Request::NoteObject { number }), Ok(Reply::Node(_))));
    claim(&one, LockKind::Unlock);
    claim(&other, LockKind::Write);
    assert!(matches!(other.call(&move_out), Ok(Reply::Node(_))));
}

#[test]
fn a_length_takes_room_however_small_the_file_was() {
    for (is_alone, bytes) in [(true, 0), (true, 3000), (false, 0), (false, 3000), (true, 10_000)] {
        let data: Arc<dyn Backend> = Arc::new(Memory::new(ROOM));
        let files = files(Arc::new(Session::new(&tree())), &data, is_alone);
        let file = make(&files, b"file");
        file.write(0, &vec![7; bytes], false).expect("there is room");
        let set_len = |size| {
            let changes = Changes { size: Some(size), ..Changes::default() };
            files.change(file.number(), changes)
        };
        let failure = set_len(2 * ROOM).expect_err("there is no room");
        assert_eq!(failure.errno(), Errno::NOSPC, "{is_alone}, {bytes}");
        let node = files.node(file.number()).expect("it is there");
        assert_eq!(node.size, bytes as u64, "it is as it was");
        let grown = set_len(ROOM / 2).expect("there is room");
        assert_eq!((grown.size, file.size().expect("it says")), (ROOM / 2, ROOM / 2));
        let other = make(&files, b"other");
        let failure = other.write(0, &[7; ROOM as usize * 2 / 3], false);
        assert_eq!(failure.expect_err("that room is promised").errno(), Errno::NOSPC);
        let mut found = vec![0; bytes + 10];
        assert_eq!(file.read(0, &mut found).expect("readable"), found.len());
        assert!(found[..bytes].iter().all(|byte| *byte == 7));
        assert_eq!(found[bytes..], [0; 10]);
        // What fits the metadata stays there.
        let small = make(&files, b"small");
        let changes = Changes { size: Some(4096), ..Changes::default() };
        files.change(small.number(), changes).expect("it takes no room");
        assert!(small.object().is_none());
    }
}

/// Of a server of before: it does not know the newest request.
struct Earlier(Session);

impl Metadata for Earlier {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        match request {
            Request::NoteObject { .. } => Err(Errno::INVAL.into()),
            _ => self.0.call(request),
        }
    }
}

#[test]
fn files_of_an_earlier_server_outgrow_the_metadata() {
    let data: Arc<dyn Backend> = Arc::new(Memory::new(ROOM));
    let files = files(Arc::new(Earlier(Session::new(&tree()))), &data, false);
    let file = make(&files, b"file");
    file.write(0, &[7; 3000], false).expect("it is with the metadata");
    file.write(5000, b"x", false).expect("there is room");
    let key: Key = files.key(file.number()).expect("it is one");
    assert_eq!(data.stat(&key).expect("it is there").size_bytes, 5001);
}
