// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a source is mounted.

use std::time::Duration;

use terrace_fuse::MountOptions;

/// How a source is mounted.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// How the file system is mounted; reading only in any case.
    pub mount: MountOptions,
    /// How long names, attributes and listings may be taken for what they were.
    pub ttl: Duration,
    /// How long the source may take for one call.
    pub deadline: Duration,
    /// Threads that serve the kernel.
    pub threads: usize,
    /// Whether the kernel reads copies itself where it can.
    pub passes_through: bool,
}

impl SourceOptions {
    /// How old what is known may be by default: the longest that NFS clients cache attributes by default.
    pub const TTL: Duration = Duration::from_secs(60);
    /// How long the source may take for one call by default.
    pub const DEADLINE: Duration = Duration::from_secs(10);
}
