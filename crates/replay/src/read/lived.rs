// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a store lived through in a span of time, from its own trace: what was asked of it, where
//! that lay before, and how long answers took.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use terrace_core::{EventKind, Result, TierIndex};

use super::own::{Own, Told};
use super::{Named, Source};
use crate::request::{Operation, Request};

/// Requests that are kept: the last ones, 72 bytes each. What is replayed many times has to fit into
/// memory and into a window.
const REQUESTS_MAX: u64 = 1 << 20;

/// A span of the life of a store.
#[derive(Clone, Debug)]
pub struct Lived {
    /// What was asked of it, in order.
    pub(crate) requests: Arc<[Request]>,
    /// What was there before the first of them.
    pub(crate) present: Vec<Present>,
    /// What objects are called.
    pub(crate) names: Vec<(u64, Named)>,
    /// Reads and writes, and from the first of them to the last answer.
    pub accesses: u64,
    /// See [`Lived::accesses`].
    pub span_s: f64,
    /// What all answers took, added up.
    pub access_s: f64,
    /// By tier, in the order of the names that were given.
    pub tiers: Vec<LivedTier>,
    /// Accesses that are summed up in others, whose times are not known.
    pub summed_up: u64,
    /// Accesses before those that are kept.
    pub left_out: u64,
}

/// What a tier did of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LivedTier {
    /// Reads and writes.
    pub accesses: u64,
    /// Time in its backend, added up.
    pub device_s: f64,
}

/// Something that was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Present {
    /// The number that requests have of it.
    pub(crate) id: u64,
    /// Where it lay.
    pub(crate) tier: TierIndex,
    /// How long it was, as far as is known from the trace.
    pub(crate) bytes: u64,
}

/// What is known of a segment by now.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    was_created: bool,
    /// Where it lay before the first event that tells.
    tier: Option<TierIndex>,
    bytes: u64,
    /// In which order it first occurred.
    turn: usize,
}

impl Lived {
    /// Reads the part between two points in time, in nanoseconds since 1970, of the trace in a
    /// directory, which may still be written. `tiers` are the names of those of the store.
    ///
    /// # Errors
    ///
    /// Those of [`super::Trace::open`] and [`super::Trace::read`].
    pub fn read(
        directory: &Path,
        (from_wall_ns, until_wall_ns): (u64, u64),
        tiers: &[String],
    ) -> Result<Self> {
        let span = from_wall_ns..=until_wall_ns;
        let open = || Own::between(directory, from_wall_ns, until_wall_ns);
        let (mut own, mut count) = (open()?, 0_u64);
        while let Some(told) = own.next()? {
            count += u64::from(is_access(told.request.as_ref()) && span.contains(&told.wall_ns));
        }
        let left_out = count.saturating_sub(REQUESTS_MAX);
        let (mut own, mut passed) = (open()?, 0);
        let mut life = Life::new(tiers);
        own.want_names();
        while let Some(told) = own.next()? {
            if !span.contains(&told.wall_ns) {
                continue;
            }
            passed += u64::from(is_access(told.request.as_ref()));
            if passed > left_out {
                life.take(&told, own.head().map_or(&[], |head| &head.tiers));
            }
        }
        Ok(life.into_lived(left_out, own.take_names()))
    }
}

struct Life<'a> {
    names: &'a [String],
    requests: Vec<Request>,
    known: HashMap<u64, Known>,
    tiers: Vec<LivedTier>,
    accesses: u64,
    access_ns: u64,
    summed_up: u64,
    began_ns: u64,
    ended_ns: u64,
}

impl<'a> Life<'a> {
    fn new(names: &'a [String]) -> Self {
        Self {
            names,
            requests: Vec::new(),
            known: HashMap::new(),
            tiers: vec![LivedTier::default(); names.len()],
            accesses: 0,
            access_ns: 0,
            summed_up: 0,
            began_ns: u64::MAX,
            ended_ns: 0,
        }
    }

    fn take(&mut self, told: &Told, tiers: &[terrace_trace::Tier]) {
        let turn = self.known.len();
        let tier = self.tier(told.event.tier, tiers);
        let known =
            self.known.entry(told.object).or_insert_with(|| Known { turn, ..Known::default() });
        match told.event.kind {
            EventKind::Create if known.tier.is_none() => known.was_created = true,
            EventKind::Read | EventKind::Write if known.tier.is_none() => known.tier = tier,
            // It came from elsewhere: with two tiers from the other one, else most likely from
            // the next.
            EventKind::Moved if known.tier.is_none() => {
                known.tier = tier.map(|tier| match tier.0 {
                    0 => tier.below(),
                    above => TierIndex(above - 1),
                });
            }
            _ => {}
        }
        let Some(request) = &told.request else { return };
        if !request.operation.is_access() {
            self.requests.push(*request);
        }
        if !is_access(Some(request)) {
            return;
        }
        self.requests.push(*request);
        let end_bytes = request.offset_bytes.saturating_add(request.length_bytes);
        known.bytes = known.bytes.max(end_bytes).max(match request.operation {
            Operation::Read => request.size_bytes,
            _ => 0,
        });
        self.accesses += 1;
        self.access_ns += request.latency_ns;
        self.summed_up += u64::from(told.event.count.saturating_sub(1));
        self.began_ns = self.began_ns.min(told.wall_ns);
        self.ended_ns = self.ended_ns.max(told.wall_ns.saturating_add(request.latency_ns));
        if let Some(tier) = tier {
            let lived = &mut self.tiers[tier.index()];
            lived.accesses += 1;
            lived.device_s += told.waits.device_ns(request.latency_ns) as f64 * 1e-9;
        }
    }

    /// The place among the names of a tier of the trace, whose order may be another one.
    fn tier(&self, tier: TierIndex, tiers: &[terrace_trace::Tier]) -> Option<TierIndex> {
        let name = &tiers.get(tier.index())?.name;
        let place = self.names.iter().position(|other| other == name)?;
        Some(TierIndex(place as u8))
    }

    fn into_lived(self, left_out: u64, mut names: Vec<(u64, Named)>) -> Lived {
        names.retain(|(id, _)| self.known.contains_key(id));
        let mut known: Vec<_> = self.known.into_iter().collect();
        // As they came: the same trace comes to the same.
        known.sort_by_key(|(_, known)| known.turn);
        let present = known.into_iter().filter(|(_, known)| !known.was_created);
        let present = present.filter_map(|(id, known)| {
            let tier = known.tier.filter(|tier| tier.index() < self.names.len())?;
            Some(Present { id, tier, bytes: known.bytes })
        });
        Lived {
            requests: self.requests.into(),
            present: present.collect(),
            names,
            accesses: self.accesses,
            span_s: self.ended_ns.saturating_sub(self.began_ns) as f64 * 1e-9,
            access_s: self.access_ns as f64 * 1e-9,
            tiers: self.tiers,
            summed_up: self.summed_up,
            left_out,
        }
    }
}

/// Whether it reads or writes something. What does not, as a read at the end of an object, says nothing
/// of a tier.
fn is_access(request: Option<&Request>) -> bool {
    request.is_some_and(|one| one.operation.is_access() && one.length_bytes > 0)
}

#[cfg(test)]
mod tests {
    use terrace_core::{Event, Figures, Key, Persistency, Slot, Watermarks};
    use terrace_trace::{About, Origin, Settings, Tier, Waits, Writer};

    use super::*;

    const BEGAN_NS: u64 = 1_000_000_000_000;

    fn event(kind: EventKind, slot: Slot, tier: u8, at_ms: u64) -> Event {
        let time_ns = BEGAN_NS + at_ms * 1_000_000;
        Event { tier: TierIndex(tier), ..Event::new(kind, slot, 0, time_ns) }
    }

    fn access(kind: EventKind, slot: Slot, tier: u8, at_ms: u64) -> Event {
        let (length_bytes, latency_ns) = (1000, 5_000_000);
        Event { length_bytes, latency_ns, ..event(kind, slot, tier, at_ms) }
    }

    /// What is read of a store with the tiers `fast` and `slow`, whose names are given here.
    fn lived(events: &[Event], span_ms: (u64, u64), names: [&str; 2]) -> Lived {
        let home = tempfile::tempdir().expect("a temporary directory");
        let tier = |name: &str| Tier {
            name: name.into(),
            figures: Figures::default(),
            watermarks: Watermarks::default(),
            persistency: Persistency::Storage,
        };
        let directory = home.path().join("trace");
        let settings = Settings {
            directory: directory.clone(),
            max_bytes: 1 << 30,
            salt: None,
            has_decisions: false,
        };
        let origin = Origin {
            store_id: 1,
            wall_ns: BEGAN_NS,
            monotonic_ns: BEGAN_NS,
            tiers: vec![tier("fast"), tier("slow")],
        };
        let mut writer = Writer::begin(settings, origin).expect("it is empty");
        let waits = Waits { guard_ns: 1_000_000, stack_ns: 0 };
        for event in events {
            let key = Key::new("test", &event.slot.to_string()).expect("digits");
            let about =
                About { object_id: event.slot.into(), segment: 0, start_bytes: 0, key: &key };
            writer.access(event, waits, || Some(about));
        }
        assert_eq!(writer.end().lost_records, 0);
        let at = |ms: u64| BEGAN_NS + ms * 1_000_000;
        let span = (at(span_ms.0), at(span_ms.1));
        Lived::read(&directory, span, &names.map(String::from)).expect("readable")
    }

    #[test]
    fn where_things_lay_is_where_they_were_first_read_or_what_they_came_from() {
        let events = [
            access(EventKind::Read, 1, 1, 0),
            event(EventKind::Moved, 1, 0, 10),
            access(EventKind::Read, 1, 0, 20),
            event(EventKind::Create, 2, 0, 30),
            access(EventKind::Write, 2, 0, 31),
            event(EventKind::Moved, 3, 1, 40),
            access(EventKind::Read, 3, 1, 50),
            access(EventKind::Write, 4, 1, 60),
            // It says nothing about where something is, and this nothing at all.
            event(EventKind::Open, 5, 0, 70),
            event(EventKind::Read, 4, 1, 80),
        ];
        let lived = lived(&events, (0, 1000), ["fast", "slow"]);
        let places: Vec<_> =
            lived.present.iter().map(|one| (one.id, one.tier.0, one.bytes)).collect();
        assert_eq!(places, [(1, 1, 1000), (3, 0, 1000), (4, 1, 1000)]);
        assert_eq!((lived.accesses, lived.requests.len()), (5, 7));
        assert!((lived.access_s - 0.025).abs() < 1e-9 && (lived.span_s - 0.065).abs() < 1e-9);
        let tiers: Vec<_> = lived.tiers.iter().map(|tier| tier.accesses).collect();
        assert_eq!(tiers, [2, 3]);
        assert!((lived.tiers[1].device_s - 0.012).abs() < 1e-9, "without waits");
    }

    #[test]
    fn only_a_span_is_read_and_tiers_are_known_by_their_names() {
        let events: Vec<_> =
            (0..10).map(|at| access(EventKind::Read, at, 1, at as u64 * 10)).collect();
        let lived = lived(&events, (30, 59), ["slow", "fast"]);
        assert_eq!(lived.accesses, 3);
        assert!(lived.present.iter().all(|one| one.tier == TierIndex(0)));
        let ids: Vec<_> = lived.present.iter().map(|one| one.id).collect();
        assert_eq!(ids, [3, 4, 5], "in the order in which they came");
    }

    #[test]
    fn what_was_summed_up_is_counted() {
        let mut events = vec![access(EventKind::Read, 1, 0, 0)];
        events.push(Event { count: 7, ..access(EventKind::Read, 1, 0, 10) });
        let lived = lived(&events, (0, 1000), ["fast", "slow"]);
        assert_eq!((lived.accesses, lived.summed_up, lived.left_out), (2, 6, 0));
    }
}
