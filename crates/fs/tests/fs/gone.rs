// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and links that another user removes, or changes, between two looks at them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::kv;
use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, Kv, Result, SystemClock, Ticket};
use terrace_fs::{
    Changes, Failure, File, FileClock, Files, Kind, Listed, Made, Metadata, ROOT, RenameHow, Reply,
    Request, Session, Tree, TreeOptions,
};
use terrace_testkit::{Body, KvLayer, Layered};

use crate::common::files;

const NAME: &[u8] = b"file";

/// Longer than what is kept with the metadata.
const LENGTH: usize = 10_000;

type Then = Box<dyn FnOnce() + Send>;

/// Metadata of one user, behind whose next answer something happens.
struct Delayed {
    session: Session,
    then: Arc<Mutex<Option<Then>>>,
}

impl Metadata for Delayed {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        let reply = self.session.call(request);
        let then = self.then.lock().expect("nobody panicked").take();
        if let Some(then) = then {
            then();
        }
        reply
    }
}

/// Pairs behind whose next look something happens, or behind whose next change.
#[derive(Default)]
struct DelayedPairs {
    pairs: kv::Memory,
    then: Mutex<Option<Then>>,
    changed: Mutex<Option<Then>>,
}

impl KvLayer for DelayedPairs {
    fn inner(&self) -> &dyn Kv {
        &self.pairs
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.pairs.get(key);
        let then = self.then.lock().expect("nobody panicked").take();
        if let Some(then) = then {
            then();
        }
        value
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        let ticket = self.pairs.transact(body);
        let then = self.changed.lock().expect("nobody panicked").take();
        if let Some(then) = then {
            then();
        }
        ticket
    }
}

/// One user looks at a file, and another one removes it before the first asks its object.
fn look<T>(how: impl FnOnce(&Files, u64) -> terrace_fs::Result<T>) -> terrace_fs::Result<T> {
    let (one, then, other, _) = two();
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (node, file) = other.create(ROOT, NAME, made, false).expect("it is new");
    // Open for writing, so that its object is asked how long it is.
    file.write(0, &vec![7; LENGTH], false).expect("there is room");
    let remove: Then = Box::new(move || {
        other.remove(ROOT, NAME, false).expect("it is there");
        file.close().expect("it is open");
        other.sweep().expect("it can be deleted");
    });
    *then.lock().expect("nobody panicked") = Some(remove);
    how(&one, node.number)
}

#[test]
fn a_file_that_is_removed_meanwhile_is_gone_and_not_damaged() {
    let gone = Failure::of(Errno::STALE);
    assert_eq!(look(|files, _| files.lookup(ROOT, NAME)).expect_err("it is gone"), gone);
    assert_eq!(look(|files, number| files.node(number)).expect_err("it is gone"), gone);
}

/// What happens behind the next answer.
type Next = Arc<Mutex<Option<Then>>>;

/// The only user of files, and what happens behind the next answer to it.
fn alone() -> (Arc<Files>, Next) {
    let (tree, _, data) = tree();
    let (metadata, then) = delayed(&tree);
    (files(metadata, &data, true), then)
}

/// Two users of the same files, what happens behind the next answer to the first, and the objects.
fn two() -> (Arc<Files>, Next, Arc<Files>, Arc<Memory>) {
    let (tree, objects, data) = tree();
    let (metadata, then) = delayed(&tree);
    let one = files(metadata, &data, false);
    (one, then, files(Arc::new(Session::new(&tree)), &data, false), objects)
}

fn delayed(tree: &Arc<Tree>) -> (Arc<Delayed>, Next) {
    let then = Next::default();
    (Arc::new(Delayed { session: Session::new(tree), then: Arc::clone(&then) }), then)
}

fn tree() -> (Arc<Tree>, Arc<Memory>, Arc<dyn Backend>) {
    let tree = crate::common::tree(Arc::new(SystemClock::default()));
    let objects = Arc::new(Memory::new(1 << 20));
    (tree, objects.clone(), objects)
}

/// Makes a file of one byte again and again where there is none; its number.
fn make(files: &Arc<Files>, byte: u8) -> u64 {
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (node, file) = files.create(ROOT, NAME, made, false).expect("it is new");
    file.write(0, &[byte; LENGTH], false).expect("there is room");
    file.close().expect("it is open");
    node.number
}

fn read(files: &Arc<Files>, number: u64) -> terrace_fs::Result<u8> {
    let (_, file) = files.open(number, Access::Read)?;
    let mut bytes = [0; LENGTH];
    file.read(0, &mut bytes)?;
    file.close()?;
    assert_eq!(bytes, [bytes[0]; LENGTH]);
    Ok(bytes[0])
}

#[test]
fn who_came_too_late_finds_what_he_looks_up_next() {
    let (one, _, other, objects) = two();
    let first = make(&other, 1);
    assert_eq!(one.lookup(ROOT, NAME).expect("it is there").number, first);
    other.remove(ROOT, NAME, false).expect("it is there");
    let second = make(&other, 2);
    assert_eq!(read(&one, first).expect_err("it is gone"), Failure::of(Errno::STALE));
    // What the kernel does then.
    assert_eq!(one.lookup(ROOT, NAME).expect("it is there").number, second);
    other.remove(ROOT, NAME, false).expect("it is there");
    let third = make(&other, 3);
    other.sweep().expect("they can be deleted");
    assert_eq!(read(&one, second).expect("it is on the way"), 2);
    assert_eq!(read(&one, third).expect("it is there"), 3);
    // It stays no longer than for that.
    one.close().expect("closes");
    other.sweep().expect("they can be deleted");
    assert_eq!(objects.space().expect("it knows").used_bytes, LENGTH as u64);
}

#[test]
fn who_came_too_late_finds_what_has_the_name_after_he_looked() {
    let (one, then, other, _) = two();
    let first = make(&other, 1);
    other.remove(ROOT, NAME, false).expect("it is there");
    let second = make(&other, 2);
    assert_eq!(read(&one, first).expect_err("it is gone"), Failure::of(Errno::STALE));
    let replace: Then = Box::new({
        let other = Arc::clone(&other);
        move || {
            other.remove(ROOT, NAME, false).expect("it is there");
            make(&other, 3);
        }
    });
    *then.lock().expect("nobody panicked") = Some(replace);
    let found = one.lookup(ROOT, NAME).expect("it is there").number;
    assert_ne!(found, second);
    assert_eq!(read(&one, found).expect("it is there"), 3);
}

#[test]
fn nothing_that_is_looked_up_is_kept_where_nobody_came_too_late() {
    let (one, _, other, objects) = two();
    let number = make(&other, 1);
    assert_eq!(one.lookup(ROOT, NAME).expect("it is there").number, number);
    other.remove(ROOT, NAME, false).expect("it is there");
    other.sweep().expect("it can be deleted");
    assert_eq!(objects.space().expect("it knows").used_bytes, 0);
    assert_eq!(read(&one, number).expect_err("it is gone"), Failure::of(Errno::STALE));
}

#[test]
fn a_link_that_is_looked_up_next_leads_where_it_led() {
    let (one, _, other, _) = two();
    let link = |target| {
        let made = Made { kind: Kind::Symlink, permissions: 0o777, target, ..Made::default() };
        other.make(ROOT, NAME, made).expect("it is new").number
    };
    let first = link(b"first");
    other.remove(ROOT, NAME, false).expect("it is there");
    let second = link(b"second");
    assert_eq!(one.target(first).expect_err("it is gone"), Failure::of(Errno::STALE));
    assert_eq!(one.lookup(ROOT, NAME).expect("it is there").number, second);
    other.remove(ROOT, NAME, false).expect("it is there");
    assert_eq!(one.target(second).expect("it is on the way"), b"second");
}

#[test]
fn who_came_too_late_to_a_link_finds_what_he_looks_up_where_it_leads() {
    let (one, _, other, _) = two();
    let make = |directory, name, kind, target| {
        let made = Made { kind, permissions: 0o777, target, ..Made::default() };
        other.make(directory, name, made).expect("it is new").number
    };
    let directory = make(ROOT, b"directory", Kind::Directory, b"");
    let first = make(ROOT, NAME, Kind::Symlink, b"directory/file");
    other.remove(ROOT, NAME, false).expect("it is there");
    let second = make(ROOT, NAME, Kind::Symlink, b"directory/file");
    let file = make(directory, NAME, Kind::File, b"");
    assert_eq!(one.target(first).expect_err("it is gone"), Failure::of(Errno::STALE));
    // The kernel walks all the way once more, and nothing that is gone then is looked up again.
    assert_eq!(one.lookup(ROOT, NAME).expect("it is there").number, second);
    assert_eq!(one.target(second).expect("it is there"), b"directory/file");
    assert_eq!(one.lookup(directory, NAME).expect("it is there").number, file);
    other.remove(directory, NAME, false).expect("it is there");
    one.open(file, Access::Read).expect("it is on the way");
}

#[test]
fn a_listing_tells_of_others_where_a_file_is_removed_meanwhile() {
    let listed = look(|files, _| files.list(ROOT, 0, 10, true)).expect("the directory is there");
    let [entry] = &listed[..] else { panic!("{} entries", listed.len()) };
    assert_eq!((&entry.name[..], entry.node.is_some()), (NAME, false));
}

/// The last close comes between the removal of the name and the moment when the mount notes it.
#[test]
fn a_file_that_is_closed_while_it_is_removed_stays_until_it_is_forgotten() {
    let (files, then) = alone();
    files.keep_unlinked();
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (node, file) = files.create(ROOT, NAME, made, false).expect("it is new");
    file.write(0, &[7; LENGTH], false).expect("there is room");
    let (closed, has_closed) = mpsc::channel();
    let close: Then = Box::new(move || {
        let (ended, has_ended) = mpsc::channel();
        let closer = thread::spawn(move || {
            file.close().expect("it is open");
            let _ = ended.send(());
        });
        // It may have to wait for the removal.
        let _ = has_ended.recv_timeout(Duration::from_millis(200));
        closed.send(closer).expect("the test waits for it");
    });
    *then.lock().expect("nobody panicked") = Some(close);
    files.remove(ROOT, NAME, false).expect("it is there");
    has_closed.recv().expect("it was begun").join().expect("it is closed");
    files.sweep().expect("what may be deleted is");
    assert_eq!(read(&files, node.number).expect("the kernel holds it"), 7);
    files.forget(node.number).expect("it can be deleted");
    files.sweep().expect("it can be deleted");
    assert_eq!(read(&files, node.number).expect_err("it is gone"), Failure::of(Errno::STALE));
}

/// What one user looks for has the name all the time, and leads elsewhere behind his first look.
#[test]
fn a_listing_has_what_another_one_replaces_meanwhile() {
    let (tree, pairs) = delayed_tree();
    let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
    let one = files(Arc::new(Session::new(&tree)), &data, false);
    let other = files(Arc::new(Session::new(&tree)), &data, false);
    let make = |name: &[u8], kind| {
        let made = Made { kind, permissions: 0o644, ..Made::default() };
        other.make(ROOT, name, made).expect("it is new").number
    };
    let before = [&b"a"[..], b"b", b"c"].map(|name| make(name, Kind::File));
    let replaced = Arc::new(Mutex::new(Vec::new()));
    let then: Then = Box::new({
        let (other, replaced) = (Arc::clone(&other), Arc::clone(&replaced));
        move || {
            for name in [&b"a"[..], b"b"] {
                let made = Made { kind: Kind::Symlink, target: b"there", ..Made::default() };
                let node = other.make(ROOT, b"new", made).expect("it is new");
                let how = RenameHow::default();
                other.rename((ROOT, b"new"), (ROOT, name), how, (0, 0)).expect("both are there");
                replaced.lock().expect("nobody panicked").push(node.number);
            }
            other.remove(ROOT, b"c", false).expect("it is there");
        }
    });
    *pairs.then.lock().expect("nobody panicked") = Some(then);
    let listed = one.list(ROOT, 0, 10, true).expect("the directory is there");
    let after = replaced.lock().expect("nobody panicked").clone();
    assert_eq!(after.len(), 2, "it happened meanwhile");
    let mut is_new = 0;
    for (index, name) in [&b"a"[..], b"b"].into_iter().enumerate() {
        let entry = listed.iter().find(|entry| entry.name == name).expect("it is there");
        let node = entry.node.as_ref().expect("it is known");
        let kind = match entry.number {
            number if number == before[index] => Kind::File,
            _ => Kind::Symlink,
        };
        is_new += usize::from(entry.number == after[index]);
        assert_eq!((node.number, node.kind, entry.kind), (entry.number, kind, kind));
    }
    assert!(is_new >= 1, "one of them at least was looked at behind that");
    let position =
        |listed: &[Listed]| listed.iter().map(|entry| entry.position).collect::<Vec<_>>();
    let positions = position(&listed);
    assert!(positions.is_sorted(), "{positions:?}");
    let later = one.list(ROOT, positions[0], 10, true).expect("the directory is there");
    assert!(!position(&later).contains(&positions[0]), "it goes on behind it");
}

/// A file system behind whose pairs something happens.
fn delayed_tree() -> (Arc<Tree>, Arc<Layered<DelayedPairs>>) {
    let pairs = Arc::new(Layered(DelayedPairs::default()));
    let clock = SystemClock::default();
    Tree::create(&*pairs, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    let kv: Arc<dyn Kv> = pairs.clone();
    let tree = Tree::open(kv, FileClock::following(Arc::new(clock))).expect("it was just made");
    (tree, pairs)
}

#[test]
fn a_link_that_is_removed_meanwhile_is_gone_and_not_damaged() {
    let (tree, pairs) = delayed_tree();
    let session = Session::new(&tree);
    let made = Made { kind: Kind::Symlink, target: b"there", ..Made::default() };
    let made = session.call(&Request::Make { directory: ROOT, name: NAME, made });
    let Ok(Reply::Made { node, .. }) = made else { panic!("{made:?}") };
    // The first look finds the link, the second is for where it leads.
    let has_removed = Arc::new(OnceLock::new());
    let then: Then = Box::new({
        let has_removed = Arc::clone(&has_removed);
        move || {
            let (directory, name, is_directory) = (ROOT, NAME, false);
            let other = Session::new(&tree);
            let removed = other.call(&Request::Remove { directory, name, is_directory });
            has_removed.set(removed.is_ok()).expect("it happens once");
        }
    });
    *pairs.then.lock().expect("nobody panicked") = Some(then);
    let target = session.call(&Request::Target { number: node.number });
    assert_eq!(has_removed.get(), Some(&true));
    assert_eq!(target.expect_err("it is gone"), Failure::of(Errno::STALE));
}

/// Another user is told of the name before who makes the file has heard that it is there.
#[test]
fn a_file_that_is_removed_while_it_is_made_is_open_all_the_same() {
    let (tree, pairs) = delayed_tree();
    let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
    let one = files(Arc::new(Session::new(&tree)), &data, false);
    let other = files(Arc::new(Session::new(&tree)), &data, false);
    // Numbers are taken in runs: that is a change of its own.
    make(&other, 1);
    other.remove(ROOT, NAME, false).expect("it is there");
    let (removed, is_removed) = mpsc::channel();
    let then: Then = Box::new(move || {
        thread::spawn(move || removed.send(other.remove(ROOT, NAME, false)));
        // It may have to wait until the file is known to be open.
        if let Ok(outcome) = is_removed.recv_timeout(Duration::from_millis(200)) {
            outcome.expect("it is there");
        }
    });
    *pairs.changed.lock().expect("nobody panicked") = Some(then);
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (node, file) = one.create(ROOT, NAME, made, false).expect("it is new");
    while one.lookup(ROOT, NAME).is_ok() {
        thread::yield_now();
    }
    file.write(0, &[3; LENGTH], false).expect("it is open");
    let mut bytes = [0; LENGTH];
    assert_eq!(file.read(0, &mut bytes), Ok(LENGTH));
    assert_eq!(bytes, [3; LENGTH]);
    file.close().expect("it is open");
    assert_eq!(one.open(node.number, Access::Read).map(drop).expect_err("it is gone"), gone());
}

/// So often a file is made that others find, open and remove.
const ROUNDS: usize = 1500;

/// Another user removes what one makes and opens, while others of that one open it, too.
#[test]
fn who_makes_a_file_has_it_open_whoever_opens_and_removes_it() {
    let (one, _, other, objects) = two();
    let is_over = AtomicBool::new(false);
    let use_it = |users: &Arc<Files>| {
        let Ok(node) = users.lookup(ROOT, NAME) else { return };
        let opened = users.open(node.number, Access::Read);
        let _ = users.remove(ROOT, NAME, false);
        if let Ok((_, file)) = opened {
            file.close().expect("it is open");
        }
    };
    thread::scope(|scope| {
        for users in [&one, &one, &other] {
            scope.spawn(|| {
                let _end = End(&is_over);
                while !is_over.load(Ordering::Relaxed) {
                    use_it(users);
                }
            });
        }
        let _end = End(&is_over);
        make_often(&one, &is_over).expect("it is open");
    });
    let _ = one.remove(ROOT, NAME, false);
    one.close().expect("closes");
    other.close().expect("closes");
    assert_eq!(objects.space().expect("it knows").used_bytes, 0);
}

/// Ends a test for all who take part when one of them ends, or fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn make_often(files: &Arc<Files>, is_over: &AtomicBool) -> terrace_fs::Result<()> {
    let mut made = 0;
    while made < ROUNDS {
        assert!(!is_over.load(Ordering::Relaxed), "another one failed");
        let how = Made { kind: Kind::File, is_opened: true, ..Made::default() };
        let file = match files.create(ROOT, NAME, how, false) {
            Ok((_, file)) => file,
            // Nobody came to remove it so far.
            Err(failure) if failure.errno() == Errno::EXIST => {
                thread::yield_now();
                continue;
            }
            Err(failure) => return Err(failure),
        };
        made += 1;
        let byte = [made as u8];
        file.write(0, &byte, false)?;
        let mut read = [!byte[0]];
        assert_eq!((file.read(0, &mut read)?, read), (1, byte));
        file.close()?;
    }
    Ok(())
}

fn gone() -> Failure {
    Failure::of(Errno::STALE)
}

/// A file of a few bytes, open for writing.
fn small(files: &Arc<Files>) -> Arc<File> {
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (_, file) = files.create(ROOT, NAME, made, false).expect("it is new");
    file.write(0, b"before", false).expect("there is room");
    Arc::new(file)
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = [0xff; 100];
    let length = file.read(0, &mut bytes).expect("it is open");
    bytes[..length].to_vec()
}

#[test]
fn what_is_written_while_somebody_opens_the_file_is_read_by_all() {
    let (files, then) = alone();
    let writer = small(&files);
    let late = Arc::clone(&writer);
    let write: Then = Box::new(move || late.write(0, b"behind it", false).expect("it is open"));
    *then.lock().expect("nobody panicked") = Some(write);
    let (_, reader) = files.open(writer.number(), Access::Read).expect("it is there");
    assert_eq!(content(&writer), b"behind it");
    assert_eq!(content(&reader), b"behind it");
}

#[test]
fn what_is_written_behind_a_cut_is_there_when_that_is_heard_of() {
    let (files, then) = alone();
    let writer = small(&files);
    let late = Arc::clone(&writer);
    let write: Then = Box::new(move || late.write(4, b"x", false).expect("it is open"));
    *then.lock().expect("nobody panicked") = Some(write);
    let cut = Changes { size: Some(2), ..Changes::default() };
    files.change(writer.number(), cut).expect("it can be cut");
    assert_eq!(content(&writer), b"be\0\0x");
}
