// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process in a name space of mounts of its own serves what another one mounts.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

use crate::scene::{Mountpoint, Scene, finish, wait_until};

/// Serves the store for what comes to the socket `mounter`, and sees no mount that is made by itself.
struct Server(Child);

impl Server {
    fn start(scene: &Scene, how: &[&str]) -> Self {
        let plain = scene.command(["mount", "--foreground", "--mounter", "mounter"]);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "--"]).arg(plain.get_program());
        command.args(plain.get_args()).args(how).args(["store", "mnt"]);
        command.current_dir(scene.path("")).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(scene.log("server")).spawn().expect("util-linux is there");
        wait_until("it waits for who mounts", || scene.path("mounter").exists());
        Self(child)
    }

    fn end(&mut self) -> ExitStatus {
        self.0.wait().expect("it is a child")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where it has ended already, that was what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mount_for(scene: &Scene, directory: &str) -> (bool, String) {
    finish(scene.command(["mount", "--for", "mounter", directory]))
}

/// The options in the table of mounts of this process, where a path is in it.
fn mount_options(path: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("Linux has it");
    let path = path.to_str().expect("it is text");
    let found = table.lines().find(|line| line.split(' ').nth(1) == Some(path))?;
    found.split(' ').nth(3).map(Into::into)
}

#[test]
fn another_process_mounts() {
    let Some(scene) = Scene::new() else { return };
    let place = Mountpoint(scene.directory("mnt"));
    let mut server = Server::start(&scene, &["-o", "noatime,noexec"]);
    let (is_mounted, text) = mount_for(&scene, "mnt");
    assert!(is_mounted, "{text}");
    assert_eq!(text, "");
    let options = mount_options(&place.0).expect("this process sees it");
    for word in ["noatime", "noexec", "nosuid", "allow_other", "default_permissions"] {
        assert!(options.split(',').any(|one| one == word), "{word}: {options}");
    }
    std::fs::write(place.0.join("file"), b"bytes").expect("it is mounted");
    rustix::mount::unmount(&place.0, UnmountFlags::empty()).expect("no program uses it");
    assert!(server.end().success());
    assert_eq!(mount_options(&place.0), None);
    // The socket of the last one is no obstacle.
    let mut server = Server::start(&scene, &[]);
    wait_until("it listens", || mount_for(&scene, "mnt").0);
    assert_eq!(std::fs::read(place.0.join("file")).expect("it is there"), b"bytes");
    rustix::mount::unmount(&place.0, UnmountFlags::empty()).expect("no program uses it");
    assert!(server.end().success());
}

#[test]
fn who_serves_ends_with_the_mount_alone() {
    let Some(scene) = Scene::new() else { return };
    let place = Mountpoint(scene.directory("mnt"));
    let mut server = Server::start(&scene, &["--log-level", "info"]);
    let (is_mounted, text) = mount_for(&scene, "mnt");
    assert!(is_mounted, "{text}");
    let process = Pid::from_child(&server.0);
    rustix::process::kill_process(process, Signal::TERM).expect("it runs");
    wait_until("it has heard the signal", || {
        scene.has_logged("server", "ends when it is unmounted")
    });
    std::fs::write(place.0.join("file"), b"bytes").expect("it is still served");
    rustix::mount::unmount(&place.0, UnmountFlags::empty()).expect("no program uses it");
    assert!(server.end().success());
}

#[test]
fn a_mount_that_fails_is_told_to_both() {
    let Some(scene) = Scene::new() else { return };
    let place = Mountpoint(scene.directory("mnt"));
    // Who mounts cannot.
    std::fs::write(scene.path("file"), b"").expect("there is room");
    let mut server = Server::start(&scene, &[]);
    let (is_mounted, text) = mount_for(&scene, "file");
    assert!(!is_mounted && text.contains("mount for another process"), "{text}");
    assert!(!server.end().success());
    // Who serves ends before it does.
    let waiting = UnixListener::bind(scene.path("other")).expect("a socket");
    let ends = thread::spawn(move || {
        let (mut stream, _) = waiting.accept().expect("a process comes");
        stream.write_all(b"fsname=store\tsubtype=terrace\n").expect("it listens");
        // So far the mount is there: this is the byte with its descriptor, which is not taken.
        stream.read_exact(&mut [0]).expect("it has mounted");
    });
    let (is_mounted, text) = finish(scene.command(["mount", "--for", "other", "mnt"]));
    ends.join().expect("it was mounted");
    assert!(!is_mounted && text.contains("its log says why"), "{text}");
    assert_eq!(mount_options(&place.0), None);
    // Nobody waits.
    let (is_mounted, text) = mount_for(&scene, "mnt");
    assert!(!is_mounted && text.contains("mounter"), "{text}");
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let Some(scene) = Scene::new() else { return };
    scene.directory("mnt");
    std::fs::write(scene.path("mounter"), b"bytes").expect("there is room");
    let arguments = ["mount", "--foreground", "--mounter", "mounter", "store", "mnt"];
    let (is_mounted, text) = finish(scene.command(arguments));
    assert!(!is_mounted && text.contains("mounter"), "{text}");
    assert_eq!(std::fs::read(scene.path("mounter")).expect("it is there"), b"bytes");
    let (is_taken, text) = finish(scene.command(["mount", "--mounter", "mounter", "store", "mnt"]));
    assert!(!is_taken && text.contains("--foreground"), "{text}");
}
