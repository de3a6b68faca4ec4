// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that have the daemons of a directory forget what they keep in their own memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};
use terrace_measure::check_stop;

use super::Place;

/// A command that takes longer hangs.
const TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// How long a command may go on once the benchmark is interrupted: what is unmounted then cannot be cleaned up.
const FINISH_MAX: Duration = Duration::from_secs(2);

/// How long a command that is interrupted may take to end.
const END_MAX: Duration = Duration::from_secs(2);

/// Between two looks whether a command has ended.
const LOOK: Duration = Duration::from_millis(5);

/// What is read of the end of what a command printed.
const SAID_BYTES_MAX: u64 = 4096;

/// Runs the command of a directory, where it has one, and keeps in mind which processes are its daemons now.
///
/// # Errors
///
/// `Io` where the command fails or hangs, `Invalid` where it names no processes; `Busy` once the benchmark is
/// interrupted.
pub(super) fn forget(place: &mut Place, stop: &AtomicBool) -> Result<()> {
    let Some(command) = &place.forget else { return Ok(()) };
    let daemons = run(command, stop, FINISH_MAX)
        .and_then(|said| daemons_in(&said))
        .map_err(|error| error.with("name", &place.name).with("command", command))?;
    if let Some(daemons) = daemons {
        place.daemons = daemons;
    }
    Ok(())
}

/// Runs a command in a shell to its end, for at most this long after the benchmark is interrupted; returns the end
/// of what it printed.
fn run(command: &str, stop: &AtomicBool, finish_max: Duration) -> Result<String> {
    // Into files: daemons that it starts keep a pipe open as long as they run.
    let (said, complained) = (file()?, file()?);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null());
    shell.stdout(said.try_clone().map_err(failed)?);
    shell.stderr(complained.try_clone().map_err(failed)?);
    // Ctrl-C is for the benchmark, which waits for the command.
    let mut child = shell.process_group(0).spawn().map_err(failed)?;
    let complaint = || {
        let complained = end_of(&complained)?;
        Ok::<_, Error>(complained.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    match finish(&mut child, stop, finish_max)? {
        Some(status) if status.success() => end_of(&said),
        Some(status) => {
            Err(wrong("the command failed").with("status", status).with("said", complaint()?))
        }
        None => Err(wrong("the command does not end")
            .with("waited_s", TIME_MAX.as_secs())
            .with("said", complaint()?)),
    }
}

/// How a command ended; none where it did not, and was ended.
fn finish(
    child: &mut Child,
    stop: &AtomicBool,
    finish_max: Duration,
) -> Result<Option<ExitStatus>> {
    let is_stopped = || stop.load(Ordering::Relaxed);
    let never = || false;
    if let Some(status) = wait(child, TIME_MAX, is_stopped)? {
        return Ok(Some(status));
    }
    if !is_stopped() || wait(child, finish_max, never)?.is_none() {
        // Whether a signal arrives shows in whether it ends.
        let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
        if wait(child, END_MAX, never)?.is_none() {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            child.wait().map_err(failed)?;
        }
    }
    check_stop(stop)?;
    Ok(None)
}

/// Waits for the end of a command; none where it goes on for so long, or that is enough.
fn wait(
    child: &mut Child,
    longest: Duration,
    is_enough: impl Fn() -> bool,
) -> Result<Option<ExitStatus>> {
    let clock = SystemClock::default();
    loop {
        let ended = child.try_wait().map_err(failed)?;
        if ended.is_some() || is_enough() || clock.now_ns() > longest.as_nanos() as u64 {
            return Ok(ended);
        }
        clock.sleep(LOOK);
    }
}

/// The processes that the last line names; none where it is empty. Some of them may have ended: short-lived
/// ones that a daemon has started.
fn daemons_in(said: &str) -> Result<Option<Vec<u32>>> {
    let line = said.lines().next_back().unwrap_or_default().trim();
    if line.is_empty() {
        return Ok(None);
    }
    let odd = |why| Error::invalid("have daemons forget", why).with("line", line);
    let daemons = numbers(line).ok_or_else(|| {
        odd("the last line that the command prints has to be numbers of processes")
    })?;
    match daemons.iter().any(|daemon| Path::new(&format!("/proc/{daemon}")).exists()) {
        true => Ok(Some(daemons)),
        false => Err(odd("none of the processes that the command names runs")),
    }
}

/// Numbers of processes with commas between; none where something else is there.
pub fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split(',').map(|number| number.parse().ok()).collect()
}

fn file() -> Result<File> {
    tempfile::tempfile().map_err(failed)
}

/// The end of a file, read without moving to where others go on writing.
fn end_of(file: &File) -> Result<String> {
    let length = file.metadata().map_err(failed)?.len();
    let from = length.saturating_sub(SAID_BYTES_MAX);
    let mut bytes = vec![0; (length - from) as usize];
    file.read_exact_at(&mut bytes, from).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Io, "have daemons forget").because(why)
}

fn failed(error: io::Error) -> Error {
    Error::from_io("have daemons forget", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(command: &str) -> Place {
        let forget = Some(command.into());
        Place { name: "ceph".into(), directory: "/".into(), daemons: vec![7], forget }
    }

    fn daemons_after(command: &str) -> Result<Vec<u32>> {
        let mut place = place(command);
        forget(&mut place, &AtomicBool::new(false)).map(|()| place.daemons)
    }

    #[test]
    fn daemons_are_those_of_the_last_line_and_stay_where_it_is_empty() {
        let me = std::process::id();
        // One has ended, because Linux gives no process the largest number (proc_sys_kernel(5), pid_max).
        let both = format!("echo mounting; echo {me},{}", u32::MAX);
        assert_eq!(daemons_after(&both).expect("one runs"), [me, u32::MAX]);
        for quiet in ["true", "echo mounted; echo", "echo 1 >&2"] {
            assert_eq!(daemons_after(quiet).expect("it says nothing"), [7], "{quiet}");
        }
    }

    #[test]
    fn a_last_line_that_names_no_running_processes_is_refused() {
        for odd in ["/mnt/ceph", "1,", "1 1", "-1", "4294967295", "99999999999"] {
            let error = daemons_after(&format!("echo 1; echo {odd}")).expect_err(odd);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains(&format!("line={odd} name=ceph command=echo")), "{text}");
        }
    }

    #[test]
    fn a_command_that_fails_is_told_with_what_it_said() {
        let error = daemons_after("echo 1; echo 'target is' >&2; echo busy >&2; exit 32");
        let text = error.expect_err("it fails").to_string();
        let told = "cannot have daemons forget: the command failed status=exit status: 32 \
            said=target is busy name=ceph command=echo 1;";
        assert!(text.starts_with(told), "{text}");
    }

    #[test]
    fn what_the_command_leaves_running_is_not_waited_for() {
        let clock = SystemClock::default();
        let found = daemons_after("sleep 600 & echo $!").expect("it runs")[0];
        assert!(clock.now_ns() < 60_000_000_000);
        let daemon = Pid::from_raw(found as i32).expect("a number");
        rustix::process::kill_process(daemon, Signal::KILL).expect("it still runs");
    }

    #[test]
    fn once_it_is_to_end_a_command_may_finish_and_is_ended_where_it_does_not() {
        let stop = AtomicBool::new(true);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let done = directory.path().join("done");
        let quick = format!("sleep 0.1; echo done > {}", done.display());
        let error = run(&quick, &stop, TIME_MAX).expect_err("it is to end");
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(done.exists(), "it was not let finish");
        let clock = SystemClock::default();
        let error = run("exec sleep 600", &stop, Duration::ZERO).expect_err("it is to end");
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(clock.now_ns() < 60_000_000_000);
    }

    #[test]
    fn without_a_command_nothing_changes() {
        let mut place = Place { forget: None, ..place("false") };
        forget(&mut place, &AtomicBool::new(false)).expect("nothing is run");
        assert_eq!(place.daemons, [7]);
    }
}
