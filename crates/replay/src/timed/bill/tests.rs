// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small traces of which it is known what is charged for them.

use std::io::Cursor;

use terrace_core::{Figures, Outcome, Persistency, Prices, TierIndex, TierView};

use super::{Bill, REQUEST_BYTES};
use crate::format::Format;
use crate::read::{Options, Trace};
use crate::timed::device::Work;
use crate::timed::mover::Ended;
use crate::timed::recent::User;
use crate::timed::{
    Character, Population, Recent, Timed, TimedOptions, TimedReplay, TimedTier, Usage,
};

const MB: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

const PRICES: Prices = Prices {
    per_1000_write_requests: 5.0,
    per_1000_read_requests: 0.4,
    per_gb_month: 0.02,
    per_gb_read: 0.09,
};

/// A directory, and a bucket with prices; 1 MB takes 10 and 100 ms.
fn tiers() -> Vec<TimedTier> {
    let tier = |name: &str, bytes_per_s, prices| {
        let figures = Figures {
            read_bytes_per_s: bytes_per_s,
            write_bytes_per_s: bytes_per_s,
            prices,
            ..Figures::default()
        };
        let persistency = Persistency::Storage;
        let view = TierView { persistency, ..TierView::empty(name, figures) };
        TimedTier { view, character: Character::default(), recent: Recent::default() }
    };
    let mut tiers = vec![tier("fast", 1e8, Prices::default()), tier("bucket", 1e7, PRICES)];
    tiers[1].character.is_whole = true;
    tiers[1].character.is_bucket = true;
    tiers
}

/// What a trace comes to: lines of seconds, object, its size, offset, length and operation.
fn run(tiers: Vec<TimedTier>, lines: &str, policy: &str, parameters: &[(&str, &str)]) -> Timed {
    let text = format!("time,id,size,offset,length,op\n{lines}");
    let trace = || {
        let has_lives = true;
        let options = Options { format: Some(Format::Csv), has_lives, ..Options::default() };
        let text = Box::new(Cursor::new(text.clone()));
        Trace::from_stream(text, "test", &options).expect("it is a trace")
    };
    let options = TimedOptions::new(tiers);
    let given: Vec<_> =
        parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let policy = terrace_policies::create(policy, &options.view(), &given).expect("it is legal");
    let population = Population::read(&mut trace(), &mut |_| {}).expect("readable");
    TimedReplay::new(options).run(population, trace(), policy, &mut |_| {}).expect("readable")
}

fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= expected.abs() * 1e-6
}

#[test]
fn a_small_trace_costs_what_is_computed_by_hand() {
    let lines = "0,1,1000000,0,1000000,read\n10,1,1000000,0,1000000,read\n";
    let timed = run(tiers(), lines, "pinned", &[]);
    assert!(near(timed.makespan_s, 10.2), "{timed:?}");
    let [fast, bucket] = &timed.tiers[..] else { panic!("two tiers") };
    assert_eq!((fast.usage, fast.cost), (Usage::default(), 0.0));
    // The first read opens the object, which is a HEAD and a GET; then 1 GET each.
    let expected = Usage {
        read_requests: 4,
        out_bytes: 2 * MB,
        stored_byte_s: bucket.usage.stored_byte_s,
        ..Usage::default()
    };
    assert_eq!(bucket.usage, expected);
    assert!(near(bucket.usage.stored_byte_s, 1e6 * 10.2), "{bucket:?}");
    let storing = 0.001 * 10.2 / (730.0 * 3600.0) * 0.02;
    let cost = 4.0 / 1000.0 * 0.4 + 0.002 * 0.09 + storing;
    assert!(near(bucket.cost, cost) && near(timed.cost, cost), "{} {cost}", bucket.cost);
}

#[test]
fn packed_bytes_cost_what_they_take() {
    let lines = "0,1,1000000,0,1000000,read\n10,1,1000000,0,1000000,read\n";
    let plain = &run(tiers(), lines, "pinned", &[]).tiers[1];
    let mut tiers = tiers();
    tiers[1].character.packed_share = Some(0.25);
    let packed = &run(tiers, lines, "pinned", &[]).tiers[1];
    let of_plain = Usage {
        out_bytes: plain.usage.out_bytes / 4,
        stored_byte_s: plain.usage.stored_byte_s / 4.0,
        ..plain.usage
    };
    assert_eq!(packed.usage, of_plain);
    assert!(near(packed.cost, of_plain.cost(&PRICES)), "{packed:?}");
}

#[test]
fn a_write_recalls_what_is_in_a_bucket() {
    let lines = "0,1,1000000,0,1000,read\n10,1,1000000,5,10,write\n20,1,1000000,0,0,delete\n\
                 30,2,1,0,1,write\n";
    let timed = run(tiers(), lines, "pinned", &[]);
    let [fast, bucket] = &timed.tiers[..] else { panic!("two tiers") };
    // Opened and read; the recall goes from front to back: 256 KiB, then windows of 512 KiB and what
    // is left. The first 1000 bytes are read again.
    let usage = bucket.usage;
    assert_eq!((usage.write_requests, usage.read_requests), (0, 2 + 1 + 3), "{usage:?}");
    assert_eq!((usage.delete_requests, usage.out_bytes), (2, MB + 1000), "{usage:?}");
    assert_eq!((timed.migrations, timed.migrated_bytes), (1, MB));
    assert_eq!((fast.moved_in_bytes, fast.written_bytes, fast.writes), (MB, 11, 2));
    assert_eq!(fast.usage.delete_requests, 1);
    // The writer waits until it is read.
    assert!(timed.writes.mean_s > 0.04, "{timed:?}");
    // The bucket stored it until then, the directory for the 10 s that followed.
    assert!((10.0..10.1).contains(&(usage.stored_byte_s / 1e6)), "{usage:?}");
    assert!((10.0..10.2).contains(&(fast.usage.stored_byte_s / 1e6)), "{fast:?}");
}

#[test]
fn new_objects_go_past_a_bucket_and_are_uploaded_by_migrations() {
    let lines = "0,1,1000000,0,1000000,write\n0,2,20971520,0,20971520,write\n\
                 100,1,1000000,0,1000000,read\n100,3,1,0,1,write\n";
    let parameters = [("timeout", "1s")];
    let timed = run(tiers(), lines, "write-buffer", &parameters);
    let [fast, bucket] = &timed.tiers[..] else { panic!("two tiers") };
    assert_eq!((timed.migrations, fast.writes, bucket.writes), (2, 3, 0), "{timed:?}");
    // 1 PUT; of 20 MiB a beginning, parts of 8 MiB, and the completion. Nothing is read back.
    let usage = bucket.usage;
    assert_eq!((usage.write_requests, usage.read_requests), (1 + 5, 3), "{usage:?}");
    assert_eq!((usage.delete_requests, usage.out_bytes), (0, MB), "{usage:?}");
    assert_eq!(fast.usage.delete_requests, 2);
    // Where everything is in a bucket, which no store can be, each write is an upload.
    let timed = run(tiers().split_off(1), lines, "pinned", &[]);
    assert_eq!(timed.tiers[0].usage.write_requests, 1 + 5 + 1, "{timed:?}");
}

#[test]
fn reads_take_the_documented_requests() {
    let reads = |ranges: &[(u64, u64)]| {
        let line = |(at, (offset, bytes)): (usize, &(u64, u64))| {
            format!("{at},1,{},{offset},{bytes},read\n", 41 * MIB)
        };
        let lines: String = ranges.iter().enumerate().map(line).collect();
        let usage = run(tiers(), &lines, "pinned", &[]).tiers[1].usage;
        // Without those of opening it.
        (usage.read_requests - 2, usage.out_bytes)
    };
    let end = 41 * MIB;
    assert_eq!(reads(&[(5 * MIB, 4096), (end - 10, 10)]), (2, 4106));
    assert_eq!(reads(&[(end - 10, 10), (0, 16 * MIB)]), (1 + 4, 16 * MIB + 10));
    // A look at what is not open.
    let lines = "0,1,1000,0,0,stat\n1,1,1000,0,1000,read\n2,1,1000,0,0,stat\n";
    assert_eq!(run(tiers(), lines, "pinned", &[]).tiers[1].usage.read_requests, 2 + 2 + 1);
    // 128 KiB, windows of 512 KiB, 1 MiB and 2 MiB, then of 4 MiB.
    let pieces: Vec<_> = (0..41 * 8).map(|piece| (piece * (MIB / 8), MIB / 8)).collect();
    assert_eq!(reads(&pieces), (1 + 3 + 10, end));
}

#[test]
fn a_write_during_an_upload_leaves_what_was_sent() {
    // It is uploaded from 1.01 s on, for 0.1 s, after it was read.
    let usage = |write_s: f64| {
        let lines = format!(
            "0,1,1000000,0,1000000,write\n{write_s},1,1000000,0,10,write\n\
             1.6,1,1000000,0,10,read\n"
        );
        let timed = run(tiers(), &lines, "write-buffer", &[("timeout", "1s")]);
        assert_eq!(timed.outcomes, [("hot-write".into(), 1)], "{write_s}");
        let usage = timed.tiers[1].usage;
        (usage.write_requests, usage.delete_requests)
    };
    assert_eq!(usage(1.05), (1, 2));
    // Found before anything is sent.
    assert_eq!(usage(0.995), (0, 2));
}

#[test]
fn a_recall_waits_for_the_migration_under_way() {
    // The policy moves it from 4 s on, for a second, and the write comes at 4.4 s.
    let lines = "0,1,9000000,0,9000000,read\n2,1,9000000,0,9000000,read\n\
                 2.6,1,9000000,0,10,write\n9,1,9000000,0,10,read\n";
    let timed = run(tiers(), lines, "lru", &[("gate", "off")]);
    let [fast, bucket] = &timed.tiers[..] else { panic!("two tiers") };
    assert_eq!(timed.outcomes, [("done".into(), 1)]);
    assert_eq!((timed.migrations, timed.migrated_bytes), (1, 9 * MB));
    // Read twice by the application, and once to be moved.
    assert_eq!((bucket.usage.out_bytes, bucket.usage.delete_requests), (27 * MB, 2), "{bucket:?}");
    assert_eq!((fast.moved_in_bytes, fast.reads), (9 * MB, 1), "{fast:?}");
    assert!(timed.writes.mean_s > 0.1, "{:?}", timed.writes);
}

#[test]
fn files_of_open_objects_stay_open() {
    let others: String = (0..1024).map(|id| format!("0,{id},10,0,10,read\n")).collect();
    let requests = |last: &str| {
        let usage = run(tiers(), &format!("{others}{last}"), "pinned", &[]).tiers[1].usage;
        // Without those of the others.
        usage.read_requests - 3 * 1024
    };
    let reads = "1,2000,10,0,10,read\n2,2000,10,0,10,read\n";
    let around = format!("1,2000,10,0,0,open\n{reads}3,2000,10,0,0,close\n");
    assert_eq!(requests(&around), 2 + 2);
    // So many are open already, and each request ends with a close.
    assert_eq!(requests(reads), 2 * (2 + 1));
}

#[test]
fn migrations_close_files_of_objects_that_are_not_open() {
    let bucket = TierIndex(0);
    let character = Character { is_bucket: true, ..Character::default() };
    let mut bill = Bill::new([character].iter());
    let work = Work {
        is_write: false,
        requests: 1,
        bytes: 10,
        at: (0, 0),
        is_foreground: true,
        is_first: false,
        is_synced: false,
        is_switch: false,
        user: User::MAX,
        share: 1.0,
    };
    let ended = Ended {
        slot: 0,
        from: bucket,
        to: bucket,
        outcome: Outcome::Cancelled,
        copied_bytes: 0,
        is_flip: false,
        was_completed: false,
        awaited: None,
    };
    let read = |bill: &mut Bill| {
        let count = |bill: &Bill| bill.usages().map(|usage| usage.read_requests).sum::<u64>();
        let before = count(bill);
        bill.work(bucket, &work, 2 * REQUEST_BYTES);
        count(bill) - before
    };
    bill.opened(7);
    assert_eq!(read(&mut bill), 2 + 1);
    bill.moved(&ended, 7);
    assert_eq!(read(&mut bill), 1);
    bill.closed(7, &[0]);
    bill.moved(&ended, 7);
    assert_eq!(read(&mut bill), 2 + 1);
}

#[test]
fn a_write_of_nothing_recalls_nothing() {
    let lines = "0,1,1000000,0,1000,read\n10,1,1000000,1000000,0,write\n\
                 20,1,1000000,5,0,write\n30,1,1000000,0,1000,read\n";
    let timed = run(tiers(), lines, "pinned", &[]);
    assert_eq!((timed.migrations, timed.tiers[1].reads), (0, 2));
}
