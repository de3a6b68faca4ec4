// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What messages about leases say, and which segments they mean.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use terrace_core::{Error, Result, Slot, TierIndex, View};

use crate::mechanism::glob::Glob;
use crate::mechanism::parameters::{read_duration_ns, read_tier};

/// Patterns that messages which are carried out together may have: each is tried on every key.
const GLOBS_MAX: usize = 32;

/// Which segments, where to, by when and for how long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stage {
    keys: Option<Vec<String>>,
    glob: Option<String>,
    tier: String,
    deadline: Option<String>,
    until: Option<String>,
}

/// Which segments stay where they are, and for how long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Keep {
    keys: Option<Vec<String>>,
    glob: Option<String>,
    until: Option<String>,
}

/// Which segments.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    keys: Option<Vec<String>>,
    glob: Option<String>,
}

/// From when to when a lease holds, on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// When the segment has to be there; 0 for as soon as possible.
    pub(super) deadline_ns: u64,
    /// `u64::MAX` for no end.
    pub(super) until_ns: u64,
}

impl Stage {
    pub(crate) fn set(&self) -> Set<'_> {
        Set { keys: self.keys.as_deref(), glob: self.glob.as_deref() }
    }

    pub(super) fn tier(&self, view: &View) -> Result<TierIndex> {
        let tiers: Vec<_> = view.tiers.iter().map(|tier| tier.name.clone()).collect();
        read_tier(&self.tier, &tiers)
    }

    /// A lease without an end lasts for `lease_ns` after its deadline.
    pub(super) fn term(&self, view: &View, lease_ns: u64) -> Result<Term> {
        let after = |text: &String| Ok(view.now_ns.saturating_add(read_duration_ns(text)?));
        let deadline_ns = self.deadline.as_ref().map(after).transpose()?;
        let begin_ns = deadline_ns.unwrap_or(view.now_ns);
        let until_ns = match &self.until {
            Some(text) => after(text)?,
            None => begin_ns.saturating_add(lease_ns),
        };
        if self.until.is_some() && deadline_ns.is_some() && until_ns <= begin_ns {
            return Err(Error::invalid("stage", "until is not after the deadline"));
        }
        Ok(Term { deadline_ns: deadline_ns.unwrap_or(0), until_ns })
    }
}

impl Keep {
    pub(crate) fn set(&self) -> Set<'_> {
        Set { keys: self.keys.as_deref(), glob: self.glob.as_deref() }
    }

    pub(super) fn term(&self, view: &View, lease_ns: u64) -> Result<Term> {
        let for_ns = self.until.as_deref().map_or(Ok(lease_ns), read_duration_ns)?;
        Ok(Term { deadline_ns: 0, until_ns: view.now_ns.saturating_add(for_ns) })
    }
}

impl Named {
    pub(crate) fn set(&self) -> Set<'_> {
        Set { keys: self.keys.as_deref(), glob: self.glob.as_deref() }
    }
}

/// The segments of some keys, or of all keys that match a pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set<'a> {
    keys: Option<&'a [String]>,
    glob: Option<&'a str>,
}

/// What there is of a set.
#[derive(Debug, Default)]
pub(crate) struct Selected<'a> {
    pub(crate) slots: Vec<Slot>,
    /// The keys that nothing has.
    pub(crate) missing: Vec<&'a str>,
}

impl<'a> Set<'a> {
    /// Whether the message names nothing, which means all where that is allowed.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_none() && self.glob.is_none()
    }

    /// Finds the segments of all sets in one walk over the view, which is for messages only.
    ///
    /// # Errors
    ///
    /// `Invalid` where one of them has not exactly one of keys and a pattern, or where there are
    /// too many patterns.
    pub(crate) fn select(sets: &[Set<'a>], view: &View) -> Result<Vec<Selected<'a>>> {
        let is_one = |set: &Set<'_>| set.keys.is_some() != set.glob.is_some();
        if !sets.iter().all(is_one) {
            return Err(Error::invalid("read a message", "either keys or glob is expected"));
        }
        let glob = |(index, set): (usize, &Set<'_>)| Some((index, Glob::new(set.glob?)));
        let globs: Vec<_> = sets.iter().enumerate().filter_map(glob).collect();
        if globs.len() > GLOBS_MAX {
            let reason = format!("at most {GLOBS_MAX} patterns are allowed together");
            return Err(Error::invalid("read a message", reason).with("patterns", globs.len()));
        }
        let mut wanted: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, set) in sets.iter().enumerate() {
            for key in set.keys.unwrap_or_default() {
                wanted.entry(key).or_default().push(index);
            }
        }
        let mut selected: Vec<_> = sets.iter().map(|_| Selected::default()).collect();
        let mut present = HashSet::new();
        for (slot, segment) in view.live() {
            let key = segment.key.as_str();
            if let Some(sets) = wanted.get(key) {
                present.insert(key);
                add(&mut selected, sets, slot);
            }
            for (index, _) in globs.iter().filter(|(_, glob)| glob.is_match(key)) {
                selected[*index].slots.push(slot);
            }
        }
        for (set, selected) in sets.iter().zip(&mut selected) {
            let keys = set.keys.unwrap_or_default().iter().map(String::as_str);
            selected.missing = keys.filter(|key| !present.contains(key)).collect();
        }
        Ok(selected)
    }
}

/// Adds a slot to these sets, to each once: a key may be named twice.
fn add(selected: &mut [Selected<'_>], sets: &[usize], slot: Slot) {
    for index in sets {
        let slots = &mut selected[*index].slots;
        if slots.last() != Some(&slot) {
            slots.push(slot);
        }
    }
}

/// Reads the body of a message.
///
/// # Errors
///
/// `Invalid` with an example.
pub(crate) fn read_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| {
        let reason =
            r#"a body like {"keys": ["a/b"], "tier": "fast", "until": "10min"} is expected"#;
        Error::invalid("read a message", reason).with("cause", &error)
    })
}
