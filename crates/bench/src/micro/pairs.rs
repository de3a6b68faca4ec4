// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cases on key-value pairs: through a stack, or on the bare engine.

use std::ops::Range;

use terrace_core::{Error, ErrorKind, Kv, Persistency, Random, Result};
use terrace_measure::sides::{Call, Subject};
use terrace_stack::Stack;
use terrace_store::Store;

use super::picks::Picks;
use super::pool::{Pool, Usage};
use super::{Bounds, Part, Shape};

/// What can be measured on pairs, in the order of the table.
pub(crate) const CASES: [&str; 4] = ["put", "get", "delete", "put+delete"];

/// Pairs that are there throughout.
const LASTING_MAX: usize = 10_000;

/// Pairs of one step that makes or takes away what is not measured.
const PREPARE_BATCH: usize = 1000;

/// Their bytes.
const PREPARE_BYTES: usize = 4 << 20;

/// What a case does with either side.
pub(crate) trait Pairs: Sync {
    /// Writes pairs, which are as durable as `level` says when this returns.
    fn put(&self, keys: &[Vec<u8>], value: &[u8], level: Persistency) -> Result<()>;

    /// Reads one.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Reads many.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>>;

    /// Removes pairs; returns how many were there.
    fn remove(&self, keys: &[Vec<u8>], level: Persistency) -> Result<usize>;
}

/// The engine: one transaction for a batch.
pub(super) struct Engine<'a>(pub(super) &'a dyn Kv);

impl Pairs for Engine<'_> {
    fn put(&self, keys: &[Vec<u8>], value: &[u8], level: Persistency) -> Result<()> {
        let ticket =
            self.0.transact(&mut |txn| keys.iter().try_for_each(|key| txn.put(key, value)))?;
        if level == Persistency::Storage { self.0.wait(ticket) } else { Ok(()) }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.0.get(key)).collect()
    }

    fn remove(&self, keys: &[Vec<u8>], level: Persistency) -> Result<usize> {
        let mut found = 0;
        let ticket = self.0.transact(&mut |txn| {
            found = 0;
            for key in keys {
                found += usize::from(txn.get(key)?.is_some());
                txn.delete(key)?;
            }
            Ok(())
        })?;
        if level == Persistency::Storage {
            self.0.wait(ticket)?;
        }
        Ok(found)
    }
}

/// The application's pairs of a stack: one commit for a batch.
pub(super) struct Stacked<'a>(pub(super) &'a Stack);

const NAMESPACE: &str = "bench";

impl Stacked<'_> {
    fn apply(&self, keys: &[Vec<u8>], value: Option<&[u8]>, level: Persistency) -> Result<usize> {
        let changes: Vec<_> = keys.iter().map(|key| (key.as_slice(), value)).collect();
        self.0.kv_apply(NAMESPACE, &changes, level)
    }
}

impl Pairs for Stacked<'_> {
    fn put(&self, keys: &[Vec<u8>], value: &[u8], level: Persistency) -> Result<()> {
        self.apply(keys, Some(value), level).map(drop)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.kv_get(NAMESPACE, key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.0.kv_get(NAMESPACE, key)).collect()
    }

    fn remove(&self, keys: &[Vec<u8>], level: Persistency) -> Result<usize> {
        self.apply(keys, None, level)
    }
}

/// The pairs of a namespace in any store.
pub(crate) struct Stored<'a> {
    pub(crate) store: &'a Store,
    pub(crate) namespace: &'a str,
}

impl Stored<'_> {
    fn apply(&self, keys: &[Vec<u8>], value: Option<&[u8]>, level: Persistency) -> Result<usize> {
        let changes: Vec<_> = keys.iter().map(|key| (key.as_slice(), value)).collect();
        self.store.kv_apply(self.namespace, &changes, level)
    }
}

impl Pairs for Stored<'_> {
    fn put(&self, keys: &[Vec<u8>], value: &[u8], level: Persistency) -> Result<()> {
        self.apply(keys, Some(value), level).map(drop)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.kv_get(self.namespace, key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.store.kv_get_many(self.namespace, keys)
    }

    fn remove(&self, keys: &[Vec<u8>], level: Persistency) -> Result<usize> {
        self.apply(keys, None, level)
    }
}

/// One case on one side.
pub(crate) struct PairCase<'a> {
    case: &'static str,
    pairs: &'a dyn Pairs,
    shape: Shape,
    part: Part,
    bounds: Bounds,
    /// Keys of pairs that come and go.
    fresh: Pool<Vec<u8>>,
    /// Keys of what is there throughout.
    lasting: Vec<Vec<u8>>,
    value: Vec<u8>,
}

impl<'a> PairCase<'a> {
    /// Makes what is there throughout.
    pub(crate) fn new(
        case: &'static str,
        pairs: &'a dyn Pairs,
        shape: &Shape,
        bounds: Bounds,
        part: &Part,
    ) -> Result<Self> {
        let mut value = vec![0; shape.size_bytes];
        Random::new(5).fill(&mut value);
        let usage = match case {
            "put" | "delete" => Usage::Once,
            "put+delete" => Usage::Again,
            _ => Usage::None,
        };
        let count = if case == "get" { part.share(LASTING_MAX) } else { 0 };
        let lasting = keys("lasting", 0..bounds.objects_of(shape.size_bytes).min(count));
        let case = Self {
            case,
            pairs,
            shape: shape.clone(),
            part: part.clone(),
            bounds,
            fresh: Pool::new(usage, shape.threads, shape.batch),
            lasting,
            value,
        };
        case.put(&case.lasting)?;
        Ok(case)
    }

    /// Makes pairs that are not measured.
    fn put(&self, keys: &[Vec<u8>]) -> Result<()> {
        // A transaction is held in memory.
        let together = (PREPARE_BYTES / self.value.len().max(1)).clamp(1, PREPARE_BATCH);
        let mut chunks = keys.chunks(together);
        chunks.try_for_each(|keys| self.pairs.put(keys, &self.value, Persistency::None))
    }

    /// Removes pairs; fails where one is missing.
    fn remove(&self, keys: &[Vec<u8>], level: Persistency) -> Result<()> {
        let found = self.pairs.remove(keys, level)?;
        if found == keys.len() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Io, "run the benchmark")
            .because("pairs are missing that were put")
            .with("found", found)
            .with("want", keys.len()))
    }

    fn get(&self, key: &[u8]) -> Result<()> {
        self.check(key, self.pairs.get(key)?)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<()> {
        let values = self.pairs.get_many(keys)?;
        keys.iter().zip(values).try_for_each(|(key, value)| self.check(key, value))
    }

    fn check(&self, key: &[u8], value: Option<Vec<u8>>) -> Result<()> {
        match value {
            Some(value) if value.len() == self.value.len() => Ok(()),
            _ => Err(Error::new(ErrorKind::Io, "run the benchmark")
                .because("a pair does not have the value that was put")
                .with("key", key.escape_ascii())),
        }
    }
}

impl Subject for PairCase<'_> {
    fn calls_max(&self) -> u64 {
        // What is deleted was put with its value before.
        self.fresh.calls_max(self.bounds.objects_of(self.value.len()))
    }

    fn prepare(&mut self, calls: u64) -> Result<()> {
        self.fresh.reserve(calls, |numbers| Ok(keys("fresh", numbers)))?;
        if self.case == "delete" { self.put(self.fresh.all()) } else { Ok(()) }
    }

    fn call(&self, thread: usize) -> Result<Call<'_>> {
        let (pairs, level) = (self.pairs, self.shape.level());
        let of_call = move |call| self.fresh.of_call(thread, call);
        Ok(match self.case {
            "put" => Box::new(move |call| pairs.put(of_call(call), &self.value, level)),
            "delete" => Box::new(move |call| self.remove(of_call(call), level)),
            "put+delete" => Box::new(move |call| {
                pairs.put(of_call(call), &self.value, level)?;
                self.remove(of_call(call), level)
            }),
            _ => {
                let seed = self.part.seed(thread, self.shape.threads);
                let picks = Picks::new(self.shape.keys, self.lasting.len(), seed);
                let at = move |position| &*self.lasting[picks.at(position)];
                match self.shape.batch as u64 {
                    1 => Box::new(move |call| self.get(at(call))),
                    batch => Box::new(move |call| {
                        let positions = call * batch..(call + 1) * batch;
                        self.get_many(&positions.map(&at).collect::<Vec<_>>())
                    }),
                }
            }
        })
    }

    /// What was put is removed, and must have been there; of what was to be deleted the rest is.
    fn clean(&mut self, calls: &[u64]) -> Result<()> {
        for (thread, calls) in calls.iter().enumerate() {
            let (used, unused) = match self.case {
                "put" | "delete" => self.fresh.used(thread, *calls),
                _ => return Ok(()),
            };
            let left = if self.case == "put" { used } else { unused };
            let mut chunks = left.chunks(PREPARE_BATCH);
            chunks.try_for_each(|keys| self.remove(keys, Persistency::None))?;
        }
        Ok(())
    }
}

fn keys(prefix: &str, numbers: Range<usize>) -> Vec<Vec<u8>> {
    numbers.map(|number| format!("{prefix}-{number:07}").into_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use terrace_backends::kv::Memory;
    use terrace_core::{KvRange, Semantics};

    use super::*;
    use crate::micro::Keys;

    fn case<'a>(name: &'static str, engine: &'a Engine<'a>) -> PairCase<'a> {
        let (semantics, keys) = (Semantics::at_level(Persistency::None), Keys::Zipf);
        let shape = Shape { size_bytes: 100, batch: 3, threads: 1, semantics, keys };
        let bounds = Bounds { objects: 50, bytes: 1 << 20 };
        PairCase::new(name, engine, &shape, bounds, &Part::whole()).expect("a case")
    }

    fn there(engine: &Engine<'_>, prefix: &str) -> usize {
        engine.0.scan(&KvRange::prefix(prefix.as_bytes()), 1000).expect("a scan").len()
    }

    #[test]
    fn what_was_counted_was_done() {
        for (name, before, after) in [("put", 0, 6), ("delete", 12, 6), ("put+delete", 0, 0)] {
            let kv = Memory::default();
            let engine = Engine(&kv);
            let mut case = case(name, &engine);
            case.prepare(4).expect("prepared");
            assert_eq!(there(&engine, "fresh"), before, "{name}");
            (0..2).try_for_each(&mut *case.call(0).expect("a call")).expect("nothing fails");
            assert_eq!(there(&engine, "fresh"), after, "{name}");
            case.clean(&[2]).expect("it is all there");
            assert_eq!(there(&engine, "fresh"), 0, "{name}");
            // What is gone cannot be deleted or taken away once more.
            match name {
                "put" => assert!(case.clean(&[2]).is_err()),
                "delete" => assert!(case.call(0).expect("a call")(0).is_err()),
                _ => {}
            }
        }
    }

    #[test]
    fn a_pair_that_is_gone_is_no_success() {
        let kv = Memory::default();
        let engine = Engine(&kv);
        let case = case("get", &engine);
        assert_eq!(there(&engine, "lasting"), 50);
        let mut call = case.call(0).expect("a call");
        (0..100).try_for_each(&mut *call).expect("all are there");
        engine.remove(&case.lasting, Persistency::None).expect("removed");
        assert!(call(0).is_err());
    }
}
