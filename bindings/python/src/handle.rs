// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open store, which a forked child opens anew.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use terrace::{Error, Result, Store};

use crate::errors::invalid;
use crate::fork::Owned;

/// What keeps a store open beside its handle.
pub(crate) trait User: Send + Sync {
    /// Drops what is open of the store.
    fn release(&self);

    /// Waits until the end of what the closing of the store ends.
    fn finish(&self) {}
}

/// An open store, and what uses it.
struct Live {
    store: Store,
    users: Mutex<Vec<Weak<dyn User>>>,
}

impl Live {
    fn users(&self) -> MutexGuard<'_, Vec<Weak<dyn User>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store and how to open it again.
pub(crate) struct StoreHandle {
    pub(crate) address: String,
    pub(crate) is_read_only: bool,
    live: ArcSwapOption<Owned<Live>>,
    is_attached: AtomicBool,
    is_closed: AtomicBool,
}

impl StoreHandle {
    pub(crate) fn open(address: String, is_read_only: bool) -> Result<Self> {
        let handle = Self {
            address,
            is_read_only,
            live: ArcSwapOption::empty(),
            is_attached: AtomicBool::new(true),
            is_closed: AtomicBool::new(false),
        };
        handle.live()?;
        Ok(handle)
    }

    /// The store, opened by this process.
    pub(crate) fn store(&self) -> Result<Store> {
        if let Some(live) = &*self.live.load()
            && live.is_own()
            && !self.is_closed()
        {
            return Ok(live.store.clone());
        }
        Ok(self.live()?.store.clone())
    }

    fn live(&self) -> Result<Arc<Owned<Live>>> {
        if self.is_closed() {
            return Err(self.closed());
        }
        if let Some(live) = self.live.load_full()
            && live.is_own()
        {
            return Ok(live);
        }
        let store = match self.is_read_only {
            true => Store::open_read_only(&self.address)?,
            false => Store::open(&self.address)?,
        };
        self.is_attached.store(store.is_attached(), Ordering::Relaxed);
        let live = Arc::new(Owned::new(Live { store, users: Mutex::default() }));
        self.live.store(Some(live.clone()));
        // Closed meanwhile by another thread: nothing stays open.
        if self.is_closed() {
            self.live.store(None);
            return Err(self.closed());
        }
        Ok(live)
    }

    /// Has `user` released when the store is closed.
    pub(crate) fn register(&self, user: Weak<dyn User>) -> Result<()> {
        let live = self.live()?;
        let mut users = live.users();
        if users.len() == users.capacity() {
            users.retain(|user| user.strong_count() > 0);
        }
        users.push(user);
        Ok(())
    }

    /// Whether operations are requests to another process.
    pub(crate) fn is_attached(&self) -> bool {
        self.is_attached.load(Ordering::Relaxed)
    }

    /// Whether operations may wait for another process: they are requests to it, or begin with opening the store.
    pub(crate) fn may_wait(&self) -> bool {
        self.is_attached() || !matches!(&*self.live.load(), Some(live) if live.is_own())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The error of what comes behind the end.
    pub(crate) fn closed(&self) -> Error {
        invalid("use the store", "it is closed").with("store", &self.address)
    }

    /// Closes the store, unless a process opened it that this one was forked from. The next owner may come once
    /// operations of other threads have ended.
    pub(crate) fn close(&self) -> Result<()> {
        self.is_closed.store(true, Ordering::Relaxed);
        let Some(live) = self.live.swap(None) else { return Ok(()) };
        if !live.is_own() {
            return Ok(());
        }
        let users: Vec<_> = live.users().drain(..).filter_map(|user| user.upgrade()).collect();
        users.iter().for_each(|user| user.release());
        let closed = live.store.close();
        users.iter().for_each(|user| user.finish());
        closed
    }
}
