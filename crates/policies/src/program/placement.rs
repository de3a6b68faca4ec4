// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers creates from a table that a program published: creates never wait for its process.

use serde::Deserialize;
use terrace_core::{Layout, Placed, Placer, Temperature, TierIndex};

use crate::mechanism::glob::Glob;

/// Where new segments go, as a program says it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Placement {
    /// Where no rule matches.
    tier: u32,
    /// Cuts new objects into segments of this size.
    segment_bytes: Option<u64>,
    #[serde(default)]
    rules: Vec<Rule>,
}

/// A rule: all that it says must be so.
#[derive(Clone, Debug, Deserialize)]
struct Rule {
    tier: u32,
    glob: Option<String>,
    /// An object of unknown size matches no rule about sizes.
    size_min_bytes: Option<u64>,
    size_max_bytes: Option<u64>,
    temperature: Option<Advice>,
}

/// Advice of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Advice {
    Unknown,
    Hot,
    Cold,
}

impl From<Temperature> for Advice {
    fn from(temperature: Temperature) -> Self {
        match temperature {
            Temperature::Unknown => Advice::Unknown,
            Temperature::Hot => Advice::Hot,
            Temperature::Cold => Advice::Cold,
        }
    }
}

/// The same, ready to be asked.
#[derive(Debug, Default)]
pub(super) struct Table {
    placement: Placement,
    globs: Vec<Option<Glob>>,
}

impl Table {
    pub(super) fn new(placement: Placement) -> Self {
        let globs = placement.rules.iter().map(|rule| rule.glob.as_deref().map(Glob::new));
        Self { globs: globs.collect(), placement }
    }

    fn tier(&self, new: &terrace_core::Placement<'_>) -> u32 {
        let is_match = |(rule, glob): &(&Rule, &Option<Glob>)| {
            let size = |is_right: &dyn Fn(u64) -> bool| new.size_hint_bytes.is_some_and(is_right);
            glob.as_ref().is_none_or(|glob| glob.is_match(new.key.as_str()))
                && rule.size_min_bytes.is_none_or(|least| size(&|size| size >= least))
                && rule.size_max_bytes.is_none_or(|most| size(&|size| size <= most))
                && rule.temperature.is_none_or(|advice| advice == new.hint.temperature.into())
        };
        let found = self.placement.rules.iter().zip(&self.globs).find(is_match);
        found.map_or(self.placement.tier, |(rule, _)| rule.tier)
    }
}

impl Placer for Table {
    fn place(&self, new: &terrace_core::Placement<'_>) -> Placed {
        // Tiers and layouts that make no sense are put right by the stack; this keeps them such.
        let tier = TierIndex(u8::try_from(self.tier(new)).unwrap_or(u8::MAX));
        let layout = match self.placement.segment_bytes {
            Some(segment_bytes) => Layout::Fixed { segment_bytes },
            None => Layout::One,
        };
        Placed { tier, layout }
    }
}
