// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `serve` reports to the service manager, which listens on a datagram socket.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;

use crate::scene::{Scene, signal};
use crate::serving::{Served, secret};

/// Longer than any machine takes for a report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

struct ServiceManager {
    socket: UnixDatagram,
}

impl ServiceManager {
    fn listen(scene: &Scene) -> Self {
        let socket = UnixDatagram::bind(scene.path("notify")).expect("a socket");
        socket.set_read_timeout(Some(REPORT_TIMEOUT)).expect("a timeout");
        Self { socket }
    }

    fn next_report(&self) -> String {
        let mut bytes = [0; 256];
        let length = self.socket.recv(&mut bytes).expect("a report in time");
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    }
}

#[test]
fn serve_reports_readiness_keep_alives_and_its_end() {
    let scene = Scene::new();
    secret(&scene);
    let manager = ServiceManager::listen(&scene);
    let served = Served::start_with(&scene, |command| {
        command.env("NOTIFY_SOCKET", scene.path("notify")).env("WATCHDOG_USEC", "20000");
    });
    assert_eq!(manager.next_report(), "READY=1");
    assert_eq!(manager.next_report(), "WATCHDOG=1");
    assert_eq!(manager.next_report(), "WATCHDOG=1");
    signal(&served.child, Signal::TERM);
    let mut after = std::iter::repeat_with(|| manager.next_report());
    assert_eq!(after.find(|report| report != "WATCHDOG=1").as_deref(), Some("STOPPING=1"));
    assert_eq!(served.stop().0, Some(0));
}

#[test]
fn serve_sends_no_keep_alives_without_a_watchdog() {
    let scene = Scene::new();
    secret(&scene);
    let manager = ServiceManager::listen(&scene);
    let served = Served::start_with(&scene, |command| {
        // A watchdog of another process.
        command.env("NOTIFY_SOCKET", scene.path("notify")).env("WATCHDOG_USEC", "1000");
        command.env("WATCHDOG_PID", "1");
    });
    assert_eq!(manager.next_report(), "READY=1");
    // Requests take longer than many intervals of that watchdog.
    scene.ok(crate::serving::with(&served.tcp, &["ls"]));
    signal(&served.child, Signal::TERM);
    assert_eq!(manager.next_report(), "STOPPING=1");
    assert_eq!(served.stop().0, Some(0));
}
