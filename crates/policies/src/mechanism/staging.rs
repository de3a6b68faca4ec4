// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Leases: applications ask for segments to be on a tier and to stay there for some time.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use terrace_core::{
    Action, ActionKind, Error, Event, EventKind, Outcome, Result, SegmentView, Slot, TierIndex,
    View,
};

use super::glob::Glob;
use super::pace::{self, Fits, Turn};
use super::parameters::{read_duration_ns, read_tier};
use super::roster::{Asked, Roster};
use super::saved::{self, Name, Names};

/// Leases at a time; each takes about 100 bytes.
const LEASES_MAX: usize = 100_000;

/// Leases looked at in one round.
const STEPS_MAX: usize = 1024;

/// Missing keys that a reply names.
const MISSING_SHOWN_MAX: usize = 10;

/// What users wait for goes before what a policy thinks is useful.
const PRIORITY: i32 = 10;

/// All leases of a policy.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    leases: BTreeMap<Slot, Lease>,
    /// Segments that are not on their tier yet.
    wanted: BTreeSet<Slot>,
    /// Where the next round begins in `wanted`, so that each gets its turn.
    next: Slot,
    /// The leases that end, soonest first.
    ends: BTreeSet<(u64, Slot)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    incarnation: u32,
    tier: TierIndex,
    /// `u64::MAX` for no end.
    until_ns: u64,
}

/// A lease as it is saved: with the time that is left, because clocks start anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedLease {
    name: Name,
    tier: String,
    left_ns: Option<u64>,
    /// Whether the segment is not on its tier yet; earlier releases did not say.
    #[serde(default = "always")]
    is_waiting: bool,
}

fn always() -> bool {
    true
}

impl SavedLease {
    /// The segment that it was for.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StageBody {
    keys: Option<Vec<String>>,
    glob: Option<String>,
    tier: String,
    until: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseBody {
    keys: Option<Vec<String>>,
    glob: Option<String>,
}

impl Staging {
    /// Whether a lease keeps the segment where it is.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.leases.contains_key(&slot)
    }

    /// Answers `stage` and `release`, and refuses what is neither. Returns the reply, and the slots
    /// that are free again.
    pub(crate) fn answer(
        &mut self,
        view: &View,
        kind: &str,
        body: &[u8],
    ) -> Result<(Vec<u8>, Vec<Slot>)> {
        let (reply, released) = match kind {
            "stage" => (self.stage(view, body)?, Vec::new()),
            "release" => self.release(view, body)?,
            _ => return Err(saved::unknown_message(kind, "stage, release, status")),
        };
        Ok((saved::reply(&reply), released))
    }

    /// Answers `stage`: leases the segments of the keys, or of the keys that match, as of now.
    fn stage(&mut self, view: &View, body: &[u8]) -> Result<Value> {
        let body: StageBody = read_body(body)?;
        let tiers: Vec<_> = view.tiers.iter().map(|tier| tier.name.clone()).collect();
        let tier = read_tier(&body.tier, &tiers)?;
        let until_ns = match &body.until {
            Some(text) => view.now_ns.saturating_add(read_duration_ns(text)?),
            None => u64::MAX,
        };
        if body.keys.is_some() == body.glob.is_some() {
            return Err(Error::invalid("stage", "either keys or glob is expected"));
        }
        let (found, missing) = select(view, body.keys.as_deref(), body.glob.as_deref());
        let able = |slot: &Slot| pace::can_take(view, tier, &view.segments[*slot as usize]);
        let (chosen, refused): (Vec<_>, Vec<_>) = found.into_iter().partition(able);
        let new_count = chosen.iter().filter(|slot| !self.holds(**slot)).count();
        if self.leases.len() + new_count > LEASES_MAX {
            let reason = format!("a policy keeps at most {LEASES_MAX} leases");
            return Err(Error::invalid("stage", reason)
                .with("leases", self.leases.len())
                .with("wanted", new_count));
        }

        let (mut bytes, mut to_move) = (0, 0);
        for slot in &chosen {
            let segment = &view.segments[*slot as usize];
            bytes += segment.size_bytes;
            to_move += u64::from(segment.tier != tier);
            self.lease(*slot, segment, tier, until_ns);
        }
        Ok(json!({
            "segments": chosen.len(),
            "bytes": bytes,
            "to_move": to_move,
            "refused": refused.len(),
            "missing_count": missing.len(),
            "missing": missing.iter().take(MISSING_SHOWN_MAX).collect::<Vec<_>>(),
            "until_ns": (until_ns != u64::MAX).then_some(until_ns),
        }))
    }

    /// Answers `release`: ends the leases of the keys, or of the keys that match, or all.
    /// Returns also the slots that are free again.
    fn release(&mut self, view: &View, body: &[u8]) -> Result<(Value, Vec<Slot>)> {
        let body: ReleaseBody = match body.trim_ascii() {
            [] => ReleaseBody::default(),
            body => read_body(body)?,
        };
        let released: Vec<Slot> = match (&body.keys, &body.glob) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid("release", "keys or glob is expected, not both"));
            }
            (None, None) => self.leases.keys().copied().collect(),
            (keys, glob) => select(view, keys.as_deref(), glob.as_deref())
                .0
                .into_iter()
                .filter(|slot| self.holds(*slot))
                .collect(),
        };
        released.iter().for_each(|slot| self.forget(*slot));
        Ok((json!({ "segments": released.len() }), released))
    }

    /// For `status`.
    pub(crate) fn status(&self) -> Value {
        json!({ "leases": self.leases.len(), "waiting": self.wanted.len() })
    }

    /// Takes note of a receipt: what failed is tried again, when the roster's rest is over.
    pub(crate) fn observe(&mut self, event: &Event, asked: Asked) {
        let is_failed = !matches!(event.outcome, Outcome::Done | Outcome::Already);
        if event.kind == EventKind::Receipt
            && asked == Asked::Staging
            && is_failed
            && self.holds(event.slot)
        {
            self.wanted.insert(event.slot);
        }
    }

    /// Ends the lease that an earlier user of the slot had.
    pub(crate) fn meet(&mut self, slot: Slot, incarnation: u32) {
        if self.leases.get(&slot).is_some_and(|lease| lease.incarnation != incarnation) {
            self.forget(slot);
        }
    }

    /// Ends the lease of a slot, for one that was deleted too.
    pub(crate) fn forget(&mut self, slot: Slot) {
        if let Some(lease) = self.leases.remove(&slot) {
            self.ends.remove(&(lease.until_ns, slot));
            self.wanted.remove(&slot);
        }
    }

    /// Ends the leases whose time is over; returns the slots that are free again.
    pub(crate) fn expire(&mut self, now_ns: u64) -> Vec<Slot> {
        let mut expired = Vec::new();
        while let Some((until_ns, slot)) = self.ends.first().copied() {
            if until_ns > now_ns || expired.len() == STEPS_MAX {
                break;
            }
            self.forget(slot);
            expired.push(slot);
        }
        expired
    }

    /// Asks for moves to where leases want segments. Returns, per tier, the bytes that wait for
    /// room there, so that the policy makes some.
    pub(crate) fn plan(&mut self, turn: &mut Turn<'_>, roster: &mut Roster) -> Vec<u64> {
        let view = turn.view;
        let mut waiting_bytes = vec![0; view.tiers.len()];
        let turns = self.wanted.range(self.next..).chain(self.wanted.range(..self.next));
        for slot in turns.take(STEPS_MAX).copied().collect::<Vec<_>>() {
            self.next = slot.saturating_add(1);
            let lease = self.leases[&slot];
            let Some(segment) = view.segment(slot, lease.incarnation) else { continue };
            if segment.tier == lease.tier || !pace::can_take(view, lease.tier, segment) {
                self.wanted.remove(&slot);
                continue;
            }
            // A segment that the policy has not seen yet cannot be asked for yet.
            let is_ready = roster.segment(view, slot).is_some()
                && roster.is_free(slot, segment)
                && !roster.has_failed(slot, view.now_ns);
            let is_copied = segment.copies.contains(lease.tier);
            let bytes = if is_copied { 0 } else { segment.size_bytes };
            if !is_ready || !turn.room.has(lease.tier, bytes) {
                if is_ready {
                    waiting_bytes[lease.tier.index()] += bytes;
                }
                continue;
            }
            match turn.fits(bytes, 1.0) {
                Fits::Yes => {}
                Fits::Later => break,
                Fits::Never => continue,
            }
            if turn.ask(segment, wish(view, slot, segment, lease), lease.tier, bytes) {
                self.wanted.remove(&slot);
                roster.ask(slot, Asked::Staging);
            }
        }
        waiting_bytes
    }

    /// The slot whose turn is next, to be saved. Where slots differ it is as fair as any other.
    pub(crate) fn next(&self) -> Slot {
        self.next
    }

    /// All leases, to be saved.
    pub(crate) fn save(&self, view: &View) -> Vec<SavedLease> {
        let saved = |(slot, lease): (&Slot, &Lease)| {
            let segment = view.segment(*slot, lease.incarnation)?;
            let is_endless = lease.until_ns == u64::MAX;
            Some(SavedLease {
                name: Name::of(segment),
                tier: view.tiers[lease.tier.index()].name.clone(),
                left_ns: (!is_endless).then(|| lease.until_ns.saturating_sub(view.now_ns)),
                is_waiting: self.wanted.contains(slot),
            })
        };
        self.leases.iter().filter_map(saved).collect()
    }

    /// Takes over leases; those of segments or tiers that are gone have ended.
    pub(crate) fn restore(
        &mut self,
        view: &View,
        names: &Names<'_>,
        saved: &[SavedLease],
        next: Slot,
    ) {
        *self = Self { next, ..Self::default() };
        for lease in saved.iter().take(LEASES_MAX) {
            let tier = view.tiers.iter().position(|tier| tier.name == lease.tier);
            let (Some(slot), Some(tier)) = (names.slot(&lease.name), tier) else { continue };
            let until_ns =
                lease.left_ns.map_or(u64::MAX, |left_ns| view.now_ns.saturating_add(left_ns));
            let segment = &view.segments[slot as usize];
            self.lease(slot, segment, TierIndex(tier as u8), until_ns);
            if !lease.is_waiting {
                self.wanted.remove(&slot);
            }
        }
    }

    fn lease(&mut self, slot: Slot, segment: &SegmentView, tier: TierIndex, until_ns: u64) {
        self.forget(slot);
        self.leases.insert(slot, Lease { incarnation: segment.incarnation, tier, until_ns });
        if until_ns != u64::MAX {
            self.ends.insert((until_ns, slot));
        }
        self.wanted.insert(slot);
    }
}

fn wish(view: &View, slot: Slot, segment: &SegmentView, lease: Lease) -> Action {
    // On the way up the old location stays as a clean copy, so that the way back is free.
    let kind = match lease.tier < segment.tier {
        true => ActionKind::Promote { to: lease.tier },
        false => ActionKind::Move { to: lease.tier },
    };
    let reason = format!("staged to {} by a message", view.tiers[lease.tier.index()].name);
    Action { priority: PRIORITY, ..pace::action(slot, segment, kind, reason) }
}

/// The slots of the segments that are meant, and the keys that nothing has. Walks all segments,
/// which is for messages only.
fn select<'a>(
    view: &View,
    keys: Option<&'a [String]>,
    glob: Option<&str>,
) -> (Vec<Slot>, Vec<&'a str>) {
    if let Some(glob) = glob.map(Glob::new) {
        let is_match = |segment: &SegmentView| glob.is_match(segment.key.as_str());
        let found = view.live().filter(|(_, segment)| is_match(segment));
        return (found.map(|(slot, _)| slot).collect(), Vec::new());
    }
    let keys = keys.unwrap_or_default();
    let wanted: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let mut present = HashSet::new();
    let mut found = Vec::new();
    for (slot, segment) in view.live() {
        if wanted.contains(segment.key.as_str()) {
            present.insert(segment.key.as_str());
            found.push(slot);
        }
    }
    let missing = keys.iter().map(String::as_str).filter(|key| !present.contains(key));
    (found, missing.collect())
}

fn read_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| {
        let reason =
            r#"a body like {"keys": ["a/b"], "tier": "fast", "until": "10min"} is expected"#;
        Error::invalid("read a message", reason).with("cause", &error)
    })
}
