// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What recovery needs of a store that this process has open.

use std::sync::{Arc, Mutex};

use terrace_core::{Access, Clock};
use terrace_settings::{Directory, Lock, Settings};
use terrace_stack::Stack;

/// A store that this process has open: its stack, and where that comes from.
pub struct Opened {
    /// Its tiers, catalog and policy.
    pub stack: Stack,
    /// The clock of the process.
    pub clock: Arc<dyn Clock>,
    /// Its directory.
    pub directory: Directory,
    /// What it was opened for.
    pub access: Access,
    /// As they were when the store was opened.
    pub settings: Settings,
    /// Held while a checkpoint is written, and while a tier is removed.
    pub saving: Mutex<()>,
    /// The last field: the next owner may come once everything else is gone.
    pub lock: Lock,
}
