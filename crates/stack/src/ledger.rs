// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where time went: counters that threads add to without meeting each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use terrace_core::ReadSummary;

use crate::report::LedgerReport;

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Reads,
    ReadBytes,
    Writes,
    WrittenBytes,
    DeviceNs,
    MigrationWaitNs,
    GuardWaitNs,
    SyncNs,
    MovesIn,
    MovesOut,
    MovedInBytes,
    MovedOutBytes,
    MoveDeviceNs,
}

const COUNTS: usize = Count::MoveDeviceNs as usize + 1;
const STRIPES: usize = 8;

/// One thread's share, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; COUNTS]);

/// Counters of a tier.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    stripes: [Stripe; STRIPES],
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
        let stripe = &self.stripes[stripe()].0;
        let (count, sum) = if is_write {
            (Count::Writes, Count::WrittenBytes)
        } else {
            (Count::Reads, Count::ReadBytes)
        };
        stripe[count as usize].fetch_add(1, Ordering::Relaxed);
        stripe[sum as usize].fetch_add(bytes, Ordering::Relaxed);
        stripe[Count::DeviceNs as usize].fetch_add(device_ns, Ordering::Relaxed);
    }

    /// Counts reads that were done elsewhere.
    pub(crate) fn reads(&self, reads: &ReadSummary) {
        self.add(Count::Reads, reads.count.into());
        self.add(Count::ReadBytes, reads.bytes);
        self.add(Count::DeviceNs, reads.latency_ns);
    }

    /// Adds to one counter.
    pub(crate) fn add(&self, count: Count, amount: u64) {
        self.stripes[stripe()].0[count as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum of one counter.
    pub(crate) fn sum(&self, count: Count) -> u64 {
        let one = |stripe: &Stripe| stripe.0[count as usize].load(Ordering::Relaxed);
        self.stripes.iter().map(one).sum()
    }

    /// All counters.
    pub(crate) fn report(&self) -> LedgerReport {
        LedgerReport {
            reads: self.sum(Count::Reads),
            read_bytes: self.sum(Count::ReadBytes),
            writes: self.sum(Count::Writes),
            written_bytes: self.sum(Count::WrittenBytes),
            device_ns: self.sum(Count::DeviceNs),
            migration_wait_ns: self.sum(Count::MigrationWaitNs),
            guard_wait_ns: self.sum(Count::GuardWaitNs),
            sync_ns: self.sum(Count::SyncNs),
            moves_in: self.sum(Count::MovesIn),
            moves_out: self.sum(Count::MovesOut),
            moved_in_bytes: self.sum(Count::MovedInBytes),
            moved_out_bytes: self.sum(Count::MovedOutBytes),
            move_device_ns: self.sum(Count::MoveDeviceNs),
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
