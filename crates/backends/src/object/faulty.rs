// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A backend that fails on demand.
//!
//! It fails operations; it never loses what was written. What a loss of power takes away is
//! simulated by `terrace_testkit::SimTier`.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use terrace_core::{
    Atomicity, Backend, Begun, Capability, Create, Cursor, Draft, End, Error, ErrorKind, Identity,
    Key, Later, Object, ObjectFile, Op, Open, Page, Random, ReadDone, Result, Semantics, Space,
    Stat, Superblock, TierBackend, WriteDone, execute_each,
};

/// A kind of operation that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPoint {
    /// Opening an object that need not be created.
    Open,
    /// Opening an object that may be created, and beginning a draft.
    Create,
    /// `Draft::publish`.
    Publish,
    /// `read_at` and `next_data`.
    Read,
    /// `read_later`, which leaves everything to `read_at` where nothing hits it.
    ReadLater,
    /// `write_at` and `append`.
    Write,
    /// `set_len`, `allocate` and `punch`.
    Resize,
    /// `stat` and `space`.
    Stat,
    /// `delete`.
    Delete,
    /// `list` and `namespaces`.
    List,
    /// Identities, the superblock and the time of the last modification.
    Identity,
    /// `Object::sync`.
    Sync,
    /// `Backend::sync`.
    SyncNames,
    /// Dropping a handle, which never fails, but may hang. It counts as no operation of a crash.
    Close,
}

/// Which of the operations at its points a fault hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// All.
    Always,
    /// Only the one with this number, counted from 1 since the fault was added.
    Nth(u64),
    /// Those whose number is a multiple of this.
    Every(u64),
    /// Each with this probability.
    Chance(f64),
}

/// What happens to an operation that is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails and does nothing. A sync that failed fails for ever after on its handle.
    Fail(ErrorKind),
    /// A write writes the first half of its bytes and fails; anything else just fails.
    Short(ErrorKind),
    /// It blocks until [`Faults::release`] and then goes on, unless the device is offline or the
    /// process has crashed by then: a device that does not answer.
    Hang,
}

/// The faults of any number of [`Faulty`] backends: one device.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    random: Random,
    rules: Vec<Rule>,
    is_offline: bool,
    /// Operations until the crash.
    crash_after: Option<u64>,
    has_crashed: bool,
    /// Which life of the process handles belong to.
    life: u64,
    injected: u64,
    hanging: u64,
    /// Counts releases: a call that hangs waits for the next one.
    releases: u64,
}

#[derive(Debug)]
struct Rule {
    points: Vec<FaultPoint>,
    when: When,
    effect: Effect,
    met: u64,
}

impl Faults {
    /// No faults yet. `seed` decides what [`When::Chance`] hits.
    pub fn new(seed: u64) -> Arc<Self> {
        let state = State {
            random: Random::new(seed),
            rules: Vec::new(),
            is_offline: false,
            crash_after: None,
            has_crashed: false,
            life: 0,
            injected: 0,
            hanging: 0,
            releases: 0,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Adds a fault. The first added that hits an operation decides.
    pub fn add(&self, points: &[FaultPoint], when: When, effect: Effect) {
        self.state().rules.push(Rule { points: points.to_vec(), when, effect, met: 0 });
    }

    /// Removes all faults that were added.
    pub fn clear(&self) {
        self.state().rules.clear();
    }

    /// Switches the device off or on. While it is off everything fails with `Io`.
    pub fn set_offline(&self, is_offline: bool) {
        self.state().is_offline = is_offline;
    }

    /// Lets `operations` more pass; then everything fails with `Io` until [`Faults::restart`].
    pub fn crash_after(&self, operations: u64) {
        self.state().crash_after = Some(operations);
    }

    /// Whether the crash has come.
    pub fn has_crashed(&self) -> bool {
        self.state().has_crashed
    }

    /// Ends a crash. Handles from before it stay dead.
    pub fn restart(&self) {
        let mut state = self.state();
        state.crash_after = None;
        state.has_crashed = false;
        state.life += 1;
    }

    /// Lets everything go on that hangs now.
    pub fn release(&self) {
        self.state().releases += 1;
        self.changed.notify_all();
    }

    /// Blocks until `count` operations hang.
    pub fn wait_hanging(&self, count: u64) {
        let mut state = self.state();
        while state.hanging < count {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How many operations were hit so far.
    pub fn injected(&self) -> u64 {
        self.state().injected
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an operation of a handle of `life`. `Ok(Some)` asks for a short write.
    fn pass(&self, life: u64, point: FaultPoint) -> Result<Option<Error>> {
        let mut state = self.state();
        if state.crash_after == Some(0) {
            state.has_crashed = true;
        }
        state.check_reachable(life)?;
        state.crash_after = state.crash_after.map(|left| left - 1);
        match state.hit(point) {
            None => Ok(None),
            Some(Effect::Short(kind)) if point == FaultPoint::Write => Ok(Some(injected(kind))),
            Some(Effect::Fail(kind) | Effect::Short(kind)) => Err(injected(kind)),
            Some(Effect::Hang) => {
                // An operation of a process that died meanwhile must not take effect after all.
                self.hang(state).check_reachable(life).map(|()| None)
            }
        }
    }

    /// Passes the end of a handle.
    fn pass_close(&self) {
        let mut state = self.state();
        if state.hit(FaultPoint::Close) == Some(Effect::Hang) {
            drop(self.hang(state));
        }
    }

    fn hang<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let releases = state.releases;
        state.hanging += 1;
        self.changed.notify_all();
        while state.releases == releases {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.hanging -= 1;
        state
    }
}

impl State {
    fn check_reachable(&self, life: u64) -> Result<()> {
        if self.has_crashed || life != self.life {
            return Err(injected(ErrorKind::Io).because("the simulated process has crashed"));
        }
        if self.is_offline {
            return Err(injected(ErrorKind::Io).because("the device is offline"));
        }
        Ok(())
    }

    fn hit(&mut self, point: FaultPoint) -> Option<Effect> {
        let mut effect = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.points.contains(&point)) {
            rule.met += 1;
            let is_hit = match rule.when {
                When::Always => true,
                When::Nth(number) => rule.met == number,
                When::Every(step) => rule.met.is_multiple_of(step),
                When::Chance(probability) => self.random.chance(probability),
            };
            if is_hit && effect.is_none() {
                effect = Some(rule.effect);
            }
        }
        self.injected += u64::from(effect.is_some());
        effect
    }
}

fn injected(kind: ErrorKind) -> Error {
    Error::new(kind, "reach the device").because("a fault was injected")
}

/// Puts [`Faults`] in front of a backend.
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Backend>,
    faults: Arc<Faults>,
    target: String,
}

impl Faulty {
    /// A backend that works like `inner` until `faults` say otherwise.
    pub fn new(inner: Arc<dyn Backend>, faults: Arc<Faults>) -> Self {
        let target = format!("faulty:{}", inner.target());
        Self { inner, faults, target }
    }

    fn object(&self, inner: Arc<dyn Object>, key: &Key, life: u64) -> FaultyObject {
        FaultyObject {
            inner,
            faults: Arc::clone(&self.faults),
            target: self.target.clone(),
            key: key.clone(),
            life,
            has_sync_failed: AtomicBool::new(false),
        }
    }

    /// Passes an operation that belongs to no handle.
    fn pass(&self, point: FaultPoint) -> Result<()> {
        let life = self.faults.state().life;
        let passed = self.faults.pass(life, point);
        passed.map(|_| ()).map_err(|error| error.with("target", &self.target))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Backend for Faulty {
    fn target(&self) -> &str {
        &self.target
    }

    fn capability(&self) -> Capability {
        // Its batches go one by one to the backend, and what fails may have been done in part.
        Capability { atomicity: Atomicity::None, leases: false, ..self.inner.capability() }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.capability().check_atomicity("open an object", how.semantics.atomicity)?;
        let life = self.faults.state().life;
        self.pass(match how.create {
            Create::Never => FaultPoint::Open,
            Create::IfMissing | Create::New => FaultPoint::Create,
        })?;
        let inner = self.inner.open(key, how)?;
        Ok(Box::new(self.object(Arc::from(inner), key, life)))
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        self.capability().check_atomicity("replace an object", how.semantics.atomicity)?;
        let life = self.faults.state().life;
        self.pass(FaultPoint::Create)?;
        let inner = self.inner.draft(key, how)?;
        let object = Arc::new(self.object(inner.object(), key, life));
        Ok(Box::new(FaultyDraft { inner, object }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.pass(FaultPoint::Stat)?;
        self.inner.stat(key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.pass(FaultPoint::Delete)?;
        self.inner.delete(key)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.pass(FaultPoint::List)?;
        self.inner.list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.pass(FaultPoint::List)?;
        self.inner.namespaces()
    }

    fn space(&self) -> Result<Space> {
        self.pass(FaultPoint::Stat)?;
        self.inner.space()
    }

    /// Carries out the operations one by one: each may fail.
    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        execute_each(self, operations, semantics);
    }

    fn sync(&self) -> Result<()> {
        self.pass(FaultPoint::SyncNames)?;
        self.inner.sync()
    }

    fn sync_all(&self) -> Result<()> {
        self.pass(FaultPoint::SyncNames)?;
        self.pass(FaultPoint::Sync)?;
        self.inner.sync_all()
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

#[deny(clippy::missing_trait_methods)]
impl TierBackend for Faulty {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        self.pass(FaultPoint::Identity)?;
        self.inner.identity(key)
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        self.pass(FaultPoint::Identity)?;
        self.inner.set_identity(key, identity)
    }

    fn replaced_identities(&self, namespace: &str) -> Result<Option<Vec<Key>>> {
        self.pass(FaultPoint::Identity)?;
        self.inner.tier().map_or(Ok(None), |tier| tier.replaced_identities(namespace))
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        self.pass(FaultPoint::Identity)?;
        self.inner.superblock()
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        self.pass(FaultPoint::Identity)?;
        self.inner.set_superblock(superblock)
    }
}

struct FaultyDraft {
    inner: Box<dyn Draft>,
    object: Arc<FaultyObject>,
}

#[deny(clippy::missing_trait_methods)]
impl Draft for FaultyDraft {
    fn object(&self) -> Arc<dyn Object> {
        Arc::clone(&self.object) as _
    }

    fn publish(&self) -> Result<Option<Arc<[u8]>>> {
        self.object.pass(FaultPoint::Publish)?;
        self.inner.publish()
    }
}

struct FaultyObject {
    inner: Arc<dyn Object>,
    faults: Arc<Faults>,
    target: String,
    key: Key,
    life: u64,
    has_sync_failed: AtomicBool,
}

impl FaultyObject {
    fn pass(&self, point: FaultPoint) -> Result<Option<Error>> {
        let passed = self.faults.pass(self.life, point);
        passed.map(|short| short.map(|error| self.name(error))).map_err(|error| self.name(error))
    }

    fn name(&self, error: Error) -> Error {
        error.with("key", &self.key).with("target", &self.target)
    }
}

impl Drop for FaultyObject {
    fn drop(&mut self) {
        self.faults.pass_close();
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for FaultyObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.pass(FaultPoint::Read)?;
        self.inner.read_at(offset_bytes, buffers)
    }

    fn later(&self) -> Option<&dyn Later> {
        Some(self)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        match self.pass(FaultPoint::Write)? {
            None => self.inner.write_at(offset_bytes, data),
            Some(error) => {
                self.inner.write_at(offset_bytes, &[IoSlice::new(&first_half(data))])?;
                Err(error)
            }
        }
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        match self.pass(FaultPoint::Write)? {
            None => self.inner.append(data),
            Some(error) => {
                self.inner.append(&[IoSlice::new(&first_half(data))])?;
                Err(error)
            }
        }
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.pass(FaultPoint::Resize)?;
        self.inner.set_len(bytes)
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        self.pass(FaultPoint::Resize)?;
        self.inner.allocate(range, end)
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        self.pass(FaultPoint::Resize)?;
        self.inner.punch(range)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        self.pass(FaultPoint::Read)?;
        self.inner.next_data(offset_bytes)
    }

    fn stat(&self) -> Result<Stat> {
        self.pass(FaultPoint::Stat)?;
        self.inner.stat()
    }

    fn created_ns(&self) -> Result<u64> {
        self.pass(FaultPoint::Stat)?;
        self.inner.created_ns()
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.pass(FaultPoint::Identity)?;
        self.inner.set_modified(wall_ns)
    }

    fn sync(&self) -> Result<()> {
        if self.has_sync_failed.load(Ordering::SeqCst) {
            let error = Error::new(ErrorKind::Io, "sync an object");
            return Err(self.name(error.because("an earlier sync failed")));
        }
        let synced = self.pass(FaultPoint::Sync).and_then(|_| self.inner.sync());
        synced.inspect_err(|_| self.has_sync_failed.store(true, Ordering::SeqCst))
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        self.inner.label()
    }

    fn file(&self) -> Option<&dyn ObjectFile> {
        None
    }
}

impl Later for FaultyObject {
    fn read_later(&self, _: u64, _: usize, done: &mut dyn FnMut() -> ReadDone) -> Option<Begun> {
        let error = self.pass(FaultPoint::ReadLater).err()?;
        let done = done();
        Some(Begun::Answering(Box::new(move || done(Some(Err(error))))))
    }

    fn write_later(
        &self,
        _: u64,
        _: &Arc<[u8]>,
        _: &mut dyn FnMut() -> WriteDone,
    ) -> Option<Begun> {
        None
    }
}

fn first_half(data: &[IoSlice<'_>]) -> Vec<u8> {
    let mut bytes: Vec<u8> = data.iter().flat_map(|part| part.iter().copied()).collect();
    bytes.truncate(bytes.len() / 2);
    bytes
}
