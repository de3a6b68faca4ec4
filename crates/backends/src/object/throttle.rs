// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A slower device than there is, for demonstrations and tests on one machine.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use terrace_core::{
    Backend, BatchOrdering, Capability, Clock, Create, Cursor, End, ErrorKind, Key, Later, Object,
    ObjectFile, Op, Open, Page, Reply, Request, Result, Semantics, Space, Stat, TierBackend,
    execute_strictly,
};

/// Makes a backend as slow as [`Rates`] say.
///
/// - Reading, changing, creating and deleting objects is a request to the simulated device; all
///   else (opening what exists, stat, list, sync, identities) is free.
/// - The device serves `parallelism` requests at a time, in the order of their arrival. A request
///   takes the latency and the time of its bytes; one that fails takes the latency.
/// - What the inner backend takes counts towards it: a request is as slow as the slower of both.
/// - Lends no descriptors: through them the device would be as fast as it is.
pub struct Throttle {
    inner: Arc<dyn Backend>,
    device: Arc<Device>,
}

/// How fast a simulated device is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Time that every request takes.
    pub latency: Duration,
    /// Bytes that one request reads in a second; unbounded where absent.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes that one request writes in a second; unbounded where absent.
    pub write_bytes_per_s: Option<f64>,
    /// Requests that are served at the same time.
    pub parallelism: u32,
}

impl Throttle {
    /// Slows `inner` down by the time of `clock`.
    ///
    /// # Panics
    ///
    /// Where `parallelism` is 0 or a rate is not positive: settings are checked where they are read.
    pub fn new(inner: Arc<dyn Backend>, rates: Rates, clock: Arc<dyn Clock>) -> Self {
        assert!(rates.parallelism > 0, "a device serves at least one request");
        for rate in [rates.read_bytes_per_s, rates.write_bytes_per_s].into_iter().flatten() {
            assert!(rate > 0.0, "a device moves bytes");
        }
        let device = Device { rates, busy_until_ns: Mutex::default(), clock };
        Self { inner, device: Arc::new(device) }
    }

    /// Carries out operations on one object in their order.
    fn execute_in_order(&self, operations: Vec<&mut Op<'_>>, semantics: &Semantics) {
        for operation in operations {
            let arrival_ns = self.device.clock.now_ns();
            self.inner.execute(slice::from_mut(operation), semantics);
            let reply = operation.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
            let work = match (&operation.request, reply) {
                (Request::Stat { .. }, _) => continue,
                (Request::Read { .. }, Some(Reply::Count(count))) => Work::read(*count),
                (Request::Write { data, .. }, Some(_)) => Work::write(data.len()),
                (Request::Create { data, .. }, Some(_)) if !data.is_empty() => {
                    self.device.wait(arrival_ns, Work::Other);
                    self.device.wait(self.device.clock.now_ns(), Work::write(data.len()));
                    continue;
                }
                _ => Work::Other,
            };
            self.device.wait(arrival_ns, work);
        }
    }
}

impl Backend for Throttle {
    fn target(&self) -> &str {
        self.inner.target()
    }

    fn capability(&self) -> Capability {
        Capability { leases: false, ..self.inner.capability() }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let wrap = |inner| {
            Box::new(ThrottledObject { inner, device: Arc::clone(&self.device) }) as Box<dyn Object>
        };
        // What exists opens free of charge, so look first.
        if how.create != Create::New {
            let existing = Open { create: Create::Never, ..how.clone() };
            match self.inner.open(key, &existing) {
                Err(error)
                    if how.create == Create::IfMissing && error.kind() == ErrorKind::NotFound => {}
                outcome => return outcome.map(wrap),
            }
        }
        self.device.run(|| self.inner.open(key, how)).map(wrap)
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.inner.stat(key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.device.run(|| self.inner.delete(key))
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.inner.list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.inner.namespaces()
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    /// Keeps the device busy with operations on different objects at the same time, where their
    /// order is not asked for.
    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        const THREADS_MAX: usize = 16;
        if semantics.ordering == BatchOrdering::Strict {
            return execute_strictly(self, operations, semantics);
        }
        let mut places = HashMap::new();
        let mut objects: Vec<Vec<&mut Op<'_>>> = Vec::new();
        for operation in operations {
            let place = *places.entry(operation.request.key().clone()).or_insert(objects.len());
            if place == objects.len() {
                objects.push(Vec::new());
            }
            objects[place].push(operation);
        }
        let parallelism = usize::try_from(self.device.rates.parallelism).unwrap_or(usize::MAX);
        let threads = objects.len().min(parallelism).min(THREADS_MAX);
        let waiting = Mutex::new(objects.into_iter());
        let work = || {
            loop {
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(operations) = next else { break };
                self.execute_in_order(operations, semantics);
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn sync_all(&self) -> Result<()> {
        self.inner.sync_all()
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        self.inner.tier()
    }
}

struct ThrottledObject {
    inner: Box<dyn Object>,
    device: Arc<Device>,
}

#[deny(clippy::missing_trait_methods)]
impl Object for ThrottledObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let arrival_ns = self.device.clock.now_ns();
        let outcome = self.inner.read_at(offset_bytes, buffers);
        self.device.wait(arrival_ns, outcome.as_ref().map_or(Work::Other, |got| Work::read(*got)));
        outcome
    }

    fn later(&self) -> Option<&dyn Later> {
        None
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        self.device.run_write(data, || self.inner.write_at(offset_bytes, data))
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.device.run_write(data, || self.inner.append(data))
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.device.run(|| self.inner.set_len(bytes))
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        self.device.run(|| self.inner.allocate(range, end))
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        self.device.run(|| self.inner.punch(range))
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        self.inner.next_data(offset_bytes)
    }

    fn stat(&self) -> Result<Stat> {
        self.inner.stat()
    }

    fn created_ns(&self) -> Result<u64> {
        self.inner.created_ns()
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.inner.set_modified(wall_ns)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        self.inner.label()
    }

    fn file(&self) -> Option<&dyn ObjectFile> {
        None
    }
}

/// The simulated device: servers with one queue.
#[derive(Debug)]
struct Device {
    rates: Rates,
    /// When each server that was ever needed is free again; at most `parallelism` of them.
    busy_until_ns: Mutex<BinaryHeap<Reverse<u64>>>,
    clock: Arc<dyn Clock>,
}

/// What a request has the device do.
#[derive(Clone, Copy, Debug)]
enum Work {
    Read(u64),
    Write(u64),
    /// Neither reads nor writes bytes.
    Other,
}

impl Work {
    fn read(bytes: usize) -> Self {
        Work::Read(bytes as u64)
    }

    fn write(bytes: usize) -> Self {
        Work::Write(bytes as u64)
    }
}

impl Device {
    /// Runs a request that moves no bytes.
    fn run<T>(&self, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let arrival_ns = self.clock.now_ns();
        let outcome = request();
        self.wait(arrival_ns, Work::Other);
        outcome
    }

    /// Runs a request that writes `data`.
    fn run_write<T>(&self, data: &[IoSlice<'_>], request: impl FnOnce() -> Result<T>) -> Result<T> {
        let arrival_ns = self.clock.now_ns();
        let outcome = request();
        let bytes = data.iter().map(|part| part.len()).sum();
        self.wait(arrival_ns, outcome.as_ref().map_or(Work::Other, |_| Work::write(bytes)));
        outcome
    }

    /// Blocks until a request that arrived at `arrival_ns` would be done.
    fn wait(&self, arrival_ns: u64, work: Work) {
        let done_ns = self.book(arrival_ns, self.duration_ns(work));
        let left_ns = done_ns.saturating_sub(self.clock.now_ns());
        if left_ns > 0 {
            self.clock.sleep(Duration::from_nanos(left_ns));
        }
    }

    /// Gives a request the server that is free first, and returns when it is done.
    fn book(&self, arrival_ns: u64, duration_ns: u64) -> u64 {
        let mut busy = self.busy_until_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let is_one_free = busy.peek().is_some_and(|Reverse(until_ns)| *until_ns <= arrival_ns);
        let are_all_known = busy.len() as u64 >= u64::from(self.rates.parallelism);
        let start_ns = match is_one_free || are_all_known {
            true => busy.pop().map_or(arrival_ns, |Reverse(until_ns)| until_ns.max(arrival_ns)),
            false => arrival_ns,
        };
        let done_ns = start_ns.saturating_add(duration_ns);
        busy.push(Reverse(done_ns));
        done_ns
    }

    fn duration_ns(&self, work: Work) -> u64 {
        let (bytes, bytes_per_s) = match work {
            Work::Read(bytes) => (bytes, self.rates.read_bytes_per_s),
            Work::Write(bytes) => (bytes, self.rates.write_bytes_per_s),
            Work::Other => (0, None),
        };
        let latency_ns = u64::try_from(self.rates.latency.as_nanos()).unwrap_or(u64::MAX);
        // The cast saturates.
        let moving_ns = bytes_per_s.map_or(0, |rate| (bytes as f64 / rate * 1e9).ceil() as u64);
        latency_ns.saturating_add(moving_ns)
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::SystemClock;

    use super::*;

    fn device(parallelism: u32) -> Device {
        let rates = Rates {
            latency: Duration::from_nanos(100),
            read_bytes_per_s: Some(1e9),
            write_bytes_per_s: None,
            parallelism,
        };
        let clock = Arc::new(SystemClock::default());
        Device { rates, busy_until_ns: Mutex::default(), clock }
    }

    #[test]
    fn requests_wait_for_the_server_that_is_free_first() {
        let device = device(2);
        // Two begin at once, the third follows the shorter, the fourth the longer.
        assert_eq!(
            [50, 200, 100, 10].map(|duration| device.book(1000, duration)),
            [1050, 1200, 1150, 1160]
        );
        assert_eq!(device.book(1190, 10), 1200, "a server that idled begins on arrival");
        assert_eq!(device.busy_until_ns.lock().expect("no panic").len(), 2);
    }

    #[test]
    fn servers_that_are_never_needed_take_no_room() {
        let device = device(u32::MAX);
        for arrival_ns in 0..1000 {
            device.book(arrival_ns * 10, 10);
        }
        assert_eq!(device.busy_until_ns.lock().expect("no panic").len(), 1);
    }

    #[test]
    fn a_request_takes_its_latency_and_its_bytes() {
        let device = device(1);
        assert_eq!(device.duration_ns(Work::Read(7)), 107);
        assert_eq!(device.duration_ns(Work::Write(7)), 100, "no bound");
        assert_eq!(device.duration_ns(Work::Other), 100);
        assert_eq!(device.duration_ns(Work::Read(u64::MAX)), u64::MAX, "saturates at 1 byte a ns");
    }
}
