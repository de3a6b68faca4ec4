// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store on real directories, for what a simulated disk cannot show: files that others write to.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use terrace_backends::object::{File, FileSettings, path_below};
use terrace_core::{Backend, ErrorKind, Space};
use terrace_stack::{Parts, Stack, Tier};
use terrace_testkit::{SimKv, SimWorld};

use super::crashing::Failpoints;
use super::hooked::{Control, Hooked, Verdict};
use super::world::eventually;

/// Directories that are tiers, and a simulated catalog, which forgets what a crash takes.
pub(crate) struct Directories {
    root: TempDir,
    sim: Arc<SimWorld>,
    kv: SimKv,
    failpoints: Failpoints,
    tiers: Vec<(&'static str, u64, Control)>,
}

impl Directories {
    /// Tiers by name and capacity, in order of preference.
    pub(crate) fn with(tiers: &[(&'static str, u64)]) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let sim = SimWorld::new();
        let (kv, failpoints) = (sim.kv(), Failpoints::new(&sim));
        let tier = |(name, capacity): &(&'static str, u64)| {
            std::fs::create_dir(root.path().join(name)).expect("makes a directory");
            (*name, *capacity, Control::default())
        };
        let tiers = tiers.iter().map(tier).collect();
        let all = Self { root, sim, kv, failpoints, tiers };
        all.stop_with_the_machine();
        all
    }

    /// `fast` and `slow`, roomy.
    pub(crate) fn two() -> Self {
        Self::with(&[("fast", super::world::ROOMY), ("slow", super::world::ROOMY)])
    }

    /// What was killed changes no file any more.
    fn stop_with_the_machine(&self) {
        for (_, _, control) in &self.tiers {
            let sim = Arc::clone(&self.sim);
            control.on(move |_| match sim.is_frozen() {
                true => Verdict::Fail(ErrorKind::Io),
                false => Verdict::Go,
            });
        }
    }

    /// The hook of a tier; healing it makes tests of crashes say nothing.
    pub(crate) fn tier(&self, index: usize) -> &Control {
        &self.tiers[index].2
    }

    /// What the directory of a tier tells of its file system.
    pub(crate) fn space(&self, name: &str) -> Space {
        let settings = FileSettings { capacity_bytes: u64::MAX, read_only: true };
        let directory = File::open(&self.root.path().join(name), settings).expect("opens");
        directory.space().expect("it can be asked")
    }

    /// What a stack is made of.
    pub(crate) fn parts(&self) -> Parts {
        let tier = |(name, capacity_bytes, control): &(&'static str, u64, Control)| {
            let settings = FileSettings { capacity_bytes: *capacity_bytes, read_only: false };
            let directory = File::open(&self.root.path().join(name), settings).expect("opens");
            let backend = Hooked::new(Arc::new(directory), control.clone());
            let tier = Tier::new(name, Arc::new(backend)).with_capacity(*capacity_bytes);
            Tier { path_of: Some(path_below), ..tier }
        };
        let mut parts = Parts::new(self.tiers.iter().map(tier).collect(), self.kv.open());
        parts.settings.boot_id = self.sim.boot_id();
        parts.failpoints = self.failpoints.watch();
        parts
    }

    /// Makes a store and opens it.
    pub(crate) fn create(&self) -> Stack {
        self.create_with(|_| {})
    }

    /// Makes a store and opens it with changed parts.
    pub(crate) fn create_with(&self, change: impl Fn(&mut Parts)) -> Stack {
        let mut parts = self.parts();
        change(&mut parts);
        Stack::create(&parts).unwrap_or_else(|error| panic!("{}", error.chain()));
        self.open_with(change)
    }

    /// Opens the store.
    pub(crate) fn open(&self) -> Stack {
        self.open_with(|_| {})
    }

    /// Opens the store with changed parts.
    pub(crate) fn open_with(&self, change: impl Fn(&mut Parts)) -> Stack {
        let mut parts = self.parts();
        change(&mut parts);
        Stack::open(parts).unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// The failpoints of all stacks.
    pub(crate) fn failpoints(&self) -> &Failpoints {
        &self.failpoints
    }

    /// Ends the process that has opened `stack`; the next may begin. Its handles are dropped
    /// before, on a machine that is frozen.
    pub(crate) fn kill(&self, stack: Stack) {
        self.sim.freeze();
        drop(stack);
        self.failpoints.disarm();
        self.sim.crash_process();
    }

    /// Bytes and number of the files of objects on a tier.
    pub(crate) fn stored(&self, tier: usize) -> (u64, u64) {
        let mut folders = vec![self.root.path().join(self.tiers[tier].0)];
        let mut sum = (0, 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("lists") {
                let path: PathBuf = entry.expect("lists").path();
                let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
                if metadata.is_dir() {
                    folders.push(path);
                } else if path.to_string_lossy().contains("/seg") {
                    sum = (sum.0 + metadata.len(), sum.1 + 1);
                }
            }
        }
        sum
    }

    /// A file of a tier.
    pub(crate) fn file(&self, tier: usize, path: &str) -> PathBuf {
        self.root.path().join(self.tiers[tier].0).join(path)
    }

    /// Checks a store that nobody uses: the stack's own check, which compares the accounts, and
    /// every tier against its directory.
    #[track_caller]
    pub(crate) fn assert_sound(&self, stack: &Stack) {
        eventually("accounts, catalog and directories agree", || self.problem(stack).is_none());
    }

    fn problem(&self, stack: &Stack) -> Option<String> {
        let check = stack.check(true, &mut |_, _| {}).expect("checks");
        let is_idle = check.notes.iter().all(|note| note.kind != "in-use");
        if !check.problems.is_empty() || !is_idle {
            return Some(format!("{check:?}"));
        }
        for (index, tier) in stack.tiers().iter().enumerate() {
            let told = (tier.used_bytes + tier.copy_bytes, tier.reserved_bytes, tier.garbage_bytes);
            if told != (self.stored(index).0, 0, 0) {
                return Some(format!("{tier:?}, stored are {:?}", self.stored(index)));
            }
        }
        None
    }
}
