// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures what a catalog engine means to a store: `catalog_speed ENGINE OBJECTS DIRECTORY`, the
//! same with a log of the catalog: `… served`, or `catalog_speed open DIRECTORY` for a store that is
//! there; see `docs/adr/0008-lmdb.md` and `0023-catalog-log.md`.

use std::path::Path;
use std::time::Duration;

use terrace_store::{
    Backend, Clock, Error, Hint, Key, Op, Open, OpenOptions, Persistency, Request, Result,
    Semantics, Store, SystemClock,
};
use terrace_testkit::{anonymous_mib, cpu_ns};

const BATCH_OBJECTS: u64 = 1000;
const BATCHES_DURABLE: u64 = 20;
const DATA: [u8; 4096] = [7; 4096];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["open", directory] => measure_open(directory),
        [engine, objects, directory] => {
            let objects = objects.parse().map_err(|_| usage())?;
            Store::init(Path::new(directory), &settings(engine))?;
            measure(directory, objects, false)
        }
        [engine, objects, directory, "served"] => {
            let objects = objects.parse().map_err(|_| usage())?;
            Store::init(Path::new(directory), &settings(engine))?;
            measure(directory, objects, true)
        }
        _ => Err(usage()),
    }
}

fn usage() -> Error {
    Error::invalid("measure", "an engine, a number of objects and a new directory are expected")
}

fn settings(engine: &str) -> String {
    let tier =
        |name| format!("[[tier]]\nname = \"{name}\"\nbackend = \"file\"\npath = \"{name}\"\n");
    let (fast, slow) = (tier("fast"), tier("slow"));
    format!("{fast}{slow}[catalog]\nengine = \"{engine}\"\n[policy]\nname = \"lru\"\n")
}

/// Longer than a new store needs for its first checkpoint, behind which the log begins.
const LOG_BEGINS: Duration = Duration::from_secs(3);

fn measure(directory: &str, objects: u64, serve: bool) -> Result<()> {
    let alone = OpenOptions { attach: false, serve, ..OpenOptions::default() };
    let store = Store::open_with(directory, alone)?;
    if serve {
        SystemClock::default().sleep(LOG_BEGINS);
    }
    report("create", objects, |index| {
        store.open(&key("object", index)?, &Open::create_new()).map(drop)
    })?;
    report("status", objects, |index| store.stat(&key("object", index)?).map(drop))?;
    report("delete", objects / 2, |index| store.delete(&key("object", 2 * index)?))?;
    report("create in batches of 1000", objects / BATCH_OBJECTS, |batch| {
        create(&store, "batch", batch, &[], Persistency::Process)
    })?;
    report("the same, 4 KiB, storage", BATCHES_DURABLE, |batch| {
        create(&store, "durable", batch, &DATA, Persistency::Storage)
    })?;
    println!("{:<28} {:>9.1} MiB", "anonymous memory", anonymous_mib());
    store.close()
}

fn measure_open(directory: &str) -> Result<()> {
    let clock = SystemClock::default();
    let start_ns = clock.now_ns();
    let alone = OpenOptions { attach: false, serve: false, ..OpenOptions::default() };
    let store = Store::open_with(directory, alone)?;
    println!("{:<28} {:>9.1} ms", "open", (clock.now_ns() - start_ns) as f64 / 1e6);
    println!("{:<28} {:>9.1} MiB", "anonymous memory", anonymous_mib());
    store.close()
}

/// Time and CPU time, those of other threads included, of each step.
fn report(name: &str, count: u64, step: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let clock = SystemClock::default();
    let (start_ns, start_cpu_ns) = (clock.now_ns(), cpu_ns());
    (0..count).try_for_each(step)?;
    let each_us = |ns: u64| ns as f64 / 1e3 / count as f64;
    let (time_us, cpu_us) = (each_us(clock.now_ns() - start_ns), each_us(cpu_ns() - start_cpu_ns));
    println!("{name:<28} {time_us:>9.2} us {cpu_us:>9.2} us cpu");
    Ok(())
}

fn create(store: &Store, kind: &str, batch: u64, data: &[u8], level: Persistency) -> Result<()> {
    let first = batch * BATCH_OBJECTS;
    let keys: Vec<Key> =
        (first..first + BATCH_OBJECTS).map(|index| key(kind, index)).collect::<Result<_>>()?;
    let create = |key| Op::new(Request::Create { key, data, hint: Hint::default() });
    let mut operations: Vec<Op<'_>> = keys.iter().map(create).collect();
    store.execute(&mut operations, &Semantics::at_level(level));
    let mut outcomes = operations.into_iter().map(|one| one.outcome.expect("it was executed"));
    outcomes.try_for_each(|outcome| outcome.map(drop))
}

fn key(kind: &str, index: u64) -> Result<Key> {
    Key::new("bench", &format!("{kind}-{index}"))
}
