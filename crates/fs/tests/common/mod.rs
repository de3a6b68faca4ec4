// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of files that several use have in common.

use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Access, Backend, Clock, Persistency, Semantics, SystemClock};
use terrace_fs::{Files, FilesOptions, Metadata};

/// A user of a file system, which may be the only one.
pub(crate) fn files(
    metadata: Arc<dyn Metadata>,
    data: &Arc<dyn Backend>,
    is_alone: bool,
) -> Arc<Files> {
    files_with(metadata, data, is_alone, Arc::new(SystemClock::default()))
}

/// The same with another clock.
pub(crate) fn files_with(
    metadata: Arc<dyn Metadata>,
    data: &Arc<dyn Backend>,
    is_alone: bool,
    clock: Arc<dyn Clock>,
) -> Arc<Files> {
    Files::new(metadata, Arc::clone(data), clock, options(is_alone)).expect("opens")
}

/// How they use it.
pub(crate) fn options(is_alone: bool) -> FilesOptions {
    FilesOptions {
        namespace: "files".into(),
        semantics: Semantics { persistency: Persistency::None, ..Semantics::DEFAULT },
        ready_objects: 0,
        is_alone,
        access: Access::Write,
        believed_for: if is_alone { Duration::MAX } else { Duration::from_secs(1) },
        inline_bytes_max: 4096,
    }
}
