// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two clients of one server, each with its own mount: what one sees of what the other does.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use terrace_core::Random;

use crate::apps::run_while_files_move;
use crate::natives::{NOBODY, as_nobody};
use crate::scene::{Mounted, Scene, Served, wait_until};

/// Kept with the metadata, and kept as an object.
const SIZES: [usize; 2] = [100, 300_000];

/// Records that each process writes; more where the file moves meanwhile.
const RECORDS: usize = 300;
const RECORDS_MOVING: usize = 4000;

/// Processes on each mount.
const PROCESSES: usize = 2;

/// A server and two mounts of it.
pub(crate) struct Pair {
    // In the order in which they have to end.
    pub(crate) one: Mounted,
    pub(crate) other: Mounted,
    pub(crate) served: Served,
    pub(crate) scene: Scene,
}

impl Pair {
    /// `None` where that cannot be tested here.
    pub(crate) fn new(how: &[&str]) -> Option<Self> {
        let scene = Scene::new()?;
        let served = Served::start(&scene);
        let one = scene.mount_served(&served, "one", how);
        let other = scene.mount_served(&served, "other", how);
        Some(Self { one, other, served, scene })
    }

    /// Requests that the server has heard from everybody, this question included.
    pub(crate) fn requests(&self) -> usize {
        let address = self.served.address();
        let status = self.scene.ok(["--store", &address, "--json", "server", "status"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        status["requests"].as_u64().expect("a number") as usize
    }

    fn paths(&self, name: &str) -> [PathBuf; 2] {
        [self.one.path().join(name), self.other.path().join(name)]
    }
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(seed).fill(&mut bytes);
    bytes
}

#[test]
fn what_one_closed_is_seen_by_who_opens_it() {
    let Some(pair) = Pair::new(&[]) else { return };
    for size in SIZES {
        let [one, other] = pair.paths(&format!("file{size}"));
        fs::write(&one, bytes(0, size)).expect("there is room");
        // Also where it was cached before, and where the length stays.
        for seed in 1..20 {
            assert_eq!(fs::read(&other).expect("readable"), bytes(seed - 1, size));
            let (writer, reader) = if seed % 2 == 0 { (&one, &other) } else { (&other, &one) };
            let mut file = File::options().write(true).open(writer).expect("it is there");
            file.write_all(&bytes(seed, size)).expect("there is room");
            drop(file);
            assert_eq!(fs::read(reader).expect("readable"), bytes(seed, size), "{size} {seed}");
        }
    }
}

/// So often one closes a file anew that the other opens, beside so many programs of the other one.
const TURNS: usize = 30;
const CHANGERS: usize = 3;

#[test]
fn what_one_closed_is_seen_by_who_opens_it_beside_changes_of_something_else() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [one, other] = pair.paths("file");
    let [_, changed] = pair.paths("changed");
    fs::create_dir(&changed).expect("it is new");
    let change = || {
        let how = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&changed, how).expect("it is there");
    };
    for length in SIZES {
        for turn in 0..TURNS {
            fs::write(&one, bytes(1, length)).expect("there is room");
            // It is open all the time, and opened again: so its attributes are known.
            let reader = File::open(&other).expect("it is there");
            assert_eq!(whole(&reader).len(), length);
            drop(File::open(&other).expect("it is there"));
            let now = bytes(2, 2 * length);
            fs::write(&one, &now).expect("there is room");
            let (begun, is_over) = (Barrier::new(CHANGERS + 1), AtomicBool::new(false));
            let read = std::thread::scope(|scope| {
                for _ in 0..CHANGERS {
                    scope.spawn(|| {
                        begun.wait();
                        while !is_over.load(Ordering::Relaxed) {
                            change();
                        }
                    });
                }
                begun.wait();
                change();
                let read = fs::read(&other);
                is_over.store(true, Ordering::Relaxed);
                read
            });
            let read = read.expect("it is there");
            assert_eq!(read.len(), now.len(), "in turn {turn}");
            assert!(read == now, "in turn {turn}");
        }
    }
}

#[test]
fn a_name_that_one_made_is_found_by_the_other_at_once() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        for round in 0..20 {
            let [one, other] = pair.paths(&format!("directory{round}"));
            // From now on the first knows which names there are, until another one comes.
            fs::create_dir(&one).expect("it is new");
            fs::write(one.join("own"), b"").expect("there is room");
            fs::metadata(one.join("new")).expect_err("nobody has made it");
            fs::write(other.join("new"), b"new").expect("there is room");
            assert_eq!(fs::read(one.join("new")).expect("it is there"), b"new", "{how:?}");
            fs::create_dir(one.join("below")).expect("it is new");
            fs::rename(other.join("new"), other.join("below/moved")).expect("it is there");
            assert_eq!(fs::read(one.join("below/moved")).expect("it is there"), b"new", "{how:?}");
        }
    }
}

#[test]
fn what_one_cut_or_replaced_is_seen_by_who_opens_it() {
    let Some(pair) = Pair::new(&[]) else { return };
    for size in SIZES {
        let [one, other] = pair.paths(&format!("file{size}"));
        fs::write(&one, bytes(0, size)).expect("there is room");
        assert_eq!(fs::read(&other).expect("readable").len(), size);
        File::options().write(true).open(&one).and_then(|file| file.set_len(10)).expect("cut");
        let mut found = Vec::new();
        let mut file = File::open(&other).expect("it is there");
        file.read_to_end(&mut found).expect("readable");
        assert_eq!(found, bytes(0, size)[..10]);
        let mut file = OpenOptions::new().append(true).open(&other).expect("it is there");
        file.write_all(&bytes(1, size)).expect("there is room");
        drop(file);
        let expected = [&bytes(0, size)[..10], &bytes(1, size)].concat();
        assert_eq!(fs::read(&one).expect("readable"), expected);
    }
}

#[test]
fn who_has_a_file_open_reads_what_its_attributes_tell_of() {
    let Some(pair) = Pair::new(&[]) else { return };
    for size in [3, 1500, SIZES[1]] {
        let [one, other] = pair.paths(&format!("file{size}"));
        let mut expected = bytes(0, size);
        fs::write(&one, &expected).expect("there is room");
        let writer = File::options().write(true).open(&one).expect("it is there");
        let reader = File::open(&other).expect("it is there");
        assert_eq!(whole(&reader), expected);
        for seed in 1..4 {
            let added = bytes(seed, size);
            // In this order: the length tells of what was there before it.
            writer.write_all_at(&[seed as u8], 0).expect("there is room");
            writer.write_all_at(&added, expected.len() as u64).expect("there is room");
            expected.extend(added);
            expected[0] = seed as u8;
            let length = || reader.metadata().expect("it is open").len();
            wait_until("its length is seen", || length() == expected.len() as u64);
            assert!(whole(&reader) == expected, "{size} {seed}");
            // Also where nothing tells of it but the bytes.
            writer.write_all_at(&[seed as u8 + 100], 1).expect("there is room");
            expected[1] = seed as u8 + 100;
            wait_until("it is read", || whole(&reader) == expected);
        }
    }
}

/// All bytes of an open file.
fn whole(mut file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("it is a file");
    file.read_to_end(&mut bytes).expect("readable");
    bytes
}

#[test]
fn a_file_that_is_closed_while_the_server_is_silent_is_closed_when_it_answers() {
    let Some(scene) = Scene::new() else { return };
    let served = Served::start(&scene);
    let other = scene.mount_served(&served, "other", &[]);
    let is_stored = || scene.ok(["ls", "files/"]).lines().count() > 0;
    for (name, is_written) in [("reader", false), ("writer", true)] {
        let one = scene.mount_impatient(&served, name);
        fs::write(other.path().join("file"), bytes(0, SIZES[1])).expect("there is room");
        let how = File::options().read(true).write(is_written).clone();
        let mut file = how.open(one.path().join("file")).expect("it is there");
        if is_written {
            file.write_all(b"changed").expect("there is room");
        }
        fs::remove_file(other.path().join("file")).expect("it is there");
        assert!(is_stored(), "it is open");
        served.set_silent(true);
        drop(file);
        let why = "cannot tell yet that files were closed";
        wait_until("it was told in vain", || scene.has_logged(name, why));
        served.set_silent(false);
        wait_until("it was told again", || !is_stored());
    }
}

#[test]
fn names_that_one_makes_and_removes_are_seen_by_the_other() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [one, other] = pair.paths("directory");
    fs::create_dir(&one).expect("it is free");
    wait_until("the other sees it", || other.is_dir());
    fs::write(one.join("a"), b"a").expect("there is room");
    wait_until("the other sees the file", || other.join("a").exists());
    fs::rename(one.join("a"), one.join("b")).expect("it is there");
    wait_until("the old name is gone", || !other.join("a").exists());
    assert_eq!(fs::read(other.join("b")).expect("the new one is there"), b"a");
    fs::remove_file(other.join("b")).expect("it is there");
    wait_until("it is gone for the first", || !one.join("b").exists());
    fs::remove_dir(&one).expect("it is empty");
}

#[test]
fn strict_clients_see_each_write_at_once() {
    let Some(pair) = Pair::new(&["--strict"]) else { return };
    for size in SIZES {
        let [one, other] = pair.paths(&format!("file{size}"));
        fs::write(&one, b"").expect("there is room");
        let open = |path| File::options().read(true).write(true).open(path).expect("it is there");
        let (one, other) = (open(&one), open(&other));
        for seed in 0..50 {
            let (from, to) = if seed % 2 == 0 { (&one, &other) } else { (&other, &one) };
            let (offset, expected) = (seed * 7, bytes(seed, size));
            from.write_all_at(&expected, offset).expect("there is room");
            let mut found = vec![0; size];
            to.read_exact_at(&mut found, offset).expect("it is that long");
            assert!(found == expected, "size {size} seed {seed}");
            let length = to.metadata().expect("it is open").len();
            assert_eq!(length, size as u64 + offset, "the length is seen, too");
        }
        one.set_len(5).expect("it can be cut");
        assert_eq!(other.metadata().expect("it is open").len(), 5);
        assert_eq!((&other).seek(SeekFrom::End(0)).expect("it is open"), 5);
    }
}

#[test]
fn strict_clients_see_names_at_once() {
    let Some(pair) = Pair::new(&["--strict"]) else { return };
    let [one, other] = pair.paths("directory");
    for _ in 0..20 {
        assert!(!other.exists());
        fs::create_dir(&one).expect("it is free");
        assert!(other.is_dir());
        fs::write(other.join("a"), b"a").expect("there is room");
        assert_eq!(fs::read(one.join("a")).expect("it is there"), b"a");
        fs::rename(one.join("a"), one.join("b")).expect("it is there");
        assert!(!other.join("a").exists() && other.join("b").exists());
        assert_eq!(fs::read_dir(&other).expect("it is there").count(), 1);
        fs::remove_dir_all(&other).expect("it is there");
        assert!(!one.exists());
    }
}

#[test]
fn records_that_two_clients_append_stay_whole() {
    // Across pages, and across what the kernel reads ahead; the last is the longest that one request
    // takes wherever it lies in memory.
    for (length, records) in [(62, RECORDS), (5001, RECORDS), ((1 << 20) - 4096, 10)] {
        for how in [&[][..], &["--strict"]] {
            let Some(pair) = Pair::new(how) else { return };
            check_appends(&pair.paths("log"), length, records);
        }
    }
}

#[test]
fn records_that_two_clients_append_stay_whole_while_the_file_moves() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        let what = format!("two clients appending, {how:?}");
        run_while_files_move(&pair.scene, pair.one.path(), &what, 1, |run| {
            let paths = pair.paths(&format!("log{run}"));
            check_appends(&paths, 62, RECORDS_MOVING);
        });
    }
}

fn check_appends(paths: &[PathBuf; 2], length: usize, records: usize) {
    fs::write(&paths[0], b"").expect("there is room");
    // The file outgrows the metadata on the way.
    let script = "import os, sys
file, length = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), int(sys.argv[5])
for number in range(int(sys.argv[3])):
    record = f'{sys.argv[2]} {number} '.ljust(length - 1, '.') + '\\n'
    assert os.write(file, record.encode()) == length
";
    run_on_both(paths, script, records, &[length]);
    let text = fs::read_to_string(&paths[0]).expect("readable");
    assert_eq!(text.len(), length * records * 2 * PROCESSES);
    let mut next = [0; 2 * PROCESSES];
    for line in text.lines() {
        assert_eq!(line.len(), length - 1, "a record is whole: {line:.80}");
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
        let (process, record) = (number().expect("who wrote"), number().expect("which"));
        assert_eq!(record, next[process], "records of a process come in their order");
        assert!(words.next().is_some_and(|rest| rest.bytes().all(|byte| byte == b'.')));
        next[process] += 1;
    }
    assert_eq!(next, [records; 2 * PROCESSES]);
}

#[test]
fn parts_of_one_file_are_written_from_two_clients() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        check_parts(&pair.paths("shared"), 1000, RECORDS);
    }
}

#[test]
fn parts_of_one_file_are_written_from_two_clients_while_it_moves() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        let what = format!("two clients writing parts, {how:?}");
        run_while_files_move(&pair.scene, pair.one.path(), &what, 1, |run| {
            check_parts(&pair.paths(&format!("shared{run}")), 100, RECORDS_MOVING);
        });
    }
}

fn check_parts(paths: &[PathBuf; 2], length: usize, records: usize) {
    fs::write(&paths[0], b"").expect("there is room");
    // Parts lie between each other, and share pages.
    let script = "import os, sys
file, own, count, others, length = os.open(sys.argv[1], os.O_RDWR), *map(int, sys.argv[2:])
for number in range(count):
    part = bytes([own + 1]) * length
    assert os.pwrite(file, part, (number * others + own) * length) == length
";
    run_on_both(paths, script, records, &[length]);
    for path in paths {
        let found = fs::read(path).expect("readable");
        assert_eq!(found.len(), length * records * 2 * PROCESSES);
        for (index, part) in found.chunks(length).enumerate() {
            let own = (index % (2 * PROCESSES)) as u8;
            assert!(part.iter().all(|byte| *byte == own + 1), "part {index}");
        }
    }
}

/// Runs a script of Python in several processes on each of two paths to one file, all at a time.
/// Arguments: path, number of the process, `records`, how many processes there are, `more`.
fn run_on_both(paths: &[PathBuf; 2], script: &str, records: usize, more: &[usize]) {
    let start = |number: usize, path: &Path| -> Child {
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(path).arg(number.to_string());
        command.arg(records.to_string()).arg((2 * PROCESSES).to_string());
        command.args(more.iter().map(usize::to_string));
        command.stdin(Stdio::null()).spawn().expect("Python runs")
    };
    let running: Vec<_> =
        (0..2 * PROCESSES).map(|number| start(number, &paths[number % 2])).collect();
    for mut child in running {
        assert!(child.wait().expect("it ends").success());
    }
}

/// Makes a file, or cuts what has its name: whether it made one, or what is wrong.
fn make_or_cut(path: &Path, user: u32) -> Result<bool, String> {
    let mut how = OpenOptions::new();
    let opened = how.read(true).write(true).create(true).truncate(true).open(path);
    match opened.and_then(|file| file.metadata()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && user != 0 => Ok(false),
        Err(error) => Err(error.to_string()),
        Ok(found) if found.uid() != user => Err("opened, and only another user may".into()),
        Ok(found) if found.len() != 0 => Err(format!("{} bytes are left of it", found.len())),
        Ok(found) => Ok(found.nlink() == 1),
    }
}

/// Whoever makes a file by a name that another client gave to one of its own a moment before opens that
/// one as if it had been there all the time.
#[test]
fn who_makes_what_another_client_has_just_made_opens_that() {
    const ROUNDS: usize = 400;
    let Some(pair) = Pair::new(&[]) else { return };
    pair.scene.let_everybody_in();
    fs::set_permissions(pair.one.path(), Permissions::from_mode(0o777)).expect("it is ours");
    let theirs = pair.one.path().join("theirs");
    for user in [0, NOBODY] {
        let together = Barrier::new(2);
        let name = |round| format!("of{user}-{round}");
        let link = |round| {
            fs::write(&theirs, [7; 5000]).expect("there is room");
            fs::set_permissions(&theirs, Permissions::from_mode(0o600)).expect("it is ours");
            together.wait();
            let linked = fs::hard_link(&theirs, pair.one.path().join(name(round)));
            together.wait();
            linked.is_ok()
        };
        let make = |round| {
            together.wait();
            let made = make_or_cut(&pair.other.path().join(name(round)), user);
            together.wait();
            made
        };
        let make_all = || (0..ROUNDS).map(make).collect::<Vec<_>>();
        let (linked, made) = thread::scope(|scope| {
            let linking = scope.spawn(|| (0..ROUNDS).map(link).collect::<Vec<_>>());
            let made = if user == 0 { make_all() } else { as_nobody(make_all) };
            (linking.join().expect("no panic"), made)
        });
        for (round, (is_linked, made)) in linked.into_iter().zip(made).enumerate() {
            let made = made.unwrap_or_else(|wrong| panic!("{user}, {round}: {wrong}"));
            assert_ne!(is_linked, made, "{user}, {round}: one was the first");
        }
    }
}
