// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What several users ask of the tiers for one file.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use terrace_backends::object::Memory;
use terrace_core::{Backend, SystemClock};
use terrace_fs::{
    Files, Kind, Made, Marking, Marks, Metadata, ROOT, Reply, Request, Result, Session,
};

const ROOM: u64 = 1_000_000;

/// Of a user whom another one overtakes.
struct Overtaken {
    session: Session,
    /// Who marks the same file right before the first mark of this one gets there.
    other: Mutex<Option<Arc<Files>>>,
    /// Whether the server knows how one mark is set.
    is_known: bool,
}

impl Metadata for Overtaken {
    fn call(&self, request: &Request<'_>) -> Result<Reply> {
        if let Request::MarkOne { number, .. } = request {
            if let Some(other) = self.other.lock().expect("nobody panics").take() {
                other.mark(*number, &Marking::Hot(Some(true)))?;
            }
            if !self.is_known {
                return Err(Errno::INVAL.into());
            }
        }
        self.session.call(request)
    }
}

#[test]
fn what_two_set_at_once_stays() {
    // With a server of before, what the other one has set before it is asked again.
    for is_known in [true, false] {
        let tree = crate::common::tree(Arc::new(SystemClock::default()));
        let data: Arc<dyn Backend> = Arc::new(Memory::new(ROOM));
        let other = crate::common::files(Arc::new(Session::new(&tree)), &data, false);
        let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
        let number = other.make(ROOT, b"file", made).expect("there is room").number;
        other.mark(number, &Marking::Segment(Some(4096))).expect("it is a file");
        let session = Session::new(&tree);
        let overtaken =
            Overtaken { session, other: Mutex::new(Some(Arc::clone(&other))), is_known };
        let files = crate::common::files(Arc::new(overtaken), &data, false);
        files.node(number).expect("it is there");
        let marked = files.mark(number, &Marking::Pin(Some("slow".into()))).expect("it is a file");
        let expected = Marks {
            is_movable: None,
            pin: Some("slow".into()),
            is_hot: Some(true),
            segment_bytes: Some(4096),
        };
        assert_eq!(marked.marks, expected, "{is_known}");
        assert_eq!(other.node(number).expect("it is there").marks, expected, "{is_known}");
        // And one is taken back alone.
        let marked = other.mark(number, &Marking::Pin(None)).expect("it is a file");
        assert_eq!(marked.marks, Marks { pin: None, ..expected });
    }
}

#[test]
fn what_has_no_bytes_is_not_marked() {
    let session = Session::new(&crate::common::tree(Arc::new(SystemClock::default())));
    let made = Made { kind: Kind::Symlink, target: b"x", ..Made::default() };
    let made = session.call(&Request::Make { directory: ROOT, name: b"link", made });
    let Ok(Reply::Made { node, .. }) = made else { panic!("{made:?}") };
    let request = Request::MarkOne { number: node.number, marking: Marking::Hot(Some(true)) };
    assert_eq!(session.call(&request), Err(Errno::OPNOTSUPP.into()));
}
