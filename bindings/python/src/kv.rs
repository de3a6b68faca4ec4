// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value pairs of a namespace.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use terrace::{Persistency, Result};

use crate::buffer::Input;
use crate::handle::StoreHandle;
use crate::run::Course;

type Pair<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The key-value pairs of a namespace.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Kv {
    store: Arc<StoreHandle>,
    /// Its namespace.
    #[pyo3(get)]
    namespace: String,
    persistency: Persistency,
}

impl Kv {
    pub(crate) fn new(
        store: Arc<StoreHandle>,
        namespace: String,
        persistency: Option<&str>,
    ) -> Result<Self> {
        let persistency = persistency.map_or(Ok(Persistency::default()), str::parse)?;
        Ok(Self { store, namespace, persistency })
    }

    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        course: Course,
        work: impl FnOnce(terrace::Kv) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (store, namespace) = (self.store.clone(), self.namespace.clone());
        let persistency = self.persistency;
        course.run(py, move || work(store.store()?.kv(&namespace).persistency(persistency)))
    }
}

#[pymethods]
impl Kv {
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let course = Course::of(&self.store);
        let key = course.input(key)?;
        let shared = key.clone();
        let value = self.with(py, course, move |kv| kv.get(shared.bytes()));
        drop(key);
        let value = value?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let course = Course::of(&self.store);
        let (key, value) = (course.input(key)?, course.input(value)?);
        let shared = (key.clone(), value.clone());
        let done = self.with(py, course, move |kv| kv.put(shared.0.bytes(), shared.1.bytes()));
        drop((key, value));
        done
    }

    /// Removes a value; whether it was there.
    fn remove(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let course = Course::of(&self.store);
        let key = course.input(key)?;
        let shared = key.clone();
        let done = self.with(py, course, move |kv| kv.remove(shared.bytes()));
        drop(key);
        done
    }

    /// Changes pairs in their order and together; `None` removes.
    fn apply(&self, py: Python<'_>, changes: &Bound<'_, PyAny>) -> PyResult<()> {
        let course = Course::of(&self.store);
        let mut held = Vec::new();
        for change in changes.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Option<Bound<'_, PyAny>>) = change?.extract()?;
            let value = value.map(|value| course.input(&value)).transpose()?;
            held.push((course.input(&key)?, value));
        }
        let held = Arc::new(held);
        let shared = held.clone();
        let done = self.with(py, course, move |kv| {
            let changes: Vec<_> = shared
                .iter()
                .map(|(key, value)| (key.bytes(), value.as_ref().map(Input::bytes)))
                .collect();
            kv.apply(&changes)
        });
        drop(held);
        done
    }

    /// Up to `max` pairs whose keys begin with `prefix`, in order, behind the key `after`.
    #[pyo3(signature = (prefix = None, *, after = None, max = 1000))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<&Bound<'_, PyAny>>,
        after: Option<&Bound<'_, PyAny>>,
        max: usize,
    ) -> PyResult<Vec<Pair<'py>>> {
        let course = Course::of(&self.store);
        let prefix = prefix.map(|prefix| course.input(prefix)).transpose()?;
        let after = after.map(|after| course.input(after)).transpose()?;
        let shared = (prefix.clone(), after.clone());
        let pairs = self.with(py, course, move |kv| {
            let prefix = shared.0.as_ref().map_or(&[][..], Input::bytes);
            kv.scan(prefix, shared.1.as_ref().map(Input::bytes), max)
        });
        drop((prefix, after));
        let pairs = pairs?;
        let bytes = |data: &[u8]| PyBytes::new(py, data);
        Ok(pairs.iter().map(|(key, value)| (bytes(key), bytes(value))).collect())
    }
}
