// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts that another process serves in the background.

use std::fs::write;
use std::path::Path;

use rustix::mount::UnmountFlags;
use serde_json::Value;

use crate::scene::{Mountpoint, Scene, Served, finish, wait_until};

#[test]
fn a_mount_in_the_background_can_be_used_once_the_command_ends() {
    let Some(scene) = Scene::new() else { return };
    let place = Mountpoint(scene.directory("mnt"));
    scene.keep_secret("a secret of this test\n");
    let served = Served::start_with_secret(&scene);
    // Paths below the directory that the command is started in.
    let address = format!("terrace://{}/", served.listens_on());
    for (address, variable) in
        [(format!("{address}?secret=secret"), ""), (address.clone(), "secret")]
    {
        let mut command = scene.command(["mount", "--json", &address, "mnt"]);
        command.env("TERRACE_SECRET_FILE", variable);
        let (is_mounted, text) = finish(command);
        assert!(is_mounted, "{text}");
        let ready: Value = serde_json::from_str(&text).expect("a line of JSON");
        let process = Path::new("/proc").join(ready["process"].to_string());
        write(place.0.join("file"), b"bytes").expect("it is mounted");
        wait_until("it keeps no directory from being unmounted", || {
            process.join("cwd").read_link().expect("it runs") == Path::new("/")
        });
        rustix::mount::unmount(&place.0, UnmountFlags::empty()).expect("nobody uses it");
        wait_until("the process ends", || !process.exists());
    }
}
