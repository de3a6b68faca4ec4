// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that is served with a certificate.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use terrace_testkit::{Authority, Certificate, Validity};

use crate::scene::Scene;

/// A scene with a secret, and files for one server.
fn scene() -> Scene {
    let scene = Scene::with_policy();
    scene.file("secret", "a secret that only tests know");
    private(&scene, "secret");
    let authority = Authority::default();
    scene.file("ca.pem", authority.pem());
    authority.issue(&["127.0.0.1"], Validity::Now).write(&scene.path("."));
    scene
}

fn private(scene: &Scene, name: &str) {
    std::fs::set_permissions(scene.path(name), Permissions::from_mode(0o600)).expect("chmod");
}

const SERVE: [&str; 9] = [
    "serve",
    "--listen=127.0.0.1:0",
    "--secret-file=secret",
    "--tls-cert",
    "cert.pem",
    "--tls-key",
    "key.pem",
    "--log-level",
    "off",
];

/// A running `terrace serve`.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(scene: &Scene) -> Self {
        let child = scene.command(SERVE).stdout(Stdio::piped()).spawn();
        let mut serving = Self { child: child.expect("the binary runs"), address: String::new() };
        let stdout = serving.child.stdout.take().expect("it is a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        let address = line.strip_prefix("serving store on ").and_then(|rest| rest.split_once(';'));
        serving.address = address.unwrap_or_else(|| panic!("{line:?}")).0.to_owned();
        serving
    }

    /// The store's address with these settings, as an option.
    fn store(&self, settings: &str) -> String {
        format!("--store=terrace://{}?secret=secret{settings}", self.address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_trusts_the_certificate_uses_the_store() {
    let scene = scene();
    let serving = Serving::start(&scene);
    let store = serving.store("&tls=ca.pem");
    scene.ok_with(b"encrypted on its way", [&store, "put", "run/1"]);
    assert_eq!(scene.ok([&store, "get", "run/1"]), "encrypted on its way");
    let named = serving.store("&tls=ca.pem&tls-name=127.0.0.1");
    assert_eq!(scene.ok([&named, "ls", "run"]), scene.ok([&store, "ls", "run"]));
}

#[test]
fn who_does_not_is_told_why() {
    let scene = scene();
    scene.file("other.pem", Certificate::self_signed(&["127.0.0.1"], false).pem);
    let serving = Serving::start(&scene);
    for (settings, reason) in [
        ("", "add `tls=FILE`"),
        ("&tls=other.pem", "vouches"),
        ("&tls=ca.pem&tls-name=node1", "only valid for IpAddress(127.0.0.1)"),
    ] {
        let ran = scene.run([&serving.store(settings), "ls", "run"]);
        assert_ne!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(reason), "{ran:?}");
    }
}

#[test]
fn a_check_looks_at_certificate_and_key() {
    let scene = scene();
    let check = |more: &[&'static str]| scene.run(SERVE.iter().chain(&["--check"]).chain(more));
    assert_eq!(check(&[]).status, Some(0));
    std::fs::set_permissions(scene.path("key.pem"), Permissions::from_mode(0o640)).expect("chmod");
    let ran = check(&[]);
    assert!(ran.stderr.contains("chmod 600"), "{ran:?}");
    private(&scene, "key.pem");
    scene.file("cert.pem", Certificate::self_signed(&["127.0.0.1"], false).pem);
    let ran = check(&[]);
    assert!(ran.stderr.contains("cannot be used together"), "{ran:?}");
    let ran = scene.run(["serve", "--listen=unix:socket", "--tls-cert=c", "--tls-key=k"]);
    assert!(ran.stderr.contains("Unix sockets are not encrypted"), "{ran:?}");
}
