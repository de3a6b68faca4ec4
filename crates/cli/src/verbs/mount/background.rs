// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounting in the background: another process of the same program serves, and this one waits
//! until it does.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use terrace_core::Error;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::inherited;
use crate::output::Output;
use crate::service_manager;

/// How the line begins that a process in the background prints where no server answers it.
pub(super) const WAITING: &str = "waiting for ";

/// What a process is given that was started here.
pub(super) const DETACHED: &str = "--detached";

/// Starts the process that serves `places` with these arguments; returns when the file system can be used, or with what kept it
/// from that.
pub(super) fn start(
    arguments: &[String],
    places: &[&Path],
    is_silent: bool,
    context: &Context,
) -> Result<()> {
    let failed = |what| move |error| Error::from_io(what, error);
    // The other process has the same limits, but perhaps no log.
    for note in inherited::settle_daemon() {
        context.note(&note);
    }
    let program = std::env::current_exe().map_err(failed("find the file of the command itself"))?;
    let mut command = Command::new(program);
    // Whatever its file is called: as `mount.fuse.terrace` it would read its arguments otherwise.
    command.arg0("terrace");
    command.arg("mount").args(context.is_json.then_some("--json")).arg(DETACHED);
    command.args(arguments).arg("--").args(places);
    service_manager::hide_from(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed("start a process in the background"))?;
    let (Some(output), Some(mut errors)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Error::invalid("start a process", "it has no output").into());
    };
    let mut ready = String::new();
    BufReader::new(output).read_line(&mut ready).map_err(failed("wait for the mount"))?;
    if ready.is_empty() {
        // It has reported its error, and ends.
        let mut text = Vec::new();
        errors.read_to_end(&mut text).map_err(failed("wait for the mount"))?;
        eprint!("{}", String::from_utf8_lossy(&text));
        let status = child.wait().map_err(failed("wait for the mount"))?;
        let status = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        return Err(Failure::Reported(status));
    }
    let ready = ready.trim_end();
    if is_silent {
        // mount(8) prints nothing of a success; that there is nothing to use yet a person has to know.
        if ready.starts_with(WAITING) {
            context.note(ready);
        }
        return Ok(());
    }
    let mut output = Output::new();
    output.line(ready)?;
    output.flush()
}

/// Leaves the terminal and the session of its parent.
pub(super) fn leave_session() {
    // Fails where it leads a group already, which is as good.
    let _ = rustix::process::setsid();
}

/// Opens what this process prints to once its terminal is gone: a log, where there is one.
pub(super) fn open_output(log: Option<&Path>) -> Result<File> {
    let path = log.unwrap_or(Path::new("/dev/null"));
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let failed = |error| Error::from_io("write a log", error).with("file", path.display());
    Ok(opened.map_err(failed)?)
}

/// From now on this process prints there.
pub(super) fn leave_terminal(errors: &File) -> Result<()> {
    let nowhere = open_output(None)?;
    let redirected =
        rustix::stdio::dup2_stdout(&nowhere).and_then(|()| rustix::stdio::dup2_stderr(errors));
    Ok(redirected.map_err(|errno| Error::from_io("write a log", errno.into()))?)
}
