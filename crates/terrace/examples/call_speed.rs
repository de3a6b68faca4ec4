// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of a store by Rust, for `benches/bindings`: `call_speed STORE` makes one, and reads lines from standard
//! input. `get|put THREADS CALLS BYTES` calls so often in each thread, `create|read THREADS CALLS BYTES` uses objects as
//! programs in C do. It prints the nanoseconds that the line took, and those that processors worked for it.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::io::BufRead;
use std::time::Instant;

use terrace::{Result, Store};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "call-speed".into());
    Store::create(&path)?;
    let store = Store::open(&path)?;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input is text");
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<usize>().expect("it is a number");
        let (what, threads, calls, bytes) = (words[0], number(1), number(2), number(3));
        let (begun, worked_ns) = (Instant::now(), processor_ns());
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let store = &store;
                scope.spawn(move || calls_of(store, what, thread, calls, bytes).expect("it works"));
            }
        });
        println!("{} {}", begun.elapsed().as_nanos(), processor_ns() - worked_ns);
    }
    store.close()
}

/// What all threads of this process have used of processors.
fn processor_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn calls_of(store: &Store, what: &str, thread: usize, calls: usize, bytes: usize) -> Result<()> {
    let (data, mut buffer) = (vec![7; bytes], vec![0; bytes]);
    for call in 0..calls {
        let name = format!("speed/{thread}-{}", call % 64);
        match what {
            "put" => store.put(&name, &data)?,
            "get" => assert_eq!(store.get(&name)?.len(), bytes),
            "create" => store.object(&name)?.create()?.write_at(0, &data)?,
            "read" => assert_eq!(store.object(&name)?.read()?.read_at(0, &mut buffer)?, bytes),
            other => panic!("{other} is not known"),
        }
    }
    Ok(())
}
