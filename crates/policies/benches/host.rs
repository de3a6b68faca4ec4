// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a policy from outside costs: nanoseconds per event in batches, and per placement in a shared
//! library; nanoseconds per event and microseconds per round in Python.
//!
//! `cargo bench -p terrace-policies --bench host`

#[allow(dead_code, reason = "shared with the tests, which use all of it")]
#[path = "../tests/host/build.rs"]
mod build;

use std::hint::black_box;
use std::path::Path;

use terrace_core::{
    Actions, Clock, Event, EventKind, Figures, Hint, Key, Persistency, Placement, Random,
    SegmentView, SystemClock, TierIndex, TierSet, TierView, View,
};
use terrace_policies::{host, program};

const SEGMENTS: u32 = 1_000_000;
const BATCH: usize = 1000;
const BATCHES: usize = 1000;

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let empty = dir.path().join("empty.so");
    build::fixture("table.c", "GOOD", &empty);
    let clock = SystemClock::default();
    let mut view = view();
    println!("library  segments_touched  batch  ns_per_event_median  low  high");
    for (name, path) in [("empty", empty.as_path()), ("lru-c", build::lru())] {
        for (touched, batch) in [(1000, BATCH), (SEGMENTS, BATCH), (1000, 1)] {
            let (low, median, high) = observe(&clock, &mut view, path, touched, batch);
            println!("{name:7}  {touched:16}  {batch:5}  {median:19.1}  {low:.1}  {high:.1}");
        }
    }
    println!("lru-c place: {:.1} ns", place(&clock, &view));
    println!("python  segments_touched   batch  ns_per_event_median  low  high  us_per_round");
    for (name, code) in [("counts", COUNTS), ("looks", LOOKS)] {
        let file = dir.path().join(format!("{name}.py"));
        std::fs::write(&file, code).expect("writes");
        for touched in [1000, SEGMENTS] {
            for cost in rounds(&clock, &mut view, &file, touched) {
                let Cost { batch, round_us, events_ns } = cost;
                let per_event = events_ns.map_or("-".into(), |[low, median, high]| {
                    format!("{median:.1}  {low:.1}  {high:.1}")
                });
                println!("{name:6}  {touched:16}  {batch:6}  {per_event:>19}  {round_us:.1}");
            }
        }
    }
}

/// Counts what is read, over the whole array.
const COUNTS: &str = "
from terrace.policy import READ, Policy

class Counts(Policy):
    reads = 0

    def observe(self, view, events):
        self.reads += int((events['kind'] == READ).sum())
";

/// The same, and looks at the segments in each round.
const LOOKS: &str = "
from terrace.policy import READ, Policy

class Looks(Policy):
    reads = latest_ns = 0

    def observe(self, view, events):
        self.reads += int((events['kind'] == READ).sum())
        self.latest_ns = int(view.segments['last_read_ns'][0])
";

/// What rounds of a policy in Python cost.
struct Cost {
    batch: usize,
    /// Microseconds of a round: the median of the groups.
    round_us: f64,
    /// Nanoseconds of an event, beyond what a round without any costs: 5 %, 50 % and 95 % of the
    /// groups.
    events_ns: Option<[f64; 3]>,
}

/// Rounds with batches of several sizes in turns, since a processor's clock changes. Those of one size
/// follow each other, so that what is put off until a round has been answered is paid by its like.
fn rounds(
    clock: &SystemClock,
    view: &mut View,
    file: &Path,
    touched: u32,
) -> impl Iterator<Item = Cost> {
    const GROUPS: usize = 50;
    const ROUNDS: usize = 8;
    const BATCHES: [usize; 4] = [0, 1000, 10_000, 100_000];
    let mut policy = program::start(file, view, &[]).expect("starts");
    let present: Vec<_> =
        (0..SEGMENTS).map(|slot| Event::new(EventKind::Present, slot, 1, 0)).collect();
    policy.observe(view, &present);
    policy.plan(view, &mut Actions::with_budget(u64::MAX, 1000));
    let mut random = Random::new(7);
    let mut round = |batch: usize| {
        let mut read = || Event::new(EventKind::Read, random.below(touched.into()) as u32, 1, 7);
        let events: Vec<_> = (0..batch).map(|_| read()).collect();
        events.iter().for_each(|event| view.apply(event));
        let start_ns = clock.now_ns();
        policy.observe(view, black_box(&events));
        policy.plan(view, &mut Actions::with_budget(u64::MAX, 1000));
        (clock.now_ns() - start_ns) as f64
    };
    let mut mean_ns = |batch: usize| {
        round(batch);
        (0..ROUNDS).map(|_| round(batch)).sum::<f64>() / ROUNDS as f64
    };
    let groups: Vec<_> = (0..GROUPS).map(|_| BATCHES.map(&mut mean_ns)).collect();
    BATCHES.into_iter().enumerate().map(move |(index, batch)| {
        let spread = |value: &dyn Fn(&[f64; BATCHES.len()]) -> f64| {
            let mut values: Vec<_> = groups.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            [GROUPS / 20, GROUPS / 2, GROUPS - 1 - GROUPS / 20].map(|at| values[at])
        };
        let per_event = |group: &[f64; BATCHES.len()]| (group[index] - group[0]) / batch as f64;
        Cost {
            batch,
            round_us: spread(&|group| group[index])[1] / 1000.0,
            events_ns: (batch > 0).then(|| spread(&per_event)),
        }
    })
}

fn view() -> View {
    let tier = |name: &str| TierView::empty(name, Figures::default());
    let mut view = View::new(vec![tier("fast"), tier("slow")], 1);
    for slot in 0..SEGMENTS {
        let segment = SegmentView {
            key: Key::new("bench", &slot.to_string()).expect("legal"),
            segment: 0,
            incarnation: 1,
            is_live: true,
            start_bytes: 0,
            size_bytes: 4096,
            tier: TierIndex(1),
            copies: TierSet::default(),
            opens: 0,
            is_moving: false,
            is_pinned: false,
            persistency: Persistency::Process,
            hint: Hint::default(),
            created_ns: 0,
            last_read_ns: 0,
            last_write_ns: 0,
            last_close_ns: 0,
        };
        view.insert(slot, segment);
    }
    view
}

/// Nanoseconds per event: 5 %, 50 % and 95 % of the batches.
fn observe(
    clock: &SystemClock,
    view: &mut View,
    library: &Path,
    touched: u32,
    batch: usize,
) -> (f64, f64, f64) {
    let mut policy = host::load(library, view, &[]).expect("loads");
    let event = |kind, slot, time_ns| Event::new(kind, slot, 1, time_ns);
    let present: Vec<_> = (0..SEGMENTS).map(|slot| event(EventKind::Present, slot, 0)).collect();
    policy.observe(view, &present);
    let mut random = Random::new(7);
    let mut costs_ns: Vec<f64> = (0..BATCHES)
        .map(|round| {
            let mut read =
                || event(EventKind::Read, random.below(touched.into()) as u32, round as u64);
            let events: Vec<_> = (0..batch).map(|_| read()).collect();
            events.iter().for_each(|event| view.apply(event));
            let start_ns = clock.now_ns();
            policy.observe(view, black_box(&events));
            (clock.now_ns() - start_ns) as f64 / batch as f64
        })
        .collect();
    costs_ns.sort_by(f64::total_cmp);
    (costs_ns[BATCHES / 20], costs_ns[BATCHES / 2], costs_ns[BATCHES - BATCHES / 20])
}

fn place(clock: &SystemClock, view: &View) -> f64 {
    const CALLS: u32 = 1_000_000;
    let policy = host::load(build::lru(), view, &[]).expect("loads");
    let placer = policy.placer();
    let key = Key::new("bench", "new").expect("legal");
    let (hint, start_bytes) = (Hint::default(), 0);
    let new = Placement { key: &key, hint, size_hint_bytes: None, segment: 0, start_bytes };
    let start_ns = clock.now_ns();
    for _ in 0..CALLS {
        black_box(placer.place(black_box(&new)));
    }
    (clock.now_ns() - start_ns) as f64 / f64::from(CALLS)
}
