// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random recordings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use terrace_core::{
    Action, ActionKind, Event, EventKind, Figures, Hint, Key, Outcome, Persistency, Random,
    SegmentView, Temperature, TierIndex, TierSet, Watermarks,
};
use terrace_trace::{
    About, Access, Cause, Damage, Head, Item, MAX_BYTES_DEFAULT, Origin, ParameterValue,
    PolicyChange, Problem, Reader, Record, Round, SavedState, Settings, Snapshot, State, Subject,
    Tier, TierState, Waits, Writer,
};

pub(crate) const STORE: u128 = 0x1234_5678_9abc_def0;

pub(crate) fn settings(directory: &Path) -> Settings {
    let directory = directory.into();
    Settings { directory, max_bytes: MAX_BYTES_DEFAULT, salt: None, has_decisions: true }
}

pub(crate) fn origin() -> Origin {
    let tier = |name: &str| Tier {
        name: name.into(),
        figures: Figures { capacity_bytes: 1 << 30, idle_w: 0.5, ..Figures::default() },
        watermarks: Watermarks::default(),
        persistency: Persistency::Storage,
    };
    let tiers = vec![tier("fast"), tier("slow")];
    Origin { store_id: STORE, wall_ns: 1_700_000_000_000_000_000, monotonic_ns: 500, tiers }
}

pub(crate) fn key(slot: u32) -> Key {
    Key::new("run", &format!("object {slot}, ü")).expect("legal")
}

pub(crate) fn object_id(slot: u32, incarnation: u32) -> u64 {
    u64::from(slot) << 20 | u64::from(incarnation)
}

/// Numbers of every length.
pub(crate) fn number(random: &mut Random) -> u64 {
    let shift = random.below(64);
    random.next_u64() >> shift
}

pub(crate) fn access(random: &mut Random, time_ns: u64) -> Access {
    let event = Event {
        tier: TierIndex(random.below(2) as u8),
        count: if random.chance(0.9) { 1 } else { 1 + random.below(100) as u32 },
        offset_bytes: number(random),
        length_bytes: number(random),
        latency_ns: number(random),
        outcome: Outcome::ALL[random.below(12) as usize],
        ..Event::new(
            EventKind::ALL[random.below(EventKind::ALL.len() as u64) as usize],
            random.below(300) as u32,
            random.below(2) as u32,
            time_ns,
        )
    };
    let guard_ns = if random.chance(0.9) { 0 } else { number(random) };
    let stack_ns = if random.chance(0.5) { 0 } else { number(random) };
    Access { event, waits: Waits { guard_ns, stack_ns } }
}

fn segment(random: &mut Random, slot: u32) -> SegmentView {
    SegmentView {
        key: key(slot),
        segment: random.below(3) as u32,
        incarnation: random.below(2) as u32,
        is_live: random.chance(0.9),
        start_bytes: number(random),
        size_bytes: number(random),
        tier: TierIndex(random.below(2) as u8),
        copies: TierSet(random.below(4) as u32),
        opens: random.below(5) as u32,
        is_moving: random.chance(0.5),
        is_pinned: random.chance(0.5),
        persistency: Persistency::Process,
        hint: Hint { temperature: Temperature::Cold },
        created_ns: number(random),
        last_read_ns: number(random),
        last_write_ns: number(random),
        last_close_ns: number(random),
    }
}

fn tiers(random: &mut Random) -> Vec<TierState> {
    let mut one = || TierState {
        used_bytes: number(random),
        reserved_bytes: number(random),
        copy_bytes: number(random),
        garbage_bytes: number(random),
        incoming_bytes: number(random),
        outgoing_bytes: number(random),
        utilisation: random.unit(),
        is_writable: random.chance(0.5),
    };
    vec![one(), one()]
}

/// A text, now and then longer than a block.
fn text(random: &mut Random) -> String {
    let length = if random.chance(0.02) { 200_000 } else { random.below(50) };
    (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

fn policy(random: &mut Random) -> PolicyChange {
    let value = ParameterValue { name: "high".into(), value: text(random) };
    let bytes = text(random).into_bytes();
    let cause = match random.below(6) {
        0 => Cause::Start(None),
        1 => Cause::Start(Some(SavedState { version: 3, bytes })),
        2 => Cause::Running,
        3 => Cause::Parameter(value.clone()),
        4 => Cause::Message { kind: "stage".into(), body: bytes },
        _ => Cause::Fallback { why: text(random) },
    };
    let (now_ns, seed) = (number(random), number(random));
    let (name, parameters, tiers) = ("lru".into(), vec![value], tiers(random));
    PolicyChange { now_ns, cause, name, parameters, seed, tiers }
}

fn round(random: &mut Random, now_ns: u64) -> Round {
    Round {
        number: number(random),
        now_ns,
        events: number(random),
        actions: number(random),
        budget_bytes: number(random),
        budget_actions: number(random),
        tiers: tiers(random),
    }
}

fn action(random: &mut Random) -> Action {
    let tier = TierIndex(random.below(2) as u8);
    let kinds = [
        ActionKind::Move { to: tier },
        ActionKind::Promote { to: tier },
        ActionKind::Copy { to: tier },
        ActionKind::DropCopy { tier },
        ActionKind::Cancel,
    ];
    Action {
        slot: number(random) as u32,
        incarnation: number(random) as u32,
        kind: kinds[random.below(5) as usize],
        priority: number(random) as i32,
        reason: text(random),
        benefit_s: random.unit(),
    }
}

/// Writes random records, nearly all of them accesses; returns them. A time is its record's place.
pub(crate) fn write(writer: &mut Writer, random: &mut Random, count: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for index in 0..count {
        let time_ns = 1000 + index;
        let record = match random.below(200) {
            0 => Record::Snapshot(Snapshot { time_ns, slots: number(random) as u32 }),
            1 => {
                let slot = random.below(300) as u32;
                Record::State(State { slot, view: segment(random, slot) })
            }
            2 => Record::Round(round(random, time_ns)),
            3 => Record::Decision(action(random)),
            4 => Record::Policy(policy(random)),
            _ => Record::Access(access(random, time_ns)),
        };
        put(writer, &record, time_ns);
        records.push(record);
    }
    records
}

pub(crate) fn put(writer: &mut Writer, record: &Record, now_ns: u64) {
    match record {
        Record::Access(Access { event, waits }) => {
            let key = key(event.slot);
            writer.access(event, *waits, || {
                let object_id = object_id(event.slot, event.incarnation);
                Some(About { object_id, segment: 1, start_bytes: 7, key: &key })
            });
        }
        Record::Snapshot(snapshot) => writer.snapshot(snapshot),
        Record::State(state) => {
            let object_id = object_id(state.slot, state.view.incarnation);
            writer.state(state, now_ns, object_id);
        }
        Record::Round(round) => writer.round(round),
        Record::Decision(action) => writer.decision(action, now_ns),
        Record::Policy(change) => writer.policy(change),
    }
}

/// Everything that a reader comes upon.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) heads: Vec<Head>,
    pub(crate) records: Vec<Record>,
    pub(crate) problems: Vec<Problem>,
    /// Of accesses, by slot and incarnation, in the file where they are.
    pub(crate) subjects: HashMap<(u32, u32), Subject>,
    /// Accesses whose segment nobody could name.
    pub(crate) nameless: usize,
}

pub(crate) fn see(reader: Reader) -> Seen {
    let mut seen = Seen::default();
    let mut reader = reader;
    while let Some(item) = reader.next_item().expect("reads") {
        match item {
            Item::File(head) => seen.heads.push(head),
            Item::Problem(problem) => seen.problems.push(problem),
            Item::Record(record) => {
                if let Record::Access(Access { event, .. }) = &record {
                    let slot = (event.slot, event.incarnation);
                    match reader.subject(slot.0, slot.1) {
                        Some(subject) => drop(seen.subjects.insert(slot, subject.clone())),
                        None => seen.nameless += 1,
                    }
                }
                seen.records.push(record);
            }
        }
    }
    seen
}

pub(crate) fn read(directory: &Path) -> Seen {
    see(Reader::open(directory).expect("opens"))
}

/// The files of a trace, oldest first.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("lists");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("is there").path()).collect();
    files.sort();
    files
}

/// Whether this says that a file was not ended.
pub(crate) fn is_torn(problem: &Problem) -> bool {
    matches!(problem.what, Damage::Torn { .. })
}
