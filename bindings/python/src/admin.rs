// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers, placement and migrations. Reports are passed as JSON; `python/terrace/_reports.py` has their classes.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use terrace::Result;

use crate::errors::exception;
use crate::handle::StoreHandle;
use crate::options::timeout;
use crate::run::run;

/// How long one wait for idleness takes before signals are looked for.
const PIECE: Duration = Duration::from_secs(1);

/// Shows and steers where objects are.
#[pyclass(frozen, subclass, module = "terrace._native")]
pub(crate) struct Admin {
    store: Arc<StoreHandle>,
}

impl Admin {
    pub(crate) fn new(store: Arc<StoreHandle>) -> Self {
        Self { store }
    }

    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(terrace::Admin) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let store = self.store.clone();
        run(py, &self.store, move || work(store.store()?.admin()))
    }
}

#[pymethods]
impl Admin {
    fn tiers_json(&self, py: Python<'_>) -> PyResult<String> {
        let tiers = self.with(py, |admin| admin.tiers())?;
        serde_json::to_string(&tiers).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn explain_json(&self, py: Python<'_>, name: String) -> PyResult<String> {
        let explanation = self.with(py, move |admin| admin.explain(&name))?;
        serde_json::to_string(&explanation)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn migrate(&self, py: Python<'_>, name: String, tier: String) -> PyResult<()> {
        self.with(py, move |admin| admin.migrate(&name, &tier))
    }

    fn promote(&self, py: Python<'_>, name: String, tier: String) -> PyResult<()> {
        self.with(py, move |admin| admin.promote(&name, &tier))
    }

    /// Blocks until no migration waits or runs; false where that took longer than `timeout_s`.
    #[pyo3(signature = (timeout_s = None))]
    fn wait_idle(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<bool> {
        let wanted = timeout(timeout_s).map_err(|error| exception(py, &error))?;
        let mut left = wanted.unwrap_or(Duration::MAX);
        loop {
            let piece = left.min(PIECE);
            if self.with(py, move |admin| admin.wait_idle(piece))? {
                return Ok(true);
            }
            left -= piece;
            if left.is_zero() {
                return Ok(false);
            }
            py.check_signals()?;
        }
    }

    fn pin(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.with(py, move |admin| admin.pin(&name))
    }

    fn unpin(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.with(py, move |admin| admin.unpin(&name))
    }

    #[pyo3(signature = (name, **parameters))]
    fn set_policy(
        &self,
        py: Python<'_>,
        name: String,
        parameters: Option<std::collections::BTreeMap<String, Py<PyAny>>>,
    ) -> PyResult<()> {
        let mut texts = Vec::new();
        for (parameter, value) in parameters.unwrap_or_default() {
            texts.push((parameter.replace('_', "-"), value.bind(py).str()?.to_string()));
        }
        self.with(py, move |admin| admin.set_policy(&name, &texts))
    }
}
