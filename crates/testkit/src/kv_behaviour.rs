// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every key-value engine must do, as runnable cases.
//!
//! [`kv_suite!`](crate::kv_suite) makes a test of each, [`kv_reopen_suite!`](crate::kv_reopen_suite)
//! of those in [`reopen`].

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use terrace_core::{
    Error, ErrorKind, KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, Kv, KvExt, KvRange, Pair, Random,
    Result, Ticket, Txn,
};

fn put(kv: &dyn Kv, key: &[u8], value: &[u8]) -> Ticket {
    kv.put(key, value).expect("put")
}

fn get(kv: &dyn Kv, key: &[u8]) -> Option<Vec<u8>> {
    kv.get(key).expect("get")
}

fn keys(pairs: &[Pair]) -> Vec<&[u8]> {
    pairs.iter().map(|(key, _)| key.as_slice()).collect()
}

fn scan_keys(kv: &dyn Kv, range: &KvRange) -> Vec<Vec<u8>> {
    kv.scan(range, usize::MAX).expect("scan").into_iter().map(|(key, _)| key).collect()
}

fn number(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes")))
}

fn refused() -> Error {
    Error::new(ErrorKind::Stale, "go on")
}

/// Goal: a key that was never written has no value.
pub fn missing_key_has_no_value(kv: &dyn Kv) {
    assert_eq!(get(kv, b"missing"), None);
    assert_eq!(scan_keys(kv, &KvRange::all()), Vec::<Vec<u8>>::new());
}

/// Goal: what was written is read.
pub fn get_returns_what_was_put(kv: &dyn Kv) {
    put(kv, b"key", b"value");
    assert_eq!(get(kv, b"key").as_deref(), Some(&b"value"[..]));
    assert_eq!(get(kv, b"ke"), None);
    assert_eq!(get(kv, b"key\0"), None);
}

/// Goal: the last value counts.
pub fn put_replaces(kv: &dyn Kv) {
    put(kv, b"key", b"a longer first value");
    put(kv, b"key", b"second");
    assert_eq!(get(kv, b"key").as_deref(), Some(&b"second"[..]));
    assert_eq!(kv.scan(&KvRange::all(), 10).expect("scan").len(), 1);
}

/// Goal: a deleted key is gone, and deleting a missing one is fine.
pub fn delete_twice(kv: &dyn Kv) {
    put(kv, b"key", b"value");
    assert!(kv.remove(b"key").expect("first"));
    assert!(!kv.remove(b"key").expect("second"));
    assert_eq!(get(kv, b"key"), None);
    put(kv, b"key", b"again");
    assert_eq!(get(kv, b"key").as_deref(), Some(&b"again"[..]));
}

/// Goal: values may be empty, and keys and values hold any byte.
pub fn any_byte_is_kept(kv: &dyn Kv) {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    put(kv, &all, &all);
    put(kv, b"\0", b"");
    put(kv, b"\xff\xff", b"\0");
    assert_eq!(get(kv, &all), Some(all));
    assert_eq!(get(kv, b"\0"), Some(vec![]));
    assert_eq!(get(kv, b"\xff\xff"), Some(vec![0]));
}

/// Goal: pairs come in the order of the keys' bytes, whatever the order of writing.
pub fn keys_order_by_bytes(kv: &dyn Kv) {
    for key in [&b"b"[..], b"\xff", b"a\0", b"aa", b"\0", b"a", b"\x80", b"B"] {
        put(kv, key, key);
    }
    let pairs = kv.scan(&KvRange::all(), 100).expect("scan");
    let expected: [&[u8]; 8] = [b"\0", b"B", b"a", b"a\0", b"aa", b"b", b"\x80", b"\xff"];
    assert_eq!(keys(&pairs), expected);
    assert!(pairs.iter().all(|(key, value)| key == value));
}

/// Goal: a scan returns the first `max` pairs and no more.
pub fn scan_stops_at_max(kv: &dyn Kv) {
    for key in 1..=5u8 {
        put(kv, &[key], b"");
    }
    let scan = |max| kv.scan(&KvRange::all(), max).expect("scan");
    assert_eq!(scan(0), []);
    assert_eq!(keys(&scan(3)), [&[1u8][..], &[2], &[3]]);
    assert_eq!(scan(5).len(), 5);
    assert_eq!(scan(usize::MAX).len(), 5);
}

/// Goal: going on after the last key of each page meets every key once.
pub fn pages_meet_every_key_once(kv: &dyn Kv) {
    let expected: Vec<Vec<u8>> = (0..2500u32).map(|key| key.to_be_bytes().to_vec()).collect();
    kv.transact(&mut |txn| expected.iter().try_for_each(|key| txn.put(key, b"x"))).expect("commit");
    for max in [1, 7, 1000, 2500, 2501] {
        let mut range = KvRange::all();
        let mut met = Vec::new();
        loop {
            let page = kv.scan(&range, max).expect("scan");
            assert!(page.len() <= max);
            let Some((last, _)) = page.last() else { break };
            range = range.after(last);
            met.extend(page.into_iter().map(|(key, _)| key));
        }
        assert_eq!(met, expected, "pages of {max}");
    }
    let mut met = Vec::new();
    let mut each = |key: &[u8], _: &[u8]| {
        met.push(key.to_vec());
        Ok(())
    };
    kv.for_each(KvRange::all(), &mut each).expect("for each");
    assert_eq!(met, expected);
}

/// Goal: bounds include or exclude their key as they say, also where no pair has it.
pub fn bounds_are_kept(kv: &dyn Kv) {
    for key in [b"b", b"d", b"f"] {
        put(kv, key, b"");
    }
    let included = |key: &[u8]| Bound::Included(key.to_vec());
    let excluded = |key: &[u8]| Bound::Excluded(key.to_vec());
    for (start, end, expected) in [
        (included(b"b"), included(b"f"), &b"bdf"[..]),
        (excluded(b"b"), excluded(b"f"), b"d"),
        (included(b"a"), excluded(b"d"), b"b"),
        (excluded(b"a"), included(b"d"), b"bd"),
        (excluded(b"d"), Bound::Unbounded, b"f"),
        (Bound::Unbounded, excluded(b"d"), b"b"),
        (included(b"c"), included(b"e"), b"d"),
        (included(b"d"), included(b"d"), b"d"),
    ] {
        let range = KvRange { start, end };
        assert_eq!(scan_keys(kv, &range).concat(), expected, "{range:?}");
    }
}

/// Goal: a range without keys between its bounds is empty, also a reversed one.
pub fn impossible_ranges_are_empty(kv: &dyn Kv) {
    put(kv, b"b", b"");
    let included = |key: &[u8]| Bound::Included(key.to_vec());
    let excluded = |key: &[u8]| Bound::Excluded(key.to_vec());
    for (start, end) in [
        (included(b"c"), included(b"a")),
        (excluded(b"b"), excluded(b"b")),
        (included(b"b"), excluded(b"b")),
        (excluded(b"b"), included(b"b")),
        (excluded(b"c"), excluded(b"a")),
    ] {
        let range = KvRange { start, end };
        assert_eq!(kv.scan(&range, 10).expect("scan"), [], "{range:?}");
        let mut found = vec![(vec![], vec![])];
        kv.transact(&mut |txn| {
            txn.put(b"b", b"x")?;
            found = txn.scan(&range, 10)?;
            Ok(())
        })
        .expect("commit");
        assert_eq!(found, [], "{range:?} in a transaction");
    }
}

/// Goal: a prefix's range holds exactly the keys with that prefix.
pub fn prefix_holds_its_keys(kv: &dyn Kv) {
    for key in [&b"a"[..], b"ab", b"ab\0", b"ab\xff\xff", b"ac", b"\xff", b"\xff\xff", b"\xffz"] {
        put(kv, key, b"");
    }
    let with = |prefix: &[u8]| scan_keys(kv, &KvRange::prefix(prefix));
    assert_eq!(with(b"ab"), [&b"ab"[..], b"ab\0", b"ab\xff\xff"]);
    assert_eq!(with(b"ab\xff"), [b"ab\xff\xff"]);
    assert_eq!(with(b"\xff"), [&b"\xff"[..], b"\xffz", b"\xff\xff"]);
    assert_eq!(with(b"\xff\xff"), [b"\xff\xff"]);
    assert_eq!(with(b"b"), Vec::<Vec<u8>>::new());
    assert_eq!(with(b"").len(), 8);
}

/// Goal: a transaction reads its own puts and deletions.
pub fn transaction_gets_own_writes(kv: &dyn Kv) {
    put(kv, b"old", b"1");
    put(kv, b"kept", b"1");
    kv.transact(&mut |txn| {
        assert_eq!(txn.get(b"new")?, None);
        txn.put(b"new", b"2")?;
        assert_eq!(txn.get(b"new")?, Some(b"2".to_vec()));
        txn.delete(b"old")?;
        assert_eq!(txn.get(b"old")?, None);
        assert_eq!(txn.get(b"kept")?, Some(b"1".to_vec()));
        Ok(())
    })
    .expect("commit");
    assert_eq!(scan_keys(kv, &KvRange::all()), [&b"kept"[..], b"new"]);
}

/// Goal: a transaction's scans show its own writes in their place.
pub fn transaction_scans_own_writes(kv: &dyn Kv) {
    for key in [b"b", b"d", b"f", b"h"] {
        put(kv, key, b"old");
    }
    kv.transact(&mut |txn| {
        txn.put(b"a", b"new")?;
        txn.put(b"d", b"new")?;
        txn.put(b"e", b"new")?;
        txn.delete(b"b")?;
        txn.delete(b"f")?;
        txn.delete(b"missing")?;
        let pairs = txn.scan(&KvRange::all(), 10)?;
        assert_eq!(keys(&pairs).concat(), b"adeh");
        let values: Vec<_> = pairs.iter().map(|(_, value)| value.as_slice()).collect();
        assert_eq!(values, [&b"new"[..], b"new", b"new", b"old"]);
        // Deleted pairs do not count towards `max`.
        assert_eq!(keys(&txn.scan(&KvRange::all(), 2)?).concat(), b"ad");
        assert_eq!(keys(&txn.scan(&KvRange::all().after(b"d"), 2)?).concat(), b"eh");
        assert_eq!(txn.scan(&KvRange::all(), 0)?, []);
        Ok(())
    })
    .expect("commit");
    assert_eq!(scan_keys(kv, &KvRange::all()).concat(), b"adeh");
}

/// Goal: within a transaction the last change of a key counts.
pub fn last_change_of_a_transaction_counts(kv: &dyn Kv) {
    kv.transact(&mut |txn| {
        txn.put(b"put", b"1")?;
        txn.put(b"put", b"2")?;
        txn.put(b"deleted", b"1")?;
        txn.delete(b"deleted")?;
        txn.delete(b"revived")?;
        txn.put(b"revived", b"1")
    })
    .expect("commit");
    assert_eq!(scan_keys(kv, &KvRange::all()), [&b"put"[..], b"revived"]);
    assert_eq!(get(kv, b"put").as_deref(), Some(&b"2"[..]));
}

/// Goal: a body that fails writes nothing, and its error is returned.
pub fn failed_transaction_writes_nothing(kv: &dyn Kv) {
    put(kv, b"replaced", b"old");
    put(kv, b"deleted", b"old");
    let before = kv.scan(&KvRange::all(), 10).expect("scan");
    let failed = kv.transact(&mut |txn| {
        txn.put(b"replaced", b"new")?;
        txn.put(b"created", b"new")?;
        txn.delete(b"deleted")?;
        Err(refused())
    });
    assert_eq!(failed.expect_err("refused").kind(), ErrorKind::Stale);
    assert_eq!(kv.scan(&KvRange::all(), 10).expect("scan"), before);
}

/// Goal: a body that panics writes nothing, and the engine goes on.
pub fn panicking_transaction_writes_nothing(kv: &dyn Kv) {
    put(kv, b"replaced", b"old");
    let mut body = |txn: &mut dyn Txn| -> Result<()> {
        txn.put(b"replaced", b"new")?;
        std::panic::resume_unwind(Box::new("ordered by the test"));
    };
    catch_unwind(AssertUnwindSafe(|| kv.transact(&mut body))).expect_err("it panics");
    assert_eq!(get(kv, b"replaced").as_deref(), Some(&b"old"[..]));
    put(kv, b"next", b"works");
    assert_eq!(scan_keys(kv, &KvRange::all()).len(), 2);
}

/// Goal: keys have 1 to `KV_KEY_BYTES_MAX` bytes, anything else is `Invalid`.
pub fn key_lengths_are_bounded(kv: &dyn Kv) {
    let longest = vec![u8::MAX; KV_KEY_BYTES_MAX];
    put(kv, &longest, b"value");
    assert_eq!(get(kv, &longest).as_deref(), Some(&b"value"[..]));
    for wrong in [vec![], vec![u8::MAX; KV_KEY_BYTES_MAX + 1]] {
        assert_eq!(kv.get(&wrong).expect_err("get").kind(), ErrorKind::Invalid);
        let errors = std::cell::RefCell::new(Vec::new());
        kv.transact(&mut |txn| {
            let mut errors = errors.borrow_mut();
            errors.extend([txn.put(&wrong, b"").err(), txn.delete(&wrong).err()]);
            errors.push(txn.get(&wrong).err());
            Ok(())
        })
        .expect("nothing was written");
        for error in errors.into_inner() {
            assert_eq!(error.expect("refused").kind(), ErrorKind::Invalid);
        }
    }
    assert_eq!(scan_keys(kv, &KvRange::all()), [longest]);
}

/// Goal: values have up to `KV_VALUE_BYTES_MAX` bytes, more is `Invalid`.
pub fn value_lengths_are_bounded(kv: &dyn Kv) {
    let mut value = vec![7; KV_VALUE_BYTES_MAX];
    put(kv, b"longest", &value);
    assert!(get(kv, b"longest").as_ref() == Some(&value), "the longest value is kept");
    value.push(7);
    assert_eq!(kv.put(b"longer", &value).expect_err("refused").kind(), ErrorKind::Invalid);
    assert_eq!(get(kv, b"longer"), None);
}

/// Goal: increments from many threads lose nothing.
pub fn concurrent_increments_lose_nothing(kv: &dyn Kv) {
    const THREADS: u64 = 4;
    const INCREMENTS: u64 = 250;
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..INCREMENTS {
                    kv.transact(&mut |txn| {
                        let next = number(txn.get(b"count")?) + 1;
                        txn.put(b"count", &next.to_le_bytes())
                    })
                    .expect("commit");
                }
            });
        }
    });
    assert_eq!(number(get(kv, b"count")), THREADS * INCREMENTS);
}

/// Goal: no reader sees a part of a transaction, neither in one scan nor in two gets.
pub fn transactions_are_seen_whole(kv: &dyn Kv) {
    const ROUNDS: u64 = 2000;
    let write = |round: u64| {
        let value = round.to_le_bytes();
        // Many keys, so that applying them takes a while; the ends are compared.
        kv.transact(&mut |txn| (0..20u8).try_for_each(|key| txn.put(&[key], &value)))
            .expect("commit");
    };
    write(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            (1..=ROUNDS).for_each(write);
            is_over.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let pairs = kv.scan(&KvRange::all(), 100).expect("scan");
                assert_eq!(pairs.len(), 20);
                assert_eq!(pairs[0].1, pairs[19].1, "one scan sees one state");
                let (last, first) = (number(get(kv, &[19])), number(get(kv, &[0])));
                assert!(first >= last, "{first} was seen after {last}");
                let (first, last) = (number(get(kv, &[0])), number(get(kv, &[19])));
                assert!(last >= first, "{last} was seen after {first}");
            }
        });
    });
}

/// Goal: a transaction sees no commit of others between its reads.
pub fn transactions_see_one_state(kv: &dyn Kv) {
    const ROUNDS: u64 = 500;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    kv.transact(&mut |txn| {
                        let (left, right) = (number(txn.get(b"left")?), number(txn.get(b"right")?));
                        assert_eq!(left, right);
                        txn.put(b"left", &(left + 1).to_le_bytes())?;
                        txn.put(b"right", &(right + 1).to_le_bytes())
                    })
                    .expect("commit");
                }
            });
        }
    });
    assert_eq!(number(get(kv, b"left")), 2 * ROUNDS);
}

/// Goal: a transaction of many changes is kept whole.
pub fn large_transactions_are_kept(kv: &dyn Kv) {
    let key = |index: u32| [b"key-", &index.to_be_bytes()[..]].concat();
    kv.transact(&mut |txn| (0..10_000).try_for_each(|index| txn.put(&key(index), &[1; 100])))
        .expect("commit");
    kv.transact(&mut |txn| (0..10_000).step_by(2).try_for_each(|index| txn.delete(&key(index))))
        .expect("commit");
    assert_eq!(scan_keys(kv, &KvRange::all()).len(), 5000);
    assert_eq!(get(kv, &key(4)), None);
    assert_eq!(get(kv, &key(5)), Some(vec![1; 100]));
}

/// Goal: later commits have greater tickets.
pub fn tickets_grow(kv: &dyn Kv) {
    let tickets: Vec<Ticket> = (1..=10u8).map(|key| put(kv, &[key], b"")).collect();
    assert!(tickets.is_sorted_by(|earlier, later| earlier < later), "{tickets:?}");
}

/// Goal: waiting works for every ticket, in any order, and for a transaction without changes.
pub fn every_ticket_can_be_waited_for(kv: &dyn Kv) {
    let first = put(kv, b"a", b"");
    let second = put(kv, b"b", b"");
    let nothing = kv.transact(&mut |_| Ok(())).expect("commit");
    for ticket in [second, first, nothing, second, Ticket::default()] {
        kv.wait(ticket).expect("wait");
    }
}

/// Goal: many threads that commit and wait all come through.
pub fn many_threads_can_wait(kv: &dyn Kv) {
    thread::scope(|scope| {
        for thread in 0..8u8 {
            scope.spawn(move || {
                for round in 0..10u8 {
                    let ticket = put(kv, &[thread, round], b"");
                    kv.wait(ticket).expect("wait");
                }
            });
        }
    });
    assert_eq!(scan_keys(kv, &KvRange::all()).len(), 80);
}

/// Goal: random operations do to an engine what they do to a map.
pub fn random_operations_match_a_map(kv: &dyn Kv) {
    let mut random = Random::new(1);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let key = |random: &mut Random| {
        let length = 1 + random.below(3) as usize;
        (0..length).map(|_| [0, 1, 0x7f, 0xff][random.below(4) as usize]).collect::<Vec<u8>>()
    };
    for step in 0..500 {
        let changes: Vec<_> = (0..random.below(6))
            .map(|_| (key(&mut random), random.chance(0.6).then(|| step.to_string().into_bytes())))
            .collect();
        let range = KvRange {
            start: Bound::Excluded(key(&mut random)),
            end: Bound::Included(key(&mut random)),
        };
        let max = random.below(10) as usize;
        let is_refused = random.chance(0.2);
        let mut after = model.clone();
        for (key, value) in &changes {
            match value {
                Some(value) => drop(after.insert(key.clone(), value.clone())),
                None => drop(after.remove(key)),
            }
        }
        let result = kv.transact(&mut |txn| {
            for (key, value) in &changes {
                match value {
                    Some(value) => txn.put(key, value)?,
                    None => txn.delete(key)?,
                }
            }
            assert_eq!(txn.scan(&range, max)?, first(&after, &range, max), "step {step}");
            if is_refused { Err(refused()) } else { Ok(()) }
        });
        assert_eq!(result.is_err(), is_refused);
        if !is_refused {
            model = after;
        }
        assert_eq!(kv.scan(&range, max).expect("scan"), first(&model, &range, max), "step {step}");
        let probe = key(&mut random);
        assert_eq!(get(kv, &probe).as_ref(), model.get(&probe), "step {step}");
    }
    let all = kv.scan(&KvRange::all(), usize::MAX).expect("scan");
    assert_eq!(all, model.into_iter().collect::<Vec<_>>());
}

fn first(model: &BTreeMap<Vec<u8>, Vec<u8>>, range: &KvRange, max: usize) -> Vec<Pair> {
    let is_inside = |key: &Vec<u8>| {
        let is_after = match &range.start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        };
        let is_before = match &range.end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        };
        is_after && is_before
    };
    let found = model.iter().filter(|(key, _)| is_inside(key)).take(max);
    found.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What engines must do that outlive their process. `open` opens the same pairs again; it is
/// called when nothing of the last opening is left.
pub mod reopen {
    use std::sync::Arc;

    use super::{Kv, KvExt, KvRange, get, put, refused, scan_keys};

    /// Goal: commits are there after reopening, whether they were waited for or not.
    pub fn commits_outlive_their_opening(open: &dyn Fn() -> Arc<dyn Kv>) {
        for round in 0..5u8 {
            let kv = open();
            let ticket = put(&*kv, &[round + 1], &[round; 1000]);
            if round % 2 == 0 {
                kv.wait(ticket).expect("wait");
            }
            assert_eq!(scan_keys(&*kv, &KvRange::all()).len(), usize::from(round) + 1);
        }
        let kv = open();
        for round in 0..5u8 {
            assert_eq!(get(&*kv, &[round + 1]), Some(vec![round; 1000]));
        }
    }

    /// Goal: deletions and replacements are there after reopening.
    pub fn changes_outlive_their_opening(open: &dyn Fn() -> Arc<dyn Kv>) {
        let kv = open();
        put(&*kv, b"deleted", b"old");
        put(&*kv, b"replaced", b"old");
        drop(kv);
        let kv = open();
        assert!(kv.remove(b"deleted").expect("remove"));
        put(&*kv, b"replaced", b"new");
        drop(kv);
        let kv = open();
        assert_eq!(scan_keys(&*kv, &KvRange::all()), [b"replaced"]);
        assert_eq!(get(&*kv, b"replaced").as_deref(), Some(&b"new"[..]));
    }

    /// Goal: a failed transaction leaves nothing behind for the next opening.
    pub fn failures_leave_nothing_behind(open: &dyn Fn() -> Arc<dyn Kv>) {
        let kv = open();
        kv.transact(&mut |txn| txn.put(b"a", b"").and(Err(refused()))).expect_err("refused");
        drop(kv);
        assert_eq!(get(&*open(), b"a"), None);
    }

    /// Goal: a large transaction is whole after reopening.
    pub fn large_transactions_outlive_their_opening(open: &dyn Fn() -> Arc<dyn Kv>) {
        let kv = open();
        let key = |index: u32| (index + 1).to_be_bytes();
        kv.transact(&mut |txn| (0..20_000).try_for_each(|index| txn.put(&key(index), &[1; 100])))
            .expect("commit");
        drop(kv);
        assert_eq!(scan_keys(&*open(), &KvRange::all()).len(), 20_000);
    }
}

/// Makes a test of every case in [`kv_behaviour`](crate::kv_behaviour), each on a new engine.
///
/// `$make` gives the engine and whatever must live as long, for example a temporary directory:
/// `kv_suite!(memory, (Arc::new(Memory::default()), ()))`.
#[macro_export]
macro_rules! kv_suite {
    ($name:ident, $make:expr) => {
        $crate::kv_suite!(@cases $name, $make,
            missing_key_has_no_value, get_returns_what_was_put, put_replaces, delete_twice,
            any_byte_is_kept, keys_order_by_bytes, scan_stops_at_max, pages_meet_every_key_once,
            bounds_are_kept, impossible_ranges_are_empty, prefix_holds_its_keys,
            transaction_gets_own_writes, transaction_scans_own_writes,
            last_change_of_a_transaction_counts, failed_transaction_writes_nothing,
            panicking_transaction_writes_nothing, key_lengths_are_bounded,
            value_lengths_are_bounded, concurrent_increments_lose_nothing,
            transactions_are_seen_whole, transactions_see_one_state, large_transactions_are_kept,
            tickets_grow, every_ticket_can_be_waited_for, many_threads_can_wait,
            random_operations_match_a_map);
    };
    (@cases $name:ident, $make:expr, $($case:ident),+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[test] fn $case() {
                let (kv, _kept) = $make;
                $crate::kv_behaviour::$case(&*kv);
            })+
        }
    };
}

/// Makes a test of every case in [`kv_behaviour::reopen`](crate::kv_behaviour::reopen).
///
/// `$make` gives a function that opens the same pairs each time, and whatever must live as long.
#[macro_export]
macro_rules! kv_reopen_suite {
    ($name:ident, $make:expr) => {
        $crate::kv_reopen_suite!(@cases $name, $make,
            commits_outlive_their_opening, changes_outlive_their_opening,
            failures_leave_nothing_behind, large_transactions_outlive_their_opening);
    };
    (@cases $name:ident, $make:expr, $($case:ident),+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[test] fn $case() {
                let (open, _kept) = $make;
                $crate::kv_behaviour::reopen::$case(&open);
            })+
        }
    };
}
