// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compiled part of the Python package `terrace`: the classes of the crate `terrace`, without what Python itself
//! can do better. `python/terrace` builds on it what programs use.

// Python is a C library: its buffers are pointers, and its bytes are filled after they were made.
#![allow(unsafe_code, reason = "calls into CPython")]

mod admin;
mod batch;
mod buffer;
mod collection;
mod errors;
mod fork;
mod handle;
mod kv;
mod list;
mod object;
mod options;
mod run;
mod stat;
mod store;
mod watch;

use pyo3::prelude::*;

/// The module `terrace._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::admin::Admin;
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::collection::Collection;
    #[pymodule_export]
    use crate::kv::Kv;
    #[pymodule_export]
    use crate::list::List;
    #[pymodule_export]
    use crate::object::Handle;
    #[pymodule_export]
    use crate::stat::Stat;
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::watch::Watch;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::fork::count_forks()?;
        crate::errors::load(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
