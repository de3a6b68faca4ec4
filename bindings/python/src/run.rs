// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations without the GIL, which Ctrl-C ends also where a server does not answer.

use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use terrace::Result;

use crate::buffer::{Buffer, Input};
use crate::errors::exception;
use crate::fork;
use crate::handle::StoreHandle;

/// How long a signal may wait until Python handles it.
const SIGNAL_DELAY_MAX: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// A thread that waits for a job, and the process that has it.
struct Idle {
    generation: u64,
    jobs: Sender<Job>,
}

/// Threads that have nothing to do. Never locked in a way that waits: a fork may have happened while another thread
/// held it.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

/// Where an operation runs.
///
/// On the main thread requests to servers run on a thread of their own while this one looks for signals: Python
/// handles them here alone, and a request may wait for its whole deadline. An operation that a signal interrupts goes
/// on behind the exception. The caller may free its memory then, so that such an operation is given none of it, see
/// [`Course::input`].
#[derive(Clone, Copy)]
pub(crate) struct Course {
    is_interruptible: bool,
}

impl Course {
    /// That of an operation on a store.
    pub(crate) fn of(store: &StoreHandle) -> Self {
        Self { is_interruptible: store.may_wait() && is_main_thread() }
    }

    /// That of opening a store.
    pub(crate) fn opening() -> Self {
        Self { is_interruptible: is_main_thread() }
    }

    /// Whether the operation may go on behind an exception.
    pub(crate) fn is_interruptible(self) -> bool {
        self.is_interruptible
    }

    /// What an operation of this course reads from a buffer of the caller.
    pub(crate) fn input(self, object: &Bound<'_, PyAny>) -> PyResult<Input> {
        match self.is_interruptible {
            true => Input::owned(object),
            false => Buffer::readable(object).map(Input::Lent),
        }
    }

    /// Carries an operation out without the GIL.
    pub(crate) fn run<T: Send + 'static>(
        self,
        py: Python<'_>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let outcome =
            if self.is_interruptible { interruptibly(py, work)? } else { py.detach(work) };
        outcome.map_err(|error| exception(py, &error))
    }
}

/// Carries an operation on a store out without the GIL. It is given no memory of the caller.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    store: &StoreHandle,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    Course::of(store).run(py, work)
}

fn interruptibly<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<Result<T>> {
    let (sender, mut receiver) = mpsc::channel();
    give(Box::new(move || {
        // The receiver has gone where a signal interrupted it.
        let _ = sender.send(work());
    }))?;
    loop {
        let waiting = &mut receiver;
        match py.detach(move || waiting.recv_timeout(SIGNAL_DELAY_MAX)) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "an operation panicked; this is a bug of terrace",
                ));
            }
        }
    }
}

/// Gives a job to a thread that has nothing to do, or to a new one.
fn give(job: Job) -> PyResult<()> {
    let mut job = job;
    loop {
        let idle = IDLE.try_lock().ok().and_then(|mut idle| idle.pop());
        let Some(idle) = idle else { break };
        if idle.generation != fork::generation() {
            std::mem::forget(idle);
            continue;
        }
        match idle.jobs.send(job) {
            Ok(()) => return Ok(()),
            Err(refused) => job = refused.0,
        }
    }
    let (jobs, received) = mpsc::channel::<Job>();
    let own = jobs.clone();
    std::thread::Builder::new().name("terrace-request".into()).spawn(move || {
        while let Ok(job) = received.recv() {
            job();
            let idle = Idle { generation: fork::generation(), jobs: own.clone() };
            match IDLE.try_lock() {
                Ok(mut others) => others.push(idle),
                Err(_) => return,
            }
        }
    })?;
    jobs.send(job).map_err(|_| PyRuntimeError::new_err("a thread ended before its first job"))
}

/// Whether this is the thread that Python handles signals on.
fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}
