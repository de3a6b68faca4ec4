// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others keep in a bucket is read under its own names, each read in one state.

use std::time::Duration;

use tempfile::NamedTempFile;
use terrace_backends::object::{Prefix, PrefixObject, S3Settings};
use terrace_core::ErrorKind;
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};

/// A service and a client of what is below `a/b`.
struct Scene {
    prefix: Prefix,
    server: S3Server,
    _credentials: NamedTempFile,
}

impl Scene {
    fn new() -> Self {
        let server = S3Server::start();
        let credentials = NamedTempFile::new().expect("a temporary file");
        let keys =
            format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
        std::fs::write(credentials.path(), keys).expect("written");
        let address = format!("s3://{BUCKET}/a/b?endpoint={}&region={REGION}", server.endpoint());
        let settings = S3Settings {
            credentials: Some(credentials.path().into()),
            deadline: Duration::from_secs(20),
            ..S3Settings::of_address(&address).expect("legal")
        };
        let prefix = Prefix::open(&settings).expect("no request yet");
        Self { prefix, server, _credentials: credentials }
    }

    fn look(&self, name: &str) -> PrefixObject {
        self.prefix.look(name).expect("an answer").expect("it is there")
    }
}

#[test]
fn a_read_is_of_the_state_that_was_seen() {
    let scene = Scene::new();
    scene.server.plant("a/b/object", b"old bytes");
    let old = scene.look("object");
    assert_eq!((old.size_bytes, old.modified_s), (9, 1_767_225_600));
    assert_eq!(scene.prefix.read("object", &old, 4..9).expect("readable"), "bytes");
    scene.server.plant("a/b/object", b"new bytes");
    let read = |object: &PrefixObject, range| {
        scene.prefix.read("object", object, range).map_err(|error| error.kind())
    };
    assert_eq!(read(&old, 4..9), Err(ErrorKind::Stale));
    // A service without tags: other attributes tell, and a range behind the end.
    let untagged = PrefixObject { tag: None, ..old.clone() };
    assert_eq!(read(&untagged, 0..9), Err(ErrorKind::Stale));
    scene.server.plant("a/b/object", b"new");
    assert_eq!(read(&untagged, 4..9), Err(ErrorKind::Stale));
    // The service returns what there is of the range.
    assert_eq!(read(&untagged, 0..9), Err(ErrorKind::Stale));
    // One that says so with another status.
    let refused = S3Fault::Refuse(400, "PreconditionFailed");
    scene.server.inject(S3FaultPoint {
        kind: "GET",
        name: String::new(),
        times: 1,
        fault: refused,
    });
    assert_eq!(read(&old, 4..9), Err(ErrorKind::Stale));
    scene.server.remove("a/b/object");
    assert_eq!(read(&old, 4..9), Err(ErrorKind::NotFound));
    assert_eq!(scene.prefix.look("object").expect("an answer"), None);
}

#[test]
fn a_listing_has_the_attributes_of_a_look_and_goes_on_where_it_ended() {
    let scene = Scene::new();
    for name in ["c//d", "e", "f&g/h", "i j", "k\n", "../l"] {
        scene.server.plant(&format!("a/b/{name}"), name.as_bytes());
    }
    scene.server.plant("a/beside", b"");
    let (mut objects, mut parts, mut next) = (Vec::new(), Vec::new(), None);
    loop {
        let page = scene.prefix.list("", next.as_deref(), 2).expect("a page");
        assert!(page.objects.len() + page.parts.len() <= 2);
        objects.extend(page.objects);
        parts.extend(page.parts);
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(parts, ["../", "c/", "f&g/"]);
    let names: Vec<_> = objects.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["e", "i j", "k\n"]);
    for (name, object) in &objects[..2] {
        assert_eq!(scene.look(name), *object, "{name:?}");
    }
    assert_eq!(scene.prefix.list("c/", None, 10).expect("a page").parts, ["/"]);
    let refused = scene.prefix.look("k\n").expect_err("the client sends no such name");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn a_listing_that_fails_for_a_moment_is_repeated() {
    let scene = Scene::new();
    let fault = |times, fault| S3FaultPoint { kind: "LIST", name: String::new(), times, fault };
    for fault in [
        fault(1, S3Fault::Refuse(503, "SlowDown")),
        fault(1, S3Fault::LoseAnswer),
        fault(1, S3Fault::Truncate(20)),
    ] {
        scene.server.inject(fault);
    }
    assert!(scene.prefix.list("", None, 10).is_ok());
    assert_eq!(scene.server.counts(), [("LIST", 4)].into());
    scene.server.inject(fault(u64::MAX, S3Fault::Refuse(403, "AccessDenied")));
    let denied = scene.prefix.list("", None, 10).expect_err("denied");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{}", denied.chain());
    assert_eq!(scene.server.counts(), [("LIST", 1)].into(), "repeating does not help");
    scene.server.heal();
    // A listing finds nothing below a name by an empty page.
    scene.server.inject(fault(1, S3Fault::Refuse(404, "NoSuchKey")));
    let failed = scene.prefix.list("", None, 10).expect_err("no listing");
    assert_eq!(failed.kind(), ErrorKind::Io, "{}", failed.chain());
}
