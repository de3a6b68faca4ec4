// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of a store that this process owns.

use terrace_store::report::{LedgerReport, PolicyReport, TierLatencies};
use terrace_store::{Stack, Store, TierReport};

use crate::samples::{Samples, Source};

/// Figures of a store; none where another process owns it, which exports them.
pub struct StoreSource {
    store: Store,
    address: String,
}

impl StoreSource {
    /// Of a store that was opened by this address.
    pub fn new(store: &Store, address: &str) -> Self {
        Self { store: store.clone(), address: address.into() }
    }
}

impl Source for StoreSource {
    fn collect(&self, samples: &mut Samples) {
        let Some(stack) = self.store.stack() else { return };
        samples.info("terrace_store", &[&self.address, &format!("{:032x}", stack.store_id())]);
        let health = stack.health();
        for (fault, is_there) in [
            ("catalog", health.is_broken),
            ("sync", health.has_failed_sync),
            ("room", health.lacks_room),
        ] {
            samples.flag("terrace_store_fault", &[fault], is_there);
        }
        tiers(&stack.tiers(), samples);
        stack.latencies().iter().for_each(|tier| latencies(tier, samples));
        migrations(stack, samples);
        // As `terrace policy show` has it: none where the store has no policy.
        if let Ok(Some(report)) = self.store.admin().policy() {
            policy(&report, samples);
        }
    }
}

/// Adds figures of tiers.
pub fn tiers(tiers: &[TierReport], samples: &mut Samples) {
    for tier in tiers {
        let name = tier.name.as_str();
        samples.info("terrace_tier", &[name, &tier.target, &tier.persistency]);
        samples.flag("terrace_tier_online", &[name], tier.offline.is_none());
        samples.flag("terrace_tier_writable", &[name], tier.is_writable);
        let is_draining = tier.drain.as_ref().is_some_and(|drain| !drain.is_done);
        samples.flag("terrace_tier_draining", &[name], is_draining);
        if let Some(capacity_bytes) = tier.capacity_bytes {
            samples.count("terrace_tier_capacity_bytes", &[name], capacity_bytes);
        }
        for (class, bytes) in [
            ("used", tier.used_bytes),
            ("reserved", tier.reserved_bytes),
            ("copy", tier.copy_bytes),
            ("garbage", tier.garbage_bytes),
            ("kept", tier.kept_bytes),
        ] {
            samples.count("terrace_tier_bytes", &[name, class], bytes);
        }
        samples.count("terrace_tier_segments", &[name], tier.segments);
        for (level, watermark) in ["low", "high", "critical"].into_iter().zip(tier.watermarks) {
            samples.number("terrace_tier_watermark_ratio", &[name, level], watermark);
        }
        ledger(name, &tier.ledger, samples);
        if tier.idle_w > 0.0 || tier.active_w > 0.0 {
            samples.number("terrace_tier_idle_watts", &[name], tier.idle_w);
            samples.number("terrace_tier_active_watts", &[name], tier.active_w);
            let energy_j = tier.modelled_energy_j;
            samples.number("terrace_tier_modelled_energy_joules", &[name], energy_j);
        }
    }
}

fn ledger(tier: &str, ledger: &LedgerReport, samples: &mut Samples) {
    for (operation, bytes) in [("read", ledger.read_bytes), ("write", ledger.written_bytes)] {
        samples.count("terrace_tier_operation_bytes", &[tier, operation], bytes);
    }
    for (direction, bytes) in [("in", ledger.moved_in_bytes), ("out", ledger.moved_out_bytes)] {
        samples.count("terrace_tier_migration_bytes", &[tier, direction], bytes);
    }
    samples.time("terrace_tier_migration_device_seconds", &[tier], ledger.move_device_ns);
}

fn latencies(latencies: &TierLatencies, samples: &mut Samples) {
    let tier = latencies.tier.as_str();
    for (operation, report) in [("read", &latencies.reads), ("write", &latencies.writes)] {
        samples.latencies("terrace_tier_operation_seconds", &[tier, operation], report);
    }
    for (cause, report) in [("migration", &latencies.migration_waits), ("sync", &latencies.syncs)] {
        samples.latencies("terrace_tier_wait_seconds", &[tier, cause], report);
    }
    for (kind, count) in &latencies.errors {
        samples.count("terrace_tier_errors", &[tier, kind.word()], *count);
    }
}

fn migrations(stack: &Stack, samples: &mut Samples) {
    let report = stack.migrations();
    samples.count("terrace_migrations_active", &[], report.active);
    for one in &report.ended {
        let labels = [one.from.as_str(), &one.to, one.action, one.outcome];
        samples.count("terrace_migrations", &labels, one.count);
        samples.count("terrace_migration_copied_bytes", &labels, one.copied_bytes);
    }
    for pair in &report.pairs {
        let labels = [pair.from.as_str(), &pair.to];
        samples.latencies("terrace_migration_duration_seconds", &labels, &pair.durations);
        let energy_j = pair.modelled_energy_j;
        samples.number("terrace_migration_modelled_energy_joules", &labels, energy_j);
    }
}

fn policy(report: &PolicyReport, samples: &mut Samples) {
    let replaced = report.replaced.as_deref();
    samples.info("terrace_policy", &[&report.name]);
    samples.flag("terrace_policy_failed", &[], replaced.is_some());
    samples.flag("terrace_policy_dry_run", &[], report.is_dry_run);
    samples.count("terrace_policy_rounds", &[], report.rounds);
    samples.count("terrace_policy_events", &[], report.events);
    samples.count("terrace_policy_coalesced_events", &[], report.coalesced_events);
    samples.count("terrace_policy_actions", &[], report.actions);
    for (outcome, count) in &report.outcomes {
        samples.count("terrace_policy_receipts", &[outcome], *count);
    }
}
