// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that find each other, and what happens when they do not.

use std::fs::{self, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{program, quiet, run, start, total};
use tempfile::{TempDir, tempdir};

/// A directory with a secret, and what all members of a group are told.
fn group() -> (TempDir, PathBuf, String) {
    let directory = tempdir().unwrap();
    let secret = secret(directory.path(), "secret", "of the group, and nobody else");
    let words = format!("write -o {}/f -F -b 64k -t 4k -W -k", directory.path().display());
    (directory, secret, words)
}

fn secret(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn processes_of_three_hosts_do_one_phase() {
    let (_directory, secret, words) = group();
    let words = format!("{words} --secret-file {}", secret.display());
    let listen = format!("{words} --listen 127.0.0.1:0 --workers 3 --processes 1");
    let mut coordinator = start(&mut program(&listen));
    let address = coordinator.address();
    let join = |rank, count| {
        let own = format!("--join {address} --first-rank {rank} --processes {count}");
        start(&mut program(&format!("{words} {own}")))
    };
    let members = [join(2, 2), join(1, 1)];
    for member in members {
        let ended = member.end();
        assert!(ended.is_success, "{}", ended.stderr);
        assert_eq!(ended.stdout, "", "the report is the coordinator's");
    }
    let report = coordinator.end().report();
    assert_eq!(total(&report, "bytes"), 4 * (64 << 10));
    assert_eq!(report["processes"].as_array().unwrap().len(), 4);
}

#[test]
fn ranks_of_mpi_find_each_other() {
    let (_directory, secret, words) = group();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let words = format!("{words} --secret-file {} --mpi {free}", secret.display());
    let start_rank = |rank: u32| {
        let mut command = program(&words);
        command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", "3");
        start(&mut command)
    };
    let others = [start_rank(2), start_rank(1)];
    let report = start_rank(0).end().report();
    assert_eq!(total(&report, "bytes"), 3 * (64 << 10));
    for other in others {
        assert!(other.end().is_success);
    }
}

#[test]
fn mpirun_starts_ranks() {
    let (_directory, secret, words) = group();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let program = env!("CARGO_BIN_EXE_terrace-gen");
    let words = format!(
        "--allow-run-as-root --oversubscribe -n 3 {program} {words} --secret-file {} --mpi {free}",
        secret.display()
    );
    let report = start(&mut quiet("mpirun", &words)).end().report();
    assert_eq!(total(&report, "bytes"), 3 * (64 << 10));
}

#[test]
fn a_stranger_cannot_join_and_does_not_disturb() {
    let (directory, right, words) = group();
    let wrong = secret(directory.path(), "wrong", "a guess that is long enough");
    let listen = format!("--secret-file {} --listen 127.0.0.1:0 --workers 1", right.display());
    let mut coordinator = start(&mut program(&format!("{words} {listen}")));
    let address = coordinator.address();
    // One that says nothing is there all the time.
    let silent = TcpStream::connect(&address).unwrap();
    let join = |secret: &Path| {
        let own = format!("--join {address} --first-rank 0 --secret-file {}", secret.display());
        run(&format!("{words} {own}"))
    };
    let refused = join(&wrong).failure();
    assert!(refused.contains("cannot join: the secret is not that"), "{refused}");
    assert!(join(&right).is_success);
    let ended = coordinator.end();
    assert!(ended.stderr.contains("cannot join: the secret is not that"), "{}", ended.stderr);
    assert_eq!(total(&ended.report(), "bytes"), 64 << 10);
    drop(silent);
}

#[test]
fn another_pattern_or_a_rank_twice_is_refused() {
    let (_directory, secret, words) = group();
    let words = format!("{words} --secret-file {}", secret.display());
    let mut coordinator =
        start(&mut program(&format!("{words} --listen 127.0.0.1:0 --workers 1 --processes 1")));
    let address = coordinator.address();
    let join = |more: &str| run(&format!("{words} --join {address} {more}"));
    let pattern = join("--first-rank 1 --seed 7").failure();
    assert!(pattern.contains("pattern is not that of the coordinator"), "{pattern}");
    let twice = join("--first-rank 0").failure();
    assert!(twice.contains("another worker has the rank"), "{twice}");
    let beyond = join("--first-rank 2").failure();
    assert!(beyond.contains("not below the number of processes"), "{beyond}");
    assert!(join("--first-rank 1").is_success);
    assert!(coordinator.end().is_success);
}

#[test]
fn one_that_never_comes_is_waited_for_so_long() {
    let (_directory, secret, words) = group();
    let words = format!("{words} --secret-file {} --wait 0.2", secret.display());
    let listen = format!("{words} --listen 127.0.0.1:0 --workers 1 --processes 1");
    let missing = run(&listen).failure();
    assert!(missing.contains("workers are missing joined=0 missing=1"), "{missing}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let alone = run(&format!("{words} --join {free} --first-rank 0")).failure();
    assert!(alone.contains("cannot reach the coordinator"), "{alone}");
}

#[test]
fn a_worker_that_dies_ends_the_run() {
    let directory = tempdir().unwrap();
    let words =
        format!("write -o {}/f -F --processes 2 --duration 100000", directory.path().display());
    let running = start(&mut program(&words));
    let children = children(running.child.id(), 2);
    kill(children[1]);
    let failure = running.end().failure();
    assert!(failure.contains("a worker is gone rank="), "{failure}");
    assert!(!is_alive(children[0]), "the other one is left");
}

#[test]
fn a_coordinator_that_dies_ends_the_workers() {
    let (_directory, secret, words) = group();
    let words = words.replace(" -W", "");
    let words = format!("{words} --duration 100000 --secret-file {}", secret.display());
    let mut coordinator = start(&mut program(&format!("{words} --listen 127.0.0.1:0 --workers 1")));
    let address = coordinator.address();
    let member = start(&mut program(&format!("{words} --join {address} --first-rank 0")));
    children(member.child.id(), 1);
    kill(coordinator.child.id());
    assert!(!coordinator.end().is_success);
    let failure = member.end().failure();
    assert!(failure.contains("a worker ended rank=0"), "{failure}");
}

#[test]
fn a_secret_that_others_can_read_is_none() {
    let (_directory, secret, words) = group();
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
    let words =
        format!("{words} --secret-file {} --join 127.0.0.1:1 --first-rank 0", secret.display());
    let failure = run(&words).failure();
    assert!(failure.contains("chmod 600"), "{failure}");
}

/// The workers of a running program, once it has so many.
fn children(pid: u32, count: usize) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    for _ in 0..1_000_000 {
        let text = fs::read_to_string(&path).unwrap();
        let children: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        if children.len() == count {
            return children;
        }
        std::thread::yield_now();
    }
    panic!("{pid} has not started {count} workers");
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
