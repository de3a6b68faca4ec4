// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that is stopped while it holds the descriptor of an object: what it reads when it goes
//! on, and that nobody waits for it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use terrace_store::{
    Backend, BackendExt, Clock, ErrorKind, Key, MoveKind, Object, ObjectExt, Open, Store,
    SystemClock,
};

use crate::scene::{Scene, key};
use crate::served::Served;

const TEST: &str = "stopped::a_stopped_reader_never_gets_what_is_not_its_object";

/// Names the address of the store, in the process that reads.
const ADDRESS: &str = "TERRACE_TEST_READ";

/// Every word of an object is its tag.
const WORDS: usize = 8 << 10;

/// What is waited for comes earlier on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn bytes(tag: u64) -> Vec<u8> {
    tag.to_le_bytes().repeat(WORDS)
}

/// A moment on the clock that all processes share.
fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

// The process that reads.

/// Reads an object again and again, and says when what it finds is other than before: when the last
/// read began that found the former tag, and what it finds. A line on standard input makes it open
/// the object anew; it ends with that.
fn read_and_tell(address: &str) {
    let store = Store::open(address).expect("it is served");
    let asked = AtomicUsize::new(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for line in std::io::stdin().lines() {
                line.expect("a pipe");
                asked.fetch_add(1, Ordering::SeqCst);
            }
            std::process::exit(0);
        });
        let (mut opened, mut object): (usize, Option<Box<dyn Object>>) = (0, None);
        let (mut last, mut last_ns) = (String::new(), 0);
        let mut buffer = vec![0; 8 * WORDS];
        loop {
            let begin_ns = now_ns();
            let now_asked = asked.load(Ordering::SeqCst);
            if opened != now_asked {
                object = store.open(&key("a/x"), &Open::read()).ok();
                opened = now_asked;
            }
            let found = match object.as_ref().map(|object| object.read(0, &mut buffer)) {
                Some(Ok(count)) => tags(&buffer[..count]),
                Some(Err(error)) => error.kind().word().into(),
                None => "closed".into(),
            };
            let found = format!("{opened} {found}");
            if found != last {
                println!("\nfound {last_ns} {found}");
                last = found;
            }
            last_ns = begin_ns;
        }
    });
}

/// The tags of the words, each once.
fn tags(found: &[u8]) -> String {
    let words = found.chunks(8).map(|word| word.try_into().map_or(u64::MAX, u64::from_le_bytes));
    let mut tags: Vec<u64> = words.collect();
    tags.dedup();
    tags.iter().map(u64::to_string).collect::<Vec<_>>().join("+")
}

// The process that stops it.

/// What the reader says.
#[derive(Debug)]
struct Said {
    /// When the last read began that found what was said before.
    before_ns: u64,
    /// How often it had been asked to open the object.
    opened: usize,
    /// Tags, or how it failed.
    found: String,
}

struct Reader {
    child: Child,
    lines: Receiver<String>,
    opened: usize,
}

impl Reader {
    fn start(address: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args([TEST, "--exact", "--nocapture"]).env(ADDRESS, address);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Until either is gone.
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines, opened: 1 }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Stops it wherever it is, and returns once it stands.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let clock = SystemClock::default();
        let stat = format!("/proc/{}/task", self.child.id());
        let is_stopped = || {
            let mut tasks = std::fs::read_dir(&stat).expect("it exists");
            tasks.all(|task| {
                let stat = task.expect("readable").path().join("stat");
                let stat = std::fs::read_to_string(stat).expect("readable");
                stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
            })
        };
        while !is_stopped() {
            assert!(clock.now_ns() < PATIENCE.as_nanos() as u64, "it does not stop");
            std::thread::yield_now();
        }
    }

    fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn open_again(&mut self) {
        writeln!(self.child.stdin.as_mut().expect("a pipe")).expect("it listens");
        self.opened += 1;
    }

    fn hear(&mut self) -> Said {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("it says something");
            let Some(said) = line.strip_prefix("found ") else { continue };
            let words: Vec<_> = said.split(' ').collect();
            let [before_ns, opened, found] = words[..] else { panic!("{line:?}") };
            return Said {
                before_ns: before_ns.parse().expect("a number"),
                opened: opened.parse().expect("a number"),
                found: found.into(),
            };
        }
    }

    /// Waits until it finds this tag. A read that began before `since_ns` may have found what was
    /// there `before`, or a part of either.
    fn finds(&mut self, tag: u64, before: u64, since_ns: u64) {
        loop {
            let said = self.hear();
            assert!(said.before_ns < since_ns, "{said:?} after what was there before");
            if said.opened == self.opened && said.found == tag.to_string() {
                return;
            }
            let parts = said.found.split('+').filter(|part| !part.is_empty());
            let is_allowed = |part: &str| [tag, before].iter().any(|tag| part == tag.to_string());
            assert!(parts.into_iter().all(is_allowed), "{said:?} instead of {tag}");
        }
    }

    /// Waits until it holds a file of this directory, and none that was deleted.
    fn holds_a_file_of(&self, directory: &Path) {
        let clock = SystemClock::default();
        let descriptors = format!("/proc/{}/fd", self.child.id());
        let is_so = || {
            let entries = std::fs::read_dir(&descriptors).expect("it exists").flatten();
            // One that was closed meanwhile leads nowhere.
            let files = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            let files: Vec<_> = files.filter(|file| file.starts_with(directory)).collect();
            let is_gone = |file: &PathBuf| file.to_string_lossy().ends_with("(deleted)");
            !files.is_empty() && !files.iter().any(is_gone)
        };
        while !is_so() {
            assert!(clock.now_ns() < PATIENCE.as_nanos() as u64, "it does not read by itself");
            std::thread::yield_now();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A store that is changed while the reader stands.
struct Changed<'a> {
    store: &'a Store,
    tag: u64,
}

impl Changed<'_> {
    fn next(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Takes the place that another file may have left.
    fn fill(&mut self, name: &str) {
        let tag = self.next();
        self.store.write_all(&key(name), &bytes(tag)).expect("room");
    }

    fn migrate(&self, name: &Key, to: &str) {
        for ticket in
            self.store.admin().migrate(name, to, MoveKind::Move, 0, "test").expect("queued")
        {
            let ended = self.store.admin().wait(ticket, PATIENCE).expect("known");
            let outcome = ended.expect("nobody waits for the reader").outcome;
            assert_eq!(outcome.as_deref(), Some("done"));
        }
    }

    /// Moves the object, changes it, and puts another one where it was; returns its new tag.
    fn move_away(&mut self, to: &str) -> u64 {
        self.migrate(&key("a/x"), to);
        let tag = self.next();
        self.store.write_all(&key("a/x"), &bytes(tag)).expect("room");
        self.fill("a/other");
        tag
    }

    /// Deletes the object, and makes another one of its name; returns the tag of that.
    fn make_anew(&mut self) -> u64 {
        self.store.delete(&key("a/x")).expect("nobody waits for the reader");
        let error = self.store.stat(&key("a/x")).expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        self.fill("a/other");
        let tag = self.next();
        self.store.write_all(&key("a/x"), &bytes(tag)).expect("room");
        tag
    }
}

#[test]
fn a_stopped_reader_never_gets_what_is_not_its_object() {
    if let Ok(address) = std::env::var(ADDRESS) {
        return read_and_tell(&address);
    }
    let (served, address) = Served::over_unix_at(Scene::new());
    let directory = served.scene.path("store");
    let mut changed = Changed { store: &served.owner, tag: 1 };
    changed.store.write_all(&key("a/x"), &bytes(1)).expect("room");
    let mut reader = Reader::start(&address);
    reader.finds(1, 1, u64::MAX);
    let mut before = 1;
    for round in 0..12 {
        let to = if round % 2 == 0 { "slow" } else { "fast" };
        reader.holds_a_file_of(&directory);
        reader.stop();
        let after = changed.move_away(to);
        let since_ns = now_ns();
        reader.go_on();
        reader.finds(after, before, since_ns);

        reader.holds_a_file_of(&directory);
        reader.stop();
        let anew = changed.make_anew();
        reader.go_on();
        // The handle is that of the old object, which is gone: its bytes, or an error, as it was.
        reader.open_again();
        loop {
            let said = reader.hear();
            if said.opened == reader.opened {
                assert_eq!(said.found, anew.to_string(), "opened after it was made");
                break;
            }
            let is_old = said.found == after.to_string();
            let is_gone = ["not-found", "stale"].contains(&said.found.as_str());
            assert!(is_old || is_gone, "{said:?} of an object that is gone");
        }
        before = anew;
    }
}
