// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Daemons that inherit signals, limits, a umask, descriptors or a directory that would stop or mislead them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal};

use crate::full_catalog::Small;
use crate::scene::{Mountpoint, Scene, finish, wait_until};

/// What a shell does before it becomes the daemon, and what has to be in the daemon's log or on its standard
/// error then.
const ENVIRONMENTS: &[(&str, Option<&str>)] = &[
    ("ulimit -f 1000", Some("RLIMIT_FSIZE is 1024000")),
    ("ulimit -Sf 10", None),
    ("ulimit -n 100", Some("RLIMIT_NOFILE is 100")),
    ("ulimit -v 4000000", Some("RLIMIT_AS is")),
    ("ulimit -St 1000", None),
    ("trap '' TERM INT HUP QUIT CHLD PIPE XFSZ XCPU ALRM USR1 USR2 TSTP TTIN TTOU", None),
    ("set -- env --block-signal \"$@\"", None),
    ("umask 777", None),
    ("umask 0", None),
    ("exec <&- >&- 2>&-", None),
    ("exec <&-", None),
    ("exec >&-", None),
    ("exec 2>&-", None),
    ("cd \"$(mktemp -d)\" && rmdir \"$PWD\"", None),
    ("export TMPDIR=/nonexistent LC_ALL=xx_YY.KOI8-R HOME=/nonexistent", None),
    ("export TMPDIR=\"$PWD/full\"", None),
    ("export TMPDIR=\"$PWD/read-only\"", None),
];

/// Longer than the limit of `ENVIRONMENTS`.
const LENGTH: usize = 3_000_000;

/// Directories of `ENVIRONMENTS` for temporary files, in which none can be made.
fn make_unusable(scene: &Scene) -> (Small, Mountpoint) {
    let full = Small::with_size(scene.directory("full"), c"size=4k");
    fs::write(full.0.join("file"), [7; 4096]).expect("there is as much room");
    let read_only = Mountpoint(scene.directory("read-only"));
    rustix::mount::mount("none", &read_only.0, "tmpfs", MountFlags::RDONLY, c"size=4k")
        .expect("root may mount");
    for (directory, errno) in [(&full.0, Errno::NOSPC), (&read_only.0, Errno::ROFS)] {
        let written = fs::write(directory.join("new"), b"x").map_err(|it| it.raw_os_error());
        assert_eq!(written, Err(Some(errno.raw_os_error())));
    }
    (full, read_only)
}

/// A command that a shell becomes once it has prepared its environment.
fn within(scene: &Scene, environment: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("{environment}; exec \"$@\"")).arg("bash");
    command.arg(env!("CARGO_BIN_EXE_terrace")).args(arguments);
    command.current_dir(scene.path("")).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(scene.log("errors"));
    command
}

/// A process that is killed with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended mostly.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map_or(0, |found| found.dev());
    device(path) != device(path.parent().expect("it is below the scene"))
}

/// The process in the background that serves a directory.
fn background(directory: &Path) -> Option<Pid> {
    let directory = directory.to_str().expect("it is text");
    let processes = fs::read_dir("/proc").expect("it is mounted").flatten();
    let number = |entry: fs::DirEntry| {
        let arguments = fs::read(entry.path().join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        let is_it = arguments.contains("--detached") && arguments.contains(directory);
        is_it.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    };
    processes.filter_map(number).find_map(Pid::from_raw)
}

fn check_file(path: &Path) {
    let bytes: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
    fs::write(path, &bytes).expect("it is served");
    assert!(fs::read(path).expect("it is served") == bytes, "{}", path.display());
    fs::remove_file(path).expect("it is served");
}

fn check_log(scene: &Scene, note: Option<&str>) {
    let logged = ["errors", "daemon"].map(|name| scene.has_logged(name, note.unwrap_or_default()));
    assert!(logged[0] || logged[1], "{note:?}");
}

#[test]
fn mounts_survive_what_they_inherit() {
    let Some(scene) = Scene::new() else { return };
    let _unusable = make_unusable(&scene);
    drop(scene.log("daemon"));
    let place = Mountpoint(scene.directory("mnt"));
    let [store, log] = ["store", "daemon.log"].map(|name| scene.path(name).display().to_string());
    let directory = place.0.display().to_string();
    for (environment, note) in ENVIRONMENTS {
        for mode in ["--foreground", "--uring=off"] {
            println!("{environment}, {mode}");
            let how = ["mount", "--log-file", &log, "--io", "served", mode, &store, &directory];
            let how: Vec<_> = match mode {
                // Its log goes to standard error.
                "--foreground" => how.into_iter().filter(|word| !word.contains("log")).collect(),
                _ => how.to_vec(),
            };
            let started = within(&scene, environment, &how).spawn().expect("there is bash");
            let mut started = Daemon(started);
            wait_until("it is mounted", || is_mounted(&place.0));
            check_file(&place.0.join("file"));
            check_log(&scene, *note);
            let process = match mode {
                "--foreground" => Pid::from_child(&started.0),
                _ => {
                    let ended = started.0.wait().expect("it ends");
                    assert!(ended.success() || environment.contains("exec"), "{ended}");
                    background(&place.0).expect("it serves")
                }
            };
            rustix::process::kill_process(process, Signal::TERM).expect("it runs");
            wait_until("SIGTERM unmounts", || !is_mounted(&place.0));
            if mode == "--foreground" {
                assert!(started.0.wait().expect("it ends").success());
            }
            wait_until("it has ended", || background(&place.0).is_none());
        }
    }
}

#[test]
fn servers_survive_what_they_inherit() {
    let Some(scene) = Scene::new() else { return };
    let _unusable = make_unusable(&scene);
    drop(scene.log("daemon"));
    let [store, socket] = ["store", "socket"].map(|name| scene.path(name).display().to_string());
    let bytes = vec![7; LENGTH];
    fs::write(scene.path("bytes"), &bytes).expect("there is room");
    for (environment, note) in ENVIRONMENTS {
        for verb in ["serve", "hold"] {
            println!("{environment}, {verb}");
            let listen = format!("unix:{socket}");
            let how = match verb {
                "serve" => vec!["--store", &store, verb, "--listen", &listen],
                _ => vec!["--store", &store, verb],
            };
            let started = within(&scene, environment, &how).spawn().expect("there is bash");
            let mut started = Daemon(started);
            let control = scene.path("store").join("control.sock");
            let there = if verb == "serve" { Path::new(&socket) } else { &control };
            wait_until("it listens", || {
                there.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
                    || started.0.try_wait().expect("it is a child").is_some()
            });
            let address =
                if verb == "serve" { format!("terrace+unix://{socket}") } else { store.clone() };
            let run = |arguments: &[&str]| {
                let arguments = ["--store", &address].into_iter().chain(arguments.iter().copied());
                finish(scene.command(arguments))
            };
            let steps: [&[&str]; 3] =
                [&["put", "a/b", "bytes"], &["get", "a/b", "back"], &["rm", "a/b"]];
            for arguments in steps {
                let (is_done, text) = run(arguments);
                assert!(is_done, "{arguments:?}: {text}");
            }
            assert!(fs::read(scene.path("back")).expect("it was fetched") == bytes);
            fs::remove_file(scene.path("back")).expect("it is there");
            check_log(&scene, *note);
            rustix::process::kill_process(Pid::from_child(&started.0), Signal::TERM)
                .expect("it runs");
            assert!(started.0.wait().expect("it ends").success());
        }
    }
}

/// Limits on files and time are for the command itself, too.
#[test]
fn commands_survive_what_they_inherit() {
    let Some(scene) = Scene::new() else { return };
    let _unusable = make_unusable(&scene);
    let [store, from, to] =
        ["store", "bytes", "back"].map(|name| scene.path(name).display().to_string());
    let bytes = vec![7; LENGTH];
    fs::write(&from, &bytes).expect("there is room");
    for (environment, _) in ENVIRONMENTS.iter().filter(|(it, _)| !it.starts_with("ulimit")) {
        println!("{environment}");
        let steps: [&[&str]; 4] =
            [&["put", "a/b", &from], &["get", "a/b", &to], &["ls", "a/"], &["rm", "a/b"]];
        for arguments in steps {
            let arguments = [&["--store", &store], arguments].concat();
            let status = within(&scene, environment, &arguments).status().expect("there is bash");
            assert!(status.success(), "{environment}, {arguments:?}: {status}");
        }
        assert!(fs::read(&to).expect("it was fetched") == bytes);
        fs::remove_file(&to).expect("it is there");
    }
    scene.ok(["fsck", "--verify"]);
}

#[test]
fn names_have_the_mode_of_their_maker() {
    let Some(scene) = Scene::new() else { return };
    let place = Mountpoint(scene.directory("mnt"));
    let [store, directory] = ["store", "mnt"].map(|name| scene.path(name).display().to_string());
    let below = || {
        let mut all = BTreeSet::new();
        let mut left: Vec<PathBuf> = vec![scene.path("store")];
        while let Some(path) = left.pop() {
            if path.is_dir() && !path.is_symlink() {
                left.extend(
                    fs::read_dir(&path).expect("it is there").flatten().map(|it| it.path()),
                );
            }
            all.insert(path);
        }
        all
    };
    for umask in ["umask 0", "umask 777", "umask 27"] {
        let before = below();
        let how = ["mount", "--foreground", "--io", "served", &store, &directory];
        let mut started = Daemon(within(&scene, umask, &how).spawn().expect("there is bash"));
        wait_until("it is mounted", || is_mounted(&place.0));
        let [file, made] = ["file", "directory"].map(|name| place.0.join(name));
        for mode in [0o600, 0o644, 0o640, 0o400] {
            // The umask of this process is that of the tests, which takes nothing from the owner's group here.
            fs::File::options().write(true).create_new(true).mode(mode).open(&file).expect("made");
            fs::write(&file, vec![7; 20_000]).expect("there is room");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is there");
            assert_eq!(file.metadata().expect("it is there").mode() & 0o7777, mode, "{umask}");
            fs::DirBuilder::new().mode(0o700).create(&made).expect("made");
            assert_eq!(made.metadata().expect("it is there").mode() & 0o7777, 0o700, "{umask}");
            fs::remove_dir(&made).expect("it is empty");
            let moved = place.0.join(format!("{umask}-{mode:o}"));
            fs::rename(&file, moved).expect("it is there");
        }
        let new: Vec<_> = below().difference(&before).cloned().collect();
        assert!(!new.is_empty(), "its files are on the tiers");
        for path in new {
            let Ok(found) = path.symlink_metadata() else { continue };
            let mode = found.mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{umask}: {mode:o} {}", path.display());
            assert_eq!(mode & 0o600, 0o600, "{umask}: {mode:o} {}", path.display());
        }
        rustix::mount::unmount(&place.0, UnmountFlags::empty()).expect("it is not used");
        assert!(started.0.wait().expect("it ends").success());
    }
}
