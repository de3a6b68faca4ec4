// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A temporary directory with a store, and the binary run in it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use terrace_store::Store;

/// No command takes nearly as long; a loaded machine may take a multiple of the usual.
const TIME_MAX: Duration = Duration::from_secs(60);

/// A directory with the store `store`, which every command uses.
pub(crate) struct Scene {
    directory: TempDir,
}

/// What a command did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// `None` where a signal ended it.
    pub(crate) status: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scene {
    /// A directory without a store.
    pub(crate) fn empty() -> Self {
        Self { directory: TempDir::new().expect("a temporary directory") }
    }

    /// A directory with a store of two tiers, `fast` (1 MB) and `slow`, and no policy.
    pub(crate) fn new() -> Self {
        let scene = Self::empty();
        scene.ok([
            "init",
            "store",
            "--tier",
            "fast=fast,capacity=1MB",
            "--tier",
            "slow=slow,capacity=100MB",
            "--policy",
            "none",
        ]);
        scene
    }

    /// The same with the policy `lru`.
    pub(crate) fn with_policy() -> Self {
        let scene = Self::empty();
        let tiers = ["--tier", "fast=fast,capacity=1MB", "--tier", "slow=slow,capacity=100MB"];
        scene.ok(["init", "store", "--policy", "lru"].into_iter().chain(tiers));
        scene
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("made");
        std::fs::write(&path, content).expect("written");
        path
    }

    /// Reads a file.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("the file exists")
    }

    /// The command, not yet run.
    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("TERRACE_STORE", "store");
        // The user's own secret is no part of this.
        command.env("XDG_CONFIG_HOME", self.path("config")).env_remove("TERRACE_SECRET_FILE");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ran {
        finish(piped(&mut self.command(arguments)))
    }

    /// Runs a command that reads `input`.
    pub(crate) fn run_with<A: AsRef<OsStr>>(
        &self,
        input: &[u8],
        arguments: impl IntoIterator<Item = A>,
    ) -> Ran {
        let mut child = piped(self.command(arguments).stdin(Stdio::piped()));
        let mut stdin = child.stdin.take().expect("it is a pipe");
        // A command that fails early does not read everything.
        let _ = stdin.write_all(input);
        drop(stdin);
        finish(child)
    }

    /// Runs a command that must succeed without a word of complaint; returns its output.
    #[track_caller]
    pub(crate) fn ok<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> String {
        let ran = self.run(arguments);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        ran.stdout
    }

    /// The same for input.
    #[track_caller]
    pub(crate) fn ok_with<A: AsRef<OsStr>>(
        &self,
        input: &[u8],
        arguments: impl IntoIterator<Item = A>,
    ) -> String {
        let ran = self.run_with(input, arguments);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        ran.stdout
    }

    /// Runs a command that must fail with this status and one line; returns the line.
    #[track_caller]
    pub(crate) fn fails<A: AsRef<OsStr>>(
        &self,
        status: i32,
        arguments: impl IntoIterator<Item = A>,
    ) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.status, Some(status), "{ran:?}");
        one_error(&ran)
    }

    /// Runs a command with `--json` that must succeed; returns the values it prints.
    #[track_caller]
    pub(crate) fn json<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Vec<Value> {
        let mut command = self.command(["--json"]);
        command.args(arguments);
        let ran = finish(piped(&mut command));
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        values(&ran.stdout)
    }

    /// Starts `hold` and returns once it serves.
    pub(crate) fn hold(&self) -> Held {
        Held::start(self.command(["hold"]))
    }

    /// Puts more into the store than one page of a listing holds; returns the numbers given out.
    pub(crate) fn fill(&self, put: impl Fn(&Store, u32) -> terrace_core::Result<()>) -> Range<u32> {
        let numbers = 0..2100;
        let address = self.path("store").display().to_string();
        let store = Store::open(&address).expect("it opens");
        for number in numbers.clone() {
            put(&store, number).expect("there is room");
        }
        store.close().expect("it closes");
        numbers
    }

    /// The files in the directory, the store's own left out.
    pub(crate) fn files(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.path(name), &self.path(name), &mut found);
        found.sort();
        found
    }
}

/// A running `terrace hold`.
pub(crate) struct Held {
    child: Child,
}

impl Held {
    /// Starts a command that holds `store` and returns once it serves.
    pub(crate) fn start(mut command: Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut held = Self { child: child.expect("the binary runs") };
        let mut line = String::new();
        let stdout = held.child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        assert!(line.starts_with("holding store: "), "{line:?}");
        held
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop; it must succeed.
    pub(crate) fn stop(mut self) {
        signal(&self.child, rustix::process::Signal::TERM);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }

    /// Kills it.
    pub(crate) fn kill(&self) {
        signal(&self.child, rustix::process::Signal::KILL);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A test that failed must not leave it behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a child that was not waited for.
pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, signal)
        .expect("the child exists until it is waited for");
}

/// The one line on standard error.
#[track_caller]
pub(crate) fn one_error(ran: &Ran) -> String {
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    assert!(lines[0].starts_with("terrace: cannot "), "{ran:?}");
    lines[0].to_string()
}

/// One JSON value a line.
#[track_caller]
pub(crate) fn values(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
    text.lines().map(parse).collect()
}

/// Starts a command with its output in pipes.
pub(crate) fn piped(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

/// Waits for the end of a command. One that hangs is killed and fails the test.
#[track_caller]
pub(crate) fn finish(child: Child) -> Ran {
    let process = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(TIME_MAX) else {
        // It was not waited for, so the number is still its own.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        panic!("the command did not end within {TIME_MAX:?}");
    };
    let output = output.expect("a child can be waited for");
    Ran {
        signal: output.status.signal(),
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn collect(root: &Path, directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("the directory exists") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            let relative = path.strip_prefix(root).expect("it is below");
            found.push(relative.display().to_string());
        }
    }
}
