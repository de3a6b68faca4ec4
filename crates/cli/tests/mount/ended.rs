// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are ended while they wait for a server that does not answer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::scene::{Mounted, Scene, Served, together, wait_until};

/// Bytes of a file over all servers.
const LENGTH: usize = 1_000_000;

/// Lists the directory that is its standard input, which it need not open.
const LISTS: &str = "exec python3 -c 'import os; os.listdir(3)' 3<&0 </dev/null";

/// How a program waits for an answer, as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Any signal makes it look.
    Open,
    /// It had one, and cannot be woken but by the answer.
    Closed,
}

/// A program that asks a mount for nothing but what its script says: it is started elsewhere.
struct Asking {
    child: Child,
    script: String,
}

impl Asking {
    fn start(script: &str, input: Stdio) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(input).stdout(Stdio::null());
        Self { child: command.spawn().expect("there is a shell"), script: script.into() }
    }

    /// Whether it waits so for the answer to a request, which may be one that is there soon.
    fn waits(&self, how: Wait) -> bool {
        let process = format!("/proc/{}", self.child.id());
        let place = fs::read_to_string(format!("{process}/wchan")).unwrap_or_default();
        let status = fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
        let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        let expected = if how == Wait::Open { 'S' } else { 'D' };
        place.contains("request_wait") && state == Some(expected)
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("it was not waited for");
    }

    /// Ends it with a signal, which it must not survive.
    #[track_caller]
    fn end(&mut self, signal: Signal) {
        self.signal(signal);
        wait_until(&self.script, || self.child.try_wait().expect("it is a child").is_some());
        let status = self.child.wait().expect("it has ended");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{}", self.script);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // One that ended as it should is gone already. Another one is not waited for: it may need the
        // servers for that.
        let _ = self.child.kill();
    }
}

/// A program that waits can be ended.
#[track_caller]
fn ends(script: &str, input: impl Into<Stdio>) {
    let mut asking = Asking::start(script, input.into());
    wait_until(script, || asking.waits(Wait::Open));
    asking.end(Signal::TERM);
}

/// One that has handled a signal waits on, and can be ended then as well.
#[track_caller]
fn ends_after_another_signal(script: &str, signal: Signal) {
    let script = format!("trap : USR1; {script}");
    let mut asking = Asking::start(&script, Stdio::null());
    wait_until(&script, || {
        // Again where that was a request which was answered soon.
        if asking.waits(Wait::Open) {
            asking.signal(Signal::USR1);
        }
        asking.waits(Wait::Closed)
    });
    asking.end(signal);
}

/// Three servers of one file system, and two mounts of it that wait for them for longer than any test.
struct Servers {
    /// In which all of it is made, and the one that programs use. They go before whom they ask.
    mounted: [Mounted; 2],
    served: [Served; 3],
    scenes: [Scene; 3],
}

impl Servers {
    fn new() -> Option<Self> {
        let scenes = [Scene::new()?, Scene::new()?, Scene::new()?];
        let served = [0, 1, 2].map(|index| Served::start(&scenes[index]));
        let address = together(&served.each_ref()) + "&stripe=64KiB&deadline=10min";
        let how = ["--uring", "off"];
        let mounted = ["making", "using"].map(|name| scenes[0].mount_address(&address, name, &how));
        Some(Self { mounted, served, scenes })
    }

    fn making(&self, name: &str) -> PathBuf {
        self.mounted[0].path().join(name)
    }

    fn using(&self) -> &Path {
        self.mounted[1].path()
    }

    /// Objects that clients have open, at each of the servers.
    fn open_objects(&self) -> [u64; 3] {
        [0, 1, 2].map(|index| {
            let address = self.served[index].address();
            let status = self.scenes[index].ok(["--store", &address, "--json", "server", "status"]);
            let status: Value = serde_json::from_str(&status).expect("it is JSON");
            status["handles"].as_u64().expect("it is a number")
        })
    }
}

#[test]
fn who_waits_for_a_silent_data_server_can_be_ended() {
    let Some(servers) = Servers::new() else { return };
    for name in ["closed", "written"] {
        let file = File::create(servers.making(name)).expect("there is room");
        file.write_all_at(&vec![7; LENGTH], 0).expect("there is room");
    }
    let written = File::options().write(true).open(servers.making("written"));
    let written = written.expect("it is there");
    // Nothing of what was closed before is on its way.
    written.sync_all().expect("they answer");
    let open_objects = servers.open_objects();
    servers.served[1].set_silent(true);
    let using = servers.using().display();
    let looks = format!("test -e {using}/written");
    let opens = format!("exec 9>>{using}/closed");
    for script in [&looks, &opens, &format!("exec dd if={using}/closed bs=1M iflag=direct")] {
        ends(script, Stdio::null());
    }
    // With another program its handlers would be gone.
    for script in [&looks, &opens] {
        for signal in [Signal::KILL, Signal::TERM] {
            ends_after_another_signal(script, signal);
        }
    }
    servers.served[1].set_silent(false);
    wait_until("what was opened for them is closed", || servers.open_objects() == open_objects);
    drop(written);
    for name in ["closed", "written"] {
        let bytes = fs::read(servers.using().join(name)).expect("it is there");
        assert_eq!(bytes, vec![7; LENGTH], "{name}");
    }
}

#[test]
fn who_waits_for_silent_metadata_can_be_ended() {
    let Some(servers) = Servers::new() else { return };
    let names = ["a", "b"];
    for name in names {
        File::create(servers.making(name)).expect("there is room");
    }
    let listed = || {
        let entries = fs::read_dir(servers.using()).expect("it is there");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("it is there").file_name()).collect();
        names.sort();
        names
    };
    let directory = File::open(servers.using()).expect("it is there");
    servers.served[0].set_silent(true);
    let using = servers.using().display();
    ends(LISTS, directory);
    ends(&format!("exec ls {using}"), Stdio::null());
    ends_after_another_signal(&format!("test -e {using}/c"), Signal::KILL);
    servers.served[0].set_silent(false);
    assert_eq!(listed(), names);
}
