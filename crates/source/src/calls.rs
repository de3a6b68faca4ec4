// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of a source, each within a deadline: a thread that a call holds up for longer is left behind.
//!
//! A call of a file system that is gone (an NFS server) cannot be cancelled. So calls run on threads of their
//! own, and the caller waits for the answer, but not for ever.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::lock;

/// Threads at a time for one file system, those included that are held up.
const THREADS_MAX: usize = 256;
/// A thread without work ends after this.
const IDLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Callers wait so long for the answer to another one, where the source did not answer before.
const TRIAL_TIME: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

/// Runs calls of one file system of a source.
pub(crate) struct Calls {
    shared: Arc<Shared>,
    deadline: Duration,
}

struct Shared {
    /// Where the file system is mounted, for the log.
    place: PathBuf,
    queue: Mutex<Queue>,
    is_filled: Condvar,
    /// The last answer was that the source cannot be reached, or none came in time.
    is_suspect: AtomicBool,
    is_probed: AtomicBool,
    trial: Mutex<Trial>,
    trial_ended: Condvar,
}

/// The one caller that waits for a source that did not answer.
#[derive(Default)]
struct Trial {
    is_running: bool,
    /// Trials that have ended.
    ended: u64,
}

#[derive(Default)]
struct Queue {
    /// Calls that no thread has begun, each with its number.
    jobs: VecDeque<(u64, Job)>,
    next: u64,
    threads: usize,
    idle: usize,
}

impl Calls {
    /// Of a file system that is mounted at a place.
    pub(crate) fn new(place: &Path, deadline: Duration) -> Self {
        let shared = Shared {
            place: place.into(),
            queue: Mutex::default(),
            is_filled: Condvar::new(),
            is_suspect: AtomicBool::new(false),
            is_probed: AtomicBool::new(false),
            trial: Mutex::default(),
            trial_ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared), deadline }
    }

    /// Runs a call and returns its answer.
    ///
    /// # Errors
    ///
    /// Those of the call; `ETIMEDOUT` where it does not answer within the deadline.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let (sender, receiver) = sync_channel(1);
        let shared = Arc::clone(&self.shared);
        let number = self.shared.submit(Box::new(move || {
            let answer = call();
            shared.note(answer.as_ref().err().copied());
            // The caller may have left.
            let _ = sender.send(answer);
        }));
        match receiver.recv_timeout(self.deadline) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.shared.withdraw(number);
                self.shared.note(Some(Errno::TIMEDOUT));
                Err(Errno::TIMEDOUT)
            }
            // The call panicked.
            Err(RecvTimeoutError::Disconnected) => Err(Errno::IO),
        }
    }

    /// Like [`Calls::run`], but one caller at a time asks a source that did not answer: the others would wait
    /// for the deadline, too. They wait a moment for the answer to that one, and go on if there is one.
    ///
    /// # Errors
    ///
    /// Those of [`Calls::run`]; `ETIMEDOUT` for the others.
    pub(crate) fn try_run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        if !self.is_suspect() {
            return self.run(call);
        }
        let mut trial = lock(&self.shared.trial);
        if trial.is_running {
            let ended = trial.ended;
            let is_same = |trial: &mut Trial| trial.ended == ended;
            let waited = self.shared.trial_ended.wait_timeout_while(trial, TRIAL_TIME, is_same);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            if self.is_suspect() {
                return Err(Errno::TIMEDOUT);
            }
            return self.run(call);
        }
        trial.is_running = true;
        drop(trial);
        let answer = self.run(call);
        let mut trial = lock(&self.shared.trial);
        trial.is_running = false;
        trial.ended += 1;
        drop(trial);
        self.shared.trial_ended.notify_all();
        answer
    }

    /// Runs a call that no caller waits for.
    pub(crate) fn spawn(&self, call: impl FnOnce() -> Result<(), Errno> + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.shared.submit(Box::new(move || shared.note(call().err())));
    }

    /// Drops something of the source in the background: to close a file of a file system that is gone may hang.
    pub(crate) fn close<T: Send + 'static>(&self, thing: T) {
        self.shared.submit(Box::new(move || drop(thing)));
    }

    /// Whether a thread is there, perhaps one that a call holds up.
    pub(crate) fn has_threads(&self) -> bool {
        lock(&self.shared.queue).threads > 0
    }

    /// Whether the source did not answer when it was last asked.
    pub(crate) fn is_suspect(&self) -> bool {
        self.shared.is_suspect.load(Ordering::Relaxed)
    }

    /// Runs a call for the sake of [`Calls::is_suspect`] alone, at most one at a time; does not wait.
    pub(crate) fn probe(&self, call: impl FnOnce() -> Result<(), Errno> + Send + 'static) {
        if self.shared.is_probed.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.shared.submit(Box::new(move || {
            let answer = call();
            shared.note(answer.err());
            shared.is_probed.store(false, Ordering::Release);
        }));
    }
}

impl Shared {
    fn note(&self, failure: Option<Errno>) {
        // That of one file, or of the source: neither is known.
        if failure == Some(Errno::IO) {
            return;
        }
        let is_lost = failure.is_some_and(is_unreachable);
        if self.is_suspect.load(Ordering::Relaxed) != is_lost {
            self.is_suspect.store(is_lost, Ordering::Relaxed);
            match failure.filter(|_| is_lost) {
                Some(errno) => tracing::warn!(
                    %errno,
                    source = %self.place.display(),
                    "the source cannot be reached: files in the cache are served as they were last seen"
                ),
                None => {
                    tracing::warn!(source = %self.place.display(), "the source answers again");
                }
            }
        }
    }

    /// Queues a call, and returns its number.
    fn submit(self: &Arc<Self>, job: Job) -> u64 {
        let mut queue = lock(&self.queue);
        let number = queue.next;
        queue.next += 1;
        queue.jobs.push_back((number, job));
        if queue.jobs.len() <= queue.idle || queue.threads >= THREADS_MAX {
            drop(queue);
            self.is_filled.notify_one();
            return number;
        }
        queue.threads += 1;
        drop(queue);
        let shared = Arc::clone(self);
        let started = thread::Builder::new().name("terrace-source".into()).spawn(move || {
            shared.work();
        });
        if let Err(error) = started {
            // Another thread takes it, or the caller's deadline ends.
            tracing::warn!(%error, "a thread that asks the source cannot be started");
            lock(&self.queue).threads -= 1;
            self.is_filled.notify_one();
        }
        number
    }

    /// Takes back a call that no thread has begun, so that a source that answers again is not asked for what no
    /// caller waits for.
    fn withdraw(&self, number: u64) {
        let mut queue = lock(&self.queue);
        let place = queue.jobs.iter().position(|(there, _)| *there == number);
        let withdrawn = place.and_then(|place| queue.jobs.remove(place));
        drop(queue);
        drop(withdrawn);
    }

    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some((_, job)) = queue.jobs.pop_front() {
                drop(queue);
                // A panic has been printed; the caller sees that there is no answer.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                queue = lock(&self.queue);
                continue;
            }
            queue.idle += 1;
            let waited = self.is_filled.wait_timeout(queue, IDLE_TIME_MAX);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

/// Whether an error says that the storage is out of reach, and nothing of the file.
pub(crate) fn is_unreachable(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::TIMEDOUT
            | Errno::NOTCONN
            | Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::SHUTDOWN
            | Errno::NODEV
            | Errno::REMOTEIO
            | Errno::KEYREJECTED
    )
}

/// Whether an error of names and attributes may say that the storage is out of reach: NFS that is mounted
/// `soft` gives `EIO`.
pub(crate) fn may_be_unreachable(errno: Errno) -> bool {
    errno == Errno::IO || is_unreachable(errno)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_call_that_hangs_ends_at_the_deadline_and_blocks_no_other() {
        let calls = Calls::new(Path::new("/source"), Duration::from_millis(20));
        let (release, held) = channel::<()>();
        let hung: Result<(), Errno> = calls.run(move || {
            let _ = held.recv();
            Ok(())
        });
        assert_eq!(hung, Err(Errno::TIMEDOUT));
        assert!(calls.is_suspect());
        let patient = Calls { deadline: Duration::from_secs(60), ..calls };
        assert_eq!(patient.run(|| Ok(7)), Ok(7), "another thread takes it");
        assert!(!patient.is_suspect());
        drop(release);
    }

    #[test]
    fn one_caller_at_a_time_waits_for_a_source_that_does_not_answer() {
        let calls = Calls::new(Path::new("/source"), Duration::from_secs(600));
        calls.shared.note(Some(Errno::TIMEDOUT));
        let (release, held) = channel::<()>();
        let (started, is_started) = channel::<()>();
        thread::scope(|scope| {
            let calls = &calls;
            let trial = scope.spawn(move || {
                calls.try_run(move || {
                    started.send(()).expect("it waits");
                    let _ = held.recv();
                    Ok(1)
                })
            });
            is_started.recv().expect("it starts");
            for _ in 0..2 {
                assert_eq!(calls.try_run(|| Ok(2)), Err(Errno::TIMEDOUT));
            }
            drop(release);
            assert_eq!(trial.join().expect("no panic"), Ok(1));
        });
        assert_eq!(calls.try_run(|| Ok(2)), Ok(2), "it answers again");
    }

    #[test]
    fn errors_of_a_file_are_not_those_of_the_source() {
        let calls = Calls::new(Path::new("/source"), Duration::from_secs(60));
        assert_eq!(calls.run(|| Err::<(), _>(Errno::NOENT)), Err(Errno::NOENT));
        assert_eq!(calls.run(|| Err::<(), _>(Errno::IO)), Err(Errno::IO));
        assert!(!calls.is_suspect(), "a bad sector is that of one file");
        assert_eq!(calls.run(|| Err::<(), _>(Errno::HOSTDOWN)), Err(Errno::HOSTDOWN));
        assert!(calls.is_suspect());
        assert_eq!(calls.run(|| Err::<(), _>(Errno::IO)), Err(Errno::IO));
        assert!(calls.is_suspect(), "nor does it say that the source answers");
    }

    #[test]
    fn a_call_that_panics_is_an_error() {
        let calls = Calls::new(Path::new("/source"), Duration::from_secs(60));
        assert_eq!(calls.run(|| -> Result<(), Errno> { panic!("planned") }), Err(Errno::IO));
        assert_eq!(calls.run(|| Ok(1)), Ok(1));
    }

    #[test]
    fn a_call_that_ended_at_its_deadline_is_not_made_later() {
        let place = Path::new("/source");
        let calls = Calls::new(place, Duration::from_millis(20));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..THREADS_MAX {
            let held = Arc::clone(&held);
            calls.spawn(move || {
                let _ = lock(&held).recv();
                Ok(())
            });
        }
        let is_made = Arc::<AtomicBool>::default();
        let made = Arc::clone(&is_made);
        let refused = calls.run(move || {
            made.store(true, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(refused, Err(Errno::TIMEDOUT), "all threads are held up");
        drop(release);
        let patient = Calls { deadline: Duration::from_secs(60), ..calls };
        assert_eq!(patient.run(|| Ok(7)), Ok(7));
        assert!(!is_made.load(Ordering::Relaxed));
    }
}
