// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of this module have in common.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use terrace_console::failure::Failures;
use terrace_console::interrupt::Interrupt;
use terrace_console::progress::Progress;
use terrace_core::{Access, Persistency, Semantics, SystemClock};
use terrace_fs::{FileClock, Files, FilesOptions, ROOT, Session, Tree, TreeOptions};
use terrace_settings::Places;
use terrace_testkit::{SimKv, SimTier, SimWorld};

use super::{Summary, Work, import};

/// Longer than what is kept with the metadata.
pub(super) const LONG: usize = 10_000;

/// When the sources changed last.
pub(super) const SECONDS: u64 = 1_000_000_000;

/// A directory, and a file system on a machine that can lose its power.
pub(super) struct Scene {
    pub(super) world: Arc<SimWorld>,
    kv: SimKv,
    pub(super) tier: SimTier,
    pub(super) source: TempDir,
    interrupt: Interrupt,
}

impl Scene {
    pub(super) fn new() -> Self {
        let world = SimWorld::new();
        let (kv, tier) = (world.kv(), world.tier("disk", 64 << 20));
        let options = TreeOptions::default();
        Tree::create(&*kv.open(), &options, &SystemClock::default(), &[7; 32]).expect("empty");
        let source = TempDir::new().expect("a temporary directory");
        let interrupt = Interrupt::watch().expect("signals can be watched");
        Self { world, kv, tier, source, interrupt }
    }

    pub(super) fn files(&self) -> Arc<Files> {
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
            space: None,
        };
        let session = Arc::new(Session::new(&tree));
        Files::new(session, self.tier.open(), Arc::new(SystemClock::default()), options)
            .expect("opens")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    /// Writes a file of the source.
    pub(super) fn write(&self, name: &str, bytes: &[u8], seconds: u64) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("made");
        let mut options = fs::File::options();
        let options = options.create(true).write(true).truncate(true).mode(0o644);
        let file = options.open(&path).expect("made");
        file.write_all_at(bytes, 0).expect("written");
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        file.set_modified(modified).expect("set");
        path
    }

    pub(super) fn work(&self, files: &Arc<Files>) -> Work<'_> {
        Work {
            files: Arc::clone(files),
            places: Places::default(),
            interrupt: &self.interrupt,
            progress: Progress::bytes("import", None),
            failures: Failures::new(false),
            summary: Summary::default(),
        }
    }

    /// Imports everything, as the command does.
    pub(super) fn import(&self, files: &Arc<Files>) -> Summary {
        let mut work = self.work(files);
        let root = files.node(ROOT).expect("is there");
        import(&mut work, self.source.path(), &root).expect("it goes on past failures");
        // What fails there ends the command.
        let _ = files.sync();
        work.summary
    }
}

pub(super) fn content(files: &Arc<Files>, name: &str) -> Vec<u8> {
    let node = files.lookup(ROOT, name.as_bytes()).expect("is there");
    let (_, file) = files.open(node.number, Access::Read).expect("opens");
    let mut bytes = vec![0; node.size as usize];
    let count = file.read(0, &mut bytes).expect("is read");
    bytes.truncate(count);
    bytes
}
