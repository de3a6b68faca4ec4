// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of this command that do the same at the same time.
//!
//! A message between them is a line of JSON, over pipes. Every order is answered before the
//! next one is given.

mod conversation;

use std::io::{BufRead, BufReader, ErrorKind as IoErrorKind, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};

use self::conversation::Said;
use crate::check_stop;

pub use self::conversation::{Conversation, gone, obey, odd};

/// How long a process may take to close what it has open, after the order to end.
const END_MAX: Duration = Duration::from_secs(2);

/// How soon a signal, and the end of a process, is noticed.
const STEP: Duration = Duration::from_millis(20);

/// Processes that do the same at the same time. They end with this.
pub struct Team<'a> {
    members: Vec<Member>,
    stop: &'a AtomicBool,
}

/// One process.
struct Member {
    child: Child,
    /// Taken at the end.
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl<'a> Team<'a> {
    /// Starts copies of this command that [`obey`].
    pub fn start(arguments: &[&str], processes: usize, stop: &'a AtomicBool) -> Result<Self> {
        let mut team = Self { members: Vec::new(), stop };
        for _ in 0..processes {
            team.members.push(Member::start(arguments)?);
        }
        Ok(team)
    }

    /// How many processes there are.
    pub fn processes(&self) -> usize {
        self.members.len()
    }

    /// Orders something of all, each in its own words, and waits until all have answered.
    ///
    /// # Errors
    ///
    /// The first failure that any of them reports; `Busy` once the benchmark is interrupted.
    pub fn order<O: Serialize, A: DeserializeOwned>(
        &mut self,
        order: impl Fn(usize) -> O,
    ) -> Result<Vec<A>> {
        for (index, member) in self.members.iter_mut().enumerate() {
            member.tell(&order(index))?;
        }
        let mut answers: Vec<Option<A>> = self.members.iter().map(|_| None).collect();
        while answers.iter().any(Option::is_none) {
            for index in self.with_answers(&answers)? {
                answers[index] = Some(self.members[index].hear(index)?);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Waits until some of those that have not answered do, or end; returns which.
    fn with_answers<A>(&self, answers: &[Option<A>]) -> Result<Vec<usize>> {
        let step = Timespec { tv_sec: 0, tv_nsec: STEP.as_nanos() as i64 };
        let silent: Vec<_> = (0..answers.len()).filter(|index| answers[*index].is_none()).collect();
        loop {
            check_stop(self.stop)?;
            let output = |index: &usize| self.members[*index].output.as_ref();
            let outputs = silent.iter().filter_map(output).map(BufReader::get_ref);
            let mut polled: Vec<_> =
                outputs.map(|output| PollFd::new(output, PollFlags::IN)).collect();
            match poll(&mut polled, Some(&step)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    let said = |index: &usize| !polled[*index].revents().is_empty();
                    return Ok((0..silent.len()).filter(said).map(|at| silent[at]).collect());
                }
                Err(error) => {
                    return Err(Error::from_io("wait for the benchmark", error.into()));
                }
            }
        }
    }
}

impl Member {
    fn start(arguments: &[&str]) -> Result<Self> {
        let failed = |error| Error::from_io("start a process of the benchmark", error);
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Ok(Self { child, input, output })
    }

    fn tell(&mut self, order: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(order).map_err(|error| odd("JSON").caused_by(error))?;
        let input = self.input.as_mut().expect("it has not ended");
        match writeln!(input, "{line}") {
            // Its last answer says why it does not listen any more.
            Err(error) if error.kind() == IoErrorKind::BrokenPipe => Ok(()),
            told => told.map_err(|error| Error::from_io("give an order to the benchmark", error)),
        }
    }

    /// The next answer, which is there or about to come.
    fn hear<A: DeserializeOwned>(&mut self, index: usize) -> Result<A> {
        let mut line = String::new();
        let output = self.output.as_mut().expect("it has not ended");
        let read = output.read_line(&mut line);
        read.map_err(|error| Error::from_io("hear the benchmark's processes", error))?;
        if line.is_empty() {
            let status = self.child.wait();
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(Error::new(ErrorKind::Io, "run the benchmark")
                .because("one of its processes ended")
                .with("process", index)
                .with("status", status));
        }
        let answer = serde_json::from_str(&line);
        match answer.map_err(|error| odd("an answer").caused_by(error))? {
            Said::Failed { failed } => Err(failed.into_error().with("process", index)),
            Said::Answer(answer) => Ok(answer),
        }
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Without orders it ends; in the midst of one it does when it is asked to.
            drop((member.input.take(), member.output.take()));
            // One that was waited for has no number any more.
            if matches!(member.child.try_wait(), Ok(None)) {
                let _ = kill_process(Pid::from_child(&member.child), Signal::TERM);
            }
        }
        let clock = SystemClock::default();
        for member in &mut self.members {
            while matches!(member.child.try_wait(), Ok(None)) {
                if clock.now_ns() > END_MAX.as_nanos() as u64 {
                    let _ = member.child.kill();
                    let _ = member.child.wait();
                    break;
                }
                clock.sleep(STEP);
            }
        }
    }
}
