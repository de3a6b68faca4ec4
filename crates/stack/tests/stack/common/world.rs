// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine with a store on it, and what must hold for every store at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrace_backends::object::{FrameKey, Framed, Packing};
use terrace_core::{
    Backend, BackendExt, Clock, Key, Layout, Object, ObjectExt, Open, Persistency, Placed,
    Placement, Placer, Random, Result, Role, Semantics, SystemClock, TierIndex,
};
use terrace_stack::report::{Explanation, MoveReport, TierReport};
use terrace_stack::{MoveKind, Parts, Stack, Tactics, Tier};
use terrace_testkit::{SimKv, SimTier, SimWorld, StoredFile, Whole};

use super::crashing::{Crash, Failpoints};
use super::hooked::{Control, Hooked};
use super::scripted::Shared;

/// Longest that a test waits for anything; only a failing test waits that long.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A capacity that no test reaches.
pub(crate) const ROOMY: u64 = 1 << 30;

/// A simulated machine.
pub(crate) struct World {
    sim: Arc<SimWorld>,
    tiers: Vec<TestTier>,
    kv: SimKv,
    failpoints: Failpoints,
}

struct TestTier {
    name: &'static str,
    capacity_bytes: u64,
    disk: SimTier,
    control: Control,
    /// Whether it takes whole objects only.
    is_whole: bool,
    /// How it is framed.
    packing: Option<Packing>,
    /// How long it keeps what leaves it.
    keep_deleted: Option<Duration>,
}

impl World {
    /// Tiers by name, capacity and level, in order of preference.
    pub(crate) fn with(tiers: &[(&'static str, u64, Persistency)]) -> Self {
        let sim = SimWorld::new();
        let tier = |(name, capacity_bytes, level): &(&'static str, u64, Persistency)| TestTier {
            name,
            capacity_bytes: *capacity_bytes,
            disk: sim.tier_with(name, *capacity_bytes, *level),
            control: Control::default(),
            is_whole: false,
            packing: None,
            keep_deleted: None,
        };
        let tiers = tiers.iter().map(tier).collect();
        let (kv, failpoints) = (sim.kv(), Failpoints::new(&sim));
        Self { sim, tiers, kv, failpoints }
    }

    /// Two roomy disks, `fast` and `slow`.
    pub(crate) fn two() -> Self {
        Self::with(&[("fast", ROOMY, Persistency::Storage), ("slow", ROOMY, Persistency::Storage)])
    }

    /// Three roomy disks, `fast`, `slow` and `third`.
    pub(crate) fn three() -> Self {
        Self::with(&[
            ("fast", ROOMY, Persistency::Storage),
            ("slow", ROOMY, Persistency::Storage),
            ("third", ROOMY, Persistency::Storage),
        ])
    }

    /// The same with tiers that lend their files.
    pub(crate) fn lending(self) -> Self {
        self.tiers.iter().for_each(|tier| tier.disk.lend_files());
        self
    }

    /// The same where the tier `name` takes whole objects only.
    pub(crate) fn whole(mut self, name: &str) -> Self {
        let tier = self.tiers.iter_mut().find(|tier| tier.name == name);
        tier.expect("it is one of this world").is_whole = true;
        self
    }

    /// The same where the tier `name` keeps for a time what leaves it.
    pub(crate) fn keeping(mut self, name: &str, time: Duration) -> Self {
        let tier = self.tiers.iter_mut().find(|tier| tier.name == name);
        tier.expect("it is one of this world").keep_deleted = Some(time);
        self
    }

    /// The same where the objects of the tier `name` are compressed and encrypted.
    pub(crate) fn framed(mut self, name: &str) -> Self {
        let key = FrameKey::from_text(&[b'5'; 64]).expect("it is a key");
        let tier = self.tiers.iter_mut().find(|tier| tier.name == name);
        tier.expect("it is one of this world").packing =
            Some(Packing { level: Some(1), key: Some(key) });
        self
    }

    /// What a stack on this machine is made of, as the present process sees it.
    pub(crate) fn parts(&self) -> Parts {
        let tier = |tier: &TestTier| {
            let backend = Arc::new(Hooked::new(tier.disk.open(), tier.control.clone()));
            let backend: Arc<dyn Backend> = match tier.is_whole {
                true => Arc::new(Whole::new(backend)),
                false => backend,
            };
            let backend: Arc<dyn Backend> = match &tier.packing {
                // A machine that is down says so with the next call.
                Some(packing) => match Framed::open(Arc::clone(&backend), packing.clone()) {
                    Ok(framed) => Arc::new(framed),
                    Err(_) => backend,
                },
                None => backend,
            };
            let keep_deleted = tier.keep_deleted;
            let opened = Tier::new(tier.name, backend).with_capacity(tier.capacity_bytes);
            Tier { keep_deleted, ..opened }
        };
        let mut parts = Parts::new(self.tiers.iter().map(tier).collect(), self.kv.open());
        parts.settings.boot_id = self.sim.boot_id();
        parts.failpoints = self.failpoints.watch();
        parts
    }

    /// Makes an empty store without opening it.
    pub(crate) fn create_parts(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.parts();
        change(&mut parts);
        Stack::create(&parts).unwrap_or_else(|error| panic!("{}", error.chain()));
    }

    /// Makes a store and opens it.
    pub(crate) fn create(&self) -> Stack {
        self.create_with(|_| {})
    }

    /// Makes a store and opens it with changed parts.
    pub(crate) fn create_with(&self, change: impl FnOnce(&mut Parts)) -> Stack {
        self.create_parts(|_| {});
        self.open_with(change)
    }

    /// Opens the store.
    pub(crate) fn open(&self) -> Stack {
        self.open_with(|_| {})
    }

    /// Opens the store with changed parts.
    pub(crate) fn open_with(&self, change: impl FnOnce(&mut Parts)) -> Stack {
        self.try_open_with(change).unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// Opens the store with changed parts, which may fail.
    pub(crate) fn try_open_with(&self, change: impl FnOnce(&mut Parts)) -> Result<Stack> {
        let mut parts = self.parts();
        change(&mut parts);
        Stack::open(parts)
    }

    /// Loses the catalog: the next one is empty. Returns the lost one.
    pub(crate) fn lose_catalog(&mut self) -> SimKv {
        let empty = self.sim.kv();
        std::mem::replace(&mut self.kv, empty)
    }

    /// Ends the process or the power; the next process may begin.
    pub(crate) fn crash(&self, crash: Crash) {
        self.failpoints.disarm();
        match crash {
            Crash::Process => self.sim.crash_process(),
            Crash::Power { seed } => self.sim.lose_power(&mut Random::new(seed)),
        }
    }

    /// Cuts the power where nothing unsynced had reached the media.
    pub(crate) fn lose_all_unsynced(&self) {
        self.failpoints.disarm();
        self.sim.lose_all_unsynced();
    }

    /// What stops the machine from inside a hook.
    pub(crate) fn freezer(&self) -> Arc<SimWorld> {
        self.sim.clone()
    }

    /// The failpoints of all stacks on this machine.
    pub(crate) fn failpoints(&self) -> &Failpoints {
        &self.failpoints
    }

    /// The hook of a tier.
    pub(crate) fn tier(&self, index: usize) -> &Control {
        &self.tiers[index].control
    }

    /// The disk behind a tier.
    pub(crate) fn disk(&self, index: usize) -> &SimTier {
        &self.tiers[index].disk
    }

    /// The disk behind the tier of this name.
    pub(crate) fn disk_of(&self, name: &str) -> &SimTier {
        let found = self.tiers.iter().find(|tier| tier.name == name);
        &found.expect("it is one of this world").disk
    }

    /// The tier of this name, to be added to a store.
    pub(crate) fn tier_to_add(&self, name: &str) -> Tier {
        let found = self.parts().tiers.into_iter().find(|tier| tier.name == name);
        found.expect("it is one of this world")
    }

    /// The catalog's engine.
    pub(crate) fn kv(&self) -> &SimKv {
        &self.kv
    }

    /// The bytes of a file on a tier, by its key there.
    pub(crate) fn stored(&self, tier: usize, name: &str) -> Option<Vec<u8>> {
        let key = Key::parse(name).expect("legal");
        self.tiers[tier].disk.open().read_all(&key).ok()
    }

    /// Everything that is on the media, to see that nothing was changed.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let media = |tier: &TestTier| {
            let disk = tier.disk.open();
            let files = tier.disk.files().into_iter();
            let files = files.map(|file| (disk.read_all(&file.key).expect("reads"), file));
            (disk.superblock().expect("reads"), files.collect::<Vec<_>>())
        };
        let tiers = self.tiers.iter().map(media).collect();
        Snapshot { tiers, pairs: self.kv.pairs() }
    }
}

/// What is on all media.
#[derive(Debug, PartialEq)]
pub(crate) struct Snapshot {
    tiers: Vec<Medium>,
    pairs: Vec<terrace_core::Pair>,
}

/// A superblock, and every file with its bytes.
type Medium = (Option<terrace_core::Superblock>, Vec<(Vec<u8>, StoredFile)>);

/// Promises no more than each application asks for.
pub(crate) fn promise_nothing(parts: &mut Parts) {
    parts.settings.persistency = Persistency::None;
}

/// A key in the namespace of the tests.
pub(crate) fn key(name: &str) -> Key {
    Key::new("test", name).expect("legal")
}

/// Creates an object that holds `data`.
#[track_caller]
pub(crate) fn put(stack: &Stack, name: &Key, data: &[u8]) {
    let object = stack.open(name, &Open::create_new());
    let object = object.unwrap_or_else(|error| panic!("{}", error.chain()));
    object.write(0, data).unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// Migrates an object and waits until it is done.
#[track_caller]
pub(crate) fn migrate(stack: &Stack, name: &Key, to: TierIndex, kind: MoveKind) {
    let tickets = stack.migrate(name, to, kind, 0, "test");
    for ticket in tickets.unwrap_or_else(|error| panic!("{}", error.chain())) {
        let ended = stack.wait(ticket, LONG).expect("known").expect("ends");
        assert!(["done", "already"].contains(&outcome_of(&ended)), "{ended:?}");
    }
}

/// How a migration that has ended ended.
#[track_caller]
pub(crate) fn outcome_of(report: &MoveReport) -> &str {
    report.outcome.as_deref().unwrap_or_else(|| panic!("it has not ended: {report:?}"))
}

/// All keys of all namespaces.
pub(crate) fn all_keys(stack: &Stack) -> Vec<Key> {
    let namespaces = stack.namespaces().expect("lists namespaces");
    namespaces.iter().flat_map(|namespace| stack.list_all(namespace, "").expect("lists")).collect()
}

/// Runs `body` elsewhere, so that a test fails where it would hang.
#[track_caller]
pub(crate) fn bounded<T: Send + 'static>(
    limit: Duration,
    what: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || drop(sender.send(body())));
    match receiver.recv_timeout(limit) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("{what} took longer than {limit:?}"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a thread that ends well has sent its value"),
        },
    }
}

/// Runs `body` for every case, several at a time: they mostly wait for background threads.
pub(crate) fn in_parallel<T: Send>(cases: Vec<T>, body: impl Fn(T) + Sync) {
    const AT_ONCE: usize = 8;
    let cases = Mutex::new(cases.into_iter());
    let next = || cases.lock().expect("never poisoned").next();
    std::thread::scope(|scope| {
        let work = || {
            while let Some(case) = next() {
                body(case);
            }
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let panics = workers.into_iter().filter_map(|worker| worker.join().err());
        if let Some(panic) = panics.last() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Waits for something that another thread brings about.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let found = wait_for(|| if is_so() { Ok(()) } else { Err(()) });
    assert!(found.is_ok(), "not within {LONG:?}: {what}");
}

/// Tries until it works or the time is over; then returns the last failure.
fn wait_for<E>(mut attempt: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    let clock = SystemClock::default();
    let end_ns = clock.now_ns() + LONG.as_nanos() as u64;
    loop {
        match attempt() {
            Err(_) if clock.now_ns() < end_ns => clock.sleep(Duration::from_micros(200)),
            result => return result,
        }
    }
}

/// Opens an object for writing, to survive a loss of power from then on.
pub(crate) fn open_durable(stack: &Stack, name: &Key) -> Result<Box<dyn Object>> {
    let semantics = Semantics::at_level(Persistency::Storage);
    stack.open(name, &Open::write().with_semantics(semantics))
}

/// A policy that never moves anything and cuts every object.
pub(crate) fn cutting(segment_bytes: u64) -> Tactics {
    cutting_where("", segment_bytes)
}

/// A policy that never moves anything and cuts objects whose names begin with `prefix`.
pub(crate) fn cutting_where(prefix: &'static str, segment_bytes: u64) -> Tactics {
    Shared::with_placer(Arc::new(Cutter { prefix, segment_bytes })).tactics("cutting")
}

#[derive(Debug)]
struct Cutter {
    prefix: &'static str,
    segment_bytes: u64,
}

impl Placer for Cutter {
    fn place(&self, new: &Placement<'_>) -> Placed {
        let layout = if new.key.name().starts_with(self.prefix) {
            Layout::Fixed { segment_bytes: self.segment_bytes }
        } else {
            Layout::One
        };
        Placed { tier: TierIndex(0), layout }
    }
}

/// Checks what must hold for every store where nothing moves: the stack's own check, the bounds
/// of every tier, and the catalog and the accounting against the media.
#[track_caller]
pub(crate) fn assert_sound(world: &World, stack: &Stack) {
    assert_sound_after(world, stack, &[]);
}

/// The same, with what led there.
#[track_caller]
pub(crate) fn assert_sound_after(world: &World, stack: &Stack, trace: &[String]) {
    assert!(stack.wait_idle(LONG), "migrations do not end: {:?}", stack.moves());
    // Deleting what is superseded goes on in the background.
    let result = wait_for(|| problems_at_rest(world, stack));
    if let Err(problem) = result {
        panic!("{problem}\nafter …\n  {}", trace.join("\n  "));
    }
}

/// What is wrong with a store where nothing moves.
pub(crate) fn problems_at_rest(world: &World, stack: &Stack) -> Result<(), String> {
    let check = stack.check(true, &mut |_, _| {}).map_err(|error| error.chain())?;
    if !check.problems.is_empty() {
        return Err(format!("check finds {:?}", check.problems));
    }
    let mut explanations = Vec::new();
    for name in all_keys(stack) {
        explanations.push(stack.explain(&name).map_err(|error| error.chain())?);
    }
    let promised_on = |tier: &str| -> u64 {
        let segments = explanations.iter().flat_map(|explanation| &explanation.segments);
        let there = segments.filter(|segment| segment.tier == tier);
        there.map(|segment| segment.promised_bytes).sum()
    };
    let is_unused = explanations.iter().all(|explanation| explanation.opens == 0);
    for tier in &stack.tiers() {
        compare_with_media(tier, &world.disk_of(&tier.name).files(), &explanations, is_unused)
            .map_err(|problem| format!("{problem}; noted {:?}", check.notes))?;
        let waiting = tier.reserved_bytes + tier.garbage_bytes - promised_on(&tier.name);
        if is_unused && waiting > 0 && tier.is_writable {
            return Err(format!("something is kept for nobody: {tier:?}"));
        }
    }
    explanations.iter().try_for_each(|explanation| check_levels(stack, explanation))
}

/// Invariants 2 and 5: bounds, and accounting equal to what is on the medium.
fn compare_with_media(
    tier: &TierReport,
    files: &[StoredFile],
    explanations: &[Explanation],
    is_unused: bool,
) -> Result<(), String> {
    let classes = [tier.used_bytes, tier.reserved_bytes, tier.copy_bytes, tier.garbage_bytes];
    let taken = classes.into_iter().fold(0, u64::saturating_add);
    if tier.capacity_bytes.is_some_and(|capacity_bytes| taken > capacity_bytes) {
        return Err(format!("over its capacity: {tier:?}"));
    }
    // What marks a file of a version is in a namespace of its own.
    let marks = files.iter().filter(|file| file.key.namespace() == "kept");
    let marked: BTreeSet<_> = marks.map(|file| file.key.name()).collect();
    let files = files.iter().filter(|file| file.key.namespace() != "kept");
    let mut files: BTreeMap<_, _> = files.map(|file| (file.key.as_str(), file)).collect();
    let (mut used_bytes, mut segments) = (0, 0);
    for explanation in explanations {
        for segment in explanation.segments.iter().filter(|s| s.tier == tier.name) {
            let place = format!("{} segment {}", explanation.key, segment.segment);
            let file = files
                .remove(segment.stored_as.as_str())
                .ok_or_else(|| format!("{place} has no file on {}: {segment:?}", tier.name))?;
            let identity = file.identity.as_ref().ok_or_else(|| format!("{place}: nameless"))?;
            let is_right = identity.object_id == explanation.object_id
                && identity.segment == segment.segment
                && identity.start_bytes == segment.start_bytes
                && identity.key.as_str() == explanation.key
                && identity.role == Role::Primary
                && (identity.generation == segment.generation
                    || tier.writes == "whole" && identity.generation > segment.generation);
            // No more than what is promised is behind its end, but for the rest of a page. What is packed has a
            // head and no room, also where it is empty.
            let reach_bytes = (segment.size_bytes + segment.promised_bytes).next_multiple_of(4096);
            let has_room = is_unused && !tier.packed && file.allocated_bytes > reach_bytes;
            let is_long = tier.packed || file.length_bytes == segment.size_bytes;
            if !is_right || !is_long || has_room {
                return Err(format!("{place}: {segment:?} is stored as {file:?}"));
            }
            // No less is accounted than is on the medium, at rest no more either. Room behind the end may
            // be in the account alone: a loss of power takes it from a file, also after a clean close.
            let is_dense = segment.allocated_bytes == segment.size_bytes;
            let on_medium = on_medium(file, if is_dense { 0 } else { segment.promised_bytes });
            let is_exact = match tier.packed {
                // Copies elsewhere are accounted with it.
                true => segment.allocated_bytes <= segment.size_bytes,
                false => segment.allocated_bytes == on_medium,
            };
            let on_medium = on_medium.min(segment.size_bytes);
            let is_known = is_unused && segment.promised_bytes == 0;
            if !is_exact && (is_known || segment.allocated_bytes < on_medium) {
                return Err(format!("{place}: {segment:?} takes {on_medium} bytes: {file:?}"));
            }
            used_bytes += segment.allocated_bytes;
            segments += 1;
        }
    }
    // A copy that was the primary before may still say so.
    let is_copy = |file: &&StoredFile| {
        let is_kept = marked.contains(file.key.name());
        !is_kept
            && file.identity.as_ref().is_some_and(|identity| {
                let is_of = |e: &&Explanation| e.object_id == identity.object_id;
                explanations.iter().find(is_of).is_some_and(|explanation| {
                    explanation.segments.iter().any(|segment| {
                        segment.segment == identity.segment && segment.copies.contains(&tier.name)
                    })
                }) && matches!(identity.role, Role::Copy | Role::Primary)
            })
    };
    let (copies, garbage): (Vec<&StoredFile>, Vec<_>) = files.into_values().partition(is_copy);
    let sum = |files: &[&StoredFile]| files.iter().map(|file| on_medium(file, 0)).sum::<u64>();
    let listed = explanations.iter().flat_map(|explanation| &explanation.segments);
    let listed = listed.filter(|segment| segment.copies.contains(&tier.name));
    let (listed, listed_bytes) =
        listed.fold((0, 0), |(count, sum), one| (count + 1, sum + one.allocated_bytes));
    let copies_bytes = if tier.packed { listed_bytes } else { sum(&copies) };
    if !is_unused && used_bytes <= tier.used_bytes + tier.reserved_bytes {
        // Lengths of open objects are accounted for when the last handle is closed.
        used_bytes = tier.used_bytes;
    }
    let found = (used_bytes, copies_bytes, sum(&garbage), segments, copies.len());
    let let_go_bytes = tier.garbage_bytes + tier.kept_bytes;
    let told = (tier.used_bytes, tier.copy_bytes, let_go_bytes, tier.segments, listed);
    if found != told {
        return Err(format!(
            "{}: on the medium are {found:?} (used, copies, garbage, segments, copied), \
             accounted are {told:?}; unexplained {garbage:?}, copies {copies:?}, \
             explained {explanations:?}",
            tier.name
        ));
    }
    Ok(())
}

/// What a file takes of its medium, beside the room behind its end.
fn on_medium(file: &StoredFile, promised_bytes: u64) -> u64 {
    file.allocated_bytes.saturating_sub(promised_bytes).min(file.length_bytes)
}

/// Invariant 1: every primary is on a tier that keeps what was promised.
fn check_levels(stack: &Stack, explanation: &Explanation) -> Result<(), String> {
    let level = |text: &str| text.parse::<Persistency>().map_err(|error| error.chain());
    let promised = level(&explanation.persistency)?;
    for segment in &explanation.segments {
        let tiers = stack.tiers();
        let tier = tiers.iter().find(|tier| tier.name == segment.tier);
        let tier = tier.ok_or_else(|| format!("no tier {}", segment.tier))?;
        // The level `shared` is that of a copy on another tier, and of the log.
        if level(&tier.persistency)? < promised.min(Persistency::Storage) {
            return Err(format!("{} is on a tier that is too weak", explanation.key));
        }
    }
    Ok(())
}
