// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves what programs hold open on a mount from tier to tier and back, for as long as they run.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use terrace_core::{Clock, Random, SystemClock};

use crate::receipts::{Receipts, ask};
use crate::scene::Scene;

/// Files that are asked to move at a time.
const FILES_MAX: usize = 6;

/// Most directories between the root and a file that is chosen.
const DEPTH_MAX: usize = 16;

/// What was asked for and has not ended by then ends later, or there was nothing to move.
const ENDED_WITHIN: Duration = Duration::from_millis(50);

/// The pause where there is nothing to move.
const PAUSE: Duration = Duration::from_millis(5);

/// Migrations that are done.
#[derive(Clone, Default)]
struct Moves {
    all: Arc<AtomicU64>,
    /// Of files that a program held open when it was asked for.
    of_open: Arc<AtomicU64>,
}

/// A thread that moves files until it is dropped.
pub(crate) struct Mover {
    moves: Moves,
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// Begins to move what is open at a mount of a scene; where nothing is, what lies there.
    pub(crate) fn start(scene: &Scene, mount: &Path, seed: u64) -> Self {
        let mount = mount.to_path_buf();
        let probe = mount.join(".probe");
        fs::write(&probe, vec![0; 8192]).expect("there is room");
        let receipts = Receipts::watch(scene, &probe);
        fs::remove_file(&probe).expect("it is there");
        let (moves, is_done) = (Moves::default(), Arc::new(AtomicBool::new(false)));
        let round = Round {
            device: fs::metadata(&mount).expect("it is mounted").dev(),
            mount,
            receipts,
            random: Random::new(seed),
            moves: moves.clone(),
            asked: HashMap::new(),
        };
        let done = is_done.clone();
        let thread = thread::spawn(move || round.repeat(&done));
        Self { moves, is_done, thread: Some(thread) }
    }

    /// Whether it has not failed, and the mount is there.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Migrations that are done.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.all.load(Ordering::SeqCst)
    }

    /// Those of files that a program held open when it was asked for.
    pub(crate) fn moves_of_open(&self) -> u64 {
        self.moves.of_open.load(Ordering::SeqCst)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::SeqCst);
        let ended = self.thread.take().expect("it is joined once").join();
        if !thread::panicking() {
            ended.expect("files may move whenever they like");
        }
    }
}

/// What the thread has.
struct Round {
    mount: PathBuf,
    device: u64,
    receipts: Receipts,
    random: Random,
    moves: Moves,
    /// By object: how often it was asked to move, and whether it was open the last time.
    asked: HashMap<String, (usize, bool)>,
}

/// A file that may move.
struct Candidate {
    /// Leads to it whatever it is called, and is not open for the mount.
    handle: OwnedFd,
    number: u64,
    is_open: bool,
}

impl Candidate {
    /// What a path leads to, where that is a file of the mount.
    fn find(path: &Path, device: u64, is_open: bool) -> Option<Self> {
        let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&handle).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        (is_file && stat.st_dev == device).then_some(Self { handle, number: stat.st_ino, is_open })
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.handle.as_raw_fd()).into()
    }
}

impl Round {
    fn repeat(mut self, is_done: &AtomicBool) {
        while !is_done.load(Ordering::SeqCst) {
            match self.ask() {
                Ok(0) => SystemClock::default().sleep(PAUSE),
                Ok(count) => self.await_ends(count),
                // Whoever uses the mount finds out why it, or its server, is gone.
                Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::HOSTUNREACH) => return,
                Err(errno) => panic!("cannot move a file: {errno}"),
            }
        }
    }

    /// Asks some files to move; how many.
    fn ask(&mut self) -> Result<usize, Errno> {
        let mut files = open_below(&self.mount, self.device);
        if files.is_empty() {
            files = (0..FILES_MAX).filter_map(|_| self.any()).collect();
        }
        files.sort_by_key(|file| file.number);
        files.dedup_by_key(|file| file.number);
        while files.len() > FILES_MAX {
            let index = self.random.below(files.len() as u64) as usize;
            files.swap_remove(index);
        }
        let mut count = 0;
        for file in files {
            let asked = self.asked.entry(format!("files/{:016x}", file.number)).or_default();
            *asked = (asked.0 + 1, file.is_open);
            match ask(&file.path(), ["fast", "slow"][asked.0 % 2]) {
                Ok(()) => count += 1,
                // It is closed and gone, moves already, or is small and cannot get an object.
                Err(Errno::NOENT | Errno::STALE | Errno::BUSY | Errno::NOSPC) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(count)
    }

    /// Counts what is done, until as many have ended or there is nothing to wait for.
    fn await_ends(&mut self, count: usize) {
        for _ in 0..count {
            let Ok(receipt) = self.receipts.ended.recv_timeout(ENDED_WITHIN) else { return };
            if receipt.outcome == "done" {
                self.moves.all.fetch_add(1, Ordering::SeqCst);
                if self.asked.get(&receipt.key).is_some_and(|asked| asked.1) {
                    self.moves.of_open.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Some file of the tree.
    fn any(&mut self) -> Option<Candidate> {
        let mut path = self.mount.clone();
        for _ in 0..DEPTH_MAX {
            let names: Vec<_> = fs::read_dir(&path).ok()?.flatten().collect();
            let entry = names.get(self.random.below(names.len().max(1) as u64) as usize)?;
            let kind = entry.file_type().ok()?;
            path = entry.path();
            if kind.is_file() {
                return Candidate::find(&path, self.device, false);
            }
            if !kind.is_dir() {
                return None;
            }
        }
        None
    }
}

/// What processes hold open below a directory, also without a name.
fn open_below(directory: &Path, device: u64) -> Vec<Candidate> {
    let mut found = Vec::new();
    // Processes and what they have open come and go while this looks.
    for process in fs::read_dir("/proc").expect("it is mounted").flatten() {
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        for file in files.flatten() {
            let path = file.path();
            // Asks the mount about nothing else.
            if fs::read_link(&path).is_ok_and(|target| target.starts_with(directory)) {
                found.extend(Candidate::find(&path, device, true));
            }
        }
    }
    found
}
