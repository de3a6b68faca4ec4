// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the program, with a bound on how long that may take.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// No run of these tests takes a second; a machine may be busy.
const END_SECONDS_MAX: u64 = 60;

/// The program with these words, split at blanks.
pub(crate) fn program(words: &str) -> Command {
    quiet(env!("CARGO_BIN_EXE_terrace-gen"), words)
}

/// Any program, so that what it says can be read.
pub(crate) fn quiet(program: &str, words: &str) -> Command {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// One that was started.
pub(crate) struct Running {
    pub(crate) child: Child,
    stderr: BufReader<ChildStderr>,
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) is_success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn start(command: &mut Command) -> Running {
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    Running { child, stderr }
}

impl Running {
    /// Where a coordinator listens, which is the first that it says.
    pub(crate) fn address(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line.trim().rsplit_once(' ').unwrap().1.to_owned()
    }

    pub(crate) fn end(self) -> Ended {
        let Self { mut child, mut stderr } = self;
        let pid = child.id();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut said = [String::new(), String::new()];
            stdout.read_to_string(&mut said[0]).unwrap();
            stderr.read_to_string(&mut said[1]).unwrap();
            sender.send((said, child.wait().unwrap())).unwrap();
        });
        let ended = receiver.recv_timeout(Duration::from_secs(END_SECONDS_MAX));
        let ([stdout, stderr], status) = ended.unwrap_or_else(|_| {
            Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
            panic!("it did not end");
        });
        Ended { is_success: status.success(), stdout, stderr }
    }
}

/// Runs it to its end.
pub(crate) fn run(words: &str) -> Ended {
    start(&mut program(words)).end()
}

impl Ended {
    /// The document of one that succeeded.
    pub(crate) fn report(self) -> Value {
        assert!(self.is_success, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// What one that failed said; it printed nothing else.
    pub(crate) fn failure(self) -> String {
        assert!(!self.is_success, "it succeeded: {}", self.stdout);
        assert_eq!(self.stdout, "");
        self.stderr
    }
}

/// The figures of all processes together.
pub(crate) fn total(report: &Value, name: &str) -> u64 {
    let all = report["total"][name].as_u64().unwrap();
    let parts = report["processes"].as_array().unwrap().iter();
    assert_eq!(parts.map(|one| one[name].as_u64().unwrap()).sum::<u64>(), all);
    all
}

/// Names in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}
