// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collections of items.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use terrace::Result;

use crate::errors::exception;
use crate::fork::Owned;
use crate::handle::{StoreHandle, User};
use crate::options::options;
use crate::run::{Course, run};
use crate::stat::Stat;

/// A collection, which a forked child opens anew.
struct Source {
    store: Arc<StoreHandle>,
    name: String,
    opened: ArcSwapOption<Owned<terrace::Collection>>,
}

impl Source {
    fn collection(self: &Arc<Self>) -> Result<terrace::Collection> {
        if let Some(opened) = self.opened.load_full()
            && opened.is_own()
            && !self.store.is_closed()
        {
            return Ok(terrace::Collection::clone(&opened));
        }
        let opened = self.store.store()?.collection(&self.name)?;
        self.keep(&opened)?;
        Ok(opened)
    }

    /// Keeps what this process opened until the store is closed.
    fn keep(self: &Arc<Self>, opened: &terrace::Collection) -> Result<()> {
        self.opened.store(Some(Arc::new(Owned::new(opened.clone()))));
        let user: Weak<Self> = Arc::downgrade(self);
        let kept = self.store.register(user);
        if kept.is_err() || self.store.is_closed() {
            self.release();
        }
        kept
    }
}

impl User for Source {
    fn release(&self) {
        self.opened.store(None);
    }
}

/// A set of items.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Collection {
    source: Arc<Source>,
}

impl Collection {
    pub(crate) fn open(
        py: Python<'_>,
        store: Arc<StoreHandle>,
        name: String,
        is_new: bool,
    ) -> PyResult<Self> {
        let source = Arc::new(Source { store, name, opened: ArcSwapOption::empty() });
        let opening = source.clone();
        run(py, &source.store, move || {
            if is_new {
                opening.keep(&opening.store.store()?.create_collection(&opening.name)?)
            } else {
                opening.collection().map(drop)
            }
        })?;
        Ok(Self { source })
    }

    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(terrace::Collection) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let source = self.source.clone();
        run(py, &self.source.store, move || work(source.collection()?))
    }
}

#[pymethods]
impl Collection {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.source.name
    }

    #[pyo3(signature = (name, data, *, semantics = None, hint = None, label = None))]
    fn put(
        &self,
        py: Python<'_>,
        name: String,
        data: &Bound<'_, PyAny>,
        semantics: Option<&str>,
        hint: Option<&str>,
        label: Option<Vec<u8>>,
    ) -> PyResult<()> {
        let options =
            options(semantics, hint, label, None).map_err(|error| exception(py, &error))?;
        let course = Course::of(&self.source.store);
        let data = course.input(data)?;
        let (source, shared) = (self.source.clone(), data.clone());
        let done =
            course.run(py, move || source.collection()?.put(&name, shared.bytes(), &options));
        drop(data);
        done
    }

    fn get<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyBytes>> {
        let data = self.with(py, move |collection| collection.get(&name))?;
        Ok(PyBytes::new(py, &data))
    }

    fn stat(&self, py: Python<'_>, name: String) -> PyResult<Stat> {
        self.with(py, move |collection| collection.stat(&name)).map(Stat::from)
    }

    /// The full name of the object with the bytes of an item.
    fn object_name(&self, py: Python<'_>, name: String) -> PyResult<String> {
        self.with(py, move |collection| collection.object_name(&name))
    }

    /// Makes an empty item where there is none; returns the full name of its object.
    #[pyo3(signature = (name, *, semantics = None, hint = None, label = None))]
    fn create(
        &self,
        py: Python<'_>,
        name: String,
        semantics: Option<&str>,
        hint: Option<&str>,
        label: Option<Vec<u8>>,
    ) -> PyResult<String> {
        let options =
            options(semantics, hint, label, None).map_err(|error| exception(py, &error))?;
        self.with(py, move |collection| {
            collection.create(&name, &options)?;
            collection.object_name(&name)
        })
    }

    /// The names of the items that begin with `prefix`, in order.
    #[pyo3(signature = (prefix = String::new()))]
    fn list(&self, py: Python<'_>, prefix: String) -> PyResult<Vec<String>> {
        self.with(py, move |collection| collection.list(&prefix).collect())
    }

    fn delete(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.with(py, move |collection| collection.delete(&name))
    }

    fn __repr__(&self) -> String {
        format!("<terrace.Collection {:?}>", self.source.name)
    }
}
