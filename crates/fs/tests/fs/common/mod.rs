// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of files that several use have in common.

use std::sync::Arc;
use std::time::Duration;

use terrace_backends::kv;
use terrace_core::{Access, Backend, Clock, Persistency, Semantics, SystemClock};
use terrace_fs::{FileClock, Files, FilesOptions, Metadata, Tree, TreeOptions};

/// The metadata of a new file system in memory.
pub(crate) fn tree(clock: Arc<dyn Clock>) -> Arc<Tree> {
    let kv = Arc::new(kv::Memory::default());
    Tree::create(&*kv, &TreeOptions::default(), &*clock, &[7; 32]).expect("it is empty");
    Tree::open(kv, FileClock::following(clock)).expect("it was just made")
}

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
        space: None,
    }
}
