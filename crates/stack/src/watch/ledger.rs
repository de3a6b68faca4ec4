// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where time went: counters that threads add to without meeting each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use terrace_core::{ErrorKind, Latencies, LatencyReport, ReadSummary};

use crate::report::{LedgerReport, TierLatencies};

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    ReadBytes,
    WrittenBytes,
    MovesIn,
    MovesOut,
    MovedInBytes,
    MovedOutBytes,
    MoveDeviceNs,
}

/// What is counted with how long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timed {
    Read,
    Write,
    /// A writer waited for a migration's switch.
    MigrationWait,
    Sync,
}

const COUNTS: usize = Count::MoveDeviceNs as usize + 1;
const TIMED: usize = Timed::Sync as usize + 1;
const STRIPES: usize = 8;

/// One thread's share, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    counts: [AtomicU64; COUNTS],
    timed: [Latencies; TIMED],
}

/// Counters of a tier.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    stripes: [Stripe; STRIPES],
    /// By the number of the kind. Errors are rare: all threads share these.
    errors: [AtomicU64; ErrorKind::ALL.len()],
}

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

fn stripe() -> usize {
    STRIPE.with(|cell| {
        if cell.get() == usize::MAX {
            cell.set(NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        cell.get()
    })
}

impl Ledger {
    /// Counts one read or write with its bytes and its time in the backend.
    #[inline]
    pub(crate) fn access(&self, is_write: bool, bytes: u64, device_ns: u64) {
        let stripe = &self.stripes[stripe()];
        let (timed, sum) = if is_write {
            (Timed::Write, Count::WrittenBytes)
        } else {
            (Timed::Read, Count::ReadBytes)
        };
        stripe.timed[timed as usize].add(device_ns);
        stripe.counts[sum as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts reads that were done elsewhere; each as if it had taken their mean.
    pub(crate) fn reads(&self, reads: &ReadSummary) {
        let timed = &self.stripes[stripe()].timed[Timed::Read as usize];
        timed.add_sum(reads.count.into(), reads.latency_ns);
        self.add(Count::ReadBytes, reads.bytes);
    }

    /// Counts something that took so long.
    pub(crate) fn time(&self, what: Timed, took_ns: u64) {
        self.stripes[stripe()].timed[what as usize].add(took_ns);
    }

    /// Counts an error of the tier.
    pub(crate) fn fail(&self, kind: ErrorKind) {
        self.errors[kind.number()].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds to one counter.
    pub(crate) fn add(&self, count: Count, amount: u64) {
        self.stripes[stripe()].counts[count as usize].fetch_add(amount, Ordering::Relaxed);
    }

    fn sum(&self, count: Count) -> u64 {
        let one = |stripe: &Stripe| stripe.counts[count as usize].load(Ordering::Relaxed);
        self.stripes.iter().map(one).sum()
    }

    fn time_ns(&self, what: Timed) -> u64 {
        self.stripes.iter().map(|stripe| stripe.timed[what as usize].sum_ns()).sum()
    }

    fn times(&self, what: Timed) -> u64 {
        self.stripes.iter().map(|stripe| stripe.timed[what as usize].count()).sum()
    }

    /// Time that reads and writes spent in the backend.
    pub(crate) fn device_ns(&self) -> u64 {
        self.time_ns(Timed::Read) + self.time_ns(Timed::Write)
    }

    /// All counters.
    pub(crate) fn report(&self) -> LedgerReport {
        LedgerReport {
            reads: self.times(Timed::Read),
            read_bytes: self.sum(Count::ReadBytes),
            writes: self.times(Timed::Write),
            written_bytes: self.sum(Count::WrittenBytes),
            device_ns: self.device_ns(),
            migration_wait_ns: self.time_ns(Timed::MigrationWait),
            // Of the format, and counted by nothing.
            guard_wait_ns: 0,
            sync_ns: self.time_ns(Timed::Sync),
            moves_in: self.sum(Count::MovesIn),
            moves_out: self.sum(Count::MovesOut),
            moved_in_bytes: self.sum(Count::MovedInBytes),
            moved_out_bytes: self.sum(Count::MovedOutBytes),
            move_device_ns: self.sum(Count::MoveDeviceNs),
        }
    }

    /// How long what is counted took, and what failed, of the tier with this name.
    pub(crate) fn latencies(&self, tier: &str) -> TierLatencies {
        let of = |what: Timed| {
            let mut report = LatencyReport::default();
            self.stripes.iter().for_each(|stripe| stripe.timed[what as usize].add_to(&mut report));
            report
        };
        let errors = ErrorKind::ALL.into_iter().zip(&self.errors);
        let errors = errors.map(|(kind, count)| (kind, count.load(Ordering::Relaxed)));
        TierLatencies {
            tier: tier.into(),
            reads: of(Timed::Read),
            writes: of(Timed::Write),
            migration_waits: of(Timed::MigrationWait),
            syncs: of(Timed::Sync),
            errors: errors.collect(),
        }
    }
}

/// Counters of one object, since it was last loaded from the catalog.
#[derive(Debug, Default)]
pub(crate) struct ObjectLedger {
    accesses: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    device_ns: AtomicU64,
    pub(crate) migration_wait_ns: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
}

impl ObjectLedger {
    /// Counts one read or write.
    #[inline]
    pub(crate) fn access(&self, is_write: bool, bytes: u64, device_ns: u64) {
        let index = usize::from(is_write);
        self.accesses[index].fetch_add(1, Ordering::Relaxed);
        self.bytes[index].fetch_add(bytes, Ordering::Relaxed);
        self.device_ns.fetch_add(device_ns, Ordering::Relaxed);
    }

    /// Counts reads that were done elsewhere.
    pub(crate) fn reads(&self, reads: &ReadSummary) {
        self.accesses[0].fetch_add(reads.count.into(), Ordering::Relaxed);
        self.bytes[0].fetch_add(reads.bytes, Ordering::Relaxed);
        self.device_ns.fetch_add(reads.latency_ns, Ordering::Relaxed);
    }

    /// All counters.
    pub(crate) fn report(&self) -> LedgerReport {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LedgerReport {
            reads: get(&self.accesses[0]),
            read_bytes: get(&self.bytes[0]),
            writes: get(&self.accesses[1]),
            written_bytes: get(&self.bytes[1]),
            device_ns: get(&self.device_ns),
            migration_wait_ns: get(&self.migration_wait_ns),
            sync_ns: get(&self.sync_ns),
            ..LedgerReport::default()
        }
    }
}

impl LedgerReport {
    /// The sum of two reports.
    pub fn plus(&self, other: &LedgerReport) -> LedgerReport {
        LedgerReport {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            device_ns: self.device_ns + other.device_ns,
            migration_wait_ns: self.migration_wait_ns + other.migration_wait_ns,
            guard_wait_ns: self.guard_wait_ns + other.guard_wait_ns,
            sync_ns: self.sync_ns + other.sync_ns,
            moves_in: self.moves_in + other.moves_in,
            moves_out: self.moves_out + other.moves_out,
            moved_in_bytes: self.moved_in_bytes + other.moved_in_bytes,
            moved_out_bytes: self.moved_out_bytes + other.moved_out_bytes,
            move_device_ns: self.move_device_ns + other.move_device_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_and_the_latencies_are_of_the_same_counters() {
        let ledger = Ledger::default();
        std::thread::scope(|scope| {
            for thread in 0..12 {
                let ledger = &ledger;
                scope.spawn(move || (0..100).for_each(|ns| ledger.access(thread % 2 == 0, 3, ns)));
            }
        });
        ledger.reads(&ReadSummary { count: 4, bytes: 8, offset_bytes: 0, latency_ns: 4000 });
        ledger.time(Timed::Sync, 7);
        ledger.fail(ErrorKind::NoSpace);
        let (report, latencies) = (ledger.report(), ledger.latencies("t"));
        assert_eq!((report.reads, report.writes), (604, 600));
        assert_eq!((report.read_bytes, report.written_bytes), (1808, 1800));
        assert_eq!((latencies.reads.count(), latencies.writes.count()), (604, 600));
        assert_eq!(latencies.reads.sum_ns + latencies.writes.sum_ns, report.device_ns);
        assert_eq!((latencies.syncs.count(), latencies.syncs.sum_ns), (1, report.sync_ns));
        assert_eq!(latencies.errors.len(), ErrorKind::ALL.len());
        let failed: Vec<_> = latencies.errors.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(failed, [(ErrorKind::NoSpace, 1)]);
    }
}
