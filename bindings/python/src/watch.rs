// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens in a store, as an iterator. Notices are passed as JSON.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use terrace::{Error, Notice};

use crate::errors::{exception, invalid};
use crate::fork::Owned;
use crate::handle::{StoreHandle, User};
use crate::options::timeout;
use crate::run::run;

/// Notices that the program may be behind; the store counts those that it drops then.
const NOTICES_MAX: usize = 1024;

/// How long a signal, or the end, may go unnoticed.
const DELAY_MAX: Duration = Duration::from_millis(50);

enum Seen {
    Begun,
    Notice(Box<Notice>),
    Failed(Error),
}

/// What ends the thread that watches.
struct Watcher {
    store: Arc<StoreHandle>,
    is_closed: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watcher {
    fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.store.is_closed()
    }
}

impl User for Watcher {
    fn release(&self) {}

    fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The store is closed: it has ended, or is about to.
        let _ = thread.map(JoinHandle::join);
    }
}

/// Iterates over notices until it is closed.
#[pyclass(frozen, module = "terrace._native")]
pub(crate) struct Watch {
    received: Owned<Mutex<Receiver<Seen>>>,
    watcher: Arc<Watcher>,
}

impl Watch {
    /// Begins; what happens from the return on is seen.
    pub(crate) fn begin(py: Python<'_>, handle: &Arc<StoreHandle>) -> PyResult<Self> {
        let (sender, received) = sync_channel(NOTICES_MAX);
        let watcher = Arc::new(Watcher {
            store: handle.clone(),
            is_closed: AtomicBool::new(false),
            thread: Mutex::default(),
        });
        let user: Weak<Watcher> = Arc::downgrade(&watcher);
        let opening = handle.clone();
        let store = run(py, handle, move || {
            let store = opening.store()?;
            opening.register(user)?;
            Ok(store)
        })?;
        let own = watcher.clone();
        let thread = std::thread::Builder::new().name("terrace-watch".into()).spawn(move || {
            let mut has_begun = false;
            let watched = store.watch(&mut |notice| {
                if !has_begun {
                    has_begun = true;
                    if !send(&sender, Seen::Begun, &own) {
                        return false;
                    }
                }
                match notice {
                    Some(notice) => send(&sender, Seen::Notice(Box::new(notice)), &own),
                    None => !own.is_over(),
                }
            });
            // The next owner may come.
            drop(store);
            if let Err(error) = watched {
                // Where there is no room the program learns of the end by the channel's.
                let _ = sender.try_send(Seen::Failed(error));
            }
        })?;
        *watcher.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        let received = Owned::new(Mutex::new(received));
        let watch = Self { received, watcher };
        match watch.next(py, None)? {
            Some(Seen::Begun) | None => Ok(watch),
            Some(Seen::Failed(error)) => Err(exception(py, &error)),
            Some(Seen::Notice(_)) => Err(PyRuntimeError::new_err("a notice came before the first")),
        }
    }

    /// What comes next; `None` once it is closed, or where nothing came in time.
    fn next(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<Seen>> {
        let mut left = timeout;
        loop {
            if self.closed() {
                return Ok(None);
            }
            let piece = left.map_or(DELAY_MAX, |left| left.min(DELAY_MAX));
            let seen = py.detach(|| {
                self.received.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(piece)
            });
            match seen {
                Ok(seen) => return Ok(Some(seen)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
            if let Some(left) = &mut left {
                *left -= piece;
                if left.is_zero() {
                    return Ok(None);
                }
            }
        }
    }
}

/// Sends unless the watch is closed, whenever there is room.
fn send(sender: &SyncSender<Seen>, seen: Seen, watcher: &Watcher) -> bool {
    let mut seen = seen;
    while !watcher.is_over() {
        match sender.try_send(seen) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(back)) => seen = back,
        }
        std::thread::park_timeout(DELAY_MAX);
    }
    false
}

#[pymethods]
impl Watch {
    /// The next notice as JSON; `None` once it is closed, or where none came in `timeout_s`.
    #[pyo3(signature = (timeout_s = None))]
    fn next_json(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Option<String>> {
        if !self.received.is_own() {
            let reason = "the process that this one was forked from began it; watch again";
            return Err(exception(py, &invalid("watch the store", reason)));
        }
        let timeout = timeout(timeout_s).map_err(|error| exception(py, &error))?;
        match self.next(py, timeout)? {
            None | Some(Seen::Begun) => Ok(None),
            // The program closed the store: that is an end, too.
            Some(Seen::Failed(_)) if self.watcher.store.is_closed() => Ok(None),
            Some(Seen::Failed(error)) => {
                self.close();
                Err(exception(py, &error))
            }
            Some(Seen::Notice(notice)) => serde_json::to_string(&notice)
                .map(Some)
                .map_err(|error| PyRuntimeError::new_err(error.to_string())),
        }
    }

    #[getter]
    fn closed(&self) -> bool {
        self.watcher.is_closed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.watcher.is_closed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.close();
    }
}
