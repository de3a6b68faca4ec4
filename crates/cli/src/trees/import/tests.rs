// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `import` where the disks fail, power is lost, and the source changes meanwhile.

use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use terrace_core::{ErrorKind, Persistency, Random, Semantics, SystemClock};
use terrace_fs::{FileClock, Files, FilesOptions, ROOT, Session, Tree, TreeOptions};
use terrace_testkit::{Operation, SimKv, SimTier, SimWorld};

use super::*;
use crate::failure::{Failure, Failures};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::trees::Summary;

/// Longer than what is kept with the metadata.
const LONG: usize = 10_000;

/// When the sources changed last.
const SECONDS: u64 = 1_000_000_000;

/// A directory, and a file system on a machine that can lose its power.
struct Scene {
    world: Arc<SimWorld>,
    kv: SimKv,
    tier: SimTier,
    source: TempDir,
    interrupt: Interrupt,
}

impl Scene {
    fn new() -> Self {
        let world = SimWorld::new();
        let (kv, tier) = (world.kv(), world.tier("disk", 64 << 20));
        let options = TreeOptions::default();
        Tree::create(&*kv.open(), &options, &SystemClock::default(), &[7; 32]).expect("empty");
        let source = TempDir::new().expect("a temporary directory");
        let interrupt = Interrupt::watch().expect("signals can be watched");
        Self { world, kv, tier, source, interrupt }
    }

    fn files(&self) -> Arc<Files> {
        let clock = FileClock::following(Arc::new(SystemClock::default()));
        let tree = Tree::open(self.kv.open(), clock).expect("it was made");
        let options = FilesOptions {
            namespace: "files".into(),
            semantics: Semantics { persistency: Persistency::None, ..Semantics::DEFAULT },
            ready_objects: 0,
            is_alone: true,
            access: Access::Write,
            believed_for: Duration::MAX,
            inline_bytes_max: 4096,
        };
        let session = Arc::new(Session::new(&tree));
        Files::new(session, self.tier.open(), Arc::new(SystemClock::default()), options)
            .expect("opens")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    /// Writes a file of the source.
    fn write(&self, name: &str, bytes: &[u8], seconds: u64) -> PathBuf {
        let path = self.path(name);
        let mut options = fs::File::options();
        let options = options.create(true).write(true).truncate(true).mode(0o644);
        let file = options.open(&path).expect("made");
        file.write_all_at(bytes, 0).expect("written");
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        file.set_modified(modified).expect("set");
        path
    }

    fn work(&self, files: &Arc<Files>) -> Work<'_> {
        Work {
            files: Arc::clone(files),
            interrupt: &self.interrupt,
            progress: Progress::bytes("import", None),
            failures: Failures::new(false),
            summary: Summary::default(),
        }
    }

    /// Imports everything, as the command does.
    fn import(&self, files: &Arc<Files>) -> Summary {
        let mut work = self.work(files);
        let root = files.node(ROOT).expect("is there");
        import(&mut work, self.source.path(), &root).expect("it goes on past failures");
        // What fails there ends the command.
        let _ = files.sync();
        work.summary
    }
}

fn content(files: &Arc<Files>, name: &str) -> Vec<u8> {
    let node = files.lookup(ROOT, name.as_bytes()).expect("is there");
    let (_, file) = files.open(node.number, Access::Read).expect("opens");
    let mut bytes = vec![0; node.size as usize];
    let count = file.read(0, &mut bytes).expect("is read");
    bytes.truncate(count);
    bytes
}

#[test]
fn what_could_not_be_synced_is_copied_again() {
    let scene = Scene::new();
    scene.write("long", &[7; LONG], SECONDS);
    scene.write("small", b"small", SECONDS);
    let files = scene.files();
    scene.tier.fail_always(Operation::Sync, ErrorKind::Io);
    scene.import(&files);
    scene.tier.heal();
    let summary = scene.import(&files);
    assert_eq!((summary.files, summary.unchanged, summary.failed), (2, 0, 0), "{summary:?}");
    let summary = scene.import(&files);
    assert_eq!((summary.files, summary.unchanged), (0, 2), "{summary:?}");
}

#[test]
fn what_a_loss_of_power_took_is_copied_again() {
    for seed in 0..20 {
        let scene = Scene::new();
        for name in 0..8 {
            scene.write(&name.to_string(), &[name + 1; LONG], SECONDS);
        }
        let files = scene.files();
        scene.tier.fail_always(Operation::Sync, ErrorKind::Io);
        scene.import(&files);
        drop(files);
        scene.world.lose_power(&mut Random::new(seed));
        let files = scene.files();
        scene.import(&files);
        for name in 0..8 {
            let is_whole = content(&files, &name.to_string()) == [name + 1; LONG];
            assert!(is_whole, "{name} of seed {seed}");
        }
    }
}

/// Copies a file that changes between the first look at it and the end of its bytes.
fn copy_changing(change: impl Fn(&Scene)) {
    let scene = Scene::new();
    let path = scene.write("file", &[7; LONG], SECONDS);
    let metadata = fs::symlink_metadata(&path).expect("is there");
    change(&scene);
    let files = scene.files();
    let mut work = scene.work(&files);
    let mut import = Import::new(&mut work);
    let spot = Spot { directory: ROOT, name: b"file", there: None };
    let failure = import.file(&path, &metadata, spot).expect_err("it has changed");
    let Failure::Failed(error) = failure else { panic!("{failure:?}") };
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.to_string().contains("changed while it was copied"), "{error}");
    import.settle().expect("there is nothing to settle");
    let (_, modified) = local::times(&fs::symlink_metadata(&path).expect("is there"));
    let node = files.lookup(ROOT, b"file").expect("is there");
    assert_ne!(node.modified, modified);
    // Those who may read it may do so meanwhile.
    assert_eq!(node.permissions, 0o644);
    let summary = scene.import(&files);
    assert_eq!((summary.files, summary.failed), (1, 0), "{summary:?}");
    assert!(content(&files, "file") == fs::read(&path).expect("is there"));
    assert_eq!(files.lookup(ROOT, b"file").expect("is there").modified, modified);
}

#[test]
fn a_file_that_shrinks_while_it_is_copied_is_said_and_copied_again() {
    copy_changing(|scene| drop(scene.write("file", &[7; LONG / 2], SECONDS)));
}

#[test]
fn a_file_that_grows_while_it_is_copied_is_said_and_copied_again() {
    copy_changing(|scene| drop(scene.write("file", &[7; LONG * 2], SECONDS)));
}

#[test]
fn a_file_that_is_written_while_it_is_copied_is_said_and_copied_again() {
    copy_changing(|scene| drop(scene.write("file", &[8; LONG], SECONDS + 1)));
}

#[test]
fn a_file_that_is_replaced_while_it_is_copied_is_said_and_copied_again() {
    copy_changing(|scene| {
        let other = scene.write("other", &[8; LONG], SECONDS);
        fs::rename(other, scene.path("file")).expect("renamed");
    });
}
