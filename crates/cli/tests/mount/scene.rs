// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A temporary directory with a store, its mounts and its server.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use serde_json::Value;
use tempfile::TempDir;
use terrace_core::{Clock, SystemClock};

/// No mount of a test is used for nearly as long; one that hangs is killed, so that who waits for
/// it gets an error.
const USE_TIME_MAX: Duration = Duration::from_secs(20 * 60);

/// Nothing that is waited for takes nearly as long.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// A directory with the store `store` of two tiers, `fast` and `slow`, and no policy.
pub(crate) struct Scene {
    directory: TempDir,
}

impl Scene {
    /// Makes the store; `None` where this machine lets nobody but root mount, which it says.
    pub(crate) fn new() -> Option<Self> {
        Self::with_capacity("100GB")
    }

    /// The same with tiers that have no bound but that of their file system.
    pub(crate) fn without_capacity() -> Option<Self> {
        Self::with_figures("")
    }

    /// The same with tiers that hold so much.
    pub(crate) fn with_capacity(capacity: &str) -> Option<Self> {
        Self::with_figures(&format!(",capacity={capacity}"))
    }

    fn with_figures(figures: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounts are tested as root, which may do what is compared");
            return None;
        }
        let scene = Self { directory: TempDir::new().expect("a temporary directory") };
        let tiers = ["fast", "slow"].map(|tier| format!("{tier}={tier}{figures}"));
        let tiers = tiers.iter().flat_map(|tier| ["--tier", tier]);
        scene.ok(["init", "store", "--policy", "none"].into_iter().chain(tiers));
        Some(scene)
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A directory in it, made where it is missing.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("there is room");
        path
    }

    /// Keeps a secret in the file `secret`.
    pub(crate) fn keep_secret(&self, secret: &str) {
        let path = self.path("secret");
        std::fs::write(&path, secret).expect("there is room");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is there");
    }

    /// The command, not yet run.
    pub(crate) fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("TERRACE_STORE", "store");
        // The user's own secret is no part of this.
        command.env("XDG_CONFIG_HOME", self.path("config")).env_remove("TERRACE_SECRET_FILE");
        command
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub(crate) fn ok<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> String {
        let output = self.command(arguments).output().expect("the binary runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("it is text")
    }

    /// Mounts the store at the directory `name`.
    pub(crate) fn mount(&self, name: &str, how: &[&str]) -> Mounted {
        Mounted::new(self, "store".into(), name, how)
    }

    /// Mounts what a server serves at the directory `name`.
    pub(crate) fn mount_served(&self, served: &Served, name: &str, how: &[&str]) -> Mounted {
        Mounted::new(self, served.address(), name, how)
    }

    /// The same for who gives up a request that is not answered at once.
    pub(crate) fn mount_impatient(&self, served: &Served, name: &str) -> Mounted {
        Mounted::new(self, served.address() + "&deadline=200ms", name, &[])
    }

    /// Mounts what several servers serve together.
    pub(crate) fn mount_all(&self, served: &[&Served], name: &str, how: &[&str]) -> Mounted {
        Mounted::new(self, together(served), name, how)
    }

    /// Mounts what is behind an address.
    pub(crate) fn mount_address(&self, address: &str, name: &str, how: &[&str]) -> Mounted {
        Mounted::new(self, address.into(), name, how)
    }

    /// Mounts another store of it.
    pub(crate) fn mount_store(&self, store: &str, name: &str, how: &[&str]) -> Mounted {
        Mounted::new(self, store.into(), name, how)
    }

    /// The same for who waits for a server however long that takes to start.
    pub(crate) fn mount_all_patient(
        &self,
        served: &[&Served],
        name: &str,
        how: &[&str],
    ) -> Mounted {
        Mounted::new(self, together(served) + "&deadline=10min", name, how)
    }

    /// Whether a process logged a text.
    pub(crate) fn has_logged(&self, name: &str, text: &str) -> bool {
        let log = std::fs::read(self.path(&format!("{name}.log"))).expect("it logs");
        String::from_utf8_lossy(&log).contains(text)
    }

    /// Lets other users look for paths in it.
    pub(crate) fn let_everybody_in(&self) {
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::chmod(self.directory.path(), mode).expect("it is there");
    }

    /// What a process logs to.
    pub(crate) fn log(&self, name: &str) -> File {
        let path = self.path(&format!("{name}.log"));
        OpenOptions::new().create(true).append(true).open(path).expect("a log can be written")
    }

    /// What processes logged, for who has to find out why a test failed.
    fn logged(&self) -> String {
        let mut text = String::new();
        for entry in self.directory.path().read_dir().expect("it is there").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = std::fs::read(&path).expect("readable");
                let log = String::from_utf8_lossy(&log);
                write!(text, "--- {}\n{log}", path.display()).expect("memory can be written");
            }
        }
        text
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if thread::panicking() {
            eprint!("{}", self.logged());
        }
    }
}

/// A process of `terrace` that tells in a line of JSON when it can be used.
struct Process {
    child: Child,
    /// What it told.
    ready: Value,
    /// Dropped when it is not used any more.
    _use: Sender<()>,
}

impl Process {
    fn start(mut command: Command, log: File) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = child.expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        let Ok(ready) = serde_json::from_str(&line) else {
            let status = child.wait().expect("it ends");
            panic!("it does not start: {status}; as root, mounting has to work");
        };
        let (sender, receiver) = mpsc::channel();
        let process = Pid::from_child(&child);
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).expect("it runs");
        thread::spawn(move || kill_unused(&receiver, &process));
        Self { child, ready, _use: sender }
    }

    fn kill(&mut self) {
        // Where it has ended already, that was what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn set_silent(&self, is_silent: bool) {
        let signal = if is_silent { Signal::STOP } else { Signal::CONT };
        let process = Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("it was not waited for");
        if is_silent {
            // Until all of its threads have stopped, one may answer yet.
            let stopped = rustix::process::waitid(WaitId::Pid(process), WaitIdOptions::STOPPED);
            stopped.expect("it is a child");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn kill_unused(is_used: &mpsc::Receiver<()>, process: &OwnedFd) {
    if is_used.recv_timeout(USE_TIME_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("a process was in use for {USE_TIME_MAX:?}: it hangs, and is killed");
        // It may end at the same time.
        let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
    }
}

/// A directory at which a store is mounted, again and again.
pub(crate) struct Mounted {
    process: Option<Process>,
    path: PathBuf,
    name: String,
    store: String,
    how: Vec<String>,
}

impl Mounted {
    fn new(scene: &Scene, store: String, name: &str, how: &[&str]) -> Self {
        let path = scene.directory(name);
        let how = how.iter().map(|word| word.to_string()).collect();
        let mut mounted = Self { process: None, path, name: name.into(), store, how };
        mounted.mount(scene);
        mounted
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has its process answer nobody, or again everybody.
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.process.as_ref().expect("it is mounted").set_silent(is_silent);
    }

    /// Whether the kernel reads and writes files of tiers itself, where it can.
    pub(crate) fn passes_through(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.ready["passthrough"] == true)
    }

    /// Whether the kernel asks over `io_uring`.
    pub(crate) fn uses_uring(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.ready["uring"] == true)
    }

    /// Where its metrics are.
    pub(crate) fn metrics(&self) -> String {
        let url = self.process.as_ref().expect("it is mounted").ready["metrics"].as_str();
        let url = url.expect("it was mounted with --metrics").trim_start_matches("http://");
        url.trim_end_matches("/metrics").into()
    }

    /// Mounts it again.
    #[track_caller]
    pub(crate) fn mount(&mut self, scene: &Scene) {
        let mut command = scene.command(["mount", "--json", "--foreground"]);
        command.args(&self.how).arg(&self.store).arg(&self.path);
        let process = Process::start(command, scene.log(&self.name));
        assert_eq!(process.ready["ready"], true);
        self.process = Some(process);
    }

    /// Unmounts it; the process that served has to end well.
    #[track_caller]
    pub(crate) fn unmount(&mut self) {
        // A program that another test starts has all files open until it runs.
        wait_until("nobody uses it", || {
            match rustix::mount::unmount(&self.path, UnmountFlags::empty()) {
                Err(Errno::BUSY) => false,
                other => other.map(|()| true).expect("it is mounted"),
            }
        });
        let mut process = self.process.take().expect("it is mounted");
        let status = process.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }

    /// The process that serves.
    pub(crate) fn process(&self) -> u32 {
        self.process.as_ref().expect("it is mounted").child.id()
    }

    /// Waits until the process that served has ended, somehow.
    pub(crate) fn wait_for_process(&mut self) {
        let mut process = self.process.take().expect("it is mounted");
        process.child.wait().expect("it ends");
    }

    /// Kills the process that serves, and leaves what it had mounted.
    pub(crate) fn kill_process(&mut self) {
        self.process.as_mut().expect("it is mounted").kill();
    }

    /// Kills the process that serves, and takes away what is left.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it is mounted").kill();
        rustix::mount::unmount(&self.path, UnmountFlags::DETACH).expect("it was mounted");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // A test that failed, or needs no orderly end.
            let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
            process.kill();
        }
    }
}

/// Where something is mounted, until the end of a test.
pub(crate) struct Mountpoint(pub(crate) PathBuf);

impl Drop for Mountpoint {
    fn drop(&mut self) {
        // It is unmounted where nothing failed.
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A server of the store, of everybody who reaches it.
pub(crate) struct Served {
    starter: Starter,
    process: Option<Running>,
    listens_on: String,
}

/// What is at work as a process of a [`Starter`].
struct Running {
    process: Pid,
    /// Dropped when it is not used any more.
    _use: Sender<()>,
}

impl Served {
    /// Starts it on a free port.
    pub(crate) fn start(scene: &Scene) -> Self {
        Self::start_with(scene, &["--no-secret"])
    }

    /// The same, for those who know the secret of the scene.
    pub(crate) fn start_with_secret(scene: &Scene) -> Self {
        Self::start_with(scene, &["--secret-file", "secret"])
    }

    /// The same of another store.
    pub(crate) fn start_store(scene: &Scene, store: &str) -> Self {
        Self::start_with(scene, &["--no-secret", "--store", store])
    }

    fn start_with(scene: &Scene, how: &[&str]) -> Self {
        let mut starter = Starter::new(scene, how);
        let (process, ready) = starter.start(scene, "127.0.0.1:0");
        let listens_on = ready["listen"][0].as_str().expect("an address").to_string();
        Self { starter, process: Some(process), listens_on }
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> String {
        format!("terrace://{}/?secret=none", self.listens_on)
    }

    fn running(&self) -> Pid {
        self.process.as_ref().expect("it runs").process
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.running().as_raw_nonzero().get().unsigned_abs()
    }

    /// The address that it listens on.
    pub(crate) fn listens_on(&self) -> &str {
        &self.listens_on
    }

    /// Ends it in an orderly way.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        let status = self.terminate();
        assert!(status.success(), "{status}");
    }

    /// Has it end; how it did.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.end(Signal::TERM)
    }

    fn end(&mut self, signal: Signal) -> ExitStatus {
        let running = self.process.take().expect("it runs");
        // It may have ended already.
        let _ = rustix::process::kill_process(running.process, signal);
        self.starter.wait()
    }

    /// Has it answer nobody, or again everybody.
    pub(crate) fn set_silent(&self, is_silent: bool) {
        let signal = if is_silent { Signal::STOP } else { Signal::CONT };
        rustix::process::kill_process(self.running(), signal).expect("it was not waited for");
        if is_silent {
            // Until all of its threads have stopped, one may answer yet.
            wait_until("all threads have stopped", || has_stopped(self.process()));
        }
    }

    /// Ends it in an orderly way and starts it on the same port.
    #[track_caller]
    pub(crate) fn restart(&mut self, scene: &Scene) {
        self.stop();
        self.start_again(scene);
    }

    /// Kills it and starts it on the same port.
    pub(crate) fn kill_and_restart(&mut self, scene: &Scene) {
        self.kill();
        self.start_again(scene);
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Starts it on the same port, once it has ended.
    pub(crate) fn start_again(&mut self, scene: &Scene) {
        self.process = Some(self.starter.start(scene, &self.listens_on).0);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(running) = self.process.take() {
            // Where it has ended already, that was what was wanted.
            let _ = rustix::process::kill_process(running.process, Signal::KILL);
        }
    }
}

/// A process that starts the server, again and again.
///
/// This one cannot: a new process has the files of its parent open until it runs a program, and flushes them as
/// it closes them then. With files of a mount among them, a server that is started where there is none
/// would wait for itself.
struct Starter {
    shell: Child,
    asked: Option<ChildStdin>,
    told: BufReader<ChildStdout>,
}

/// Reads where a server works and listens, starts it, and writes its process, what the server writes, and how
/// it ended.
const STARTER: &str = r#"
while read -r directory address; do
    cd "$directory" || exit
    sh -c 'echo $$; exec "$@"' sh "$@" --listen "$address" < /dev/null 2>> server.log
    echo $?
done
"#;

impl Starter {
    fn new(scene: &Scene, how: &[&str]) -> Self {
        let server =
            scene.command(["serve", "--json", "--log-level", "warn"].iter().chain(how).copied());
        let mut shell = Command::new("sh");
        shell.args(["-c", STARTER, "sh"]).arg(server.get_program()).args(server.get_args());
        for (name, value) in server.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        // It says what a server was killed by.
        let shell =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut shell = shell.expect("there is a shell");
        let asked = shell.stdin.take();
        let told = BufReader::new(shell.stdout.take().expect("it is a pipe"));
        Self { shell, asked, told }
    }

    fn start(&mut self, scene: &Scene, address: &str) -> (Running, Value) {
        let directory = scene.directory.path().display();
        let asked = self.asked.as_mut().expect("it is a pipe");
        writeln!(asked, "{directory} {address}").expect("it reads");
        let process = self.line().parse().ok().and_then(Pid::from_raw).expect("a process");
        let line = self.line();
        let Ok(ready @ Value::Object(_)) = serde_json::from_str(&line) else {
            panic!("it does not start: {line}");
        };
        let (sender, receiver) = mpsc::channel();
        let handle = rustix::process::pidfd_open(process, PidfdFlags::empty()).expect("it runs");
        thread::spawn(move || kill_unused(&receiver, &handle));
        (Running { process, _use: sender }, ready)
    }

    /// Waits for the end of the server.
    fn wait(&mut self) -> ExitStatus {
        /// What a shell adds to the number of the signal that killed a program.
        const KILLED: i32 = 128;
        loop {
            // A server may have written something else.
            if let Ok(status) = self.line().parse::<i32>() {
                let is_killed = status > KILLED;
                return ExitStatus::from_raw(if is_killed { status - KILLED } else { status << 8 });
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let count = self.told.read_line(&mut line).expect("it tells");
        assert!(count > 0, "the shell that starts the server has ended");
        line.truncate(line.trim_end().len());
        line
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        drop(self.asked.take());
        let _ = self.shell.wait();
    }
}

/// Whether all threads of a process have been stopped by a signal.
fn has_stopped(process: u32) -> bool {
    let threads = PathBuf::from(format!("/proc/{process}/task")).read_dir().expect("it runs");
    threads.flatten().all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status"));
        status.is_ok_and(|status| status.contains("State:\tT"))
    })
}

/// Where clients find several servers.
pub(crate) fn together(served: &[&Served]) -> String {
    let addresses: Vec<_> = served.iter().map(|one| one.listens_on.as_str()).collect();
    format!("terrace://{}/?secret=none", addresses.join(","))
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::default();
    let start_ns = clock.now_ns();
    while !holds() {
        let waited = Duration::from_nanos(clock.now_ns() - start_ns);
        assert!(waited < WAIT_TIME_MAX, "{what}: not so within {WAIT_TIME_MAX:?}");
        clock.sleep(Duration::from_millis(2));
    }
}

/// Waits for the end of a program; one that hangs is killed. Returns whether it succeeded, and what
/// it printed.
#[track_caller]
pub(crate) fn finish(mut command: Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = process.expect("it runs");
    let (is_used, receiver) = mpsc::channel();
    thread::spawn(move || kill_unused(&receiver, &process));
    let output = child.wait_with_output().expect("it ends");
    drop(is_used);
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}
