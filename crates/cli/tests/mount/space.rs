// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The room that a mount tells.

use std::fs;
use std::path::Path;

use rustix::fs::statvfs;

use crate::scene::{Scene, Served};

/// Size of a file system, and what is available on it.
fn room(path: &Path) -> (u64, u64) {
    let told = statvfs(path).expect("it is there");
    (told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)
}

#[test]
fn tiers_without_capacity_have_the_room_of_their_file_system() {
    let Some(scene) = Scene::without_capacity() else { return };
    let served = Served::start(&scene);
    for mounted in [scene.mount("mnt", &[]), scene.mount_served(&served, "network", &[])] {
        fs::write(mounted.path().join("file"), vec![7; 100_000]).expect("there is room");
        let (size, available) = room(mounted.path());
        let (below_size, below_available) = room(&scene.path("slow"));
        assert!(size <= below_size, "{size} of {below_size}");
        // Others write to it and delete there at the same time.
        let expected = below_available / 2..below_available / 2 * 3;
        assert!(expected.contains(&available), "{available} of {below_available}");
    }
}
