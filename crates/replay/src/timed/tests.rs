// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small traces of which it is known what they must come to.

use std::io::Cursor;

use std::sync::Arc;

use terrace_core::{ActionKind, Actions, Figures, Parameter, Placer, Random, Watermarks};

use super::*;
use crate::format::Format;
use crate::read::Options;

const MIB: u64 = 1 << 20;

/// A line of a trace: seconds, object, bytes, read or write.
type Line = (u64, u64, u64, char);

fn trace(lines: &[Line]) -> Trace {
    let mut text = String::from("time,id,size,op\n");
    for (time_s, id, bytes, op) in lines {
        let op = if *op == 'r' { "read" } else { "write" };
        text += &format!("{time_s},{id},{bytes},{op}\n");
    }
    let options = Options { format: Some(Format::Csv), ..Options::default() };
    Trace::from_stream(Box::new(Cursor::new(text)), "test", &options).expect("it is a trace")
}

fn tier(name: &str, capacity_bytes: u64, latency_ns: u64, bytes_per_s: f64) -> TimedTier {
    let figures = Figures {
        capacity_bytes,
        latency_ns,
        read_bytes_per_s: bytes_per_s,
        write_bytes_per_s: bytes_per_s,
        parallelism: 1,
        idle_w: 1.0,
        active_w: 3.0,
        ..Figures::default()
    };
    let watermarks = Watermarks { low: 0.5, high: 0.9, critical: 1.0 };
    let view = TierView { watermarks, ..TierView::empty(name, figures) };
    TimedTier { view, character: Character::default(), recent: Recent::default() }
}

/// A fast tier of this capacity, and a slow one without a bound: 1 MiB takes 10 and 100 ms.
pub(super) fn options(fast_bytes: u64) -> TimedOptions {
    let fast = tier("fast", fast_bytes, 0, 100.0 * MIB as f64);
    let slow = tier("slow", u64::MAX, 0, 10.0 * MIB as f64);
    TimedOptions { every: Duration::from_millis(100), ..TimedOptions::new(vec![fast, slow]) }
}

fn run_with(
    options: &TimedOptions,
    lines: &[Line],
    policy: &str,
    parameters: &[(&str, &str)],
) -> Timed {
    let given: Vec<_> =
        parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let policy = terrace_policies::create(policy, &options.view(), &given).expect("it is legal");
    let population = Population::read(&mut trace(lines), &mut |_| {}).expect("readable");
    let replay = TimedReplay::new(options.clone());
    replay.run(population, trace(lines), policy, &mut |_| {}).expect("readable")
}

fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= expected.abs() * 1e-6 + 1e-9
}

#[test]
fn a_client_waits_for_its_answer_and_thinks_as_it_did() {
    // Both reads take 0.1 s; the client thought for 2 s in between.
    let timed = run_with(&options(MIB), &[(5, 1, MIB, 'r'), (7, 1, MIB, 'r')], "pinned", &[]);
    assert!(near(timed.makespan_s, 2.2), "{timed:?}");
    assert_eq!(timed.requests, 2);
    assert!(near(timed.reads.mean_s, 0.1) && timed.reads.count == 2, "{timed:?}");
    // In an open loop the second one comes when it came.
    let open = TimedOptions { is_open_loop: true, ..options(MIB) };
    let timed = run_with(&open, &[(5, 1, MIB, 'r'), (7, 1, MIB, 'r')], "pinned", &[]);
    assert!(near(timed.makespan_s, 2.1), "{timed:?}");
}

#[test]
fn what_is_read_first_was_there_and_what_is_written_is_placed() {
    let timed = run_with(&options(8 * MIB), &[(0, 1, MIB, 'r'), (0, 2, MIB, 'w')], "pinned", &[]);
    let [fast, slow] = &timed.tiers[..] else { panic!("two tiers") };
    assert_eq!((fast.written_bytes, fast.read_bytes, fast.writes), (MIB, 0, 1));
    assert_eq!((slow.written_bytes, slow.read_bytes, slow.reads), (0, MIB, 1));
    assert!(near(timed.makespan_s, 0.11), "{timed:?}");
    // 1 W each for 0.11 s, and 2 W more for as long as each worked.
    assert!(near(timed.joules, 2.0 * 0.11 + 2.0 * 0.01 + 2.0 * 0.1), "{timed:?}");
    assert!(near(timed.edp_js, timed.joules * 0.11));
}

#[test]
fn what_has_no_room_goes_on_to_the_next_tier() {
    let lines = [(0, 1, 3 * MIB, 'w'), (0, 2, 3 * MIB, 'w'), (0, 2, 3 * MIB, 'r')];
    let timed = run_with(&options(4 * MIB), &lines, "pinned", &[]);
    let [fast, slow] = &timed.tiers[..] else { panic!("two tiers") };
    assert_eq!((fast.written_bytes, slow.written_bytes), (3 * MIB, 3 * MIB));
    assert_eq!((fast.read_bytes, slow.read_bytes), (0, 3 * MIB));
    assert_eq!(fast.most_bytes, 3 * MIB);
}

#[test]
fn a_policy_moves_what_is_used_again() {
    let mut lines = Vec::new();
    for second in 0..40 {
        lines.push((second, 1, MIB, 'r'));
    }
    let stays = run_with(&options(8 * MIB), &lines, "pinned", &[]);
    assert_eq!((stays.migrations, stays.migrated_bytes), (0, 0));
    // Those that weigh by size see how large that is which was there before, too.
    for policy in ["lru", "heat", "gdsf"] {
        let moves = run_with(&options(8 * MIB), &lines, policy, &[]);
        assert_eq!((moves.migrations, moves.migrated_bytes), (1, MIB), "{policy}: {moves:?}");
        assert!(moves.makespan_s < stays.makespan_s, "{policy}: {moves:?}");
        assert!(moves.tiers[0].read_bytes > 30 * MIB, "{policy}: {moves:?}");
        assert_eq!(moves.tiers[1].moved_out_bytes, MIB, "{policy}");
        assert!(moves.outcomes.contains(&("done".into(), 1)), "{policy}: {moves:?}");
    }
}

#[test]
fn the_page_cache_answers_what_is_read_again() {
    let lines = [(0, 1, MIB, 'r'), (0, 1, MIB, 'r'), (0, 2, MIB, 'w'), (0, 2, MIB, 'r')];
    let mut options = TimedOptions { page_cache_bytes: 4 * MIB, ..options(8 * MIB) };
    let without = run_with(&options, &lines, "pinned", &[]);
    assert_eq!(without.cached_requests, 0, "it is in front of no tier");
    assert!(near(without.makespan_s, 0.22), "{without:?}");
    let memory = Cached { latency_ns: 0, bytes_per_s: 1000.0 * MIB as f64, takes_writes: false };
    for tier in &mut options.tiers {
        tier.character.cached = Some(memory);
    }
    let timed = run_with(&options, &lines, "pinned", &[]);
    assert_eq!(timed.cached_requests, 2);
    // What was there comes from the device once, what is written goes there.
    assert!(near(timed.makespan_s, 0.1 + 0.001 + 0.01 + 0.001), "{timed:?}");
    assert_eq!(timed.tiers[1].read_bytes, 2 * MIB, "a tier serves what is in memory, too");
    // A machine that takes writes by itself does so at the rate of the tier, as it is measured.
    options.tiers[0].character.cached = Some(Cached { takes_writes: true, ..memory });
    options.tiers[0].character.burst =
        Some(Burst { bytes: MIB / 2, sustained_bytes_per_s: 10.0 * MIB as f64 });
    let timed = run_with(&options, &lines, "pinned", &[]);
    assert!(near(timed.makespan_s, 0.1 + 0.001 + 0.005 + 0.05 + 0.001), "{timed:?}");
}

#[test]
fn memory_gives_faster_what_was_used_a_moment_ago() {
    let lines = [(0, 1, MIB, 'r'), (0, 1, MIB, 'r'), (0, 2, MIB, 'r'), (0, 1, MIB, 'r')];
    let mut options = options(8 * MIB);
    let recent = Recent::new(vec![(MIB, 0.25), (4 * MIB, 0.75), (8 * MIB, 1.0)]);
    options.tiers[1].recent = recent;
    // Of a tier that is memory itself: the first time, a moment later, another one, after that one.
    let timed = run_with(&options, &lines, "pinned", &[]);
    assert!(near(timed.makespan_s, 0.1 + 0.025 + 0.1 + 0.05), "{timed:?}");
    // A device is as slow as ever, and memory in front of it is not.
    let memory = Cached { latency_ns: 0, bytes_per_s: 1000.0 * MIB as f64, takes_writes: false };
    options.tiers[1].character.cached = Some(memory);
    let timed = run_with(&options, &lines, "pinned", &[]);
    assert!(near(timed.makespan_s, 4.0 * 0.1), "{timed:?}");
    options.page_cache_bytes = 4 * MIB;
    let timed = run_with(&options, &lines, "pinned", &[]);
    assert!(near(timed.makespan_s, 2.0 * 0.1 + 0.00025 + 0.0005), "{timed:?}");
}

#[test]
fn a_migration_reads_what_is_in_memory_and_waits_until_its_copy_is_durable() {
    let lines: Vec<_> = (0..20).map(|second| (second, 1, MIB, 'r')).collect();
    let mut options = TimedOptions { page_cache_bytes: 8 * MIB, ..options(8 * MIB) };
    let memory = Cached { latency_ns: 0, bytes_per_s: f64::INFINITY, takes_writes: true };
    for (tier, sync_ns) in options.tiers.iter_mut().zip([3_000_000, 0]) {
        tier.character.cached = Some(memory);
        tier.character.sync_ns = sync_ns;
    }
    options.followed = vec![1];
    let timed = run_with(&options, &lines, "lru", &[]);
    let [moved] = &timed.stories[0].moves[..] else { panic!("{timed:?}") };
    let (ended_s, outcome) = moved.ended.expect("it ended");
    assert_eq!(outcome, Outcome::Done);
    // Neither the source nor what is looked at again is read from a device.
    assert!(near(ended_s - moved.asked_s, 0.01 + 0.003), "{moved:?}");
}

#[test]
fn a_tier_that_cannot_keep_what_is_promised_takes_nothing() {
    let mut lines: Vec<_> = (0..40).map(|second| (second, 1, MIB, 'r')).collect();
    lines.push((41, 2, MIB, 'w'));
    let mut options = TimedOptions { persistency: Persistency::Process, ..options(8 * MIB) };
    options.tiers[0].view.persistency = Persistency::None;
    // One that does not ask for it beforehand.
    let timed = run_with(&options, &lines, "lru", &[("gate", "off")]);
    assert_eq!((timed.migrations, timed.tiers[0].most_bytes), (0, 0), "{timed:?}");
    assert_eq!(timed.tiers[1].written_bytes, MIB);
    options.persistency = Persistency::None;
    let timed = run_with(&options, &lines, "lru", &[]);
    assert_eq!((timed.migrations, timed.tiers[0].written_bytes), (1, MIB), "{timed:?}");
}

#[test]
fn at_level_shared_new_objects_go_where_storage_is() {
    let mut options = options(1 << 30);
    options.tiers[0].view.persistency = Persistency::Storage;
    options.tiers[1].view.persistency = Persistency::Storage;
    options.tiers.push(tier("bucket", u64::MAX, 0, 1e6));
    options.tiers[2].view.persistency = Persistency::Shared;
    options.tiers[2].character.is_whole = true;
    options.persistency = Persistency::Shared;
    let timed = run_with(&options, &[(0, 1, MIB, 'w')], "lru", &[]);
    let writes: Vec<_> = timed.tiers.iter().map(|tier| tier.writes).collect();
    assert_eq!(writes, [1, 0, 0], "{timed:?}");
}

/// Reads and writes of a few dozen objects of many sizes.
fn mixed(seed: u64) -> Vec<Line> {
    let mut random = Random::new(seed);
    let line = |at: u64| {
        let object = random.below(60) * random.below(3);
        let op = if random.below(3) == 0 { 'w' } else { 'r' };
        (at / 8, object, (1 + object % 7) * 300_000, op)
    };
    (0..2000).map(line).collect()
}

#[test]
fn the_same_comes_to_the_same() {
    for policy in ["lru", "write-buffer", "size", "pinned"] {
        let all: Vec<_> =
            (0..2).map(|_| run_with(&options(10 * MIB), &mixed(1), policy, &[])).collect();
        assert_eq!(all[0], all[1], "{policy}");
    }
    let [one, other] = [1, 2].map(|seed| run_with(&options(10 * MIB), &mixed(seed), "lru", &[]));
    assert_ne!(one.action_hash, other.action_hash);
}

#[test]
fn no_tier_holds_more_than_its_capacity_and_nothing_is_lost() {
    for policy in ["lru", "write-buffer", "size", "pinned"] {
        for seed in 0..8 {
            let lines = mixed(seed);
            let timed = run_with(&options(10 * MIB), &lines, policy, &[]);
            assert_eq!(timed.requests, lines.len() as u64, "{policy} {seed}");
            let fast = &timed.tiers[0];
            assert!(fast.most_bytes <= 10 * MIB, "{policy} {seed}: {fast:?}");
            let served: u64 =
                timed.tiers.iter().map(|tier| tier.read_bytes + tier.written_bytes).sum();
            let asked: u64 = lines.iter().map(|(_, _, bytes, _)| bytes).sum();
            assert_eq!(served, asked, "{policy} {seed}");
        }
    }
}

#[test]
fn an_object_that_is_followed_tells_what_moved_it_and_what_that_saved() {
    let lines: Vec<_> = (0..40).map(|second| (second, 1, MIB, 'r')).collect();
    let followed = TimedOptions { followed: vec![1, 2], ..options(8 * MIB) };
    let timed = run_with(&followed, &lines, "lru", &[]);
    let [story, missing] = &timed.stories[..] else { panic!("{:?}", timed.stories) };
    assert_eq!((story.placed, story.reads, story.writes), (Some((0.0, TierIndex(1))), 40, 0));
    assert_eq!((missing.object, missing.placed, missing.moves.len()), (2, None, 0));
    let [moved] = &story.moves[..] else { panic!("{story:?}") };
    assert_eq!((moved.what, moved.from, moved.to), ("promote", TierIndex(1), TierIndex(0)));
    assert_eq!(moved.copied_bytes, MIB);
    assert!(!moved.reason.is_empty() && moved.expected_s > 0.0, "{moved:?}");
    let (ended_s, outcome) = moved.ended.expect("it ended");
    assert!(ended_s > moved.asked_s && outcome == Outcome::Done, "{moved:?}");
    // Each takes 0.01 s, and would have taken 0.1 s.
    assert!(moved.accesses > 30, "{moved:?}");
    assert!(near(moved.saved_s, 0.09 * moved.accesses as f64), "{moved:?}");
    // The outcome is the same without an observer.
    let unseen = run_with(&options(8 * MIB), &lines, "lru", &[]);
    assert_eq!(unseen, Timed { stories: Vec::new(), ..timed });
}

#[test]
fn traffic_over_time_adds_up_to_the_account_of_tiers() {
    let timed = run_with(&options(10 * MIB), &mixed(1), "lru", &[]);
    assert!(timed.traffic.intervals.len() > 50 && timed.migrated_bytes > 0, "{timed:?}");
    for (index, tier) in timed.tiers.iter().enumerate() {
        let sum = |of: fn(&Served) -> u64| {
            timed.traffic.intervals.iter().map(|tiers| of(&tiers[index])).sum::<u64>()
        };
        assert_eq!(sum(|served| served.read_bytes), tier.read_bytes);
        assert_eq!(sum(|served| served.written_bytes), tier.written_bytes);
        assert_eq!(sum(|served| served.requests), tier.reads + tier.writes);
        assert!(sum(|served| served.moved_bytes) >= tier.moved_in_bytes + tier.moved_out_bytes);
    }
}

/// Whole objects that grow and are read, with pauses in which policies act.
fn growing(seed: u64) -> Vec<Line> {
    let mut random = Random::new(seed);
    let line = |at: u64| {
        let object = random.below(30);
        let op = if random.below(2) == 0 { 'w' } else { 'r' };
        (at / 4 + at / 40 * 7, object, 100_000 * (1 + at / 100 + object % 3), op)
    };
    (0..800).map(line).collect()
}

#[test]
fn every_policy_keeps_to_capacity_and_loses_nothing() {
    for policy in terrace_policies::POLICIES.iter().map(|entry| entry.name) {
        for seed in 0..4 {
            let lines = growing(seed);
            let all = [(); 2].map(|()| run_with(&options(10 * MIB), &lines, policy, &[]));
            assert_eq!(all[0], all[1], "{policy} {seed}: the same comes to the same");
            let timed = &all[0];
            assert_eq!(timed.requests, lines.len() as u64, "{policy} {seed}");
            let fast = &timed.tiers[0];
            assert!(fast.most_bytes <= 10 * MIB, "{policy} {seed}: {fast:?}");
            let written: u64 = timed.tiers.iter().map(|tier| tier.written_bytes).sum();
            let asked = lines.iter().filter(|line| line.3 == 'w').map(|line| line.2).sum::<u64>();
            assert_eq!(written, asked, "{policy} {seed}");
        }
    }
}

#[test]
fn migrations_keep_to_their_rate() {
    let lines: Vec<_> = (0..200).map(|at| (at / 2, 1 + at % 4, 4 * MIB, 'r')).collect();
    let free = run_with(&options(64 * MIB), &lines, "lru", &[]);
    let bound = TimedOptions { move_bytes_per_s: Some(0.25 * MIB as f64), ..options(64 * MIB) };
    let bound = run_with(&bound, &lines, "lru", &[]);
    assert_eq!((free.migrations, bound.migrations), (4, 4), "{bound:?}");
    assert!(bound.makespan_s > free.makespan_s, "what is used comes to the fast tier later");
}

#[test]
fn several_clients_ask_at_the_same_time() {
    // Two ranks of DXT, each with two reads of 1 MiB, on one slow server.
    let mut text = String::from("# DXT, file_id: 7, file_name: /f\n");
    for rank in 1..=2 {
        for at in 0..2 {
            let (start, end) = (at as f64, at as f64 + 0.5);
            text += &format!("X_POSIX {rank} read {at} {} {MIB} {start} {end}\n", at * MIB);
        }
    }
    let open = || {
        let options = Options { format: Some(Format::Dxt), ..Options::default() };
        Trace::from_stream(Box::new(Cursor::new(text.clone())), "test", &options).expect("legal")
    };
    let options = options(MIB);
    let policy = terrace_policies::create("pinned", &options.view(), &[]).expect("it is legal");
    let population = Population::read(&mut open(), &mut |_| {}).expect("readable");
    let replay = TimedReplay::new(options);
    let timed = replay.run(population, open(), policy, &mut |_| {}).expect("readable");
    // Both at once take 0.2 s, then each thinks for the half second in which it had its answer.
    assert!(near(timed.makespan_s, 0.2 + 0.5 + 0.2), "{timed:?}");
    assert!(near(timed.reads.mean_s, 0.2), "{timed:?}");
}

#[test]
fn what_somebody_puts_somewhere_is_there_from_the_beginning() {
    let lines = [(0, 1, MIB, 'r'), (10, 2, MIB, 'r'), (20, 3, MIB, 'w')];
    let options = options(3 * MIB);
    let fast = TierIndex(0);
    let mut population = Population::default();
    // One that the trace does not know takes room; one that it writes is there all the same.
    for (id, bytes) in [(9, MIB), (1, MIB)] {
        population.put(id, fast, bytes).expect("there are numbers left");
    }
    population.add(&mut trace(&lines), &mut |_| {}).expect("readable");
    population.put(3, TierIndex(1), MIB).expect("there are numbers left");
    let policy = terrace_policies::create("pinned", &options.view(), &[]).expect("it is legal");
    let timed = TimedReplay::new(options).run(population, trace(&lines), policy, &mut |_| {});
    let timed = timed.expect("readable");
    assert_eq!((timed.tiers[0].reads, timed.tiers[1].reads), (1, 1), "{timed:?}");
    assert_eq!((timed.tiers[0].writes, timed.tiers[1].writes), (0, 1), "{timed:?}");
    assert_eq!(timed.tiers[0].most_bytes, 2 * MIB);
}

#[test]
fn policies_are_shown_what_objects_are_called() {
    let text = "time,id,size,op\n0,raw/1,100,write\n1,raw/2,100,write\n2,out.txt,100,write\n\
                3,/abs,100,write\n4,17,100,write\n";
    let open = || {
        let options = Options { format: Some(Format::Csv), ..Options::default() };
        Trace::from_stream(Box::new(Cursor::new(text)), "test", &options).expect("legal")
    };
    let options = options(MIB);
    let rules = "raw/*=slow, trace/out*=slow, trace//abs=slow, *=fast";
    let parameters = [("rules".to_string(), rules.to_string())];
    let policy = terrace_policies::create("pinned", &options.view(), &parameters).expect("legal");
    let population = Population::read(&mut open(), &mut |_| {}).expect("readable");
    let timed = TimedReplay::new(options).run(population, open(), policy, &mut |_| {});
    let timed = timed.expect("readable");
    assert_eq!((timed.tiers[0].writes, timed.tiers[1].writes), (1, 4), "{timed:?}");
}

#[test]
fn names_of_objects_that_come_late_are_known() {
    let mut text = String::from("# DXT, file_id: 7, file_name: /early\n");
    for at in 0..5000 {
        text += &format!("X_POSIX 0 write {at} 0 100 {at}.0 {at}.1\n");
    }
    text += "# DXT, file_id: 8, file_name: /late\nX_POSIX 0 write 0 0 100 6000.0 6000.1\n";
    let open = || {
        let options = Options { format: Some(Format::Dxt), ..Options::default() };
        Trace::from_stream(Box::new(Cursor::new(text.clone())), "test", &options).expect("legal")
    };
    let options = options(MIB);
    let parameters = [("rules".to_string(), "trace//late=slow".to_string())];
    let policy = terrace_policies::create("pinned", &options.view(), &parameters).expect("legal");
    let population = Population::read(&mut open(), &mut |_| {}).expect("readable");
    let timed = TimedReplay::new(options).run(population, open(), policy, &mut |_| {});
    let timed = timed.expect("readable");
    assert_eq!((timed.tiers[0].writes, timed.tiers[1].writes), (5000, 1), "{timed:?}");
}

/// What a policy was shown, as time of the view, kind, latency.
#[derive(Clone, Default)]
struct Shown(Arc<std::sync::Mutex<Vec<(u64, EventKind, u64)>>>);

impl Observer for Shown {
    fn observe(&mut self, view: &View, events: &[Event]) {
        let shown = events.iter().map(|event| (view.now_ns, event.kind, event.latency_ns));
        self.0.lock().expect("never poisoned").extend(shown);
    }

    fn planned(&mut self, _: &View, _: &[Action]) {}
}

fn shown(
    options: &TimedOptions,
    text: &str,
    parameters: &[(&str, &str)],
) -> Vec<(u64, EventKind, u64)> {
    let open = || {
        let options = Options { format: Some(Format::Csv), has_lives: true, ..Options::default() };
        let text = Cursor::new(text.to_string());
        Trace::from_stream(Box::new(text), "test", &options).expect("it is a trace")
    };
    let given: Vec<_> =
        parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let policy = terrace_policies::create("pinned", &options.view(), &given).expect("legal");
    let population = Population::read(&mut open(), &mut |_| {}).expect("readable");
    let (replay, shown) = (TimedReplay::new(options.clone()), Shown::default());
    let observer: Box<dyn Observer> = Box::new(shown.clone());
    replay.run_observed(population, open(), policy, Some(observer), &mut |_| {}).expect("readable");
    let shown = shown.0.lock().expect("never poisoned");
    shown.iter().filter(|(_, kind, _)| *kind != EventKind::Present).copied().collect()
}

#[test]
fn a_policy_is_shown_stat_and_sync_where_it_asks() {
    let text = "time,id,size,op\n0,1,1000,write\n1,1,0,stat\n2,1,0,sync\n3,1,1000,read\n";
    let kinds = |parameters: &[(&str, &str)]| -> Vec<EventKind> {
        shown(&options(MIB), text, parameters).iter().map(|(_, kind, _)| *kind).collect()
    };
    use EventKind::{Create, Read, Stat, Sync, Write};
    assert_eq!(kinds(&[]), [Create, Write, Read]);
    assert_eq!(kinds(&[("all_events", "on")]), [Create, Write, Stat, Sync, Read]);
}

#[test]
fn a_policy_is_shown_a_request_before_or_after_it_is_answered() {
    // It takes ten seconds; the policy is called every 0.1 s.
    let text = format!("time,id,size,op\n0,1,{},read\n", 100 * MIB);
    let seen = |post_events| {
        let options = TimedOptions { post_events, ..options(MIB) };
        let [(when_ns, kind, latency_ns)] = shown(&options, &text, &[])[..] else {
            panic!("one event")
        };
        assert_eq!(kind, EventKind::Read);
        (when_ns as f64 * 1e-9, latency_ns as f64 * 1e-9)
    };
    let (when_s, latency_s) = seen(PostEvents::Before);
    assert!(when_s < 1.0 && latency_s == 0.0, "{when_s} {latency_s}");
    let (when_s, latency_s) = seen(PostEvents::After);
    assert!(when_s >= 9.9 && near(latency_s, 10.0), "{when_s} {latency_s}");
}

/// Asks for the second tier for everything, whether it is there or not.
struct Stubborn(Box<dyn Policy>);

impl Policy for Stubborn {
    fn placer(&self) -> Arc<dyn Placer> {
        self.0.placer()
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        self.0.observe(view, events);
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        for (slot, segment) in view.segments.iter().enumerate().filter(|(_, one)| one.is_live) {
            let kind = ActionKind::Move { to: TierIndex(1) };
            let incarnation = segment.incarnation;
            let (slot, reason) = (slot as u32, String::new());
            let action = Action { slot, incarnation, kind, priority: 0, reason, benefit_s: 0.0 };
            if !actions.push(action, segment.size_bytes) {
                return;
            }
        }
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.0.message(view, kind, body)
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.0.parameters()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.0.set_parameter(name, value)
    }

    fn state_version(&self) -> u32 {
        self.0.state_version()
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        self.0.save(view, out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        self.0.restore(view, version, state)
    }
}

#[test]
fn what_would_take_for_ever_is_refused_at_once() {
    let read = |lines: &[Line]| Population::read(&mut trace(lines), &mut |_| {});
    let refusal = |lines: &[Line]| read(lines).expect_err("too much").to_string();
    let error = refusal(&[(0, 1, (1 << 50) + 1, 'w')]);
    assert!(error.contains("more than 1 PiB") && error.contains("object=1"), "{error}");
    assert!(read(&[(0, 1, 1 << 50, 'w')]).is_ok());
    let year_s = 366 * 24 * 3600;
    let error = refusal(&[(7, 1, 1, 'w'), (8 + 10 * year_s, 1, 1, 'r')]);
    assert!(error.contains("ten years apart") && error.contains("time_ms"), "{error}");
    assert!(read(&[(7, 1, 1, 'w'), (7 + 10 * year_s, 1, 1, 'r')]).is_ok());
}

#[test]
fn what_is_refused_does_not_call_the_policy_again() {
    let lines: Vec<_> = (0..1500).map(|id| (id / 100, id, 1000, 'r')).collect();
    let options = options(MIB);
    let population = Population::read(&mut trace(&lines), &mut |_| {}).expect("readable");
    let pinned = terrace_policies::create("pinned", &options.view(), &[]).expect("legal");
    let stubborn = Box::new(Stubborn(pinned));
    let replay = TimedReplay::new(options);
    let timed = replay.run(population, trace(&lines), stubborn, &mut |_| {});
    let timed = timed.expect("readable");
    // Every 100 ms of 14 s, and once more for each 1000 answers.
    assert!((140..=145).contains(&timed.rounds), "{} rounds", timed.rounds);
    assert_eq!(timed.migrations, 0);
    let refused = timed.outcomes.iter().find(|(word, _)| word == "already");
    assert_eq!(refused, Some(&("already".into(), timed.actions)));
}

#[test]
fn clients_and_migrations_share_the_processors() {
    let of_processors = |count: Option<u32>| TimedOptions { processors: count, ..options(8 * MIB) };
    let with_share = |mut options: TimedOptions, share: f64| {
        options.tiers.iter_mut().for_each(|tier| tier.character.cpu_share = share);
        options
    };
    // One read of 0.1 s for each of two clients, on two tiers, so that only processors are shared.
    let text = "time,id,size,op,client\n0,1,1048576,read,1\n0,2,10485760,write,2\n";
    let open = || {
        let options = Options { format: Some(Format::Csv), ..Options::default() };
        Trace::from_stream(Box::new(Cursor::new(text)), "test", &options).expect("legal")
    };
    let makespan_s = |options: TimedOptions| {
        let policy = terrace_policies::create("pinned", &options.view(), &[]).expect("legal");
        let population = Population::read(&mut open(), &mut |_| {}).expect("readable");
        let replay = TimedReplay::new(options);
        replay.run(population, open(), policy, &mut |_| {}).expect("readable").makespan_s
    };
    let wide = |count, share| {
        let mut options = with_share(of_processors(count), share);
        options.tiers[0].view.figures.capacity_bytes = 16 * MIB;
        options
    };
    for (count, share, expected_s) in [
        (None, 1.0, 0.1),
        (Some(2), 1.0, 0.1),
        (Some(1), 0.0, 0.1),
        (Some(1), 1.0, 0.2),
        // Both use half a processor: one is enough.
        (Some(1), 0.5, 0.1),
    ] {
        let found_s = makespan_s(wide(count, share));
        assert!(near(found_s, expected_s), "{count:?} {share}: {found_s}");
    }
}

#[test]
fn a_migration_takes_what_it_takes_beside_its_bytes() {
    let lines: Vec<_> = (0..40).map(|second| (second, 1, MIB, 'r')).collect();
    let mut options = TimedOptions { move_yields: false, ..options(8 * MIB) };
    // As if to make a file took a second, which is in the other figure.
    options.tiers[0].character.create_ns = 1_000_000_000;
    let without = run_with(&options, &lines, "lru", &[]);
    options.tiers[0].character.switch = Some(Switch { latency_ns: 5_000_000_000, cpu_ns: 0 });
    let with = run_with(&options, &lines, "lru", &[]);
    assert_eq!((without.migrations, with.migrations), (1, 1));
    let slow_reads = |timed: &Timed| timed.tiers[1].reads;
    // Four seconds more, with a read every 1.1 s meanwhile.
    let more = slow_reads(&with) - slow_reads(&without);
    assert!((3..=4).contains(&more), "{more}");
    // Its thread has so much of the only processor that a reader has half.
    options.tiers[0].character.switch =
        Some(Switch { latency_ns: 5_000_000_000, cpu_ns: 5_000_000_000 });
    options.tiers.iter_mut().for_each(|tier| tier.character.cpu_share = 1.0);
    options.processors = Some(1);
    let shared = run_with(&options, &lines, "lru", &[]);
    assert!(shared.reads.mean_s > with.reads.mean_s * 1.05, "{shared:?}");
}

/// What an observer was shown: reads, writes, migrations, actions.
#[derive(Clone, Default)]
struct Counts(Arc<std::sync::Mutex<[u64; 4]>>);

impl Observer for Counts {
    fn observe(&mut self, view: &View, events: &[Event]) {
        let mut counts = self.0.lock().expect("no other panicked");
        for event in events {
            let index = match event.kind {
                EventKind::Read => 0,
                EventKind::Write => 1,
                EventKind::Moved => 2,
                _ => continue,
            };
            assert!(view.segments[event.slot as usize].key.to_string().starts_with("trace/"));
            counts[index] += 1;
        }
    }

    fn planned(&mut self, _: &View, actions: &[Action]) {
        self.0.lock().expect("no other panicked")[3] += actions.len() as u64;
    }
}

#[test]
fn an_observer_changes_nothing_and_misses_nothing() {
    let mut lines = Vec::new();
    for second in 0..40 {
        lines.push((second, 1, MIB, 'r'));
        lines.push((second, 2 + second, MIB, 'w'));
    }
    let options = options(8 * MIB);
    let parameters = [("gate".into(), "off".into())];
    let make = || terrace_policies::create("lru", &options.view(), &parameters).expect("legal");
    let population = Arc::new(Population::read(&mut trace(&lines), &mut |_| {}).expect("readable"));
    let replay = TimedReplay::new(options.clone());
    let alone =
        replay.run(Arc::clone(&population), trace(&lines), make(), &mut |_| {}).expect("readable");
    let counts = Counts::default();
    let observer: Option<Box<dyn Observer>> = Some(Box::new(counts.clone()));
    let observed = replay
        .run_observed(population, trace(&lines), make(), observer, &mut |_| {})
        .expect("readable");
    assert_eq!(observed, alone);
    let [reads, writes, moved, actions] = *counts.0.lock().expect("no other panicked");
    // The last of them are answered behind the last round.
    assert_eq!((reads, writes, actions), (40, 40, alone.actions));
    assert!(alone.migrations > 0 && moved == alone.migrations, "{moved} of {alone:?}");
}
