// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the level `shared` against the S3 service of the testkit, in this process:
//! `shared_speed DIRECTORY OBJECTS [MILLISECONDS]`. The last is what the service takes longer for each PUT.
//! It prints the latency of a put and of a sync of 1 MiB, the rate of small puts by 1 and by 16 threads, and the time of a
//! takeover of so many objects of 4 KiB; see `docs/how-to/takeover.md`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrace_store::{
    Backend, Clock, Create, Error, Key, ObjectExt, Open, OpenOptions, Persistency, Result,
    Semantics, Store, SystemClock,
};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};

const LARGE_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 4096;
const LARGE_COUNT: u64 = 50;
const SMALL_COUNT: u64 = 400;
const THREADS: u64 = 16;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(directory), Some(objects)) = (arguments.first(), number(1)) else {
        return Err(Error::invalid(
            "measure",
            "a new directory and a number of objects are expected",
        ));
    };
    let home = PathBuf::from(directory);
    std::fs::create_dir_all(&home).map_err(|error| Error::from_io("measure", error))?;
    let home = home.canonicalize().map_err(|error| Error::from_io("measure", error))?;
    let keys = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    std::fs::write(home.join("keys"), keys).map_err(|error| Error::from_io("measure", error))?;
    let server = S3Server::start();
    let store = made(&home, &server)?;
    put(&store, "warm", SMALL_BYTES)?;
    if let Some(milliseconds) = number(2) {
        let fault = S3Fault::Stall(Duration::from_millis(milliseconds));
        server.inject(S3FaultPoint { kind: "PUT", name: String::new(), times: u64::MAX, fault });
    }
    server.counts();
    latency("put of 1 MiB", LARGE_COUNT, |index| {
        put(&store, &format!("large/{index}"), LARGE_BYTES)
    })?;
    told_puts(&server, LARGE_COUNT);
    let how = Open::write();
    latency("write and sync of 1 MiB", LARGE_COUNT, |index| {
        let object = store.open(&key(&format!("large/{index}"))?, &how)?;
        object.write(0, &vec![index as u8; LARGE_BYTES])?;
        object.sync()
    })?;
    told_puts(&server, LARGE_COUNT);
    let one = rate(&store, &server, "one", 1, SMALL_COUNT)?;
    let many = rate(&store, &server, "many", THREADS, SMALL_COUNT * THREADS)?;
    println!("16 threads over 1: {:.1}", many / one);
    server.heal();
    rate(&store, &server, "objects", THREADS, objects)?;
    std::mem::forget(store);
    std::fs::remove_dir_all(home.join("a")).map_err(|error| Error::from_io("measure", error))?;
    let clock = SystemClock::default();
    server.counts();
    let begun_ns = clock.now_ns();
    let taken = Store::take_over(&home.join("b"), &settings(&home, &server, ""), &mut |_| {})?;
    println!(
        "takeover of {} objects, {} commits of the log: {:.2} s; requests {:?}",
        taken.report.objects,
        taken.log_commits,
        seconds(&clock, begun_ns),
        server.counts()
    );
    let begun_ns = clock.now_ns();
    open(&home, "b")?;
    println!(
        "opening behind it: {:.2} s; requests {:?}",
        seconds(&clock, begun_ns),
        server.counts()
    );
    Ok(())
}

fn settings(home: &Path, server: &S3Server, tiers: &str) -> String {
    format!(
        "[store]\n{tiers}[[tier]]\nname = \"cold\"\nbackend = \"s3\"\nbucket = \"{BUCKET}\"\nprefix = \"s\"\n\
         endpoint = \"{}\"\nregion = \"{REGION}\"\ncredentials = \"{}\"\n[catalog]\nengine = \"fjall\"\n",
        server.endpoint(),
        home.join("keys").display()
    )
}

fn made(home: &Path, server: &S3Server) -> Result<Store> {
    let fast = "[[tier]]\nname = \"fast\"\npath = \"fast\"\n";
    Store::init(&home.join("a"), &settings(home, server, fast))?;
    open(home, "a")
}

fn open(home: &Path, machine: &str) -> Result<Store> {
    let path = home.join(machine);
    let options = OpenOptions { attach: false, ..OpenOptions::default() };
    Store::open_with(path.to_str().unwrap_or_default(), options)
}

fn key(name: &str) -> Result<Key> {
    Key::new("m", name)
}

fn put(store: &Store, name: &str, bytes: usize) -> Result<()> {
    let how =
        Open { create: Create::IfMissing, size_hint_bytes: Some(bytes as u64), ..Open::create() };
    let draft =
        store.draft(&key(name)?, &how.with_semantics(Semantics::at_level(Persistency::Shared)))?;
    draft.object().write(0, &vec![7; bytes])?;
    draft.publish().map(drop)
}

fn seconds(clock: &SystemClock, begun_ns: u64) -> f64 {
    (clock.now_ns() - begun_ns) as f64 * 1e-9
}

fn latency(what: &str, count: u64, mut each: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let clock = SystemClock::default();
    let mut all = Vec::new();
    for index in 0..count {
        let begun_ns = clock.now_ns();
        each(index)?;
        all.push(seconds(&clock, begun_ns) * 1e3);
    }
    all.sort_by(f64::total_cmp);
    let (middle, high) = (all[all.len() / 2], all[all.len() * 95 / 100]);
    println!("{what}: median {middle:.2} ms, 95th percentile {high:.2} ms");
    Ok(())
}

fn told_puts(server: &S3Server, count: u64) {
    let puts = server.counts().get("PUT").copied().unwrap_or_default();
    println!("  {:.2} PUT each, those of the log included", puts as f64 / count as f64);
}

fn rate(store: &Store, server: &S3Server, what: &str, threads: u64, count: u64) -> Result<f64> {
    let clock = SystemClock::default();
    let next = AtomicU64::new(0);
    let begun_ns = clock.now_ns();
    std::thread::scope(|scope| {
        let work = || loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(());
            }
            put(store, &format!("{what}/{index}"), SMALL_BYTES)?;
        };
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|one| one.join().expect("no panic"))
    })?;
    let rate = count as f64 / seconds(&clock, begun_ns);
    println!("puts of 4 KiB by {threads}: {rate:.0}/s");
    told_puts(server, count);
    Ok(rate)
}
