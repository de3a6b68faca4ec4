// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the requests of a trace of any format come to.

use serde_json::{Value, json};
use terrace_core::units::{show_bytes, show_ns};
use terrace_replay::{Profile, Sum};

use crate::output::count;
use crate::table::Table;

/// Parts of the repeated requests whose reuse distance is shown.
const PARTS: [(&str, f64); 4] = [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99)];

pub(super) fn value(profile: &Profile) -> Value {
    let sum = |sum: Sum| json!({ "count": sum.count, "bytes": sum.bytes });
    let windows = profile.windows.iter().map(|window| {
        json!({
            "from_ns": window.from_ns,
            "requests": window.requests,
            "objects": window.working_set.count,
            "bytes": window.working_set.bytes,
            "new_objects": window.new_objects,
        })
    });
    let ranges = |ranges: &std::collections::BTreeMap<u64, u64>| -> Vec<Value> {
        ranges.iter().map(|(below, requests)| json!([below, requests])).collect()
    };
    json!({
        "requests": sum(profile.all),
        "reads": sum(profile.reads),
        "writes": sum(profile.writes),
        "objects": sum(profile.objects),
        "from_ns": profile.span_ns.map(|(first, _)| first),
        "until_ns": profile.span_ns.map(|(_, last)| last),
        "reuse_distances_objects": ranges(&profile.distances),
        "reuse_distances_bytes": ranges(&profile.distances_bytes),
        "windows": windows.collect::<Vec<_>>(),
    })
}

pub(super) fn lines(profile: &Profile) -> Vec<String> {
    let Profile { all, reads, writes, objects, .. } = profile;
    let (first_ns, last_ns) = profile.span_ns.unwrap_or((0, 0));
    let span = show_ns(last_ns - first_ns);
    let requests = count(all.count, "request");
    let mut lines = vec![format!("{requests} over {span}")];
    let mut table = Table::new(&[1, 2]);
    for (what, sum) in [("reads", reads), ("writes", writes), ("objects", objects)] {
        table.row([format!("  {what}"), sum.count.to_string(), show_bytes(sum.bytes)]);
    }
    lines.extend(table.lines());
    let again: u64 = profile.distances.values().sum();
    if again > 0 {
        let part = 100.0 * again as f64 / all.count as f64;
        lines.push(format!(
            "\n{} ({part:.1} %) ask again; others meanwhile:",
            count(again, "request")
        ));
        let mut table = Table::new(&[1, 2]);
        for (name, part) in PARTS {
            let (objects, bytes) = (profile.distance(part), profile.distance_bytes(part));
            let objects = count(objects.unwrap_or(0), "object");
            table.row([
                format!("  {name}"),
                format!("< {objects}"),
                show_bytes(bytes.unwrap_or(0)),
            ]);
        }
        lines.extend(table.lines());
    }
    if !profile.windows.is_empty() {
        lines.push("\nworking set".into());
        let mut table = Table::new(&[0, 1, 2, 3, 4]);
        table.heading(["  from", "requests", "objects", "bytes", "new objects"]);
        for window in &profile.windows {
            table.row([
                show_ns(window.from_ns - first_ns),
                window.requests.to_string(),
                window.working_set.count.to_string(),
                show_bytes(window.working_set.bytes),
                window.new_objects.to_string(),
            ]);
        }
        lines.extend(table.lines());
    }
    lines
}
