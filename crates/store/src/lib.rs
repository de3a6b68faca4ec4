// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store: from a directory with settings to an open [`Store`]. What applications depend on.
//!
//! A [`Store`] is a [`Backend`]: objects are opened, read and written through it, wherever their
//! bytes are. [`Store::admin`] shows and steers what it does with them. One process owns a store;
//! others that open it meanwhile work through the owner's control socket.

mod adopt;
mod companions;
mod control;
mod descriptors;
mod face;
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
mod trees;

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
    ATOMIC_BYTES_MAX, Access, Action, ActionKind, Actions, Atomicity, Backend, BackendExt,
    BatchOrdering, Capability, Clock, Concurrency, Consistency, Create, Cursor, Error, ErrorKind,
    Event, EventKind, FileLease, GenerationWord, Hint, Key, Object, ObjectExt, Op, Open, Outcome,
    Page, Pair, Parameter, Persistency, Placed, Placement, Placer, Policy, ReadSummary, Reply,
    Request, Result, Semantics, Space, Stat, SystemClock, Temperature, TierIndex, View,
    execute_each, execute_strictly, units,
};
pub use terrace_stack::report::{
    self, BackupReport, CheckReport, DecisionReport, Explanation, HistoryReport, LedgerReport,
    MoveReport, ParameterReport, PolicyReport, Problem, QuotaReport, RebuildReport,
    RecordingReport, ScrubReport, ScrubStatus, ScrubSummary, SegmentReport, ShadowReport,
    ShadowSide, ShadowTier, TierReport, VersionReport,
};
pub use terrace_stack::{
    EventNotice, EventsNotice, Happening, MigrationNotice, Notice, NoticeKind, PolicyNotice,
    ScrubNotice, TierNotice, WatchFilter,
};
pub use terrace_stack::{
    MoveKind, MoveTicket, PairChange, Quota, QuotaExceeded, ScrubOptions, Stack,
};
