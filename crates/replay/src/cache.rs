// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cache model: how many requests a cache of some size would not have answered.

use std::sync::Arc as Shared;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{fmt, thread};

use terrace_core::units::{format_bytes, parse_bytes};
use terrace_core::{Error, Result};
use terrace_policies::replacement::{
    Arc, Cache, Clock, Fifo, Gdsf, Lfu, Lru, Replacement, S3Fifo, Sieve, TwoQ, WTinyLfu,
};

use crate::belady::{Belady, NEVER};
use crate::objects::Objects;
use crate::order::Order;
use crate::read::Trace;
use crate::request::Request;

/// Batches on their way to a thread.
const QUEUE_BATCHES: usize = 16;

/// How much a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// So many objects, whatever their sizes.
    Objects(u64),
    /// So many bytes of objects.
    Bytes(u64),
}

impl Capacity {
    /// Reads `1000obj` or `128MiB`.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what would be right.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let objects = ["objects", "obj"].iter().find_map(|unit| text.strip_suffix(unit));
        match (objects.map(|number| number.trim().parse::<u64>()), parse_bytes(text)) {
            // Sums of sizes stay far from the end of what a number holds.
            (Some(Ok(objects)), _) if objects < 1 << 60 => Ok(Capacity::Objects(objects)),
            (None, Ok(bytes)) if bytes < 1 << 60 => Ok(Capacity::Bytes(bytes)),
            _ => {
                let reason = "a number of objects such as 1000obj, or a size such as 128MiB, is \
                              expected, below 2^60";
                Err(Error::invalid("read the capacity", reason).with("value", format!("{text:?}")))
            }
        }
    }

    /// The number, of objects or of bytes.
    pub fn number(self) -> u64 {
        match self {
            Capacity::Objects(number) | Capacity::Bytes(number) => number,
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capacity::Objects(objects) => write!(f, "{objects}obj"),
            Capacity::Bytes(bytes) => f.write_str(&format_bytes(*bytes)),
        }
    }
}

/// A cache to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What it gives up first.
    pub order: Order,
    /// How much it holds.
    pub capacity: Capacity,
}

/// What became of the requests in one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests for what was not there.
    pub misses: u64,
    /// Their sizes, also where the cache counts objects.
    pub bytes_missed: u64,
}

/// What a replay came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests of the trace.
    pub requests: u64,
    /// Their sizes.
    pub bytes: u64,
    /// Objects that they are for.
    pub objects: u64,
    /// For each cache, in the order in which they were asked for.
    pub counts: Vec<Counts>,
}

/// Sends the requests of a trace through caches.
#[derive(Clone, Debug)]
pub struct CacheReplay {
    wishes: Vec<Wish>,
    threads: usize,
}

impl CacheReplay {
    /// A replay through these caches, by at most so many threads beside the one that reads. A single
    /// cache is followed by that one.
    pub fn new(wishes: Vec<Wish>, threads: usize) -> Self {
        Self { wishes, threads }
    }

    /// Reads the trace to its end; `progress` is called with the number of requests read since the
    /// call before. The outcome does not depend on the number of threads.
    ///
    /// A cache that has to know the future keeps 20 bytes for each request in memory.
    ///
    /// # Errors
    ///
    /// Those of [`Trace::read`]; `Unsupported` for more objects than 32 bits count.
    pub fn run(&self, trace: &mut Trace, progress: &mut dyn FnMut(u64)) -> Result<Outcome> {
        let mut models: Vec<Box<dyn Model>> = self.wishes.iter().map(model).collect();
        let mut batches = Batches::new(trace);
        if self.wishes.iter().any(|wish| wish.order.needs_future()) {
            let mut all = Vec::new();
            while let Some(batch) = batches.next()? {
                progress(batch.numbers.len() as u64);
                all.push(batch);
            }
            tell_future(&mut all, batches.objects.count());
            let mut all = all.into_iter();
            follow(&mut models, self.threads, &mut || Ok(all.next()))?;
        } else if let [model] = &mut models[..] {
            let mut batch = Batch::default();
            while batches.fill(&mut batch)? {
                progress(batch.numbers.len() as u64);
                model.follow(&batch);
            }
        } else {
            follow(&mut models, self.threads, &mut || {
                let batch = batches.next()?;
                progress(batch.as_ref().map_or(0, |batch| batch.numbers.len() as u64));
                Ok(batch)
            })?;
        }
        let counts = models.iter().map(|model| model.counts()).collect();
        let Batches { requests, bytes, objects, .. } = batches;
        Ok(Outcome { requests, bytes, objects: u64::from(objects.count()), counts })
    }
}

/// Requests, as caches need them.
#[derive(Default)]
struct Batch {
    numbers: Vec<u32>,
    bytes: Vec<u64>,
    /// When each object is asked for again; empty where no cache needs it.
    nexts: Vec<u64>,
    /// Objects so far.
    objects: usize,
}

/// A trace as batches.
struct Batches<'a> {
    trace: &'a mut Trace,
    read: Vec<Request>,
    objects: Objects,
    requests: u64,
    bytes: u64,
}

impl<'a> Batches<'a> {
    fn new(trace: &'a mut Trace) -> Self {
        Self { trace, read: Vec::new(), objects: Objects::default(), requests: 0, bytes: 0 }
    }

    /// Replaces a batch by the next one; false at the end.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        self.trace.read(&mut self.read)?;
        batch.numbers.clear();
        batch.bytes.clear();
        let ids = self.read.iter().map(|request| request.object);
        self.objects.numbers(ids, &mut batch.numbers)?;
        batch.bytes.extend(self.read.iter().map(|request| request.size_bytes));
        batch.objects = self.objects.count() as usize;
        self.requests += self.read.len() as u64;
        self.bytes = batch.bytes.iter().fold(self.bytes, |sum, bytes| sum.saturating_add(*bytes));
        Ok(!self.read.is_empty())
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let mut batch = Batch::default();
        Ok(self.fill(&mut batch)?.then_some(batch))
    }
}

/// Writes into batches when each object is asked for again.
fn tell_future(batches: &mut [Batch], objects: u32) {
    let mut now: u64 = batches.iter().map(|batch| batch.numbers.len() as u64).sum();
    let mut nexts = vec![NEVER; objects as usize];
    for batch in batches.iter_mut().rev() {
        let told = batch.numbers.iter().rev().map(|number| {
            now -= 1;
            std::mem::replace(&mut nexts[*number as usize], now)
        });
        batch.nexts = told.collect();
        batch.nexts.reverse();
    }
}

/// A cache that follows requests.
trait Model: Send {
    fn follow(&mut self, batch: &Batch);

    fn counts(&self) -> Counts;
}

/// Lets all caches follow all batches, in threads if there are more than one.
fn follow(
    models: &mut [Box<dyn Model>],
    threads: usize,
    next: &mut dyn FnMut() -> Result<Option<Batch>>,
) -> Result<()> {
    let share = models.len().div_ceil(threads.max(1)).max(1);
    thread::scope(|scope| {
        let queues: Vec<SyncSender<Shared<Batch>>> = models
            .chunks_mut(share)
            .map(|models| {
                let (queue, batches): (_, Receiver<Shared<Batch>>) = sync_channel(QUEUE_BATCHES);
                scope.spawn(move || {
                    for batch in batches {
                        models.iter_mut().for_each(|model| model.follow(&batch));
                    }
                });
                queue
            })
            .collect();
        while let Some(batch) = next()? {
            let batch = Shared::new(batch);
            for queue in &queues {
                // A thread ends before its queue does only by a panic, which the scope passes on.
                let _ = queue.send(batch.clone());
            }
        }
        Ok(())
    })
}

/// A cache with any order but Belady's.
struct Following<R, const IS_SIZED: bool> {
    cache: Cache<R>,
    counts: Counts,
}

impl<R: Replacement + Send, const IS_SIZED: bool> Model for Following<R, IS_SIZED> {
    fn follow(&mut self, batch: &Batch) {
        self.cache.grow(batch.objects);
        self.cache.touch(&batch.numbers);
        for (object, bytes) in batch.numbers.iter().zip(&batch.bytes) {
            let is_hit = self.cache.request(*object, if IS_SIZED { *bytes } else { 1 });
            self.counts.add(is_hit, *bytes);
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

/// A cache that knows the future.
struct Foreseeing<const IS_SIZED: bool> {
    cache: Cache<Belady>,
    counts: Counts,
}

impl<const IS_SIZED: bool> Model for Foreseeing<IS_SIZED> {
    fn follow(&mut self, batch: &Batch) {
        self.cache.grow(batch.objects);
        let requests = batch.numbers.iter().zip(&batch.bytes).zip(&batch.nexts);
        for ((object, bytes), next) in requests {
            self.cache.order_mut().set_next(*next);
            let is_hit = self.cache.request(*object, if IS_SIZED { *bytes } else { 1 });
            self.counts.add(is_hit, *bytes);
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

impl Counts {
    #[inline]
    fn add(&mut self, is_hit: bool, bytes: u64) {
        if !is_hit {
            self.misses += 1;
            self.bytes_missed = self.bytes_missed.saturating_add(bytes);
        }
    }
}

fn model(wish: &Wish) -> Box<dyn Model> {
    match wish.capacity {
        Capacity::Objects(objects) => model_of::<false>(wish.order, objects),
        Capacity::Bytes(bytes) => model_of::<true>(wish.order, bytes),
    }
}

fn model_of<const IS_SIZED: bool>(order: Order, capacity: u64) -> Box<dyn Model> {
    fn following<R, const IS_SIZED: bool>(order: R, capacity: u64) -> Box<dyn Model>
    where
        R: Replacement + Send + 'static,
    {
        let cache = Cache::new(order, capacity);
        Box::new(Following::<R, IS_SIZED> { cache, counts: Counts::default() })
    }
    match order {
        Order::Fifo => following::<_, IS_SIZED>(Fifo::default(), capacity),
        Order::Lru => following::<_, IS_SIZED>(Lru::default(), capacity),
        Order::Clock => following::<_, IS_SIZED>(Clock::default(), capacity),
        Order::Sieve => following::<_, IS_SIZED>(Sieve::default(), capacity),
        Order::S3Fifo => following::<_, IS_SIZED>(S3Fifo::new(capacity), capacity),
        Order::S3FifoV1 => following::<_, IS_SIZED>(S3Fifo::version_1(capacity), capacity),
        Order::Arc => following::<_, IS_SIZED>(Arc::new(capacity), capacity),
        Order::TwoQ => following::<_, IS_SIZED>(TwoQ::new(capacity), capacity),
        Order::Lfu => following::<_, IS_SIZED>(Lfu::default(), capacity),
        Order::Gdsf => following::<_, IS_SIZED>(Gdsf::default(), capacity),
        Order::WTinyLfu => following::<_, IS_SIZED>(WTinyLfu::new(capacity), capacity),
        Order::Belady => {
            let cache = Cache::new(Belady::default(), capacity);
            Box::new(Foreseeing::<IS_SIZED> { cache, counts: Counts::default() })
        }
    }
}
