// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that another user removes between two looks at them.

mod common;

use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use terrace_backends::kv;
use terrace_backends::object::Memory;
use terrace_core::{Backend, SystemClock};
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

#[test]
fn a_listing_tells_of_others_where_a_file_is_removed_meanwhile() {
    let listed = look(|files, _| files.list(ROOT, 0, 10, true)).expect("the directory is there");
    let [entry] = &listed[..] else { panic!("{} entries", listed.len()) };
    assert_eq!((&entry.name[..], entry.node.is_some()), (NAME, false));
}
