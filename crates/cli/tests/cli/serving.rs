// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `serve`, and commands that use the store by an address of the server.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Ran, Scene, signal};

/// A running `terrace serve`.
pub(crate) struct Served {
    pub(crate) child: Child,
    /// Over TCP, and over a Unix socket.
    pub(crate) tcp: String,
    pub(crate) unix: String,
}

impl Served {
    pub(crate) fn start(scene: &Scene) -> Self {
        Self::start_with(scene, |_| {})
    }

    /// The same with a command that `change` has changed.
    pub(crate) fn start_with(scene: &Scene, change: impl FnOnce(&mut Command)) -> Self {
        let socket = scene.path("socket");
        let mut command = scene.command(["--json", "serve", "--listen", "127.0.0.1:0"]);
        command.arg("--listen").arg(format!("unix:{}", socket.display()));
        command.args(["--secret-file", "secret", "--log-level", "warn"]);
        change(&mut command);
        Self::of(scene, command)
    }

    fn of(scene: &Scene, mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut reason = String::new();
            let _ = child.stderr.take().expect("a pipe").read_to_string(&mut reason);
            panic!("it does not serve: {line:?} {reason}")
        });
        assert_eq!(ready["ready"], true);
        let address = ready["listen"][0].as_str().expect("an address");
        let secret = scene.path("secret");
        let tcp = format!("terrace://{address}?secret={}", secret.display());
        let unix = format!("terrace+unix://{}", scene.path("socket").display());
        Self { child, tcp, unix }
    }

    /// Ends it in an orderly way; returns its status and what it logged.
    pub(crate) fn stop(mut self) -> (Option<i32>, String) {
        signal(&self.child, Signal::TERM);
        let mut log = String::new();
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        stderr.read_to_string(&mut log).expect("it is text");
        (self.child.wait().expect("it ends").code(), log)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A test that failed; otherwise it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn secret(scene: &Scene) {
    let path = scene.file("secret", "a secret of this test\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
}

pub(crate) fn with<'a>(store: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["--store", store], arguments].concat()
}

#[test]
fn a_store_looks_the_same_through_a_server() {
    let scene = Scene::new();
    secret(&scene);
    scene.ok_with(&[1; 2_500_000], ["put", "a/large"]);
    scene.ok_with(b"small", ["put", "a/small"]);
    scene.ok(["migrate", "a/small", "--to", "slow"]);
    scene.ok(["kv", "put", "a/pair", "value"]);
    let look = |store: &str| -> Vec<Ran> {
        [
            &["ls"][..],
            &["ls", "--json", "-l"],
            &["stat", "a/small"],
            &["get", "a/large"],
            &["get", "nope"],
            &["get", "--json", "nope"],
            &["kv", "scan", "a"],
            &["kv", "get", "nope"],
            &["migrate", "a/small", "--to", "tape"],
            &["rm", "nope"],
            &["fsck"],
        ]
        .map(|arguments| scene.run(with(store, arguments)))
        .into()
    };
    let alone = look("store");
    let served = Served::start(&scene);
    assert_eq!(look(&served.tcp), alone);
    assert_eq!(look(&served.unix), alone);
    // Processes of the machine go on using the directory.
    assert_eq!(look("store"), alone);
    assert_eq!(served.stop(), (Some(0), String::new()));
    assert_eq!(look("store"), alone);
}

#[test]
fn a_served_store_takes_every_kind_of_change() {
    let scene = Scene::new();
    secret(&scene);
    let served = Served::start(&scene);
    let content: Vec<u8> = (0..2_100_000u32).map(|i| (i / 7) as u8).collect();
    scene.file("in", &content);
    for store in [&served.tcp, &served.unix] {
        let ok = |arguments: &[&str]| scene.ok(with(store, arguments));
        ok(&["put", "a/x", "in"]);
        ok(&["put", "a/x", "in"]);
        ok(&["get", "a/x", "out"]);
        assert_eq!(scene.read("out"), content);
        ok(&["migrate", "a/x", "--to", "slow"]);
        ok(&["pin", "a/x"]);
        scene.fails(7, with(store, &["migrate", "a/x", "--to", "fast"]));
        ok(&["unpin", "a/x"]);
        ok(&["kv", "put", "a/x", "pair"]);
        ok(&["fsck", "--verify"]);
        ok(&["cp", ":a/x", ":a/y"]);
        ok(&["rm", "a/x", "a/y"]);
        ok(&["put", "--semantics", "posix,persistency=storage", "a/z", "in"]);
        ok(&["rm", "a/z"]);
    }
    assert_eq!(served.stop().0, Some(0));
    assert_eq!(scene.ok(["ls"]), "");
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    let scene = Scene::new();
    secret(&scene);
    let served = Served::start(&scene);
    let (address, _) = served.tcp.split_once('?').expect("settings");
    let error = scene.fails(7, with(&format!("{address}?secret=none"), &["ls"]));
    assert!(error.contains("asks for a secret"), "{error}");
    let other = scene.file("other", "not the secret of this test");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    let error = scene.fails(7, with(&format!("{address}?secret={}", other.display()), &["ls"]));
    assert!(error.contains("does not know the secret"), "{error}");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let error = scene.fails(7, with(&format!("{address}?secret={}", other.display()), &["ls"]));
    assert!(error.contains("chmod 600"), "{error}");
    let log = served.stop().1;
    assert!(log.contains("refused"), "{log}");
}

#[test]
fn a_server_is_seen_and_steered() {
    let scene = Scene::new();
    secret(&scene);
    let served = Served::start(&scene);
    let status = scene.ok(with(&served.tcp, &["--json", "server", "status"]));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["log_level"], "warn");
    assert_eq!(status["process"], served.child.id());
    scene.ok(with(&served.tcp, &["server", "log-level", "debug"]));
    let status = scene.ok(with(&served.tcp, &["server", "status"]));
    assert!(status.contains("debug"), "{status}");
    let error = scene.fails(10, ["server", "status"]);
    assert!(error.contains("terrace://"), "{error}");
    let log = served.stop().1;
    assert!(log.contains("disconnected"), "{log}");
}

#[test]
fn an_object_over_several_servers_is_whole_or_refused() {
    let scenes = [Scene::new(), Scene::new()];
    scenes.iter().for_each(secret);
    let servers = [Served::start(&scenes[0]), Served::start(&scenes[1])];
    let address = |served: &Served| {
        let (address, _) = served.tcp.split_once('?').expect("it has the secret");
        address["terrace://".len()..].to_owned()
    };
    let [scene, _] = &scenes;
    let secret = scene.path("secret");
    let hosts = format!("{},{}", address(&servers[0]), address(&servers[1]));
    let both = format!("terrace://{hosts}?secret={}&stripe=64KiB", secret.display());
    scene.ok_with(&[1; 1_000_000], with(&both, &["put", "a/large"]));
    let listed = scene.ok(with(&both, &["ls", "--json", "-l", "a"]));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["size_bytes"], 1_000_000);
    let planned = scene.ok(with(&both, &["migrate", "a/large", "--to", "slow", "--dry-run"]));
    assert!(planned.contains("would move"), "{planned}");
    // Each of them has parts, which go only with the whole object.
    for served in &servers {
        let error = scene.fails(10, with(&served.tcp, &["rm", "-r", "a"]));
        assert!(error.contains("lies over several servers"), "{error}");
        scene.fails(10, with(&served.tcp, &["rm", "-r", "--dry-run", "a"]));
    }
    let error = scene.fails(10, with(&both, &["server", "status"]));
    assert!(error.contains("asked of one of them"), "{error}");
    assert_eq!(scene.run(with(&both, &["get", "a/large"])).stdout.len(), 1_000_000);
    scene.ok(with(&both, &["rm", "a/large"]));
    for served in servers {
        assert_eq!(scene.ok(with(&served.tcp, &["ls"])), "");
        assert_eq!(served.stop().0, Some(0));
    }
}

#[test]
fn what_cannot_be_served_is_refused_before_anything_is_done() {
    let scene = Scene::new();
    secret(&scene);
    scene.ok(["serve", "--check", "--secret-file", "secret"]);
    scene.fails(3, ["serve", "--check", "--secret-file", "missing"]);
    scene.fails(2, ["serve", "--check", "--no-secret", "--listen", "nonsense:port"]);
    // An address of a documentation network, RFC 5737: no machine has it.
    scene.fails(1, ["serve", "--check", "--no-secret", "--listen", "192.0.2.1:0"]);
    scene.file("file", "not a socket");
    scene.fails(6, ["serve", "--check", "--no-secret", "--listen", "unix:file"]);
    scene.fails(2, ["--store", "http://host", "ls"]);
    scene.fails(3, ["--store", "elsewhere", "serve", "--check", "--no-secret"]);
    let served = Served::start(&scene);
    let error = scene.fails(5, ["serve", "--no-secret", "--listen", "127.0.0.1:0"]);
    assert!(error.contains("another process owns it"), "{error}");
    scene.fails(7, with(&served.tcp, &["backup", "copy"]));
    scene.fails(10, with(&served.tcp, &["hold"]));
    scene.fails(10, with(&served.tcp, &["init"]));
    assert_eq!(served.stop().0, Some(0));
}

#[test]
fn a_server_that_was_killed_is_started_again_and_loses_nothing() {
    let scene = Scene::new();
    secret(&scene);
    let mut served = Served::start(&scene);
    scene.ok_with(b"kept", with(&served.tcp, &["put", "a/x"]));
    signal(&served.child, Signal::KILL);
    served.child.wait().expect("it ends");
    let error = scene.fails(11, with(&format!("{}&deadline=2s", served.tcp), &["get", "a/x"]));
    assert!(error.contains("does not answer"), "{error}");
    let again = Served::start(&scene);
    assert_eq!(scene.ok(with(&again.tcp, &["get", "a/x"])), "kept");
    assert_eq!(again.stop().0, Some(0));
}
