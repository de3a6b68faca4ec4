// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is tried side by side: policies on the tiers of a store, and what bounds them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use terrace_core::units::parse_bytes;
use terrace_core::{Error, ErrorKind, Policy, TierIndex, TierView};
use terrace_replay::{Burst, Character, TimedOptions, TimedTier};
use terrace_store::{PolicySource, Settings, TierSettings};

use crate::context::Context;
use crate::failure::Result;

/// The configuration of a store, by itself.
const SETTINGS_FILE: &str = "terrace.toml";

/// What a replay is called that has everything on the first tier, or on the last.
const FAST_ONLY: &str = "fast-only";
const SLOW_ONLY: &str = "slow-only";

/// Where nothing moves.
const PINNED: &str = "pinned";

/// A store as its configuration describes it.
pub(super) struct Scene {
    settings: Settings,
    file: PathBuf,
}

/// What the command line says beside policies.
pub(super) struct How<'a> {
    pub(super) is_open_loop: bool,
    pub(super) page_cache: Option<&'a str>,
    pub(super) present_on: Option<&'a str>,
}

/// One of those that are tried.
pub(super) struct Contender {
    /// As it was asked for.
    pub(super) name: String,
    pub(super) options: TimedOptions,
    pub(super) policy: Box<dyn Policy>,
    /// Whether it only bounds what others can do.
    pub(super) is_bound: bool,
}

impl Scene {
    /// Reads the configuration that `--store` names: a store's, or the file.
    pub(super) fn read(context: &Context) -> Result<Self> {
        if let Some(servers) = context.servers() {
            let reason = "the time model needs the configuration of a store: its directory, or its \
                          terrace.toml";
            return Err(Error::new(ErrorKind::Unsupported, "replay the trace")
                .because(reason)
                .with("store", servers)
                .into());
        }
        let path = Path::new(context.store()?);
        let file = if path.is_dir() { path.join(SETTINGS_FILE) } else { path.to_path_buf() };
        Ok(Self { settings: Settings::read(&file)?, file })
    }

    /// The file that it was read from.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The tiers, in order of preference.
    pub(super) fn tiers(&self) -> &[TierSettings] {
        &self.settings.tiers
    }

    /// Everything to try: the policies, or the store's own, between the bounds.
    pub(super) fn contenders(&self, policies: &[String], how: &How<'_>) -> Result<Vec<Contender>> {
        let options = self.options(how)?;
        let mut contenders = vec![self.alone(FAST_ONLY, &options, 0)?];
        for policy in policies {
            contenders.push(self.contender(policy, &options)?);
        }
        if policies.is_empty() {
            contenders.push(self.own(&options)?);
        }
        contenders.push(self.alone(SLOW_ONLY, &options, options.tiers.len() - 1)?);
        Ok(contenders)
    }

    fn options(&self, how: &How<'_>) -> Result<TimedOptions> {
        let Settings { tiers, move_threads, move_bandwidth, move_yields, policy, .. } =
            &self.settings;
        let tiers = tiers.iter().map(|tier| TimedTier {
            view: TierView {
                watermarks: tier.watermarks,
                ..TierView::empty(&tier.name, tier.figures)
            },
            character: character(tier),
        });
        let mut options = TimedOptions::new(tiers.collect());
        options.move_threads = *move_threads;
        options.move_bytes_per_s = *move_bandwidth;
        options.move_yields = *move_yields;
        if let Some(policy) = policy {
            options.after_events = policy.after_events;
            options.every = policy.every;
            options.round_bytes = policy.round_bytes;
        }
        options.is_open_loop = how.is_open_loop;
        if let Some(text) = how.page_cache {
            options.page_cache_bytes =
                parse_bytes(text).map_err(|error| error.with("option", "--page-cache"))?;
        }
        if let Some(name) = how.present_on {
            options.present_on = self.tier(name)?;
        }
        Ok(options)
    }

    fn tier(&self, name: &str) -> Result<TierIndex> {
        let names: Vec<_> = self.settings.tiers.iter().map(|tier| tier.name.as_str()).collect();
        match names.iter().position(|other| *other == name) {
            Some(index) => Ok(TierIndex(index as u8)),
            None => {
                let reason = format!("the store has the tiers {}", names.join(", "));
                Err(Error::invalid("choose a tier", reason).with("tier", name).into())
            }
        }
    }

    /// The policy of the store.
    fn own(&self, options: &TimedOptions) -> Result<Contender> {
        let (source, parameters) = match &self.settings.policy {
            Some(policy) => {
                let dir = self.file.parent().unwrap_or(Path::new(""));
                (policy.source.clone(), policy.all_parameters(dir)?)
            }
            // What a store without one does.
            None => (PolicySource::Name(PINNED.into()), Vec::new()),
        };
        make(source.to_string(), &source, &parameters, options.clone())
    }

    /// A policy as the command line names it, with parameters behind colons.
    fn contender(&self, text: &str, options: &TimedOptions) -> Result<Contender> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let mut parameters = Vec::new();
        for word in words {
            let Some((parameter, value)) = word.split_once('=') else {
                let reason = "behind the policy come parameters, each with a colon: \
                              lru:idle=5s:high=0.8";
                return Err(Error::invalid("choose a policy", reason)
                    .with("policy", format!("{text:?}"))
                    .into());
            };
            parameters.push((parameter.to_string(), value.to_string()));
        }
        make(text.into(), &PolicySource::named(name), &parameters, options.clone())
    }

    /// Everything on one tier, without a bound.
    fn alone(&self, name: &str, options: &TimedOptions, index: usize) -> Result<Contender> {
        let mut tier = options.tiers[index].clone();
        tier.view.figures.capacity_bytes = u64::MAX;
        let options =
            TimedOptions { tiers: vec![tier], present_on: TierIndex(0), ..options.clone() };
        let alone = make(name.into(), &PolicySource::Name(PINNED.into()), &[], options)?;
        Ok(Contender { is_bound: true, ..alone })
    }
}

/// What the device of a tier has beside its figures.
fn character(tier: &TierSettings) -> Character {
    let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
    let burst = tier.device.burst.map(|burst| Burst {
        bytes: burst.bytes,
        sustained_bytes_per_s: burst.sustained_write_bandwidth,
    });
    Character {
        seek_ns: nanoseconds(tier.device.seek),
        write_latency_ns: tier.device.write_latency.map(nanoseconds),
        burst,
    }
}

fn make(
    name: String,
    source: &PolicySource,
    parameters: &[(String, String)],
    options: TimedOptions,
) -> Result<Contender> {
    let policy = source.make(&options.view(), parameters)?;
    Ok(Contender { name, options, policy, is_bound: false })
}
