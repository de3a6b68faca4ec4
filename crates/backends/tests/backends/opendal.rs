// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory of a WebDAV server keeps the promises of backends that take whole
//! objects, whatever happens to requests.

use std::sync::Arc;
use std::time::Duration;

use tempfile::NamedTempFile;
use terrace_backends::object::{FrameKey, Framed, Opendal, OpendalSettings, Packing};
use terrace_core::{
    Backend, BackendExt, Clock, Create, Cursor, Error, ErrorKind, Identity, Key, Object, ObjectExt,
    Open, Persistency, Result, Role, Semantics, Superblock, SystemClock, TierBackend,
};
use terrace_testkit::dav::{DavFault, DavServer, PASSWORD, TOKEN, USER};
use terrace_testkit::{pattern_bytes, whole_suite};

/// As long as a request may take that is to fail.
const DEADLINE: Duration = Duration::from_millis(1500);

const ROOT: &str = "tiers/one two";

/// A file of credentials; it must live as long as they are used.
fn credentials(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("written");
    file
}

fn own_credentials() -> NamedTempFile {
    credentials(&format!("user = {USER}\npassword = {PASSWORD}\n"))
}

fn server() -> DavServer {
    let server = DavServer::start("tiers");
    let kept = format!("{ROOT}/kept");
    server.plant(&kept, b"");
    server
}

fn settings(server: &DavServer, credentials: &NamedTempFile) -> OpendalSettings {
    OpendalSettings {
        credentials: Some(credentials.path().into()),
        ..OpendalSettings::webdav(&server.endpoint(), ROOT)
    }
}

/// A server and a backend on it, in the order in which they end.
struct Scene {
    backend: Opendal,
    settings: OpendalSettings,
    server: DavServer,
    _credentials: NamedTempFile,
}

impl Scene {
    fn new(deadline: Duration) -> Self {
        let (server, credentials) = (server(), own_credentials());
        let settings = OpendalSettings { deadline, ..settings(&server, &credentials) };
        let backend = Opendal::open(&settings, u64::MAX, false).expect("opened");
        Self { backend, settings, server, _credentials: credentials }
    }

    fn another(&self) -> Opendal {
        Opendal::open(&self.settings, u64::MAX, false).expect("opened")
    }

    /// Files of the tier below a directory of it.
    fn files(&self, below: &str) -> Vec<String> {
        let prefix = format!("{ROOT}/{below}");
        let files = self.server.files().into_iter();
        files.filter(|path| path.starts_with(&prefix)).collect()
    }

    fn counts(&self) -> Vec<(String, u64)> {
        self.server.counts().into_iter().collect()
    }
}

fn counts<const N: usize>(expected: [(&str, u64); N]) -> Vec<(String, u64)> {
    expected.map(|(method, count)| (method.to_string(), count)).into()
}

fn key(name: &str) -> Key {
    Key::new("seg", name).expect("legal")
}

fn how(create: Create) -> Open {
    Open { create, ..Open::default() }.with_semantics(Semantics::at_level(Persistency::None))
}

pub(crate) fn identity(generation: u64) -> Identity {
    Identity {
        store_id: 7,
        object_id: 1,
        segment: 0,
        start_bytes: 0,
        generation,
        epoch: 1,
        role: Role::Copy,
        key: key("x"),
        label: None,
    }
}

fn begun(backend: &dyn Backend, name: &str, data: &[u8]) -> Result<Box<dyn Object>> {
    let how = Open { size_hint_bytes: Some(data.len() as u64), ..how(Create::New) };
    let object = backend.open(&key(name), &how)?;
    // In pieces, as a migration writes.
    for (index, piece) in data.chunks(1 << 18).enumerate() {
        object.write((index << 18) as u64, piece)?;
    }
    Ok(object)
}

fn make(backend: &dyn Backend, name: &str, data: &[u8]) -> Result<()> {
    begun(backend, name, data)?.sync()
}

fn superblock(store_id: u128) -> Superblock {
    Superblock {
        store_id,
        tier: "cold".into(),
        format_version: 1,
        feature_bits: 0,
        epoch: 1,
        frames: None,
    }
}

/// How long a failing call took, and its error.
fn failing<T>(call: impl FnOnce() -> Result<T>) -> (Duration, Error) {
    let clock = SystemClock::default();
    let began_ns = clock.now_ns();
    let error = call().err().expect("it fails");
    (Duration::from_nanos(clock.now_ns() - began_ns), error)
}

fn webdav_suite() -> (Arc<Opendal>, (DavServer, NamedTempFile)) {
    let (server, credentials) = (server(), own_credentials());
    let backend = Opendal::open(&settings(&server, &credentials), u64::MAX, false).expect("opened");
    (Arc::new(backend), (server, credentials))
}

fn framed_suite() -> (Arc<Framed>, (DavServer, NamedTempFile)) {
    let (backend, kept) = webdav_suite();
    let key = FrameKey::from_text(&[b'7'; 64]).expect("legal");
    let packing = Packing { level: Some(3), key: Some(key) };
    (Arc::new(Framed::open(backend, packing).expect("opened")), kept)
}

whole_suite!(webdav, webdav_suite());
whole_suite!(framed_webdav, framed_suite());

#[test]
fn each_operation_takes_the_documented_requests() {
    let scene = Scene::new(Duration::from_secs(20));
    let backend = &scene.backend;
    let data = pattern_bytes(1, 0, 0, 9 << 20);
    make(backend, "one", &data).expect("made");
    scene.server.counts();
    // Another object of the same directories.
    backend.delete(&key("one")).expect("deleted");
    assert_eq!(scene.counts(), counts([("DELETE", 3), ("PROPFIND", 2)]));
    make(backend, "one", &data).expect("made");
    // The files of its attributes are looked for, and the directory of the tier where both are missing.
    assert_eq!(scene.counts(), counts([("GET", 2), ("MOVE", 1), ("PROPFIND", 2), ("PUT", 2)]));
    let object = backend.open(&key("one"), &how(Create::Never)).expect("there");
    backend.identity(&key("one")).expect("there");
    assert_eq!(scene.counts(), counts([("GET", 2), ("PROPFIND", 1)]));
    object.read(5 << 20, &mut [0; 4096]).expect("read");
    assert_eq!(scene.counts(), counts([("GET", 1)]));
    object.read(0, &mut vec![0; 9 << 20]).expect("read");
    assert_eq!(scene.counts(), counts([("GET", 3)]));
    scene.server.sent_bytes();
    let (mut piece, mut at) = (vec![0; 128 << 10], 0);
    while at < data.len() as u64 {
        at += object.read(at, &mut piece).expect("read") as u64;
    }
    assert_eq!(scene.server.sent_bytes(), data.len() as u64, "each byte is fetched once");
    scene.server.counts();
    backend.stat(&key("one")).expect("there");
    assert_eq!(scene.counts(), counts([("GET", 2), ("PROPFIND", 1)]));
    backend.set_identity(&key("one"), &identity(2)).expect("set");
    assert_eq!(scene.counts(), counts([("GET", 2), ("PUT", 1)]), "it was looked at just now");
    backend.list("seg", "", &Cursor::start(), 10).expect("listed");
    // The uploads, and since there are none the directory of the tier; the directories of attributes and
    // objects: of the kind, the namespace and one of the 64 in it; for the listing the latter two.
    assert_eq!(scene.counts(), counts([("PROPFIND", 10)]));
    backend.set_superblock(&superblock(7)).expect("set");
    scene.server.counts();
    backend.superblock().expect("asked");
    assert_eq!(scene.counts(), counts([("GET", 2)]));
}

#[test]
fn requests_that_fail_are_repeated() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    let data = pattern_bytes(1, 0, 0, 100_000);
    server.inject("PUT", "/t/", 1, DavFault::Refuse(503));
    server.inject("PUT", "/a/", 1, DavFault::Refuse(423));
    server.inject("MOVE", "", 1, DavFault::Refuse(500));
    make(backend, "one", &data).expect("made");
    server.inject("GET", "/o/", 1, DavFault::Truncate(1000));
    server.inject("GET", "/o/", 1, DavFault::Refuse(429));
    server.inject("PROPFIND", "", 1, DavFault::Refuse(502));
    server.disconnect();
    assert!(backend.read_all(&key("one")).expect("read") == data);
    assert_eq!(server.heal(), 0, "all faults were met");
}

#[test]
fn a_lost_answer_loses_no_object() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    let data = pattern_bytes(1, 0, 0, 100_000);
    for (method, path) in [("PUT", "/t/"), ("PUT", "/a/"), ("MOVE", ""), ("MKCOL", "")] {
        server.inject(method, path, 1, DavFault::LoseAnswer);
    }
    make(backend, "one", &data).expect("made");
    assert!(backend.read_all(&key("one")).expect("read") == data);
    server.inject("PUT", "superblock", 1, DavFault::LoseAnswer);
    backend.set_superblock(&superblock(7)).expect("set");
    assert_eq!(backend.superblock().expect("asked"), Some(superblock(7)));
    server.inject("DELETE", "", 1, DavFault::LoseAnswer);
    backend.delete(&key("one")).expect("deleted");
    assert_eq!(server.heal(), 0);
    assert_eq!(scene.files("o/").len() + scene.files("a/").len() + scene.files("t/").len(), 0);
}

#[test]
fn an_object_that_is_torn_is_never_seen() {
    let scene = Scene::new(DEADLINE);
    let (backend, server) = (&scene.backend, &scene.server);
    let data = pattern_bytes(1, 0, 0, 100_000);
    server.inject("PUT", "/t/", 1, DavFault::Tear(40_000));
    make(backend, "one", &data).expect("it is repeated");
    assert!(backend.read_all(&key("one")).expect("read") == data);
    server.inject("PUT", "/t/", 1000, DavFault::Tear(40_000));
    server.inject("DELETE", "/t/", 1000, DavFault::Refuse(500));
    let object = begun(backend, "two", &data).expect("begun");
    assert_eq!(object.sync().expect_err("it fails").kind(), ErrorKind::Io);
    object.sync().expect_err("and stays so");
    server.heal();
    assert!(!scene.files("t/").is_empty(), "what was written is there");
    let missing = backend.stat(&key("two")).expect_err("not as an object");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    // The next opening and its first listing remove it, and its attributes.
    assert_eq!(scene.another().list_all("seg", "").expect("listed"), [key("one")]);
    assert_eq!(scene.files("t/").len(), 0);
    assert_eq!(scene.files("a/").len(), 1);
}

#[test]
fn an_upload_that_ran_into_the_deadline_is_removed() {
    let scene = Scene::new(DEADLINE);
    let (backend, server) = (&scene.backend, &scene.server);
    server.inject("MOVE", "", 1000, DavFault::Stall(Duration::from_secs(3)));
    make(backend, "one", b"bytes").expect_err("it is too slow");
    server.heal();
    assert_eq!(scene.files("t/").len(), 1, "it was not renamed yet");
    backend.list("seg", "", &Cursor::start(), 10).expect("listed");
    assert_eq!(scene.files("t/"), Vec::<String>::new());
}

#[test]
fn a_repeated_upload_has_another_name() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    server.inject("PUT", "/t/", 1, DavFault::LoseAnswer);
    server.inject("DELETE", "/t/", 1000, DavFault::Refuse(403));
    make(backend, "one", b"bytes").expect("made");
    assert_eq!(scene.files("t/").len(), 1, "what the lost answer was of");
    assert_eq!(backend.read_all(&key("one")).expect("read"), b"bytes");
}

#[test]
fn attributes_that_are_torn_leave_those_before() {
    let scene = Scene::new(DEADLINE);
    let (backend, server) = (&scene.backend, &scene.server);
    make(backend, "one", b"bytes").expect("made");
    for generation in 1..3 {
        backend.set_identity(&key("one"), &identity(generation)).expect("set");
        server.inject("PUT", "/a/", 1000, DavFault::Tear(20));
        backend.set_identity(&key("one"), &identity(100)).expect_err("it fails");
        server.heal();
        let other = scene.another();
        assert_eq!(other.identity(&key("one")).expect("there"), Some(identity(generation)));
    }
    backend.set_superblock(&superblock(7)).expect("set");
    server.inject("PUT", "superblock", 1000, DavFault::Tear(20));
    let next = Superblock { epoch: 2, ..superblock(7) };
    backend.set_superblock(&next).expect_err("it fails");
    server.heal();
    assert_eq!(scene.another().superblock().expect("asked"), Some(superblock(7)));
    backend.set_superblock(&next).expect("set");
    assert_eq!(scene.another().superblock().expect("asked"), Some(next));
}

/// Makes a call of which the server holds a request, and closes its connection, as if the answer were lost.
fn held<T: Send>(server: &DavServer, call: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let called = scope.spawn(call);
        server.wait_held();
        server.disconnect();
        called.join().expect("no panic")
    })
}

#[test]
fn a_late_write_of_attributes_does_not_undo_a_later_one() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    make(backend, "one", b"bytes").expect("made");
    let mut generation = 0;
    for replacements in 1..5 {
        server.inject("PUT", "/a/", 1, DavFault::Hold);
        server.inject("PUT", "/a/", 1, DavFault::Refuse(403));
        let call = || backend.set_identity(&key("one"), &identity(100));
        held(server, call).expect_err("the second try is refused");
        for _ in 0..replacements {
            generation += 1;
            backend.set_identity(&key("one"), &identity(generation)).expect("set");
        }
        server.release();
        let found = scene.another().identity(&key("one")).expect("there");
        assert_eq!(found, Some(identity(generation)), "{replacements}");
    }
}

#[test]
fn a_late_write_of_the_superblock_does_not_undo_a_later_one() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    let of_epoch = |epoch| Superblock { epoch, ..superblock(7) };
    backend.set_superblock(&of_epoch(1)).expect("set");
    server.inject("PUT", "superblock", 1, DavFault::Hold);
    held(server, || backend.set_superblock(&of_epoch(2))).expect("the second try is carried out");
    for epoch in 3..5 {
        backend.set_superblock(&of_epoch(epoch)).expect("set");
    }
    server.release();
    assert_eq!(scene.another().superblock().expect("asked"), Some(of_epoch(4)));
}

#[test]
fn a_late_write_or_rename_does_not_undo_a_later_object() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    for (method, path) in [("PUT", "/t/"), ("MOVE", "")] {
        server.inject(method, path, 1, DavFault::Hold);
        server.inject(method, path, 1, DavFault::Refuse(403));
        held(server, || make(backend, method, b"old")).expect_err("the second try is refused");
        make(backend, method, b"the new bytes").expect("made");
        server.release();
        assert_eq!(backend.read_all(&key(method)).expect("read"), b"the new bytes");
    }
    // What the write that came late left.
    backend.list("seg", "", &Cursor::start(), 10).expect("listed");
    assert_eq!(scene.files("t/"), Vec::<String>::new());
}

#[test]
fn a_repeated_rename_of_another_length_is_an_error() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    for (name, fault, reason) in [
        ("one", DavFault::LoseAnswer, "cannot be renamed"),
        ("two", DavFault::Refuse(503), "another length"),
    ] {
        server.inject("PUT", "/t/", 1, DavFault::Shorten(3));
        server.inject("MOVE", "", 1, fault);
        let error = make(backend, name, b"bytes").expect_err("two bytes are missing");
        assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
        assert!(error.chain().contains(reason), "{}", error.chain());
        assert_eq!(server.heal(), 0);
    }
}

#[test]
fn attributes_of_objects_that_are_written_stay() {
    let scene = Scene::new(Duration::from_secs(20));
    // Those of the object are there, and it is not.
    scene.server.inject("PUT", "/t/", 1, DavFault::Stall(Duration::from_millis(300)));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| make(&scene.backend, "one", b"bytes"));
        while !writing.is_finished() {
            scene.backend.list("seg", "", &Cursor::start(), 10).expect("listed");
        }
        writing.join().expect("no panic").expect("made");
    });
    assert_eq!(scene.backend.identity(&key("one")).expect("there"), None);
    assert!(scene.backend.stat(&key("one")).expect("there").created_ns > 0);
    assert_eq!(scene.files("a/").len(), 1);
}

#[test]
fn a_server_that_is_too_slow_fails_within_the_deadline() {
    let scene = Scene::new(DEADLINE);
    let (backend, server) = (&scene.backend, &scene.server);
    make(backend, "one", b"bytes").expect("made");
    let object = backend.open(&key("one"), &how(Create::Never)).expect("there");
    server.inject("", "", 1000, DavFault::Stall(Duration::from_secs(3)));
    let calls: [(&str, &dyn Fn() -> Result<()>); 5] = [
        ("read", &|| object.read(0, &mut [0; 5]).map(drop)),
        ("stat", &|| backend.stat(&key("one")).map(drop)),
        ("put", &|| make(backend, "two", b"bytes")),
        ("list", &|| Err(backend.list_all("seg", "").expect_err("slow"))),
        ("superblock", &|| backend.superblock().map(drop)),
    ];
    for (what, call) in calls {
        let (took, error) = failing(call);
        assert_eq!(error.kind(), ErrorKind::Io, "{what}: {}", error.chain());
        let most = if what == "list" { DEADLINE * 2 } else { DEADLINE };
        assert!(took < most + Duration::from_secs(1), "{what}: {took:?}");
    }
    server.heal();
    assert_eq!(object.read(0, &mut [0; 5]).expect("it goes on"), 5);
}

#[test]
fn a_server_that_is_not_there_is_named_within_the_deadline() {
    let scene = Scene::new(DEADLINE);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound");
    drop(free);
    for endpoint in
        [format!("http://{address}/dav"), scene.server.endpoint().replace("http", "https")]
    {
        let settings = OpendalSettings { endpoint: Some(endpoint), ..scene.settings.clone() };
        let backend = Opendal::open(&settings, u64::MAX, false).expect("no request yet");
        let (took, error) = failing(|| backend.superblock());
        let text = error.chain();
        assert_eq!(error.kind(), ErrorKind::Io, "{text}");
        assert!(text.contains("cannot be reached") && text.contains("webdav://"), "{text}");
        assert!(took < DEADLINE + Duration::from_secs(1), "{took:?}");
    }
}

#[test]
fn what_is_wrong_with_the_settings_is_in_the_error() {
    let scene = Scene::new(DEADLINE);
    let found = |settings: &OpendalSettings| {
        let backend = Opendal::open(settings, u64::MAX, false).expect("no request yet");
        let (took, error) = failing(|| backend.superblock());
        assert!(took < DEADLINE + Duration::from_secs(1), "{took:?}");
        let text = format!("{} {settings:?}", error.chain());
        assert!(!text.contains("mistaken") && !text.contains(PASSWORD), "{text}");
        (error.kind(), text)
    };
    let expect = |(kind, text): (ErrorKind, String), wanted, words: &str| {
        assert_eq!(kind, wanted, "{text}");
        assert!(text.contains(words) && text.contains("webdav://"), "{text}");
    };
    let with = |file: &NamedTempFile| OpendalSettings {
        credentials: Some(file.path().into()),
        ..scene.settings.clone()
    };
    let wrong = credentials(&format!("user = {USER}\npassword = mistaken\n"));
    expect(found(&with(&wrong)), ErrorKind::Denied, "the user and the password");
    let wrong = credentials("token = mistaken\n");
    expect(found(&with(&wrong)), ErrorKind::Denied, "or the token");
    let none = OpendalSettings { credentials: None, ..scene.settings.clone() };
    expect(found(&none), ErrorKind::Denied, "`credentials`");
    let elsewhere = OpendalSettings { root: "tiers/missing".into(), ..scene.settings.clone() };
    expect(found(&elsewhere), ErrorKind::Io, "has no directory `root`");
    let file = OpendalSettings { root: format!("{ROOT}/kept").into(), ..scene.settings.clone() };
    expect(found(&file), ErrorKind::Io, "has no directory `root`");
    let endpoint = Some(scene.server.endpoint().replace("/dav/me", "/other"));
    let elsewhere = OpendalSettings { endpoint, ..scene.settings.clone() };
    expect(found(&elsewhere), ErrorKind::Io, "check `endpoint` and `root`");
    for (status, kind, words) in [
        (403, ErrorKind::Denied, "permissions"),
        (405, ErrorKind::Io, "no WebDAV"),
        (301, ErrorKind::Invalid, "at another address"),
        (503, ErrorKind::Io, "overloaded"),
    ] {
        scene.server.inject("", "", 1000, DavFault::Refuse(status));
        expect(found(&scene.settings), kind, words);
        scene.server.heal();
    }
    assert!(scene.server.collections().iter().all(|path| !path.contains("missing")));
    let by_token = credentials(&format!("token = {TOKEN}\n"));
    let backend = Opendal::open(&with(&by_token), u64::MAX, false).expect("opened");
    assert_eq!(backend.superblock().expect("a token is taken"), None);
}

#[test]
fn missing_credentials_are_an_error_before_any_request() {
    let scene = Scene::new(DEADLINE);
    let mut files = vec![credentials("user = me\n"), credentials("pass word\n"), credentials("")];
    let gone = credentials("token = x\n");
    let path = gone.path().to_path_buf();
    drop(gone);
    let paths = files.iter().map(|file| file.path().to_path_buf()).chain([path]);
    for path in paths {
        let settings = OpendalSettings { credentials: Some(path), ..scene.settings.clone() };
        let error = Opendal::open(&settings, u64::MAX, false).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    }
    files.clear();
    assert_eq!(scene.counts(), []);
}

#[test]
fn a_full_server_is_no_space() {
    let scene = Scene::new(DEADLINE);
    scene.server.inject("PUT", "/t/", 1000, DavFault::Refuse(507));
    let error = make(&scene.backend, "one", b"bytes").expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
    scene.server.heal();
    make(&scene.backend, "one", b"bytes").expect("there is room again");
}

#[test]
fn a_server_without_ranges_gives_no_wrong_bytes() {
    let scene = Scene::new(DEADLINE);
    make(&scene.backend, "one", &pattern_bytes(1, 0, 0, 100_000)).expect("made");
    scene.server.inject("GET", "/o/", 1000, DavFault::IgnoreRange);
    let object = scene.backend.open(&key("one"), &how(Create::Never)).expect("there");
    let error = object.read(5000, &mut [0; 100]).expect_err("other bytes come");
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
}

#[test]
fn a_directory_that_vanishes_is_no_lost_object() {
    let scene = Scene::new(DEADLINE);
    let backend = &scene.backend;
    make(backend, "one", b"bytes").expect("made");
    let object = backend.open(&key("one"), &how(Create::Never)).expect("there");
    backend.identity(&key("one")).expect("there");
    let taken = scene.server.take_all();
    let results = [
        object.read(0, &mut [0; 5]).map(drop),
        backend.stat(&key("one")).map(drop),
        backend.identity(&key("one")).map(drop),
        backend.list_all("seg", "").map(drop),
        backend.superblock().map(drop),
        make(backend, "two", b"bytes"),
        backend.delete(&key("one")),
    ];
    for result in results {
        let error = result.expect_err("there is no directory");
        assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
        assert!(error.chain().contains("has no directory `root`"), "{}", error.chain());
    }
    assert_eq!(scene.server.collections(), Vec::<String>::new(), "none is made");
    scene.server.put_back(taken);
    assert_eq!(backend.read_all(&key("one")).expect("it is back"), b"bytes");
}

#[test]
fn a_superblock_that_changed_is_not_overwritten() {
    let scene = Scene::new(Duration::from_secs(20));
    let other = scene.another();
    assert_eq!(other.superblock().expect("asked"), None);
    assert_eq!(scene.backend.superblock().expect("asked"), None);
    scene.backend.set_superblock(&superblock(7)).expect("set");
    let refused = other.set_superblock(&superblock(8)).expect_err("it was written since");
    assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
    assert_eq!(other.superblock().expect("asked"), Some(superblock(7)));
    other.set_superblock(&superblock(8)).expect("it was read since");
    scene.backend.set_superblock(&superblock(7)).expect_err("it was written since");
}

#[test]
fn a_first_superblock_that_is_torn_does_not_lock_the_directory() {
    let (server, credentials) = (DavServer::start("tiers"), own_credentials());
    let settings = OpendalSettings { root: "tiers".into(), ..settings(&server, &credentials) };
    let opened = || Opendal::open(&settings, u64::MAX, false).expect("opened");
    let whole = b"\x01\0\0\0\0\0\0\0terrace tier superblock 1\nstore_id=0000";
    for length in [0, 3, 8, 20, whole.len()] {
        server.plant("tiers/superblock", &whole[..length]);
        let backend = opened();
        assert_eq!(backend.superblock().expect("asked"), None, "{length}");
        assert!(backend.is_empty().expect("asked"));
        backend.set_superblock(&superblock(7)).expect("set");
        assert_eq!(opened().superblock().expect("asked"), Some(superblock(7)));
        backend.clear().expect("cleared");
    }
    // Neither where there are objects, nor where it is a file of others.
    make(&opened(), "one", b"bytes").expect("made");
    server.plant("tiers/superblock", &whole[..20]);
    let error = opened().superblock().expect_err("a store may be there");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.chain().contains("delete `superblock`"), "{}", error.chain());
    opened().delete(&key("one")).expect("deleted");
    assert_eq!(opened().superblock().expect("asked"), None);
    server.plant("tiers/superblock", b"minutes of a meeting");
    assert_eq!(opened().superblock().expect_err("another's").kind(), ErrorKind::Corrupt);
    assert!(!opened().is_empty().is_ok_and(|is_empty| is_empty));
}

#[test]
fn a_longer_object_is_refused() {
    let scene = Scene::new(Duration::from_secs(20));
    let backend = &scene.backend;
    let most = backend.capability().object_bytes_max;
    let object = backend.open(&key("long"), &how(Create::New)).expect("begun");
    object.set_len(most).expect("as long as it may be");
    let error = object.write(most, b"x").expect_err("longer");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain());
    drop(object);
    assert_eq!(scene.files(""), [format!("{ROOT}/kept")]);
}

#[test]
fn a_tier_for_reading_changes_nothing() {
    let scene = Scene::new(Duration::from_secs(20));
    make(&scene.backend, "one", b"bytes").expect("made");
    scene.server.plant(&format!("{ROOT}/t/left"), b"");
    let reader = Opendal::open(&scene.settings, u64::MAX, true).expect("opened");
    let denied = |result: Result<()>| {
        assert_eq!(result.expect_err("refused").kind(), ErrorKind::Denied);
    };
    denied(reader.open(&key("one"), &how(Create::Never)).map(drop));
    denied(reader.open(&key("two"), &how(Create::New)).map(drop));
    denied(reader.delete(&key("one")));
    denied(reader.set_superblock(&superblock(7)));
    scene.server.counts();
    assert_eq!(reader.read_all(&key("one")).expect("read"), b"bytes");
    assert_eq!(reader.list_all("seg", "").expect("listed"), [key("one")]);
    let methods: Vec<_> = scene.counts().into_iter().map(|(method, _)| method).collect();
    assert_eq!(methods, ["GET", "PROPFIND"]);
}

#[test]
fn only_what_is_the_tiers_is_cleared() {
    let scene = Scene::new(Duration::from_secs(20));
    let backend = &scene.backend;
    assert!(!backend.is_empty().expect("asked"), "a file of others is there");
    make(backend, "one", b"bytes").expect("made");
    backend.set_superblock(&superblock(7)).expect("set");
    scene.server.plant(&format!("{ROOT}/t/00112233445566aa-3"), b"");
    let foreign = ["c/mine", "kept", "o/mine", "superblock.old", "t/mine"];
    let foreign = foreign.map(|name| format!("{ROOT}/{name}"));
    for name in &foreign {
        scene.server.plant(name, b"");
    }
    scene.another().list_all("seg", "").expect("listed");
    assert!(scene.server.files().contains(&foreign[4]), "no upload of the tier");
    backend.clear().expect("cleared");
    let mut kept = scene.server.files();
    kept.sort();
    assert_eq!(kept, foreign);
    let mut left = scene.server.collections();
    left.sort();
    let directories = ["c", "o", "t"].map(|name| format!("{ROOT}/{name}"));
    assert_eq!(left[..2], ["tiers".to_string(), ROOT.to_string()]);
    assert_eq!(left[2..], directories);
}

#[test]
fn names_of_another_form_are_an_error() {
    let scene = Scene::new(DEADLINE);
    make(&scene.backend, "one", b"bytes").expect("made");
    // The server answers under another path than it is asked under.
    let endpoint = Some(scene.server.endpoint().replace("/dav/me", "/dav/%6de"));
    let settings = OpendalSettings { endpoint, ..scene.settings.clone() };
    let backend = Opendal::open(&settings, u64::MAX, true).expect("opened");
    let error = backend.list_all("seg", "").expect_err("names would be missing");
    assert!(error.chain().contains("not in the directory"), "{}", error.chain());
}

#[test]
fn a_tier_is_found_again_by_another_process() {
    let scene = Scene::new(Duration::from_secs(20));
    scene.backend.set_superblock(&superblock(7)).expect("set");
    for number in 0..150 {
        make(&scene.backend, &format!("{number:x}"), &[number]).expect("made");
    }
    let other = scene.another();
    assert_eq!(other.superblock().expect("asked"), Some(superblock(7)));
    assert_eq!(other.list_all("seg", "").expect("listed").len(), 150);
    assert_eq!(other.capability().persistency, Persistency::Storage);
}
