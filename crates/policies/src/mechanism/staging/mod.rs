// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Leases: applications ask for segments to be on a tier and to stay there for some time.

mod request;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use terrace_core::{
    Action, ActionKind, Error, Event, EventKind, Outcome, Result, SegmentView, Slot, TierIndex,
    View,
};

use super::pace::{self, Fits, Turn};
use super::roster::{Asked, Roster};
use super::saved::{self, Name, Names};
use request::Term;

pub(crate) use request::{Keep, Named, Selected, Set, Stage, read_body};

/// Leases at a time; each takes about 100 bytes.
const LEASES_MAX: usize = 100_000;

/// Leases looked at in one round.
const STEPS_MAX: usize = 1024;

/// Missing keys that a reply names.
const MISSING_SHOWN_MAX: usize = 10;

/// How much longer than on its own a move to a deadline may take.
const MARGIN: f64 = 2.0;

/// How long before a deadline a move begins at the latest: rounds come every second or so, and a move
/// waits for its turn.
const LEAD_S: f64 = 5.0;

/// What users wait for goes before what a policy thinks is useful.
const PRIORITY: i32 = 10;

/// All leases of a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Staging {
    leases: BTreeMap<Slot, Lease>,
    /// Segments that are not on their tier yet, by the deadline of their lease.
    wanted: BTreeSet<(u64, Slot)>,
    /// Where the next round begins among those without deadline, so that each gets its turn.
    next: Slot,
    /// The leases that end, soonest first.
    ends: BTreeSet<(u64, Slot)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    incarnation: u32,
    tier: TierIndex,
    term: Term,
}

/// A lease as it is saved: with the time that is left, because clocks start anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedLease {
    name: Name,
    tier: String,
    left_ns: Option<u64>,
    /// Until its deadline, where that is not over.
    #[serde(default)]
    deadline_left_ns: Option<u64>,
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

impl Staging {
    /// Whether a lease keeps the segment where it is.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.leases.contains_key(&slot)
    }

    /// The slots that have leases.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.leases.keys().copied()
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
            "stage" => {
                let request: Stage = read_body(body)?;
                let selected = select(request.set(), view)?;
                (self.stage(view, &request, &selected, u64::MAX)?, Vec::new())
            }
            "release" => {
                let request: Named = match body.trim_ascii() {
                    [] => Named::default(),
                    body => read_body(body)?,
                };
                self.release(view, &request)?
            }
            _ => return Err(saved::unknown_message(kind, "stage, release, status")),
        };
        Ok((saved::reply(&reply), released))
    }

    /// Leases what was selected, as of now; without an end in the request for `lease_ns`.
    pub(crate) fn stage(
        &mut self,
        view: &View,
        request: &Stage,
        selected: &Selected<'_>,
        lease_ns: u64,
    ) -> Result<Value> {
        let tier = request.tier(view)?;
        let term = request.term(view, lease_ns)?;
        let able = |slot: &&Slot| pace::can_take(view, tier, &view.segments[**slot as usize]);
        let (chosen, refused): (Vec<_>, Vec<_>) = selected.slots.iter().partition(able);
        self.check_count("stage", &chosen)?;
        let (mut bytes, mut to_move) = (0, 0);
        for slot in &chosen {
            let segment = &view.segments[*slot as usize];
            bytes += segment.size_bytes;
            to_move += u64::from(segment.tier != tier);
            self.lease(*slot, Lease { incarnation: segment.incarnation, tier, term });
        }
        let until_ns = term.until_ns;
        Ok(json!({
            "segments": chosen.len(),
            "bytes": bytes,
            "to_move": to_move,
            "refused": refused.len(),
            "missing_count": selected.missing.len(),
            "missing": selected.missing.iter().take(MISSING_SHOWN_MAX).collect::<Vec<_>>(),
            "until_ns": (until_ns != u64::MAX).then_some(until_ns),
        }))
    }

    /// Leases what was selected where it is, without an end in the request for `lease_ns`.
    pub(crate) fn keep(
        &mut self,
        view: &View,
        request: &Keep,
        selected: &Selected<'_>,
        lease_ns: u64,
    ) -> Result<Value> {
        let term = request.term(view, lease_ns)?;
        self.check_count("keep", &selected.slots)?;
        let mut bytes = 0;
        for slot in &selected.slots {
            let SegmentView { incarnation, tier, size_bytes, .. } = view.segments[*slot as usize];
            bytes += size_bytes;
            self.lease(*slot, Lease { incarnation, tier, term });
        }
        Ok(json!({
            "segments": selected.slots.len(),
            "bytes": bytes,
            "missing_count": selected.missing.len(),
            "missing": selected.missing.iter().take(MISSING_SHOWN_MAX).collect::<Vec<_>>(),
            "until_ns": term.until_ns,
        }))
    }

    fn check_count(&self, what: &'static str, chosen: &[Slot]) -> Result<()> {
        let new_count = chosen.iter().filter(|slot| !self.holds(**slot)).count();
        if self.leases.len() + new_count <= LEASES_MAX {
            return Ok(());
        }
        Err(Error::invalid(what, format!("a policy keeps at most {LEASES_MAX} leases"))
            .with("leases", self.leases.len())
            .with("wanted", new_count))
    }

    /// Ends the leases of the keys, or of the keys that match, or all. Returns also the slots that
    /// are free again.
    fn release(&mut self, view: &View, request: &Named) -> Result<(Value, Vec<Slot>)> {
        let released: Vec<Slot> = match request.set().is_empty() {
            true => self.leases.keys().copied().collect(),
            false => {
                let selected = select(request.set(), view)?.slots;
                selected.into_iter().filter(|slot| self.holds(*slot)).collect()
            }
        };
        released.iter().for_each(|slot| self.forget(*slot));
        Ok((json!({ "segments": released.len() }), released))
    }

    /// For `status`.
    pub(crate) fn status(&self) -> Value {
        let to_deadlines = self.wanted.range((1, 0)..).count();
        json!({
            "leases": self.leases.len(),
            "waiting": self.wanted.len() - to_deadlines,
            "waiting_for_deadlines": to_deadlines,
        })
    }

    /// Takes note of a receipt: what failed is tried again, when the roster's rest is over.
    pub(crate) fn observe(&mut self, event: &Event, asked: Asked) {
        let is_failed = !matches!(event.outcome, Outcome::Done | Outcome::Already);
        if event.kind == EventKind::Receipt
            && asked == Asked::Staging
            && is_failed
            && self.holds(event.slot)
        {
            self.want(event.slot);
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
            self.ends.remove(&(lease.term.until_ns, slot));
            self.wanted.remove(&(lease.term.deadline_ns, slot));
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
        self.give_up_deadlines(view.now_ns);
        for slot in self.turns(view) {
            let lease = self.leases[&slot];
            if lease.term.deadline_ns == 0 {
                self.next = slot.saturating_add(1);
            }
            let wanted = (lease.term.deadline_ns, slot);
            let Some(segment) = view.segment(slot, lease.incarnation) else { continue };
            if segment.tier == lease.tier || !pace::can_take(view, lease.tier, segment) {
                self.wanted.remove(&wanted);
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
                self.wanted.remove(&wanted);
                roster.ask(slot, Asked::Staging);
            }
        }
        waiting_bytes
    }

    /// The segments to look at in a round: first those whose deadline is near, the nearest first, then
    /// those without.
    fn turns(&self, view: &View) -> Vec<Slot> {
        let with_deadline = self.wanted.range((1, 0)..).take(STEPS_MAX);
        let (mut due, mut needed_s, mut due_count) = (Vec::new(), LEAD_S, 0);
        for (deadline_ns, slot) in with_deadline {
            let lease = self.leases[slot];
            let Some(segment) = view.segment(*slot, lease.incarnation) else { continue };
            due.push(*slot);
            needed_s += MARGIN * move_s(view, segment, lease.tier);
            // All that come before have to be done as well.
            if needed_s >= deadline_ns.saturating_sub(view.now_ns) as f64 * 1e-9 {
                due_count = due.len();
            }
        }
        due.truncate(due_count);
        let at_once = |from, to| self.wanted.range((0, from)..=(0, to)).map(|(_, slot)| *slot);
        due.extend(at_once(self.next, Slot::MAX));
        if let Some(last) = self.next.checked_sub(1) {
            due.extend(at_once(0, last));
        }
        due.truncate(STEPS_MAX);
        due
    }

    /// What is late is wanted as soon as possible, and does not hold up others any more.
    fn give_up_deadlines(&mut self, now_ns: u64) {
        let with_deadline = self.wanted.range((1, 0)..).copied();
        let late: Vec<_> =
            with_deadline.take_while(|(deadline_ns, _)| *deadline_ns <= now_ns).collect();
        for (deadline_ns, slot) in late {
            self.wanted.remove(&(deadline_ns, slot));
            if let Some(lease) = self.leases.get_mut(&slot) {
                lease.term.deadline_ns = 0;
                self.wanted.insert((0, slot));
            }
        }
    }

    /// The slot whose turn is next, to be saved. Where slots differ it is as fair as any other.
    pub(crate) fn next(&self) -> Slot {
        self.next
    }

    /// All leases, to be saved.
    pub(crate) fn save(&self, view: &View) -> Vec<SavedLease> {
        let saved = |(slot, lease): (&Slot, &Lease)| {
            let segment = view.segment(*slot, lease.incarnation)?;
            let Term { deadline_ns, until_ns } = lease.term;
            let left_ns = |ns: u64| ns.saturating_sub(view.now_ns);
            Some(SavedLease {
                name: Name::of(segment),
                tier: view.tiers[lease.tier.index()].name.clone(),
                left_ns: (until_ns != u64::MAX).then(|| left_ns(until_ns)),
                deadline_left_ns: (deadline_ns != 0).then(|| left_ns(deadline_ns)),
                is_waiting: self.wanted.contains(&(deadline_ns, *slot)),
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
            let from_now = |ns: u64| view.now_ns.saturating_add(ns);
            let term = Term {
                deadline_ns: lease.deadline_left_ns.map_or(0, from_now),
                until_ns: lease.left_ns.map_or(u64::MAX, from_now),
            };
            let incarnation = view.segments[slot as usize].incarnation;
            self.lease(slot, Lease { incarnation, tier: TierIndex(tier as u8), term });
            if !lease.is_waiting {
                self.wanted.remove(&(term.deadline_ns, slot));
            }
        }
    }

    /// Leases a segment where it is.
    pub(crate) fn hold(&mut self, slot: Slot, segment: &SegmentView, until_ns: u64) {
        let SegmentView { incarnation, tier, .. } = *segment;
        self.lease(slot, Lease { incarnation, tier, term: Term { deadline_ns: 0, until_ns } });
    }

    /// When the lease of a slot ends, if it has one.
    pub(crate) fn ends_at(&self, slot: Slot) -> Option<u64> {
        self.leases.get(&slot).map(|lease| lease.term.until_ns)
    }

    fn lease(&mut self, slot: Slot, lease: Lease) {
        self.forget(slot);
        self.leases.insert(slot, lease);
        if lease.term.until_ns != u64::MAX {
            self.ends.insert((lease.term.until_ns, slot));
        }
        self.want(slot);
    }

    fn want(&mut self, slot: Slot) {
        if let Some(lease) = self.leases.get(&slot) {
            self.wanted.insert((lease.term.deadline_ns, slot));
        }
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

/// Seconds that a move to a lease's tier takes beside what applications do.
fn move_s(view: &View, segment: &SegmentView, to: TierIndex) -> f64 {
    if segment.tier == to || segment.copies.contains(to) {
        return 0.0;
    }
    let (source, target) = (&view.tiers[segment.tier.index()], &view.tiers[to.index()]);
    pace::move_s(segment.size_bytes, source, target)
}

fn select<'a>(set: Set<'a>, view: &View) -> Result<Selected<'a>> {
    Ok(Set::select(&[set], view)?.pop().expect("one set is selected"))
}
