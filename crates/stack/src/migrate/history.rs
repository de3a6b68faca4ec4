// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a segment is where it is: its latest moves, kept in the catalog.

use std::sync::atomic::Ordering;

use terrace_core::{Key, Outcome, Persistency, Result, Slot, TierIndex};

use crate::catalog::codec::{Reader, Writer};
use crate::catalog::map::Write;
use crate::memory::entry::{Entry, Segment};
use crate::report::HistoryReport;
use crate::shared::Shared;
use crate::shared::benefits::Tally;
use crate::shared::moves::{Move, MoveWish};

const VERSION: u8 = 2;

/// Of those that say nothing of benefits.
const VERSION_BARE: u8 = 1;

/// Moves that are kept of a segment.
const ITEMS_MAX: usize = 8;

/// Segments whose benefit is kept when the store is closed: the most used ones, so that closing
/// takes a second at most.
const KEPT_MAX: usize = 10_000;

/// Adds how a migration ended to its segment's history.
pub(crate) fn note_move(shared: &Shared, one: &Move, outcome: Outcome, took_ns: u64) {
    if outcome == Outcome::Cancelled && shared.is_closing.load(Ordering::Acquire) {
        // The policy asks again when the store is opened: every short command would leave a line.
        return;
    }
    let report = one.report(shared);
    let what = match (outcome, one.request.wish) {
        (Outcome::Done, MoveWish::Move | MoveWish::Drain) => "moved".into(),
        (Outcome::Done, MoveWish::Promote) => "promoted".into(),
        (Outcome::Done, MoveWish::Copy) => "copied".into(),
        (Outcome::Done, MoveWish::DropCopy) => "dropped copy".into(),
        (other, _) => format!("refused: {other}"),
    };
    let is_from_policy = one.request.benefit_s.is_finite() && one.request.benefit_s != 0.0;
    let item = HistoryReport {
        bytes: report.copied_bytes,
        duration_ns: took_ns,
        modelled_energy_j: energy_j(shared, one, took_ns),
        from: Some(report.from),
        expected_benefit_s: is_from_policy.then_some(one.request.benefit_s),
        ..HistoryReport::new(
            shared.clock.wall_ns(),
            &one.request.by,
            &what,
            &report.to,
            one.request.reason.clone(),
        )
    };
    change(shared, &one.request.key, one.object_id, one.request.segment, |items| {
        measure(shared, items, one.slot);
        items.push(item);
    });
}

/// Notes what the last moves were good for, when the store is closed.
pub(crate) fn note_benefits(shared: &Shared) {
    for owner in shared.benefits.most(KEPT_MAX) {
        change(shared, &owner.key, owner.object_id, owner.segment, |items| {
            measure_with(shared, items, &[owner.tally]);
        });
    }
}

/// Says of the last move of a segment what it was good for, where that is known.
fn measure(shared: &Shared, items: &mut [HistoryReport], slot: (Slot, u32)) {
    measure_with(shared, items, &shared.benefits.of(slot));
}

fn measure_with(shared: &Shared, items: &mut [HistoryReport], tallies: &[Tally]) {
    let Some(last) = items.iter_mut().rfind(|item| item.is_move()) else { return };
    let name = |tier: TierIndex| shared.tier(tier).name.as_str();
    // The policy's thread and the one that moves are not in step.
    let is_of = |tally: &&Tally| {
        last.tier == name(tally.to) && last.from.as_deref() == Some(name(tally.from))
    };
    if let Some(tally) = tallies.iter().find(is_of) {
        last.measured_benefit_s = tally.saved_s(&shared.tiers);
        last.accesses = tally.accesses;
    }
}

/// Changes the history of a segment. It is for people: a catalog that cannot take it shows in the
/// next write that matters.
fn change(
    shared: &Shared,
    key: &Key,
    object_id: u64,
    segment: u32,
    change: impl FnOnce(&mut Vec<HistoryReport>),
) {
    let Ok(mut items) = read(shared, object_id, segment) else { return };
    change(&mut items);
    let surplus = items.len().saturating_sub(ITEMS_MAX);
    let bytes = encode(&items[surplus..]);
    // What was deleted or cut off meanwhile must not leave a row behind.
    if let Ok(Some(entry)) = shared.borrow_entry(key) {
        let _changes = crate::lock(&entry.changes);
        let has_it = entry.segments.load().iter().any(|one| one.number == segment);
        if entry.object_id == object_id && has_it && !entry.is_deleted() {
            let _ = shared.catalog.commit(&[Write::History(object_id, segment, Some(bytes))]);
        }
    }
}

/// Modelled energy of both devices over the time of a migration.
pub(crate) fn energy_j(shared: &Shared, one: &Move, took_ns: u64) -> f64 {
    let active_w =
        shared.tier(one.from).figures.active_w + shared.tier(one.request.to).figures.active_w;
    active_w * took_ns as f64 * 1e-9
}

/// The history of a new segment that did not come to its tier.
pub(crate) fn spilled(
    shared: &Shared,
    wanted: TierIndex,
    to: TierIndex,
    level: Persistency,
) -> Vec<u8> {
    let reason = match shared.tier(wanted) {
        tier if tier.is_retired() => format!("{} was removed", tier.name),
        tier if !tier.takes_data() => format!("{} takes nothing new", tier.name),
        tier if !tier.keeps(level) => format!("{} does not keep data at {level}", tier.name),
        tier => format!("{} was full", tier.name),
    };
    let (now_ns, to) = (shared.clock.wall_ns(), &shared.tier(to).name);
    encode(&[HistoryReport::new(now_ns, "stack", "spilled", to, reason)])
}

/// The history of a segment without bytes that another tier has room for; `past` is that before.
pub(crate) fn relocated(
    shared: &Shared,
    past: Option<&[u8]>,
    (full, to): (TierIndex, TierIndex),
) -> Vec<u8> {
    // Room is not refused because what is for people is damaged.
    let mut items = past.and_then(|bytes| decode(bytes).ok()).unwrap_or_default();
    let [from, to] = [full, to].map(|tier| shared.tier(tier).name.clone());
    let reason = format!("{from} was full");
    let now_ns = shared.clock.wall_ns();
    items.push(HistoryReport {
        from: Some(from),
        ..HistoryReport::new(now_ns, "stack", "spilled", &to, reason)
    });
    encode(&items[items.len().saturating_sub(ITEMS_MAX)..])
}

/// What is known of how a segment came where it is, oldest first; `tier` is where it is now.
pub(crate) fn explain(
    shared: &Shared,
    entry: &Entry,
    segment: &Segment,
    tier: TierIndex,
) -> Result<Vec<HistoryReport>> {
    let mut items = read(shared, entry.object_id, segment.number)?;
    measure(shared, &mut items, (segment.slot, segment.incarnation));
    // Placements are not kept: the first move says where it was before, unless it was let go.
    let placed_on = match items.first() {
        None => Some(shared.tier(tier).name.clone()),
        Some(first) if items.len() < ITEMS_MAX => first.from.clone(),
        Some(_) => None,
    };
    if let Some(tier) = placed_on {
        let reason = "new object".into();
        let placed = HistoryReport::new(entry.created_ns, "placer", "placed", &tier, reason);
        items.insert(0, placed);
    }
    Ok(items)
}

/// The history of a segment, newest last.
fn read(shared: &Shared, object_id: u64, segment: u32) -> Result<Vec<HistoryReport>> {
    match shared.catalog.history(object_id, segment)? {
        Some(bytes) => decode(&bytes),
        None => Ok(Vec::new()),
    }
}

pub(crate) fn encode(items: &[HistoryReport]) -> Vec<u8> {
    let mut out = Writer::new(VERSION);
    out.u32(items.len() as u32);
    for item in items {
        out.u64(item.wall_ns).text(&item.by).text(&item.what).text(&item.tier);
        out.text(&item.reason).u64(item.bytes).u64(item.duration_ns);
        out.u64(item.modelled_energy_j.to_bits());
        out.text(item.from.as_deref().unwrap_or_default());
        for benefit_s in [item.expected_benefit_s, item.measured_benefit_s] {
            out.u64(benefit_s.unwrap_or(f64::NAN).to_bits());
        }
        out.u64(item.accesses);
    }
    out.finish()
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<HistoryReport>> {
    let (mut input, version) = Reader::with_versions(bytes, VERSION_BARE..=VERSION, "history")?;
    let mut items = Vec::new();
    for _ in 0..input.u32()? {
        let wall_ns = input.u64()?;
        let [by, what, tier, reason] = [input.text()?, input.text()?, input.text()?, input.text()?];
        let mut item = HistoryReport {
            bytes: input.u64()?,
            duration_ns: input.u64()?,
            modelled_energy_j: f64::from_bits(input.u64()?),
            ..HistoryReport::new(wall_ns, &by, &what, &tier, reason)
        };
        if version > VERSION_BARE {
            item.from = Some(input.text()?).filter(|name| !name.is_empty());
            item.expected_benefit_s = benefit(&mut input)?;
            item.measured_benefit_s = benefit(&mut input)?;
            item.accesses = input.u64()?;
        }
        items.push(item);
    }
    input.finish()?;
    Ok(items)
}

/// A number, or one certain other thing where it is not known.
fn benefit(input: &mut Reader<'_>) -> Result<Option<f64>> {
    let value = f64::from_bits(input.u64()?);
    match value.is_nan() {
        false => Ok(Some(value)),
        true if value.to_bits() == f64::NAN.to_bits() => Ok(None),
        true => Err(input.wrong("a benefit is no number")),
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::ErrorKind;

    use super::*;

    #[test]
    fn a_history_is_read_as_it_was_written() {
        let placed = HistoryReport::new(1, "placer", "placed", "fast", "new object".into());
        let moved = HistoryReport {
            bytes: 2,
            duration_ns: 3,
            modelled_energy_j: 0.5,
            from: Some("slow".into()),
            expected_benefit_s: Some(1.5),
            measured_benefit_s: Some(-0.25),
            accesses: 4,
            ..placed.clone()
        };
        let items = [placed, moved];
        assert_eq!(decode(&encode(&items)).expect("reads"), items);
    }

    #[test]
    fn what_is_not_known_is_written_in_one_way() {
        let item = HistoryReport::new(1, "user", "moved", "fast", "because".into());
        let bytes = encode(&[item]);
        let known = f64::NAN.to_bits().to_le_bytes();
        let at = bytes.windows(8).position(|window| window == known).expect("it is there");
        let mut other = Writer::new(VERSION);
        // Behind the version, which the writer puts there, and without the checksum.
        let body = &bytes[1..bytes.len() - 4];
        for (index, byte) in body.iter().enumerate() {
            other.u8(if index + 1 == at { byte ^ 1 } else { *byte });
        }
        assert_eq!(decode(&other.finish()).expect_err("refused").kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_history_without_benefits_is_read() {
        let mut out = Writer::new(VERSION_BARE);
        out.u32(1).u64(7).text("user").text("moved").text("slow").text("because");
        out.u64(8).u64(9).u64(0.5_f64.to_bits());
        let items = decode(&out.finish()).expect("reads");
        assert_eq!((items[0].bytes, items[0].duration_ns), (8, 9));
        assert_eq!((items[0].from.as_deref(), items[0].expected_benefit_s), (None, None));
        assert_eq!((items[0].measured_benefit_s, items[0].accesses), (None, 0));
    }
}
