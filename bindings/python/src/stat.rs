// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Size and times of an object.

use pyo3::prelude::*;

/// Size and times of an object.
#[pyclass(frozen, eq, get_all, module = "terrace")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Length.
    size_bytes: u64,
    /// Room taken on the medium.
    allocated_bytes: u64,
    /// When it was created, nanoseconds since 1970.
    created_ns: u64,
    /// When its bytes last changed, nanoseconds since 1970.
    modified_ns: u64,
    /// Whether it was created with a label.
    is_labelled: bool,
}

impl From<terrace::Stat> for Stat {
    fn from(stat: terrace::Stat) -> Self {
        Self {
            size_bytes: stat.size_bytes,
            allocated_bytes: stat.allocated_bytes,
            created_ns: stat.created_ns,
            modified_ns: stat.modified_ns,
            is_labelled: stat.is_labelled,
        }
    }
}

#[pymethods]
impl Stat {
    fn __repr__(&self) -> String {
        format!(
            "Stat(size_bytes={}, allocated_bytes={}, created_ns={}, modified_ns={}, is_labelled={})",
            self.size_bytes,
            self.allocated_bytes,
            self.created_ns,
            self.modified_ns,
            if self.is_labelled { "True" } else { "False" },
        )
    }
}
