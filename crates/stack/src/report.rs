// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stack tells about itself; every type is data that can cross a socket.

use serde::{Deserialize, Serialize};
use terrace_core::{ErrorKind, LatencyReport, Parameter};

/// A tier as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierReport {
    /// Its name in the configuration.
    pub name: String,
    /// Where it is, for example `file:/scratch/t1`.
    pub target: String,
    /// Why it cannot be used; `None` when it is online.
    pub offline: Option<String>,
    /// Whether it takes new data.
    pub is_writable: bool,
    /// How far it is emptied, where it is drained.
    #[serde(default)]
    pub drain: Option<DrainReport>,
    /// The strongest level it gives.
    pub persistency: String,
    /// How its files are written: `in-place`, or `whole` where each is written once.
    #[serde(default = "in_place")]
    pub writes: String,
    /// Whether its objects are compressed or encrypted: what they take is accounted, not their length.
    #[serde(default)]
    pub packed: bool,
    /// What it may hold; `None` without a bound.
    pub capacity_bytes: Option<u64>,
    /// Bytes of primaries.
    pub used_bytes: u64,
    /// Bytes promised to growing objects and running migrations.
    pub reserved_bytes: u64,
    /// Bytes of clean copies.
    pub copy_bytes: u64,
    /// Bytes that are superseded and not yet deleted.
    pub garbage_bytes: u64,
    /// Bytes of versions: superseded or deleted, and kept for a time.
    #[serde(default)]
    pub kept_bytes: u64,
    /// For how long; `None` where nothing is kept.
    #[serde(default)]
    pub keep_deleted_ns: Option<u64>,
    /// Primary segments.
    pub segments: u64,
    /// Latency as configured.
    pub latency_ns: u64,
    /// Read bandwidth as configured; `None` where it is not.
    pub read_bytes_per_s: Option<f64>,
    /// Write bandwidth as configured; `None` where it is not.
    pub write_bytes_per_s: Option<f64>,
    /// Power when nothing happens.
    pub idle_w: f64,
    /// Power when busy.
    pub active_w: f64,
    /// What its provider charges, in the currency of the user: for 1000 requests that write, …
    #[serde(default)]
    pub price_per_1000_write_requests: f64,
    /// … for 1000 that read, …
    #[serde(default)]
    pub price_per_1000_read_requests: f64,
    /// … for 10^9 bytes stored for a month of 730 hours, …
    #[serde(default)]
    pub price_per_gb_month: f64,
    /// … and for 10^9 bytes read.
    #[serde(default)]
    pub price_per_gb_read: f64,
    /// Fill levels as fractions of capacity: low, high, critical.
    pub watermarks: [f64; 3],
    /// What was done on it since the store was opened.
    pub ledger: LedgerReport,
    /// Modelled energy since the store was opened: idle power over the time, plus the rest of the
    /// active power over the busy time.
    pub modelled_energy_j: f64,
}

fn in_place() -> String {
    terrace_core::Writes::InPlace.word().into()
}

/// How far a tier is emptied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReport {
    /// Whether nothing is left.
    pub is_done: bool,
    /// Primary segments that are left.
    pub segments: u64,
    /// Bytes that are left, of all classes.
    pub bytes: u64,
    /// Segments that could not move when all were last tried; they are tried again.
    pub stuck_segments: u64,
    /// The first of them.
    pub stuck: Vec<Stuck>,
}

/// A segment that cannot leave a tier that is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// The object.
    pub key: String,
    /// Which of its segments.
    pub segment: u32,
    /// Why: how its migration ended.
    pub reason: String,
}

/// Where time went since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerReport {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, appends and changes of length.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that operations spent in the backend.
    pub device_ns: u64,
    /// Time that writers waited for a migration's switch.
    pub migration_wait_ns: u64,
    /// Time that operations waited for locks and room.
    pub guard_wait_ns: u64,
    /// Time that operations waited for durability.
    pub sync_ns: u64,
    /// Migrations that ended here.
    pub moves_in: u64,
    /// Migrations that began here.
    pub moves_out: u64,
    /// Bytes that migrations wrote here.
    pub moved_in_bytes: u64,
    /// Bytes that migrations read here.
    pub moved_out_bytes: u64,
    /// Time that migrations spent in the backend.
    pub move_device_ns: u64,
}

/// How long operations and waits of a tier took, and what failed, since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierLatencies {
    /// The tier.
    pub tier: String,
    /// Reads, in the backend. Those that clients did past the store count with their mean.
    pub reads: LatencyReport,
    /// Writes, appends and changes of length, in the backend.
    pub writes: LatencyReport,
    /// Writes that waited for a migration's switch.
    pub migration_waits: LatencyReport,
    /// Waits for durability.
    pub syncs: LatencyReport,
    /// Reads, writes and syncs that the backend failed, by kind.
    pub errors: Vec<(ErrorKind, u64)>,
}

/// Migrations since the store was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MigrationsReport {
    /// Those that wait or run.
    pub active: u64,
    /// Those that have ended, by what they were: combinations that there were.
    pub ended: Vec<EndedMigrations>,
    /// Those that have run, by tiers.
    pub pairs: Vec<PairOfTiers>,
}

/// Migrations of a kind that ended alike.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedMigrations {
    /// The tier they left, or copied from.
    pub from: String,
    /// The tier they went to.
    pub to: String,
    /// `move`, `promote`, `copy`, `drop-copy`, `drain`.
    pub action: &'static str,
    /// As [`terrace_core::Outcome::word`].
    pub outcome: &'static str,
    /// How many.
    pub count: u64,
    /// Bytes that they copied, also where they did not come to their end.
    pub copied_bytes: u64,
}

/// What migrations took between two tiers.
#[derive(Clone, Debug, PartialEq)]
pub struct PairOfTiers {
    /// The tier they left, or copied from.
    pub from: String,
    /// The tier they went to.
    pub to: String,
    /// How long those took that were begun.
    pub durations: LatencyReport,
    /// Modelled energy of both devices over that time.
    pub modelled_energy_j: f64,
}

/// What is wrong with a store that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The catalog failed in the middle of a change: nothing may be written until the store is
    /// opened again.
    pub is_broken: bool,
    /// A sync failed since the store was opened.
    pub has_failed_sync: bool,
    /// The disk of the catalog has room only for what makes room.
    pub lacks_room: bool,
}

/// Where a segment is, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentReport {
    /// Its index in the object.
    pub segment: u32,
    /// Where it begins in the object.
    pub start_bytes: u64,
    /// Its length.
    pub size_bytes: u64,
    /// What its bytes take of the tier and of a quota: less than the length where it has holes, or its tier
    /// packs.
    #[serde(default)]
    pub allocated_bytes: u64,
    /// Whether it is compressed or encrypted there.
    #[serde(default)]
    pub packed: bool,
    /// Room behind its end that was promised to it.
    #[serde(default)]
    pub promised_bytes: u64,
    /// The tier of its primary.
    pub tier: String,
    /// The tiers with clean copies.
    pub copies: Vec<String>,
    /// Number of its location.
    pub generation: u64,
    /// The name of the file that holds it, in the tier.
    pub stored_as: String,
    /// The path of that file below the directory of its tier, where that is one.
    #[serde(default)]
    pub path: Option<String>,
    /// The migration that waits or runs.
    pub moving: Option<MoveReport>,
    /// How it is held in its file, and so does not move: `reading`, `writing`, or `left`, where
    /// there is no holder any more and the file can still be written to.
    #[serde(default)]
    pub held: Option<String>,
    /// What was done to it, newest last; bounded.
    pub history: Vec<HistoryReport>,
}

/// Why a segment is where it is: one past decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// When, nanoseconds since 1970.
    pub wall_ns: u64,
    /// What decided: `placer`, `policy lru`, `user`, `stack`.
    pub by: String,
    /// What happened: `placed`, `moved`, `copied`, `spilled`, `dropped copy`, `refused: …`.
    pub what: String,
    /// The tier it went to.
    pub tier: String,
    /// The reason that was given.
    pub reason: String,
    /// Bytes that were copied.
    pub bytes: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Modelled energy of both devices over the time they were busy with it.
    pub modelled_energy_j: f64,
    /// The tier it left, or was copied from; `None` where it came from none.
    #[serde(default)]
    pub from: Option<String>,
    /// Seconds that the policy expected to save by it; `None` where it named none.
    #[serde(default)]
    pub expected_benefit_s: Option<f64>,
    /// Seconds that were saved by it until the next move, or until the store was closed: what
    /// `accesses` would have taken on the tier before – by its figures, times how much more or less
    /// than its figures say that tier has taken since the store was opened, once it had 100 accesses
    /// – less what they took in the device. `None` where nothing was measured, or where the
    /// tier before has no figures.
    #[serde(default)]
    pub measured_benefit_s: Option<f64>,
    /// Reads and writes that the tier it went to served meanwhile.
    #[serde(default)]
    pub accesses: u64,
}

impl HistoryReport {
    /// A decision that copied nothing.
    pub(crate) fn new(wall_ns: u64, by: &str, what: &str, tier: &str, reason: String) -> Self {
        Self {
            wall_ns,
            by: by.into(),
            what: what.into(),
            tier: tier.into(),
            reason,
            bytes: 0,
            duration_ns: 0,
            modelled_energy_j: 0.0,
            from: None,
            expected_benefit_s: None,
            measured_benefit_s: None,
            accesses: 0,
        }
    }

    /// Whether it brought the segment, or a copy of it, where it says.
    pub(crate) fn is_move(&self) -> bool {
        matches!(self.what.as_str(), "moved" | "promoted" | "copied")
    }
}

/// Everything about an object: what `terrace explain` shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// `namespace/name`.
    pub key: String,
    /// Never reused.
    pub object_id: u64,
    /// Length.
    pub size_bytes: u64,
    /// When it was created, nanoseconds since 1970.
    pub created_ns: u64,
    /// When its bytes last changed, nanoseconds since 1970.
    pub modified_ns: u64,
    /// The level it was promised.
    pub persistency: String,
    /// Whether a person forbade to move it.
    pub is_pinned: bool,
    /// Open handles.
    pub opens: u32,
    /// Its segments in order.
    pub segments: Vec<SegmentReport>,
    /// What was done with it since the store was opened.
    pub ledger: LedgerReport,
}

/// A migration that waits, runs or has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveReport {
    /// Names the migration.
    pub id: u64,
    /// The object.
    pub key: String,
    /// The segment.
    pub segment: u32,
    /// `move`, `promote`, `copy`, `drop-copy`.
    pub kind: String,
    /// The tier it leaves.
    pub from: String,
    /// The tier it goes to.
    pub to: String,
    /// `queued`, `reserve`, `track`, `copy`, `durable`, `switch`, `settle`, `drop`, `ended`.
    pub state: String,
    /// How it ended, as [`terrace_core::Outcome::word`]; `None` before that.
    pub outcome: Option<String>,
    /// The reason that came with the request.
    pub reason: String,
    /// Its length.
    pub size_bytes: u64,
    /// Bytes copied so far.
    pub copied_bytes: u64,
    /// More about a failure; empty otherwise.
    pub detail: String,
}

/// The policy as it is now. What is counted is its own, since it took over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Its name, or the path of its library.
    pub name: String,
    /// The policy that was configured, where a fault made the fallback take over, and what it did.
    pub replaced: Option<String>,
    /// Whether decisions are only recorded.
    pub is_dry_run: bool,
    /// Called after this many events …
    pub after_events: u64,
    /// … and this often.
    pub every_ns: u64,
    /// `after` or `before`: when accesses become events, seen from their I/O. Empty
    /// in a report of a version that had `after` alone.
    #[serde(default)]
    pub post_events: String,
    /// Its parameters.
    pub parameters: Vec<ParameterReport>,
    /// Calls of `plan`.
    pub rounds: u64,
    /// Events shown.
    pub events: u64,
    /// Events that a full ring summed up.
    pub coalesced_events: u64,
    /// Actions asked for.
    pub actions: u64,
    /// Of these, the ones that ended, by outcome.
    pub outcomes: Vec<(String, u64)>,
    /// The latest decisions, newest last; bounded.
    pub decisions: Vec<DecisionReport>,
}

/// What a policy would have done that decides in the shadow of another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShadowReport {
    /// Its name, or the path of its file.
    pub name: String,
    /// Since when, nanoseconds since 1970.
    pub since_wall_ns: u64,
    /// Why it no longer decides, where it failed.
    pub ended: Option<String>,
    /// Its parameters.
    pub parameters: Vec<ParameterReport>,
    /// Calls of `plan`.
    pub rounds: u64,
    /// Events shown.
    pub events: u64,
    /// Actions asked for.
    pub actions: u64,
    /// Actions that ended, by outcome.
    pub outcomes: Vec<(String, u64)>,
    /// What came of the policy that decides, since then …
    pub actual: ShadowSide,
    /// … and what would have come of this one.
    pub shadow: ShadowSide,
    /// The latest decisions, newest last; bounded.
    pub decisions: Vec<DecisionReport>,
}

/// What came of a policy, or would have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShadowSide {
    /// Seconds that reads and writes take on the tiers that serve them, by the figures of the tiers.
    pub foreground_s: f64,
    /// Migrations that copied something.
    pub moves: u64,
    /// What they copied.
    pub moved_bytes: u64,
    /// What each tier served and holds.
    pub tiers: Vec<ShadowTier>,
}

/// What a tier served, or would have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShadowTier {
    /// Its name.
    pub name: String,
    /// Reads and writes.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of primaries on it now.
    pub used_bytes: u64,
}

/// One decision of a policy and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionReport {
    /// When, nanoseconds since 1970.
    pub wall_ns: u64,
    /// The object.
    pub key: String,
    /// The segment.
    pub segment: u32,
    /// What it wanted, for example `move to slow`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// What became of it so far: `queued` or an outcome.
    pub outcome: String,
}

/// A parameter of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterReport {
    /// Its name in the configuration.
    pub name: String,
    /// Its value now.
    pub value: String,
    /// What it does.
    pub description: String,
}

impl From<Parameter> for ParameterReport {
    fn from(one: Parameter) -> Self {
        Self { name: one.name, value: one.value, description: one.description }
    }
}

/// What a scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Objects that were read.
    pub objects: u64,
    /// Their segments.
    pub segments: u64,
    /// Files that were opened.
    pub files: u64,
    /// Bytes that were read; holes have none.
    pub read_bytes: u64,
    /// Those of them that were read after the operating system was asked to forget what it had
    /// cached of the file, so that they came from the medium unless they waited to be written.
    /// The others may have come from a cache.
    pub medium_bytes: u64,
    /// Checksums that were recorded for the first time since a write.
    pub recorded: u64,
    /// Segments and files without a result: written, moved or deleted meanwhile, or offline.
    pub skipped: u64,
    /// Whether it came to the end.
    pub is_complete: bool,
    /// How many problems are left.
    pub problem_count: u64,
    /// The first of them; bounded.
    pub problems: Vec<Problem>,
    /// What was wrong and is right again; bounded.
    pub repairs: Vec<Problem>,
}

/// When a store was scrubbed, and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// How often it is scrubbed in the background; `None`: only on request.
    pub every_ns: Option<u64>,
    /// How fast it is read then.
    pub bytes_per_s: f64,
    /// Whether it is read in the background at this moment.
    pub is_running: bool,
    /// Whether it is read on request: the background waits.
    pub is_asked: bool,
    /// The scrub in the background that has begun and not ended, as of its last note.
    pub begun: Option<ScrubSummary>,
    /// The last object that it has done.
    pub position: Option<String>,
    /// The last scrub of the whole store.
    pub ended: Option<ScrubSummary>,
    /// The problems that the first of these, or else the second, has found; bounded.
    pub findings: Vec<Problem>,
}

/// One scrub in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubSummary {
    /// When it began, or ended, nanoseconds since 1970.
    pub wall_ns: u64,
    /// Objects that were read.
    pub objects: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Problems that are left.
    pub problems: u64,
}

/// What a namespace holds, and what it may hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaReport {
    /// The namespace.
    pub namespace: String,
    /// Bytes of its objects, each counted once; an object that is open and grows counts with the
    /// room that its tier has promised it.
    pub bytes: u64,
    /// Most bytes that it may hold; `None` without a limit.
    pub bytes_max: Option<u64>,
    /// Its objects.
    pub objects: u64,
    /// Most objects that it may hold; `None` without a limit.
    pub objects_max: Option<u64>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Objects looked at.
    pub objects: u64,
    /// Segments looked at.
    pub segments: u64,
    /// Bytes whose checksums were read, where that was asked for.
    pub verified_bytes: u64,
    /// What is wrong; empty is good.
    pub problems: Vec<Problem>,
    /// What is unusual and harmless, for example garbage that waits to be deleted.
    pub notes: Vec<Problem>,
}

/// What a backup of the catalog has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReport {
    /// Pairs that were written; one that changed meanwhile counts again.
    pub pairs: u64,
    /// Bytes that were written.
    pub bytes: u64,
}

/// What a rebuilt catalog has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildReport {
    /// Objects that are in it.
    pub objects: u64,
    /// Their segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Key-value pairs of applications that came from a saved catalog.
    pub pairs: u64,
    /// Files that no object needs; the next opening deletes them.
    pub superseded: u64,
    /// Earlier and deleted values of objects that tiers keep.
    #[serde(default)]
    pub versions: u64,
    /// What could not be brought back or was left alone.
    pub problems: Vec<Problem>,
    /// What was done beside taking files for what they say they are.
    pub notes: Vec<Problem>,
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What kind, for example `missing-file`, `wrong-identity`, `unknown-file`, `accounting`.
    pub kind: String,
    /// Where: a key, a tier or a file.
    pub place: String,
    /// What was found and what was expected.
    pub detail: String,
}

/// A trace that is recorded, or how the last one ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingReport {
    /// Whether it is being recorded.
    pub is_running: bool,
    /// Where it is.
    pub directory: String,
    /// Whether the policy's inputs and decisions are recorded.
    pub has_decisions: bool,
    /// Whether names are hashed.
    pub has_hashed_names: bool,
    /// Most bytes of all its files.
    pub max_bytes: u64,
    /// When it was started, in nanoseconds since 1970.
    pub started_wall_ns: u64,
    /// When it ends by itself, if it does, likewise.
    #[serde(default)]
    pub ends_wall_ns: Option<u64>,
    /// Files in the directory.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records since it was started.
    pub records: u64,
    /// Events that full rings had summed up before they were recorded.
    pub summed_up_events: u64,
    /// Records that the trace's disk was too slow for.
    pub lost_records: u64,
    /// Files of the directory that were deleted so far to keep the bound.
    pub deleted_files: u64,
    /// Why it was not recorded to its end: the error of the trace's disk.
    pub failure: Option<String>,
}

/// A value that an object had, and that a tier keeps for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionReport {
    /// Names it.
    pub version: String,
    /// The object.
    pub key: String,
    /// Why it is not the present value: `changed`, `replaced` or `deleted`. One that is `changed` may be the
    /// present value still, where a part of the object was only moved.
    pub end: String,
    /// When that was, nanoseconds since 1970.
    pub ended_ns: u64,
    /// When the object was created.
    pub created_ns: u64,
    /// Until when it is kept at least; `None` where a tier that is missing has a part of it.
    pub kept_until_ns: Option<u64>,
    /// Its length.
    pub size_bytes: u64,
    /// The tiers that have its bytes.
    pub tiers: Vec<String>,
    /// Whether all of its bytes are there.
    pub is_whole: bool,
    /// The parts that are not.
    pub missing: Vec<MissingPart>,
}

/// A part of a version whose bytes are not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPart {
    /// Where it begins.
    pub start_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
    /// The tier that had it.
    pub tier: String,
    /// Why it is not there.
    pub reason: String,
}
