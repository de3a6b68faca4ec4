// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures an engine: `kv_speed ENGINE PAIRS [random]`; see `docs/adr/0008-lmdb.md`.

use std::env;
use std::thread;

use terrace_backends::kv::open_kv;
use terrace_core::{Clock, Error, Kv, KvExt, KvRange, Random, Result, SystemClock, Ticket};
use terrace_testkit::{anonymous_mib, cpu_ns};

const VALUE: [u8; 100] = [7; 100];
const BATCH_PAIRS: u64 = 1000;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let usage = || Error::invalid("measure", "give an engine and a number of pairs");
    let (engine, pairs) = match arguments.as_slice() {
        [engine, pairs, ..] => (engine, pairs.parse::<u64>().map_err(|_| usage())?),
        _ => return Err(usage()),
    };
    let is_random = arguments.get(2).is_some_and(|word| word == "random");
    let directory = env::temp_dir().join(format!("kv-speed-{}", std::process::id()));
    let kv = open_kv(engine, &directory)?;
    let measured = measure(&*kv, pairs, &|index| key(index, is_random));
    drop(kv);
    std::fs::remove_dir_all(&directory).or_else(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(Error::from_io("remove the pairs", source)),
    })?;
    measured
}

fn measure(kv: &dyn Kv, pairs: u64, key: &(dyn Fn(u64) -> [u8; 16] + Sync)) -> Result<()> {
    let clock = SystemClock::default();
    let report = |name: &str, count: u64, step: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let (start_ns, start_cpu_ns) = (clock.now_ns(), cpu_ns());
        step()?;
        let each_us = |ns: u64| ns as f64 / 1e3 / count as f64;
        let time_us = each_us(clock.now_ns() - start_ns);
        let cpu_us = each_us(cpu_ns() - start_cpu_ns);
        println!("{name:<24} {time_us:>9.2} us {cpu_us:>9.2} us cpu");
        Ok(())
    };
    report("put", pairs, &mut || (0..pairs).try_for_each(|i| kv.put(&key(i), &VALUE).map(drop)))?;
    report("put in batches of 1000", pairs, &mut || {
        (pairs..2 * pairs).step_by(BATCH_PAIRS as usize).try_for_each(|start| {
            let mut range = start..(start + BATCH_PAIRS).min(2 * pairs);
            kv.transact(&mut |txn| range.try_for_each(|i| txn.put(&key(i), &VALUE))).map(drop)
        })
    })?;
    let mut random = Random::new(1);
    report("get", pairs, &mut || {
        (0..pairs).try_for_each(|_| kv.get(&key(random.below(2 * pairs))).map(drop))
    })?;
    report("scan, per pair", 2 * pairs, &mut || kv.for_each(KvRange::all(), &mut |_, _| Ok(())))?;
    let durable_put = |index| kv.wait(kv.put(&key(index), &VALUE)?);
    println!("{:<24} {:>9.1} MiB", "anonymous memory", anonymous_mib());
    report("durable put", 1000, &mut || (0..1000).try_for_each(durable_put))?;
    report("durable put, 16 threads", 3200, &mut || {
        thread::scope(|scope| {
            let committers: Vec<_> = (0..16u64)
                .map(|thread| {
                    scope.spawn(move || (0..200).try_for_each(|i| durable_put(thread * 200 + i)))
                })
                .collect();
            let join = |handle: thread::ScopedJoinHandle<'_, Result<()>>| {
                handle.join().expect("a committer does not panic")
            };
            committers.into_iter().try_for_each(join)
        })
    })?;
    report("100 puts and a wait", 100, &mut || {
        (0..100).try_for_each(|round| {
            let mut last = Ticket::default();
            for index in 0..100 {
                last = kv.put(&key(round * 100 + index), &VALUE)?;
            }
            kv.wait(last)
        })
    })
}

/// Ascending keys, or keys in random order.
fn key(index: u64, is_random: bool) -> [u8; 16] {
    let high = if is_random { Random::new(index).next_u64() } else { 0 };
    ((u128::from(high) << 64) | u128::from(index)).to_be_bytes()
}
