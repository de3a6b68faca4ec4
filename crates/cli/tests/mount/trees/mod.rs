// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random operations on a mount and on a directory of the file system that the tiers are on: each has
//! to end alike, and the trees have to stay alike, whatever moves, ends or dies between.

mod operation;
mod side;
mod tree;

use std::collections::VecDeque;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType};
use rustix::io::Errno;

use self::operation::{Chooser, Operation};
use self::side::{Side, migrate, tiers};
use self::tree::{content, content_difference, differences, paths, read_tree};
use crate::suites::{How, Place};

/// Operations of one seed.
const STEPS: u64 = 1_000;

/// Something happens after so many operations, on average, and trees are compared after that.
const STEPS_BETWEEN: u64 = 60;

/// Operations that are printed when something is wrong.
const HISTORY: usize = 40;

/// So many files are asked to move after so many operations, on average, where the names lead to any.
const MOVES_AT_ONCE: usize = 4;
const MOVES_BETWEEN: u64 = 2;

/// Migrations that are seen to be done in each history, at least.
const MOVES_MIN: u64 = 10;

/// Seeds of each test.
const SEEDS: u64 = 2;

#[test]
fn a_served_mount_is_like_a_directory() {
    is_like_a_directory(How::Served);
}

#[test]
fn a_mount_that_passes_through_is_like_a_directory() {
    is_like_a_directory(How::Passed);
}

#[test]
fn a_mount_over_the_network_is_like_a_directory() {
    is_like_a_directory(How::Network);
}

#[test]
fn a_strict_mount_over_the_network_is_like_a_directory() {
    is_like_a_directory(How::Strict);
}

fn is_like_a_directory(how: How) {
    for seed in terrace_testkit::seeds(SEEDS) {
        let Some(run) = Run::new(how, seed) else { return };
        run.carry_out();
    }
}

/// What happens between operations.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Remount,
    KillMount,
    RestartServer,
    KillServer,
}

/// One history.
struct Run {
    // Open files are closed before what they are in ends.
    mounted: Side,
    native: Side,
    place: Place,
    how: How,
    seed: u64,
    chooser: Chooser,
    history: VecDeque<String>,
    /// What was asked to go to another tier than it was on: where it is, its number, and the tier.
    moving: Vec<(PathBuf, u64, &'static str)>,
    /// How often that was there when it was looked at.
    moves: u64,
    /// Whether the server was started anew since it was mounted.
    is_server_new: bool,
}

impl Run {
    fn new(how: How, seed: u64) -> Option<Self> {
        let place = Place::new(how, &["-o", "suid,dev"])?;
        let native = Side::new(&place.scene.directory("native"));
        let mounted = Side::new(place.mounted.path());
        let chooser = Chooser::new(seed);
        Some(Self {
            mounted,
            native,
            place,
            how,
            seed,
            chooser,
            history: VecDeque::new(),
            moving: Vec::new(),
            moves: 0,
            is_server_new: false,
        })
    }

    fn carry_out(mut self) {
        // The command makes neither.
        rustix::fs::chmod(self.native.root(), 0o755.into()).expect("it is there");
        rustix::fs::chmod(self.mounted.root(), 0o755.into()).expect("it is there");
        for step in 0..STEPS {
            let operation = self.chooser.next();
            self.apply(step, &operation);
            if self.chooser.below(MOVES_BETWEEN) == 0 {
                self.count_moves();
                (0..MOVES_AT_ONCE).for_each(|_| self.migrate());
            }
            if self.chooser.below(STEPS_BETWEEN) == 0 {
                self.compare();
                self.happen();
                self.compare();
            }
        }
        self.compare();
        let (how, seed, moves) = (self.how, self.seed, self.moves);
        println!("trees, {how:?}: seed {seed}, {STEPS} operations, {moves} migrations were done");
        assert!(moves >= MOVES_MIN, "{moves} migrations alone");
        self.mounted.close_all();
        self.place.mounted.unmount();
    }

    fn apply(&mut self, step: u64, operation: &Operation) {
        let native = self.native.apply(operation);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        let outcome = native.as_ref().map_or_else(Errno::to_string, |_| "ok".into());
        self.history.push_back(format!("{step}: {operation:?}: {outcome}"));
        let mounted = self.mounted.apply(operation);
        // A server that is new may have lost what was not synced, and who syncs is told.
        let is_told = self.is_server_new
            && matches!(operation, Operation::Sync { .. })
            && mounted == Err(Errno::IO);
        if native != mounted && !is_told {
            let show = |outcome: &side::Outcome| match outcome {
                Ok(bytes) if bytes.len() < 200 => String::from_utf8_lossy(bytes).into_owned(),
                Ok(bytes) => format!("{} bytes", bytes.len()),
                Err(errno) => errno.to_string(),
            };
            let mut text = format!("natively {}, mounted {}", show(&native), show(&mounted));
            if let (Ok(native), Ok(mounted)) = (&native, &mounted) {
                text += &format!(": {}", content_difference(native, mounted));
            }
            self.fail(&text);
        }
        if native.is_ok() && changes_names(operation) {
            let found = paths(self.native.root()).expect("readable");
            self.chooser.learn(&found);
        }
    }

    /// Asks for the migration of some file.
    fn migrate(&mut self) {
        let path = self.mounted.root().join(self.chooser.path());
        let tier = ["fast", "slow"][self.chooser.below(2) as usize];
        let stat = rustix::fs::statat(CWD, &path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        let Ok(stat) = stat else { return };
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return;
        }
        let is_new = tiers(&path).is_some_and(|tiers| tiers != tier);
        match migrate(&path, tier) {
            Ok(()) => {
                self.moving.retain(|(_, number, _)| *number != stat.st_ino);
                if is_new {
                    self.moving.push((path.clone(), stat.st_ino, tier));
                }
            }
            // The kernel has it at the moment.
            Err(Errno::TXTBSY) if self.how == How::Passed => {}
            // It moves already.
            Err(Errno::BUSY) => {}
            Err(errno) => self.fail(&format!("cannot migrate {}: {errno}", path.display())),
        }
        self.history.push_back(format!("migrate {} to {tier}", path.display()));
    }

    /// Counts which of the files that were asked to move are where they were asked to go. The others may
    /// come there later, unless they are gone.
    fn count_moves(&mut self) {
        let moves = &mut self.moves;
        self.moving.retain(|(path, number, tier)| {
            let stat = rustix::fs::statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            if !stat.is_ok_and(|stat| stat.st_ino == *number) {
                return false;
            }
            let is_there = tiers(path).as_deref() == Some(*tier);
            *moves += u64::from(is_there);
            !is_there
        });
    }

    fn happen(&mut self) {
        let happening = match (self.how.is_network(), self.chooser.below(4)) {
            (_, 0) => Happening::Remount,
            (true, 1) => Happening::RestartServer,
            (true, 2) => Happening::KillServer,
            _ => Happening::KillMount,
        };
        self.history.push_back(format!("{happening:?}"));
        if let (Happening::RestartServer | Happening::KillServer, Some(served)) =
            (happening, &mut self.place.served)
        {
            self.is_server_new = true;
            return match happening {
                Happening::RestartServer => served.restart(&self.place.scene),
                _ => served.kill_and_restart(&self.place.scene),
            };
        }
        if let Happening::Remount = happening {
            self.mounted.close_all();
        }
        let Place { mounted, scene, .. } = &mut self.place;
        match happening {
            Happening::Remount => mounted.unmount(),
            _ => mounted.kill(),
        }
        mounted.mount(scene);
        self.is_server_new = false;
        // What was open is closed now, too.
        self.mounted.close_all();
        self.native.close_all();
    }

    /// Compares what names lead to, and what is open.
    fn compare(&mut self) {
        self.count_moves();
        let native = read_tree(self.native.root()).expect("readable");
        match read_tree(self.mounted.root()) {
            Ok(mounted) if mounted == native => {}
            Ok(mounted) => {
                self.fail(&format!("trees differ: {:#?}", differences(&native, &mounted)));
            }
            Err(errno) => self.fail(&format!("cannot read the tree: {errno}")),
        }
        let open = self.native.open_files().zip(self.mounted.open_files());
        for (slot, files) in open.enumerate() {
            let (Some(native), Some(mounted)) = files else { continue };
            let look = |file| {
                let stat = rustix::fs::fstat(file)?;
                // Those that are open for writing alone are not read.
                let content = content(file, &stat).unwrap_or_default();
                Ok::<_, Errno>((side::describe(&stat), content))
            };
            let (native, mounted) = (look(native), look(mounted));
            if native == mounted {
                continue;
            }
            let show = |look: &Result<(String, Vec<u8>), Errno>| match look {
                Ok((what, _)) => what.clone(),
                Err(errno) => errno.to_string(),
            };
            let mut text = format!("natively {}, mounted {}", show(&native), show(&mounted));
            if let (Ok(native), Ok(mounted)) = (&native, &mounted) {
                text += &format!(": {}", content_difference(&native.1, &mounted.1));
            }
            self.fail(&format!("the file in slot {slot} differs: {text}"));
        }
    }

    fn fail(&self, what: &str) -> ! {
        for line in &self.history {
            eprintln!("{line}");
        }
        panic!("{what}\n{:?}: TERRACE_SEED={} repeats it", self.how, self.seed);
    }
}

fn changes_names(operation: &Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::MakeDirectory { .. }
            | O::RemoveDirectory { .. }
            | O::Unlink { .. }
            | O::Symlink { .. }
            | O::Link { .. }
            | O::Rename { .. }
            | O::MakeNode { .. }
            | O::Open { .. }
            | O::LinkOpen { .. }
    )
}
