// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session: what one client has open, and the answers that it may not have got.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use terrace_core::{Access, Draft, Error, ErrorKind, Object, Result};

use crate::limits::Limits;
use crate::service::Kept;

/// What one client has open, and the answers that it may not have got. Outlives its connections
/// for a while, so that a client that connects again goes on where it was.
pub(crate) struct Session {
    pub(crate) access: Access,
    /// Tells it from a session of the same number that a client has lost.
    pub(crate) life: u64,
    handles_max: usize,
    replies_max: usize,
    replies_bytes_max: usize,
    /// What the service keeps for it. Before the objects, as all is dropped: others may wait for it, and
    /// closing an object may block.
    pub(crate) kept: Kept,
    handles: Mutex<HashMap<u64, Held>>,
    next_handle: AtomicU64,
    replies: Mutex<Replies>,
    finished: Condvar,
    /// Connections that use it now.
    pub(crate) connections: AtomicUsize,
    /// When the last of them ended.
    pub(crate) left_ns: AtomicU64,
}

/// What a client has open under a number.
pub(crate) struct Held {
    /// With a draft, which is discarded with this unless it was published.
    draft: Option<Arc<dyn Draft>>,
    object: Arc<dyn Object>,
}

impl From<Box<dyn Object>> for Held {
    fn from(object: Box<dyn Object>) -> Self {
        Self { draft: None, object: Arc::from(object) }
    }
}

impl From<Box<dyn Draft>> for Held {
    fn from(draft: Box<dyn Draft>) -> Self {
        let object = draft.object();
        Self { draft: Some(Arc::from(draft)), object }
    }
}

#[derive(Default)]
struct Replies {
    /// Requests up to here were answered, and the client has the answers.
    acknowledged: u64,
    /// By the number of the request; `None` while it is carried out.
    kept: BTreeMap<u64, Option<Arc<Vec<u8>>>>,
    /// Length of all of them.
    kept_bytes: usize,
}

impl Replies {
    /// Drops the answers that the client has.
    fn acknowledge(&mut self, acknowledged: u64) {
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            let later = self.kept.split_off(&acknowledged);
            let dropped = std::mem::replace(&mut self.kept, later);
            self.kept_bytes -= dropped.values().flatten().map(|frame| frame.len()).sum::<usize>();
        }
    }
}

/// What to do with a request that may have come before.
pub(crate) enum Turn {
    /// It is new: carry it out, then call [`Session::finish`].
    First,
    /// It was carried out: this is the frame of its answer.
    Again(Arc<Vec<u8>>),
}

impl Session {
    /// `life` is an unguessable number.
    pub(crate) fn new(access: Access, life: u64, limits: &Limits) -> Self {
        Self {
            access,
            life,
            handles_max: limits.handles_max,
            replies_max: limits.replies_max,
            replies_bytes_max: limits.replies_bytes_max,
            kept: Kept::new(access),
            handles: Mutex::default(),
            // A handle of a session that was lost is none of this one: a client that does not know
            // of the loss yet would use another object.
            next_handle: AtomicU64::new(life),
            replies: Mutex::default(),
            finished: Condvar::new(),
            connections: AtomicUsize::new(0),
            left_ns: AtomicU64::new(0),
        }
    }

    /// Keeps what `open` opens, under a number that is never given again.
    pub(crate) fn keep(&self, open: impl FnOnce() -> Result<Held>) -> Result<u64> {
        // A few more may come at the same time; the bound need not be sharp.
        if self.handles().len() >= self.handles_max {
            return Err(Error::new(ErrorKind::Busy, "open object")
                .because("the client has too many open")
                .with("objects_max", self.handles_max));
        }
        let held = open()?;
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles().insert(handle, held);
        Ok(handle)
    }

    pub(crate) fn handle(&self, handle: u64) -> Result<Arc<dyn Object>> {
        let object = self.handles().get(&handle).map(|held| Arc::clone(&held.object));
        object.ok_or_else(|| unknown(handle))
    }

    /// The draft under a number.
    pub(crate) fn draft(&self, handle: u64) -> Result<Arc<dyn Draft>> {
        let draft = self.handles().get(&handle).map(|held| held.draft.clone());
        draft.ok_or_else(|| unknown(handle))?.ok_or_else(|| {
            Error::invalid("publish a draft", "the object was opened, and is no draft")
                .with("handle", handle)
        })
    }

    /// Closes a handle. Dropped outside the lock: closing an object may block.
    pub(crate) fn close(&self, handle: u64) -> Result<()> {
        let closed = self.handles().remove(&handle);
        closed.map(drop).ok_or_else(|| unknown(handle))
    }

    pub(crate) fn handle_count(&self) -> usize {
        self.handles().len()
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<u64, Held>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request that changes something. One that came before, over a connection that
    /// broke, is waited for, and its answer is given again.
    ///
    /// # Errors
    ///
    /// `Stale` for one whose answer the client had, `Busy` with too many unacknowledged answers.
    pub(crate) fn begin(&self, id: u64, acknowledged: u64) -> Result<Turn> {
        let mut replies = self.replies();
        replies.acknowledge(acknowledged);
        loop {
            match replies.kept.get(&id) {
                Some(Some(frame)) => return Ok(Turn::Again(Arc::clone(frame))),
                Some(None) => {
                    replies = self.finished.wait(replies).unwrap_or_else(PoisonError::into_inner);
                }
                None if id < replies.acknowledged => {
                    return Err(Error::new(ErrorKind::Stale, "serve a request")
                        .because("it was answered before")
                        .with("request", id));
                }
                None => break,
            }
        }
        if replies.kept.len() >= self.replies_max || replies.kept_bytes >= self.replies_bytes_max {
            return Err(Error::new(ErrorKind::Busy, "serve a request")
                .because("the client acknowledges no answers")
                .with("answers_max", self.replies_max)
                .with("bytes_max", self.replies_bytes_max));
        }
        replies.kept.insert(id, None);
        Ok(Turn::First)
    }

    /// Refuses a request that [`Session::begin`] began and whose client has given it up since: it went
    /// on without the answer, and what it asked for later may be done already.
    ///
    /// # Errors
    ///
    /// `Stale`.
    pub(crate) fn check_wanted(&self, id: u64) -> Result<()> {
        match id < self.replies().acknowledged {
            true => Err(Error::new(ErrorKind::Stale, "serve a request")
                .because("the client gave it up before it had come whole")
                .with("request", id)),
            false => Ok(()),
        }
    }

    /// Whether an answer of this length is kept as a whole. The last quarter is left to the few words
    /// that are kept of others: a request that is new is carried out, although what was answered before
    /// it is long and not acknowledged.
    pub(crate) fn has_room(&self, frame_bytes: usize) -> bool {
        self.replies().kept_bytes + frame_bytes <= self.replies_bytes_max / 4 * 3
    }

    /// Ends a request that [`Session::begin`] began, with the frame of its answer.
    pub(crate) fn finish(&self, id: u64, frame: Arc<Vec<u8>>) {
        let mut replies = self.replies();
        // A client that acknowledges what it did not get has no use for it.
        if id >= replies.acknowledged {
            replies.kept_bytes += frame.len();
            replies.kept.insert(id, Some(frame));
        }
        drop(replies);
        self.finished.notify_all();
    }

    /// Ends a request that [`Session::begin`] began and that was not carried out: when it comes
    /// again, it is new.
    pub(crate) fn abandon(&self, id: u64) {
        let mut replies = self.replies();
        if matches!(replies.kept.get(&id), Some(None)) {
            replies.kept.remove(&id);
        }
        drop(replies);
        self.finished.notify_all();
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(handle: u64) -> Error {
    Error::new(ErrorKind::Stale, "use an object")
        .because("it is not open; open it again")
        .with("handle", handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let limits =
            Limits { handles_max: 2, replies_max: 2, replies_bytes_max: 10, ..Limits::default() };
        Session::new(Access::Write, 1, &limits)
    }

    #[test]
    fn a_request_that_comes_twice_is_carried_out_once() {
        let session = session();
        assert!(matches!(session.begin(5, 0).expect("new"), Turn::First));
        std::thread::scope(|scope| {
            let again = scope.spawn(|| session.begin(5, 0));
            session.finish(5, Arc::new(vec![1, 2]));
            match again.join().expect("no panic").expect("known") {
                Turn::Again(frame) => assert_eq!(*frame, [1, 2]),
                Turn::First => panic!("carried out twice"),
            }
        });
    }

    #[test]
    fn a_request_that_was_not_carried_out_may_come_again() {
        let session = session();
        assert!(matches!(session.begin(5, 0).expect("new"), Turn::First));
        std::thread::scope(|scope| {
            let again = scope.spawn(|| session.begin(5, 0));
            session.abandon(5);
            assert!(matches!(again.join().expect("no panic").expect("new"), Turn::First));
        });
        session.finish(5, Arc::new(vec![]));
        session.abandon(5);
        assert!(matches!(session.begin(5, 0).expect("known"), Turn::Again(_)), "it is kept");
    }

    #[test]
    fn answers_are_bounded_by_their_length() {
        let session = session();
        assert!(matches!(session.begin(1, 0).expect("new"), Turn::First));
        session.finish(1, Arc::new(vec![0; 10]));
        assert_eq!(session.begin(2, 0).err().expect("full").kind(), ErrorKind::Busy);
        assert!(matches!(session.begin(2, 2).expect("room"), Turn::First));
    }

    #[test]
    fn acknowledged_answers_are_dropped() {
        let session = session();
        for id in 1..=2 {
            assert!(matches!(session.begin(id, 0).expect("new"), Turn::First));
            session.finish(id, Arc::new(vec![]));
        }
        assert!(matches!(session.begin(3, 3).expect("new"), Turn::First));
        assert_eq!(session.begin(2, 0).err().expect("acknowledged").kind(), ErrorKind::Stale);
    }
}
