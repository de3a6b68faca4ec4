// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a mount reports to the service manager, which listens on a datagram socket.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::mount::UnmountFlags;

use crate::scene::{Mountpoint, Scene, finish};

/// Longer than any machine takes for a report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_mount_reports_readiness_and_keep_alives() {
    let Some(scene) = Scene::new() else { return };
    let place = Mountpoint(scene.directory("mnt"));
    let manager = UnixDatagram::bind(scene.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(REPORT_TIMEOUT)).expect("a timeout");
    let mut command = scene.command(["mount", "--foreground", "store", "mnt"]);
    command.env("NOTIFY_SOCKET", scene.path("notify")).env("WATCHDOG_USEC", "20000");
    let mut child = command.spawn().expect("the binary runs");
    let next_report = || {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).expect("a report in time");
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    };
    assert_eq!(next_report(), "READY=1");
    std::fs::write(place.0.join("file"), b"bytes").expect("it is mounted");
    assert_eq!(next_report(), "WATCHDOG=1");
    rustix::mount::unmount(&place.0, UnmountFlags::empty()).expect("no program uses it");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_mount_in_the_background_reports_nothing() {
    let Some(scene) = Scene::new() else { return };
    let place = Mountpoint(scene.directory("mnt"));
    let manager = UnixDatagram::bind(scene.path("notify")).expect("a socket");
    manager.set_nonblocking(true).expect("a socket");
    let mut command = scene.command(["mount", "store", "mnt"]);
    command.env("NOTIFY_SOCKET", scene.path("notify")).env("WATCHDOG_USEC", "20000");
    let (is_mounted, text) = finish(command);
    assert!(is_mounted, "{text}");
    // It would have reported that it is ready before the command returned.
    let nothing = manager.recv(&mut [0; 256]).expect_err("no report");
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    rustix::mount::unmount(&place.0, UnmountFlags::empty()).expect("no program uses it");
}
