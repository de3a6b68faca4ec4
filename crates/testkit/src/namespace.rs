// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of a test's own: two namespaces of the kernel with a cable between them, which can be
//! cut. They vanish with their processes, whatever becomes of the test.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Where the test itself is.
pub const NEAR: &str = "10.77.0.1";

/// Where processes of [`far`] are, once there is a [`Cable`] to one of them.
pub const FAR: &str = "10.77.0.2";

/// Set in the process that has a network of its own.
const VARIABLE: &str = "TERRACE_TEST_NETWORK";

/// Whether this process has a network of its own. Where it has not, the test with this full name
/// is run again by a process that has one; it has passed when this returns.
///
/// Root makes the network as it is, others in a namespace of users.
///
/// # Panics
///
/// Where the kernel gives no such namespace, and where the test fails.
pub fn has_own_network(test: &str) -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("it runs");
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--"]).arg(program).args([test, "--exact", "--nocapture"]);
    let output = command.env(VARIABLE, "1").stdin(Stdio::null()).output();
    let output = output.expect("`unshare` of util-linux is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    // A name of no test would pass, too.
    let has_run = said.contains("1 passed");
    assert!(
        output.status.success() && has_run,
        "{test} failed in a network of its own; where that could not be made, run the test as \
         root, or allow namespaces of users (kernel.unprivileged_userns_clone): {said}\n{complained}"
    );
    false
}

/// A program in a network of its own, which is unreachable before there is a [`Cable`] to it.
pub fn far(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg(program);
    command
}

/// Connects this process and one of [`far`].
#[derive(Debug)]
pub struct Cable {
    far: u32,
}

impl Cable {
    /// To the process of this number, which has reported that it runs.
    ///
    /// # Panics
    ///
    /// Where it has no network of its own, or `ip` fails.
    pub fn to(far: u32) -> Self {
        let network =
            |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).expect("it runs");
        assert_ne!(network("self"), network(&far.to_string()), "they have the same network");
        let cable = Self { far };
        let number = far.to_string();
        ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &number]);
        ip(&["address", "add", &format!("{NEAR}/24"), "dev", "near"]);
        ip(&["link", "set", "near", "up"]);
        cable.ip_far(&["address", "add", &format!("{FAR}/24"), "dev", "far"]);
        cable.mend();
        cable
    }

    /// From now on nothing arrives, and neither side is notified.
    pub fn cut(&self) {
        self.ip_far(&["link", "set", "far", "down"]);
    }

    /// From now on everything arrives again.
    pub fn mend(&self) {
        self.ip_far(&["link", "set", "far", "up"]);
    }

    fn ip_far(&self, arguments: &[&str]) {
        let process = self.far.to_string();
        let mut command = Command::new("nsenter");
        run(command.args(["--target", &process, "--net", "ip"]).args(arguments));
    }
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn run(command: &mut Command) {
    // `ip` may lie where only root looks.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output();
    let output = output.expect("`ip` of iproute2 and `nsenter` of util-linux are installed");
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complained}");
}
