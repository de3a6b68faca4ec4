// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Leads processes through a phase and gathers what they have done.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::handshake::{Door, receive};
use super::line::{LINE_BYTES_MAX, Lines, send};
use super::message::{Identity, Step, ToCoordinator, ToWorker};
use super::secret::Secret;
use super::spawn::Workers;
use crate::arguments::{Plan, Remote, resolve};
use crate::clock::raw_ns;
use crate::error::{Error, Result};
use crate::phase::Outcome;

/// Connections that have not shown that they know the secret.
const STRANGERS_MAX: usize = 64;

/// Between two looks whether a connection has joined.
const LOOK_MS: i64 = 20;

/// Longest that a send to a worker may block.
const SEND_SECONDS_MAX: u64 = 10;

/// What one process was and did.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) identity: Identity,
    pub(crate) outcome: Outcome,
}

/// All parts by rank, and the time from the common begin to the last end as it was seen from here.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) parts: Vec<Part>,
    pub(crate) seen_ns: u64,
}

/// Runs the phase with `processes` workers on this host and `joining` ones from elsewhere.
pub(crate) fn run(
    plan: &Plan,
    processes: u64,
    remote: Option<&Remote>,
    joining: u64,
) -> Result<Gathered> {
    let total = processes + joining;
    // Those from elsewhere first: without them there is nothing to do.
    let joined = match remote {
        Some(remote) => accept(plan, remote, processes, joining)?,
        None => Vec::new(),
    };
    let mut workers = Workers::default();
    let mut connections: Vec<(u64, File)> = Vec::new();
    for rank in 0..processes {
        let failed = |error| Error::system("start a worker", error).with("rank", rank);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_write_timeout(Some(Duration::from_secs(SEND_SECONDS_MAX))).map_err(failed)?;
        workers.start(rank, total, theirs.into())?;
        connections.push((rank, OwnedFd::from(ours).into()));
    }
    for (rank, stream) in joined {
        connections.push((rank, OwnedFd::from(stream).into()));
    }
    connections.sort_by_key(|(rank, _)| *rank);
    let mut group = Group::new(connections, raw_ns() + plan.timeout.as_nanos() as u64)?;
    let gathered = group.go_through();
    if let Err(error) = &gathered {
        group.tell(&ToWorker::Abort { reason: error.to_string() });
    } else {
        workers.wait()?;
    }
    gathered
}

/// Waits until workers have joined with all ranks from `first_rank` on.
fn accept(
    plan: &Plan,
    remote: &Remote,
    first_rank: u64,
    count: u64,
) -> Result<Vec<(u64, TcpStream)>> {
    let door = Arc::new(Door {
        secret: Secret::read(&remote.secret_file)?,
        phase: plan.phase,
        pattern: plan.pattern.clone(),
        processes: first_rank + count,
        taken: Mutex::new((0..first_rank).collect()),
    });
    let failed = |error| Error::system("listen", error).with("address", &remote.address);
    let listener = TcpListener::bind(&resolve(&remote.address)?[..]).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    eprintln!("terrace-gen: waiting for {count} workers at {address}");
    let deadline_ns = raw_ns() + plan.wait.as_nanos() as u64;
    let (sender, receiver) = channel();
    let (mut joined, mut strangers) = (Vec::new(), 0);
    while (joined.len() as u64) < count {
        if raw_ns() >= deadline_ns {
            return Err(Error::new("begin", "workers are missing")
                .with("joined", joined.len())
                .with("missing", count - joined.len() as u64)
                .with("waited_s", plan.wait.as_secs_f64()));
        }
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK_MS * 1_000_000 };
        let mut waiting = [PollFd::new(&listener, PollFlags::IN)];
        // What it tells is asked of the listener again, and a signal is as good as the timeout.
        let _ = poll(&mut waiting, Some(&look));
        if strangers < STRANGERS_MAX
            && let Ok((stream, _)) = listener.accept()
        {
            strangers += 1;
            let (sender, door) = (sender.clone(), Arc::clone(&door));
            // Not waited for: one that says nothing must not hold up the others.
            thread::spawn(move || {
                let blocking = stream.set_nonblocking(false);
                let blocking = blocking.map_err(|error| Error::system("join", error));
                // The receiver is gone where the wait is over.
                let _ = sender.send(blocking.and_then(|()| receive(stream, &door)));
            });
        }
        while let Ok(received) = receiver.try_recv() {
            strangers -= 1;
            match received {
                Ok(one) => joined.push(one),
                Err(error) => eprintln!("terrace-gen: {error}"),
            }
        }
    }
    Ok(joined)
}

/// What came from the worker of a rank; nothing more where it is `None`.
type Event = (usize, Result<Option<ToCoordinator>>);

struct Group {
    writers: Vec<File>,
    events: Receiver<Event>,
    identities: Vec<Option<Identity>>,
    outcomes: Vec<Option<Outcome>>,
    deadline_ns: u64,
}

impl Group {
    fn new(connections: Vec<(u64, File)>, deadline_ns: u64) -> Result<Self> {
        let (sender, events) = channel();
        let count = connections.len();
        let mut writers = Vec::with_capacity(count);
        for (index, (_, file)) in connections.into_iter().enumerate() {
            let reader = file.try_clone().map_err(|error| Error::system("hear a worker", error))?;
            let sender = sender.clone();
            thread::spawn(move || hear(index, reader, &sender));
            writers.push(file);
        }
        Ok(Self {
            writers,
            events,
            identities: vec![None; count],
            outcomes: (0..count).map(|_| None).collect(),
            deadline_ns,
        })
    }

    fn go_through(&mut self) -> Result<Gathered> {
        self.gather(Step::Measure)?;
        let begun_ns = raw_ns();
        self.begin(Step::Measure)?;
        self.gather(Step::Check)?;
        let seen_ns = raw_ns() - begun_ns;
        self.begin(Step::Check)?;
        self.gather(Step::Clean)?;
        self.begin(Step::Clean)?;
        self.gather(Step::End)?;
        self.begin(Step::End)?;
        let identities = self.identities.drain(..).flatten();
        let parts = identities.zip(self.outcomes.drain(..).flatten());
        let parts = parts.map(|(identity, outcome)| Part { identity, outcome }).collect();
        Ok(Gathered { parts, seen_ns })
    }

    /// Waits until all workers wait for `step`.
    fn gather(&mut self, step: Step) -> Result<()> {
        let mut ready = vec![false; self.writers.len()];
        while let Some(missing) = ready.iter().position(|is_ready| !is_ready) {
            let left_ns = self.deadline_ns.saturating_sub(raw_ns());
            let (index, event) = match self.events.recv_timeout(Duration::from_nanos(left_ns)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    let error = Error::new("go on", "the time is over");
                    return Err(self.of(missing, error));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new("go on", "all workers have ended"));
                }
            };
            match event {
                Ok(Some(ToCoordinator::Present(identity))) => {
                    self.identities[index] = Some(identity);
                }
                Ok(Some(ToCoordinator::Measured { outcome })) => {
                    self.outcomes[index] = Some(outcome);
                }
                Ok(Some(ToCoordinator::Ready { step: reached })) if reached == step => {
                    // A worker that is after the measurement has reported its outcome.
                    let is_told = step == Step::Measure || self.outcomes[index].is_some();
                    if !is_told || self.identities[index].is_none() {
                        let error = Error::new("go on", "a worker left something out");
                        return Err(self.of(index, error));
                    }
                    ready[index] = true;
                }
                Ok(Some(ToCoordinator::Failed { message })) => {
                    return Err(self.of(index, Error::told(message)));
                }
                Ok(Some(ToCoordinator::Ready { .. } | ToCoordinator::Join { .. })) => {
                    return Err(self.of(index, Error::new("go on", "a worker is out of step")));
                }
                Ok(None) => return Err(self.of(index, gone())),
                Err(error) => return Err(self.of(index, error)),
            }
        }
        Ok(())
    }

    fn begin(&mut self, step: Step) -> Result<()> {
        for index in 0..self.writers.len() {
            let sent = send(&mut self.writers[index], &ToWorker::Begin { step });
            sent.map_err(|error| {
                // It ended after it reported that it is ready: the same as one that ends at any
                // other time.
                self.of(index, if error.is_disconnected() { gone() } else { error })
            })?;
        }
        Ok(())
    }

    /// Tells all of them, as far as they are there.
    fn tell(&mut self, message: &ToWorker) {
        for writer in &mut self.writers {
            // A worker that does not receive it is gone already.
            let _ = send(writer, message);
        }
    }

    fn of(&self, index: usize, error: Error) -> Error {
        let error = error.with("rank", index);
        match &self.identities[index] {
            Some(identity) => error.with("host", &identity.host).with("pid", identity.pid),
            None => error,
        }
    }
}

fn gone() -> Error {
    Error::new("go on", "a worker is gone")
}

/// Passes on what a worker says, until it says nothing more.
fn hear(index: usize, reader: File, sender: &Sender<Event>) {
    let mut lines = Lines::new(reader, LINE_BYTES_MAX);
    loop {
        let event = match lines.next() {
            // It ended before it read all that was sent to it.
            Err(error) if error.is_disconnected() => Ok(None),
            event => event,
        };
        let is_last = !matches!(event, Ok(Some(_)));
        if sender.send((index, event)).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::{Group, Identity, Step, ToCoordinator, raw_ns, send};

    /// A group of one worker, and the worker's end of the connection.
    fn group() -> (Group, File) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = File::from(OwnedFd::from(ours));
        let group = Group::new(vec![(0, ours)], raw_ns() + 60_000_000_000).unwrap();
        (group, File::from(OwnedFd::from(theirs)))
    }

    fn be_ready(worker: &mut File) {
        let identity = Identity { host: "here".to_owned(), pid: 7, boot: "now".to_owned() };
        send(worker, &ToCoordinator::Present(identity)).unwrap();
        send(worker, &ToCoordinator::Ready { step: Step::Measure }).unwrap();
    }

    #[test]
    fn a_worker_that_ends_once_it_is_ready_is_gone() {
        let (mut group, mut worker) = group();
        be_ready(&mut worker);
        drop(worker);
        let error = group.go_through().unwrap_err().to_string();
        assert_eq!(error, "cannot go on: a worker is gone rank=0 host=here pid=7");
    }

    #[test]
    fn a_worker_that_ends_before_it_reads_is_gone() {
        let (mut group, mut worker) = group();
        be_ready(&mut worker);
        group.gather(Step::Measure).unwrap();
        group.begin(Step::Measure).unwrap();
        // What was sent and not read makes a reset of the end of the connection.
        drop(worker);
        let error = group.gather(Step::Check).unwrap_err().to_string();
        assert_eq!(error, "cannot go on: a worker is gone rank=0 host=here pid=7");
    }
}
