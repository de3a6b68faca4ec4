// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace policy run FILE`: a policy whose process belongs to this command.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use terrace_core::{Error, ErrorKind};
use terrace_policies::program::Process;
use terrace_store::{Guest, OpenOptions, PolicyReport, Store};

use super::show;
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::Output;

const OPERATION: &str = "run the policy";

/// Between two looks for Ctrl-C, for the end of the process, and for decisions.
const LOOK: Duration = Duration::from_millis(100);

/// The policy of a file while this command runs.
pub(super) fn run(context: &Context, file: &Path, parameters: &[(String, String)]) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let name = absolute(file)?;
    // Others can use the store meanwhile, also where this process is the one that owns it.
    context.with_options(OpenOptions::default(), |store| {
        let offer = Offer::new(&name)?;
        let guest = Guest { name: name.clone(), socket: offer.socket.clone() };
        let used = store.admin().use_guest(&guest, parameters);
        let process = offer.process()?;
        let ended = match used {
            Ok(()) => watch(context, store, &interrupt, &process, &name),
            Err(error) => Err(error.into()),
        };
        // Its state is saved now, so that its process must still be there.
        let went_back = store.admin().end_guest(&guest.socket);
        drop(process);
        ended?;
        Ok(went_back?)
    })
}

fn absolute(file: &Path) -> Result<String> {
    let path = std::path::absolute(file)
        .map_err(|error| Error::from_io(OPERATION, error).with("file", file.display()))?;
    let not_text = |path: PathBuf| {
        Error::invalid(OPERATION, "its path is not UTF-8").with("file", path.display())
    };
    Ok(path.into_os_string().into_string().map_err(|path| not_text(path.into()))?)
}

/// A socket where the owner of the store finds the policy. Its process starts when the owner comes.
struct Offer {
    socket: PathBuf,
    _directory: tempfile::TempDir,
    started: thread::JoinHandle<terrace_core::Result<Process>>,
}

impl Offer {
    fn new(file: &str) -> Result<Self> {
        let failed = |error| Error::from_io(OPERATION, error);
        // Only the user can look into it.
        let directory = tempfile::Builder::new().prefix("terrace-policy-").tempdir();
        let directory = directory.map_err(failed)?;
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let file = PathBuf::from(file);
        let started = thread::spawn(move || {
            let (stream, _) =
                listener.accept().map_err(|error| Error::from_io(OPERATION, error))?;
            Process::start(&file, stream)
        });
        Ok(Self { socket, _directory: directory, started })
    }

    /// The process, once the owner came; one that did not is not waited for.
    fn process(self) -> Result<Process> {
        // A thread that still waits for a connection gets one.
        drop(std::os::unix::net::UnixStream::connect(&self.socket));
        let started = self.started.join().map_err(|_| {
            Error::new(ErrorKind::Io, OPERATION).because("the thread that starts it failed")
        })?;
        Ok(started?)
    }
}

/// Prints what the policy decides, until it is interrupted or ends.
fn watch(
    context: &Context,
    store: &Store,
    interrupt: &Interrupt,
    process: &Process,
    name: &str,
) -> Result<()> {
    let mut shown = now(store)?;
    let mut output = Output::new();
    show::begins(context, &shown, &mut output)?;
    output.flush()?;
    loop {
        let is_asked_to_stop = interrupt.is_set();
        let report = now(store)?;
        show::decisions_live(context, &shown, &report, &mut output)?;
        output.flush()?;
        if report.name != name && report.replaced.is_some() {
            let why = report.replaced.unwrap_or_default();
            return Err(Error::new(ErrorKind::Io, OPERATION).because(why).into());
        }
        if report.name != name {
            let why = format!("{} took its place", report.name);
            return Err(Error::new(ErrorKind::Stale, OPERATION).because(why).into());
        }
        if is_asked_to_stop {
            return show::ends(context, &report, &mut output);
        }
        if let Some(status) = process.ended() {
            // The store finds out when it asks next; what it says then explains more.
            store.admin().run_policy().ok();
            let report = now(store)?;
            let why = report.replaced.unwrap_or_else(|| format!("its process ended: {status}"));
            return Err(Error::new(ErrorKind::Io, OPERATION).because(why).into());
        }
        shown = report;
        thread::sleep(LOOK);
    }
}

fn now(store: &Store) -> Result<PolicyReport> {
    super::policy(store)
}
