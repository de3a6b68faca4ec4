// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates of single operations on objects, raw and through a stack.

use serde::Serialize;
use terrace_core::{Backend, Clock, Key, ObjectExt, Open, Result, SystemClock};

use super::cpu_ns;
use super::place::{Scratch, directory, fast_place, stack};
use super::statistics::quantile;

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    /// `raw` or `stack`.
    pub(crate) side: &'static str,
    pub(crate) level: &'static str,
    pub(crate) size_bytes: usize,
    pub(crate) ops_per_s: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cpu_us_per_op: f64,
}

const CASES: [&str; 5] = ["create", "status", "write", "read", "delete"];

/// Runs every case on both sides for about `seconds` in all.
pub(crate) fn run(seconds: f64, size_bytes: usize) -> Result<Vec<Row>> {
    let scratch = Scratch::new(&fast_place())?;
    let raw = directory(&scratch.inside("raw")?)?;
    let paths = [scratch.inside("tier0")?, scratch.inside("tier1")?];
    let stacked = stack(&scratch, &[&paths[0], &paths[1]], Some("lru"))?;
    let share_ns = (seconds * 1e9 / (2 * CASES.len()) as f64) as u64;
    // How many objects fit the share is known after the first creates.
    let sides: [(&str, &dyn Backend); 2] = [("raw", &*raw), ("stack", &stacked)];
    let mut counts = [0; 2];
    let mut rows = Vec::new();
    for case in CASES {
        for (index, (side, backend)) in sides.iter().enumerate() {
            let (row, count) = one(case, side, *backend, size_bytes, share_ns, counts[index])?;
            if case == "create" {
                counts[index] = count;
            }
            rows.push(row);
        }
    }
    stacked.close()?;
    Ok(rows)
}

fn one(
    case: &'static str,
    side: &'static str,
    backend: &dyn Backend,
    size_bytes: usize,
    share_ns: u64,
    objects: u64,
) -> Result<(Row, u64)> {
    let clock = SystemClock::default();
    let mut buffer = vec![3; size_bytes];
    let mut latencies = Vec::new();
    let cpu = cpu_ns();
    let mut count = 0;
    let limit = if case == "create" { u64::MAX } else { objects };
    let started_ns = clock.now_ns();
    while count < limit && clock.now_ns() - started_ns < share_ns {
        let key = Key::new("bench", &format!("object-{count}"))?;
        let before_ns = clock.now_ns();
        match case {
            "create" => drop(backend.open(&key, &Open::create_new())?),
            "status" => drop(backend.stat(&key)?),
            "write" => backend.open(&key, &Open::write())?.write(0, &buffer)?,
            "read" => drop(backend.open(&key, &Open::read())?.read(0, &mut buffer)?),
            _ => backend.delete(&key)?,
        }
        latencies.push((clock.now_ns() - before_ns) as f64 / 1e3);
        count += 1;
    }
    let passed_s = (clock.now_ns() - started_ns) as f64 / 1e9;
    let rate = count as f64 / passed_s;
    let moves_bytes = matches!(case, "write" | "read");
    let row = Row {
        case,
        side,
        level: "process",
        size_bytes,
        ops_per_s: rate,
        mb_per_s: if moves_bytes { rate * size_bytes as f64 / 1e6 } else { 0.0 },
        p50_us: quantile(&mut latencies, 0.5),
        p99_us: quantile(&mut latencies, 0.99),
        cpu_us_per_op: (cpu_ns() - cpu) as f64 / 1e3 / count as f64,
    };
    Ok((row, count))
}
