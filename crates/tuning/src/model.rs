// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tiers of a store as its configuration describes them, for replays in virtual time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use terrace_core::{Error, Figures, Persistency, Result, TierIndex, TierView};
use terrace_replay::{Burst, Cached, Character, Recent, Switch, TimedOptions, TimedTier};
use terrace_settings::{PolicySource, Settings, TierSettings};

/// The configuration of a store, by itself.
const SETTINGS_FILE: &str = "terrace.toml";

/// A call of a policy may take so many times as long as in a store: several replays share the
/// machine, and no request waits for one.
const CALL_TIMES: u32 = 12;

/// A policy and its parameters.
pub type Chosen = (PolicySource, Vec<(String, String)>);

/// A store as its configuration describes it.
pub struct Modelled {
    /// What the configuration says.
    pub settings: Settings,
    /// The file that it was read from.
    pub file: PathBuf,
}

/// How requests come, and what is there before them.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// Requests come when they came, whatever became of those before.
    pub open_loop: bool,
    /// Bytes that the machine keeps in memory of what was read from and written to tiers with
    /// `cached_latency` and `cached_bandwidth`; nothing without a number.
    pub page_cache_bytes: Option<u64>,
    /// Processors of the machine, which requests, migrations and clients that think for no longer
    /// than 100 us share; as many as they like without a number.
    pub processors: Option<u32>,
    /// The tier with what was there before the trace begins; the last without one.
    pub present_on: Option<String>,
}

impl Modelled {
    /// Reads the configuration of the store with this directory, or the file.
    ///
    /// # Errors
    ///
    /// As [`Settings::read`].
    pub fn read(store: &Path) -> Result<Self> {
        let file = if store.is_dir() { store.join(SETTINGS_FILE) } else { store.to_path_buf() };
        Ok(Self { settings: Settings::read(&file)?, file })
    }

    /// The directory of its configuration, from which paths in it begin.
    fn dir(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// The policy that its configuration has, and its parameters.
    pub fn policy(&self) -> Result<Option<Chosen>> {
        let Some(policy) = &self.settings.policy else { return Ok(None) };
        let source = policy.source.clone().below(self.dir());
        Ok(Some((source, policy.all_parameters(self.dir())?)))
    }

    /// The text of its configuration.
    pub fn text(&self) -> Result<String> {
        let failed = |error| {
            Error::from_io("read the configuration", error).with("file", self.file.display())
        };
        std::fs::read_to_string(&self.file).map_err(failed)
    }

    /// Its tiers for a replay.
    pub fn options(&self, manner: &Manner) -> Result<TimedOptions> {
        let Settings {
            tiers, persistency, move_threads, move_bandwidth, move_yields, policy, ..
        } = &self.settings;
        // A capacity is of what objects take, and a replay counts their lengths.
        let figures = |tier: &TierSettings| Figures {
            capacity_bytes: match tier.figures.capacity_bytes {
                u64::MAX => u64::MAX,
                bytes => (bytes as f64 / tier.packed_share) as u64,
            },
            ..tier.figures
        };
        let tiers = tiers.iter().map(|tier| TimedTier {
            view: TierView {
                watermarks: tier.watermarks,
                // Else it is gone with the process.
                persistency: match tier.backend.as_str() {
                    "file" | "opendal" => Persistency::Storage,
                    "s3" | "rados" => Persistency::Shared,
                    _ => Persistency::None,
                },
                ..TierView::empty(&tier.name, figures(tier))
            },
            character: character(tier, *persistency),
            recent: Recent::new(tier.recently_used.clone()),
        });
        let mut options = TimedOptions::new(tiers.collect());
        options.move_threads = *move_threads;
        options.move_bytes_per_s = *move_bandwidth;
        options.move_yields = *move_yields;
        if let Some(policy) = policy {
            options.after_events = policy.after_events;
            options.every = policy.every;
            options.post_events = policy.post_events;
            options.round_bytes = policy.round_bytes;
            options.call_time_max = policy.call_time_max.saturating_mul(CALL_TIMES);
        }
        options.persistency = *persistency;
        options.is_open_loop = manner.open_loop;
        options.processors = manner.processors;
        if let Some(bytes) = manner.page_cache_bytes {
            options.page_cache_bytes = bytes;
            if options.tiers.iter().all(|tier| tier.character.cached.is_none()) {
                let reason = "no tier has `cached_latency` and `cached_bandwidth`, which tell how \
                              fast that is; `terrace calibrate` measures them";
                return Err(
                    Error::invalid("replay the trace", reason).with("page_cache_bytes", bytes)
                );
            }
        }
        if let Some(name) = &manner.present_on {
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
                Err(Error::invalid("choose a tier", reason).with("tier", name))
            }
        }
    }
}

/// What the device of a tier has beside its figures.
fn character(tier: &TierSettings, persistency: Persistency) -> Character {
    let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
    let burst = tier.device.burst.map(|burst| Burst {
        bytes: burst.bytes,
        sustained_bytes_per_s: burst.sustained_write_bandwidth,
    });
    Character {
        seek_ns: nanoseconds(tier.device.seek),
        write_latency_ns: tier.device.write_latency.map(nanoseconds),
        streams: tier.device.total_bandwidth.map(|total| total / tier.figures.read_bytes_per_s),
        burst,
        create_ns: nanoseconds(tier.device.create_latency),
        sync_ns: nanoseconds(tier.device.sync_latency),
        cached: tier.device.cached.map(|cached| Cached {
            latency_ns: nanoseconds(cached.latency),
            bytes_per_s: cached.bandwidth,
            takes_writes: persistency < Persistency::Storage,
        }),
        cpu_share: tier.device.cpu_share,
        switch: tier.device.switch.map(|switch| Switch {
            latency_ns: nanoseconds(switch.latency),
            cpu_ns: nanoseconds(switch.cpu),
        }),
        is_whole: tier.is_whole(),
        is_bucket: tier.s3.is_some(),
        packed_share: Some(tier.packed_share).filter(|share| *share < 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_see_the_prices_of_a_packed_tier_as_in_a_store() {
        let text = "[[tier]]\nname = \"packed\"\npath = \"packed\"\ncapacity = \"1 GB\"\n\
                    compress = \"zstd:1\"\npacked_share = 0.25\nprice_per_gb_month = 0.02\n\
                    price_per_gb_read = 0.09\n";
        let settings = Settings::parse(text, "test").expect("legal");
        let modelled = Modelled { settings, file: PathBuf::new() };
        let options = modelled.options(&Manner::default()).expect("legal");
        let tier = &options.tiers[0];
        assert_eq!(tier.view.figures.prices, modelled.settings.tiers[0].figures.prices);
        assert_eq!(tier.view.figures.prices.per_gb_read, 0.09);
        assert_eq!(tier.view.figures.capacity_bytes, 4_000_000_000);
        assert_eq!(tier.character.packed_share, Some(0.25));
    }
}
