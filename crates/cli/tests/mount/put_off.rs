// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small writes over the network of which programs are told before the server has done them: whoever asks
//! next sees them, and what cannot be done is told.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use terrace_core::{Clock, Random, SystemClock};

use crate::scene::{Scene, Served, together, wait_until};
use crate::segments::stored;

const BLOCK: usize = 4096;

/// At the same time: only the first of them may have to wait.
const WRITERS: usize = 8;

/// Of each test that does what comes to a generator's mind.
const OPERATIONS: u64 = 1500;
const LENGTH_MAX: u64 = 200_000;

/// Some of which lie with either of two servers.
const FILES_MAX: usize = 20;

/// Bytes of each file with one server until the next one has the following ones.
const STRIPE: usize = 64 << 10;

/// A write that is waited for, and how often one is done while another is not.
const LARGE: usize = 40 << 10;
const LARGE_WRITES: usize = 100;

/// So often writers begin at the same time until most of them go on.
const TRIES_MAX: usize = 20;

/// Longer than they take where nobody waits for the server.
const GO_ON_MAX: Duration = Duration::from_secs(1);

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).expect("it is there")
}

/// Makes a file whose bytes are in an object, and durable.
fn make(path: &Path, blocks: usize) {
    let file = File::create(path).expect("it can be made");
    file.write_all_at(&vec![0; blocks * BLOCK], 0).expect("there is room");
    file.sync_all().expect("synced");
}

fn block(of: usize) -> Vec<u8> {
    vec![of as u8 + 1; BLOCK]
}

/// Each writes a block of its own.
struct Writers {
    threads: Vec<JoinHandle<(File, io::Result<()>)>>,
    done: Receiver<usize>,
}

impl Writers {
    /// Has a server say nothing while they write. All but one were told that they are done: beside others
    /// nobody waits, unless something else is asked for at the moment.
    fn put_off(path: &Path, served: &Served) -> Self {
        Self::until(&[path; WRITERS], served, |waiting| waiting.len() <= 1)
    }

    /// The same where the one that may wait writes another file: of this one nobody does.
    fn put_off_beside(path: &Path, beside: &Path, served: &Served) -> Self {
        let mut paths = [path; WRITERS];
        paths[0] = beside;
        Self::until(&paths, served, |waiting| matches!(waiting, [] | [0]))
    }

    fn until(paths: &[&Path], served: &Served, is_enough: impl Fn(&[usize]) -> bool) -> Self {
        for _ in 0..TRIES_MAX {
            // The kernel has only one write at a time where it caches anything.
            let open = |path: &&Path| File::options().write(true).open(path).expect("it is there");
            let files = paths.iter().map(open).collect();
            served.set_silent(true);
            let writers = Self::start(files);
            let mut waiting: Vec<_> = (0..paths.len()).collect();
            while !is_enough(&waiting)
                && let Ok(writer) = writers.done.recv_timeout(GO_ON_MAX)
            {
                waiting.retain(|other| *other != writer);
            }
            if is_enough(&waiting) {
                return writers;
            }
            served.set_silent(false);
            writers.end();
        }
        panic!("nobody goes on before a server that says nothing has written");
    }

    fn start(files: Vec<File>) -> Self {
        let (sender, done) = channel();
        let threads = files.into_iter().enumerate().map(|(writer, file)| {
            let sender = sender.clone();
            thread::spawn(move || {
                let written = file.write_all_at(&block(writer), (writer * BLOCK) as u64);
                // The test may have heard enough.
                let _ = sender.send(writer);
                (file, written)
            })
        });
        Self { threads: threads.collect(), done }
    }

    fn end(self) -> Vec<(File, io::Result<()>)> {
        self.threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    }
}

fn assert_blocks(path: &Path) {
    let found = fs::read(path).expect("readable");
    for writer in 0..WRITERS {
        assert!(found[writer * BLOCK..][..BLOCK] == block(writer), "block {writer}");
    }
}

#[test]
fn who_writes_beside_others_goes_on_and_whoever_looks_sees_it() {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let mut mounted = scene.mount_all_patient(&[&served], "mnt", &[]);
    let path = mounted.path().join("file");
    make(&path, WRITERS);
    let writers = Writers::put_off(&path, &served);
    // All of these wait for the server.
    let readers = (0..WRITERS).map(|writer| {
        let path = path.clone();
        thread::spawn(move || {
            let mut found = vec![0; BLOCK];
            let file = File::open(path).expect("it is there");
            file.read_exact_at(&mut found, (writer * BLOCK) as u64).expect("readable");
            found
        })
    });
    let readers: Vec<_> = readers.collect();
    served.set_silent(false);
    let files = writers.end();
    let found: Vec<_> = readers.into_iter().map(|one| one.join().expect("no panic")).collect();
    // Only the one that was waited for may have come later than who read it.
    let fresh = (0..WRITERS).filter(|writer| found[*writer] == block(*writer)).count();
    assert!(fresh >= WRITERS - 1, "{fresh} of {WRITERS}");
    for (file, written) in files {
        written.expect("written");
        file.sync_all().expect("synced");
    }
    assert_blocks(&path);
    mounted.unmount();
    mounted.mount(&scene);
    assert_blocks(&path);
    served.stop();
}

/// The server with the names would not wait for the one with the bytes.
#[test]
fn who_is_renamed_has_its_writes_first() {
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    let (names, data) = (Served::start(&first), Served::start(&second));
    let mounted = first.mount_all_patient(&[&names, &data], "mnt", &[]);
    let other = second.mount_all_patient(&[&names, &data], "other", &[]);
    let paths = (0..).map(|number| mounted.path().join(format!("file{number}")));
    // The bytes of each are with one of them.
    let is_with_data = |path: &PathBuf| {
        let before = stored(&second);
        make(path, WRITERS);
        stored(&second) >= before + (WRITERS * BLOCK) as u64
    };
    let found: Vec<_> = paths.take(FILES_MAX).filter(is_with_data).take(2).collect();
    let [path, beside] = &found[..] else { panic!("all files are with one server") };
    let writers = Writers::put_off_beside(path, beside, &data);
    let renaming = {
        let (from, to) = (path.clone(), mounted.path().join("renamed"));
        thread::spawn(move || fs::rename(from, to))
    };
    SystemClock::default().sleep(GO_ON_MAX);
    let is_early = renaming.is_finished();
    data.set_silent(false);
    assert!(!is_early, "nobody knows yet whether it is written");
    renaming.join().expect("no panic").expect("renamed");
    let found = fs::read(other.path().join("renamed")).expect("readable");
    for (writer, (_, written)) in writers.end().into_iter().enumerate() {
        written.expect("written");
        let is_there = found[writer * BLOCK..][..BLOCK] == block(writer);
        assert!(writer == 0 || is_there, "block {writer}");
    }
}

/// The bytes of a file are in stripes over two servers, one of which is silent. Another client that sees
/// the large write takes it for a sign of the small ones.
#[test]
fn a_large_write_comes_behind_all_small_ones_of_its_file() {
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    let (names, data) = (Served::start(&first), Served::start(&second));
    let address = together(&[&names, &data]) + "&stripe=64KiB&deadline=10min";
    let mounted = first.mount_address(&address, "mnt", &[]);
    let paths = (0..).map(|number| mounted.path().join(format!("file{number}")));
    let has_first_stripe_with_data = |path: &PathBuf| {
        let file = File::create(path).expect("it can be made");
        let grows = |stripe: usize| {
            let before = stored(&second);
            file.write_all_at(&vec![0; STRIPE], (stripe * STRIPE) as u64).expect("there is room");
            file.sync_all().expect("synced");
            stored(&second) >= before + STRIPE as u64
        };
        (0..2).map(grows).eq([true, false])
    };
    let found = paths.take(FILES_MAX).filter(has_first_stripe_with_data).take(3);
    let found: Vec<_> = found.collect();
    let [path, beside, other] = &found[..] else { panic!("no file lies as it has to") };
    // Past the kernel's cache, so that each is one request.
    let direct = |path: &PathBuf| {
        let flags = OFlags::DIRECT.bits() as i32;
        File::options().write(true).custom_flags(flags).open(path).expect("it is there")
    };
    let (large, other) = (direct(path), direct(other));
    let write_large = |file: &File| file.write_all_at(&[9; LARGE], STRIPE as u64);
    let writers = Writers::put_off_beside(path, beside, &data);
    let (sender, begins) = channel();
    let writing = thread::spawn(move || {
        sender.send(()).expect("the test waits for it");
        let written = write_large(&large);
        // To close it waits for the small ones.
        (large, written)
    });
    begins.recv().expect("it begins");
    // Those of another file go through meanwhile: the server that they go to answers.
    for _ in 0..LARGE_WRITES {
        write_large(&other).expect("there is room");
    }
    let is_early = writing.is_finished();
    data.set_silent(false);
    assert!(!is_early, "it came before small ones that are not done");
    writing.join().expect("no panic").1.expect("written");
    for (_, written) in writers.end() {
        written.expect("written");
    }
    let bytes = fs::read(path).expect("readable");
    assert!(bytes[STRIPE..][..LARGE] == [9; LARGE]);
}

#[test]
fn what_is_written_synchronously_is_durable() {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let mounted = scene.mount_all_patient(&[&served], "mnt", &[]);
    let path = mounted.path().join("file");
    make(&path, WRITERS);
    let open = |flags: OFlags| {
        let flags = flags.bits() as i32;
        File::options().write(true).custom_flags(flags).open(&path).expect("it is there")
    };
    for (flags, is_durable) in
        [(OFlags::DSYNC, true), (OFlags::SYNC, true), (OFlags::empty(), false)]
    {
        // Two, so that the kernel caches nothing.
        let (file, _other) = (open(flags), open(flags));
        file.write_all_at(&block(1), 0).expect("written");
        served.kill_and_restart(&scene);
        assert_eq!(file.sync_all().is_ok(), is_durable, "{flags:?}");
    }
}

#[test]
fn what_a_server_had_not_done_when_it_was_killed_the_next_one_gets() {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let mounted = scene.mount_all_patient(&[&served], "mnt", &[]);
    let path = mounted.path().join("file");
    make(&path, WRITERS);
    let writers = Writers::put_off(&path, &served);
    served.kill_and_restart(&scene);
    for (file, written) in writers.end() {
        written.expect("it was asked for again");
        file.sync_all().expect("it was written anew to a server that lives");
    }
    assert_blocks(&path);
}

#[test]
fn what_nobody_wrote_in_time_each_writer_hears_of() {
    let Some(scene) = Scene::new() else { return };
    let served = Served::start(&scene);
    let mounted = scene.mount_impatient(&served, "mnt");
    let path = mounted.path().join("file");
    make(&path, WRITERS);
    let other = File::options().write(true).open(&path).expect("it is there");
    let writers = Writers::put_off(&path, &served);
    let ended = writers.end();
    let told = ended.iter().filter(|(_, written)| written.is_ok()).count();
    assert!(told >= WRITERS - 1, "{told} were told that it is done");
    let missed = |name: &str, file: &File, how: &dyn Fn(&File) -> io::Result<()>| {
        let error = how(file).expect_err(name);
        assert!(error.raw_os_error() == Some(Errno::HOSTUNREACH.raw_os_error()), "{name}: {error}");
    };
    let at = |writer: usize| (writer * BLOCK) as u64;
    let is_told = |(_, (_, written)): &(usize, &(File, io::Result<()>))| written.is_ok();
    let writers: Vec<_> = ended.iter().enumerate().filter(is_told).collect();
    // Which waits until all have failed.
    wait_until("a server is silent", || other.metadata().is_err());
    served.set_silent(false);
    wait_until("it answers", || other.metadata().is_ok());
    for (nth, (writer, (file, _))) in writers.iter().enumerate() {
        match nth % 3 {
            0 => {}
            1 => {
                missed("write", file, &|file| file.write_all_at(b"x", at(*writer)));
                file.write_all_at(b"x", at(*writer)).expect("it was told");
            }
            // Nobody looks at what closing tells.
            _ => drop(file.try_clone().expect("it can be had twice")),
        }
        missed("fsync", file, &|file| file.sync_all());
        file.write_all_at(&block(*writer), at(*writer)).expect("it was told");
        file.sync_all().expect("it was told");
    }
    let error = other.sync_all().expect_err("something is lost of the file");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
    other.sync_all().expect("it was told");
}

/// What a writer to a store that becomes full was told.
struct Filled {
    file: File,
    blocks: usize,
    /// Of the last one.
    failure: io::Error,
    synced: io::Result<()>,
}

fn fill(path: PathBuf, writer: usize) -> Filled {
    let file = File::options().read(true).write(true).create_new(true).open(path);
    let file = file.expect("it can be made");
    let mut blocks = 0;
    let failure = loop {
        match file.write_all_at(&block(writer), (blocks * BLOCK) as u64) {
            Ok(()) => blocks += 1,
            Err(error) => break error,
        }
    };
    let synced = file.sync_all();
    Filled { file, blocks, failure, synced }
}

#[test]
fn who_fills_a_store_is_told_that_it_is_full_and_loses_nothing_else() {
    let Some(scene) = Scene::with_capacity("8MB") else { return };
    let served = Served::start(&scene);
    let mounted = scene.mount_served(&served, "mnt", &[]);
    let other = scene.mount_served(&served, "other", &[]);
    let lock = File::create(mounted.path().join("lock")).expect("it can be made");
    let name = |writer: usize| format!("file{writer}");
    let writers = (0..4).map(|writer| {
        let path = mounted.path().join(name(writer));
        thread::spawn(move || fill(path, writer))
    });
    let writers: Vec<_> = writers.collect();
    for (writer, filled) in writers.into_iter().enumerate() {
        let Filled { mut file, blocks, failure, synced } = filled.join().expect("no panic");
        let is_full = |error: &io::Error| error.raw_os_error() == Some(Errno::NOSPC.raw_os_error());
        assert!(
            is_full(&failure) && synced.as_ref().err().is_none_or(is_full),
            "{failure}, {synced:?}"
        );
        assert!(blocks > 0, "something was written");
        // The kernel is told of locks behind what it has to drop from its cache.
        for operation in [FlockOperation::LockExclusive, FlockOperation::Unlock] {
            fcntl_lock(&lock, operation).expect("nobody else has it");
        }
        let mut seen = Vec::new();
        file.read_to_end(&mut seen).expect("readable");
        let found = fs::read(other.path().join(name(writer))).expect("readable");
        assert!(seen == found, "who wrote sees what is not there");
        let whole = found.chunks(BLOCK).take_while(|found| *found == block(writer)).count();
        assert!(whole <= blocks, "nothing was written that nobody asked for");
        assert!(whole == blocks || synced.is_err(), "{whole} of {blocks} blocks");
        let failures = 1 + usize::from(synced.is_err());
        assert!(whole + 64 * failures >= blocks, "{whole} of {blocks} blocks");
    }
}

#[test]
fn what_nobody_heard_of_who_opens_the_file_next_does() {
    let Some(scene) = Scene::new() else { return };
    let served = Served::start(&scene);
    let mounted = scene.mount_impatient(&served, "mnt");
    let path = mounted.path().join("file");
    make(&path, WRITERS);
    // Nobody looks at what closing tells.
    drop(Writers::put_off(&path, &served).end());
    served.set_silent(false);
    let mut file = None;
    wait_until("it answers", || {
        file = File::open(&path).ok();
        file.is_some()
    });
    let file = file.expect("it answers");
    let mut synced = Ok(());
    wait_until("it answers in time", || {
        synced = file.sync_all();
        let errno = synced.as_ref().err().and_then(io::Error::raw_os_error);
        errno != Some(Errno::HOSTUNREACH.raw_os_error())
    });
    let error = synced.expect_err("something is lost of the file");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
    file.sync_all().expect("it was told");
    File::open(&path).expect("it is there").sync_all().expect("somebody heard of it");
}

/// A file, and what it has to be.
struct Twin {
    path: PathBuf,
    files: Vec<File>,
    bytes: Vec<u8>,
}

impl Twin {
    fn write(&mut self, at: usize, data: &[u8]) {
        if self.bytes.len() < at + data.len() {
            self.bytes.resize(at + data.len(), 0);
        }
        self.bytes[at..][..data.len()].copy_from_slice(data);
    }

    fn step(&mut self, random: &mut Random) {
        let length = self.bytes.len() as u64;
        let at = random.below(length.max(1)) as usize;
        let data = vec![random.below(255) as u8 + 1; random.below(9000) as usize + 1];
        let file = random.below(self.files.len() as u64) as usize;
        match random.below(16) {
            0..8 => {
                self.files[file].write_all_at(&data, at as u64).expect("written");
                self.write(at, &data);
            }
            8 if length < LENGTH_MAX => {
                // Behind the end.
                let at = length as usize + random.below(5000) as usize;
                self.files[file].write_all_at(&data, at as u64).expect("written");
                self.write(at, &data);
            }
            9 if length < LENGTH_MAX => {
                let mut appended = File::options().append(true).open(&self.path).expect("open");
                appended.write_all(&data).expect("appended");
                self.write(length as usize, &data);
            }
            10 => {
                let length = random.below(LENGTH_MAX).max(5000);
                self.files[file].set_len(length).expect("cut, or longer");
                self.bytes.resize(length as usize, 0);
            }
            11 => {
                let size = match random.below(2) {
                    0 => fs::metadata(&self.path).expect("it is there").len(),
                    _ => self.files[file].metadata().expect("it is open").len(),
                };
                assert_eq!(size, length);
            }
            12 => assert!(fs::read(&self.path).expect("readable") == self.bytes),
            13 => self.files[file] = open(&self.path),
            14 => {
                let end = self.files[file].seek(SeekFrom::End(0)).expect("it has an end");
                assert_eq!(end, length);
                self.files[file].sync_all().expect("synced");
            }
            _ => {
                let mut found = Vec::new();
                self.files[file].seek(SeekFrom::Start(at as u64)).expect("there");
                (&self.files[file])
                    .take(data.len() as u64)
                    .read_to_end(&mut found)
                    .expect("readable");
                let end = self.bytes.len().min(at + data.len());
                assert!(found == self.bytes[at..end], "{} bytes at {at}", data.len());
            }
        }
    }
}

/// Others write all the time, so that writes are put off.
#[test]
fn whatever_is_asked_next_sees_what_was_written_before() {
    for seed in terrace_testkit::seeds(2) {
        let Some(scene) = Scene::new() else { return };
        let served = Served::start(&scene);
        let mut mounted = scene.mount_served(&served, "mnt", &[]);
        let (path, beside) = (mounted.path().join("file"), mounted.path().join("beside"));
        [&path, &beside].iter().for_each(|path| make(path, 8));
        let has_ended = AtomicBool::new(false);
        let mut twin = Twin { files: Vec::new(), bytes: vec![0; 8 * BLOCK], path: path.clone() };
        thread::scope(|scope| {
            for writer in 0..2 {
                let (file, has_ended) = (open(&beside), &has_ended);
                scope.spawn(move || {
                    while !has_ended.load(Ordering::Relaxed) {
                        let at = (writer * BLOCK) as u64;
                        file.write_all_at(&block(writer), at).expect("written");
                    }
                });
            }
            twin.files.extend((0..3).map(|_| open(&path)));
            let mut random = Random::new(seed);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                (0..OPERATIONS).for_each(|_| twin.step(&mut random));
            }));
            has_ended.store(true, Ordering::Relaxed);
            if let Err(panic) = done {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        });
        let Twin { files, bytes, .. } = twin;
        drop(files);
        mounted.unmount();
        mounted.mount(&scene);
        assert!(fs::read(&path).expect("readable") == bytes, "seed {seed}");
    }
}
