// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open store.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use terrace::Result;

use crate::admin::Admin;
use crate::batch::Batch;
use crate::collection::Collection;
use crate::errors::{exception, invalid};
use crate::handle::StoreHandle;
use crate::kv::Kv;
use crate::list::List;
use crate::object::{Handle, How, read_rest};
use crate::options::{options, semantics as parse_semantics};
use crate::run::{Course, run};
use crate::stat::Stat;
use crate::watch::Watch;

/// Bytes of the first read of a whole object: a smaller object needs no other request.
const FIRST_READ_BYTES: usize = 64 << 10;

thread_local! {
    static FIRST_READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What the first read of an object found.
enum First {
    Whole(Vec<u8>),
    Beginning(terrace::Object, u64, Vec<u8>),
}

/// An open store.
#[pyclass(frozen, subclass, module = "terrace._native")]
pub(crate) struct Store {
    handle: Arc<StoreHandle>,
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (address, *, read_only = false))]
    fn new(py: Python<'_>, address: PathBuf, read_only: bool) -> PyResult<Self> {
        let address = text(&address).map(absolute).map_err(|error| exception(py, &error))?;
        let handle = Course::opening()
            .run(py, move || StoreHandle::open(address, read_only).map(Arc::new))?;
        Ok(Self { handle })
    }

    /// Makes a store in a directory, with the configuration of `terrace init`.
    #[staticmethod]
    fn create(py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        let made = text(&directory).and_then(|path| py.detach(|| terrace::Store::create(path)));
        made.map_err(|error| exception(py, &error))
    }

    /// Its directory or its servers.
    #[getter]
    fn address(&self) -> &str {
        &self.handle.address
    }

    /// Whether it cannot be changed through this handle.
    #[getter]
    fn read_only(&self) -> bool {
        self.handle.is_read_only
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Whether another process or a server owns the store.
    fn is_attached(&self) -> bool {
        self.handle.is_attached()
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
        let course = Course::of(&self.handle);
        let data = course.input(data)?;
        let (handle, shared) = (self.handle.clone(), data.clone());
        let done =
            course.run(py, move || handle.store()?.put_with(&name, shared.bytes(), &options));
        drop(data);
        done
    }

    fn get<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyBytes>> {
        let handle = self.handle.clone();
        match run(py, &self.handle, move || first_read(&handle.store()?, &name))? {
            First::Whole(data) => Ok(PyBytes::new(py, &data)),
            First::Beginning(object, size_bytes, beginning) => {
                read_rest(py, &self.handle, object, 0, size_bytes, &beginning)
            }
        }
    }

    fn stat(&self, py: Python<'_>, name: String) -> PyResult<Stat> {
        let handle = self.handle.clone();
        run(py, &self.handle, move || handle.store()?.stat(&name)).map(Stat::from)
    }

    fn delete(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let handle = self.handle.clone();
        run(py, &self.handle, move || handle.store()?.delete(&name))
    }

    #[pyo3(signature = (prefix = String::new()))]
    fn list(&self, py: Python<'_>, prefix: String) -> PyResult<List> {
        List::begin(py, self.handle.clone(), prefix)
    }

    /// Opens an object in a mode: `read`, `open`, `create`, `create-new` or `replace`.
    #[pyo3(signature = (name, mode, *, semantics = None, hint = None, label = None, size_bytes = None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn open_handle(
        &self,
        py: Python<'_>,
        name: String,
        mode: &str,
        semantics: Option<&str>,
        hint: Option<&str>,
        label: Option<Vec<u8>>,
        size_bytes: Option<u64>,
    ) -> PyResult<Handle> {
        let asked = || Ok((How::parse(mode)?, options(semantics, hint, label, size_bytes)?));
        let (how, options) = asked().map_err(|error| exception(py, &error))?;
        Handle::open(py, self.handle.clone(), name, how, options)
    }

    #[pyo3(signature = (*, semantics = None))]
    fn batch(&self, py: Python<'_>, semantics: Option<&str>) -> PyResult<Batch> {
        let semantics = parse_semantics(semantics).map_err(|error| exception(py, &error))?;
        Ok(Batch::new(self.handle.clone(), semantics))
    }

    #[pyo3(signature = (namespace, *, persistency = None))]
    fn kv(&self, py: Python<'_>, namespace: String, persistency: Option<&str>) -> PyResult<Kv> {
        Kv::new(self.handle.clone(), namespace, persistency).map_err(|error| exception(py, &error))
    }

    fn collection(&self, py: Python<'_>, name: String) -> PyResult<Collection> {
        Collection::open(py, self.handle.clone(), name, false)
    }

    fn create_collection(&self, py: Python<'_>, name: String) -> PyResult<Collection> {
        Collection::open(py, self.handle.clone(), name, true)
    }

    /// The names of the collections that begin with `prefix`, in order.
    #[pyo3(signature = (prefix = String::new()))]
    fn collections(&self, py: Python<'_>, prefix: String) -> PyResult<Vec<String>> {
        let handle = self.handle.clone();
        run(py, &self.handle, move || handle.store()?.collections(&prefix).collect())
    }

    /// Removes a collection without items, or with all of them.
    #[pyo3(signature = (name, *, with_items = false))]
    fn delete_collection(&self, py: Python<'_>, name: String, with_items: bool) -> PyResult<()> {
        let handle = self.handle.clone();
        run(py, &self.handle, move || handle.store()?.delete_collection(&name, with_items))
    }

    fn native_admin(&self) -> Admin {
        Admin::new(self.handle.clone())
    }

    fn native_watch(&self, py: Python<'_>) -> PyResult<Watch> {
        Watch::begin(py, &self.handle)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle.clone();
        run(py, &self.handle, move || handle.store()?.sync())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // What is closed as far as it goes needs no thread of its own.
        py.detach(|| self.handle.close()).map_err(|error| exception(py, &error))
    }
}

fn first_read(store: &terrace::Store, name: &str) -> Result<First> {
    let object = store.object(name)?.read()?;
    let beginning = FIRST_READ.with_borrow_mut(|buffer| {
        buffer.resize(FIRST_READ_BYTES, 0);
        object.read_at(0, buffer).map(|count| buffer[..count].to_vec())
    })?;
    if beginning.len() < FIRST_READ_BYTES {
        return Ok(First::Whole(beginning));
    }
    let size_bytes = object.len()?;
    Ok(First::Beginning(object, size_bytes, beginning))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| invalid("open the store", "its address is not UTF-8"))
}

/// An address that means the same in every directory.
fn absolute(address: &str) -> String {
    if address.starts_with("terrace+") || address.contains("://") {
        return address.into();
    }
    let path = std::path::absolute(address).ok();
    path.and_then(|path| path.to_str().map(Into::into)).unwrap_or_else(|| address.into())
}
