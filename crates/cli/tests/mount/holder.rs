// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that holds files open.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// A program that holds files open while others are started.
pub(crate) struct Holder {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mount/holder.py");
        let mut command = Command::new("python3");
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("Python runs");
        let asks = child.stdin.take().expect("it is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Self { child, asks, answers }
    }

    /// Has it do something; "ok" or the name of an error.
    pub(crate) fn ask(&mut self, what: &Value) -> String {
        writeln!(self.asks, "{what}").expect("it listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim_end().into()
    }

    /// Has it do what must succeed.
    #[track_caller]
    pub(crate) fn ok(&mut self, what: Value) {
        assert_eq!(self.ask(&what), "ok", "{what}");
    }

    /// Has it do what must fail.
    #[track_caller]
    pub(crate) fn refused(&mut self, what: Value) {
        assert_eq!(self.ask(&what), "EIO", "{what}: another client has the lock");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Where it has ended already, that was what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
