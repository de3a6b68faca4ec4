// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same against a WebDAV server of others: WsgiDAV, which writes in place, and replaces a file on a MOVE
//! by deleting it first. `tools/setup.sh --suites` installs it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use terrace_backends::object::{Opendal, OpendalSettings};
use terrace_core::{ErrorKind, TierBackend};
use terrace_testkit::whole_suite;

/// Serves a directory to one user, prints the port, and ends with its input.
const PROGRAM: &str = r#"
import os, sys, threading
from cheroot import wsgi
from wsgidav.wsgidav_app import WsgiDAVApp

app = WsgiDAVApp({
    "provider_mapping": {"/files": sys.argv[1]},
    "simple_dc": {"user_mapping": {"*": {"me": {"password": "secret word"}}}},
    "http_authenticator": {"accept_basic": True, "accept_digest": False, "default_to_digest": False},
    "lock_storage": True, "property_manager": True, "verbose": 0, "logging": {"enable": False},
})
server = wsgi.Server(("127.0.0.1", 0), app)
server.prepare()
print(server.bind_addr[1], flush=True)

def end():
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=end, daemon=True).start()
server.serve()
"#;

/// A running server; it ends with this.
struct Server {
    process: Child,
    port: u16,
    directory: TempDir,
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir_all(directory.path().join("files/tier one")).expect("made");
        let mut process = Command::new(python())
            .args(["-c", PROGRAM])
            .arg(directory.path().join("files"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("WsgiDAV is installed: `tools/setup.sh --suites`");
        let mut line = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("it prints its port");
        let port = line.trim().parse().expect("the server started");
        Self { process, port, directory }
    }

    /// The settings with a file of credentials.
    fn settings(&self, password: &str) -> OpendalSettings {
        let file = self.directory.path().join(format!("credentials of {}", password.len()));
        let text = format!("user = me\npassword = {password}\n");
        std::fs::File::create(&file)
            .and_then(|mut to| to.write_all(text.as_bytes()))
            .expect("written");
        let endpoint = format!("http://127.0.0.1:{}/files", self.port);
        OpendalSettings {
            credentials: Some(file),
            ..OpendalSettings::webdav(&endpoint, "tier one")
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The Python that `tools/setup.sh` has made beside the build.
fn python() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this test");
    // TARGET/debug/deps/backends
    let target = program.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("webdav/bin/python")
}

fn suite() -> (Arc<Opendal>, Server) {
    let server = Server::start();
    let backend = Opendal::open(&server.settings("secret word"), u64::MAX, false).expect("opened");
    (Arc::new(backend), server)
}

whole_suite!(wsgidav, suite());

#[test]
fn wrong_credentials_and_directories_are_named() {
    let server = Server::start();
    let asked = |settings: &OpendalSettings| {
        let backend = Opendal::open(settings, u64::MAX, false).expect("no request yet");
        backend.superblock().expect_err("refused")
    };
    let error = asked(&server.settings("wrong"));
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    let settings = OpendalSettings { root: "missing".into(), ..server.settings("secret word") };
    let error = asked(&settings);
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    assert!(error.chain().contains("has no directory `root`"), "{}", error.chain());
}
