// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deterministic simulation: three clients, one of them perhaps without capabilities, two programs each; a server
//! whose requests take time; two connections of each client, whose messages are late and overtake each other; cuts,
//! restarts of the server, killed and stopped clients, clocks that run at different rates.
//!
//! Deferred changes find no room now and then.
//!
//! What is checked: no client that runs would answer from its cache what the server does not have; names and file
//! contents are linearizable, where deferred changes that were lost with a killed
//! client or refused may be undone; each refused change is reported by the next fsync of its inode, once; a
//! deferred change fits what is there; every operation ends, and none is parked for longer than two leases and the slowest transaction, without
//! faults for 150 ms.
//!
//! `TERRACE_SEED` and `TERRACE_SEEDS` choose the seeds. A seed always gives the same history.

mod client;
mod model;
mod server;
mod world;

use terrace_testkit::seeds;

use crate::mutant::{Mutant, Mutated};
use client::Counts;
use world::World;

fn run(seed: u64, has_faults: bool) -> Counts {
    World::run(seed, has_faults, Mutated::default())
        .unwrap_or_else(|wrong| panic!("TERRACE_SEED={seed}: {wrong}"))
}

fn sum(counts: impl Iterator<Item = Counts>) -> Counts {
    counts.fold(Counts::default(), |sum, one| Counts {
        local: sum.local + one.local,
        deferred: sum.deferred + one.deferred,
        recalls: sum.recalls + one.recalls,
        lost: sum.lost + one.lost,
        reclaims: sum.reclaims + one.reclaims,
        unknown: sum.unknown + one.unknown,
    })
}

#[test]
fn clients_are_coherent_on_a_good_network() {
    let counts = sum(seeds(200).map(|seed| run(seed, false)));
    assert_eq!(counts.lost + counts.unknown, 0, "nothing failed, and changes are lost");
    assert!(counts.local > 0 && counts.deferred > 0 && counts.recalls > 0, "{counts:?}");
}

#[test]
fn clients_are_coherent_whatever_fails() {
    let range = seeds(2000);
    let is_one = range.end - range.start == 1;
    let counts = sum(range.map(|seed| run(seed, true)));
    let all = [counts.local, counts.deferred, counts.recalls, counts.lost, counts.reclaims];
    assert!(is_one || all.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn every_rule_that_is_taken_out_is_missed() {
    let is_wrong = |mutant, seed, has_faults| {
        World::run(seed, has_faults, Mutated { by: Some(mutant) }).is_err()
    };
    let is_missed = |mutant: &&Mutant| {
        let on_a_good_network = (0..100).any(|seed| is_wrong(**mutant, seed, false));
        on_a_good_network || (0..3000).any(|seed| is_wrong(**mutant, seed, true))
    };
    let unnoticed: Vec<_> = MUTANTS.iter().filter(|mutant| !is_missed(mutant)).collect();
    assert!(unnoticed.is_empty(), "without these rules everything seems right: {unnoticed:?}");
}

const MUTANTS: [Mutant; 27] = [
    Mutant::ReclaimReleased,
    Mutant::AnyInstance,
    Mutant::NoRecall,
    Mutant::NoRecallWait,
    Mutant::EarlyFence,
    Mutant::NoFence,
    Mutant::NoGrace,
    Mutant::FencedMayReclaim,
    Mutant::ForgetFenced,
    Mutant::GrantWhileParked,
    Mutant::GrantBesideChange,
    Mutant::StartBesideApply,
    Mutant::ReleaseAll,
    Mutant::NoSequence,
    Mutant::NoBarrier,
    Mutant::ReleaseBeforeFlush,
    Mutant::NoFloor,
    Mutant::NoLease,
    Mutant::LeaseFromReply,
    Mutant::RenewBesideRecall,
    Mutant::CacheBesideOwnChange,
    Mutant::CacheBesideDeferred,
    Mutant::KeepRecalled,
    Mutant::NoBirth,
    Mutant::BuildOnRefused,
    Mutant::ChangeUnnamed,
    Mutant::NoLossReport,
];
