// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the demo runs: the same program over stores that differ in tiers and policy.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use terrace_core::Result;
use terrace_core::units::format_bytes;

use super::Options;
use super::slow::{Device, Slow};

/// One row of the table before it ran.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The row's name for programs.
    pub(crate) id: String,
    /// The row's name.
    pub(crate) name: String,
    /// Plans of one scenario do the same work.
    pub(crate) scenario: &'static str,
    /// The tiers of its store.
    pub(crate) tiers: Tiers,
    /// What the fast tier is like where it is simulated, too.
    pub(crate) fast: Option<Device>,
    /// What the slow tier is.
    pub(crate) slow: Slow,
    /// The policy of its store.
    pub(crate) policy: Choice,
    /// What is computed and written.
    pub(crate) partdiff: partdiff::Settings,
    /// How often the policy is called.
    pub(crate) every: &'static str,
    /// Whether migrations wait while the application keeps a tier busy.
    pub(crate) move_yields: bool,
    /// How often everything is read.
    pub(crate) rounds: u32,
    /// Whether everything is moved to the slow tier before it is read: none of it begins there.
    pub(crate) is_moved_down: bool,
    /// Whether its writing is also compared in interleaved blocks.
    pub(crate) in_blocks: bool,
    /// Whether nothing else may run meanwhile.
    pub(crate) runs_alone: bool,
}

/// The tiers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiers {
    /// A fast one that takes everything.
    Fast,
    /// A slow one.
    Slow,
    /// Both; the fast one has this capacity.
    Both {
        /// In bytes.
        fast_bytes: u64,
    },
}

/// A policy with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    source: Source,
    parameters: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug)]
enum Source {
    BuiltIn(&'static str),
    Library(PathBuf),
}

/// What the ids of runs with a fixed timeout begin with.
pub(super) const FIXED: &str = "write-buffer-fixed-";

/// Fixed timeouts that are tried.
const FIXED_TIMEOUTS: &[&str] = &["50ms", "500ms"];

/// The same for the long version.
const FIXED_TIMEOUTS_FULL: &[&str] = &["50ms", "20ms", "200ms", "1s"];

/// Everything that the demo runs, in the order of the table.
pub(crate) fn plans(options: &Options, partdiff: &partdiff::Settings) -> Vec<Plan> {
    let data_bytes = partdiff.checkpoints * checkpoint_bytes(partdiff);
    let roomy = Tiers::Both { fast_bytes: ROOMY_BYTES };
    let scarce = Tiers::Both { fast_bytes: data_bytes / 4 };
    let base = Plan {
        id: String::new(),
        name: String::new(),
        scenario: "checkpoints",
        tiers: roomy,
        fast: None,
        slow: options.slow.clone(),
        policy: Choice::built_in("pinned", &[]),
        partdiff: partdiff.clone(),
        every: "10ms",
        move_yields: true,
        rounds: 1,
        is_moved_down: false,
        in_blocks: false,
        runs_alone: true,
    };
    let plan = |id: &str, name: &str, policy: Choice| Plan {
        id: id.into(),
        name: name.into(),
        policy,
        ..base.clone()
    };
    let below = |plan: Plan| Plan { is_moved_down: options.slow.is_whole(), ..plan };
    let mut plans = vec![
        Plan { tiers: Tiers::Fast, in_blocks: true, ..plan("fast", "fast only", pinned("fast")) },
        aside(Tiers::Slow, plan("slow", "slow only", pinned("slow"))),
        below(aside(roomy, plan("pinned", "pinned to slow", pinned("slow")))),
        // Called so seldom, the policy acts on a batch when it is nearly over, as in the study.
        Plan {
            every: "50ms",
            move_yields: false,
            ..below(aside(roomy, plan("lru-off", "lru, gate off", lru("off"))))
        },
        Plan { every: "50ms", ..below(aside(roomy, plan("lru-on", "lru, gate on", lru("on")))) },
    ];
    let timeouts = if options.is_full { FIXED_TIMEOUTS_FULL } else { FIXED_TIMEOUTS };
    for (index, timeout) in timeouts.iter().enumerate() {
        let policy = Choice::built_in("write-buffer", &[("timeout", timeout)]);
        let name = format!("write-buffer, {timeout}");
        // Short as it is, the first leaves no doubt which needs the least room.
        let in_blocks = options.is_full || index == 0;
        plans.push(Plan { in_blocks, ..plan(&format!("{FIXED}{timeout}"), &name, policy) });
    }
    let deduced =
        Choice::built_in("write-buffer", &[("timeout", "deduced"), ("default_timeout", "100ms")]);
    let name = "write-buffer, deduced";
    plans.push(Plan { in_blocks: true, ..plan("write-buffer-deduced", name, deduced) });
    let example =
        Choice { source: Source::Library(options.example_policy.clone()), parameters: vec![] };
    plans.push(Plan { tiers: scarce, ..plan("example", "example policy in C", example) });
    plans.extend(reread(&base).map(below));
    // What these show depends on two devices that are both simulated.
    if options.is_full && matches!(options.slow, Slow::Simulated(_)) {
        plans.extend(wide(&base));
    }
    plans
}

fn aside(tiers: Tiers, plan: Plan) -> Plan {
    Plan { tiers, runs_alone: false, ..plan }
}

/// A working set that the fast tier can take begins on the slow one and is read again and again.
fn reread(base: &Plan) -> [Plan; 2] {
    const CHECKPOINTS: u64 = 20;
    const ROUNDS: u32 = 10;
    let partdiff = partdiff::Settings { checkpoints: CHECKPOINTS, ..base.partdiff.clone() };
    let fast_bytes = 2 * CHECKPOINTS * checkpoint_bytes(&partdiff);
    let plan = |id: &str, name: &str, policy| Plan {
        id: id.into(),
        name: name.into(),
        scenario: "reread",
        policy,
        partdiff: partdiff.clone(),
        rounds: ROUNDS,
        ..aside(Tiers::Both { fast_bytes }, base.clone())
    };
    [
        plan("reread-pinned", "re-read, pinned to slow", pinned("slow")),
        plan("reread-lru", "re-read, lru, gate on", lru("on")),
    ]
}

/// The lower tier has the higher latency, but serves many large requests at once; the upper one
/// serves them one after the other. Batches of large matrices are better read from below.
fn wide(base: &Plan) -> [Plan; 3] {
    let partdiff = partdiff::Settings {
        dimension: 2 * base.partdiff.dimension,
        checkpoints: 60,
        // The point is how they are read.
        interval: 1,
        ..base.partdiff.clone()
    };
    let fast_bytes = 2 * partdiff.checkpoints * checkpoint_bytes(&partdiff);
    let device = |latency_ms, bandwidth, parallelism| Device {
        latency: Duration::from_millis(latency_ms),
        bandwidth: Some(bandwidth),
        parallelism,
    };
    let plan = |id: &str, name: &str, policy| Plan {
        id: id.into(),
        name: name.into(),
        scenario: "wide",
        fast: Some(device(1, "100MB/s", 1)),
        slow: Slow::Simulated(device(20, "1GB/s", 16)),
        policy,
        partdiff: partdiff.clone(),
        rounds: 6,
        tiers: Tiers::Both { fast_bytes },
        ..base.clone()
    };
    [
        plan("wide-pinned", "wide reads, pinned below", pinned("slow")),
        Plan {
            move_yields: false,
            ..plan("wide-lru-off", "wide reads, lru, gate off", lru("off"))
        },
        plan("wide-lru-on", "wide reads, lru, gate on", lru("on")),
    ]
}

fn checkpoint_bytes(partdiff: &partdiff::Settings) -> u64 {
    const HEADER_BYTES: u64 = 64;
    HEADER_BYTES + (partdiff.dimension * partdiff.dimension * size_of::<f64>()) as u64
}

fn pinned(tier: &str) -> Choice {
    Choice::built_in("pinned", &[("tier", tier)])
}

fn lru(gate: &str) -> Choice {
    Choice::built_in("lru", &[("place", "slow"), ("gate", gate)])
}

impl Choice {
    fn built_in(name: &'static str, parameters: &[(&'static str, &str)]) -> Self {
        let parameters = parameters.iter().map(|(name, value)| (*name, (*value).into())).collect();
        Self { source: Source::BuiltIn(name), parameters }
    }

    /// The value of a parameter that was given.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let given = self.parameters.iter().find(|(given, _)| *given == name);
        given.map(|(_, value)| value.as_str())
    }

    /// The library that holds the policy.
    pub(crate) fn library(&self) -> Option<&PathBuf> {
        match &self.source {
            Source::BuiltIn(_) => None,
            Source::Library(path) => Some(path),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::BuiltIn(name) => f.write_str(name)?,
            Source::Library(path) => write!(f, "{}", path.display())?,
        }
        self.parameters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl Plan {
    /// Names of the tiers in order of preference.
    pub(crate) fn tier_names(&self) -> Vec<String> {
        match self.tiers {
            Tiers::Fast => vec!["fast".into()],
            Tiers::Slow => vec!["slow".into()],
            Tiers::Both { .. } => vec!["fast".into(), "slow".into()],
        }
    }

    /// Why it cannot run here.
    pub(crate) fn reason_to_skip(&self) -> Option<String> {
        if self.tiers == Tiers::Slow && self.slow.is_whole() {
            return Some("a store needs a tier that can be written in place".into());
        }
        let library = self.policy.library().filter(|library| !library.is_file())?;
        let folder = library.parent().unwrap_or(library);
        Some(format!("there is no {}; `make -C {}` builds it", library.display(), folder.display()))
    }

    /// Steps of the application, for the progress.
    pub(crate) fn steps(&self) -> u64 {
        self.partdiff.checkpoints * (1 + u64::from(self.rounds))
    }

    /// The configuration of the store with this name.
    ///
    /// # Errors
    ///
    /// `Io` where the working directory, to which paths are relative, is gone.
    pub(crate) fn settings_text(&self, store: &str) -> Result<String> {
        let mut text = format!(
            "[store]\npersistency = \"process\"\nmove_threads = 10\nmove_yields = {}\n",
            self.move_yields
        );
        match self.tiers {
            Tiers::Fast => text.push_str(&self.fast_tier(ROOMY_BYTES)),
            Tiers::Slow => text.push_str(&self.slow_tier(store)?),
            Tiers::Both { fast_bytes } => {
                text.push_str(&self.fast_tier(fast_bytes));
                text.push_str(&self.slow_tier(store)?);
            }
        }
        text.push_str("\n[catalog]\nengine = \"fjall\"\npath = \"catalog\"\n\n[policy]\n");
        match &self.policy.source {
            Source::BuiltIn(name) => text.push_str(&format!("name = \"{name}\"\n")),
            Source::Library(path) => {
                // Relative paths in a configuration are relative to the store.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let path = path.display().to_string();
                text.push_str(&format!("library = {}\n", toml_text(&path)));
            }
        }
        text.push_str(&format!("after_events = 1000\nevery = \"{}\"\n", self.every));
        if !self.policy.parameters.is_empty() {
            text.push_str("\n[policy.parameters]\n");
        }
        for (name, value) in &self.policy.parameters {
            text.push_str(&format!("{name} = {}\n", toml_text(value)));
        }
        Ok(text)
    }

    fn slow_tier(&self, store: &str) -> Result<String> {
        match &self.slow {
            Slow::Simulated(device) => {
                Ok(tier("slow", ROOMY_BYTES, "5W", "8W") + &device.settings_text())
            }
            Slow::Given(given) => given.section(store),
        }
    }

    fn fast_tier(&self, capacity_bytes: u64) -> String {
        // What a directory on a local disk roughly does; policies calculate with it.
        let real = "latency = \"100us\"\nbandwidth = \"2GB/s\"\nparallelism = 8\n";
        let device = self.fast.map_or_else(|| real.into(), |fast| fast.settings_text());
        tier("fast", capacity_bytes, "1W", "5W") + &device
    }
}

fn tier(name: &str, capacity_bytes: u64, idle_power: &str, active_power: &str) -> String {
    format!(
        "\n[[tier]]\nname = \"{name}\"\nbackend = \"file\"\npath = \"{name}\"\n\
         capacity = \"{}\"\nidle_power = \"{idle_power}\"\nactive_power = \"{active_power}\"\n",
        format_bytes(capacity_bytes),
    )
}

/// A capacity that no run reaches.
const ROOMY_BYTES: u64 = 100_000_000_000;

/// Quotes text for TOML.
fn toml_text(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
