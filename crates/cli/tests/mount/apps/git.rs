// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Git: clones, checks and packs a repository.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use terrace_core::Random;

use super::{Stage, program, same, silent, succeed, text};
use crate::suites::How;

/// Commits of the repository, and files that each changes.
const COMMITS: u64 = 60;
const CHANGES: u64 = 8;

/// Names that there are; some are in directories of their own.
const FILES: u64 = 120;

/// Length of most files; one in some is ten times as long.
const FILE_BYTES_MAX: u64 = 12_000;

#[test]
fn git_keeps_its_objects_while_they_move() {
    keeps_its_objects(How::Served);
}

#[test]
fn git_keeps_its_objects_while_they_move_behind_a_server() {
    keeps_its_objects(How::Network);
}

fn keeps_its_objects(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("git", how, seed) else { return };
        let origin = stage.place.scene.directory("origin");
        make_origin(&origin, seed);
        stage.run(|run| {
            let clone = stage.path().join(format!("clone{run}"));
            clones_and_packs(&origin, &clone, &mut Random::new(seed + run));
            // Read back by somebody else, on another file system.
            let back = stage.place.scene.path(&format!("back{run}"));
            silent(clone_of(&clone, &back));
            same(&clone, &back);
            fs::remove_dir_all(&back).expect("it is there");
        });
        stage.end();
    }
}

fn clones_and_packs(origin: &Path, clone: &Path, random: &mut Random) {
    silent(clone_of(origin, clone));
    same(&origin.join("tree"), clone);
    succeed(git(clone, &["fsck", "--full", "--strict"]));
    // Loose objects, which the next step packs together with what came as one pack.
    for number in 0..4 {
        for _ in 0..3 {
            let path = clone.join(name_of(random.below(FILES)));
            fs::create_dir_all(path.parent().expect("it is in the clone")).expect("there is room");
            fs::write(path, text(random, 3_000)).expect("there is room");
        }
        silent(git(clone, &["add", "--all"]));
        silent(git(clone, &["commit", "--quiet", "--message", &format!("local {number}")]));
    }
    succeed(git(clone, &["gc", "--quiet", "--prune=now"]));
    succeed(git(clone, &["fsck", "--full", "--strict"]));
    silent(git(clone, &["status", "--porcelain"]));
}

/// Makes a bare repository, and beside it the tree that its last commit has.
fn make_origin(origin: &Path, seed: u64) {
    silent(git(origin, &["init", "--quiet", "--bare", "--initial-branch=main"]));
    let mut random = Random::new(seed);
    let mut stream = Vec::new();
    let tree = origin.join("tree");
    for commit in 0..COMMITS {
        write!(
            stream,
            "commit refs/heads/main\ncommitter T <t@example.org> {} +0000\ndata 1\n.\n",
            1_700_000_000 + commit
        )
        .expect("memory can be written");
        for _ in 0..CHANGES {
            let name = name_of(random.below(FILES));
            let factor = if random.below(10) == 0 { 10 } else { 1 };
            let length = factor * (1 + random.below(FILE_BYTES_MAX)) as usize;
            let content = text(&mut random, length);
            write!(stream, "M 100644 inline {}\ndata {length}\n", name.display())
                .expect("memory can be written");
            stream.extend_from_slice(&content);
            stream.push(b'\n');
            let path = tree.join(name);
            fs::create_dir_all(path.parent().expect("it is in the tree")).expect("there is room");
            fs::write(path, content).expect("there is room");
        }
    }
    let path = origin.join("stream");
    fs::write(&path, stream).expect("there is room");
    let mut import = program("sh");
    import.args(["-c", "exec git -C \"$1\" fast-import --quiet <\"$2\"", "sh"]);
    silent({
        import.arg(origin).arg(&path);
        import
    });
}

fn name_of(number: u64) -> PathBuf {
    match number % 3 {
        0 => format!("file{number}").into(),
        _ => format!("directory{}/inner{}/file{number}", number % 7, number % 4).into(),
    }
}

fn clone_of(from: &Path, to: &Path) -> Command {
    let url = format!("file://{}", from.display());
    let mut command = git(Path::new("/"), &["clone", "--quiet", &url]);
    command.arg(to);
    command
}

fn git(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = program("git");
    // Nothing of who runs the test.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "T");
        command.env(format!("GIT_{role}_EMAIL"), "t@example.org");
    }
    command.arg("-C").arg(directory).args(arguments);
    command
}
