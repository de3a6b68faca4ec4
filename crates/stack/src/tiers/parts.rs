// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stack is made of.

use std::sync::Arc;
use std::time::Duration;

use terrace_core::{
    Access, Backend, Clock, Failpoints, Figures, Key, Kv, Persistency, Policy, PostEvents,
    SystemClock, Watermarks,
};

/// Bytes per second that a scrub reads, unless a caller asks for another rate.
pub const SCRUB_BYTES_PER_S: f64 = 50e6;

/// A backend with its figures.
#[derive(Clone)]
pub struct Tier {
    /// Its name in the configuration.
    pub name: String,
    /// Where its bytes are; a backend that fails every call where the tier is offline.
    pub backend: Arc<dyn Backend>,
    /// What it can do and what it costs.
    pub figures: Figures,
    /// Its fill levels.
    pub watermarks: Watermarks,
    /// How long superseded and deleted objects are kept on it; only where it takes whole objects.
    pub keep_deleted: Option<Duration>,
    /// Why it cannot be used; only allowed with [`Access::Read`] and [`Settings::degraded`].
    pub offline: Option<String>,
    /// Where it is a directory: the path below that of the file with a key.
    pub path_of: Option<PathOf>,
}

/// Tells the path of the file that a key names, below the directory of its tier.
pub type PathOf = fn(&Key) -> String;

impl Tier {
    /// A tier with default figures.
    pub fn new(name: &str, backend: Arc<dyn Backend>) -> Self {
        Self {
            name: name.into(),
            backend,
            figures: Figures::default(),
            watermarks: Watermarks::default(),
            keep_deleted: None,
            offline: None,
            path_of: None,
        }
    }

    /// What people know the file with a key by: its path, where the tier is a directory.
    pub(crate) fn name_of(&self, file: &Key) -> String {
        self.path_of.map_or_else(|| file.to_string(), |path_of| path_of(file))
    }

    /// The same with a capacity.
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.figures.capacity_bytes = bytes;
        self
    }
}

/// A policy and how to call it.
pub struct Tactics {
    /// Its name for people, for example `lru`.
    pub name: String,
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// Call it after this many events; at least 1.
    pub after_events: u64,
    /// Call it this often.
    pub every: Duration,
    /// When accesses become events.
    pub post_events: PostEvents,
    /// Most bytes that one round may ask to move.
    pub round_bytes: u64,
    /// Replace it when one call takes longer.
    pub call_time_max: Duration,
    /// Record its decisions without carrying them out.
    pub is_dry_run: bool,
}

impl Tactics {
    /// A policy with the default call settings.
    pub fn new(name: &str, policy: Box<dyn Policy>) -> Self {
        Self {
            name: name.into(),
            policy,
            after_events: 1000,
            every: Duration::from_millis(100),
            post_events: PostEvents::After,
            round_bytes: u64::MAX,
            call_time_max: Duration::from_secs(5),
            is_dry_run: false,
        }
    }
}

/// Settings of a stack; the defaults are meant to be kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the stack may change anything.
    pub access: Access,
    /// Whether the stack may be opened for writing where tiers are offline.
    pub degraded: bool,
    /// Whether the catalog has a log on a shared tier: until [`crate::Stack::set_far_log`] no file is deleted from
    /// such tiers.
    pub has_far_log: bool,
    /// The level of objects whose application says nothing.
    pub persistency: Persistency,
    /// Migrations that run at once.
    pub move_threads: usize,
    /// Most bytes per second that all migrations together read; `None` without a bound.
    pub move_bytes_per_s: Option<f64>,
    /// Longest that writers are kept out by one attempt to switch.
    pub switch_time_max: Duration,
    /// Most migrations that wait.
    pub queue_max: usize,
    /// Most objects kept in memory beside those that are open.
    pub entries_max: usize,
    /// Whether migrations wait while applications keep a tier busy.
    pub move_yields: bool,
    /// Scrub in the background this often; `None`: only when asked to.
    pub scrub_every: Option<Duration>,
    /// Most bytes per second that a scrub in the background reads; above zero.
    pub scrub_bytes_per_s: f64,
    /// Tells one boot of the machine from another.
    pub boot_id: String,
    /// Seed of the policy's generator.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            access: Access::Write,
            degraded: false,
            has_far_log: false,
            persistency: Persistency::Process,
            move_threads: 4,
            move_bytes_per_s: None,
            switch_time_max: Duration::from_millis(2),
            queue_max: 1 << 20,
            entries_max: 1 << 14,
            move_yields: true,
            scrub_every: None,
            scrub_bytes_per_s: SCRUB_BYTES_PER_S,
            boot_id: String::new(),
            seed: 0,
        }
    }
}

/// What a stack is made of.
pub struct Parts {
    /// In order of preference; 1 to [`terrace_core::TierIndex::COUNT_MAX`].
    pub tiers: Vec<Tier>,
    /// Where the catalog is.
    pub catalog: Arc<dyn Kv>,
    /// What decides; `None`: new objects go to the first tier with room and stay.
    pub tactics: Option<Tactics>,
    /// The trace to record from the beginning.
    pub recording: Option<terrace_trace::Settings>,
    /// Everything else.
    pub settings: Settings,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Called at every step that a crash test may choose.
    pub failpoints: Failpoints,
}

impl Parts {
    /// Tiers and a catalog with defaults for the rest.
    pub fn new(tiers: Vec<Tier>, catalog: Arc<dyn Kv>) -> Self {
        Self {
            tiers,
            catalog,
            tactics: None,
            recording: None,
            settings: Settings::default(),
            clock: Arc::new(SystemClock::default()),
            failpoints: Failpoints::default(),
        }
    }
}
