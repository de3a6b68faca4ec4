// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Servers that fail, and clients that stop in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use terrace_backends::object::{Effect, FaultPoint, Faults, When};
use terrace_client::striped::Distribution;
use terrace_core::{
    Applied, Backend, BackendExt, Create, End, Error, ErrorKind, Hint, Kv, KvRange, Object,
    ObjectExt, Op, Request, Result, Ticket, Txn,
};

use super::cluster::{
    EVEN, Server, VOLATILE, bytes, content, how, key, put, read_all, servers, striped, try_put,
};
use super::pairs::change_through;

/// Later than any object.
const FAR_NS: u64 = u64::MAX;

/// Three servers that stop together.
pub(crate) fn together() -> (Vec<Server>, Arc<Faults>) {
    let faults = Faults::new(1);
    let mut servers = servers(3);
    servers.iter_mut().for_each(|server| server.faults = Arc::clone(&faults));
    (servers, faults)
}

/// More than a create and a delete take.
const STEPS_MAX: u64 = 15;

#[test]
fn a_create_that_stops_at_any_step_leaves_all_or_nothing() {
    let mut stopped = 0;
    for step in 0..STEPS_MAX {
        let (servers, faults) = together();
        let store = striped(&servers, EVEN);
        put(&store, "before", &bytes(1, 50));
        faults.crash_after(step);
        let created = store.open(&key("a"), &how(Create::New)).map(drop);
        stopped += u64::from(faults.has_crashed());
        faults.restart();
        // Another process finds it whole or not at all.
        let store = striped(&servers, EVEN);
        let listed = store.list_all("test", "").expect("lists");
        match store.open(&key("a"), &how(Create::Never)) {
            Ok(object) => {
                assert_eq!(listed, [key("a"), key("before")]);
                object.write(0, &bytes(2, 50)).expect("it has all its pieces");
                assert_eq!(content(&*object).expect("reads"), bytes(2, 50));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                assert!(created.is_err(), "it was acknowledged");
                assert_eq!(listed, [key("before")]);
                put(&store, "a", &bytes(2, 50));
            }
        }
        assert_eq!(read_all(&store, &key("before")).expect("reads"), bytes(1, 50));
        assert_nothing_is_left(&store, &servers);
    }
    assert_eq!(stopped, 3, "two pieces and the object");
}

#[test]
fn a_delete_that_stops_at_any_step_leaves_all_or_nothing() {
    let mut stopped = 0;
    for step in 0..STEPS_MAX {
        let (servers, faults) = together();
        let store = striped(&servers, EVEN);
        put(&store, "before", &bytes(1, 50));
        put(&store, "a", &bytes(2, 50));
        faults.crash_after(step);
        let deleted = store.delete(&key("a"));
        stopped += u64::from(faults.has_crashed());
        faults.restart();
        let store = striped(&servers, EVEN);
        match read_all(&store, &key("a")) {
            Ok(data) => {
                assert!(deleted.is_err(), "it was acknowledged");
                assert_eq!(data, bytes(2, 50));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                assert_eq!(store.list_all("test", "").expect("lists"), [key("before")]);
                put(&store, "a", &bytes(3, 50));
                assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(3, 50));
            }
        }
        assert_nothing_is_left(&store, &servers);
    }
    assert!(stopped > 3, "a delete has some steps");
}

/// Collects what was left behind, deletes the rest, and sees that nothing stays.
#[track_caller]
pub(crate) fn assert_nothing_is_left(store: &terrace_client::striped::Striped, servers: &[Server]) {
    let before = store.collect(0).expect("looks");
    assert!(before.orphans.iter().all(|orphan| !orphan.is_removed));
    let removed = store.collect(FAR_NS).expect("collects");
    assert_eq!(before.orphans.len(), removed.orphans.len());
    assert!(removed.orphans.iter().all(|orphan| orphan.is_removed));
    assert!(removed.orphans.iter().all(|orphan| orphan.owner == Some(key("a"))));
    assert_eq!(store.collect(FAR_NS).expect("collects").orphans, []);
    for name in ["a", "before"] {
        read_all(store, &key(name)).expect("it is whole");
        store.delete(&key(name)).expect("deletes");
    }
    assert!(servers.iter().all(|server| server.names().is_empty()), "something is left");
    assert_eq!(store.namespaces().expect("lists"), Vec::<String>::new());
}

#[test]
fn a_server_that_fails_is_an_error_with_its_name_and_never_other_bytes() {
    let distributions =
        [EVEN, Distribution::Progressive { head_bytes: 10, stripe_bytes: 4 }, Distribution::Single];
    for distribution in distributions {
        let servers = servers(3);
        let store = striped(&servers, distribution);
        let names: Vec<_> = (0..20).map(|number| format!("object-{number}")).collect();
        names.iter().for_each(|name| put(&store, name, &bytes(7, 100)));
        for server in &servers {
            let held: Vec<_> = names
                .iter()
                .map(|name| store.open(&key(name), &how(Create::Never)).expect("opens"))
                .collect();
            server.faults.set_offline(true);
            let mut failed = 0;
            for (name, object) in names.iter().zip(&held) {
                let results = [read_all(&store, &key(name)), content(&**object)];
                for result in results {
                    match result {
                        Ok(data) => assert_eq!(data, bytes(7, 100)),
                        Err(error) => {
                            failed += 1;
                            assert_eq!(error.kind(), ErrorKind::Io);
                            let text = error.chain();
                            let is_named = text.contains(&format!("server=server-{}", server.id))
                                || text.contains("faulty:");
                            assert!(is_named, "{text}");
                        }
                    }
                }
            }
            assert!(failed > 0);
            let listed = store.list("test", "", &terrace_core::Cursor::start(), 10);
            assert_eq!(listed.expect_err("part of it is unknown").kind(), ErrorKind::Io);
            assert_eq!(store.collect(FAR_NS).expect_err("as well").kind(), ErrorKind::Io);
            server.faults.set_offline(false);
            for name in &names {
                assert_eq!(read_all(&store, &key(name)).expect("it is back"), bytes(7, 100));
            }
        }
    }
}

#[test]
fn a_write_that_fails_on_one_server_leaves_old_or_new_bytes() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    for server in &servers {
        let name = format!("object-{}", server.id);
        put(&store, &name, &[1; 100]);
        let object = store.open(&key(&name), &how(Create::Never)).expect("opens");
        for effect in [Effect::Fail(ErrorKind::Io), Effect::Short(ErrorKind::NoSpace)] {
            server.faults.add(&[FaultPoint::Write], When::Always, effect);
            let error = object.write(10, &[2; 50]).expect_err("a part failed");
            assert!(error.to_string().contains(&format!("server=server-{}", server.id)), "{error}");
            let data = content(&*object).expect("reads");
            assert_eq!(data.len(), 100);
            assert!(data[..10].iter().chain(&data[60..]).all(|byte| *byte == 1));
            assert!(data[10..60].iter().all(|byte| [1, 2].contains(byte)));
            server.faults.clear();
        }
        object.write(10, &[3; 50]).expect("it is well again");
        assert_eq!(read_all(&store, &key(&name)).expect("reads")[10..60], [3; 50]);
    }
}

#[test]
fn an_append_that_fails_gives_its_place_back() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    put(&store, "a", &bytes(1, 30));
    let object = store.open(&key("a"), &how(Create::Never)).expect("opens");
    let append = |data: &[u8]| object.append(&[std::io::IoSlice::new(data)]);
    servers.iter().for_each(|server| {
        server.faults.add(&[FaultPoint::Write], When::Always, Effect::Fail(ErrorKind::Io));
    });
    assert_eq!(append(b"lost").expect_err("nothing is written").kind(), ErrorKind::Io);
    servers.iter().for_each(|server| server.faults.clear());
    assert_eq!(append(b"kept").expect("appends"), 30);
}

#[test]
fn an_append_that_is_on_its_way_keeps_its_place_while_the_object_grows() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    put(&store, "a", &bytes(1, 30));
    for server in &servers {
        server.faults.add(&[FaultPoint::Write], When::Nth(1), Effect::Hang);
    }
    let open = || store.open(&key("a"), &how(Create::Never)).expect("opens");
    let append = |data: &[u8]| open().append(&[std::io::IoSlice::new(data)]).expect("appends");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| append(&[7; 12]));
        servers.iter().for_each(|server| server.faults.wait_hanging(1));
        open().set_len(35).expect("grows");
        let second = append(&[8; 12]);
        servers.iter().for_each(|server| server.faults.release());
        assert_eq!((first.join().expect("no panic"), second), (30, 42));
    });
    let expected = [bytes(1, 30), vec![7; 12], vec![8; 12]].concat();
    assert_eq!(read_all(&store, &key("a")).expect("reads"), expected);
}

#[test]
fn an_append_of_which_any_part_may_be_on_its_way_keeps_its_place() {
    for unknown in 0..3 {
        let servers = servers(3);
        let store = striped(&servers, EVEN);
        put(&store, "a", &bytes(1, 30));
        let object = store.open(&key("a"), &how(Create::Never)).expect("opens");
        let append = |data: &[u8]| object.append(&[std::io::IoSlice::new(data)]);
        for (index, server) in servers.iter().enumerate() {
            let unreachable = ErrorKind::Unreachable { applied: Applied::Unknown };
            let kind = if index == unknown { unreachable } else { ErrorKind::Io };
            server.faults.add(&[FaultPoint::Write], When::Always, Effect::Fail(kind));
        }
        let error = append(&[7; 12]).expect_err("each server has a part, and fails");
        assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{}", error.chain());
        servers.iter().for_each(|server| server.faults.clear());
        assert_eq!(append(b"kept").expect("appends"), 42, "server {unknown}");
    }
}

#[test]
fn an_append_of_which_a_part_is_written_is_not_said_to_be_undone() {
    let refused = ErrorKind::Unreachable { applied: Applied::No };
    for refusing in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
        let servers = servers(3);
        let store = striped(&servers, EVEN);
        put(&store, "a", &bytes(1, 30));
        let object = store.open(&key("a"), &how(Create::Never)).expect("opens");
        for index in refusing {
            let faults = &servers[*index].faults;
            faults.add(&[FaultPoint::Write], When::Always, Effect::Fail(refused));
        }
        let changes: [&dyn Fn() -> Result<()>; 2] =
            [&|| object.append(&[std::io::IoSlice::new(&[7; 12])]).map(drop), &|| {
                object.write(30, &[7; 12])
            }];
        for change in changes {
            let error = change().expect_err("each server has a part");
            let is_partial = refusing.len() < servers.len();
            let applied = if is_partial { Applied::Unknown } else { Applied::No };
            let kind = ErrorKind::Unreachable { applied };
            assert_eq!(error.kind(), kind, "{refusing:?}: {}", error.chain());
            assert!(error.chain().contains("server=server-"), "{}", error.chain());
        }
        servers.iter().for_each(|server| server.faults.clear());
        assert_appends_at_the_end(&servers);
    }
}

#[test]
fn a_change_of_which_a_part_is_made_is_not_said_to_be_undone() {
    type Change = fn(&dyn Object) -> Result<()>;
    let changes: [(&str, Change); 6] = [
        ("cut", |object| object.set_len(5)),
        ("cut to nothing", |object| object.set_len(0)),
        ("grow", |object| object.set_len(50)),
        ("allocate", |object| object.allocate(0..40, End::Grows)),
        ("promise", |object| object.allocate(30..60, End::Stays)),
        ("punch", |object| object.punch(0..30)),
    ];
    let refused = ErrorKind::Unreachable { applied: Applied::No };
    let unknown = ErrorKind::Unreachable { applied: Applied::Unknown };
    for (name, change) in changes {
        let mut told = Vec::new();
        for refusing in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
            let servers = servers(3);
            let store = striped(&servers, EVEN);
            put(&store, "a", &bytes(1, 30));
            let object = store.open(&key("a"), &how(Create::Never)).expect("opens");
            let used = || servers.iter().map(Server::used_bytes).collect::<Vec<_>>();
            let before = (content(&*object).expect("reads"), used());
            for index in refusing {
                let faults = &servers[*index].faults;
                faults.add(&[FaultPoint::Resize], When::Always, Effect::Fail(refused));
            }
            let kind = change(&*object).err().map(|error| error.kind());
            servers.iter().for_each(|server| server.faults.clear());
            told.push(kind);
            if kind == Some(refused) {
                let after = (content(&*object).expect("reads"), used());
                assert_eq!(after, before, "{name}, {refusing:?}");
            }
        }
        assert_eq!(told[4], Some(refused), "{name}: nobody did anything");
        // What makes it longer changes one alone.
        assert_eq!(told[..4].contains(&Some(unknown)), name != "grow", "{name}: {told:?}");
    }
}

#[test]
fn a_deletion_that_leaves_a_part_is_not_said_to_be_undone() {
    let refused = ErrorKind::Unreachable { applied: Applied::No };
    let mut deleted = 0;
    for refusing in 0..3 {
        let servers = servers(3);
        let store = striped(&servers, EVEN);
        put(&store, "a", &bytes(1, 30));
        let faults = &servers[refusing].faults;
        faults.add(&[FaultPoint::Delete], When::Always, Effect::Fail(refused));
        let error = store.delete(&key("a")).expect_err("a part stays");
        faults.clear();
        match store.stat(&key("a")) {
            Ok(_) => assert_eq!(error.kind(), refused, "{}", error.chain()),
            Err(_) => {
                deleted += 1;
                let unknown = ErrorKind::Unreachable { applied: Applied::Unknown };
                assert_eq!(error.kind(), unknown, "{}", error.chain());
                assert!(error.chain().contains("collect removes it"), "{}", error.chain());
            }
        }
    }
    assert_eq!(deleted, 2, "one has the object itself");
}

#[test]
fn an_object_that_a_batch_makes_without_its_bytes_is_not_said_to_be_undone() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    let refused = ErrorKind::Unreachable { applied: Applied::No };
    for server in &servers {
        server.faults.add(&[FaultPoint::Write], When::Always, Effect::Fail(refused));
    }
    let (keys, data) = ([key("a"), key("b")], bytes(1, 30));
    let create = |key| Op::new(Request::Create { key, data: &data, hint: Hint::default() });
    let mut operations: Vec<_> = keys.iter().map(create).collect();
    store.execute(&mut operations, &VOLATILE);
    for (operation, key) in operations.into_iter().zip(&keys) {
        let error = operation.outcome.expect("it is told").expect_err("nobody takes bytes");
        assert!(store.stat(key).is_ok(), "it is there");
        let unknown = ErrorKind::Unreachable { applied: Applied::Unknown };
        assert_eq!(error.kind(), unknown, "{}", error.chain());
    }
}

/// The next append goes where the object ends then, and not where it ended before the cut.
#[test]
fn a_cut_that_stops_at_any_step_leaves_appends_at_the_end() {
    let mut stopped = 0;
    for step in 0..STEPS_MAX {
        let (servers, faults) = together();
        let object = appended_to(&servers);
        faults.crash_after(step);
        let cut = object.set_len(5);
        stopped += u64::from(faults.has_crashed());
        faults.restart();
        let size_bytes = assert_appends_at_the_end(&servers);
        assert!(cut.is_err() || size_bytes == 5, "step {step}");
    }
    assert!(stopped > 6, "it asks three servers, and cuts there");
}

#[test]
fn a_cut_whose_home_changes_no_pairs_leaves_appends_at_the_end() {
    let mut servers = servers(3);
    let is_over = Arc::new(AtomicBool::new(false));
    for server in &mut servers {
        let is_over = Arc::clone(&is_over);
        change_through(server, move |kv, body| match is_over.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "run a transaction")),
            false => kv.transact(body),
        });
    }
    let object = appended_to(&servers);
    is_over.store(true, Ordering::SeqCst);
    object.set_len(5).expect_err("nobody knows where the next append goes");
    is_over.store(false, Ordering::SeqCst);
    assert_appends_at_the_end(&servers);
}

/// An object that was appended to.
fn appended_to(servers: &[Server]) -> Box<dyn Object> {
    let store = striped(servers, EVEN);
    put(&store, "a", &bytes(1, 30));
    assert_eq!(try_append(&store).expect("appends"), 30);
    store.open(&key("a"), &how(Create::Never)).expect("opens")
}

/// Appends to it in another process; how long it was.
fn assert_appends_at_the_end(servers: &[Server]) -> u64 {
    let store = striped(servers, EVEN);
    let size_bytes = store.stat(&key("a")).expect("it is there").size_bytes;
    assert_eq!(try_append(&store).expect("appends"), size_bytes);
    size_bytes
}

/// A cluster whose homes lose answers, and an object that was appended to.
fn losing() -> (Vec<Server>, Arc<Lost>) {
    let mut servers = servers(3);
    let lost = Arc::new(Lost::default());
    for server in &mut servers {
        let lost = Arc::clone(&lost);
        change_through(server, move |kv, body| lost.transact(kv, body));
    }
    appended_to(&servers);
    (servers, lost)
}

#[test]
fn an_append_whose_answer_was_lost_goes_where_it_has_its_place() {
    let (servers, lost) = losing();
    let store = striped(&servers, EVEN);
    lost.answers.store(1, Ordering::SeqCst);
    assert_eq!(try_append(&store).expect("it is asked again"), 34);
    assert_eq!(lost.answers.load(Ordering::SeqCst), 0);
    assert_appends_at_the_end(&servers);
    assert_eq!(&read_all(&store, &key("a")).expect("reads")[30..], b"moremoremore");
}

#[test]
fn an_append_whose_answer_was_lost_keeps_its_place_before_others() {
    let (servers, lost) = losing();
    let (one, other) = (striped(&servers, EVEN), striped(&servers, EVEN));
    lost.answers.store(1, Ordering::SeqCst);
    *lost.meanwhile.lock().expect("nobody panicked") = Some(Box::new(move || {
        assert_eq!(try_append(&other).expect("appends"), 38);
    }));
    assert_eq!(try_append(&one).expect("it is asked again"), 34);
    assert_eq!(&read_all(&one, &key("a")).expect("reads")[30..], b"moremoremore");
}

#[test]
fn an_append_whose_answer_was_lost_takes_no_place_that_was_cut() {
    let (servers, lost) = losing();
    let (one, other) = (striped(&servers, EVEN), striped(&servers, EVEN));
    lost.answers.store(1, Ordering::SeqCst);
    *lost.meanwhile.lock().expect("nobody panicked") = Some(Box::new(move || {
        let object = other.open(&key("a"), &how(Create::Never)).expect("opens");
        object.set_len(3).expect("cuts");
        // To the same end as before.
        assert_eq!(object.append(&[std::io::IoSlice::new(&[9; 35])]).expect("appends"), 3);
    }));
    assert_eq!(try_append(&one).expect("it is asked again"), 38);
    assert_eq!(&read_all(&one, &key("a")).expect("reads")[3..], [&[9; 35][..], b"more"].concat());
}

/// What a client that knows only of the end leaves behind, which cuts the object, to which 34 to 38
/// was taken, to 3 bytes, and takes 3 to 38.
fn cut_by_a_client_of_before(servers: &[Server]) {
    let pairs = |server: &Server| server.kv.scan(&KvRange::all(), 3).expect("reads");
    let home = servers.iter().find(|server| !pairs(server).is_empty()).expect("it was appended to");
    let [(end, _), (taken, places)] = &pairs(home)[..] else { panic!("two pairs") };
    let store = striped(servers, EVEN);
    store.open(&key("a"), &how(Create::Never)).expect("opens").set_len(3).expect("cuts");
    assert_eq!(pairs(home), []);
    let left_behind = |txn: &mut dyn Txn| {
        txn.put(end, &38_u64.to_le_bytes())?;
        txn.put(taken, places)
    };
    home.kv.transact(&mut |txn| left_behind(txn)).expect("writes");
}

/// … and writes it.
fn write_as_a_client_of_before(servers: &[Server]) {
    let object = striped(servers, EVEN).open(&key("a"), &how(Create::Never)).expect("opens");
    object.write(3, &[9; 35]).expect("writes");
}

#[test]
fn an_append_whose_answer_was_lost_takes_no_place_that_a_client_of_before_has_cut() {
    for is_written in [false, true] {
        let (servers, lost) = losing();
        let servers = Arc::new(servers);
        lost.answers.store(1, Ordering::SeqCst);
        let others = Arc::clone(&servers);
        *lost.meanwhile.lock().expect("nobody panicked") = Some(Box::new(move || {
            cut_by_a_client_of_before(&others);
            if is_written {
                write_as_a_client_of_before(&others);
            }
        }));
        assert_eq!(try_append(&striped(&servers, EVEN)).expect("is asked again"), 38);
        write_as_a_client_of_before(&servers);
        assert_appends_at_the_end(&servers);
        let expected = [&[9; 35][..], b"moremore"].concat();
        assert_eq!(&read_all(&striped(&servers, EVEN), &key("a")).expect("reads")[3..], expected);
    }
}

#[test]
fn no_place_is_given_back_that_a_client_of_before_has_cut() {
    let (servers, lost) = losing();
    let store = striped(&servers, EVEN);
    lost.answers.store(u32::MAX, Ordering::SeqCst);
    try_append(&store).expect_err("nobody answers");
    lost.answers.store(0, Ordering::SeqCst);
    cut_by_a_client_of_before(&servers);
    assert_eq!(try_append(&store).expect("appends"), 38);
    write_as_a_client_of_before(&servers);
    let expected = [&[9; 35][..], b"more"].concat();
    assert_eq!(&read_all(&store, &key("a")).expect("reads")[3..], expected);
    // Nor later.
    assert_eq!(try_append(&store).expect("appends"), 42);
}

#[test]
fn places_without_an_end_go_with_the_next_cut_or_the_object() {
    let is_empty = |servers: &[Server]| {
        servers.iter().all(|server| server.kv.scan(&KvRange::all(), 1).expect("reads").is_empty())
    };
    for is_deleted in [false, true] {
        let servers = servers(3);
        let object = appended_to(&servers);
        for server in &servers {
            // As a client does that knows only of the end.
            let first = server.kv.scan(&KvRange::all(), 1).expect("reads");
            if let [(end, _)] = &first[..] {
                server.kv.transact(&mut |txn| txn.delete(end)).expect("deletes");
            }
        }
        assert!(!is_empty(&servers), "the places are there");
        match is_deleted {
            true => striped(&servers, EVEN).delete(&key("a")).expect("deletes"),
            false => object.set_len(5).expect("cuts"),
        }
        assert!(is_empty(&servers));
    }
}

#[test]
fn an_append_that_fails_without_an_answer_gives_its_place_back_with_the_next() {
    let (servers, lost) = losing();
    let store = striped(&servers, EVEN);
    lost.answers.store(u32::MAX, Ordering::SeqCst);
    try_append(&store).expect_err("nobody answers");
    lost.answers.store(0, Ordering::SeqCst);
    // Also one whose bytes could not be written while nobody answered.
    servers.iter().for_each(|server| {
        server.faults.add(&[FaultPoint::Write], When::Always, Effect::Fail(ErrorKind::Io));
    });
    lost.after.store(1, Ordering::SeqCst);
    try_append(&store).expect_err("nothing is written");
    servers.iter().for_each(|server| server.faults.clear());
    lost.is_away.store(false, Ordering::SeqCst);
    assert_eq!(try_append(&store).expect("appends"), 34);
}

/// Which answers are lost, and what happens before somebody asks again.
#[derive(Default)]
struct Lost {
    answers: AtomicU32,
    meanwhile: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// So many commits more, and then nobody is there.
    after: AtomicU32,
    is_away: AtomicBool,
}

impl Lost {
    /// Makes changes of which nobody hears.
    fn transact(
        &self,
        kv: &dyn Kv,
        body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>,
    ) -> Result<Ticket> {
        let away = |applied| Error::new(ErrorKind::Unreachable { applied }, "run a transaction");
        if self.is_away.load(Ordering::SeqCst) {
            return Err(away(Applied::No));
        }
        let ticket = kv.transact(body)?;
        let is_one = |left: u32| left.checked_sub(1);
        let order = Ordering::SeqCst;
        if self.after.fetch_update(order, order, is_one).is_ok_and(|left| left == 1) {
            self.is_away.store(true, order);
        }
        if self.answers.fetch_update(order, order, is_one).is_err() {
            return Ok(ticket);
        }
        if let Some(meanwhile) = self.meanwhile.lock().expect("nobody panicked").take() {
            meanwhile();
        }
        Err(away(Applied::Unknown))
    }
}

#[test]
fn a_piece_that_is_missing_is_damage_and_not_zeros() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    put(&store, "a", &bytes(1, 100));
    let piece = servers.iter().find_map(|server| {
        let name = server.names().into_iter().find(|name| name.starts_with('\u{10ffff}'))?;
        Some((server, key(&name)))
    });
    let (server, piece) = piece.expect("it has pieces");
    server.memory.delete(&piece).expect("it is lost");
    let errors = [
        read_all(&store, &key("a")).map(drop).expect_err("damaged"),
        store.stat(&key("a")).map(drop).expect_err("damaged"),
        try_append(&store).expect_err("damaged"),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&format!("server=server-{}", server.id)), "{error}");
    }
    store.delete(&key("a")).expect("what is damaged can be removed");
    assert!(servers.iter().all(|server| server.names().is_empty()));
    try_put(&store, "a", b"new").map(drop).expect("its name is free");
}

fn try_append(store: &dyn Backend) -> Result<u64> {
    store.open(&key("a"), &how(Create::Never))?.append(&[std::io::IoSlice::new(b"more")])
}

#[test]
fn pieces_of_an_object_that_is_being_made_are_left_alone() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    put(&store, "a", &bytes(1, 100));
    let made_ns = store.stat(&key("a")).expect("there").created_ns;
    // The object itself is gone, as if it were not there yet.
    let home = servers.iter().find(|server| server.names().contains(&"a".into()));
    home.expect("it is somewhere").memory.delete(&key("a")).expect("removes");
    let young = store.collect(made_ns.saturating_sub(3_600_000_000_000)).expect("looks");
    assert_eq!((young.pieces, young.orphans.len()), (2, 2));
    assert!(young.orphans.iter().all(|orphan| !orphan.is_removed));
    let old = store.collect(FAR_NS).expect("looks");
    assert!(old.orphans.iter().all(|orphan| orphan.is_removed && orphan.size_bytes > 0));
    assert!(servers.iter().all(|server| server.names().is_empty()));
}
