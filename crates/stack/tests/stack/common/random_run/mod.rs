// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One seed of the model test: a stack and a plain map, and operations that both undergo.

mod leases;
mod steps;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::time::Duration;

use terrace_core::{
    Access, Backend, BackendExt, Error, ErrorKind, Key, Object, Open, Persistency, Random, Result,
    Semantics,
};
use terrace_stack::report::TierReport;
use terrace_stack::{MoveKind, MoveTicket, Parts, Stack};

use crate::common::crashing::Crash;
use crate::common::expected::Expected;
use crate::common::pattern::{difference, noise};
use crate::common::restless::restless;
use crate::common::world::{LONG, World, all_keys, assert_sound_after, promise_nothing};

const STEPS: u64 = 240;
const STEPS_BETWEEN_RESTS: u64 = 40;
const OBJECT_BYTES_MAX: u64 = 60_000;

const LEVELS: [Persistency; 3] = [Persistency::None, Persistency::Process, Persistency::Storage];
const KINDS: [MoveKind; 3] = [MoveKind::Move, MoveKind::Promote, MoveKind::Copy];

/// The tier that comes and goes.
const SPARE: &str = "spare";

fn without_spare(parts: &mut Parts) {
    parts.tiers.retain(|tier| tier.name != SPARE);
}

/// A name of every sort; few, so that they are used again.
const NAMES: [&str; 10] =
    ["a", "a/b", "a/b/c", "../up", "cut-1", "cut-2", "steps-1", "ünïcode", " space ", "z\n"];

/// What the model knows of an object.
#[derive(Clone, Debug)]
struct Held {
    data: Vec<u8>,
    level: Persistency,
    life: u64,
    is_pinned: bool,
    /// False after an operation failed: what was not acknowledged need not survive a crash.
    is_promised: bool,
}

/// An open handle, kept across whatever comes.
struct Handle {
    key: Key,
    life: u64,
    object: Box<dyn Object>,
    access: Access,
    /// A failed sync is sticky.
    has_failed_sync: bool,
    /// What the object held when it was deleted.
    ghost: Option<Vec<u8>>,
    /// The file that it is held in.
    file: Option<File>,
}

/// One seed.
pub(crate) struct Run {
    random: Random,
    world: World,
    /// `None` only while it is opened again.
    stack: Option<Stack>,
    objects: BTreeMap<Key, Held>,
    /// Deleted objects that a crash may bring back: their deletion was not promised.
    may_return: BTreeSet<Key>,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    handles: Vec<Handle>,
    leases: Vec<leases::Held>,
    tickets: Vec<MoveTicket>,
    lives: u64,
    has_spare: bool,
    has_faults: bool,
    has_policy: bool,
    trace: VecDeque<String>,
    /// Bytes of whole objects that were read and compared.
    verified_bytes: Cell<u64>,
}

/// Whether an error only repeats a failed sync: what was lost then is not tried again, so a file
/// refuses to be synced until it moves or the store is opened anew.
fn is_aftermath(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && error.chain().contains("earlier sync")
}

impl Run {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Small stores fill up, large ones do not.
        let unit = if random.chance(0.5) { 1 << 10 } else { 1 << 20 };
        let world = World::with(&[
            ("memory", 40 * unit, Persistency::None),
            ("fast", 120 * unit, Persistency::Storage),
            ("slow", 200 * unit, Persistency::Storage),
            (SPARE, 100 * unit, Persistency::Storage),
        ]);
        let world = if random.chance(0.8) { world.lending() } else { world };
        // A service below takes whole objects only.
        let world = match seed % 8 {
            3 => world.whole("slow"),
            7 => world.framed("slow"),
            _ => world,
        };
        world.create_parts(without_spare);
        let mut run = Self {
            random,
            world,
            stack: None,
            objects: BTreeMap::new(),
            may_return: BTreeSet::new(),
            pairs: BTreeMap::new(),
            handles: Vec::new(),
            leases: Vec::new(),
            tickets: Vec::new(),
            lives: 0,
            has_spare: false,
            has_faults: false,
            has_policy: false,
            trace: VecDeque::new(),
            verified_bytes: Cell::new(0),
        };
        run.open();
        run
    }

    /// Returns how many bytes were read and compared.
    pub(crate) fn go(mut self) -> u64 {
        for step in 1..=STEPS {
            self.step();
            if step % STEPS_BETWEEN_RESTS == 0 {
                self.rest();
            }
        }
        self.handles.clear();
        self.reopen();
        self.rest();
        self.verified_bytes.get()
    }

    fn stack(&self) -> &Stack {
        self.stack.as_ref().expect("it is open")
    }

    fn open(&mut self) {
        let entries_max = if self.random.chance(0.3) { 2 } else { 1 << 16 };
        let seed = self.random.next_u64();
        self.has_policy = self.random.chance(0.6);
        let tactics = self.has_policy.then(|| restless(seed));
        let has_spare = self.has_spare;
        let stack = self.world.open_with(|parts| {
            parts.settings.entries_max = entries_max;
            parts.settings.seed = seed;
            promise_nothing(parts);
            parts.tactics = tactics;
            if !has_spare {
                without_spare(parts);
            }
        });
        self.stack = Some(stack);
    }

    fn step(&mut self) {
        type Step = fn(&mut Run);
        let steps: [(u64, Step); 32] = [
            (8, Run::create),
            (4, Run::open_handle),
            (3, Run::close_handle),
            (14, Run::write),
            (6, Run::append),
            (5, Run::set_len),
            (4, Run::punch),
            (2, Run::allocate),
            (14, Run::read),
            (6, Run::read_whole),
            (8, Run::lend),
            (20, Run::read_lent),
            (8, Run::hold),
            (16, Run::read_held),
            (3, Run::stat),
            (5, Run::delete),
            (3, Run::list),
            (16, Run::migrate),
            (3, Run::drop_copy),
            (2, Run::cancel),
            (3, Run::pin),
            (4, Run::sync),
            (1, Run::sync_all),
            (4, Run::execute),
            (4, Run::pair),
            (3, Run::faults),
            (2, Run::quota),
            (2, Run::scrub),
            (1, Run::policy),
            (3, Run::drain),
            (3, Run::spare),
            (1, Run::reopen),
        ];
        let total = steps.iter().map(|(weight, _)| weight).sum();
        let mut choice = self.random.below(total);
        for (weight, step) in steps {
            if choice < weight {
                return step(self);
            }
            choice -= weight;
        }
    }

    fn note(&mut self, what: String) {
        const KEPT: usize = 40;
        if self.trace.len() == KEPT {
            self.trace.pop_front();
        }
        self.trace.push_back(what);
    }

    #[track_caller]
    fn fail(&self, problem: &str) -> ! {
        let trace: Vec<_> = self.trace.iter().cloned().collect();
        panic!("{problem}\nafter …\n  {}", trace.join("\n  "));
    }

    fn any_name(&mut self) -> Key {
        let index = self.random.below(NAMES.len() as u64) as usize;
        Key::new("test", NAMES[index]).expect("legal")
    }

    fn any_object(&mut self) -> Option<Key> {
        let count = self.objects.len() as u64;
        if count == 0 {
            return None;
        }
        let index = self.random.below(count) as usize;
        self.objects.keys().nth(index).cloned()
    }

    fn any_bytes(&mut self, length_max: u64) -> Vec<u8> {
        let length = 1 + self.random.below(length_max) as usize;
        noise(&mut self.random, length)
    }

    /// Calls `body` with a handle for writing: an old one or a new one.
    fn with_object<T>(
        &mut self,
        name: &Key,
        body: impl FnOnce(&dyn Object) -> Result<T>,
    ) -> Result<T> {
        let life = self.objects[name].life;
        let usable = |handle: &&Handle| handle.life == life && handle.access == Access::Write;
        if self.random.chance(0.7)
            && let Some(handle) = self.handles.iter().find(usable)
        {
            return body(&*handle.object);
        }
        let semantics = Semantics::at_level(self.objects[name].level);
        let object = self.stack().open(name, &Open::write().with_semantics(semantics))?;
        body(&*object)
    }

    /// Takes the outcome of an operation that leads to `next` into the model.
    fn conclude(&mut self, name: &Key, next: Option<Vec<u8>>, result: Result<()>) {
        let Err(error) = result else {
            self.adopt(name, next);
            return;
        };
        self.note(format!("… failed: {}", error.chain()));
        let level = self.objects.get(name).map_or(Persistency::None, |held| held.level);
        self.check_failure(name, level, next.as_deref(), &error);
        // What failed is undone or done, byte by byte; the model goes on from what is found.
        self.heal();
        let mut expected = Expected::missing();
        expected.adopt(self.objects.get(name).map(|held| held.data.clone()));
        expected.begin(next);
        let found = self.found(name);
        if let Err(problem) = expected.explain(found.as_deref()) {
            self.fail(&format!("{name} after a failure: {problem}"));
        }
        if let Some(held) = self.objects.get_mut(name) {
            held.is_promised = false;
        }
        self.adopt(name, found);
    }

    fn adopt(&mut self, name: &Key, next: Option<Vec<u8>>) {
        match next {
            Some(data) => self.objects.get_mut(name).expect("is in the model").data = data,
            None => {
                if let Some(held) = self.objects.remove(name) {
                    if held.level == Persistency::None || !held.is_promised {
                        self.may_return.insert(name.clone());
                    }
                    for handle in self.handles.iter_mut().filter(|h| h.life == held.life) {
                        handle.ghost = Some(held.data.clone());
                    }
                }
            }
        }
    }

    fn found(&self, name: &Key) -> Option<Vec<u8>> {
        match self.stack().read_all(name) {
            Ok(data) => {
                self.verified_bytes.update(|bytes| bytes + data.len() as u64);
                Some(data)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => self.fail(&format!("cannot read {name}: {}", error.chain())),
        }
    }

    /// A failure needs a reason: an injected fault, or full tiers.
    fn check_failure(&self, name: &Key, level: Persistency, next: Option<&[u8]>, error: &Error) {
        match error.kind() {
            ErrorKind::Io if self.has_faults || is_aftermath(error) => {}
            ErrorKind::NoSpace if error.chain().contains("quota") => {
                self.check_quota(name, next, error);
            }
            ErrorKind::NoSpace if error.chain().contains("held=") => {
                let is_holding = |handle: &Handle| handle.key == *name && handle.file.is_some();
                if !self.handles.iter().any(is_holding) {
                    self.fail(&format!("nobody holds {name}: {}", error.chain()));
                }
            }
            ErrorKind::NoSpace => self.check_full(name, level, next),
            // What is pinned below, on a tier of whole objects, is not recalled.
            ErrorKind::Denied
                if error.chain().contains("unpin it")
                    && self.objects.get(name).is_some_and(|held| held.is_pinned) => {}
            _ => self.fail(&format!("{name} fails without a reason: {}", error.chain())),
        }
    }

    /// A quota refuses only what would exceed it.
    fn check_quota(&self, name: &Key, next: Option<&[u8]>, error: &Error) {
        let quotas = self.stack().quotas();
        let quota = quotas.iter().find(|quota| quota.namespace == name.namespace());
        let quota = quota.expect("a quota is shown");
        let objects = u64::from(!self.objects.contains_key(name));
        // A segment that ends before the next one begins leaves a hole, which takes up nothing.
        let segments = self.stack().explain(name).map_or(Vec::new(), |found| found.segments);
        let held_bytes = segments.iter().map(|segment| segment.allocated_bytes).sum();
        let next_bytes = next.map_or(0, <[u8]>::len) as u64;
        // Holes are filled by whole blocks.
        let growth_bytes = next_bytes.saturating_sub(held_bytes) + 2 * 4096;
        // While what is packed gets a copy elsewhere it counts with its length.
        let is_packing = self.stack().tiers().iter().any(|tier| tier.packed);
        let packed = |name: Key| {
            let segments = self.stack().explain(&name).map_or(Vec::new(), |found| found.segments);
            segments
                .iter()
                .map(|one| one.size_bytes.saturating_sub(one.allocated_bytes))
                .sum::<u64>()
        };
        let all = if is_packing { all_keys(self.stack()) } else { Vec::new() };
        let packed_bytes: u64 = all.into_iter().map(packed).sum();
        let growth_bytes = growth_bytes + packed_bytes;
        let is_many = quota.objects_max.is_some_and(|max| quota.objects + objects > max);
        let is_large = quota.bytes_max.is_some_and(|max| quota.bytes + growth_bytes > max);
        if !is_many && !is_large {
            let all = all_keys(self.stack());
            let all: Vec<_> = all.iter().map(|name| self.stack().explain(name)).collect();
            let what = format!("{name} was refused by {quota:?}: {}", error.chain());
            self.fail(&format!("{what}; next are {next_bytes} bytes; there is {all:?}"));
        }
    }

    /// An application sees `NoSpace` only when every allowed tier is full.
    fn check_full(&self, name: &Key, level: Persistency, next: Option<&[u8]>) {
        let is_moving = self.stack().moves().iter().any(|report| report.state != "ended");
        if self.has_policy || is_moving {
            // Migrations hold room that is given back before one can look.
            return;
        }
        let segments = self.stack().explain(name).map_or(Vec::new(), |found| found.segments);
        let is_sparse = segments.iter().any(|one| one.allocated_bytes < one.size_bytes);
        let before = self.objects.get(name).map_or(0, |held| held.data.len());
        let next_bytes = next.map_or(0, <[u8]>::len);
        let tiers = self.stack().tiers();
        let is_whole =
            |name: &str| tiers.iter().any(|tier| tier.name == name && tier.writes == "whole");
        let is_recalled = segments.iter().any(|one| is_whole(&one.tier));
        let need_bytes = match is_sparse || is_recalled {
            // What is in the way of a hole has to move, all of it; what is recalled, too.
            true => next_bytes as u64 + 2 * 4096,
            false => next_bytes.saturating_sub(before) as u64,
        };
        // What is pinned stays where it is.
        let is_pinned = self.objects.get(name).is_some_and(|held| held.is_pinned);
        let may_take = |tier: &&TierReport| {
            let is_its = segments.iter().any(|one| one.tier == tier.name);
            tier.writes == "in-place" && (is_its || !is_pinned)
        };
        for tier in tiers.iter().filter(may_take) {
            let taken = tier.used_bytes + tier.reserved_bytes + tier.garbage_bytes;
            let limit = tier.capacity_bytes.unwrap_or(u64::MAX) as f64 * tier.watermarks[2];
            let free_bytes = (limit as u64).saturating_sub(taken);
            let is_allowed = tier.persistency.parse::<Persistency>().expect("a level") >= level;
            if is_allowed && tier.is_writable && free_bytes >= need_bytes.max(1) {
                self.fail(&format!(
                    "{name} needs {need_bytes} bytes at level {level}, there is room: {tier:?}"
                ));
            }
        }
    }

    /// Closes or crashes, then opens again.
    fn reopen(&mut self) {
        self.heal();
        let crash = match self.random.below(3) {
            0 => Some(Crash::Process),
            1 => Some(Crash::Power { seed: self.random.next_u64() }),
            _ => None,
        };
        self.note(format!("reopen after {crash:?}"));
        self.tickets.clear();
        if crash.is_some() {
            self.world.failpoints().freeze();
        }
        self.handles.clear();
        let stack = self.stack.take().expect("it is open");
        if crash.is_none()
            && let Err(error) = stack.close()
        {
            // An earlier failed sync may have made it impossible to promise anything.
            self.note(format!("… close: {}", error.chain()));
        }
        drop(stack);
        self.end_leases();
        // Without a crash the process ends all the same, and with it what volatile tiers held.
        self.world.crash(crash.unwrap_or(Crash::Process));
        self.open();
        self.check_survivors(crash);
    }

    fn check_survivors(&mut self, crash: Option<Crash>) {
        let must = match crash {
            None | Some(Crash::Process) => Persistency::Process,
            Some(Crash::Power { .. }) => Persistency::Storage,
        };
        for name in self.objects.keys().cloned().collect::<Vec<_>>() {
            let held = self.objects[&name].clone();
            let found = self.found(&name);
            let must_survive = held.level >= must && held.is_promised;
            if must_survive && found.as_ref() != Some(&held.data) {
                let found = found.unwrap_or_default();
                self.fail(&format!("{name} after a crash: {}", difference(&found, &held.data)));
            }
            match found {
                None => drop(self.objects.remove(&name)),
                Some(data) => {
                    let is_pinned = self.stack().explain(&name).expect("exists").is_pinned;
                    if must_survive && must == Persistency::Process {
                        assert_eq!(is_pinned, held.is_pinned, "a pin is kept");
                    }
                    let held = self.objects.get_mut(&name).expect("is there");
                    (held.data, held.is_pinned) = (data, is_pinned);
                    held.is_promised |= crash != Some(Crash::Process);
                }
            }
        }
        for name in all_keys(self.stack()) {
            if !self.objects.contains_key(&name) {
                if must == Persistency::Process && !self.may_return.contains(&name) {
                    self.fail(&format!("{name} was deleted and is back after {crash:?}"));
                }
                self.stack().delete(&name).expect("deletes");
            }
        }
        let pairs = self.stack().kv_scan("pairs", b"p", None, 100).expect("scans");
        if must == Persistency::Process {
            assert_eq!(pairs, self.pairs.clone().into_iter().collect::<Vec<_>>());
        }
        self.pairs = pairs.into_iter().collect();
    }

    /// Waits until nothing moves, and lets nothing new begin.
    fn quiet(&mut self) {
        if self.has_policy {
            let never = Duration::from_secs(3600);
            self.stack().set_calls(Some(u64::MAX), Some(never)).expect("quiets the policy");
            let _ = self.stack().run_policy();
        }
        if !self.stack().wait_idle(LONG) {
            self.fail(&format!("migrations do not end: {:?}", self.stack().moves()));
        }
    }

    /// Waits until nothing moves and compares everything.
    fn rest(&mut self) {
        self.note("rest".into());
        self.heal();
        if self.random.chance(0.5) {
            // Accounts are compared only where nothing is open.
            self.handles.clear();
        }
        self.quiet();
        if self.stack().check(false, &mut |_, _| {}).is_err_and(|error| is_aftermath(&error)) {
            // A switch whose target failed to sync is settled by the next opening of the store.
            self.reopen();
            self.quiet();
        }
        // Whoever still holds a deleted object keeps its files.
        self.handles.retain(|handle| handle.ghost.is_none());
        self.tickets.clear();
        let keys: Vec<_> = self.objects.keys().cloned().collect();
        if all_keys(self.stack()) != keys {
            self.fail(&format!("listed {:?}", all_keys(self.stack())));
        }
        for (name, held) in &self.objects {
            let found = self.found(name).unwrap_or_default();
            if found != held.data {
                self.fail(&format!("{name}: {}", difference(&found, &held.data)));
            }
            let explanation = self.stack().explain(name).expect("exists");
            if explanation.is_pinned != held.is_pinned {
                self.fail(&format!("{name} is pinned: {}", explanation.is_pinned));
            }
            if explanation.persistency != held.level.word() {
                self.fail(&format!("{name} was promised {}: {explanation:?}", held.level));
            }
        }
        let trace: Vec<_> = self.trace.iter().cloned().collect();
        assert_sound_after(&self.world, self.stack(), &trace);
        if self.has_policy {
            let calls = (Some(20), Some(Duration::from_millis(5)));
            self.stack().set_calls(calls.0, calls.1).expect("wakes the policy");
        }
    }
}
