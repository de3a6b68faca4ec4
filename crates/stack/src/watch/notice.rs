// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a watcher gets; every type is data that can cross a socket.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use terrace_core::{Error, Key};

use crate::report::Problem;

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// Migrations: queued, begun, under way, ended.
    Migration,
    /// Tiers: added, drained, full, removed.
    Tier,
    /// The policy: another one, other parameters, and what it did wrong.
    Policy,
    /// What scrubs found and mended.
    Scrub,
    /// What applications do, as the policy sees it. Sent only on request.
    Events,
}

impl NoticeKind {
    /// All kinds.
    pub const ALL: [NoticeKind; 5] = [
        NoticeKind::Migration,
        NoticeKind::Tier,
        NoticeKind::Policy,
        NoticeKind::Scrub,
        NoticeKind::Events,
    ];

    /// As people and programs write it.
    pub fn word(self) -> &'static str {
        match self {
            NoticeKind::Migration => "migration",
            NoticeKind::Tier => "tier",
            NoticeKind::Policy => "policy",
            NoticeKind::Scrub => "scrub",
            NoticeKind::Events => "events",
        }
    }

    pub(super) fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl FromStr for NoticeKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let words = Self::ALL.map(Self::word).join(", ");
        Self::ALL.into_iter().find(|kind| kind.word() == text).ok_or_else(|| {
            Error::invalid("read a kind of notice", format!("one of {words} is expected"))
                .with("kind", format!("{text:?}"))
        })
    }
}

/// Which notices a watcher wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchFilter {
    /// Of these kinds.
    pub kinds: Vec<NoticeKind>,
    /// Of what is about objects, only those of this namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Of these, only names that begin so.
    #[serde(default)]
    pub prefix: String,
}

impl Default for WatchFilter {
    /// Everything but storage events.
    fn default() -> Self {
        let kinds = NoticeKind::ALL.into_iter().filter(|kind| *kind != NoticeKind::Events);
        Self { kinds: kinds.collect(), namespace: None, prefix: String::new() }
    }
}

impl WatchFilter {
    pub(super) fn bits(&self) -> u32 {
        self.kinds.iter().fold(0, |bits, kind| bits | kind.bit())
    }

    /// Whether it lets a notice of this kind about this object through; what is about no object
    /// concerns all of them.
    pub(super) fn takes(&self, kind: NoticeKind, about: Option<&Key>) -> bool {
        self.kinds.contains(&kind) && about.is_none_or(|key| self.takes_key(key))
    }

    pub(super) fn takes_key(&self, key: &Key) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| key.namespace() == namespace)
            && key.name().starts_with(&self.prefix)
    }
}

/// Something that happened, as one watcher gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Counts what passes the watcher's filter, from 1 on. Where the watcher was too slow for
    /// some, their numbers are missing.
    pub number: u64,
    /// When, nanoseconds since 1970.
    pub wall_ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: Happening,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Happening {
    /// To a migration.
    Migration(MigrationNotice),
    /// To a tier.
    Tier(TierNotice),
    /// To the policy.
    Policy(PolicyNotice),
    /// In a scrub.
    Scrub(ScrubNotice),
    /// To objects, through applications.
    Events(EventsNotice),
    /// The watcher was too slow: the last so many notices were thrown away. Its number is that of
    /// the last of them.
    Lost {
        /// How many.
        count: u64,
    },
}

impl Happening {
    /// What it is about; `None` for what a slow watcher lost.
    pub fn kind(&self) -> Option<NoticeKind> {
        Some(match self {
            Happening::Migration(_) => NoticeKind::Migration,
            Happening::Tier(_) => NoticeKind::Tier,
            Happening::Policy(_) => NoticeKind::Policy,
            Happening::Scrub(_) => NoticeKind::Scrub,
            Happening::Events(_) => NoticeKind::Events,
            Happening::Lost { .. } => return None,
        })
    }

    /// Memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        const ONE_BYTES: usize = 1 << 10;
        const EVENT_BYTES: usize = 256;
        match self {
            Happening::Events(events) => ONE_BYTES + events.events.len() * EVENT_BYTES,
            _ => ONE_BYTES,
        }
    }
}

/// A migration when it entered a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigrationNotice {
    /// `queued`, `started`, `progress`, `ended`.
    pub state: String,
    /// Names the migration.
    pub id: u64,
    /// The object.
    pub key: String,
    /// The segment.
    pub segment: u32,
    /// `move`, `promote`, `copy`, `drop-copy`, `drain`.
    pub action: String,
    /// The tier it leaves.
    pub from: String,
    /// The tier it goes to.
    pub to: String,
    /// What wants it: `user`, `policy NAME`, `drain`.
    pub by: String,
    /// Why, as they say.
    pub reason: String,
    /// Its length.
    pub size_bytes: u64,
    /// Bytes copied so far.
    pub copied_bytes: u64,
    /// How it ended, as [`terrace_core::Outcome::word`]; `None` before that.
    pub outcome: Option<String>,
    /// More about a failure; empty otherwise.
    pub detail: String,
    /// How long it took once it had begun; `None` before its end.
    pub duration_ns: Option<u64>,
    /// Modelled energy of both devices over that time.
    pub modelled_energy_j: Option<f64>,
}

/// A tier that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierNotice {
    /// Its name.
    pub tier: String,
    /// `added`, `removed`, `draining`, `undrained`, `full` (above its critical watermark), `roomy`
    /// (below it again).
    pub state: String,
}

/// What became of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyNotice {
    /// The policy that decides from now on.
    pub name: String,
    /// `policy` (another one), `parameter`, `dry-run`, `calls`, `replaced` (it failed, and the
    /// built-in fallback took over).
    pub change: String,
    /// What changed, or what it did wrong.
    pub detail: String,
}

/// What a scrub found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubNotice {
    /// Whether it is right again.
    pub is_mended: bool,
    /// What it is.
    pub finding: Problem,
}

/// Storage events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsNotice {
    /// At most [`EventsNotice::MAX`].
    pub events: Vec<EventNotice>,
}

impl EventsNotice {
    /// Most events of one notice.
    pub const MAX: usize = 256;
}

/// A storage event, or several of a kind that were summed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventNotice {
    /// When, nanoseconds since 1970.
    pub wall_ns: u64,
    /// What: `read`, `write`, `create` and so on.
    pub event: String,
    /// The object.
    pub key: String,
    /// The segment.
    pub segment: u32,
    /// The tier.
    pub tier: String,
    /// Where in the object.
    pub offset_bytes: u64,
    /// How much.
    pub length_bytes: u64,
    /// How long it took.
    pub latency_ns: u64,
    /// How many there were.
    pub count: u32,
    /// How a migration ended; `done` for everything else.
    pub outcome: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_word_of_its_own() {
        for kind in NoticeKind::ALL {
            assert_eq!(kind.word().parse::<NoticeKind>().expect("known"), kind);
        }
        let error = "coffee".parse::<NoticeKind>().expect_err("unknown");
        assert!(error.to_string().contains("migration"), "{error}");
    }

    #[test]
    fn a_filter_looks_at_kind_namespace_and_prefix() {
        let key = |text| Key::parse(text).expect("legal");
        let filter = WatchFilter {
            namespace: Some("run".into()),
            prefix: "4".into(),
            ..WatchFilter::default()
        };
        assert!(filter.takes(NoticeKind::Migration, Some(&key("run/41"))));
        assert!(!filter.takes(NoticeKind::Migration, Some(&key("run/5"))));
        assert!(!filter.takes(NoticeKind::Migration, Some(&key("other/41"))));
        assert!(!filter.takes(NoticeKind::Events, Some(&key("run/41"))), "nobody asked for them");
        assert!(filter.takes(NoticeKind::Tier, None), "a tier concerns every object");
    }
}
