// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The listing of the tiers.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use terrace_core::Error;
use terrace_core::units::{show_bytes, show_ns, show_rate};
use terrace_metrics::{Samples, textfile};
use terrace_store::TierReport;

use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, count, show_name};
use crate::table::Table;

/// Prints all tiers.
pub(super) fn list(context: &Context, is_long: bool) -> Result<()> {
    let tiers = context.with_store_for_reading(|store| Ok(store.admin().tiers()?))?;
    let warnings: Vec<_> = tiers.iter().filter_map(warning).collect();
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "tiers": tiers, "warnings": warnings }))?;
    } else {
        for line in overview(&tiers).lines() {
            output.line(line)?;
        }
        if is_long {
            for tier in &tiers {
                print_details(tier, &mut output)?;
            }
        }
        for warning in &warnings {
            output.line(format!("warning: {warning}"))?;
        }
    }
    output.flush()
}

/// Writes the figures of all tiers for node_exporter, which must never see a part of a file.
pub(super) fn write_textfile(context: &Context, file: &Path) -> Result<()> {
    context.check_output(file)?;
    let tiers = context.with_store_for_reading(|store| Ok(store.admin().tiers()?))?;
    let mut samples = Samples::default();
    terrace_metrics::tiers(&tiers, &mut samples);
    let failed = |error: io::Error| {
        Error::from_io("write the figures of the tiers", error).with("file", file.display())
    };
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let mut written = tempfile::Builder::new()
        .prefix(".terrace-tiers")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    written.write_all(textfile(samples).as_bytes()).map_err(failed)?;
    written.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}

fn overview(tiers: &[TierReport]) -> Table {
    let mut table = Table::new(&[1, 2, 3, 4, 5, 6, 7, 8]);
    table.heading([
        "tier", "objects", "used", "copies", "reserved", "garbage", "kept", "capacity", "fill",
        "state", "target",
    ]);
    for tier in tiers {
        table.row([
            tier.name.clone(),
            tier.segments.to_string(),
            show_bytes(tier.used_bytes),
            show_bytes(tier.copy_bytes),
            show_bytes(tier.reserved_bytes),
            show_bytes(tier.garbage_bytes),
            show_bytes(tier.kept_bytes),
            show_bytes(tier.capacity_bytes.unwrap_or(u64::MAX)),
            fill(tier),
            state(tier).into(),
            tier.target.clone(),
        ]);
    }
    table
}

/// All that a tier holds or has reserved.
fn taken_bytes(tier: &TierReport) -> u64 {
    tier.used_bytes + tier.copy_bytes + tier.reserved_bytes + tier.garbage_bytes + tier.kept_bytes
}

/// What is wrong where a tier holds more than its capacity.
fn warning(tier: &TierReport) -> Option<String> {
    let (taken, capacity) = (taken_bytes(tier), tier.capacity_bytes?);
    (taken > capacity).then(|| {
        format!(
            "tier {} takes {}, more than its capacity of {}: objects on it cannot grow, and new ones go to other \
             tiers, until some are moved or removed, or the capacity in terrace.toml is raised",
            tier.name,
            show_bytes(taken),
            show_bytes(capacity)
        )
    })
}

fn fill(tier: &TierReport) -> String {
    let taken = taken_bytes(tier);
    match tier.capacity_bytes {
        Some(capacity) if capacity > 0 => {
            format!("{:.0} %", 100.0 * taken as f64 / capacity as f64)
        }
        _ => "-".into(),
    }
}

fn state(tier: &TierReport) -> &'static str {
    match (&tier.offline, tier.is_writable) {
        (Some(_), _) => "offline",
        (None, true) => "online",
        (None, false) if tier.drain.as_ref().is_some_and(|drain| drain.is_done) => "drained",
        (None, false) if tier.drain.is_some() => "draining",
        (None, false) => "read-only",
    }
}

fn print_details(tier: &TierReport, output: &mut Output) -> Result<()> {
    output.line("")?;
    output.line(format!("{}:", tier.name))?;
    if let Some(reason) = &tier.offline {
        output.line(format!("  offline: {reason}"))?;
    }
    if let Some(drain) = &tier.drain {
        let left = count(drain.segments, "segment");
        output.line(match drain.is_done {
            true => match tier.kept_bytes {
                0 => "  drained: it can be removed".into(),
                kept => format!(
                    "  drained: it can be removed, with {} of versions that it keeps",
                    show_bytes(kept)
                ),
            },
            false => format!("  draining: {left}, {} left", show_bytes(drain.bytes)),
        })?;
        for stuck in &drain.stuck {
            output.line(format!(
                "  cannot move {} segment {}: {}",
                show_name(&stuck.key),
                stuck.segment,
                stuck.reason
            ))?;
        }
    }
    let rate = |rate: Option<f64>| rate.map_or("not configured".into(), show_rate);
    let ledger = &tier.ledger;
    let [low, high, critical] = tier.watermarks.map(|mark| format!("{:.0} %", mark * 100.0));
    let mut table = Table::new(&[]);
    for (name, value) in [
        ("persistency", tier.persistency.clone()),
        ("writes", tier.writes.clone()),
        ("packed", if tier.packed { "yes: what objects take is accounted" } else { "no" }.into()),
        ("keeps deleted", tier.keep_deleted_ns.map_or("no".into(), show_time)),
        ("latency", show_ns(tier.latency_ns)),
        ("read bandwidth", rate(tier.read_bytes_per_s)),
        ("write bandwidth", rate(tier.write_bytes_per_s)),
        ("watermarks", format!("low {low}, high {high}, critical {critical}")),
        ("reads", work(ledger.reads, ledger.read_bytes)),
        ("writes", work(ledger.writes, ledger.written_bytes)),
        ("moved in", moved(ledger.moves_in, ledger.moved_in_bytes)),
        ("moved out", moved(ledger.moves_out, ledger.moved_out_bytes)),
        ("device time", show_ns(ledger.device_ns)),
        ("waited for migrations", show_ns(ledger.migration_wait_ns)),
        ("power", format!("{} W idle, {} W active", tier.idle_w, tier.active_w)),
        ("modelled energy", format!("{:.3} J", tier.modelled_energy_j)),
    ] {
        table.row([format!("  {name}"), value]);
    }
    for (name, price) in [
        ("price of 1000 write requests", tier.price_per_1000_write_requests),
        ("price of 1000 read requests", tier.price_per_1000_read_requests),
        ("price of a GB and month", tier.price_per_gb_month),
        ("price of a GB that is read", tier.price_per_gb_read),
    ] {
        if price > 0.0 {
            table.row([format!("  {name}"), price.to_string()]);
        }
    }
    table.lines().into_iter().try_for_each(|line| output.line(line))
}

/// A time that is usually one of days.
fn show_time(ns: u64) -> String {
    const DAY_NS: u64 = 86_400 * 1_000_000_000;
    match ns % DAY_NS {
        0 => format!("{} d", ns / DAY_NS),
        _ => show_ns(ns),
    }
}

fn work(operations: u64, bytes: u64) -> String {
    format!("{}, {}", count(operations, "operation"), show_bytes(bytes))
}

fn moved(moves: u64, bytes: u64) -> String {
    format!("{}, {}", count(moves, "migration"), show_bytes(bytes))
}
