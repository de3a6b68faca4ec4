// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a store answers does not depend on whose process owns it.

use std::fmt::Debug;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use terrace_core::End;
use terrace_store::{
    Backend, BackendExt, Create, Cursor, Error, ErrorKind, Explanation, Hint, LedgerReport,
    MoveKind, MoveReport, MoveTicket, Object, ObjectExt, Op, Open, Persistency, PolicySource,
    Request, Result, Semantics, Stat, Store, Temperature,
};

use crate::scene::{Scene, key};

/// Longest wait for a migration of a few bytes.
const MOVE_TIME_MAX: Duration = Duration::from_secs(30);

/// What a store answered, line by line.
struct Diary {
    directory: String,
    /// How the store is called: an owner's stack, or its socket.
    target: String,
    lines: Vec<String>,
}

impl Diary {
    fn of(scene: &Scene, store: &Store) -> Vec<String> {
        let mut diary =
            Diary { directory: scene.address(), target: store.target().into(), lines: Vec::new() };
        objects(store, &mut diary);
        batches(store, &mut diary);
        listings(store, &mut diary);
        placement(store, &mut diary);
        policies(store, &mut diary);
        pairs(store, &mut diary);
        quotas(store, &mut diary);
        wrong(store, &mut diary);
        diary.lines
    }

    /// Notes an answer; errors with everything that they say.
    fn note<T: Debug>(&mut self, what: &str, answer: Result<T>) {
        let text = match answer {
            Ok(value) => format!("{what}: {value:?}"),
            Err(error) => format!("{what}: {:?}: {}", error.kind(), error.chain()),
        };
        let text = text.replace(&self.target, "TARGET");
        self.lines.push(text.replace(&self.directory, "DIR"));
    }
}

/// Without times, which differ from run to run.
fn timeless(stat: Stat) -> (u64, u64) {
    assert!(stat.modified_ns > 0);
    (stat.size_bytes, stat.allocated_bytes)
}

fn counts(ledger: LedgerReport) -> LedgerReport {
    LedgerReport {
        device_ns: 0,
        migration_wait_ns: 0,
        guard_wait_ns: 0,
        sync_ns: 0,
        move_device_ns: 0,
        ..ledger
    }
}

fn explained(mut explanation: Explanation) -> Explanation {
    assert!(explanation.created_ns > 0 && explanation.modified_ns > 0);
    (explanation.created_ns, explanation.modified_ns) = (0, 0);
    explanation.ledger = counts(explanation.ledger);
    for history in explanation.segments.iter_mut().flat_map(|segment| &mut segment.history) {
        (history.wall_ns, history.duration_ns, history.modelled_energy_j) = (0, 0, 0.0);
        // As of the policy's last round.
        (history.measured_benefit_s, history.accesses) = (None, 0);
    }
    explanation
}

fn objects(store: &Store, diary: &mut Diary) {
    diary.note("capability", Ok(terrace_store::Capability { leases: false, ..store.capability() }));
    diary.note("missing", store.open(&key("a/x"), &Open::read()).map(drop));
    let how = Open {
        create: Create::New,
        size_hint_bytes: Some(10),
        hint: Hint { temperature: Temperature::Hot },
        semantics: Semantics::at_level(Persistency::Storage),
        ..Open::default()
    };
    let object = store.open(&key("a/x"), &how).expect("room");
    diary.note("again", store.open(&key("a/x"), &how).map(drop));
    object_calls(&*object, diary);
    let mut open = store.admin().explain(&key("a/x")).map(explained).expect("it is there");
    // Of reads from a lent file the owner is told at the latest when the object is closed.
    (open.ledger.reads, open.ledger.read_bytes) = (0, 0);
    diary.note("opens", Ok(open));
    drop(object);
    diary.note("behind that", store.stat(&key("a/x")).map(timeless));
    diary.note("closed", store.admin().explain(&key("a/x")).map(explained));
    let reading = store.open(&key("a/x"), &Open::read()).expect("it is there");
    diary.note("write for reading", reading.write(0, b"x"));
    diary.note("stat", store.stat(&key("a/x")).map(timeless));
    labels(store, diary);
    diary.note("sync", store.sync());
    diary.note("space", store.space());

    // Larger than whatever a frame holds.
    let large: Vec<u8> = (0..20_000_001u32).map(|i| (i / 5) as u8).collect();
    store.write_all(&key("a/large"), &large).expect("room");
    assert!(store.read_all(&key("a/large")).expect("kept") == large);
    diary.note("large", store.stat(&key("a/large")).map(|stat| stat.size_bytes));
    diary.note("deleted", store.delete(&key("a/large")));
    diary.note("deleted", store.delete(&key("a/large")));
}

fn labels(store: &Store, diary: &mut Diary) {
    for label in [&b"a layout"[..], &[0xff; 512], &[], &[1; 513]] {
        let how = Open::create_new().with_label(label);
        let opened = store.open(&key("a/labelled"), &how);
        diary.note("labelled", opened.map(|object| object.label().map(|label| label.to_vec())));
        let again = store.open(&key("a/labelled"), &Open::read());
        let told = again.and_then(|object| Ok((object.label(), object.stat()?.is_labelled)));
        diary.note(
            "label",
            told.map(|(label, is_told)| (label.map(|label| label.to_vec()), is_told)),
        );
        diary.note("told", store.stat(&key("a/labelled")).map(|stat| stat.is_labelled));
        diary.note("unlabelled", store.stat(&key("a/x")).map(|stat| stat.is_labelled));
        diary.note("deleted", store.delete(&key("a/labelled")));
    }
}

fn object_calls(object: &dyn Object, diary: &mut Diary) {
    let parts = [IoSlice::new(b"hel"), IoSlice::new(b""), IoSlice::new(b"lo")];
    diary.note("write", object.write_at(2, &parts));
    diary.note("append", object.append(&[IoSlice::new(b"wor"), IoSlice::new(b"ld")]));
    let (mut first, mut second) = ([0; 4], [0; 100]);
    let count = object.read_at(0, &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)]);
    diary.note("read", count.map(|count| (count, first, second.to_vec())));
    diary.note("read behind the end", object.read(1 << 40, &mut [0; 5]));
    diary.note("read nowhere", object.read(u64::MAX, &mut [0; 5]));
    diary.note("write nowhere", object.write(u64::MAX, &[0; 5]));
    diary.note("set_len", object.set_len(100_000));
    diary.note("punch", object.punch(0..4));
    diary.note("allocate", object.allocate(0..200_000, End::Grows));
    diary.note("next_data", object.next_data(0).map(|range| range.is_some()));
    diary.note("no next_data", object.next_data(1 << 40));
    diary.note("sync object", object.sync());
    diary.note("set_modified", object.set_modified(1_000_000_007));
    diary.note("modified", object.stat().map(|stat| (stat.size_bytes, stat.modified_ns)));
    diary.note("shorter", object.set_len(7));
    diary.note("all", object.read_to_end());
    diary.note("size", object.stat().map(|stat| stat.size_bytes));
}

fn batches(store: &Store, diary: &mut Diary) {
    let keys: Vec<_> = (0..700).map(|number| key(&format!("batch/{number}"))).collect();
    let semantics = Semantics::default();
    let hint = Hint::default();
    let create = |key| Op::new(Request::Create { key, data: b"content", hint });
    let mut operations: Vec<_> = keys.iter().map(create).collect();
    operations.push(create(&keys[3]));
    store.execute(&mut operations, &semantics);
    note_outcomes("create", operations, diary);

    // In one batch more than a frame holds.
    let (mut small, mut large) = ([0; 100], vec![1; 17 << 20]);
    let data = vec![7; 9 << 20];
    let missing = key("batch/missing");
    let mut operations = vec![
        Op::new(Request::Write { key: &keys[0], offset_bytes: 3, data: &data }),
        Op::new(Request::Write { key: &keys[0], offset_bytes: 1, data: &data }),
        Op::new(Request::Read { key: &keys[0], offset_bytes: 2, buffer: &mut large }),
        Op::new(Request::Read { key: &keys[1], offset_bytes: 3, buffer: &mut small }),
        Op::new(Request::Read { key: &missing, offset_bytes: 3, buffer: &mut [] }),
        Op::new(Request::Delete { key: &keys[2] }),
        Op::new(Request::Delete { key: &keys[2] }),
        Op::new(Request::Write { key: &keys[2], offset_bytes: 0, data: b"gone" }),
    ];
    store.execute(&mut operations, &semantics);
    note_outcomes("mixed", operations, diary);
    diary.note("read small", Ok(small));
    assert!(large[..(9 << 20) + 1].iter().all(|byte| *byte == 7));
    assert!(large[(9 << 20) + 1..].iter().all(|byte| *byte == 1), "what was not read is left");
    let mut operations = [Op::new(Request::Stat { key: &keys[0] })];
    store.execute(&mut operations, &semantics);
    let size = match operations[0].outcome.take() {
        Some(Ok(terrace_store::Reply::Stat(stat))) => stat.size_bytes,
        other => panic!("{other:?}"),
    };
    diary.note("batch stat", Ok(size));
    store.execute(&mut [], &semantics);
    let strong = Semantics::at_level(Persistency::Storage);
    let mut operations = [Op::new(Request::Create { key: &missing, data: b"", hint })];
    store.execute(&mut operations, &strong);
    note_outcomes("durable", operations.into(), diary);
}

fn note_outcomes(what: &str, operations: Vec<Op<'_>>, diary: &mut Diary) {
    for operation in operations {
        diary.note(what, operation.outcome.expect("every slot is filled"));
    }
}

fn listings(store: &Store, diary: &mut Diary) {
    for name in ["b/\u{1}\"\\\n", "b/ü/🦀", "b/..", "c/c"] {
        store.write_all(&key(name), b"").expect("room");
    }
    diary.note("namespaces", store.namespaces());
    diary.note("list b", store.list("b", "", &Cursor::start(), 10));
    diary.note("prefix", store.list("batch", "12", &Cursor::start(), 1000));
    diary.note("all", store.list_all("batch", ""));
    let page = store.list("batch", "", &Cursor::start(), 5).expect("readable");
    assert_eq!(page.keys.len(), 5);
    let next = page.next.expect("there are more");
    diary.note("second page", store.list("batch", "", &next, 5));
    diary.note("nothing", store.list("none", "", &Cursor::start(), 10));
}

fn placement(store: &Store, diary: &mut Diary) {
    let x = key("a/x");
    let done = |report: Option<MoveReport>| report.map(|report| (report.outcome, report.to));
    for (to, kind) in
        [("slow", MoveKind::Promote), ("fast", MoveKind::Move), ("slow", MoveKind::Copy)]
    {
        let tickets = store.admin().migrate(&x, to, kind, -1, "because").expect("it can be moved");
        diary.note("tickets", Ok(tickets.len()));
        for ticket in tickets {
            diary.note("moved", store.admin().wait(ticket, MOVE_TIME_MAX).map(done));
        }
    }
    diary.note("already there", store.admin().migrate(&x, "fast", MoveKind::Move, 0, ""));
    diary.note("idle", store.admin().wait_idle(MOVE_TIME_MAX));
    diary.note("moved", store.admin().explain(&x).map(explained));
    diary.note(
        "moves",
        store.admin().moves().map(|moves| {
            moves
                .into_iter()
                .map(|report| (report.key, report.state, report.reason))
                .collect::<Vec<_>>()
        }),
    );
    diary.note("drop copy", store.admin().drop_copy(&x, "slow"));
    diary.note("drop copy", store.admin().drop_copy(&x, "slow"));
    diary.note("pin", store.admin().pin(&x));
    diary.note("pinned", store.admin().migrate(&x, "slow", MoveKind::Move, 0, ""));
    diary.note("unpin", store.admin().unpin(&x));
    diary.note("no tier", store.admin().migrate(&x, "tape", MoveKind::Move, 0, ""));
    diary.note("no object", store.admin().migrate(&key("a/none"), "slow", MoveKind::Move, 0, ""));
    let unknown = MoveTicket(1 << 60);
    diary.note("unknown", store.admin().wait(unknown, Duration::ZERO));
    diary.note("unknown", store.admin().cancel(unknown));
    diary.note("cancel", store.admin().cancel_all());
    diary.note(
        "tiers",
        store.admin().tiers().map(|tiers| {
            let plain = |tier: terrace_store::TierReport| {
                // Garbage is dropped in the background.
                (tier.name, tier.target, tier.capacity_bytes, tier.used_bytes, tier.watermarks)
            };
            tiers.into_iter().map(plain).collect::<Vec<_>>()
        }),
    );
    // The owner writes long data as it comes, in pieces.
    diary.note(
        "ledger",
        store.admin().ledger().map(|ledger| LedgerReport { writes: 0, ..counts(ledger) }),
    );
    let mut steps = 0;
    let report = store.admin().check(true, &mut |done, total| {
        assert!(done <= total);
        steps += 1;
        true
    });
    diary.note("check", report.map(|report| (report.objects, report.segments, report.problems)));
}

fn policies(store: &Store, diary: &mut Diary) {
    let shown = |store: &Store| {
        let report = store.admin().policy().expect("readable").expect("it has one");
        (report.name, report.is_dry_run, report.after_events, report.every_ns, report.parameters)
    };
    diary.note("policy", Ok(shown(store)));
    diary.note("parameter", store.admin().set_parameter("tier", "slow"));
    diary.note("parameter", store.admin().set_parameter("teir", "slow"));
    diary.note("parameter", store.admin().set_parameter("tier", "tape"));
    diary.note("dry run", store.admin().set_dry_run(true));
    diary.note("calls", store.admin().set_calls(Some(77), Some(Duration::from_secs(3000))));
    diary.note("calls", store.admin().set_calls(Some(0), None));
    diary.note("policy", Ok(shown(store)));
    diary.note("message", store.admin().message("nonsense", b"\0\xff"));
    diary.note("run", store.admin().run_policy());
    diary.note("unknown", store.admin().set_policy(&PolicySource::named("lfu"), &[]));
    diary.note(
        "no library",
        store.admin().set_policy(&PolicySource::named("/no/such/library.so"), &[]),
    );
    diary.note(
        "wrong",
        store.admin().set_policy(&PolicySource::named("lru"), &[("hihg".into(), "1".into())]),
    );
    diary.note(
        "lru",
        store.admin().set_policy(&PolicySource::named("lru"), &[("high".into(), "0.8".into())]),
    );
    diary.note("policy", Ok(shown(store)));
    let status = store.admin().message("status", b"").expect("it knows this");
    assert!(status.starts_with(b"{"));
}

fn pairs(store: &Store, diary: &mut Diary) {
    let level = Persistency::Process;
    diary.note("get", store.kv_get("p", b"k"));
    diary.note("put", store.kv_put("p", b"k\0\xff", b"v\0\xff", level));
    diary.note("put", store.kv_put("p", b"k", b"", Persistency::Storage));
    diary.note("get", store.kv_get("p", b"k\0\xff"));
    diary.note("get", store.kv_get("p", b"k"));
    for number in 0..50_u8 {
        store.kv_put("p", &[b'n', number], &vec![number; 1000], level).expect("room");
    }
    diary.note("scan", store.kv_scan("p", b"", None, 10));
    diary.note("scan", store.kv_scan("p", b"n", Some(&[b'n', 40]), 1000));
    diary.note("remove", store.kv_remove("p", b"k", level));
    diary.note("remove", store.kv_remove("p", b"k", level));
    let longest = vec![3; 16 << 20];
    store.kv_put("p", b"long", &longest, level).expect("a legal value");
    assert!(store.kv_get("p", b"long").expect("kept") == Some(longest));
    // A client looks before it asks, and has words of its own.
    let too_long = vec![3; (16 << 20) + 1];
    diary.note("too long", Ok(kind(store.kv_put("p", b"long", &too_long, level))));
    diary.note("no key", Ok(kind(store.kv_put("p", b"", b"v", level))));
    diary.note("long key", Ok(kind(store.kv_put("p", &[1; 600], b"v", level))));
    diary.note("no namespace", Ok(kind(store.kv_get("", b"k"))));
    diary.note("no namespace", Ok(kind(store.kv_scan("a/b", b"", None, 1))));
}

fn kind<T>(answer: Result<T>) -> Option<ErrorKind> {
    answer.map_err(|error| error.kind()).err()
}

fn quotas(store: &Store, diary: &mut Diary) {
    diary.note("set", store.admin().set_quota("q", Some(1000), None));
    diary.note("set", store.admin().set_quota("q", None, Some(1)));
    diary.note("set", store.admin().set_quota("q", None, None));
    diary.note("write", store.write_all(&key("q/one"), &[1; 1000]));
    diary.note("write", store.write_all(&key("q/two"), b"x"));
    let object = store.open(&key("q/one"), &Open::write()).expect("opens");
    diary.note("grow", object.write(1000, b"x"));
    drop(object);
    diary.note("all", store.admin().quotas());
    diary.note("clear", store.admin().clear_quota("q"));
    diary.note("clear", store.admin().clear_quota("q"));
    diary.note("write", store.write_all(&key("q/two"), b"x"));
}

fn wrong(store: &Store, diary: &mut Diary) {
    let unsupported = |error: Error| format!("{:?} {}", error.kind(), error.chain());
    let backend: &dyn Backend = store;
    diary.note("identity", Ok(backend.identity(&key("a/x")).map_err(unsupported).err()));
    diary.note("superblock", Ok(backend.superblock().map_err(unsupported).err()));
    diary.note("explain", store.admin().explain(&key("a/none")));
    diary.note("stat", store.stat(&key("a/none")).map(timeless));
    diary.note("pin", store.admin().pin(&key("a/none")));
    diary.note("cursor", store.list("a", "", &Cursor(vec![0xff, 0, 1]), 5));
}

#[test]
fn owned_and_attached_stores_give_the_same_answers() {
    let (one, two) = (Scene::new(), Scene::new());
    let owned = Diary::of(&one, &one.open());
    let attached = Diary::of(&two, &two.attached());
    for (number, (owned, attached)) in owned.iter().zip(&attached).enumerate() {
        assert_eq!(owned, attached, "answer {number}");
    }
    assert_eq!(owned.len(), attached.len());
}
