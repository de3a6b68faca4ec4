// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several operations with one request.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use terrace::{Outcome, Semantics};

use crate::buffer::Input;
use crate::errors::{exception, instance};
use crate::handle::StoreHandle;
use crate::run::run;
use crate::stat::Stat;

/// The bytes stay when the call ends that adds them, so that they are the batch's own.
enum Operation {
    Create(String, Input),
    Write(String, u64, Input),
    Read(String, u64, usize),
    Stat(String),
    Delete(String),
}

/// Operations that are carried out together.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Batch {
    store: Arc<StoreHandle>,
    semantics: Semantics,
    operations: Mutex<Vec<Operation>>,
}

impl Batch {
    pub(crate) fn new(store: Arc<StoreHandle>, semantics: Semantics) -> Self {
        Self { store, semantics, operations: Mutex::default() }
    }

    fn push(&self, operation: Operation) {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }
}

#[pymethods]
impl Batch {
    fn create<'py>(
        this: PyRef<'py, Self>,
        name: String,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<PyRef<'py, Self>> {
        this.push(Operation::Create(name, Input::owned(data)?));
        Ok(this)
    }

    fn write<'py>(
        this: PyRef<'py, Self>,
        name: String,
        offset_bytes: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<PyRef<'py, Self>> {
        this.push(Operation::Write(name, offset_bytes, Input::owned(data)?));
        Ok(this)
    }

    fn read(
        this: PyRef<'_, Self>,
        name: String,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> PyRef<'_, Self> {
        this.push(Operation::Read(name, offset_bytes, length_bytes));
        this
    }

    fn stat(this: PyRef<'_, Self>, name: String) -> PyRef<'_, Self> {
        this.push(Operation::Stat(name));
        this
    }

    fn delete(this: PyRef<'_, Self>, name: String) -> PyRef<'_, Self> {
        this.push(Operation::Delete(name));
        this
    }

    fn __len__(&self) -> usize {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Carries the operations out and forgets them; one outcome each, in their order.
    fn run<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // Not locked while another thread has the GIL.
        let operations =
            std::mem::take(&mut *self.operations.lock().unwrap_or_else(PoisonError::into_inner));
        let operations = Arc::new(operations);
        let shared = operations.clone();
        let (store, semantics) = (self.store.clone(), self.semantics);
        let outcomes = run(py, &self.store, move || {
            let mut batch = store.store()?.batch().semantics(semantics);
            for operation in shared.iter() {
                batch = match operation {
                    Operation::Create(name, data) => batch.create(name, data.bytes()),
                    Operation::Write(name, offset, data) => {
                        batch.write(name, *offset, data.bytes())
                    }
                    Operation::Read(name, offset, length) => batch.read(name, *offset, *length),
                    Operation::Stat(name) => batch.stat(name),
                    Operation::Delete(name) => batch.delete(name),
                };
            }
            Ok(batch.run())
        });
        drop(operations);
        let outcomes = outcomes?;
        let results = PyList::empty(py);
        for outcome in outcomes {
            match outcome {
                Ok(Outcome::Done) => results.append(py.None())?,
                Ok(Outcome::Bytes(data)) => results.append(PyBytes::new(py, &data))?,
                Ok(Outcome::Stat(stat)) => results.append(Bound::new(py, Stat::from(stat))?)?,
                Err(error) => match instance(py, &error) {
                    Ok(instance) => results.append(instance)?,
                    Err(_) => return Err(exception(py, &error)),
                },
            }
        }
        Ok(results)
    }
}
