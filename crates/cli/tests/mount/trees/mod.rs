// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random operations on a mount and on a directory of the file system that the tiers are on: each has
//! to end alike, and the trees have to stay alike, whatever moves, ends or dies between. Several clients
//! of one server take turns, each with files and directories that it holds open.

mod clients;
mod operation;
mod side;
mod tree;

use std::collections::VecDeque;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType};
use rustix::io::Errno;

use self::clients::Clients;
use self::operation::{Chooser, Operation};
use self::side::{ByPath, migrate, tiers};
use self::tree::{content, content_difference, differences, paths, read_tree};
use crate::suites::How;

/// Operations of one seed.
const STEPS: u64 = 1_000;

/// Something happens after so many operations, on average, and trees are compared after that.
const STEPS_BETWEEN: u64 = 60;

/// Operations that are printed when something is wrong; all of them where one seed is repeated.
const HISTORY: usize = 40;

/// So many files are asked to move after so many operations, on average, where the names lead to any.
const MOVES_AT_ONCE: usize = 4;
const MOVES_BETWEEN: u64 = 2;

/// Migrations that are seen to be done in each history, at least.
const MOVES_MIN: u64 = 10;

/// Seeds of each test.
const SEEDS: u64 = 2;

/// The same where several clients change one tree; `TERRACE_TREE_OPERATIONS` asks for so many operations
/// in all.
const STEPS_OF_SEVERAL: u64 = 4_000;
const STEPS_OF_SEVERAL_BETWEEN: u64 = 200;

/// Seeds of several clients that failed once, each with a few more operations than that took.
const FAILED_BEFORE: [(How, usize, u64, u64); 4] = [
    (How::Strict, 3, 46_100_036, 520),
    (How::Strict, 3, 53_000_010, 1_720),
    (How::Network, 2, 53_000_015, 1_150),
    (How::Network, 2, 54_000_130, 650),
];

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

#[test]
fn three_strict_clients_are_like_a_directory() {
    several_are_like_a_directory(How::Strict, 3);
}

#[test]
fn several_clients_repeat_what_failed_before() {
    for (how, clients, seed, steps) in FAILED_BEFORE {
        let Some(run) = Run::new(how, clients, seed) else { return };
        Run { steps, ..run }.carry_out();
    }
}

#[test]
fn two_clients_are_like_a_directory_once_caches_expired() {
    several_are_like_a_directory(How::Network, 2);
}

fn is_like_a_directory(how: How) {
    for seed in terrace_testkit::seeds(SEEDS) {
        let Some(run) = Run::new(how, 1, seed) else { return };
        run.carry_out();
    }
}

fn several_are_like_a_directory(how: How, clients: usize) {
    let asked = std::env::var("TERRACE_TREE_OPERATIONS");
    let operations = asked.map_or(STEPS_OF_SEVERAL, |text| {
        text.parse().expect("TERRACE_TREE_OPERATIONS is a number")
    });
    for seed in terrace_testkit::seeds(operations.div_ceil(STEPS_OF_SEVERAL)) {
        let Some(run) = Run::new(how, clients, seed) else { return };
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
    clients: Clients,
    how: How,
    steps: u64,
    steps_between: u64,
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
    fn new(how: How, count: usize, seed: u64) -> Option<Self> {
        // The kernel keeps an access control list of an inode that it finds by another name, also after
        // the time that `--cache` allows, until it asks for the attributes of that inode again.
        let sets_access_lists = count == 1 || how == How::Strict;
        let chooser = Chooser::new(seed, count > 1, sets_access_lists);
        let (steps, steps_between) = match count {
            1 => (STEPS, STEPS_BETWEEN),
            _ => (STEPS_OF_SEVERAL, STEPS_OF_SEVERAL_BETWEEN),
        };
        Some(Self {
            clients: Clients::new(how, count)?,
            how,
            steps,
            steps_between,
            seed,
            chooser,
            history: VecDeque::new(),
            moving: Vec::new(),
            moves: 0,
            is_server_new: false,
        })
    }

    fn carry_out(mut self) {
        let is_alone = self.clients.count() == 1;
        for step in 0..self.steps {
            if !is_alone && self.clients.choose(&mut self.chooser) {
                self.write_and_read(step);
            }
            let operation = self.chooser.next();
            self.apply(step, &operation);
            if is_alone && self.chooser.below(MOVES_BETWEEN) == 0 {
                self.count_moves();
                (0..MOVES_AT_ONCE).for_each(|_| self.migrate());
            }
            if self.chooser.below(self.steps_between) == 0 {
                self.compare();
                self.happen();
                self.compare();
            }
        }
        self.compare();
        let (how, seed, steps, moves) = (self.how, self.seed, self.steps, self.moves);
        let clients = self.clients.count();
        println!(
            "trees, {how:?}, {clients} clients: seed {seed}, {steps} operations, {moves} migrations \
             were done"
        );
        assert!(moves >= MOVES_MIN || !is_alone, "{moves} migrations alone");
        self.clients.unmount();
    }

    fn apply(&mut self, step: u64, operation: &Operation) {
        let by_path = self.clients.native().by_path(operation);
        let native = self.clients.native().apply(operation);
        if self.history.len() == HISTORY && std::env::var_os("TERRACE_SEED").is_none() {
            self.history.pop_front();
        }
        let outcome = native.as_ref().map_or_else(Errno::to_string, |_| "ok".into());
        let client = self.clients.current();
        self.history.push_back(format!("{step}, {client}: {operation:?}: {outcome}"));
        let mut mounted = self.clients.mounted().apply(operation);
        // The kernel refuses by itself to move a directory below itself, or something onto a directory above it,
        // before anything else, and takes one that is held to be where it found it last. Another client may
        // have moved or removed it.
        use Errno as E;
        let is_of_kernel =
            matches!(mounted, Err(E::INVAL | E::NOTEMPTY | E::NOTDIR | E::ISDIR | E::STALE));
        if self.clients.count() > 1 && native != mounted && is_of_kernel {
            match by_path {
                ByPath::Same => {}
                ByPath::Other(by_path) => mounted = self.clients.mounted().apply(&by_path),
                ByPath::Removed if native.is_err() => mounted.clone_from(&native),
                ByPath::Removed => {}
            }
        }
        // A server that is new may have lost what was not synced, and who syncs is told.
        let is_told = self.is_server_new
            && matches!(operation, Operation::Sync { .. })
            && mounted == Err(Errno::IO);
        // A server that is new does not know what another client removed before.
        let is_removed = |outcome: &side::Outcome| {
            outcome.as_ref().is_ok_and(|what| String::from_utf8_lossy(what).contains(" links 0 "))
        };
        let is_forgotten = self.is_server_new
            && matches!(operation, Operation::StatHeld { .. })
            && is_removed(&native)
            && is_removed(&mounted);
        // A file onto a directory above it, which another client moved: the kernel may have that one twice, and
        // then sees only that it is a directory (docs/explanation/mount.md).
        let is_seen_twice = self.how == How::Network
            && self.clients.count() > 1
            && matches!(operation, Operation::Rename { .. })
            && (&native, &mounted) == (&Err(E::NOTEMPTY), &Err(E::ISDIR));
        if native != mounted && !is_told && !is_forgotten && !is_seen_twice {
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
            let found = paths(self.clients.native().root()).expect("readable");
            self.chooser.learn(&found);
        }
    }

    /// Has one client write a file and close it, and another open and read it at once: it has to find what
    /// was written, whatever is cached.
    fn write_and_read(&mut self, step: u64) {
        let path = self.chooser.path();
        let Ok(at) = self.clients.native().at(&path) else { return };
        let stat = rustix::fs::statat(CWD, at, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        if !stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file()) {
            return;
        }
        for operation in self.chooser.rewrite(&path) {
            self.apply(step, &operation);
        }
        self.clients.go_on_at_once(&mut self.chooser);
        for operation in self.chooser.reread(&path) {
            self.apply(step, &operation);
        }
    }

    /// Asks for the migration of some file.
    fn migrate(&mut self) {
        let path = self.clients.mounted().root().join(self.chooser.path());
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
        match happening {
            Happening::RestartServer | Happening::KillServer => {
                self.is_server_new = true;
                self.clients.restart_server(happening);
            }
            Happening::Remount | Happening::KillMount => {
                self.is_server_new &= self.clients.count() > 1;
                self.clients.remount(happening);
            }
        }
    }

    /// Compares what names lead to, and what is open.
    fn compare(&mut self) {
        self.count_moves();
        self.clients.wait_for_caches();
        let native = read_tree(self.clients.native().root()).expect("readable");
        match read_tree(self.clients.mounted().root()) {
            Ok(mounted) if mounted == native => {}
            Ok(mounted) => {
                self.fail(&format!("trees differ: {:#?}", differences(&native, &mounted)));
            }
            Err(errno) => self.fail(&format!("cannot read the tree: {errno}")),
        }
        let open = self.clients.open_files();
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
        let test = std::thread::current().name().unwrap_or_default().to_string();
        for line in &self.history {
            eprintln!("{line}");
        }
        panic!(
            "{what}\n{:?}: `TERRACE_SEED={} cargo test -p terrace-cli --test mount {test}` repeats it",
            self.how, self.seed
        );
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
