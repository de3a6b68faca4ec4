// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of a store at the level `shared`, after the loss of the machine that had it mounted or served it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use terrace_testkit::pattern_bytes;
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};

use crate::scene::{Scene, Served};

/// Longer than what is kept with the metadata, and than one segment of the copy in the bucket.
const LENGTHS: [usize; 4] = [0, 100, 70_000, 20 << 20];

/// Makes the store `first` at the level `shared`; returns the address of its tier in the bucket.
fn make(scene: &Scene, server: &S3Server) -> String {
    let keys = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    fs::write(scene.path("keys"), keys).expect("there is room");
    let bucket = format!(
        "s3://{BUCKET}/one,endpoint={},region={REGION},credentials=keys,deadline=20s",
        server.endpoint()
    );
    let cold = format!("cold={bucket}");
    scene.ok(["init", "first", "--policy", "none", "--tier", "near=near", "--tier", &cold]);
    let settings = scene.path("first/terrace.toml");
    let text = fs::read_to_string(&settings).expect("it was made");
    let shared = text.replacen("persistency = \"process\"", "persistency = \"shared\"", 1);
    assert_ne!(shared, text, "it has such a line");
    fs::write(&settings, shared).expect("there is room");
    bucket
}

/// Makes files below a mount, renames one over another, and syncs each with `fsync` alone; leaves others unsynced.
fn write_files(top: &Path) {
    fs::create_dir_all(top.join("run/42")).expect("a directory");
    for (index, length) in LENGTHS.into_iter().enumerate() {
        let mut file = File::create(top.join(format!("run/42/{index}"))).expect("a file");
        file.write_all(&pattern_bytes(index as u64, 0, 0, length)).expect("there is room");
        file.sync_all().expect("the bucket answers");
    }
    let mut old = File::create(top.join("run/latest")).expect("a file");
    old.write_all(b"old").expect("there is room");
    old.sync_all().expect("the bucket answers");
    let mut new = File::create(top.join("run/latest.new")).expect("a file");
    new.write_all(b"new").expect("there is room");
    new.sync_all().expect("the bucket answers");
    fs::rename(top.join("run/latest.new"), top.join("run/latest")).expect("both are there");
    File::open(top.join("run")).expect("a directory").sync_all().expect("the bucket answers");
    // Where nothing else forbids it, the kernel would write to such a file itself.
    fs::create_dir(top.join("unmovable")).expect("a directory");
    setxattr(top.join("unmovable"), "user.terrace.movable", b"0", XattrFlags::empty())
        .expect("it is set");
    let mut file = File::create(top.join("unmovable/file")).expect("a file");
    file.write_all(&pattern_bytes(8, 0, 0, 300_000)).expect("there is room");
    file.sync_all().expect("the bucket answers");
    // The kernel has it open for a reader.
    fs::write(top.join("read"), pattern_bytes(7, 0, 0, 300_000)).expect("there is room");
    let reader = File::open(top.join("read")).expect("a file");
    assert_eq!(reader.read_at(&mut [0; 8], 0).expect("it is there"), 8);
    let writer = File::options().write(true).open(top.join("read")).expect("a file");
    writer.write_all_at(&pattern_bytes(7, 1, 0, 300_000), 0).expect("there is room");
    writer.sync_all().expect("the bucket answers");
    fs::write(top.join("run/unsynced"), pattern_bytes(9, 0, 0, 50_000)).expect("there is room");
}

/// Takes the store over, mounts it, and compares what was synced.
fn take_over(scene: &Scene, bucket: &str) {
    fs::remove_dir_all(scene.path("first")).expect("the machine is lost");
    fs::remove_dir_all(scene.path("near")).expect("with its disk");
    scene.ok(["takeover", bucket, "next", "--tier", "nvme=nvme"]);
    let mounted = scene.mount_store("next", "after", &[]);
    let top = mounted.path();
    for (index, length) in LENGTHS.into_iter().enumerate() {
        let bytes = fs::read(top.join(format!("run/42/{index}"))).expect("it was synced");
        assert!(bytes == pattern_bytes(index as u64, 0, 0, length), "file {index}");
    }
    assert_eq!(fs::read(top.join("run/latest")).expect("it was synced"), b"new");
    assert!(!top.join("run/latest.new").exists(), "the directory was synced behind the rename");
    let is_there = |name: &str, pattern: Vec<u8>| {
        assert!(fs::read(top.join(name)).expect("it was synced") == pattern, "{name}");
    };
    is_there("unmovable/file", pattern_bytes(8, 0, 0, 300_000));
    is_there("read", pattern_bytes(7, 1, 0, 300_000));
    // Whatever is there of it, it is not something else.
    if let Ok(bytes) = fs::read(top.join("run/unsynced")) {
        assert!(bytes.is_empty() || bytes == pattern_bytes(9, 0, 0, 50_000), "{}", bytes.len());
    }
}

#[test]
fn what_was_synced_on_a_mount_is_there_after_a_takeover() {
    let Some(scene) = Scene::new() else { return };
    let server = S3Server::start();
    let bucket = make(&scene, &server);
    let mut mounted = scene.mount_store("first", "before", &[]);
    write_files(mounted.path());
    mounted.kill();
    take_over(&scene, &bucket);
}

#[test]
fn what_was_synced_by_a_client_is_there_after_a_takeover_from_its_server() {
    let Some(scene) = Scene::new() else { return };
    let server = S3Server::start();
    let bucket = make(&scene, &server);
    let mut served = Served::start_store(&scene, "first");
    let mut mounted = scene.mount_served(&served, "before", &[]);
    write_files(mounted.path());
    served.kill();
    mounted.kill();
    take_over(&scene, &bucket);
}
