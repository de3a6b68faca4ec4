// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bucket keeps the promises of backends that take whole objects, whatever its service does.

use std::sync::Arc;
use std::time::Duration;

use tempfile::NamedTempFile;
use terrace_backends::object::{Rates, S3, S3Settings, Throttle};
use terrace_core::{
    Backend, BackendExt, Clock, Create, Cursor, Error, ErrorKind, Key, Object, ObjectExt, Open,
    Persistency, Result, Semantics, SystemClock, TierBackend,
};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};
use terrace_testkit::{ManualClock, pattern_bytes, whole_suite};

use crate::opendal::identity;

/// As long as a request may take that is to fail.
const DEADLINE: Duration = Duration::from_millis(1500);

/// A file of credentials; it must live as long as they are used.
fn credentials(key_id: &str, secret: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    let text = format!("[default]\naws_access_key_id={key_id}\naws_secret_access_key={secret}\n");
    std::fs::write(file.path(), text).expect("written");
    file
}

fn settings(server: &S3Server, credentials: &NamedTempFile) -> S3Settings {
    S3Settings {
        endpoint: Some(server.endpoint()),
        region: Some(REGION.into()),
        prefix: "tiers/one".into(),
        credentials: Some(credentials.path().into()),
        ..S3Settings::new(BUCKET)
    }
}

/// A service and a backend on it, in the order in which they end.
struct Scene {
    backend: S3,
    settings: S3Settings,
    server: S3Server,
    _credentials: NamedTempFile,
}

impl Scene {
    fn new(deadline: Duration) -> Self {
        let (server, credentials) = (S3Server::start(), credentials(KEY_ID, SECRET));
        let settings = S3Settings { deadline, ..settings(&server, &credentials) };
        let backend = S3::open(&settings, u64::MAX, false).expect("opened");
        Self { backend, settings, server, _credentials: credentials }
    }

    fn fault(&self, kind: &'static str, times: u64, fault: S3Fault) {
        self.server.inject(S3FaultPoint { kind, name: String::new(), times, fault });
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.server.counts().into_iter().collect()
    }
}

fn key(name: &str) -> Key {
    Key::new("seg", name).expect("legal")
}

fn how(create: Create) -> Open {
    Open { create, ..Open::default() }.with_semantics(Semantics::at_level(Persistency::None))
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

/// How long a failing call took, and its error.
fn failing<T>(call: impl FnOnce() -> Result<T>) -> (Duration, Error) {
    let clock = SystemClock::default();
    let began_ns = clock.now_ns();
    let error = call().err().expect("it fails");
    (Duration::from_nanos(clock.now_ns() - began_ns), error)
}

fn suite() -> (Arc<S3>, (S3Server, NamedTempFile)) {
    let (server, credentials) = (S3Server::start(), credentials(KEY_ID, SECRET));
    let backend = S3::open(&settings(&server, &credentials), u64::MAX, false).expect("opened");
    (Arc::new(backend), (server, credentials))
}

fn throttled_suite() -> (Arc<Throttle>, (S3Server, NamedTempFile)) {
    let (backend, kept) = suite();
    let rates = Rates {
        latency: Duration::from_millis(5),
        read_bytes_per_s: Some(1e9),
        write_bytes_per_s: Some(1e8),
        parallelism: 3,
    };
    (Arc::new(Throttle::new(backend, rates, Arc::new(ManualClock::new()))), kept)
}

whole_suite!(s3, suite());
whole_suite!(throttled_s3, throttled_suite());

const SMALL: usize = 100_000;
const LARGE: usize = 41 << 20;

#[test]
fn each_operation_takes_the_documented_requests() {
    let scene = Scene::new(Duration::from_secs(20));
    let backend = &scene.backend;
    make(backend, "small", &pattern_bytes(1, 0, 0, SMALL)).expect("made");
    assert_eq!(scene.counts(), [("PUT", 1)]);
    make(backend, "large", &pattern_bytes(2, 0, 0, LARGE)).expect("made");
    assert_eq!(scene.counts(), [("BEGIN", 1), ("COMPLETE", 1), ("PART", 6)]);
    // Opening, and the look at the identity that the stack takes with it.
    let object = backend.open(&key("large"), &how(Create::Never)).expect("there");
    backend.identity(&key("large")).expect("there");
    assert_eq!(scene.counts(), [("GET", 1), ("HEAD", 1)]);
    object.read(5 << 20, &mut [0; 4096]).expect("read");
    object.read(LARGE as u64 - 10, &mut [0; 4096]).expect("read");
    assert_eq!(scene.counts(), [("GET", 2)]);
    object.read(LARGE as u64, &mut [0; 4096]).expect("read");
    assert_eq!(scene.counts(), []);
    object.read(0, &mut vec![0; 16 << 20]).expect("read");
    assert_eq!(scene.counts(), [("GET", 4)]);
    scene.server.bytes();
    let (mut piece, mut at) = (vec![0; 128 << 10], 0);
    while at < LARGE as u64 {
        at += object.read(at, &mut piece).expect("read") as u64;
    }
    assert_eq!(scene.server.bytes().1, LARGE as u64, "each byte is fetched once");
    let gets = scene.server.counts()["GET"];
    assert!((10..=16).contains(&gets), "{gets} requests for 41 MiB from front to back");
    backend.stat(&key("small")).expect("there");
    assert_eq!(scene.counts(), [("GET", 1), ("HEAD", 1)]);
    let identity = identity(2);
    backend.set_identity(&key("small"), &identity).expect("set");
    assert_eq!(scene.counts(), [("PUT", 1)], "it was looked at just now");
    backend.set_identity(&key("small"), &identity).expect("set");
    assert_eq!(scene.counts(), [("GET", 1), ("HEAD", 1), ("PUT", 1)]);
    let replaced = backend.replaced_identities("seg").expect("listed");
    assert_eq!(replaced, Some(vec![key("small")]), "the other objects have that of their upload");
    assert_eq!(scene.counts(), [("LIST", 1)]);
    backend.delete(&key("small")).expect("deleted");
    assert_eq!(scene.counts(), [("DELETE", 2)]);
    for number in 0..1005 {
        scene.server.plant(&format!("tiers/one/o/seg/{number:04}"), b"");
    }
    assert_eq!(backend.list_all("seg", "").expect("listed").len(), 1006);
    assert_eq!(scene.counts(), [("LIST", 2), ("LIST-UPLOADS", 1)]);
    backend.superblock().expect("asked");
    assert_eq!(scene.counts(), [("GET", 1)]);
    assert!(scene.server.names().iter().all(|name| name.starts_with("tiers/one/")));
}

#[test]
fn throttling_and_broken_answers_are_retried() {
    let scene = Scene::new(Duration::from_secs(20));
    let backend = &scene.backend;
    let (small, large) = (pattern_bytes(1, 0, 0, SMALL), pattern_bytes(2, 0, 0, LARGE));
    scene.fault("PUT", 2, S3Fault::Refuse(503, "SlowDown"));
    make(backend, "small", &small).expect("made");
    scene.fault("PART", 2, S3Fault::Refuse(500, "InternalError"));
    scene.fault("BEGIN", 1, S3Fault::Refuse(503, "SlowDown"));
    make(backend, "large", &large).expect("made");
    scene.fault("GET", 2, S3Fault::Truncate(1000));
    assert!(backend.read_all(&key("large")).expect("read") == large);
    scene.fault("GET", 1, S3Fault::Refuse(503, "SlowDown"));
    scene.fault("HEAD", 1, S3Fault::Refuse(503, "SlowDown"));
    scene.server.disconnect();
    assert!(backend.read_all(&key("small")).expect("read") == small);
    scene.fault("DELETE", 1, S3Fault::LoseAnswer);
    backend.delete(&key("small")).expect("deleted");
    assert_eq!(scene.server.heal(), 0, "all faults were met");
}

#[test]
fn a_lost_answer_loses_no_object() {
    let scene = Scene::new(Duration::from_secs(20));
    let backend = &scene.backend;
    let (small, large) = (pattern_bytes(1, 0, 0, SMALL), pattern_bytes(2, 0, 0, LARGE));
    scene.fault("PUT", 1, S3Fault::LoseAnswer);
    make(backend, "small", &small).expect("made");
    scene.fault("PART", 1, S3Fault::LoseAnswer);
    scene.fault("COMPLETE", 1, S3Fault::LoseAnswer);
    make(backend, "large", &large).expect("made");
    assert_eq!(scene.server.heal(), 0);
    assert!(backend.read_all(&key("small")).expect("read") == small);
    assert!(backend.read_all(&key("large")).expect("read") == large);
    assert_eq!(scene.server.uploads(), 0);
}

#[test]
fn a_service_that_is_too_slow_fails_within_the_deadline() {
    let scene = Scene::new(DEADLINE);
    let backend = &scene.backend;
    make(backend, "one", b"bytes").expect("made");
    let object = backend.open(&key("one"), &how(Create::Never)).expect("there");
    scene.fault("", 1000, S3Fault::Stall(Duration::from_secs(3)));
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
    scene.server.heal();
    assert_eq!(object.read(0, &mut [0; 5]).expect("it goes on"), 5);
}

#[test]
fn a_slow_first_byte_within_the_deadline_is_waited_for() {
    let scene = Scene::new(Duration::from_secs(20));
    make(&scene.backend, "one", b"bytes").expect("made");
    scene.fault("GET", 1, S3Fault::Stall(Duration::from_millis(300)));
    assert_eq!(scene.backend.read_all(&key("one")).expect("read"), b"bytes");
}

#[test]
fn a_dead_endpoint_is_named_within_the_deadline() {
    let scene = Scene::new(DEADLINE);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", free.local_addr().expect("bound"));
    drop(free);
    let settings = S3Settings { endpoint: Some(endpoint), ..scene.settings.clone() };
    let backend = S3::open(&settings, u64::MAX, false).expect("no request yet");
    let (took, error) = failing(|| backend.superblock());
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.chain().contains("cannot be reached") || error.chain().contains("within"));
    assert!(took < DEADLINE + Duration::from_secs(1), "{took:?}");
}

/// The service speaks no TLS: what matters is that the client does, and gives up in time.
#[test]
fn an_endpoint_without_tls_is_an_error_for_https() {
    let scene = Scene::new(DEADLINE);
    let endpoint = Some(scene.server.endpoint().replace("http://", "https://"));
    let settings = S3Settings { endpoint, ..scene.settings.clone() };
    let backend = S3::open(&settings, u64::MAX, false).expect("no request yet");
    let (took, error) = failing(|| backend.superblock());
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    assert!(took < DEADLINE + Duration::from_secs(1), "{took:?}");
    assert_eq!(scene.counts(), []);
}

#[test]
fn what_is_wrong_with_the_settings_is_told() {
    let scene = Scene::new(DEADLINE);
    let told = |settings: &S3Settings| {
        let backend = S3::open(settings, u64::MAX, false).expect("no request yet");
        let (took, error) = failing(|| backend.superblock());
        assert!(took < DEADLINE + Duration::from_secs(1), "{took:?}");
        let text = error.chain();
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("AKIDOTHER"), "{text}");
        (error.kind(), text)
    };
    let expect = |(kind, text): (ErrorKind, String), wanted, words: &str| {
        assert_eq!(kind, wanted, "{text}");
        assert!(text.contains(words) && text.contains("s3://"), "{text}");
    };
    let other_key = credentials("AKIDOTHER", SECRET);
    let with = |file: &NamedTempFile| S3Settings {
        credentials: Some(file.path().into()),
        ..scene.settings.clone()
    };
    expect(told(&with(&other_key)), ErrorKind::Denied, "does not know the access key");
    let other_secret = credentials(KEY_ID, "wrong");
    expect(told(&with(&other_secret)), ErrorKind::Denied, "the secret key is wrong");
    let no_bucket = S3Settings { bucket: "missing".into(), ..scene.settings.clone() };
    expect(told(&no_bucket), ErrorKind::Io, "no such bucket");
    let region = S3Settings { region: Some("us-east-1".into()), ..scene.settings.clone() };
    expect(told(&region), ErrorKind::Invalid, "another region");
    scene.server.set_ahead(3600);
    expect(told(&scene.settings), ErrorKind::Denied, "clock of this machine");
    scene.server.set_ahead(0);
    scene.fault("", 100, S3Fault::Refuse(403, "AccessDenied"));
    expect(told(&scene.settings), ErrorKind::Denied, "permissions");
}

#[test]
fn missing_credentials_are_told_before_any_request() {
    let scene = Scene::new(DEADLINE);
    let open = |settings: S3Settings| S3::open(&settings, u64::MAX, false).err().expect("refused");
    let file = Some("/nonexistent/credentials".into());
    let missing = open(S3Settings { credentials: file, ..scene.settings.clone() });
    assert_eq!(missing.kind(), ErrorKind::Denied, "{}", missing.chain());
    let profile = Some("other".into());
    let missing = open(S3Settings { profile, ..scene.settings.clone() });
    assert_eq!(missing.kind(), ErrorKind::Denied, "{}", missing.chain());
    assert_eq!(scene.counts(), []);
}

#[test]
fn a_bucket_that_vanishes_is_no_lost_object() {
    let scene = Scene::new(DEADLINE);
    let backend = &scene.backend;
    make(backend, "one", b"bytes").expect("made");
    let object = backend.open(&key("one"), &how(Create::Never)).expect("there");
    backend.identity(&key("one")).expect("there");
    let taken = scene.server.take_bucket();
    let results = [
        object.read(0, &mut [0; 5]).map(drop),
        backend.stat(&key("one")).map(drop),
        backend.identity(&key("one")).map(drop),
        backend.list_all("seg", "").map(drop),
        backend.superblock().map(drop),
        make(backend, "two", b"bytes"),
    ];
    for result in results {
        let error = result.expect_err("there is no bucket");
        assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
        assert!(error.chain().contains("no such bucket"), "{}", error.chain());
    }
    scene.server.put_back(taken);
    assert_eq!(backend.read_all(&key("one")).expect("it is back"), b"bytes");
}

#[test]
fn an_upload_that_fails_leaves_nothing() {
    let scene = Scene::new(DEADLINE);
    let backend = &scene.backend;
    let large = pattern_bytes(2, 0, 0, LARGE);
    scene.fault("PART", 1000, S3Fault::Refuse(400, "InvalidArgument"));
    let error = make(backend, "large", &large).expect_err("a part fails");
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    scene.server.heal();
    scene.fault("COMPLETE", 1000, S3Fault::Refuse(400, "InvalidPart"));
    let object = begun(backend, "large", &large).expect("begun");
    object.sync().expect_err("it is not completed");
    object.sync().expect_err("and stays so");
    object.read(0, &mut [0; 4]).expect_err("there is nothing");
    scene.server.heal();
    drop(object);
    // Aborts are on their way; the end of the backend waits for them.
    drop(scene.backend);
    assert_eq!(scene.server.uploads(), 0);
    assert_eq!(scene.server.names(), Vec::<String>::new());
}

#[test]
fn uploads_of_a_crashed_process_are_aborted_by_a_listing() {
    let scene = Scene::new(Duration::from_secs(20));
    scene.server.plant_upload("tiers/one/o/seg/left");
    scene.server.plant_upload("tiers/two/o/seg/another_tiers");
    let own = begun(&scene.backend, "own", &pattern_bytes(2, 0, 0, LARGE)).expect("begun");
    assert_eq!(scene.server.uploads(), 3);
    scene.backend.list("seg", "", &Cursor::start(), 10).expect("listed");
    assert_eq!(scene.server.uploads(), 2, "its own and another tier's stay");
    own.sync().expect("it goes on");
    // One that may not look for them lists all the same.
    scene.fault("LIST-UPLOADS", 1, S3Fault::Refuse(403, "AccessDenied"));
    assert_eq!(scene.backend.list_all("seg", "").expect("listed"), [key("own")]);
}

#[test]
fn uploads_below_a_prefix_that_xml_escapes_are_aborted() {
    let scene = Scene::new(Duration::from_secs(20));
    let settings = S3Settings { prefix: "a&b".into(), ..scene.settings.clone() };
    let backend = S3::open(&settings, u64::MAX, false).expect("opened");
    scene.server.plant_upload("a&b/o/seg/left");
    backend.list("seg", "", &Cursor::start(), 10).expect("listed");
    assert_eq!(scene.server.uploads(), 0);
}

#[test]
fn each_request_of_a_clean_up_has_its_own_deadline() {
    let scene = Scene::new(2 * DEADLINE);
    for name in ["a", "b", "c", "d"] {
        scene.server.plant_upload(&format!("tiers/one/o/seg/{name}"));
    }
    // Each takes a third of the deadline, and all of them more than it.
    scene.fault("ABORT", 4, S3Fault::Stall(2 * DEADLINE / 3));
    scene.backend.list("seg", "", &Cursor::start(), 10).expect("listed");
    assert_eq!(scene.server.uploads(), 0);
}

#[test]
fn an_upload_that_begins_during_a_clean_up_goes_on() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    let data = pattern_bytes(2, 0, 0, LARGE);
    server.plant_upload("tiers/one/o/seg/left");
    scene.fault("LIST-UPLOADS", 1, S3Fault::Hold);
    let own = std::thread::scope(|scope| {
        let listing = scope.spawn(|| backend.list("seg", "", &Cursor::start(), 10));
        server.wait_held();
        let own = begun(backend, "own", &data).expect("begun");
        assert_eq!(server.uploads(), 2, "the listing of uploads has both");
        server.release();
        listing.join().expect("no panic").expect("listed");
        own
    });
    assert_eq!(server.uploads(), 1, "its own stays");
    own.sync().expect("it goes on");
    assert!(backend.read_all(&key("own")).expect("read") == data);
}

#[test]
fn an_upload_that_ends_during_a_clean_up_does_not_end_that() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    let data = pattern_bytes(2, 0, 0, LARGE);
    let own = begun(backend, "own", &data).expect("begun");
    server.plant_upload("tiers/one/o/seg/left");
    scene.fault("LIST-UPLOADS", 1, S3Fault::HoldAnswer);
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| backend.list("seg", "", &Cursor::start(), 10));
        server.wait_held();
        own.sync().expect("completed");
        server.release();
        listing.join().expect("no panic").expect("listed");
    });
    assert_eq!(server.uploads(), 0, "the one behind it in the listing is aborted");
    assert!(backend.read_all(&key("own")).expect("read") == data);
}

#[test]
fn a_tier_for_reading_changes_nothing() {
    let scene = Scene::new(Duration::from_secs(20));
    make(&scene.backend, "one", b"bytes").expect("made");
    scene.server.plant_upload("tiers/one/o/seg/left");
    let reader = S3::open(&scene.settings, u64::MAX, true).expect("opened");
    let denied = |result: Result<()>| {
        assert_eq!(result.expect_err("refused").kind(), ErrorKind::Denied);
    };
    denied(reader.open(&key("one"), &how(Create::Never)).map(drop));
    denied(reader.open(&key("two"), &how(Create::New)).map(drop));
    denied(reader.delete(&key("one")));
    assert_eq!(reader.read_all(&key("one")).expect("read"), b"bytes");
    assert_eq!(reader.list_all("seg", "").expect("listed"), [key("one")]);
    assert_eq!(scene.server.uploads(), 1);
}

#[test]
fn damaged_attributes_are_told() {
    let scene = Scene::new(Duration::from_secs(20));
    make(&scene.backend, "one", b"bytes").expect("made");
    scene.server.plant("tiers/one/a/seg/one", b"no attributes");
    let error = scene.backend.stat(&key("one")).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.chain());
    // An object without any is somebody else's.
    scene.server.plant("tiers/one/o/seg/foreign", b"bytes");
    assert_eq!(scene.backend.identity(&key("foreign")).expect("asked"), None);
    assert_eq!(scene.backend.stat(&key("foreign")).expect("there").size_bytes, 5);
}

#[test]
fn only_what_is_the_tiers_is_cleared() {
    let scene = Scene::new(Duration::from_secs(20));
    assert!(scene.backend.is_empty().expect("asked"));
    make(&scene.backend, "one", b"bytes").expect("made");
    scene.server.plant("tiers/one/mine", b"");
    scene.server.plant("tiers/two/o/seg/one", b"");
    assert!(!scene.backend.is_empty().expect("asked"));
    scene.backend.clear().expect("cleared");
    assert_eq!(scene.server.names(), ["tiers/one/mine", "tiers/two/o/seg/one"]);
}

/// Makes a call that fails, of which the service carries out a `PUT` when it is released.
fn late<T: Send>(scene: &Scene, call: impl Fn() -> Result<T> + Send) {
    scene.fault("PUT", 1, S3Fault::Hold);
    scene.fault("PUT", 1, S3Fault::Refuse(403, "AccessDenied"));
    std::thread::scope(|scope| {
        let called = scope.spawn(call);
        scene.server.wait_held();
        scene.server.disconnect();
        let ended = called.join().expect("no panic");
        assert!(ended.is_err(), "the second try is refused");
    });
    scene.server.heal();
}

#[test]
fn a_late_write_of_attributes_does_not_undo_a_later_one() {
    let scene = Scene::new(Duration::from_secs(20));
    let (backend, server) = (&scene.backend, &scene.server);
    let another = || S3::open(&scene.settings, u64::MAX, true).expect("opened");
    make(backend, "one", b"bytes").expect("made");
    // The first change makes an object, the second one replaces that.
    for generation in 1..3 {
        late(&scene, || backend.set_identity(&key("one"), &identity(100)));
        backend.set_identity(&key("one"), &identity(generation)).expect("set");
        server.release();
        let found = another().identity(&key("one")).expect("there");
        assert_eq!(found, Some(identity(generation)));
    }
    let object = backend.open(&key("one"), &how(Create::Never)).expect("there");
    late(&scene, || object.set_modified(1));
    object.set_modified(2).expect("set");
    server.release();
    assert_eq!(another().stat(&key("one")).expect("there").modified_ns, 2);
    late(&scene, || backend.set_identity(&key("one"), &identity(100)));
    backend.delete(&key("one")).expect("deleted");
    server.release();
    assert_eq!(server.names(), [""; 0], "nothing is left of it");
}

#[test]
fn a_change_of_attributes_whose_answer_is_lost_is_made_once() {
    let scene = Scene::new(Duration::from_secs(20));
    let backend = &scene.backend;
    make(backend, "one", b"bytes").expect("made");
    for generation in 1..4 {
        scene.fault("PUT", 1, S3Fault::LoseAnswer);
        backend.set_identity(&key("one"), &identity(generation)).expect("set");
        assert_eq!(scene.server.heal(), 0, "the fault was met");
        let found = backend.identity(&key("one")).expect("there");
        assert_eq!(found, Some(identity(generation)));
    }
}
