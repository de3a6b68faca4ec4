// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All metrics: names, types, units, labels.

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, until the process ends.
    Counter,
    /// A value at one moment.
    Gauge,
    /// Counts by intervals.
    Histogram,
    /// Labels alone.
    Info,
}

/// A metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name with the unit; samples of counters end in `_total`, of infos in `_info`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The last word of the name, where that is a unit.
    pub unit: Option<&'static str>,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

impl Family {
    /// The word that OpenMetrics has for the type.
    pub fn word(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

const fn family(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind, unit: if unit.is_empty() { None } else { Some(unit) }, labels, help }
}

use Kind::{Counter, Gauge, Histogram, Info};

/// All metric families, in the order of a scrape.
pub const FAMILIES: &[Family] = &[
    family("terrace_build", Info, "", &["version", "verb"], "The command that exports this"),
    family(
        "process_start_time_seconds",
        Gauge,
        "seconds",
        &[],
        "When the process began, since 1970",
    ),
    family("process_cpu_seconds", Counter, "seconds", &[], "Time of processors, user and system"),
    family("process_resident_memory_bytes", Gauge, "bytes", &[], "Memory that is resident"),
    family("terrace_store", Info, "", &["store", "id"], "The store that this process owns"),
    family(
        "terrace_store_fault",
        Gauge,
        "",
        &["fault"],
        "1 while something is wrong with the store",
    ),
    family("terrace_tier", Info, "", &["tier", "target", "persistency"], "A tier of the store"),
    family("terrace_tier_online", Gauge, "", &["tier"], "1 where its device can be used"),
    family("terrace_tier_writable", Gauge, "", &["tier"], "1 where it takes new data"),
    family(
        "terrace_tier_draining",
        Gauge,
        "",
        &["tier"],
        "1 where it is emptied, until all has left it",
    ),
    family(
        "terrace_tier_capacity_bytes",
        Gauge,
        "bytes",
        &["tier"],
        "What it may hold, where that is bounded",
    ),
    family("terrace_tier_bytes", Gauge, "bytes", &["tier", "class"], "What it holds, by class"),
    family("terrace_tier_segments", Gauge, "", &["tier"], "Primary segments"),
    family(
        "terrace_tier_watermark_ratio",
        Gauge,
        "ratio",
        &["tier", "level"],
        "Watermarks as parts of the capacity: low, high, critical",
    ),
    family(
        "terrace_tier_operation_seconds",
        Histogram,
        "seconds",
        &["tier", "operation"],
        "Time of operations in the backend",
    ),
    family(
        "terrace_tier_operation_bytes",
        Counter,
        "bytes",
        &["tier", "operation"],
        "Bytes of these operations",
    ),
    family(
        "terrace_tier_wait_seconds",
        Histogram,
        "seconds",
        &["tier", "cause"],
        "Time that operations waited, by cause",
    ),
    family(
        "terrace_tier_errors",
        Counter,
        "",
        &["tier", "error"],
        "Operations that the backend failed, by kind of error",
    ),
    family(
        "terrace_tier_migration_bytes",
        Counter,
        "bytes",
        &["tier", "direction"],
        "Bytes that migrations wrote to it (in) and read from it (out)",
    ),
    family(
        "terrace_tier_migration_device_seconds",
        Counter,
        "seconds",
        &["tier"],
        "Time that migrations spent in the backend",
    ),
    family(
        "terrace_tier_idle_watts",
        Gauge,
        "watts",
        &["tier"],
        "Power when nothing happens, where configured",
    ),
    family(
        "terrace_tier_active_watts",
        Gauge,
        "watts",
        &["tier"],
        "Power when busy, where configured",
    ),
    family(
        "terrace_tier_modelled_energy_joules",
        Counter,
        "joules",
        &["tier"],
        "Energy by these figures: idle power over time, the rest of active power while busy",
    ),
    family("terrace_migrations_active", Gauge, "", &[], "Migrations that wait or run"),
    family(
        "terrace_migrations",
        Counter,
        "",
        &["from", "to", "action", "outcome"],
        "Migrations that have ended",
    ),
    family(
        "terrace_migration_copied_bytes",
        Counter,
        "bytes",
        &["from", "to", "action", "outcome"],
        "Bytes that these copied",
    ),
    family(
        "terrace_migration_duration_seconds",
        Histogram,
        "seconds",
        &["from", "to"],
        "Time of migrations that were begun",
    ),
    family(
        "terrace_migration_modelled_energy_joules",
        Counter,
        "joules",
        &["from", "to"],
        "Energy of both devices over that time, by their active power",
    ),
    family("terrace_policy", Info, "", &["policy"], "The policy that decides"),
    family(
        "terrace_policy_failed",
        Gauge,
        "",
        &[],
        "1 where the fallback decides because the policy failed",
    ),
    family(
        "terrace_policy_dry_run",
        Gauge,
        "",
        &[],
        "1 where decisions are recorded and not carried out",
    ),
    family("terrace_policy_rounds", Counter, "", &[], "Calls of the policy"),
    family("terrace_policy_events", Counter, "", &[], "Events that the policy was shown"),
    family(
        "terrace_policy_coalesced_events",
        Counter,
        "",
        &[],
        "Events that a full ring summed up",
    ),
    family("terrace_policy_actions", Counter, "", &[], "Actions that the policy asked for"),
    family("terrace_policy_receipts", Counter, "", &["outcome"], "Actions that ended"),
    family(
        "terrace_server_connections",
        Gauge,
        "",
        &["server", "state"],
        "Connections: served, and greeting (those that have not proved themselves)",
    ),
    family(
        "terrace_server_sessions",
        Gauge,
        "",
        &["server"],
        "Clients, also those that may come back",
    ),
    family("terrace_server_open_objects", Gauge, "", &["server"], "Objects that clients have open"),
    family(
        "terrace_server_refused_connections",
        Counter,
        "",
        &["server"],
        "Connections that were not served",
    ),
    family("terrace_server_requests", Counter, "", &["server"], "Requests and calls that came"),
    family("terrace_server_operations", Counter, "", &["server"], "Operations in them"),
    family("terrace_server_received_bytes", Counter, "bytes", &["server"], "Payloads that came"),
    family(
        "terrace_server_sent_bytes",
        Counter,
        "bytes",
        &["server"],
        "Payloads of large reads that were sent",
    ),
    family(
        "terrace_server_request_seconds",
        Histogram,
        "seconds",
        &["server", "request"],
        "Time from the head of a request to its answer",
    ),
    family(
        "terrace_server_errors",
        Counter,
        "",
        &["server", "error"],
        "Errors that clients got, by kind",
    ),
    family(
        "terrace_mount",
        Info,
        "",
        &["mountpoint", "store", "io"],
        "The mount: where, of what, and its mode of I/O",
    ),
    family(
        "terrace_mount_request_seconds",
        Histogram,
        "seconds",
        &["operation"],
        "Time from a request of the kernel to its answer, by groups of operations",
    ),
    family(
        "terrace_mount_errors",
        Counter,
        "",
        &["errno"],
        "Answers to the kernel that were errors",
    ),
    family(
        "terrace_mount_cache_lookups",
        Counter,
        "",
        &["cache", "result"],
        "Looks into the caches of a client: hit, miss",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_all_families() {
        let page = include_str!("../../../docs/reference/metrics.md");
        let rows: Vec<_> =
            page.lines().filter(|line| line.ends_with(" |") && line.contains("` | ")).collect();
        let row = |family: &Family| {
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let cells = [
                format!("`{}`", family.name),
                family.word().into(),
                family.unit.unwrap_or_default().into(),
                labels.join(", "),
                family.help.into(),
            ];
            let cells: Vec<_> = cells
                .iter()
                .map(|cell| if cell.is_empty() { " ".into() } else { format!(" {cell} ") })
                .collect();
            format!("|{}|", cells.join("|"))
        };
        for family in FAMILIES {
            assert!(rows.contains(&row(family).as_str()), "{} is missing", row(family));
        }
        let listed = rows.iter().filter(|line| {
            let name = line.trim_start_matches("| `").split('`').next().unwrap_or_default();
            name.starts_with("terrace_") || name.starts_with("process_")
        });
        assert_eq!(listed.count(), FAMILIES.len(), "the page lists others");
    }
}
