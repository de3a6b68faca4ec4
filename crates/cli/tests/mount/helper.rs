// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command as mount(8) runs it, for `/etc/fstab`: by a link to it that is called
//! `mount.fuse.terrace`.

use std::fs::{self, read, write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::XattrFlags;
use rustix::mount::UnmountFlags;
use terrace_core::{Clock, SystemClock};

use crate::scene::{Scene, Served, finish, wait_until};

/// What mount(8) calls it with, behind the store and the directory, where an entry has these options.
const CALLED: [&str; 3] = ["-n", "-o", "rw,noatime,log_file=log,log_level=debug"];

/// What the table of mounts says of a directory: options, kind of file system, and store.
fn entry(directory: &Path) -> Option<[String; 3]> {
    let table = fs::read_to_string("/proc/self/mounts").expect("it can be read");
    let lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut found = lines.filter(|words| Some(words[1]) == directory.to_str());
    found.next().map(|words| [words[3], words[2], words[0]].map(Into::into))
}

/// Takes away what a test that failed left mounted.
struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        // It is unmounted where nothing failed.
        let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_link_to_the_command_mounts_as_mount_asks_it_to_and_logs_where_its_options_say() {
    let Some(scene) = Scene::new() else { return };
    let link = scene.path("mount.fuse.terrace");
    symlink(env!("CARGO_BIN_EXE_terrace"), &link).expect("there is room");
    let place = fs::canonicalize(scene.directory("mnt")).expect("it is there");
    let _unmounted = Unmounted(&place);
    let helper = |what: &[&str]| {
        let mut command = Command::new(&link);
        command.current_dir(scene.path("")).env_remove("TERRACE_STORE");
        command.args(["store", "mnt"]).args(what);
        finish(command)
    };
    // As `mount -f`: everything is checked, and nothing mounted.
    let (is_right, text) = helper(&["-f", "-n", "-o", "rw"]);
    assert!(is_right && entry(&place).is_none(), "{text}");
    let (is_right, text) = helper(&["-f", "-n", "-o", "log_level=loud"]);
    assert!(!is_right && text.contains("level=\"loud\""), "{text}");

    // mount(8) prints nothing either.
    assert_eq!(helper(&CALLED), (true, String::new()));
    let [options, kind, source] = entry(&place).expect("it is mounted");
    for option in ["rw", "noatime", "nosuid", "nodev"] {
        assert!(options.split(',').any(|one| one == option), "{option} in {options}");
    }
    let store = fs::canonicalize(scene.path("store")).expect("it is there");
    assert_eq!((kind.as_str(), Path::new(&source)), ("fuse.terrace", store.as_path()));
    let file = place.join("file");
    write(&file, [7; 10_000]).expect("there is room");
    assert_eq!(read(&file).expect("it is there"), [7; 10_000]);
    // Nobody is told of the one that is left out, but who reads the log.
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, format!("user.terrace.{name}"), value, XattrFlags::empty())
    };
    set(&file, "pin", b"1").expect("it is there");
    set(&place, "tier", b"slow").expect("there is such a tier");
    let log = scene.path("log");
    wait_until("the log says that not all moved", || {
        let text = fs::read_to_string(&log).expect("it was made");
        text.contains("cannot move all that is below") && text.contains("files=1")
    });
    rustix::mount::unmount(&place, UnmountFlags::empty()).expect("nobody uses it");
    let (is_mounted, text) = helper(&CALLED);
    assert!(is_mounted, "the process that served has ended, or is waited for: {text}");
    assert_eq!(read(&file).expect("it is there"), [7; 10_000]);
    rustix::mount::unmount(&place, UnmountFlags::empty()).expect("nobody uses it");
    // It waits for the process that served.
    scene.ok(["fsck", "--repair"]);
}

/// Without the link it is called by the helper of libfuse.
const BY_LIBFUSE: &str = r#"
set -eu
trap 'umount --lazy "$2" 2>/dev/null || true' EXIT
mount -t tmpfs none /mnt
cp /sbin/mount.fuse3 /mnt/
mount --move /mnt /sbin
ln -s mount.fuse3 /sbin/mount.fuse
ln -s "$1" /sbin/terrace
mount --fstab "$3" "$2"
echo bytes >"$2/file"
grep -q " $2 fuse.terrace rw,noatime" /proc/self/mounts
umount "$2"
mount -t fuse.terrace -o ro,nosuid,nodev "$4" "$2"
[ "$(cat "$2/file")" = bytes ]
grep -q " $2 fuse.terrace ro,nosuid,nodev" /proc/self/mounts
umount "$2"
"#;

/// Mounts as it is done by hand and at boot, where nobody else sees what is in `/sbin`: the program, the
/// directory, the table and the store.
const BY_MOUNT: &str = r#"
set -eu
trap 'umount --lazy "$2" 2>/dev/null || true' EXIT
mount -t tmpfs none /sbin
ln -s "$1" /sbin/mount.fuse.terrace
mount --fstab "$3" "$2"
echo bytes >"$2/file"
[ "$(cat "$2/file")" = bytes ]
grep " $2 fuse.terrace rw,nosuid,nodev,noatime" /proc/self/mounts
umount "$2"
mount -t fuse.terrace -o ro "$4" "$2"
[ "$(cat "$2/file")" = bytes ]
if touch "$2/other" 2>/dev/null; then exit 1; fi
umount "$2"
[ ! -e "$2/file" ]
"#;

#[test]
fn mount_finds_the_link_for_an_entry_of_fstab() {
    let Some(scene) = Scene::new() else { return };
    let text = mount_by_table(&scene, BY_MOUNT);
    assert!(text.ends_with('\n') && text.lines().count() == 1, "nothing beside `grep`: {text}");
}

#[test]
fn without_the_link_libfuse_mounts_an_entry_of_fstab() {
    let Some(scene) = Scene::new() else { return };
    assert_eq!(mount_by_table(&scene, BY_LIBFUSE), "");
}

/// Runs a script with an entry of fstab for the store; returns what it printed.
#[track_caller]
fn mount_by_table(scene: &Scene, script: &str) -> String {
    let place = fs::canonicalize(scene.directory("mnt")).expect("it is there");
    let (table, store, log) = (scene.path("fstab"), scene.path("store"), scene.path("files.log"));
    let words = format!("noatime,nofail,log_file={}", log.display());
    let line = format!("{} {} fuse.terrace {words} 0 0\n", store.display(), place.display());
    write(&table, line).expect("there is room");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_terrace")).arg(&place).arg(&table).arg(&store);
    let (is_right, text) = finish(command);
    assert!(is_right, "{text}");
    assert!(log.is_file(), "it logs where the table says");
    assert_eq!(entry(&place), None);
    // It waits for the process that served.
    scene.ok(["fsck", "--repair"]);
    text
}

/// A server that is down, its address, and a directory to mount it at.
fn server_that_is_down(scene: &Scene) -> (Served, String, PathBuf) {
    let mut served = Served::start(scene);
    served.stop();
    let address = served.address();
    (served, address, fs::canonicalize(scene.directory("mnt")).expect("it is there"))
}

#[test]
fn a_mount_in_the_background_waits_for_its_server() {
    let Some(scene) = Scene::new() else { return };
    let (mut served, address, place) = server_that_is_down(&scene);
    let _unmounted = Unmounted(&place);
    let link = scene.path("mount.fuse.terrace");
    symlink(env!("CARGO_BIN_EXE_terrace"), &link).expect("there is room");
    let mut command = Command::new(&link);
    command.arg(&address).arg(&place).args(["-o", "rw,_netdev,bg,log_file=log"]);
    command.current_dir(scene.path(""));
    let (is_right, text) = finish(command);
    assert!(is_right && text.contains("waiting for terrace://"), "{text}");
    assert_eq!(entry(&place), None);
    let log = || fs::read_to_string(scene.path("log")).expect("it was made");
    wait_until("the log says what it waits for", || log().contains("no server answers yet"));
    served.start_again(&scene);
    wait_until("it is mounted", || entry(&place).is_some());
    write(place.join("file"), "bytes").expect("there is room");
    rustix::mount::unmount(&place, UnmountFlags::empty()).expect("nobody uses it");
}

#[test]
fn a_mount_is_tried_as_long_as_it_is_told() {
    let Some(scene) = Scene::new() else { return };
    let (mut served, address, place) = server_that_is_down(&scene);
    let _unmounted = Unmounted(&place);
    let mount = |how: &'static str| {
        let mut command = scene.command(["mount", "-o", how, "--log-file", "log"]);
        command.arg(&address).arg(&place);
        command
    };
    let clock = SystemClock::default();
    for (how, least) in [("rw", Duration::ZERO), ("fg,retry=700ms", Duration::from_millis(700))] {
        let begun_ns = clock.now_ns();
        let output = mount(how).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(11), "{how}: {output:?}");
        assert!(Duration::from_nanos(clock.now_ns() - begun_ns) >= least, "{how}");
    }
    // Asked to stop, it stops.
    let mut child = mount("bg").args(["--foreground", "--json"]).spawn().expect("the binary runs");
    clock.sleep(Duration::from_millis(200));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
    assert!(!child.wait().expect("it ends").success());
    std::thread::scope(|scope| {
        let mounting = scope.spawn(|| finish(mount("retry=1")));
        clock.sleep(Duration::from_millis(200));
        served.start_again(&scene);
        let (is_mounted, text) = mounting.join().expect("it does not panic");
        assert!(is_mounted && text.contains("mounted terrace://"), "{text}");
    });
    write(place.join("file"), "bytes").expect("there is room");
    rustix::mount::unmount(&place, UnmountFlags::empty()).expect("nobody uses it");
}
