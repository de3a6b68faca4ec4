// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listings.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use terrace::{Error, Result};

use crate::errors::{exception, invalid};
use crate::fork::Owned;
use crate::handle::{StoreHandle, User};
use crate::run::run;

/// Names that are fetched without the GIL at once; also those of one request.
const PAGE_NAMES: usize = 1000;

#[derive(Default)]
struct Page {
    names: VecDeque<String>,
    /// What comes behind them.
    error: Option<Error>,
}

/// A listing that is under way.
struct Names(ArcSwapOption<Owned<Mutex<terrace::List>>>);

impl Names {
    fn begin(store: &StoreHandle, prefix: &str) -> Result<Arc<Self>> {
        let names = Owned::new(Mutex::new(store.store()?.list(prefix)));
        let names = Arc::new(Self(ArcSwapOption::from_pointee(names)));
        let user: Weak<Self> = Arc::downgrade(&names);
        store.register(user)?;
        Ok(names)
    }
}

impl User for Names {
    fn release(&self) {
        self.0.store(None);
    }
}

/// Iterates over names.
#[pyclass(frozen, module = "terrace._native")]
pub(crate) struct List {
    store: Arc<StoreHandle>,
    names: Arc<Names>,
    page: Mutex<Page>,
}

impl List {
    pub(crate) fn begin(py: Python<'_>, store: Arc<StoreHandle>, prefix: String) -> PyResult<Self> {
        let opening = store.clone();
        let names = run(py, &store, move || Names::begin(&opening, &prefix))?;
        Ok(Self { store, names, page: Mutex::default() })
    }
}

#[pymethods]
impl List {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        // Held only for moments in which the GIL is held, too.
        let next = |page: &mut Page| match page.names.pop_front() {
            Some(name) => Some(Ok(name)),
            None => page.error.take().map(Err),
        };
        let mut found = next(&mut self.page.lock().unwrap_or_else(PoisonError::into_inner));
        if found.is_none() {
            let Some(names) = self.names.0.load_full() else {
                return Err(exception(py, &self.store.closed()));
            };
            if !names.is_own() {
                let reason = "the process that this one was forked from began it; list again";
                return Err(exception(py, &invalid("go on with a listing", reason)));
            }
            let fetched = run(py, &self.store, move || {
                let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                let mut page = Page::default();
                for entry in names.by_ref().take(PAGE_NAMES) {
                    match entry {
                        Ok(entry) => page.names.push_back(entry.name),
                        Err(error) => page.error = Some(error),
                    }
                }
                Ok(page)
            })?;
            let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
            page.names.extend(fetched.names);
            page.error = page.error.take().or(fetched.error);
            found = next(&mut page);
        }
        found.transpose().map_err(|error| exception(py, &error))
    }
}
