// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores that are in use: who finds that is told by which process, and what for.

use crate::scene::{Held, Scene};

#[test]
fn a_store_that_is_held_names_its_process_and_purpose() {
    let scene = Scene::new();
    let held = scene.hold();
    let process = format!("process={}", held.process());
    scene.file("saved", b"");
    for arguments in [
        &["hold"][..],
        &["serve", "--no-secret", "--listen", "127.0.0.1:0"],
        &["calibrate", "--seconds", "1"],
        &["fsck", "--rebuild"],
        &["fsck", "--repair"],
    ] {
        let line = scene.fails(5, arguments);
        assert!(line.contains(&process), "{arguments:?}: {line}");
        assert!(line.contains("terrace hold\""), "{arguments:?}: {line}");
    }
    held.stop();
    let held = Held::start(scene.command(["hold", "--dry-run"]));
    let line = scene.fails(5, ["fsck", "--rebuild"]);
    assert!(line.contains("terrace hold --dry-run\""), "it is that of now: {line}");
    held.stop();
}
