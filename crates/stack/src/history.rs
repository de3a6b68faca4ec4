// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a segment is where it is: its latest moves, kept in the catalog.

use std::sync::atomic::Ordering;

use terrace_core::{Outcome, Result, TierIndex};

use crate::catalog::Write;
use crate::codec::{Reader, Writer};
use crate::mover::{Move, MoveWish};
use crate::report::HistoryReport;
use crate::shared::Shared;

const VERSION: u8 = 1;

/// Moves that are kept of a segment.
const ITEMS_MAX: usize = 8;

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
    let item = HistoryReport {
        wall_ns: shared.clock.wall_ns(),
        by: one.request.by.clone(),
        what,
        tier: report.to,
        reason: one.request.reason.clone(),
        bytes: report.copied_bytes,
        duration_ns: took_ns,
        modelled_energy_j: energy_j(shared, one, took_ns),
    };
    let segment = one.request.segment;
    // History is for people: a catalog that cannot take it shows in the next write that matters.
    let Ok(mut items) = read(shared, one.object_id, segment) else { return };
    items.push(item);
    let surplus = items.len().saturating_sub(ITEMS_MAX);
    let bytes = encode(&items[surplus..]);
    // An object that was deleted meanwhile must not leave a row behind.
    if let Ok(Some(entry)) = shared.borrow_entry(&one.request.key) {
        let _changes = crate::lock(&entry.changes);
        let is_same = entry.object_id == one.object_id;
        if is_same && !entry.is_deleted() {
            let _ = shared.catalog.commit(&[Write::History(one.object_id, segment, bytes)]);
        }
    }
}

/// Modelled energy of both devices over the time of a migration.
pub(crate) fn energy_j(shared: &Shared, one: &Move, took_ns: u64) -> f64 {
    let active_w =
        shared.tier(one.from).figures.active_w + shared.tier(one.request.to).figures.active_w;
    active_w * took_ns as f64 * 1e-9
}

/// The history of a new object that its tier had no room for.
pub(crate) fn spilled(shared: &Shared, wanted: TierIndex, to: TierIndex) -> Vec<u8> {
    encode(&[HistoryReport {
        wall_ns: shared.clock.wall_ns(),
        by: "stack".into(),
        what: "spilled".into(),
        tier: shared.tier(to).name.clone(),
        reason: match shared.tier(wanted) {
            tier if tier.is_retired() => format!("{} was removed", tier.name),
            tier if tier.takes_data() => format!("{} was full", tier.name),
            tier => format!("{} takes nothing new", tier.name),
        },
        bytes: 0,
        duration_ns: 0,
        modelled_energy_j: 0.0,
    }])
}

/// The history of a segment, newest last.
pub(crate) fn read(shared: &Shared, object_id: u64, segment: u32) -> Result<Vec<HistoryReport>> {
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
    }
    out.finish()
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<HistoryReport>> {
    let mut input = Reader::new(bytes, VERSION, "history")?;
    let mut items = Vec::new();
    for _ in 0..input.u32()? {
        items.push(HistoryReport {
            wall_ns: input.u64()?,
            by: input.text()?,
            what: input.text()?,
            tier: input.text()?,
            reason: input.text()?,
            bytes: input.u64()?,
            duration_ns: input.u64()?,
            modelled_energy_j: f64::from_bits(input.u64()?),
        });
    }
    input.finish()?;
    Ok(items)
}
