// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a migration takes beside its bytes: small objects of the store itself are moved, one by one.

use std::io::IoSlice;
use std::time::Duration;

use serde::Serialize;
use terrace_core::{
    Backend, BackendExt, Clock, ErrorKind, Key, Open, Outcome, Persistency, Result, Semantics,
    SystemClock,
};
use terrace_stack::MoveKind;
use terrace_store::{OpenOptions, Store};

use super::fit::median;
use super::machine;

/// Where the objects are in the store: no namespace of an application begins like this.
const NAMESPACE: &str = "\u{10ffff}\u{10ffff}calibrate";

/// Objects, and the bytes of each: too few to count.
const OBJECTS: usize = 32;
const BYTES: usize = 4096;

/// Fewer migrations tell nothing.
const MOVES_MIN: usize = 4;

/// One that takes longer is given up.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// What a migration to a tier takes beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Switched {
    /// From the request until it is there, in the median.
    pub latency_ns: u64,
    /// Time of processors of all threads of the store together, in the mean.
    pub cpu_ns: u64,
}

/// What one of each of these tiers takes, by their places among `tiers`, until `budget` is used up;
/// `None` where nothing can be moved to it.
pub(super) fn measure(
    address: &str,
    (tiers, chosen): (&[String], &[usize]),
    level: Persistency,
    budget: Duration,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Option<Switched>>> {
    if tiers.len() < 2 {
        return Ok(vec![None; chosen.len()]);
    }
    // The policy is not to move them, too.
    let options =
        OpenOptions { attach: false, serve: false, dry_run: Some(true), ..OpenOptions::default() };
    let store = Store::open_with(address, options)?;
    let mover = Mover { store: &store, level, clock: SystemClock::default(), is_stopped };
    let found = mover.measure(tiers, chosen, budget);
    let cleared = mover.clear();
    let closed = store.close();
    let found = found?;
    cleared.and(closed).map(|()| found)
}

struct Mover<'a> {
    store: &'a Store,
    level: Persistency,
    clock: SystemClock,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Mover<'_> {
    fn measure(
        &self,
        tiers: &[String],
        chosen: &[usize],
        budget: Duration,
    ) -> Result<Vec<Option<Switched>>> {
        match self.make() {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                return Ok(vec![None; chosen.len()]);
            }
            made => made?,
        }
        let each = budget / chosen.len().max(1) as u32;
        // From the nearest tier that objects can be on: some keep too little.
        let of = |to: &usize| {
            let mut others: Vec<_> = (0..tiers.len()).filter(|from| from != to).collect();
            others.sort_by_key(|from| (from.abs_diff(*to), *from));
            for from in others {
                if let Some(found) = self.between(&tiers[from], &tiers[*to], each)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        };
        chosen.iter().map(of).collect()
    }

    fn make(&self) -> Result<()> {
        for key in keys() {
            let how = Open::create().with_semantics(Semantics::at_level(self.level));
            self.store.open(&key?, &how)?.write_at(0, &[IoSlice::new(&[1; BYTES])])?;
        }
        Ok(())
    }

    fn between(&self, from: &str, to: &str, budget: Duration) -> Result<Option<Switched>> {
        let until_ns = self.clock.now_ns().saturating_add(budget.as_nanos() as u64);
        let goes_on = || self.clock.now_ns() < until_ns && !(self.is_stopped)();
        let mut there = Vec::new();
        for key in keys() {
            let key = key?;
            if (self.is_stopped)() || there.len() >= MOVES_MIN && !goes_on() {
                break;
            }
            if !self.bring(&key, from)? {
                return Ok(None);
            }
            there.push(key);
        }
        // What is deleted behind a migration belongs to the one before.
        self.store.admin().wait_idle(WAIT_MAX)?;
        let (began_cpu_ns, mut times) = (machine::process_cpu_ns(), Vec::new());
        for key in &there {
            if (self.is_stopped)() {
                return Ok(None);
            }
            let began_ns = self.clock.now_ns();
            if !self.bring(key, to)? {
                return Ok(None);
            }
            times.push((self.clock.now_ns() - began_ns) as f64);
        }
        self.store.admin().wait_idle(WAIT_MAX)?;
        let cpu_ns = (machine::process_cpu_ns() - began_cpu_ns) / times.len().max(1) as u64;
        Ok(Some(Switched { latency_ns: median(&mut times) as u64, cpu_ns }))
    }

    /// Moves an object; false where the store does not.
    fn bring(&self, key: &Key, to: &str) -> Result<bool> {
        let tickets = self.store.admin().migrate(key, to, MoveKind::Move, 0, "calibrate");
        let tickets = match tickets {
            Err(error) if error.kind() != ErrorKind::Io => return Ok(false),
            tickets => tickets?,
        };
        for ticket in tickets {
            let ended =
                self.store.admin().wait(ticket, WAIT_MAX)?.and_then(|report| report.outcome);
            if ended.as_deref() != Some(Outcome::Done.word()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn clear(&self) -> Result<()> {
        keys().try_for_each(|key| self.store.delete_if_exists(&key?))
    }
}

fn keys() -> impl Iterator<Item = Result<Key>> {
    (0..OBJECTS).map(|number| Key::new(NAMESPACE, &number.to_string()))
}
