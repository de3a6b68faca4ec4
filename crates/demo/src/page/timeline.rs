// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The picture of a run: what was seen, as the timeline takes it.

use terrace_report::timeline::{Builder, CELLS_MAX, Picture, Seen, What};

use crate::recording::{MarkKind, ObjectRecord, Recording};

/// The picture of a run.
pub(super) fn picture(recording: &Recording) -> Picture {
    let mut builder = Builder::new(CELLS_MAX);
    for name in &recording.tiers {
        let tier = builder.tier(name, u64::MAX);
        // That of its name, also where the store has only one.
        builder.colour(tier, usize::from(name == "slow"));
    }
    for phase in &recording.phases {
        builder.phase(&phase.name, ns(phase.start_s), ns(phase.end_s));
    }
    for (number, object) in recording.objects.iter().enumerate() {
        take(&mut builder, number as u64, object);
    }
    for sample in &recording.fill {
        for (tier, bytes) in sample.taken_bytes.iter().enumerate() {
            builder.fill(ns(sample.at_s), tier, *bytes);
        }
    }
    for change in &recording.changes {
        builder.note(ns(change.at_s), change.words.clone());
    }
    builder.finish()
}

/// Takes all events of an object, in order of time.
fn take(builder: &mut Builder, number: u64, object: &ObjectRecord) {
    let seen = |at_s: f64, what: What, tier: usize| Seen {
        id: (number, 0),
        time_ns: ns(at_s),
        what,
        tier: Some(tier),
        bytes: 0,
        // More than nothing: it was written.
        size_bytes: 1,
        latency_ns: 0,
        guard_ns: 0,
        stack_ns: 0,
        count: 1,
    };
    let marks = object.marks.iter().map(|mark| {
        let what = match mark.kind {
            MarkKind::Write => What::Write,
            MarkKind::Read => What::Read,
        };
        (seen(mark.at_s, what, mark.tier), "")
    });
    let moves = object.moves.iter();
    let moves = moves.map(|one| (seen(one.at_s, What::Moved, one.to), one.reason.as_str()));
    let mut events: Vec<_> = marks.chain(moves).collect();
    events.sort_by_key(|(seen, _)| seen.time_ns);
    let created = seen(object.created_s, What::Create, object.placed_on);
    for (seen, reason) in std::iter::once((created, "")).chain(events) {
        if !reason.is_empty() {
            builder.reason(seen.id, reason);
        }
        builder.take(&seen, || object.key.clone());
    }
}

fn ns(s: f64) -> u64 {
    (s * 1e9).round() as u64
}
