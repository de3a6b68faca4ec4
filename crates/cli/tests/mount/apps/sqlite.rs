// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SQLite: several processes move money between accounts of one database, and what was committed stays.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;

use super::mover::Mover;
use super::{Stage, program, succeed};
use crate::scene::wait_until;
use crate::suites::How;

/// Processes that write one database.
const WRITERS: u64 = 3;

/// Transactions of each in one run.
const TRANSACTIONS: u64 = 60;

/// So much is committed before something is killed, each time, and that many times.
const COMMITTED_MIN: usize = 40;
const KILLS: u64 = 4;

/// Makes the database, where there are two arguments; otherwise writes: who, from which number on, how
/// many, and prints each number once it is committed. Balances add up to nothing at all times.
const SCRIPT: &str = r#"
import random, sqlite3, sys
path, mode = sys.argv[1:3]
base = sqlite3.connect(path, timeout=60, isolation_level=None)
assert base.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0] == mode, "it cannot do that"
base.execute("PRAGMA synchronous = FULL")
if len(sys.argv) == 3:
    base.executescript("""
        CREATE TABLE account (number INTEGER PRIMARY KEY, balance INTEGER NOT NULL, filler BLOB);
        CREATE TABLE entry (writer INTEGER, number INTEGER, body BLOB, UNIQUE (writer, number));
    """)
    with base:
        rows = [(number, random.randbytes(2000)) for number in range(200)]
        base.executemany("INSERT INTO account VALUES (?, 0, ?)", rows)
    sys.exit()
writer, first, count = map(int, sys.argv[3:])
chance = random.Random(writer * 1000003 + first)
for number in range(first, first + count):
    base.execute("BEGIN IMMEDIATE")
    amount = chance.randrange(1000)
    for change in (amount, -amount):
        base.execute("UPDATE account SET balance = balance + ?, filler = ? WHERE number = ?",
                     (change, chance.randbytes(chance.randrange(4000)), chance.randrange(200)))
    base.execute("INSERT INTO entry VALUES (?, ?, ?)", (writer, number, chance.randbytes(500)))
    base.execute("COMMIT")
    print(number, flush=True)
    if number % 10 == 0:
        assert base.execute("SELECT sum(balance) FROM account").fetchone()[0] == 0, "half of it"
"#;

/// How SQLite makes a transaction one step.
#[derive(Clone, Copy, Debug)]
enum Journal {
    /// Old pages go to a file of their own, which is deleted.
    Delete,
    /// New pages go to a log, and processes find them by a file that all of them map.
    Log,
}

impl Journal {
    fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Log => "wal",
        }
    }
}

#[test]
fn sqlite_with_a_rollback_journal_keeps_its_books_while_they_move() {
    keeps_its_books(How::Served, Journal::Delete);
}

#[test]
fn sqlite_with_a_log_keeps_its_books_while_they_move() {
    keeps_its_books(How::Served, Journal::Log);
}

#[test]
fn sqlite_keeps_its_books_while_they_move_behind_a_server() {
    for journal in [Journal::Delete, Journal::Log] {
        keeps_its_books(How::Network, journal);
    }
}

#[test]
fn what_sqlite_committed_survives_the_mount() {
    for journal in [Journal::Delete, Journal::Log] {
        survives(How::Served, journal, |stage| {
            stage.place.mounted.kill();
            stage.place.mounted.mount(&stage.place.scene);
        });
    }
}

#[test]
fn what_sqlite_committed_survives_the_server() {
    survives(How::Network, Journal::Delete, |stage| {
        let served = stage.place.served.as_mut().expect("there is one");
        served.kill_and_restart(&stage.place.scene);
    });
}

fn keeps_its_books(how: How, journal: Journal) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("sqlite", how, seed) else { return };
        let books = Books::new(stage.path(), journal);
        stage.run(|run| books.grow(&stage, run));
        stage.end();
    }
}

/// Has writers commit at the same time, in each way, to databases that grow with each run.
pub(super) fn keep_books(stage: &Stage, run: u64) {
    for journal in [Journal::Delete, Journal::Log] {
        let directory = stage.path().join(journal.name());
        fs::create_dir_all(&directory).expect("there is room");
        let books = match run {
            0 => Books::new(&directory, journal),
            _ => Books::at(&directory, journal),
        };
        books.grow(stage, run);
    }
}

/// Does something deadly to a mount again and again while SQLite commits.
fn survives(how: How, journal: Journal, kill: impl Fn(&mut Stage)) {
    for seed in terrace_testkit::seeds(1) {
        let Some(mut stage) = Stage::new("sqlite, killed", how, seed) else { return };
        let books = Books::new(stage.path(), journal);
        let log = stage.place.scene.path("writer.out");
        let (mut next, mut moves) = (0, 0);
        for _ in 0..KILLS {
            let mover = Mover::start(&stage.place.scene, stage.path(), seed);
            let mut child = books.write(0, next, u64::from(u32::MAX), &log);
            wait_until("enough is committed", || committed(&log).len() >= COMMITTED_MIN);
            kill(&mut stage);
            moves += mover.moves();
            drop(mover);
            // It went on until it was told of an error; where it was told of none, it is stopped here.
            let _ = child.kill();
            child.wait().expect("it ends");
            books.hear_of_losses();
            books.check();
            let (told, found) = (committed(&log), books.entries(0));
            let last = told.last().expect("it committed something") + 1;
            assert!(found == last || found == last + 1, "{journal:?}: {last} told, {found} there");
            next = found;
        }
        println!("sqlite, {how:?}, {journal:?}: seed {seed}, {KILLS} kills, {moves} migrations");
        stage.end();
    }
}

/// The numbers that a writer was told are committed.
fn committed(log: &Path) -> Vec<u64> {
    let text = fs::read_to_string(log).expect("readable");
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.map(|line| line.parse().expect("it prints numbers")).collect()
}

/// A database.
struct Books {
    path: PathBuf,
    journal: Journal,
}

impl Books {
    fn new(directory: &Path, journal: Journal) -> Self {
        let books = Self::at(directory, journal);
        succeed(books.command());
        books
    }

    /// One that was made before.
    fn at(directory: &Path, journal: Journal) -> Self {
        Self { path: directory.join("books.db"), journal }
    }

    /// Hears of what may be lost of that which a killed writer had not synced, as whoever syncs it next
    /// does, once: SQLite leaves a journal whose beginning was not synced to the next writer.
    fn hear_of_losses(&self) {
        let directory = self.path.parent().expect("it lies in one");
        for path in [&self.path.with_extension("db-journal"), &self.path, directory] {
            let open = File::open(path);
            if open.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                continue;
            }
            let open = open.expect("it can be opened");
            if let Err(error) = open.sync_all() {
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
                open.sync_all().expect("it was told, and nothing was lost since");
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = program("python3");
        command.args(["-c", SCRIPT]).arg(&self.path).arg(self.journal.name());
        command
    }

    /// Starts a process that writes.
    fn write(&self, writer: u64, first: u64, count: u64, log: &Path) -> Child {
        let mut command = self.command();
        command.args([writer, first, count].map(|number| number.to_string()));
        command.stdin(Stdio::null()).stdout(File::create(log).expect("there is room"));
        command.spawn().expect("Python runs")
    }

    /// Has several write at the same time, for the n-th time; all that they committed is there then.
    fn grow(&self, stage: &Stage, run: u64) {
        let writers = 0..WRITERS;
        let logs: Vec<_> =
            writers.map(|writer| stage.place.scene.path(&format!("{writer}.out"))).collect();
        let running: Vec<_> = logs
            .iter()
            .zip(0..)
            .map(|(log, writer)| self.write(writer, run * TRANSACTIONS, TRANSACTIONS, log))
            .collect();
        for mut child in running {
            assert!(child.wait().expect("it ends").success(), "{:?}", self.journal);
        }
        for writer in 0..WRITERS {
            assert_eq!(self.entries(writer), (run + 1) * TRANSACTIONS);
        }
        self.check();
    }

    /// How many entries of a writer there are, from number 0 on without a gap.
    fn entries(&self, writer: u64) -> u64 {
        let numbers = "count(*), count(*) - 1 - ifnull(max(number), -1)";
        let found = self.ask(&format!("SELECT {numbers} FROM entry WHERE writer = {writer}"));
        let (count, gap) = found.split_once('|').expect("two columns");
        assert_eq!(gap, "0", "an entry is missing");
        count.parse().expect("a number")
    }

    fn check(&self) {
        assert_eq!(self.ask("PRAGMA integrity_check"), "ok");
        assert_eq!(self.ask("SELECT sum(balance) FROM account"), "0");
    }

    fn ask(&self, question: &str) -> String {
        let mut command = program("sqlite3");
        command.args(["-batch", "-bail", "-cmd", ".timeout 60000"]).arg(&self.path).arg(question);
        succeed(command).trim().into()
    }
}
