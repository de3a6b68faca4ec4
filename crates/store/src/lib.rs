// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store: from a directory with settings to an open [`Store`].
//!
//! The crate `terrace` is above this one, for programs.
//!
//! A [`Store`] is a [`Backend`]: objects are opened, read and written through it, wherever their
//! bytes are. [`Store::admin`] shows and steers what it does with them. One process owns a store;
//! others that open it meanwhile work through the owner's control socket.

mod adopt;
mod backend;
mod companions;
mod control;
mod descriptors;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod init;
mod mend;
mod open;
mod owner;
mod pairs;
mod server;
mod store;
mod takeover;

pub use companions::{FilesUse, StoresSet};
pub use descriptors::make_room_for_descriptors;
pub use server::{ServerCall, ServerReport};
pub use store::{OpenOptions, PolicyWrapper, Store};
pub use terrace_admin::{Admin, Alone, FilesReport, Progress, Recording, Seen};
pub use terrace_fs::{Damage, DamageKind, Reached, TreeReport};
pub use terrace_recovery::TakenOver;
pub use terrace_server::{RequestsReport, Status as ServerStatus};
pub use terrace_settings::{Guest, PolicySource};

pub use terrace_core::{
    Access, Backend, BackendExt, Capability, Clock, Create, Cursor, Error, ErrorKind, FileLease,
    Hint, Key, Object, ObjectExt, Op, Open, Persistency, Policy, Reply, Request, Result, Semantics,
    Stat, SystemClock, Temperature,
};
pub use terrace_stack::report::{
    self, CheckReport, DecisionReport, Explanation, HistoryReport, LedgerReport, MoveReport,
    PolicyReport, Problem, QuotaReport, RecordingReport, ScrubReport, ScrubStatus, ScrubSummary,
    SegmentReport, ShadowReport, ShadowSide, TierReport, VersionReport,
};
pub use terrace_stack::{EventNotice, Happening, MigrationNotice, Notice, NoticeKind, WatchFilter};
pub use terrace_stack::{MoveKind, MoveTicket, ScrubOptions, Stack};
