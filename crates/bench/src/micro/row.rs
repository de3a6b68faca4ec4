// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A row of the table, and the bars that some rows have.

use hdrhistogram::Histogram;
use serde::Serialize;
use terrace_core::Persistency;
use terrace_measure::blocks::GROUPS_MIN;
use terrace_measure::sides::Side;
use terrace_measure::{Bound, Verdict, file_system, median};

use super::picks::Keys;
use super::{Kind, Place, Shape};

/// What was measured of one case. Rates and CPU times are medians of the repetitions, percentiles
/// are of all calls.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub(crate) case: &'static str,
    pub(crate) kind: Kind,
    pub(crate) threads: usize,
    pub(crate) level: &'static str,
    pub(crate) semantics: String,
    pub(crate) size_bytes: usize,
    /// Operations of one call.
    pub(crate) batch: usize,
    pub(crate) keys: Keys,
    pub(crate) backend: String,
    pub(crate) engine: String,
    pub(crate) directory: String,
    pub(crate) file_system: String,
    pub(crate) ops_per_s: f64,
    /// 95 % bound of the median.
    pub(crate) ops_per_s_low95: f64,
    pub(crate) ops_per_s_high95: f64,
    pub(crate) raw_ops_per_s: f64,
    pub(crate) raw_ops_per_s_low95: f64,
    pub(crate) raw_ops_per_s_high95: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) raw_p50_us: f64,
    pub(crate) raw_p99_us: f64,
    pub(crate) raw_p999_us: f64,
    pub(crate) cpu_us_per_op: f64,
    pub(crate) raw_cpu_us_per_op: f64,
    /// On the stack, in all repetitions.
    pub(crate) operations: u64,
    pub(crate) raw_operations: u64,
    pub(crate) repetitions: usize,
    /// Repetitions of the stack that a bound on objects or bytes ended before their time.
    pub(crate) ended_early: usize,
    pub(crate) raw_ended_early: usize,
    /// What the rate shall be at least.
    pub(crate) bar_ops_per_s: Option<f64>,
    pub(crate) verdict: Option<Verdict>,
}

/// The row of what was measured.
pub(crate) fn row(
    kind: Kind,
    case: &'static str,
    shape: &Shape,
    place: &Place,
    [raw, stack]: &[Side; 2],
) -> Row {
    let (rate, raw_rate) = (Bound::of(&stack.ops_per_s), Bound::of(&raw.ops_per_s));
    let moves_bytes = !matches!(case, "delete" | "status");
    let file_system = file_system(&place.directory);
    let bar = bar(kind, case, shape, place, &file_system);
    let verdict = bar.map(|bar| match stack.ops_per_s.len() {
        0..GROUPS_MIN => Verdict::NotResolved,
        _ => Verdict::at_least(&rate, bar),
    });
    let us = |latencies: &Histogram<u64>, share| latencies.value_at_quantile(share) as f64 / 1e3;
    Row {
        case,
        kind,
        threads: shape.threads,
        level: shape.level().word(),
        semantics: shape.semantics.to_string(),
        size_bytes: shape.size_bytes,
        batch: shape.batch,
        keys: shape.keys,
        backend: place.backend.clone(),
        engine: place.engine.clone(),
        directory: place.directory.display().to_string(),
        file_system,
        ops_per_s: rate.median,
        ops_per_s_low95: rate.low95,
        ops_per_s_high95: rate.high95,
        raw_ops_per_s: raw_rate.median,
        raw_ops_per_s_low95: raw_rate.low95,
        raw_ops_per_s_high95: raw_rate.high95,
        mb_per_s: if moves_bytes { rate.median * shape.size_bytes as f64 / 1e6 } else { 0.0 },
        p50_us: us(&stack.latencies_ns, 0.5),
        p99_us: us(&stack.latencies_ns, 0.99),
        p999_us: us(&stack.latencies_ns, 0.999),
        raw_p50_us: us(&raw.latencies_ns, 0.5),
        raw_p99_us: us(&raw.latencies_ns, 0.99),
        raw_p999_us: us(&raw.latencies_ns, 0.999),
        cpu_us_per_op: median(&mut stack.cpu_us_per_op.clone()),
        raw_cpu_us_per_op: median(&mut raw.cpu_us_per_op.clone()),
        operations: stack.operations,
        raw_operations: raw.operations,
        repetitions: stack.ops_per_s.len(),
        ended_early: stack.ended_early,
        raw_ended_early: raw.ended_early,
        bar_ops_per_s: bar,
        verdict,
    }
}

/// What the rate of a row shall be at least, where there is a bar for it: one thread on objects in
/// files, created or of 4 KiB.
fn bar(kind: Kind, case: &str, shape: &Shape, place: &Place, file_system: &str) -> Option<f64> {
    if kind != Kind::Object || shape.threads != 1 || place.backend != "file" {
        return None;
    }
    let is_tmpfs = file_system == "tmpfs";
    let is_4k = shape.size_bytes == 4 << 10;
    match (case, shape.level(), shape.batch) {
        ("create", Persistency::Process, 1) if is_tmpfs => Some(110_000.0),
        ("status", Persistency::Process, 1) if is_tmpfs => Some(500_000.0),
        ("read" | "write", Persistency::Process, 1) if is_tmpfs && is_4k => Some(450_000.0),
        ("create+write", Persistency::Storage, 1000) if !is_tmpfs && is_4k => Some(20_000.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Semantics;

    use super::*;

    #[test]
    fn only_the_rows_that_a_bar_is_about_have_one() {
        let shape = Shape {
            size_bytes: 4096,
            batch: 1,
            threads: 1,
            semantics: Semantics::DEFAULT,
            keys: Keys::Uniform,
        };
        let place = Place { directory: "/".into(), backend: "file".into(), engine: "fjall".into() };
        let of = |case, shape: &Shape, system| bar(Kind::Object, case, shape, &place, system);
        assert_eq!(of("create", &shape, "tmpfs"), Some(110_000.0));
        assert_eq!(of("create", &shape, "ext4"), None);
        assert_eq!(of("create", &Shape { threads: 2, ..shape.clone() }, "tmpfs"), None);
        assert_eq!(of("read", &Shape { size_bytes: 8192, ..shape.clone() }, "tmpfs"), None);
        let durable = Shape {
            semantics: Semantics::at_level(Persistency::Storage),
            batch: 1000,
            ..shape.clone()
        };
        assert_eq!(of("create+write", &durable, "ext4"), Some(20_000.0));
        assert_eq!(of("create+write", &durable, "tmpfs"), None);
        assert_eq!(bar(Kind::Kv, "delete", &shape, &place, "tmpfs"), None);
    }
}
