// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Migrations of a file to and fro, counted by what the store tells of their ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock};
use terrace_store::{
    Happening, MigrationNotice, NoticeKind, OpenOptions, Seen, Store, WatchFilter,
};

const TIER: &str = "user.terrace.tier";

const TIERS: [&str; 2] = ["slow", "fast"];

/// Between two looks whether it is over.
const TICK: Duration = Duration::from_millis(20);

/// No migration of the files that are measured takes nearly as long; where a wish was granted and none
/// ends in this time, the file was there already.
const MOVE_TIME_MAX: Duration = Duration::from_secs(1);

/// Listens to a store that a mount or a server holds, and moves one file of it.
pub(super) struct Mover {
    ended: Receiver<MigrationNotice>,
    /// Where the file goes next.
    to: usize,
    is_over: Arc<AtomicBool>,
    listener: Option<JoinHandle<Result<()>>>,
}

/// Migrations that were done.
#[derive(Default)]
pub(super) struct Moves {
    /// Before it was over.
    pub(super) meanwhile: u64,
    /// What was on its way then: one at most.
    pub(super) late: u64,
}

impl Mover {
    /// Begins to listen to the store in this directory.
    pub(super) fn new(store: &Path) -> Result<Self> {
        let options = OpenOptions { access: Access::Read, serve: false, ..OpenOptions::default() };
        let store = Store::open_with(&store.display().to_string(), options)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (begun, has_begun) = mpsc::channel();
        let (sender, ended) = mpsc::channel();
        let until = Arc::clone(&is_over);
        let listener = std::thread::spawn(move || {
            let listened = listen(&store, &begun, &sender, &until);
            listened.and(store.close())
        });
        let mover = Self { ended, to: 0, is_over, listener: Some(listener) };
        match has_begun.recv() {
            Ok(()) => Ok(mover),
            Err(_) => Err(mover.end().err().unwrap_or_else(gone)),
        }
    }

    /// Moves the file, which nothing else moves, to and fro until `is_over`, and waits for the migration
    /// that is on its way then.
    pub(super) fn move_about(&mut self, file: &Path, is_over: &AtomicBool) -> Result<Moves> {
        let clock = SystemClock::default();
        let mut moves = Moves::default();
        while !is_over.load(Ordering::Acquire) {
            let was_asked = ask(file, TIERS[self.to])?;
            let asked_ns = clock.now_ns();
            let is_late =
                |longest: Duration| Duration::from_nanos(clock.now_ns() - asked_ns) >= longest;
            loop {
                match self.ended.recv_timeout(TICK) {
                    Ok(receipt) if receipt.outcome.as_deref() == Some("done") => {
                        match is_over.load(Ordering::Acquire) {
                            false => moves.meanwhile += 1,
                            true => moves.late += 1,
                        }
                        self.to = usize::from(receipt.to == TIERS[0]);
                        break;
                    }
                    // Too much was written meanwhile: it is tried again.
                    Ok(_) => break,
                    Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                    Err(RecvTimeoutError::Timeout) if !was_asked => break,
                    Err(RecvTimeoutError::Timeout) if is_late(MOVE_TIME_MAX) => {
                        self.to = 1 - self.to;
                        break;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
        }
        Ok(moves)
    }

    /// Listens no more.
    fn end(mut self) -> Result<()> {
        self.is_over.store(true, Ordering::Release);
        let listener = self.listener.take().expect("it is taken once");
        listener.join().expect("the listener does not panic")
    }
}

fn listen(
    store: &Store,
    begun: &Sender<()>,
    sender: &Sender<MigrationNotice>,
    is_over: &AtomicBool,
) -> Result<()> {
    let filter = WatchFilter { kinds: vec![NoticeKind::Migration], ..WatchFilter::default() };
    store.admin().watch(&filter, &mut |seen| {
        // The receiver was dropped: the measurement is over.
        match seen {
            Seen::Begun => begun.send(()).unwrap_or_default(),
            Seen::Nothing => {}
            Seen::Notice(notice) => match notice.what {
                Happening::Migration(one) if one.outcome.is_some() => {
                    sender.send(one).unwrap_or_default();
                }
                _ => {}
            },
        }
        !is_over.load(Ordering::Acquire)
    })
}

/// Asks for a migration; false where the file is on its way still, from when that was asked before.
fn ask(file: &Path, tier: &str) -> Result<bool> {
    match setxattr(file, TIER, tier.as_bytes(), XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::BUSY) => Ok(false),
        Err(errno) => Err(Error::from_io("move a file", errno.into()).with("tier", tier)),
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Io, "listen to a store").because("it tells nothing more")
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(listener) = self.listener.take() {
            // The waiter reports the error.
            let _ = listener.join();
        }
    }
}
