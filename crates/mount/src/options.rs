// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a file system is mounted.

use std::sync::Arc;
use std::time::Duration;

use terrace_fuse::{MountOptions, Mounter};

use crate::requests::Requests;

/// What reads and writes the tiers' files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// The kernel, except for files that are marked movable and for those that cannot.
    #[default]
    Auto,
    /// The kernel wherever it can, except for files that are marked movable.
    Passthrough,
    /// This process.
    Served,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Options that every file system has.
    pub mount: MountOptions,
    /// Where another process is waited for that mounts.
    pub mounter: Option<Arc<Mounter>>,
    /// What reads and writes.
    pub io: IoMode,
    /// Threads that serve.
    pub threads: usize,
    /// Whether requests are to come over `io_uring`, where the kernel offers it.
    pub uring: bool,
    /// How long the kernel may believe names and attributes.
    pub cached_for: Duration,
    /// Whether other clients use the same files.
    pub is_shared: bool,
    /// Whether the kernel keeps nothing, so that each operation sees what others did before it.
    pub is_strict: bool,
    /// Counts the kernel's requests, where they are to be counted.
    pub requests: Option<Arc<Requests>>,
}
