// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each kind of damage is found, and mended so that the next check finds nothing.

use std::sync::Arc;
use std::time::Duration;

use terrace_backends::kv;
use terrace_backends::object::{self, Effect, FaultPoint, Faults, Faulty, When};
use terrace_core::{
    Access, Backend, BackendExt, Clock, ErrorKind, Key, Kv, KvExt, KvRange, Semantics, SystemClock,
};

use super::{
    Check, DamageKind, Mending, NUMBERS_MARGIN, Reached, TreeReport, check, is_recognized,
    mark_restored, number_in_place, paths,
};
use crate::entries::{Bucket, hash};
use crate::node::{Kind, Node, Place, ROOT, Time, object_key};
use crate::record::{decode, encode};
use crate::stores::{KnownStore, record_stores};
use crate::superblock::Superblock;
use crate::{FileClock, Files, FilesOptions, Made, Request, Session, SetHow, Tree, TreeOptions};
use crate::{acl, pairs};

mod entries;
mod leftovers;
mod numbers;

const NAMESPACE: &str = "files";

/// Longer than what is kept with the metadata.
const LONG: usize = 10_000;

struct Scene {
    kv: Arc<dyn Kv>,
    data: Arc<dyn Backend>,
    _directory: tempfile::TempDir,
}

/// The nodes of a small tree.
struct Numbers {
    directory: u64,
    below: u64,
    small: u64,
    long: u64,
    link: u64,
}

impl Scene {
    fn new() -> (Self, Numbers) {
        let kv: Arc<dyn Kv> = Arc::new(kv::Memory::default());
        let directory = tempfile::tempdir().expect("a temporary directory");
        let settings = object::FileSettings { capacity_bytes: 1 << 30, read_only: false };
        let data = object::File::open(directory.path(), settings).expect("opens");
        let data: Arc<dyn Backend> = Arc::new(data);
        let clock = SystemClock::default();
        Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("made");
        let scene = Self { kv, data, _directory: directory };
        let numbers = scene.fill();
        (scene, numbers)
    }

    fn files(&self) -> Arc<Files> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let tree = Tree::open(Arc::clone(&self.kv), FileClock::new(Arc::clone(&clock)));
        let session = Session::new(&tree.expect("opens"));
        let options = FilesOptions {
            namespace: NAMESPACE.into(),
            semantics: Semantics::DEFAULT,
            ready_objects: 0,
            access: Access::Write,
            is_alone: true,
            believed_for: Duration::MAX,
            inline_bytes_max: 4096,
            space: None,
        };
        Files::new(Arc::new(session), Arc::clone(&self.data), clock, options).expect("opens")
    }

    fn fill(&self) -> Numbers {
        let files = self.files();
        let directory = files.make(ROOT, b"directory", made(Kind::Directory)).expect("made").number;
        let below = files.make(directory, b"below", made(Kind::Directory)).expect("made").number;
        let link = Made { target: b"directory/long", ..made(Kind::Symlink) };
        let link = files.make(ROOT, b"link", link).expect("made").number;
        let write = |name: &[u8], bytes: usize| {
            let (node, file) =
                files.create(directory, name, made(Kind::File), false).expect("made");
            file.write(0, &vec![7; bytes], false).expect("written");
            file.close().expect("closed");
            node.number
        };
        let (small, long) = (write(b"small", 100), write(b"long", LONG));
        files.link(small, ROOT, b"another").expect("linked");
        let how = SetHow::Any;
        let (name, value) = (b"user.colour", b"blue");
        let request =
            Request::SetXattr { number: small, name, value, how, clears_set_group: false };
        files.metadata().call(&request).expect("set");
        files.close().expect("closed");
        Numbers { directory, below, small, long, link }
    }

    /// Looking at objects fails from now on.
    fn fail(&mut self, kind: ErrorKind) {
        let faults = Faults::new(1);
        faults.add(&[FaultPoint::Stat], When::Always, Effect::Fail(kind));
        self.data = Arc::new(Faulty::new(Arc::clone(&self.data), faults));
    }

    fn check_with(&self, mending: Option<Mending>) -> TreeReport {
        self.check_where(true, mending)
    }

    /// Checks where nothing is left of objects that are not found, or something is.
    fn check_where(&self, is_lost: bool, mending: Option<Mending>) -> TreeReport {
        let (kv, data) = (&*self.kv, &*self.data);
        let is_lost = &|_: &Key| is_lost;
        let asked = Check { kv, data, namespace: NAMESPACE, is_lost, now_ns: 1, mending };
        check(&asked, &mut |_| {}).expect("can be checked")
    }

    fn check(&self) -> TreeReport {
        self.check_with(None)
    }

    /// Mends what was damaged: exactly these kinds are found, and nothing afterwards.
    #[track_caller]
    fn mends(&self, kinds: &[DamageKind]) -> TreeReport {
        let before = self.kv.scan(&KvRange::all(), 1000).expect("read");
        let found = self.check();
        let mut kinds = kinds.to_vec();
        kinds.sort();
        assert_eq!(found.counts.keys().copied().collect::<Vec<_>>(), kinds, "{found:?}");
        let after = self.kv.scan(&KvRange::all(), 1000).expect("read");
        assert_eq!(before, after, "a check changes nothing");
        let report = self.check_with(Some(Mending { entropy: [9; 32] }));
        let again = self.check();
        assert!(again.is_sound(), "{again:?} after {report:?}");
        report
    }

    fn node(&self, number: u64) -> Node {
        let bytes = self.kv.get(&pairs::node(number)).expect("read").expect("is there");
        decode(number, &bytes).expect("can be read")
    }

    fn has_node(&self, number: u64) -> bool {
        self.kv.get(&pairs::node(number)).expect("read").is_some()
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Node)) {
        let mut node = self.node(number);
        change(&mut node);
        self.put(&pairs::node(number), &encode(&node));
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        self.kv.put(key, value).expect("written");
    }

    fn remove(&self, key: &[u8]) {
        assert!(self.kv.remove(key).expect("removed"));
    }

    fn seed(&self) -> u128 {
        let bytes = self.kv.get(pairs::SUPERBLOCK).expect("read").expect("is there");
        Superblock::decode(&bytes).expect("can be read").seed
    }

    fn entry(&self, directory: u64, name: &[u8]) -> Vec<u8> {
        pairs::entry(directory, hash(self.seed(), name))
    }

    fn add_entry(&self, directory: u64, name: &[u8], number: u64, kind: Kind) {
        let mut bucket = Bucket::default();
        bucket.add(name, number, kind).expect("there is room");
        let at = self.entry(directory, name);
        self.put(&at, &bucket.encode().expect("it has an entry"));
    }

    /// What a path leads to.
    fn find(&self, path: &[&[u8]]) -> Option<Node> {
        let files = self.files();
        let mut number = ROOT;
        for name in path {
            number = files.lookup(number, name).ok()?.number;
        }
        Some(self.node(number))
    }

    fn found(&self, number: u64) -> Option<Node> {
        let name = format!("{number:016x}");
        self.find(&[b"lost+found", name.as_bytes()])
    }

    fn read(&self, number: u64) -> Vec<u8> {
        let files = self.files();
        let (node, file) = files.open(number, Access::Read).expect("opens");
        let mut bytes = vec![0; node.size as usize];
        assert_eq!(file.read(0, &mut bytes), Ok(bytes.len()));
        bytes
    }
}

fn made<'a>(kind: Kind) -> Made<'a> {
    Made { kind, permissions: 0o755, user: 1000, group: 1000, ..Made::default() }
}

#[test]
fn a_sound_tree_has_no_damage() {
    let (scene, _) = Scene::new();
    let report = scene.check();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.directories, report.files, report.entries, report.foreign), (3, 3, 6, 0));
}

#[test]
fn pairs_of_somebody_else_are_no_file_system() {
    let kv = kv::Memory::default();
    kv.put(b"s", b"somebody's").expect("written");
    assert_eq!(is_recognized(&kv), Ok(false));
}

#[test]
fn pairs_and_objects_of_another_form_are_counted_and_left_alone() {
    let (scene, _) = Scene::new();
    scene.put(b"i", b"short");
    scene.data.write_all(&terrace_core::Key::new(NAMESPACE, "mine").unwrap(), b"x").expect("made");
    let report = scene.mends(&[]);
    assert_eq!(report.foreign, 2);
    assert!(scene.kv.get(b"i").expect("read").is_some());
}

#[test]
fn what_was_open_without_a_name_is_no_damage() {
    let (scene, numbers) = Scene::new();
    let files = scene.files();
    let (_, _open) = files.open(numbers.long, Access::Read).expect("opens");
    files.remove(numbers.directory, b"long", false).expect("removed");
    scene.mends(&[]);
    assert!(scene.has_node(numbers.long));
}

#[test]
fn a_lost_superblock_is_made_anew_and_every_name_found_again() {
    let (scene, numbers) = Scene::new();
    scene.put(pairs::SUPERBLOCK, b"nonsense");
    scene.mends(&[DamageKind::DamagedSuperblock]);
    assert_eq!(scene.find(&[b"directory", b"small"]).map(|node| node.number), Some(numbers.small));
    let files = scene.files();
    let node = files.make(ROOT, b"new", made(Kind::Directory)).expect("made");
    assert!(node.number > numbers.link.max(numbers.long), "no number is given again");
}

#[test]
fn numbers_that_are_used_are_not_given_again() {
    let (scene, _) = Scene::new();
    let bytes = scene.kv.get(pairs::SUPERBLOCK).expect("read").expect("is there");
    let mut superblock = Superblock::decode(&bytes).expect("can be read");
    superblock.next_number = 3;
    scene.put(pairs::SUPERBLOCK, &superblock.encode());
    scene.mends(&[DamageKind::UsedNumber]);
}

#[test]
fn a_lost_root_keeps_its_entries() {
    let (scene, numbers) = Scene::new();
    scene.remove(&pairs::node(ROOT));
    scene.mends(&[DamageKind::MissingRoot]);
    assert_eq!(scene.find(&[b"another"]).map(|node| node.number), Some(numbers.small));
}

#[test]
fn a_damaged_record_is_made_from_what_else_is_known() {
    let (scene, numbers) = Scene::new();
    for number in [numbers.long, numbers.small, numbers.directory] {
        scene.put(&pairs::node(number), b"nonsense");
    }
    scene.mends(&[DamageKind::DamagedNode]);
    assert_eq!(scene.read(numbers.long), [7; LONG]);
    assert_eq!(scene.read(numbers.small), [7; 100]);
    let small = scene.find(&[b"directory", b"small"]).expect("is found");
    assert_eq!((small.links, small.has_xattrs, small.permissions), (2, true, 0o600));
}

#[test]
fn a_damaged_record_of_which_nothing_is_known_goes_with_its_names() {
    let (scene, numbers) = Scene::new();
    scene.put(&pairs::node(numbers.below), b"nonsense");
    scene.mends(&[
        DamageKind::DamagedNode,
        DamageKind::DanglingEntry,
        DamageKind::WrongLinks,
        DamageKind::WrongSize,
    ]);
    assert_eq!(scene.find(&[b"directory", b"below"]), None);
    assert!(!scene.has_node(numbers.below));
}

#[test]
fn a_record_of_a_later_version_is_left_alone() {
    let (scene, numbers) = Scene::new();
    let mut later = encode(&scene.node(numbers.small));
    later[0] += 1;
    let body = later.len() - 4;
    let checksum = crc32c::crc32c(&later[..body]).to_le_bytes();
    later[body..].copy_from_slice(&checksum);
    scene.put(&pairs::node(numbers.small), &later);
    let mending = Some(Mending { entropy: [9; 32] });
    let (kv, data) = (&*scene.kv, &*scene.data);
    let is_lost = &|_: &Key| true;
    let asked = Check { kv, data, namespace: NAMESPACE, is_lost, now_ns: 1, mending };
    let failure = check(&asked, &mut |_| {}).expect_err("it cannot be read");
    assert!(failure.text().is_some_and(|text| text.contains("version")), "{failure}");
    assert_eq!(scene.kv.get(&pairs::node(numbers.small)).expect("read"), Some(later));
}

#[test]
fn an_object_without_a_node_becomes_a_file_in_lost_and_found() {
    let (scene, _) = Scene::new();
    let number = 1 << 40;
    let key = object_key(NAMESPACE, number).expect("a key");
    scene.data.write_all(&key, &[3; LONG]).expect("made");
    let report = scene.mends(&[DamageKind::MissingNode, DamageKind::UsedNumber]);
    assert_eq!(report.adopted, 1);
    let node = scene.found(number).expect("is found");
    assert_eq!((node.place, node.links, node.permissions), (Place::Object, 1, 0o600));
    assert_eq!(scene.read(number), [3; LONG]);
}

#[test]
fn an_object_that_is_to_be_deleted_is_no_damage() {
    let (scene, _) = Scene::new();
    scene.data.write_all(&object_key(NAMESPACE, 4000).unwrap(), b"x").expect("made");
    scene.put(&pairs::garbage(4000), b"");
    scene.mends(&[]);
}

#[test]
fn a_lost_node_keeps_its_name_and_its_bytes() {
    let (scene, numbers) = Scene::new();
    scene.remove(&pairs::node(numbers.long));
    scene.mends(&[DamageKind::MissingNode]);
    assert_eq!(scene.find(&[b"directory", b"long"]).map(|node| node.size), Some(LONG as u64));
}

#[test]
fn attributes_and_marks_without_a_node_are_removed() {
    let (scene, _) = Scene::new();
    scene.put(&pairs::xattr(4000, b"user.x"), b"x");
    scene.put(&pairs::nameless(4001), b"");
    scene.mends(&[DamageKind::StrayPair]);
    assert_eq!(scene.kv.get(&pairs::xattr(4000, b"user.x")).expect("read"), None);
}

#[test]
fn bytes_that_are_too_many_are_cut() {
    let (scene, numbers) = Scene::new();
    scene.put(&pairs::content(numbers.small), &[7; 200]);
    scene.put(&pairs::content(numbers.directory), b"x");
    scene.put(&pairs::content(numbers.long), b"x");
    scene.put(&pairs::content(numbers.link), b"short");
    let report = scene.mends(&[DamageKind::WrongContent]);
    assert_eq!(report.damage_count(), 4);
    assert_eq!(scene.read(numbers.small), [7; 100]);
    assert_eq!(scene.read(numbers.long), [7; LONG]);
}

#[test]
fn bytes_that_are_too_many_for_metadata_get_an_object() {
    let (scene, numbers) = Scene::new();
    scene.put(&pairs::content(numbers.small), &vec![5; 100_000]);
    scene.change(numbers.small, |node| node.size = 100_001);
    scene.mends(&[DamageKind::WrongContent]);
    assert_eq!(scene.node(numbers.small).place, Place::Object);
    let bytes = scene.read(numbers.small);
    assert!(bytes[..100_000].iter().all(|byte| *byte == 5) && bytes[100_000] == 0);
}

#[test]
fn a_link_without_a_target_is_removed() {
    let (scene, numbers) = Scene::new();
    scene.remove(&pairs::content(numbers.link));
    scene.mends(&[DamageKind::MissingTarget, DamageKind::DanglingEntry, DamageKind::WrongSize]);
    assert_eq!(scene.find(&[b"link"]), None);
}

#[test]
fn a_file_whose_object_is_lost_is_empty_and_keeps_its_name() {
    let (scene, numbers) = Scene::new();
    scene.data.delete(&object_key(NAMESPACE, numbers.long).unwrap()).expect("deleted");
    scene.mends(&[DamageKind::MissingObject]);
    assert_eq!(scene.find(&[b"directory", b"long"]).map(|node| node.size), Some(0));
}

#[test]
fn a_file_whose_object_is_known_and_has_no_bytes_any_more_is_empty() {
    for is_written in [false, true] {
        let (mut scene, numbers) = Scene::new();
        scene.change(numbers.long, |node| node.is_written = is_written);
        scene.fail(ErrorKind::NotFound);
        scene.mends(&[DamageKind::MissingObject]);
        assert_eq!(scene.find(&[b"directory", b"long"]).map(|node| node.size), Some(0));
    }
}

#[test]
fn a_lost_object_that_is_nobodys_is_forgotten() {
    let (mut scene, _) = Scene::new();
    let number = 1 << 40;
    scene.data.write_all(&object_key(NAMESPACE, number).unwrap(), b"orphan").expect("written");
    let long = scene.find(&[b"directory", b"long"]).expect("is there").number;
    scene.data.delete(&object_key(NAMESPACE, long).unwrap()).expect("deleted");
    scene.fail(ErrorKind::NotFound);
    scene.mends(&[DamageKind::MissingObject, DamageKind::UsedNumber]);
    assert_eq!(scene.found(number), None);
}

#[test]
fn what_cannot_be_looked_at_is_said_and_left_alone() {
    let mending = Some(Mending { entropy: [9; 32] });
    for (kind, is_lost, found) in [
        (ErrorKind::Io, true, DamageKind::UnreadableObject),
        (ErrorKind::NotFound, false, DamageKind::MissingObject),
    ] {
        let (mut scene, numbers) = Scene::new();
        let pairs = || scene.kv.scan(&KvRange::all(), 1000).expect("read");
        let (before, sound) = (pairs(), Arc::clone(&scene.data));
        scene.fail(kind);
        for mending in [None, mending, None] {
            let report = scene.check_where(is_lost, mending);
            assert_eq!(report.counts.into_iter().collect::<Vec<_>>(), [(found, 1)]);
        }
        assert_eq!(scene.kv.scan(&KvRange::all(), 1000).expect("read"), before);
        scene.data = sound;
        assert_eq!(scene.read(numbers.long), vec![7; LONG]);
    }
}

#[test]
fn a_damaged_record_keeps_its_name_while_its_object_cannot_be_looked_at() {
    let (mut scene, numbers) = Scene::new();
    scene.put(&pairs::node(numbers.long), b"nonsense");
    let sound = Arc::clone(&scene.data);
    scene.fail(ErrorKind::Io);
    scene.check_with(Some(Mending { entropy: [9; 32] }));
    scene.data = sound;
    assert!(scene.check().is_sound());
    let found = scene.find(&[b"directory", b"long"]).map(|node| (node.number, node.size));
    assert_eq!(found, Some((numbers.long, LONG as u64)));
    assert_eq!(scene.read(numbers.long), vec![7; LONG]);
}

#[test]
fn where_objects_decide_a_file_without_one_was_deleted() {
    let (scene, numbers) = Scene::new();
    scene.data.delete(&object_key(NAMESPACE, numbers.long).unwrap()).expect("deleted");
    let key = object_key(NAMESPACE, numbers.small).unwrap();
    scene.data.write_all(&key, &[8; LONG]).expect("made");
    mark_restored(&*scene.kv).expect("marked");
    scene.check_with(Some(Mending { entropy: [9; 32] }));
    assert!(scene.check().is_sound());
    assert_eq!(scene.find(&[b"directory", b"long"]), None);
    assert_eq!(scene.read(numbers.small), [8; LONG], "it grew since");
}

#[test]
fn nobody_uses_names_of_an_earlier_time_until_they_are_mended() {
    let (scene, numbers) = Scene::new();
    let next = || {
        let bytes = scene.kv.get(pairs::SUPERBLOCK).expect("read").expect("is there");
        Superblock::decode(&bytes).expect("can be read").next_number
    };
    let before = next();
    mark_restored(&*scene.kv).expect("marked");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let open = || Tree::open(Arc::clone(&scene.kv), FileClock::new(Arc::clone(&clock)));
    let failure = open().map(drop).expect_err("numbers would be given again");
    assert!(failure.text().is_some_and(|text| text.contains("fsck --repair")), "{failure}");
    let counts = scene.check().counts;
    assert_eq!(counts.into_keys().collect::<Vec<_>>(), [DamageKind::RestoredNames]);
    assert_eq!(next(), before, "only looked at");
    assert!(scene.check_with(Some(Mending { entropy: [9; 32] })).is_sound());
    assert!(next() >= before + NUMBERS_MARGIN);
    open().expect("it is mended");
    assert!(scene.check().is_sound());
    assert_eq!(scene.read(numbers.long), [7; LONG]);
    // No others are marked.
    let kv = kv::Memory::default();
    mark_restored(&kv).expect("nothing to do");
    assert_eq!(kv.get(pairs::RESTORED).expect("read"), None);
}

#[test]
fn objects_that_may_be_on_other_servers_are_not_missed() {
    let (scene, numbers) = Scene::new();
    record_stores(&*scene.kv, &[KnownStore::new(1, "a"), KnownStore::new(2, "b")]).expect("noted");
    scene.data.delete(&object_key(NAMESPACE, numbers.long).unwrap()).expect("deleted");
    let report = scene.mends(&[]);
    assert!(!report.has_objects_checked);
    assert_eq!(scene.node(numbers.long).size, LONG as u64);
}

#[test]
fn a_record_of_servers_that_cannot_be_read_is_told_and_left_alone() {
    let (scene, _) = Scene::new();
    record_stores(&*scene.kv, &[KnownStore::new(1, "a"), KnownStore::new(2, "b")]).expect("noted");
    assert!(scene.check().is_sound());
    scene.put(pairs::STORES, b"nonsense");
    let mending = Mending { entropy: [9; 32] };
    for mending in [None, Some(mending), None] {
        let counts = scene.check_with(mending).counts;
        assert_eq!(counts.into_keys().collect::<Vec<_>>(), [DamageKind::DamagedServers]);
    }
}

#[test]
fn the_length_of_an_object_is_right() {
    let (scene, numbers) = Scene::new();
    scene.change(numbers.long, |node| node.size = 5);
    scene.mends(&[DamageKind::WrongLength]);
    assert_eq!(scene.read(numbers.long), [7; LONG]);
}

#[test]
fn a_file_that_is_there_does_not_lose_its_object() {
    let (scene, numbers) = Scene::new();
    scene.put(&pairs::garbage(numbers.long), b"");
    scene.mends(&[DamageKind::WrongGarbage]);
    scene.files().sweep().expect("nothing to do");
    assert_eq!(scene.read(numbers.long), [7; LONG]);
}

#[test]
fn what_a_node_says_of_its_attributes_is_mended() {
    let (scene, numbers) = Scene::new();
    scene.change(numbers.small, |node| node.has_xattrs = false);
    scene.change(numbers.long, |node| node.has_xattrs = true);
    scene.change(numbers.below, |node| node.has_default_acl = true);
    scene.put(&pairs::xattr(numbers.directory, acl::DEFAULT), b"nonsense");
    let report = scene.mends(&[DamageKind::WrongAttributes]);
    assert_eq!(report.damage_count(), 4);
    assert!(scene.node(numbers.small).has_xattrs);
    assert!(!scene.node(numbers.below).has_default_acl);
}

/// A list in the form in which Linux passes it: tag and permissions of each entry, and whose it is.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn lists_that_say_no_more_than_permissions_leave_no_attribute() {
    let (scene, numbers) = Scene::new();
    let files = scene.files();
    let set = |number, name, value: &[u8]| {
        let (how, clears_set_group) = (SetHow::Any, false);
        let request = Request::SetXattr { number, name, value, how, clears_set_group };
        files.metadata().call(&request).expect("set");
    };
    let more = list(&[(1, 6, 0), (2, 4, 1000), (4, 4, 0), (0x10, 4, 0), (0x20, 4, 0)]);
    let no_more = list(&[(1, 6, 0), (4, 4, 0), (0x20, 4, 0)]);
    for number in [numbers.small, numbers.long] {
        set(number, acl::ACCESS, &more);
        set(number, acl::ACCESS, &no_more);
    }
    set(numbers.directory, acl::DEFAULT, &more);
    set(numbers.directory, acl::DEFAULT, &list(&[]));
    files.close().expect("closed");
    assert!(scene.check().is_sound(), "{:?}", scene.check());
    let has_attributes = |number: u64| scene.node(number).has_xattrs;
    assert!(has_attributes(numbers.small), "it has another one");
    assert!(!has_attributes(numbers.long) && !has_attributes(numbers.directory));
}

#[test]
fn what_an_entry_that_cannot_be_read_led_to_is_found() {
    let (scene, numbers) = Scene::new();
    scene.put(&scene.entry(ROOT, b"directory"), b"nonsense");
    scene.mends(&[
        DamageKind::DamagedEntry,
        DamageKind::Unreached,
        DamageKind::WrongLinks,
        DamageKind::WrongSize,
    ]);
    let node = scene.found(numbers.directory).expect("is found");
    assert_eq!(node.size, 3);
}

#[test]
fn entries_of_a_file_are_removed() {
    let (scene, numbers) = Scene::new();
    scene.add_entry(numbers.long, b"x", numbers.small, Kind::File);
    scene.mends(&[DamageKind::StrayEntry]);
}

#[test]
fn a_name_that_cannot_be_is_removed_and_its_node_found() {
    let (scene, numbers) = Scene::new();
    let key = scene.entry(ROOT, b"link");
    scene.remove(&key);
    scene.add_entry(ROOT, b"a/b", numbers.link, Kind::Symlink);
    scene.mends(&[DamageKind::ImpossibleName, DamageKind::Unreached, DamageKind::WrongSize]);
    assert_eq!(scene.found(numbers.link).map(|node| node.kind), Some(Kind::Symlink));
}

#[test]
fn a_name_that_is_there_twice_stays_once() {
    let (scene, numbers) = Scene::new();
    let key = scene.entry(ROOT, b"link");
    let mut bucket = Bucket::decode(&scene.kv.get(&key).unwrap().unwrap()).expect("can be read");
    bucket.add(b"link", numbers.small, Kind::File).expect("there is room");
    scene.put(&key, &bucket.encode().expect("it has entries"));
    scene.mends(&[DamageKind::DuplicateName]);
    assert_eq!(scene.find(&[b"link"]).map(|node| node.number), Some(numbers.link));
}

#[test]
fn an_entry_comes_to_where_its_name_is_looked_for() {
    for wrong in [0, u64::MAX >> 6] {
        let (scene, numbers) = Scene::new();
        let key = scene.entry(numbers.directory, b"below");
        let value = scene.kv.get(&key).expect("read").expect("is there");
        scene.remove(&key);
        scene.put(&pairs::entry(numbers.directory, wrong), &value);
        scene.mends(&[DamageKind::MisplacedEntry]);
        let found = scene.find(&[b"directory", b"below"]).map(|node| node.number);
        assert_eq!(found, Some(numbers.below));
    }
}

#[test]
fn an_entry_that_leads_to_nothing_is_removed() {
    let (scene, _) = Scene::new();
    scene.add_entry(ROOT, b"ghost", 4000, Kind::File);
    scene.change(ROOT, |root| root.size += 1);
    scene.mends(&[DamageKind::DanglingEntry, DamageKind::WrongSize]);
}

#[test]
fn an_entry_says_what_its_node_is() {
    let (scene, numbers) = Scene::new();
    scene.add_entry(ROOT, b"link", numbers.link, Kind::Directory);
    scene.mends(&[DamageKind::WrongEntryKind]);
}

#[test]
fn a_directory_keeps_the_name_where_it_says_that_it_is() {
    let (scene, numbers) = Scene::new();
    scene.add_entry(ROOT, b"other", numbers.below, Kind::Directory);
    scene.add_entry(ROOT, b"root", ROOT, Kind::Directory);
    scene.mends(&[DamageKind::ExtraName]);
    assert_eq!(scene.node(numbers.below).parent, numbers.directory);
    assert_eq!(scene.find(&[b"other"]), None);
}

#[test]
fn a_circle_of_directories_is_cut_and_found() {
    let (scene, numbers) = Scene::new();
    scene.remove(&scene.entry(ROOT, b"directory"));
    scene.add_entry(numbers.below, b"circle", numbers.directory, Kind::Directory);
    scene.change(numbers.directory, |node| node.parent = numbers.below);
    scene.change(numbers.below, |node| (node.size, node.links) = (1, 3));
    scene.change(ROOT, |root| (root.size, root.links) = (2, 2));
    scene.mends(&[DamageKind::Circle, DamageKind::WrongLinks, DamageKind::WrongSize]);
    assert_eq!(scene.found(numbers.directory).map(|node| node.size), Some(3));
}

#[test]
fn lost_and_found_is_used_again_and_taken_names_are_avoided() {
    let (scene, numbers) = Scene::new();
    let files = scene.files();
    let lost = files.make(ROOT, b"lost+found", made(Kind::Directory)).expect("made");
    let name = format!("{:016x}", numbers.link);
    files.make(lost.number, name.as_bytes(), made(Kind::Directory)).expect("made");
    files.close().expect("closed");
    scene.remove(&scene.entry(ROOT, b"link"));
    scene.change(ROOT, |root| root.size -= 1);
    scene.mends(&[DamageKind::Unreached]);
    let second = format!("{name}-2");
    let found = scene.find(&[b"lost+found", second.as_bytes()]).map(|node| node.number);
    assert_eq!(found, Some(numbers.link));
}

#[test]
fn wrong_counts_are_corrected() {
    let (scene, numbers) = Scene::new();
    scene.change(numbers.small, |node| node.links = 7);
    scene.change(numbers.directory, |node| (node.size, node.links) = (100, 1));
    scene.change(numbers.below, |node| node.parent = ROOT);
    scene.mends(&[DamageKind::WrongLinks, DamageKind::WrongSize, DamageKind::WrongParent]);
    assert_eq!(scene.node(numbers.small).links, 2);
    assert_eq!(scene.node(numbers.below).parent, numbers.directory);
}

#[test]
fn a_node_with_names_is_not_thrown_away() {
    let (scene, numbers) = Scene::new();
    scene.put(&pairs::nameless(numbers.small), b"");
    scene.change(numbers.small, |node| node.links = 0);
    scene.put(&pairs::nameless(numbers.below), b"");
    scene.mends(&[DamageKind::WrongLinks, DamageKind::WrongNameless]);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let tree = Tree::open(Arc::clone(&scene.kv), FileClock::new(clock)).expect("opens");
    assert_eq!(tree.discard_nameless(), Ok(0));
    assert_eq!(scene.read(numbers.small), [7; 100]);
}

#[test]
fn everything_at_once_is_mended_at_once() {
    let (scene, numbers) = Scene::new();
    scene.put(pairs::SUPERBLOCK, b"nonsense");
    scene.put(&pairs::node(numbers.directory), b"nonsense");
    scene.data.delete(&object_key(NAMESPACE, numbers.long).unwrap()).expect("deleted");
    scene.put(&pairs::entry(ROOT, 5), b"nonsense");
    scene.put(&pairs::xattr(9, b"user.x"), b"x");
    scene.check_with(Some(Mending { entropy: [9; 32] }));
    let again = scene.check();
    assert!(again.is_sound(), "{again:?}");
    assert_eq!(scene.find(&[b"directory", b"long"]).map(|node| node.size), Some(0));
}

#[test]
fn counts_go_on_where_findings_are_too_many_to_be_told() {
    let (scene, _) = Scene::new();
    for number in 5000..6500 {
        scene.put(&pairs::nameless(number), b"");
    }
    let report = scene.check();
    assert_eq!((report.damages.len(), report.damage_count()), (1000, 1500));
}

#[test]
fn what_is_damaged_is_told_with_a_path_that_leads_there() {
    let (scene, numbers) = Scene::new();
    for number in [numbers.below, numbers.small, numbers.long] {
        scene.put(&pairs::node(number), b"nonsense");
    }
    scene.data.write_all(&object_key(NAMESPACE, 1 << 40).unwrap(), b"x").expect("made");
    let told = |number: u64| {
        let report = scene.check();
        let damage = report.damages.into_iter().find(|damage| damage.node == number);
        let Reached { path, names } = damage.expect("it is damaged").reached;
        (path, names)
    };
    let path = |text: &str| Some(text.to_owned());
    assert_eq!(told(numbers.long), (path("/directory/long"), 1));
    assert_eq!(told(numbers.below), (path("/directory/below"), 1));
    assert_eq!(told(1 << 40), (None, 0));
    let (small, names) = told(numbers.small);
    assert_eq!(names, 2);
    assert!([path("/another"), path("/directory/small")].contains(&small), "{small:?}");
    // A name below what nothing leads to is no path.
    scene.remove(&scene.entry(ROOT, b"directory"));
    assert_eq!(told(numbers.long), (None, 1));
    assert_eq!(told(numbers.small), (path("/another"), 2));
}

#[test]
fn a_path_in_a_circle_leads_nowhere() {
    let (scene, numbers) = Scene::new();
    scene.remove(&scene.entry(ROOT, b"directory"));
    scene.add_entry(numbers.below, b"directory", numbers.directory, Kind::Directory);
    let wanted = [numbers.long].into();
    let found = paths(&*scene.kv, &wanted).expect("can be read");
    assert_eq!(found[&numbers.long], Reached { path: None, names: 1 });
}

#[test]
fn a_place_begins_with_the_key_of_an_object() {
    let number = |place| number_in_place(NAMESPACE, place);
    assert_eq!(number("files/000000000000000a"), Some(10));
    assert_eq!(number("files/000000000000000a on data1"), Some(10));
    for place in ["files/mine", "files/a", "file/000000000000000a", "files", "fast"] {
        assert_eq!(number(place), None, "{place}");
    }
}
