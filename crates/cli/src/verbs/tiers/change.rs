// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adding, draining, removing and replacing a tier.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use terrace_core::units::show_bytes;
use terrace_core::{Error, ErrorKind};
use terrace_settings::{Settings, TierText};
use terrace_store::{Store, TierReport};

use crate::address;
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::{Output, count, show_name};
use crate::progress::Progress;

/// Between two looks at a drain: short enough for a bar and for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// How long a drain may stand still, with something that cannot move, until waiting ends.
const STILL_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub(super) struct Add {
    /// The new tier: its name, or NAME=PATH[,SETTING=VALUE]... as of `init --tier`
    #[arg(value_name = "NAME|NAME=PATH[,SETTING=VALUE]...")]
    name: String,
    #[command(flatten)]
    section: Section,
    /// Put it before this tier in the order of preference; default: behind all
    #[arg(long, value_name = "TIER")]
    before: Option<String>,
}

/// What a new tier is like.
#[derive(Args, Debug)]
struct Section {
    /// What keeps its bytes; default: `file`
    #[arg(long, value_name = "BACKEND")]
    backend: Option<String>,
    /// Its directory, for the backend `file`
    #[arg(long, value_name = "DIR")]
    path: Option<String>,
    /// The most that it may hold, for example 200GB
    #[arg(long, value_name = "SIZE")]
    capacity: Option<String>,
    /// Time from a request to its first byte, for example 80us
    #[arg(long, value_name = "DURATION")]
    latency: Option<String>,
    /// Rate of one large read or write, for example 3GB/s
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<String>,
    /// Another setting of its section in terrace.toml, for example watermarks.high=0.8
    #[arg(long, value_name = "NAME=VALUE")]
    setting: Vec<String>,
}

impl Section {
    /// The tier of which this and `text`, its name or all of it, are the description.
    fn tier(&self, text: &str) -> Result<TierText> {
        let is_described = text.contains('=');
        let mut tier = match is_described {
            true => TierText::read(text)?,
            false => TierText {
                name: text.into(),
                backend: "file".into(),
                path: None,
                settings: Vec::new(),
            },
        };
        if is_described && (self.path.is_some() || self.backend.is_some()) {
            let reason = "NAME=PATH has a place already: leave --path and --backend out";
            return Err(Error::invalid("read a tier", reason).with("tier", text).into());
        }
        if let Some(backend) = &self.backend {
            tier.backend = backend.clone();
        }
        if let Some(path) = &self.path {
            tier.path = Some(path.clone());
        }
        if tier.backend == "file" && tier.path.is_none() {
            let reason = "it has no directory: give --path DIR, or NAME=PATH in place of the name";
            return Err(Error::invalid("read a tier", reason).with("tier", text).into());
        }
        let settings = &mut tier.settings;
        for (key, value) in [
            ("capacity", &self.capacity),
            ("latency", &self.latency),
            ("bandwidth", &self.bandwidth),
        ] {
            settings.extend(value.iter().map(|value| (key.to_string(), value.clone())));
        }
        for setting in &self.setting {
            settings.push(address::assignment(setting)?);
        }
        Ok(tier)
    }
}

impl Add {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let tier = self.section.tier(&self.name)?;
        let section = checked(&tier)?;
        let is_used = context
            .with_store(|store| Ok(store.admin().add_tier(&section, self.before.as_deref())?))?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({ "added": tier.name, "is_used": is_used }))?;
        } else {
            let when = if is_used { "" } else { "; it is used from the next opening on" };
            output.line(format!("added the tier {}{when}", tier.name))?;
        }
        output.flush()
    }
}

/// The section of a tier. What is wrong with it is found before the store is opened: in terrace.toml there is
/// no such line yet.
fn checked(tier: &TierText) -> Result<String> {
    let section = tier.section()?;
    // What the store promises is compared with all of its tiers, once it is open.
    Settings::parse(&format!("[store]\npersistency = \"none\"\n{section}"), "")?;
    Ok(section)
}

#[derive(Args, Debug)]
pub(super) struct Drain {
    /// The tier
    name: String,
    /// End the drain; what has moved stays where it is now
    #[arg(long, conflicts_with = "wait")]
    cancel: bool,
    /// Wait until the tier is empty
    ///
    /// Fails where what is left cannot move for ten seconds; the drain goes on all the same.
    #[arg(long)]
    wait: bool,
}

impl Drain {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let interrupt = Interrupt::watch()?;
        let report = context.with_store(|store| {
            if self.cancel {
                store.admin().undrain_tier(&self.name)?;
            } else {
                store.admin().drain_tier(&self.name)?;
                match self.wait {
                    true => wait_until_drained(store, &self.name, &interrupt)?,
                    false if !store.is_attached() => context.note(
                        "nothing holds this store: the drain goes on whenever it is open; \
                         `terrace hold` keeps it open, --wait waits here",
                    ),
                    false => {}
                }
            }
            find(store, &self.name)
        })?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({ "tier": report.name, "drain": report.drain }))?;
        } else {
            output.line(match &report.drain {
                None => format!("{} is no longer drained", report.name),
                Some(drain) if drain.is_done => {
                    let kept = match report.kept_bytes {
                        0 => String::new(),
                        bytes => format!(", with {} of versions that it keeps", show_bytes(bytes)),
                    };
                    format!(
                        "{0} is empty; `terrace tiers remove {0}` removes it{kept}",
                        report.name
                    )
                }
                Some(drain) => format!(
                    "{} is drained: {}, {} left",
                    report.name,
                    count(drain.segments, "segment"),
                    show_bytes(drain.bytes)
                ),
            })?;
        }
        output.flush()
    }
}

fn find(store: &Store, name: &str) -> Result<TierReport> {
    let mut tiers = store.admin().tiers()?;
    if let Some(index) = tiers.iter().position(|tier| tier.name == name) {
        return Ok(tiers.swap_remove(index));
    }
    let names: Vec<_> = tiers.iter().map(|tier| tier.name.as_str()).collect();
    let reason = format!("there is no tier {name:?}; there are {}", names.join(", "));
    Err(Error::new(ErrorKind::NotFound, "find a tier").because(reason).into())
}

fn has(store: &Store, name: &str) -> Result<bool> {
    Ok(store.admin().tiers()?.iter().any(|tier| tier.name == name))
}

/// Waits for the end of a drain. What cannot move for long ends it with an error that names it.
fn wait_until_drained(store: &Store, name: &str, interrupt: &Interrupt) -> Result<()> {
    let mut progress = Progress::bytes(&format!("drain {name}"), Some(0));
    let (mut total_bytes, mut last, mut moved) = (0, None, Instant::now());
    loop {
        interrupt.check("the drain goes on whenever the store is open")?;
        let report = find(store, name)?;
        let Some(drain) = report.drain else {
            let reason = "another command ended its drain";
            return Err(Error::new(ErrorKind::Busy, "wait for an empty tier")
                .because(reason)
                .with("tier", name)
                .into());
        };
        if drain.is_done {
            return Ok(());
        }
        total_bytes = drain.bytes.max(total_bytes);
        progress.set(total_bytes - drain.bytes, total_bytes);
        if last != Some((drain.bytes, drain.segments)) {
            (last, moved) = (Some((drain.bytes, drain.segments)), Instant::now());
        }
        if let Some(stuck) = drain.stuck.first()
            && moved.elapsed() > STILL_TIME_MAX
        {
            return Err(Error::new(ErrorKind::NoSpace, "empty a tier")
                .because(format!(
                    "{} cannot move, the first: {}; the drain goes on whenever the store is open",
                    count(drain.stuck_segments, "segment"),
                    stuck.reason
                ))
                .with("tier", name)
                .with("object", show_name(&stuck.key))
                .into());
        }
        std::thread::sleep(LOOK);
    }
}

pub(super) fn remove(context: &Context, name: &str) -> Result<()> {
    let kept_bytes = context.with_store(|store| {
        let tiers = store.admin().tiers()?;
        let kept_bytes =
            tiers.iter().find(|tier| tier.name == name).map_or(0, |tier| tier.kept_bytes);
        store.admin().remove_tier(name)?;
        Ok(kept_bytes)
    })?;
    if kept_bytes > 0 {
        let bytes = show_bytes(kept_bytes);
        context.note(&format!("{bytes} of versions that it kept were deleted with it"));
    }
    print_removed(context, name, None)
}

fn print_removed(context: &Context, name: &str, by: Option<&str>) -> Result<()> {
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "removed": name, "added": by }))?;
    } else if let Some(by) = by {
        output.line(format!("replaced the tier {name} by {by}"))?;
    } else {
        output.line(format!("removed the tier {name}"))?;
    }
    output.flush()
}

#[derive(Args, Debug)]
pub(super) struct Replace {
    /// The tier that goes
    old: String,
    /// The tier that comes: its name, or NAME=PATH[,SETTING=VALUE]... as of `init --tier`
    #[arg(value_name = "NEW|NEW=PATH[,SETTING=VALUE]...")]
    new: String,
    #[command(flatten)]
    section: Section,
}

impl Replace {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let interrupt = Interrupt::watch()?;
        let new = self.section.tier(&self.new)?;
        let section = checked(&new)?;
        // Apart from the rest: a store of one tier without a policy knows the new one only after it
        // was opened again.
        context.with_store(|store| {
            // Where it is there, an earlier replacement was interrupted.
            if !has(store, &new.name)? {
                find(store, &self.old)?;
                store.admin().add_tier(&section, Some(&self.old))?;
            }
            Ok(())
        })?;
        context.with_store(|store| {
            if has(store, &self.old)? {
                store.admin().drain_tier(&self.old)?;
                wait_until_drained(store, &self.old, &interrupt)?;
                store.admin().remove_tier(&self.old)?;
            }
            Ok(())
        })?;
        print_removed(context, &self.old, Some(&new.name))
    }
}
