// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PostgreSQL: clients of pgbench move money, and no page and no transaction is lost.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use super::{Stage, program, succeed};
use crate::scene::wait_until;
use crate::suites::How;

/// Whose processes they are: it refuses to run as root.
const USER: &str = "postgres";

/// Where Debian has a directory of programs for each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Every sum must be that of what was noted about each transaction.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = noted
    AND (SELECT sum(tbalance) FROM pgbench_tellers) = noted
    AND (SELECT sum(bbalance) FROM pgbench_branches) = noted
    FROM (SELECT sum(delta) AS noted FROM pgbench_history) AS history";

#[test]
fn postgresql_keeps_its_accounts_while_they_move() {
    keeps_its_accounts(How::Served);
}

#[test]
fn postgresql_keeps_its_accounts_while_they_move_behind_a_server() {
    keeps_its_accounts(How::Network);
}

fn keeps_its_accounts(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("postgresql", how, seed) else { return };
        stage.place.scene.let_everybody_in();
        let cluster = Cluster::new(&stage);
        let mut server = cluster.start(&stage);
        succeed(cluster.client("pgbench", &["--initialize", "--quiet", "--foreign-keys"]));
        stage.run(|run| {
            let seed = format!("--random-seed={}", seed + run);
            let clients = ["--client=4", "--jobs=2", "--transactions=150", "--no-vacuum"];
            succeed(cluster.client("pgbench", &[&clients[..], &[&seed]].concat()));
            let question = ["--no-psqlrc", "--tuples-only", "--no-align", "--command", SUMS];
            assert_eq!(succeed(cluster.client("psql", &question)).trim(), "t");
        });
        succeed(cluster.client("pg_amcheck", &["--install-missing", "--heapallindexed"]));
        server.stop();
        succeed(cluster.command("pg_checksums", &["--check", "--pgdata"], Some(&cluster.pages)));
        stage.end();
    }
}

/// A cluster of databases on a mount.
struct Cluster {
    programs: PathBuf,
    pages: PathBuf,
    sockets: PathBuf,
}

impl Cluster {
    fn new(stage: &Stage) -> Self {
        let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
        let programs = versions.map(|version| version.path().join("bin")).max();
        let programs = programs.unwrap_or_else(|| {
            panic!("there is no PostgreSQL below {VERSIONS}; `tools/setup.sh --suites` installs it")
        });
        let (pages, sockets) = (stage.path().join("pages"), stage.place.scene.path("sockets"));
        let cluster = Self { programs, pages, sockets };
        // Whose home it is has the number of the user.
        let home = fs::metadata("/var/lib/postgresql").expect("the package makes it");
        for directory in [&cluster.pages, &cluster.sockets] {
            fs::create_dir(directory).expect("it is free");
            chown(directory, Some(home.uid()), Some(home.gid())).expect("it is root");
        }
        let how = ["--data-checksums", "--auth=trust", "--encoding=UTF8", "--locale=C", "--pgdata"];
        succeed(cluster.command("initdb", &how, Some(&cluster.pages)));
        cluster
    }

    fn command(&self, name: &str, arguments: &[&str], path: Option<&Path>) -> Command {
        let mut command = program("setpriv");
        command.arg(format!("--reuid={USER}")).args(["--regid", USER, "--clear-groups", "--"]);
        command.arg(self.programs.join(name)).args(arguments).args(path).current_dir("/");
        command.env("HOME", "/").env("PGHOST", &self.sockets).env("PGDATABASE", USER);
        command
    }

    /// A program that asks the server.
    fn client(&self, name: &str, arguments: &[&str]) -> Command {
        self.command(name, arguments, None)
    }

    fn start(&self, stage: &Stage) -> Server {
        let settings = ["listen_addresses=", "shared_buffers=4MB", "checkpoint_timeout=30s"];
        let mut command = self.command("postgres", &["-D"], Some(&self.pages));
        for setting in settings {
            command.args(["-c", setting]);
        }
        command.arg("-k").arg(&self.sockets);
        let log = stage.place.scene.log("postgresql");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let server = Server { child: child.expect("setpriv runs") };
        wait_until("the server answers", || {
            let mut command = self.client("pg_isready", &[]);
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
            status.expect("setpriv runs").success()
        });
        server
    }
}

/// The process that serves a cluster.
struct Server {
    child: Child,
}

impl Server {
    /// Ends it in an orderly way, whoever is connected.
    fn stop(&mut self) {
        let process = Pid::from_child(&self.child);
        rustix::process::kill_process(process, Signal::INT).expect("it was not waited for");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where it has ended already, that was what was wanted.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let _ = self.child.wait();
    }
}
