// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the objects of files that are gone are deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::object::Memory;
use terrace_core::{Backend, Clock, SystemClock};
use terrace_fs::{Files, Kind, Made, Metadata, ROOT, RenameHow, Reply, Request, Session};

use crate::common::files;

/// Longer than what is kept with the metadata.
const LENGTH: usize = 10_000;

/// Nothing that is waited for takes nearly as long.
const WAIT_TIME_MAX: Duration = Duration::from_secs(20);

/// Metadata that cannot be made durable yet.
struct Undurable {
    session: Session,
    is_durable: AtomicBool,
    /// The file whose removal it says, and loses with the power before that; 0 for none.
    undone: AtomicU64,
}

impl Metadata for Undurable {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        if matches!(request, Request::Sync) && !self.is_durable.load(Ordering::Acquire) {
            return Err(Errno::IO.into());
        }
        let undone = self.undone.load(Ordering::Acquire);
        if undone != 0 && matches!(request, Request::Remove { .. }) {
            let (number, directory) = (undone, None);
            let has_garbage = true;
            return Ok(Reply::Gone { number, has_garbage, directory, is_delegated: false });
        }
        self.session.call(request)
    }

    fn life(&self) -> u64 {
        let has_lost = self.undone.load(Ordering::Acquire) != 0;
        u64::from(has_lost && self.is_durable.load(Ordering::Acquire))
    }

    fn whole_since(&self) -> u64 {
        self.life()
    }
}

fn make(files: &Arc<Files>, name: &[u8]) -> u64 {
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let (node, file) = files.create(ROOT, name, made, false).expect("it is new");
    file.write(0, &vec![7; LENGTH], false).expect("there is room");
    file.close().expect("it is open");
    node.number
}

#[test]
fn an_object_goes_once_it_is_durable_that_no_name_leads_to_it() {
    for (is_alone, is_undone) in [(true, false), (false, false), (false, true)] {
        let tree = crate::common::tree(Arc::new(SystemClock::default()));
        let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
        let session = Session::new(&tree);
        let (is_durable, undone) = (AtomicBool::new(false), AtomicU64::new(0));
        let metadata = Arc::new(Undurable { session, is_durable, undone });
        let files = files(Arc::<Undurable>::clone(&metadata), &data, is_alone);
        let (removed, replaced) = (make(&files, b"removed"), make(&files, b"replaced"));
        make(&files, b"new");
        if is_undone {
            metadata.undone.store(removed, Ordering::Release);
        }
        files.remove(ROOT, b"removed", false).expect("it is there");
        let how = RenameHow::default();
        files.rename((ROOT, b"new"), (ROOT, b"replaced"), how, (0, 0)).expect("it is there");
        let is_there = |number| data.stat(&files.key(number).expect("it is one")).is_ok();
        // The power may still fail: both names would lead to them again.
        files.sweep().expect_err("it cannot be made durable");
        assert!(is_there(removed) && is_there(replaced), "alone: {is_alone}");
        metadata.is_durable.store(true, Ordering::Release);
        let clock = SystemClock::default();
        let end_ns = clock.now_ns() + WAIT_TIME_MAX.as_nanos() as u64;
        while files.sweep().is_err() && clock.now_ns() < end_ns {
            clock.sleep(Duration::from_millis(10));
        }
        assert_eq!(is_there(removed), is_undone, "alone: {is_alone}");
        assert!(!is_there(replaced), "alone: {is_alone}, {is_undone}");
    }
}
