// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks of programs, on one mount and across two clients of one server.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clients::Pair;
use crate::scene::{Scene, wait_until};
use crate::suites::{How, Place};

/// Locks what it is told to, a line for each lock: kind (`read`, `write`, `none`), `wait`, `try`, or
/// `later` (it waits beside what is told next), start and length, or `flock`, or `ofd` and length for
/// a lock of the open file from the beginning. Answers `ok` or the name of the error.
///
/// - `count`, how often, and a lock: so often opens the file, looks at it, locks, raises the number in
///   front, writes one byte more, and gives the lock back.
/// - `names`, how often, and a lock: so often looks whether there is another file until it can lock,
///   makes the other file, removes it, and gives the lock back; `EEXIST` where it was there.
/// - `get`, kind, start and length: which lock is in the way of that one, as kind, start, length and
///   process; `getofd` the same for a lock of the open file; `none` where there is none.
/// - `dup` takes one more descriptor of the open file, `close` closes one, and opens anew after the
///   last.
const LOCKER: &str = "
import errno, fcntl, os, struct, sys, threading, time
file, spare = os.open(sys.argv[1], os.O_RDWR), []
F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38
types = {'read': fcntl.F_RDLCK, 'write': fcntl.F_WRLCK, 'none': fcntl.F_UNLCK}
kinds = {'read': fcntl.LOCK_SH, 'write': fcntl.LOCK_EX, 'none': fcntl.LOCK_UN}
def change(kind, how, start, length):
    operation = kinds[kind] | (fcntl.LOCK_NB if how == 'try' and kind != 'none' else 0)
    if start == 'flock':
        fcntl.flock(file, operation)
    elif start == 'ofd':
        command = F_OFD_SETLKW if how == 'wait' else F_OFD_SETLK
        fcntl.fcntl(file, command, struct.pack('hhqqi4x', types[kind], 0, 0, int(length), 0))
    else:
        fcntl.lockf(file, operation, int(length), int(start))
def lock(*words):
    try:
        change(*words)
        print('ok', flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
print('ready', flush=True)
for line in sys.stdin:
    if line == 'dup\\n':
        spare.append(os.dup(file))
        print('ok', flush=True)
        continue
    if line == 'close\\n':
        os.close(file)
        file = spare.pop() if spare else os.open(sys.argv[1], os.O_RDWR)
        print('ok', flush=True)
        continue
    words = line.split()
    if words[0] in ('get', 'getofd'):
        wanted = struct.pack('hhqqi4x', types[words[1]], 0, int(words[2]), int(words[3]), 0)
        found = fcntl.fcntl(file, fcntl.F_GETLK if words[0] == 'get' else F_OFD_GETLK, wanted)
        kind, _, start, length, process = struct.unpack('hhqqi4x', found)
        kind = next(name for name in types if types[name] == kind)
        print(kind if kind == 'none' else f'{kind} {start} {length} {process}', flush=True)
    elif words[0] == 'count':
        for _ in range(int(words[1])):
            os.close(file)
            file = os.open(sys.argv[1], os.O_RDWR)
            os.pread(file, 10, 0), os.fstat(file)
            change('write', 'wait', *words[2:])
            os.pwrite(file, b'%010d' % (int(os.pread(file, 10, 0)) + 1), 0)
            os.pwrite(file, b'x', os.fstat(file).st_size)
            change('none', 'wait', *words[2:])
        print('ok', flush=True)
    elif words[0] == 'names':
        answer, other = 'ok', sys.argv[1] + '.other'
        for _ in range(int(words[1])):
            while True:
                os.path.exists(other)
                try:
                    change('write', 'try', *words[2:])
                    break
                except OSError:
                    pass
            if os.path.exists(other):
                answer = 'EEXIST'
            else:
                os.close(os.open(other, os.O_RDWR | os.O_CREAT | os.O_EXCL))
                time.sleep(0.005)
                os.unlink(other)
            change('none', 'wait', *words[2:])
        print(answer, flush=True)
    elif words[1] == 'later':
        threading.Thread(target=lock, args=words, daemon=True).start()
    else:
        lock(*words)
";

/// What a lock that is not to be had says.
const TAKEN: &str = "EAGAIN";

/// What one says that would wait for itself: the error has two names.
const DEADLOCK: [&str; 2] = ["EDEADLK", "EDEADLOCK"];

/// One of each kind.
const LOCKS: [&str; 3] = ["0 10", "flock 0", "ofd 10"];

/// A process that has a file open and locks it.
struct Locker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Locker {
    fn start(file: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", LOCKER]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("Python runs");
        let stdin = child.stdin.take().expect("it is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut locker = Self { child, stdin, stdout };
        assert_eq!(locker.hear(), "ready");
        locker
    }

    /// Asks for a lock, and does not wait for the answer.
    fn tell(&mut self, what: &str) {
        writeln!(self.stdin, "{what}").expect("it listens");
    }

    /// The next answer; empty where it ended.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it is text");
        line.trim().into()
    }

    fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.hear()
    }

    /// Whether there is an answer that was not heard yet.
    fn has_answered(&self) -> bool {
        let mut pipe = [PollFd::new(self.stdout.get_ref(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut pipe, Some(&at_once)).expect("it is a pipe") > 0
    }

    /// Kills it; the kernel then closes what it had open.
    fn kill(&mut self) {
        self.child.kill().expect("it was not waited for");
        self.child.wait().expect("it ends");
    }

    /// Waits until it waits in the kernel.
    fn is_waiting(&self) {
        let threads = format!("/proc/{}/task", self.child.id());
        let is_waiting = |thread: &Path| {
            let place = fs::read_to_string(thread.join("wchan")).unwrap_or_default();
            ["fcntl_setlk", "lock_inode", "flock", "request_wait"]
                .iter()
                .any(|function| place.contains(function))
        };
        wait_until("it waits for its lock", || {
            let threads = fs::read_dir(&threads).expect("it runs");
            threads.flatten().any(|thread| is_waiting(&thread.path()))
        });
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        // One that was killed before is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Paths to one file: twice on one local mount, and on the mounts of two clients.
fn on_each(check: impl Fn(&[PathBuf; 2])) {
    for how in [How::Served, How::Passed] {
        let Some(place) = Place::new(how, &[]) else { return };
        let path = place.mounted.path().join("file");
        fs::write(&path, vec![0; 100_000]).expect("there is room");
        check(&[path.clone(), path]);
    }
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        let paths = [pair.one.path().join("file"), pair.other.path().join("file")];
        fs::write(&paths[0], vec![0; 100_000]).expect("there is room");
        check(&paths);
    }
}

#[test]
fn ranges_that_meet_exclude_each_other() {
    on_each(|[one, other]| {
        let (mut one, mut other) = (Locker::start(one), Locker::start(other));
        assert_eq!(one.ask("write try 0 10"), "ok");
        assert_eq!(other.ask("write try 9 1"), TAKEN);
        assert_eq!(other.ask("read try 5 100"), TAKEN);
        assert_eq!(other.ask("write try 10 10"), "ok", "they touch, and do not meet");
        assert_eq!(one.ask("write try 0 20"), TAKEN);
        assert_eq!(one.ask("read try 0 10"), "ok", "an own lock is changed");
        assert_eq!(other.ask("read try 0 10"), "ok", "readers share");
        assert_eq!(one.ask("write try 0 10"), TAKEN);
        assert_eq!(other.ask("none try 3 4"), "ok");
        assert_eq!(one.ask("write try 3 4"), "ok", "a part that was given back is free");
        assert_eq!(one.ask("write try 2 1"), TAKEN);
        assert_eq!(other.ask("none try 0 0"), "ok", "length 0 is to the end of all");
        assert_eq!(one.ask("write try 0 0"), "ok");
        assert_eq!(other.ask("read try 1000000000000 1"), TAKEN);
    });
}

#[test]
fn whole_files_exclude_each_other() {
    on_each(|[one, other]| {
        let (mut one, mut other) = (Locker::start(one), Locker::start(other));
        assert_eq!(one.ask("read try flock 0"), "ok");
        assert_eq!(other.ask("read try flock 0"), "ok");
        assert_eq!(other.ask("write try flock 0"), TAKEN);
        assert_eq!(one.ask("none try flock 0"), "ok");
        assert_eq!(other.ask("write try flock 0"), "ok");
        assert_eq!(one.ask("read try flock 0"), TAKEN);
        assert_eq!(one.ask("write try 0 10"), "ok", "these are locks of another kind");
    });
}

/// As `flock(2)` says: the old lock is given back before the new one is taken.
#[test]
fn two_that_want_the_whole_file_for_themselves_get_it_one_after_the_other() {
    on_lockers(|mut one, mut other| {
        one.tell("write wait flock 0");
        one.is_waiting();
        other.tell("write wait flock 0");
        // Of the two requests the second may come first.
        wait_until("one gets the lock", || one.has_answered() || other.has_answered());
        let (mut first, mut second) = if one.has_answered() { (one, other) } else { (other, one) };
        assert_eq!(first.hear(), "ok");
        assert!(!second.has_answered());
        assert_eq!(first.ask("none try flock 0"), "ok");
        assert_eq!(second.hear(), "ok");
        assert_eq!(second.ask("none try flock 0"), "ok");
    });
}

#[test]
fn who_cannot_have_the_whole_file_gives_back_what_he_had_of_it() {
    on_lockers(|mut one, mut other| {
        assert_eq!(one.ask("write try flock 0"), TAKEN);
        other.tell("write wait flock 0");
        wait_until("it gets the lock", || other.has_answered());
        assert_eq!(other.hear(), "ok");
    });
}

/// Has two that share a lock do something, on each pair of mounts.
fn on_lockers(test: impl Fn(Locker, Locker)) {
    on_each(|[one, other]| {
        let [mut one, mut other] = [one, other].map(|path| Locker::start(path));
        for locker in [&mut one, &mut other] {
            assert_eq!(locker.ask("read try flock 0"), "ok");
        }
        test(one, other);
    });
}

/// Also what was locked through the same open file meanwhile.
#[test]
fn who_waits_for_the_whole_file_holds_it_in_no_other_way() {
    on_each(|[one, other]| {
        let mut holder = Locker::start(one);
        assert_eq!(holder.ask("read try flock 0"), "ok");
        let mut waiting = [one, other].map(|path| Locker::start(path));
        for locker in &mut waiting {
            locker.tell("write later flock 0");
            locker.is_waiting();
            assert_eq!(locker.ask("read try flock 0"), "ok");
        }
        assert_eq!(holder.ask("none try flock 0"), "ok");
        wait_until("one gets it", || waiting.iter().any(Locker::has_answered));
        let is_first = waiting[0].has_answered();
        let [first, second] = &mut waiting;
        let (first, second) = if is_first { (first, second) } else { (second, first) };
        assert_eq!(first.hear(), "ok");
        assert!(!second.has_answered());
        assert_eq!(first.ask("none try flock 0"), "ok");
        assert_eq!(second.hear(), "ok");
    });
}

#[test]
fn who_waits_gets_the_lock_that_is_given_back() {
    on_each(|[one, other]| {
        for lock in LOCKS {
            let (mut one, mut other) = (Locker::start(one), Locker::start(other));
            assert_eq!(one.ask(&format!("write try {lock}")), "ok");
            other.tell(&format!("write wait {lock}"));
            other.is_waiting();
            assert_eq!(one.ask(&format!("none try {lock}")), "ok");
            assert_eq!(other.hear(), "ok");
            assert_eq!(one.ask(&format!("read try {lock}")), TAKEN);
        }
    });
}

/// As programs expect that have a file open for long, and keep others out with locks: a database.
#[test]
fn who_gets_a_lock_sees_what_was_written_under_it_before() {
    const TIMES: usize = 25;
    on_each(|[one, other]| {
        for length in [100, 100_000] {
            for lock in LOCKS {
                fs::write(one, vec![b'0'; length]).expect("there is room");
                let mut lockers = [one, other].map(|path| Locker::start(path));
                lockers.iter_mut().for_each(|it| it.tell(&format!("count {TIMES} {lock}")));
                for locker in &mut lockers {
                    assert_eq!(locker.hear(), "ok");
                }
                drop(lockers);
                let found = fs::read(one).expect("readable");
                let count = String::from_utf8_lossy(&found[..10]).into_owned();
                assert_eq!(count.parse(), Ok(2 * TIMES), "{length} bytes, {lock}");
                assert_eq!(found.len(), length + 2 * TIMES, "{length} bytes, {lock}");
            }
        }
    });
}

/// A database finds by the name of its journal that somebody died who had the lock.
#[test]
fn who_gets_a_lock_sees_which_names_there_are_beside_it() {
    on_each(|[one, other]| {
        for lock in LOCKS {
            let mut lockers = [one, other].map(|path| Locker::start(path));
            // What was looked at before the first lock there may be a moment old.
            for locker in &mut lockers {
                assert_eq!(locker.ask(&format!("write wait {lock}")), "ok");
                assert_eq!(locker.ask(&format!("none wait {lock}")), "ok");
            }
            lockers.iter_mut().for_each(|it| it.tell(&format!("names 25 {lock}")));
            for locker in &mut lockers {
                assert_eq!(locker.hear(), "ok", "{lock}");
            }
        }
    });
}

/// Writes so many rows, each with a connection and a transaction of its own.
const DATABASE: &str = "
import sqlite3, sys
for row in range(int(sys.argv[2])):
    database = sqlite3.connect(sys.argv[1], timeout=50)
    database.execute('insert into rows values (?)', (row,))
    database.commit()
    database.close()
";

#[test]
fn what_two_clients_commit_to_a_database_is_there() {
    const ROWS: usize = 15;
    let Some(pair) = Pair::new(&[]) else { return };
    let python = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", script]).args(arguments).stdout(Stdio::piped());
        command.spawn().expect("Python runs")
    };
    for mode in ["delete", "truncate", "persist"] {
        let paths = [&pair.one, &pair.other].map(|mounted| mounted.path().join(mode));
        let paths = paths.each_ref().map(|path| path.to_str().expect("it is text"));
        let make = "
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute('pragma journal_mode=' + sys.argv[2])
database.execute('create table rows (number)')
database.commit()";
        assert!(python(make, &[paths[0], mode]).wait().expect("it ends").success());
        let writers = paths.map(|path| python(DATABASE, &[path, &ROWS.to_string()]));
        for mut writer in writers {
            assert!(writer.wait().expect("it ends").success(), "{mode}");
        }
        let count = "
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
print(database.execute('pragma integrity_check').fetchone()[0])
print(database.execute('select count(*) from rows').fetchone()[0])";
        let found = python(count, &paths[..1]).wait_with_output().expect("it ends");
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert_eq!(found, format!("ok\n{}\n", 2 * ROWS), "{mode}");
    }
}

#[test]
fn programs_on_one_mount_that_wait_for_each_other_are_told() {
    for how in [How::Served, How::Network, How::Strict] {
        let Some(place) = Place::new(how, &[]) else { return };
        let path = place.mounted.path().join("file");
        fs::write(&path, vec![0; 100]).expect("there is room");
        let (mut one, mut other) = (Locker::start(&path), Locker::start(&path));
        loop {
            assert_eq!(one.ask("write try 0 10"), "ok");
            assert_eq!(other.ask("write try 10 10"), "ok");
            one.tell("write wait 10 10");
            one.is_waiting();
            other.tell("write wait 5 1");
            wait_until("one of them is told", || one.has_answered() || other.has_answered());
            if !one.has_answered() {
                break;
            }
            // The mount may have heard of the other one first.
            assert!(DEADLOCK.contains(&&*one.hear()), "{how:?}");
            assert_eq!(one.ask("none try 0 0"), "ok");
            assert_eq!(other.hear(), "ok", "{how:?}");
            assert_eq!(other.ask("none try 0 0"), "ok");
        }
        assert!(DEADLOCK.contains(&&*other.hear()), "{how:?}");
        assert_eq!(other.ask("write wait 30 10"), "ok", "{how:?}: in nobody's way");
        assert_eq!(other.ask("none try 10 10"), "ok");
        assert_eq!(one.hear(), "ok");
        other.tell("write wait 5 1");
        other.is_waiting();
        assert_eq!(one.ask("none try 0 0"), "ok");
        assert_eq!(other.hear(), "ok", "{how:?}");
    }
}

/// A program that has a lock, and one on another client that waits for it.
fn held_and_awaited(one: &Path, other: &Path, lock: &str) -> (Locker, Locker) {
    let (mut holder, mut waiting) = (Locker::start(one), Locker::start(other));
    assert_eq!(holder.ask(&format!("write try {lock}")), "ok");
    waiting.tell(&format!("write wait {lock}"));
    waiting.is_waiting();
    (holder, waiting)
}

#[test]
fn who_ends_gives_back_what_it_locked() {
    on_each(|[one, other]| {
        for lock in LOCKS {
            let (mut holder, mut waiting) = held_and_awaited(one, other, lock);
            holder.kill();
            assert_eq!(waiting.hear(), "ok");
        }
    });
}

#[test]
fn a_lock_of_an_open_file_ends_with_its_last_descriptor() {
    on_each(|[one, other]| {
        let (mut one, mut other) = (Locker::start(one), Locker::start(other));
        assert_eq!(one.ask("write try ofd 10"), "ok");
        assert_eq!(other.ask("read try ofd 10"), TAKEN);
        assert_eq!(other.ask("read try 0 10"), TAKEN, "it excludes those of processes");
        assert_eq!(one.ask("read try 0 10"), TAKEN, "its own, too");
        assert_eq!(one.ask("dup"), "ok");
        assert_eq!(one.ask("close"), "ok");
        assert_eq!(other.ask("read try ofd 10"), TAKEN, "one descriptor is left");
        assert_eq!(one.ask("close"), "ok");
        assert_eq!(other.ask("write wait ofd 10"), "ok");
        assert_eq!(other.ask("dup"), "ok");
        assert_eq!(one.ask("write try 20 10"), "ok");
        assert_eq!(other.ask("write try 30 10"), "ok");
        assert_eq!(other.ask("close"), "ok");
        assert_eq!(one.ask("write try 30 10"), "ok", "those of a process end with any");
        assert_eq!(one.ask("read try ofd 10"), TAKEN);
        other.kill();
        assert_eq!(one.ask("read wait ofd 10"), "ok");
    });
}

#[test]
fn who_is_killed_while_it_waits_gets_nothing() {
    on_each(|[one, other]| {
        for lock in LOCKS {
            let (mut holder, mut waiting) = held_and_awaited(one, other, lock);
            waiting.kill();
            assert_eq!(holder.ask(&format!("none try {lock}")), "ok");
            let mut third = Locker::start(other);
            assert_eq!(third.ask(&format!("write wait {lock}")), "ok");
            third.kill();
            let mut fourth = Locker::start(one);
            assert_eq!(fourth.ask(&format!("write wait {lock}")), "ok");
        }
    });
}

#[test]
fn a_client_that_unmounts_or_dies_gives_its_locks_back() {
    let Some(mut pair) = Pair::new(&[]) else { return };
    for is_killed in [false, true] {
        let (one, other) = (pair.one.path().join("file"), pair.other.path().join("file"));
        fs::write(&one, vec![0; 10_000]).expect("there is room");
        let (mut holder, mut waiting) = (Locker::start(&one), Locker::start(&other));
        assert_eq!(holder.ask("write try 0 10"), "ok");
        assert_eq!(holder.ask("write try flock 0"), "ok");
        assert_eq!(waiting.ask("write try 0 10"), TAKEN);
        waiting.tell("write wait 0 10");
        waiting.is_waiting();
        match is_killed {
            // What it had open stays with the server until its session ends.
            true => pair.one.kill(),
            false => {
                holder.kill();
                pair.one.unmount();
            }
        }
        assert_eq!(waiting.hear(), "ok");
        assert_eq!(waiting.ask("write wait flock 0"), "ok");
        drop((holder, waiting));
        pair.one.mount(&pair.scene);
    }
}

/// What is said to be in the way of a lock of a third process, step by step, with names for processes.
fn told_in_the_way([one, other]: &[PathBuf; 2]) -> Vec<String> {
    let (mut first, mut second) = (Locker::start(one), Locker::start(other));
    let mut third = Locker::start(one);
    let names = [(first.child.id(), "first"), (second.child.id(), "second")];
    let mut told = Vec::new();
    for (locker, lock) in [
        (2, "write try 50 10"),
        (1, "write try 100 10"),
        (1, "write try 10 10"),
        // Makes two of it, and one of three.
        (1, "none try 12 4"),
        (2, "write try 40 5"),
        (2, "write try 45 5"),
        // The first is now in front, and then behind the second again.
        (2, "none try 0 0"),
        (2, "read try 0 5"),
        (1, "none try 0 0"),
        (1, "read try 7 1"),
        (1, "read try 5 1"),
        (1, "write try 6 1"),
        (2, "none try 0 0"),
        (2, "read try 2 1"),
        (1, "read try 0 20"),
        (1, "none try 0 6"),
    ] {
        let locker = if locker == 1 { &mut first } else { &mut second };
        assert_eq!(locker.ask(lock), "ok", "{lock}");
        for wanted in ["get write 0 0", "get read 0 0", "get write 11 200", "getofd write 0 0"] {
            let mut found = third.ask(wanted);
            if wanted.starts_with("getofd") && found != "none" {
                // Of who asks so the kernel keeps the process to itself, on mounts alone.
                found.truncate(found.rfind(' ').expect("it has a process"));
            }
            for (process, name) in names {
                found = found.replace(&format!(" {process}"), &format!(" {name}"));
            }
            told.push(format!("{lock}; {wanted}: {found}"));
        }
    }
    told
}

#[test]
fn the_lock_that_is_in_the_way_is_told_as_natively() {
    let Some(scene) = Scene::new() else { return };
    let native = |directory: &Path| {
        let path = directory.join("file");
        fs::write(&path, [0; 100]).expect("there is room");
        told_in_the_way(&[path.clone(), path])
    };
    let expected = native(&scene.directory("native"));
    let memory = tempfile::tempdir_in("/dev/shm").expect("there is one");
    assert_eq!(native(memory.path()), expected, "native file systems do the same");
    on_each(|paths| assert_eq!(told_in_the_way(paths), expected));
}
