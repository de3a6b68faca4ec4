// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Framed objects keep the promises of backends that take whole objects, over every backend; what is
//! damaged, cut, swapped or of another key is noticed.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use terrace_backends::object::{
    Effect, FaultPoint, Faults, Faulty, FrameKey, Framed, Memory, Packing, Rates, S3, S3Settings,
    Throttle, When,
};
use terrace_backends::{Place, open_backend};
use terrace_core::{
    Backend, BackendExt, Capability, Create, Cursor, ErrorKind, Identity, Key, Object, ObjectExt,
    Open, Page, Persistency, Random, Result, Role, Semantics, Space, Stat, Superblock, TierBackend,
};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};
use terrace_testkit::{ManualClock, pattern_bytes, whole_suite};

const KEY: [u8; 64] = [b'7'; 64];
const OTHER_KEY: [u8; 64] = [b'8'; 64];

fn frame_key(text: &[u8]) -> FrameKey {
    FrameKey::from_text(text).expect("legal")
}

fn compressed() -> Packing {
    Packing { level: Some(3), key: None }
}

fn encrypted() -> Packing {
    Packing { level: None, key: Some(frame_key(&KEY)) }
}

fn both() -> Packing {
    Packing { level: Some(1), ..encrypted() }
}

fn memory() -> Arc<dyn Backend> {
    Arc::new(Memory::new(256 << 20))
}

fn framed(inner: Arc<dyn Backend>, packing: Packing) -> Arc<dyn Backend> {
    Arc::new(Framed::open(inner, packing).expect("opened"))
}

fn file(packing: Packing) -> (Arc<dyn Backend>, TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = Place { path: Some(directory.path()), capacity_bytes: 256 << 20, read_only: false };
    (framed(open_backend("file", &place).expect("open"), packing), directory)
}

fn bucket() -> (Arc<dyn Backend>, (S3Server, tempfile::NamedTempFile)) {
    let server = S3Server::start();
    let credentials = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    std::fs::write(credentials.path(), text).expect("written");
    let settings = S3Settings {
        endpoint: Some(server.endpoint()),
        region: Some(REGION.into()),
        prefix: "tiers/one".into(),
        credentials: Some(credentials.path().into()),
        ..S3Settings::new(BUCKET)
    };
    let backend = S3::open(&settings, u64::MAX, false).expect("opened");
    (Arc::new(backend), (server, credentials))
}

fn s3(packing: Packing) -> (Arc<dyn Backend>, (S3Server, tempfile::NamedTempFile)) {
    let (backend, kept) = bucket();
    (framed(backend, packing), kept)
}

fn throttled(packing: Packing) -> Arc<dyn Backend> {
    let rates = Rates {
        latency: Duration::from_millis(5),
        read_bytes_per_s: Some(1e9),
        write_bytes_per_s: Some(1e8),
        parallelism: 3,
    };
    framed(Arc::new(Throttle::new(memory(), rates, Arc::new(ManualClock::new()))), packing)
}

whole_suite!(memory_compressed, (framed(memory(), compressed()), ()));
whole_suite!(memory_encrypted, (framed(memory(), encrypted()), ()));
whole_suite!(memory_both, (framed(memory(), both()), ()));
whole_suite!(memory_neither, (framed(memory(), Packing::default()), ()));
whole_suite!(file_both, file(both()));
whole_suite!(s3_compressed, s3(compressed()));
whole_suite!(s3_both, s3(both()));
whole_suite!(throttled_both, (throttled(both()), ()));
whole_suite!(faulty_both, (framed(Arc::new(Faulty::new(memory(), Faults::new(0))), both()), ()));

/// Memory that takes objects of up to 1 MiB, and survives the machine.
struct Bounded(Memory);

const BOUND_BYTES: u64 = 1 << 20;

impl Backend for Bounded {
    fn target(&self) -> &str {
        self.0.target()
    }

    fn capability(&self) -> Capability {
        let persistency = Persistency::Shared;
        Capability { object_bytes_max: BOUND_BYTES, persistency, ..self.0.capability() }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.0.open(key, how)
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.0.stat(key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.0.delete(key)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.0.list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.0.namespaces()
    }

    fn space(&self) -> Result<Space> {
        self.0.space()
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn sync_all(&self) -> Result<()> {
        self.0.sync_all()
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        self.0.tier()
    }
}

#[test]
fn what_is_written_in_place_below_gives_no_level_for_takeovers() {
    for packing in [compressed(), encrypted()] {
        let backend = framed(Arc::new(Bounded(Memory::new(1 << 20))), packing);
        assert_eq!(backend.capability().persistency, Persistency::Storage);
    }
}

#[test]
fn the_longest_object_fits_into_the_bound_below() {
    for packing in [compressed(), encrypted(), both(), Packing::default()] {
        let below = Arc::new(Bounded(Memory::new(256 << 20)));
        let backend = framed(below.clone(), packing);
        let most = backend.capability().object_bytes_max;
        // Bytes that no compression shortens.
        let mut data = vec![0; most as usize];
        Random::new(1).fill(&mut data);
        make(&*backend, "long", &data).expect("made");
        let stored_bytes = below.stat(&key("long")).expect("there").size_bytes;
        assert!(stored_bytes <= BOUND_BYTES, "{most} take {stored_bytes}");
        // Whole frames, of which no further one fits.
        assert_eq!(most, 7 << 17);
        assert!(backend.read_all(&key("long")).expect("read") == data);
    }
}

fn key(name: &str) -> Key {
    Key::new("seg", name).expect("legal")
}

fn begun(backend: &dyn Backend, name: &str, data: &[u8]) -> Result<Box<dyn Object>> {
    let how =
        Open { create: Create::New, size_hint_bytes: Some(data.len() as u64), ..Open::default() };
    let how = how.with_semantics(Semantics::at_level(Persistency::None));
    let object = backend.open(&key(name), &how)?;
    for (index, piece) in data.chunks(1 << 18).enumerate() {
        object.write((index << 18) as u64, piece)?;
    }
    Ok(object)
}

fn make(backend: &dyn Backend, name: &str, data: &[u8]) -> Result<()> {
    begun(backend, name, data)?.sync()
}

/// Bytes of which compression makes a third or less.
fn text(bytes: usize) -> Vec<u8> {
    let words = (0..).map(|number: u64| format!("line {number} of {bytes}\n"));
    let mut text = Vec::with_capacity(bytes + 64);
    for word in words {
        if text.len() >= bytes {
            break;
        }
        text.extend_from_slice(word.as_bytes());
    }
    text.truncate(bytes);
    text
}

fn superblock() -> Superblock {
    Superblock {
        store_id: 77,
        tier: "cold".into(),
        format_version: 1,
        feature_bits: 0,
        epoch: 1,
        frames: None,
    }
}

/// Expects reading to notice that an object is not as it was written.
#[track_caller]
fn assert_noticed(backend: &dyn Backend, name: &str) {
    match backend.read_all(&key(name)) {
        Ok(_) => panic!("{name} was read"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.chain()),
    }
}

/// Replaces what the backend below has of an object.
fn replace(below: &dyn Backend, name: &str, data: &[u8]) {
    let how = Open::create().with_semantics(Semantics::at_level(Persistency::None));
    let object = below.open(&key(name), &how).expect("opened");
    object.set_len(0).expect("cut");
    object.write(0, data).expect("written");
}

#[test]
fn compression_takes_less_room_and_what_is_random_no_more() {
    for packing in [compressed(), both()] {
        let backend = framed(memory(), packing);
        let data = text(3 << 20);
        make(&*backend, "text", &data).expect("made");
        let stat = backend.stat(&key("text")).expect("there");
        assert_eq!(stat.size_bytes, data.len() as u64);
        assert!(stat.allocated_bytes < stat.size_bytes / 3, "{}", stat.allocated_bytes);
        let noise = pattern_bytes(9, 0, 0, 3 << 20);
        make(&*backend, "noise", &noise).expect("made");
        let stat = backend.stat(&key("noise")).expect("there");
        assert!(stat.allocated_bytes < stat.size_bytes + stat.size_bytes / 1000 + 100);
        assert!(backend.read_all(&key("text")).expect("read") == data);
    }
}

#[test]
fn bytes_are_not_in_clear_below_an_encrypted_tier() {
    let below = memory();
    let backend = framed(Arc::clone(&below), encrypted());
    let secret = b"attack at dawn".repeat(1000);
    for name in ["one", "two"] {
        make(&*backend, name, &secret).expect("made");
    }
    let [one, two] = ["one", "two"].map(|name| below.read_all(&key(name)).expect("read"));
    let is_in = |data: &[u8]| data.windows(6).any(|window| window == b"attack");
    assert!(!is_in(&one) && !is_in(&two));
    assert_ne!(one[..1000], two[..1000], "each object has a key of its own");
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    for packing in [compressed(), encrypted(), both()] {
        let below = memory();
        let backend = framed(Arc::clone(&below), packing);
        let data = text(300_000);
        make(&*backend, "a", &data).expect("made");
        let stored = below.read_all(&key("a")).expect("read");
        let steps = (0..stored.len()).step_by(997).chain(stored.len() - 120..stored.len());
        for at in steps {
            let mut changed = stored.clone();
            changed[at] ^= 0x10;
            replace(&*below, "a", &changed);
            assert_noticed(&*backend, "a");
            replace(&*below, "a", &stored[..at]);
            assert_noticed(&*backend, "a");
        }
        let longer = [&stored[..], &[0; 7]].concat();
        replace(&*below, "a", &longer);
        assert_noticed(&*backend, "a");
        replace(&*below, "a", &stored);
        assert!(backend.read_all(&key("a")).expect("read") == data);
    }
}

#[test]
fn swapped_objects_and_frames_are_noticed() {
    const FRAME: usize = 128 << 10;
    for packing in [Packing::default(), encrypted()] {
        let seal = if packing.key.is_some() { 16 } else { 4 };
        let below = memory();
        let backend = framed(Arc::clone(&below), packing);
        let data = pattern_bytes(4, 0, 0, 3 * FRAME);
        for name in ["a", "b"] {
            make(&*backend, name, &data).expect("made");
        }
        let [a, b] = ["a", "b"].map(|name| below.read_all(&key(name)).expect("read"));
        replace(&*below, "a", &b);
        assert_noticed(&*backend, "a");
        let stored = FRAME + seal;
        let mut swapped = a.clone();
        swapped[..stored].copy_from_slice(&a[stored..2 * stored]);
        swapped[stored..2 * stored].copy_from_slice(&a[..stored]);
        replace(&*below, "a", &swapped);
        assert_noticed(&*backend, "a");
        // A frame less, with an index that is a frame shorter: only the seal of the index knows.
        let without = [&a[..2 * stored], &a[3 * stored..3 * stored + 8], &a[3 * stored + 12..]];
        replace(&*below, "a", &without.concat());
        assert_noticed(&*backend, "a");
        replace(&*below, "a", &a);
        assert!(backend.read_all(&key("a")).expect("read") == data);
    }
}

#[test]
fn an_object_that_is_not_encrypted_is_refused_where_all_are() {
    let below = memory();
    make(&*framed(Arc::clone(&below), compressed()), "forged", b"bytes").expect("made");
    assert_noticed(&*framed(below, both()), "forged");
}

#[test]
fn a_wrong_key_is_named_at_the_opening() {
    let open = |below: &Arc<dyn Backend>, packing| Framed::open(Arc::clone(below), packing);
    let refused = |below: &Arc<dyn Backend>, packing, words: &str| {
        let error = open(below, packing).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.chain().contains(words), "{}", error.chain());
    };
    let below = memory();
    let backend = open(&below, both()).expect("opened");
    backend.tier().expect("a tier").set_superblock(&superblock()).expect("set");
    open(&below, encrypted()).expect("compression may change");
    let other = Packing { level: None, key: Some(frame_key(&OTHER_KEY)) };
    refused(&below, other.clone(), "another key");
    refused(&below, compressed(), "are encrypted: set `encrypt`");
    let below = memory();
    let backend = open(&below, compressed()).expect("opened");
    backend.tier().expect("a tier").set_superblock(&superblock()).expect("set");
    refused(&below, both(), "not encrypted");
    let below = memory();
    below.set_superblock(&superblock()).expect("set");
    refused(&below, compressed(), "not framed");
    // One that was removed from its store is anybody's.
    below.set_superblock(&Superblock { store_id: 0, ..superblock() }).expect("set");
    open(&below, other).expect("opened");
}

#[test]
fn a_key_shows_nowhere() {
    let packing = encrypted();
    assert!(!format!("{packing:?}").contains('7'));
    for text in [&KEY[..63], &[b'x'; 64], b"", &[0xff; 64]] {
        let error = FrameKey::from_text(text).expect_err("no key");
        assert!(error.chain().contains("64 hexadecimal digits"));
    }
}

#[test]
fn a_crash_before_the_sync_leaves_what_is_partial() {
    let below = memory();
    let backend = framed(Arc::clone(&below), both());
    let identity = Identity {
        store_id: 7,
        object_id: 1,
        segment: 0,
        start_bytes: 0,
        generation: 2,
        epoch: 1,
        role: Role::Primary,
        key: key("x"),
        label: None,
    };
    let how = Open { identity: Some(Arc::new(identity.clone())), ..Open::create_new() };
    let how = how.with_semantics(Semantics::at_level(Persistency::None));
    let object = backend.open(&key("x"), &how).expect("begun");
    object.write(0, &text(400_000)).expect("written");
    // What a process finds that comes after a crash.
    let later = framed(Arc::clone(&below), both());
    let found = later.identity(&key("x")).expect("there").expect("it has one");
    assert_eq!(found.role, Role::Partial);
    assert_eq!(later.stat(&key("x")).expect_err("cut").kind(), ErrorKind::Corrupt);
    assert_noticed(&*later, "x");
    object.sync().expect("made");
    assert_eq!(later.identity(&key("x")).expect("there"), Some(identity));
    assert_eq!(later.read_all(&key("x")).expect("read").len(), 400_000);
}

#[test]
fn an_object_is_not_finished_after_a_write_that_failed() {
    const PIECE: usize = 1 << 18;
    let faults = Faults::new(0);
    let backend = framed(Arc::new(Faulty::new(memory(), Arc::clone(&faults))), both());
    let data = pattern_bytes(1, 0, 0, 3 * PIECE);
    let object = begun(&*backend, "x", &data[..PIECE]).expect("begun");
    faults.add(&[FaultPoint::Write], When::Nth(1), Effect::Fail(ErrorKind::Io));
    let write =
        |index: usize| object.write((index * PIECE) as u64, &data[index * PIECE..][..PIECE]);
    assert_eq!(write(1).expect_err("it fails").kind(), ErrorKind::Io);
    faults.clear();
    write(2).expect_err("a frame is missing");
    object.sync().expect_err("a frame is missing");
    let error = backend.read_all(&key("x")).expect_err("it is not finished");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_read_fetches_only_the_frames_that_it_needs() {
    let (below, (server, _credentials)) = bucket();
    let backend = framed(below, both());
    let counts = || server.counts().into_iter().collect::<Vec<_>>();
    assert_eq!(counts(), [("GET", 1)], "the superblock");
    let data = pattern_bytes(3, 0, 0, 9 << 20);
    make(&*backend, "a", &data).expect("made");
    assert_eq!(counts(), [("PUT", 1)]);
    let object = backend.open(&key("a"), &Open::read()).expect("there");
    assert_eq!(counts(), [("GET", 2), ("HEAD", 1)], "attributes and the tail");
    server.bytes();
    let mut page = [0; 4096];
    object.read(5 << 20, &mut page).expect("read");
    assert!(page[..] == data[5 << 20..][..4096]);
    assert_eq!(counts(), [("GET", 1)]);
    let fetched = server.bytes().1;
    assert!((128 << 10..129 << 10).contains(&fetched), "{fetched}");
    object.read((5 << 20) + 4096, &mut page).expect("read");
    assert_eq!(counts(), [], "the rest of a frame is at hand");
    make(&*backend, "small", &data[..50_000]).expect("made");
    assert_eq!(counts(), [("PUT", 1)]);
    let object = backend.open(&key("small"), &Open::read()).expect("there");
    let mut all = vec![0; 50_000];
    object.read(0, &mut all).expect("read");
    assert!(all == data[..50_000]);
    assert_eq!(counts(), [("GET", 2), ("HEAD", 1)], "a small object comes with its index");
}

#[test]
fn a_lost_answer_and_a_cut_answer_lose_nothing() {
    let (backend, (server, _credentials)) = s3(both());
    let fault = |kind, fault| {
        server.inject(S3FaultPoint { kind, name: "/o/seg/".into(), times: 1, fault });
    };
    let data = text(30 << 20);
    fault("PUT", S3Fault::LoseAnswer);
    make(&*backend, "text", &data).expect("made");
    let noise = pattern_bytes(3, 0, 0, 20 << 20);
    fault("COMPLETE", S3Fault::LoseAnswer);
    make(&*backend, "noise", &noise).expect("made");
    fault("GET", S3Fault::Truncate(1000));
    assert!(backend.read_all(&key("noise")).expect("read") == noise);
    fault("GET", S3Fault::Truncate(10));
    assert!(backend.read_all(&key("text")).expect("read") == data);
    assert_eq!(server.heal(), 0, "all faults were met");
}

/// The documented bytes are those of another implementation.
#[test]
fn the_documented_objects_are_read() {
    const DOCUMENT: &str = include_str!("../../../../docs/formats/frames.md");
    let block = |name: &str| -> String {
        let rest = DOCUMENT.split(&format!("```{name}\n")).nth(1).expect("the document has one");
        rest.split("```").next().expect("the block ends").trim().into()
    };
    let bytes = |name: &str| -> Vec<u8> {
        let text: String = block(name).lines().collect();
        let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("digits");
        (0..text.len()).step_by(2).map(digits).collect()
    };
    let text: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
    let key_of_document = Packing { level: None, key: Some(frame_key(text.as_bytes())) };
    let name = "0000000000000001.0.7";
    for (block, packing) in [("plain", compressed()), ("encrypted", key_of_document.clone())] {
        let below = memory();
        replace(&*below, name, &bytes(block));
        let backend = framed(Arc::clone(&below), packing.clone());
        assert_eq!(backend.read_all(&key(name)).expect("read"), b"hello");
        if packing.key.is_none() {
            make(&*backend, "again", b"hello").expect("made");
            let again = below.read_all(&key("again")).expect("read");
            assert_eq!(again.len(), bytes(block).len());
        }
    }
    let below = memory();
    let frames = Some(block("line"));
    below.set_superblock(&Superblock { frames, ..superblock() }).expect("set");
    framed(Arc::clone(&below), key_of_document);
    Framed::open(below, both()).err().expect("of another key");
}
