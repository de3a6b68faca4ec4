// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that somebody has open, of whom the keeper of the metadata has not heard for too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, End, SystemClock};
use terrace_fs::{
    Changes, File, Files, Kind, Made, Metadata, ROOT, Reply, Request, Result, Session,
};

use crate::common::files;

/// Kept with the metadata, and kept in an object.
const LENGTHS: [usize; 2] = [100, 10_000];

/// Metadata that may have forgotten what is open.
struct Forgetful {
    session: Session,
    /// Whether the file that is open is gone.
    has_lost: AtomicBool,
    /// Whether that comes to light with the next request alone.
    is_unnoticed: AtomicBool,
}

impl Metadata for Forgetful {
    fn call(&self, request: &Request<'_>) -> Result<Reply> {
        let reply = self.session.call(request);
        self.is_unnoticed.store(false, Ordering::Release);
        reply
    }

    fn check(&self, _: u64) -> Result<()> {
        let is_known = !self.is_unnoticed.load(Ordering::Acquire);
        match self.has_lost.load(Ordering::Acquire) && is_known {
            true => Err(Errno::STALE.into()),
            false => Ok(()),
        }
    }

    fn check_to_close(&self, number: u64) -> Result<()> {
        self.check(number)
    }
}

/// A file of some length that is open, and is lost then.
fn lost(length: usize, is_unnoticed: bool) -> (Arc<Files>, File) {
    let tree = crate::common::tree(Arc::new(SystemClock::default()));
    let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
    let metadata = Arc::new(Forgetful {
        session: Session::new(&tree),
        has_lost: AtomicBool::new(false),
        is_unnoticed: AtomicBool::new(false),
    });
    let files = files(metadata.clone(), &data, false);
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (_, file) = files.create(ROOT, b"file", made, false).expect("it is new");
    file.write(0, &vec![7; length], false).expect("there is room");
    assert_eq!(file.object().is_some(), length > 4096);
    file.sync().expect("nothing is lost");
    metadata.is_unnoticed.store(is_unnoticed, Ordering::Release);
    metadata.has_lost.store(true, Ordering::Release);
    (files, file)
}

#[track_caller]
fn assert_stale<T>(done: Result<T>) {
    let failure = done.map(drop).expect_err("it is lost");
    assert_eq!(failure.errno(), Errno::STALE);
}

#[test]
fn nothing_can_be_done_with_an_open_file_that_is_lost() {
    for length in LENGTHS {
        let (files, file) = lost(length, false);
        assert_eq!(file.access(), Access::Write);
        assert_stale(file.read(0, &mut [0; 10]));
        assert_stale(file.write(0, b"x", false));
        assert_stale(file.write_some(0, b"x", false));
        assert_stale(file.append_some(length as u64, b"x", false));
        assert_stale(file.allocate(0..20_000, End::Grows, false));
        assert_stale(file.punch(0..10, false));
        assert_stale(file.sync());
        let changes = Changes { size: Some(10), ..Changes::default() };
        assert_stale(files.change(file.number(), changes));
        assert_stale(files.check_to_close(file.number()));
    }
}

#[test]
fn what_is_written_while_a_loss_comes_to_light_is_not_acknowledged() {
    for length in LENGTHS {
        let (_files, file) = lost(length, true);
        assert_stale(file.sync());
    }
    let (_files, file) = lost(LENGTHS[0], true);
    assert_stale(file.write(0, b"x", false));
}
