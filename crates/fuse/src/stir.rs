// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of our own, which have the kernel hand out others.
//!
//! Requests that wait in a queue for a place are handed out only when another one of the queue is
//! answered, not to a place that is new (Linux 6.18, docs/adr/0026). So a process asks how full the
//! file system is, on the processor of that queue, and is answered without the file system.
//!
//! A thread could not ask: killed together with those that are to answer it, it would keep the memory
//! of their rings, these the device, and so the request for which it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::crew::{Crew, HELD_UP};

/// So often no thread had to be busy, and nothing to begin, before nothing waits: ten seconds. A thread is
/// no more busy a moment before the kernel has its answer, and it the next request.
const QUIET: u32 = 200;

/// Where the program that asks can be; with its path it is started without a copy of this process.
const PROGRAMS: [&str; 2] = ["/usr/bin/stat", "/bin/stat"];

/// The program that asks.
///
/// # Errors
///
/// `NotFound`.
pub(crate) fn program() -> io::Result<&'static Path> {
    let found = PROGRAMS.into_iter().map(Path::new).find(|program| program.exists());
    let message = || format!("there is no program to ask with program={}", PROGRAMS[0]);
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, message()))
}

/// Orders to the thread that asks.
#[derive(Debug)]
pub(crate) enum Told {
    /// Stir this queue.
    Stir(usize),
    /// Stir this queue whenever it is held up while places of it may be new.
    Watch(usize),
    End,
}

/// Has a thread ask, from any thread and without waiting.
#[derive(Debug)]
pub(crate) struct Stirrer {
    thread: Sender<Told>,
    /// Processes that ask at the moment.
    asking: Mutex<BTreeSet<u32>>,
}

/// A queue that is watched.
#[derive(Default)]
struct Watched {
    begun: u64,
    /// How often nothing had begun since the look before.
    quiet: u32,
}

impl Stirrer {
    /// With what its thread is to be given.
    pub(crate) fn new() -> (Self, Receiver<Told>) {
        let (thread, told) = channel();
        (Self { thread, asking: Mutex::default() }, told)
    }

    /// Stirs a queue.
    pub(crate) fn stir(&self, queue: usize) {
        // The thread may have ended.
        let _ = self.thread.send(Told::Stir(queue));
    }

    /// Stirs a queue when it is held up, until none of its places can be new.
    pub(crate) fn watch(&self, queue: usize) {
        let _ = self.thread.send(Told::Watch(queue));
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        let _ = self.thread.send(Told::End);
    }

    /// Whether a process is one of those that ask. Waits while one is being started.
    pub(crate) fn is_asking(&self, process: u32) -> bool {
        self.asking().contains(&process)
    }

    /// Asks what is mounted at `place` until the end. A queue without an idle thread to answer is tried
    /// again. `crews` are those of the queues.
    pub(crate) fn run(&self, told: &Receiver<Told>, place: &Path, crews: &[Crew<'_>]) {
        let mut watched: BTreeMap<usize, Watched> = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        let mut children: Vec<Child> = Vec::new();
        loop {
            let is_idle = watched.is_empty() && wanted.is_empty() && children.is_empty();
            let next = match is_idle {
                true => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => told.recv_timeout(HELD_UP),
            };
            match next {
                Ok(Told::Stir(queue)) => drop(wanted.insert(queue)),
                Ok(Told::Watch(queue)) => drop(watched.insert(queue, Watched::default())),
                Err(RecvTimeoutError::Timeout) => watched.retain(|queue, watched| {
                    let crew = &crews[*queue];
                    if watched.is_held_up(crew) {
                        wanted.insert(*queue);
                    }
                    crew.places().were_taken()
                }),
                // A request that is still waiting finds the mount gone, and ends with this process.
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
            wanted.retain(|queue| match self.ask(*queue, place) {
                Ok(child) => {
                    children.push(child);
                    false
                }
                Err(error) => {
                    tracing::debug!(%error, queue, "cannot start a process that wakes the queue");
                    true
                }
            });
            children.retain_mut(|child| {
                let number = child.id();
                let has_ended = !matches!(child.try_wait(), Ok(None));
                if has_ended {
                    self.asking().remove(&number);
                }
                !has_ended
            });
        }
    }

    fn ask(&self, queue: usize, place: &Path) -> io::Result<Child> {
        // Where it may not run there any more it asks from elsewhere, as good as it gets.
        terrace_affinity::stay_on(queue);
        let mut command = Command::new(program()?);
        command.args(["-f", "--"]).arg(place);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Held, so that it is known before its request is looked at.
        let mut asking = self.asking();
        let child = command.spawn()?;
        asking.insert(child.id());
        Ok(child)
    }

    fn asking(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // Every change is one call.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Whether requests are being handled, and nothing has begun since this was called before.
    fn is_held_up(&mut self, crew: &Crew<'_>) -> bool {
        let (begun, busy) = crew.begun_and_busy();
        self.quiet = if begun == self.begun { self.quiet + 1 } else { 0 };
        self.begun = begun;
        if busy == 0 && self.quiet >= QUIET {
            crew.places().note_free(crew.usual());
        }
        busy > 0 && self.quiet > 0
    }
}
