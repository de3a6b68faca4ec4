// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One process that does its part, as the coordinator says.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::line::{LINE_BYTES_MAX, Lines, send};
use super::message::{Identity, Step, ToCoordinator, ToWorker};
use crate::arguments::Plan;
use crate::error::{Error, Result};

/// Takes part over standard input until the phase has ended. `is_remote` ones say themselves why they
/// cannot go on; for the others the coordinator does.
pub(crate) fn run(plan: &Plan, rank: u64, processes: u64, is_remote: bool) -> Result<()> {
    // Of a coordinator that is killed the connection tells; of a parent that only waits nothing would.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::system("take part", error))?;
    let connection = io::stdin().as_fd().try_clone_to_owned();
    let mut writer = File::from(connection.map_err(|error| Error::system("take part", error))?);
    let reader = writer.try_clone().map_err(|error| Error::system("take part", error))?;
    let lines = Lines::new(reader, LINE_BYTES_MAX);
    send(&mut writer, &ToCoordinator::Present(identity()?))?;
    let steps = listen(lines, rank, is_remote);
    let done = go_through(plan, rank, processes, &mut writer, &steps);
    if let Err(error) = &done {
        // If that does not reach it either, it notices that this process has ended.
        let _ = send(&mut writer, &ToCoordinator::Failed { message: error.to_string() });
    }
    done
}

fn go_through(
    plan: &Plan,
    rank: u64,
    processes: u64,
    writer: &mut File,
    steps: &Receiver<Step>,
) -> Result<()> {
    let mut part = plan.pattern.part(&plan.path, rank, processes);
    part.prepare()?;
    let outcome = part.measure(&mut || wait_for(Step::Measure, writer, steps))?;
    send(writer, &ToCoordinator::Measured { outcome })?;
    wait_for(Step::Check, writer, steps)?;
    part.check()?;
    wait_for(Step::Clean, writer, steps)?;
    part.clean()?;
    wait_for(Step::End, writer, steps)
}

/// Says that this process is as far, and waits until all are.
fn wait_for(step: Step, writer: &mut File, steps: &Receiver<Step>) -> Result<()> {
    send(writer, &ToCoordinator::Ready { step })?;
    match steps.recv() {
        Ok(begun) if begun == step => Ok(()),
        Ok(_) => Err(Error::new("take part", "the coordinator mixes up the steps")),
        Err(_) => Err(Error::new("take part", "the coordinator is gone")),
    }
}

/// Receives from the coordinator on a thread of its own, so that the work ends when it does.
fn listen(mut lines: Lines<File>, rank: u64, is_remote: bool) -> Receiver<Step> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let reason = loop {
            match lines.next() {
                Ok(Some(ToWorker::Begin { step })) => {
                    // The receiver is gone only where this process is about to end.
                    let _ = sender.send(step);
                    if step == Step::End {
                        return;
                    }
                }
                Ok(Some(ToWorker::Abort { reason })) => break reason,
                Err(error) if !error.is_disconnected() => break error.to_string(),
                _ => break "cannot go on: the coordinator is gone".to_owned(),
            }
        };
        if is_remote {
            eprintln!("terrace-gen: {reason} rank={rank}");
        }
        std::process::exit(1);
    });
    receiver
}

/// The identity of this process.
fn identity() -> Result<Identity> {
    let path = "/proc/sys/kernel/random/boot_id";
    let boot = std::fs::read_to_string(path);
    let boot = boot.map_err(|error| Error::system("read", error).with("path", path))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Identity { host, pid: std::process::id(), boot: boot.trim().to_owned() })
}
