// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory on a file system whose attributes the kernel caches, as an NFS client does.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use terrace_fuse::mirror::{Mirror, MirrorOptions};
use terrace_fuse::{MountOptions, Session, Unmounter};
use terrace_source::{Directory, Source};

/// Longer than a test.
const HOUR: Duration = Duration::from_secs(3600);

/// A directory `below`, mounted at `mnt` by a file system that lets the kernel cache names and attributes.
struct Cached {
    ground: TempDir,
    unmounter: Unmounter,
    serving: Option<JoinHandle<()>>,
}

impl Cached {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounts are tested as root");
            return None;
        }
        let ground = tempfile::tempdir().expect("a directory");
        for name in ["below", "mnt"] {
            fs::create_dir(ground.path().join(name)).expect("room");
        }
        let options = MirrorOptions {
            entry_timeout: HOUR,
            attributes_timeout: HOUR,
            ..MirrorOptions::default()
        };
        let mountpoint = ground.path().join("mnt");
        let session =
            Session::mount(&mountpoint, &MountOptions::default(), &Mirror::wanted(&options));
        let session = session.expect("root can mount");
        let mirror = Mirror::open(&ground.path().join("below"), options, session.passthrough());
        let mirror = mirror.expect("a directory");
        let unmounter = session.unmounter();
        let serving = std::thread::spawn(move || session.serve(2, &mirror).expect("served"));
        Some(Self { ground, unmounter, serving: Some(serving) })
    }

    fn below(&self, name: &str) -> PathBuf {
        self.ground.path().join("below").join(name)
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let _ = self.unmounter.unmount_lazily();
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

#[test]
fn look_again_sees_past_cached_attributes() {
    let Some(cached) = Cached::new() else { return };
    fs::write(cached.below("file"), b"old").expect("room");
    let source = Directory::open(&cached.ground.path().join("mnt")).expect("a directory");
    let path = Path::new("file");
    let seen = source.look(path).expect("it is there");
    let file = source.open(path, &seen).expect("it is there");
    assert!(file.look().expect("it is open").is_same_state(&seen));
    fs::write(cached.below("file"), b"newer").expect("room");
    let cached = file.look().expect("it is open");
    assert!(cached.is_same_state(&seen), "the kernel answers from its cache");
    let found = file.look_again().expect("it is open");
    assert_eq!(found.size_bytes, 5);
    assert!(!found.is_same_state(&seen));
}
