// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that is gone without a word, because its network is.

#[path = "common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use terrace_core::{Backend, Key, Open};
use terrace_server::{Limits, Server};
use terrace_testkit::namespace::{Cable, NEAR, far, has_own_network};

use common::{clock, connect, eventually, options, secret, store};

const TEST: &str = "a_client_that_is_gone_without_a_word_is_let_go_in_time";

/// Names the port, in the process that is to vanish.
const PORT: &str = "TERRACE_TEST_VANISH";

/// Longest silence of a machine until its connections end, as documented, and the longest that a
/// loaded machine may take on top.
const SILENCE_MAX: Duration = Duration::from_secs(20);
const SLACK: Duration = Duration::from_secs(20);

/// The other process; killed with this.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens objects, says so, and never closes them.
fn vanish(port: &str) {
    let mut line = String::new();
    // There is a cable once this comes.
    std::io::stdin().read_line(&mut line).expect("a pipe");
    let endpoint = format!("{NEAR}:{port}").parse().expect("an address");
    let client = connect(&endpoint, options()).expect("it serves");
    let open = |name| client.open(&Key::new("n", name).expect("legal"), &Open::create());
    let _opened = (open("a").expect("room"), open("b").expect("room"));
    println!("\nopened");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_client_that_is_gone_without_a_word_is_let_go_in_time() {
    if let Ok(port) = std::env::var(PORT) {
        return vanish(&port);
    }
    if !has_own_network(TEST) {
        return;
    }
    let limits = Limits { linger: Duration::from_secs(1), ..Limits::default() };
    let server = Server::new(store(), Some(secret()), limits, clock());
    let endpoint = server.listen(&"0.0.0.0:0".parse().expect("legal")).expect("listen");
    let port = endpoint.to_string().rsplit(':').next().expect("a port").to_string();
    let mut command = far(std::env::current_exe().expect("it runs"));
    command.args([TEST, "--exact", "--nocapture"]).env(PORT, port);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut peer = Peer(child);
    let mut lines = BufReader::new(peer.0.stdout.take().expect("a pipe")).lines();
    let mut hear = |word: &str| {
        let found = lines.by_ref().map(|line| line.expect("text")).find(|line| line == word);
        assert!(found.is_some(), "it ended without saying {word}");
    };
    hear("running 1 test");
    let cable = Cable::to(peer.0.id());
    let mut input = peer.0.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"go\n").expect("it listens");
    hear("opened");
    let status = server.status();
    assert_eq!((status.sessions, status.handles), (1, 2));
    assert!(status.connections > 0);

    cable.cut();
    let clock = clock();
    let cut_ns = clock.now_ns();
    drop(peer);
    // Whatever it said at its end was lost with the cable.
    assert_eq!(server.status().connections, status.connections);
    eventually("the connections end", || server.status().connections == 0);
    let silence = Duration::from_nanos(clock.now_ns() - cut_ns);
    assert!(silence < SILENCE_MAX + SLACK, "{silence:?}");
    eventually("the session ends", || server.status().sessions == 0);
    assert_eq!(server.status().handles, 0);
}
