// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The slow tier: simulated in a directory, or one that the user has.

use std::fs;
use std::path::Path;
use std::time::Duration;

use terrace_core::units::{format_duration, show_ns};
use terrace_core::{Clock, Error, Result, SystemClock};
use terrace_settings::{Settings, TierText};
use terrace_store::Store;

/// The name of the slow tier.
const NAME: &str = "slow";

/// Requests that the simulated device serves at once: a batch of `partdiff-read`, so that
/// whatever else it has to do makes the batch wait.
pub const PARALLELISM: u32 = 10;

/// A device that is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// What every request takes.
    pub latency: Duration,
    /// Bytes per second of all requests together; `None`: as fast as the directory below it.
    pub bandwidth: Option<&'static str>,
    /// Requests at once.
    pub parallelism: u32,
}

/// What the slow tier of a store is.
#[derive(Clone, Debug)]
pub enum Slow {
    /// A directory beside the fast one, with a device that is simulated.
    Simulated(Device),
    /// One that the user has.
    Given(Given),
}

impl Device {
    pub(super) fn settings_text(&self) -> String {
        let latency = format_duration(self.latency);
        let parallelism = self.parallelism;
        let bandwidth = self.bandwidth.unwrap_or("2GB/s");
        let limit = self.bandwidth.map(|rate| format!("bandwidth = \"{rate}\", "));
        format!(
            "latency = \"{latency}\"\nbandwidth = \"{bandwidth}\"\nparallelism = {parallelism}\n\
             # Simulates a device that is slower than the directory.\n\
             throttle = {{ latency = \"{latency}\", {}parallelism = {parallelism} }}\n",
            limit.unwrap_or_default(),
        )
    }
}

impl Slow {
    /// Whether it takes whole objects alone: a store needs another tier beside it, where new objects begin.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Simulated(_) => false,
            Self::Given(given) => !matches!(given.tier.backend.as_str(), "file" | "rados"),
        }
    }
}

/// A tier that the user has. Each store has a part of its own in it.
#[derive(Clone, Debug)]
pub struct Given {
    tier: TierText,
    /// What every request takes longer.
    latency: Option<Duration>,
    /// What the names of this demo begin with, so that no two meet.
    part: String,
}

impl Given {
    /// Reads `PATH[,SETTING=VALUE]...`, as `terrace init --tier` has it behind the name.
    ///
    /// # Errors
    ///
    /// `Invalid` for another form, and for a tier that cannot be slow.
    pub fn read(text: &str, latency: Option<Duration>) -> Result<Self> {
        let tier = TierText::read(&format!("{NAME}={text}"))?;
        if !matches!(tier.backend.as_str(), "file" | "rados" | "s3") {
            let reason = "a directory, a bucket or a pool is expected";
            return Err(Error::invalid("read the slow tier", reason).with("slow", text));
        }
        let part = format!("demo-{:x}", SystemClock::default().wall_ns());
        Ok(Self { tier, latency, part })
    }

    /// The section of a store's configuration.
    pub(super) fn section(&self, store: &str) -> Result<String> {
        let mut tier = self.tier.clone();
        let part = format!("{}/{store}", self.part);
        let below = |place: &str| match place.trim_end_matches('/') {
            "" => part.clone(),
            place => format!("{place}/{part}"),
        };
        match &mut tier.path {
            Some(path) => *path = below(path),
            None => {
                // A namespace of a pool has no parts.
                let (key, place) = match tier.backend.as_str() {
                    "rados" => ("namespace", part.replace('/', ".")),
                    _ => ("prefix", part.clone()),
                };
                let given = tier.settings.iter_mut().find(|(name, _)| name == key);
                match given {
                    Some((_, value)) if key == "namespace" => *value = format!("{value}.{place}"),
                    Some((_, value)) => *value = below(value),
                    None => tier.settings.push((key.into(), place)),
                }
            }
        }
        let mut section = tier.section()?;
        if let Some(latency) = self.latency {
            let latency = format_duration(latency);
            section.push_str(&format!(
                "throttle = {{ latency = \"{latency}\", parallelism = {PARALLELISM} }}\n"
            ));
        }
        Ok(section)
    }

    /// What it is, in words.
    pub(super) fn describe(&self) -> String {
        let named = |key: &str| self.tier.settings.iter().find(|(name, _)| name == key);
        let place = self.tier.path.clone().unwrap_or_else(|| {
            let parts = ["bucket", "pool", "prefix", "namespace"].map(named);
            parts
                .into_iter()
                .flatten()
                .map(|(_, value)| value.as_str())
                .collect::<Vec<_>>()
                .join("/")
        });
        let throttled = self.latency.map(|latency| {
            format!(", where every request takes {} longer", show_ns(latency.as_nanos() as u64))
        });
        format!(
            "The slow tier is real: {}:{place}{}. Its energy is not known.",
            self.tier.backend,
            throttled.unwrap_or_default()
        )
    }
}

/// Removes everything that the tiers of a store keep, and the directory that its slow tier had for itself.
///
/// # Errors
///
/// Everything that directories and services say.
pub(super) fn empty(store: &Path) -> Result<()> {
    Store::clear_tiers(store)?;
    let settings = Settings::read(&store.join("terrace.toml"))?;
    for path in settings.tiers.iter().filter_map(|tier| tier.path.as_ref()) {
        let path = store.join(path);
        match fs::remove_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::from_io("clean up", error).with("dir", path.display()));
            }
            _ => {}
        }
        // That of this demo, where no other store has a part in it.
        let _ = path.parent().map(fs::remove_dir);
    }
    Ok(())
}
