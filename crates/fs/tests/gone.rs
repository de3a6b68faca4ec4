// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and links that another user removes between two looks at them.

mod common;

use std::sync::{Arc, Mutex, OnceLock};

use rustix::io::Errno;
use terrace_backends::kv;
use terrace_backends::object::Memory;
use terrace_core::{
    Access, Backend, Kv, KvRange, Pair, Persistency, Result, SystemClock, Ticket, Txn,
};
use terrace_fs::{
    Failure, FileClock, Files, Kind, Made, Metadata, ROOT, Reply, Request, Session, Tree,
    TreeOptions,
};

use common::files;

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

/// Pairs behind whose next look something happens.
#[derive(Default)]
struct DelayedPairs {
    pairs: kv::Memory,
    then: Mutex<Option<Then>>,
}

impl Kv for DelayedPairs {
    fn target(&self) -> &str {
        self.pairs.target()
    }

    fn persistency(&self) -> Persistency {
        self.pairs.persistency()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.pairs.get(key);
        let then = self.then.lock().expect("nobody panicked").take();
        if let Some(then) = then {
            then();
        }
        value
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.pairs.scan(range, max)
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        self.pairs.transact(body)
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.pairs.wait(ticket)
    }
}

/// One user looks at a file, and another one removes it before the first asks its object.
fn look<T>(how: impl FnOnce(&Files, u64) -> terrace_fs::Result<T>) -> terrace_fs::Result<T> {
    let kv = Arc::new(kv::Memory::default());
    let clock = SystemClock::default();
    Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    let tree = Tree::open(kv, FileClock::following(Arc::new(clock))).expect("it was just made");
    let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
    let then = Arc::new(Mutex::new(None));
    let delayed = Delayed { session: Session::new(&tree), then: Arc::clone(&then) };
    let one = files(Arc::new(delayed), &data);
    let other = files(Arc::new(Session::new(&tree)), &data);
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

/// Two users of the same files, what happens behind the next answer to the first, and the objects.
fn two() -> (Arc<Files>, Next, Arc<Files>, Arc<Memory>) {
    let kv = Arc::new(kv::Memory::default());
    let clock = SystemClock::default();
    Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    let tree = Tree::open(kv, FileClock::following(Arc::new(clock))).expect("it was just made");
    let objects = Arc::new(Memory::new(1 << 20));
    let data: Arc<dyn Backend> = objects.clone();
    let then = Arc::new(Mutex::new(None));
    let delayed = Delayed { session: Session::new(&tree), then: Arc::clone(&then) };
    let one = files(Arc::new(delayed), &data);
    (one, then, files(Arc::new(Session::new(&tree)), &data), objects)
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
fn a_listing_tells_of_others_where_a_file_is_removed_meanwhile() {
    let listed = look(|files, _| files.list(ROOT, 0, 10, true)).expect("the directory is there");
    let [entry] = &listed[..] else { panic!("{} entries", listed.len()) };
    assert_eq!((&entry.name[..], entry.node.is_some()), (NAME, false));
}

#[test]
fn a_link_that_is_removed_meanwhile_is_gone_and_not_damaged() {
    let pairs = Arc::new(DelayedPairs::default());
    let clock = SystemClock::default();
    Tree::create(&*pairs, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    let kv: Arc<dyn Kv> = pairs.clone();
    let tree = Tree::open(kv, FileClock::following(Arc::new(clock))).expect("it was just made");
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
