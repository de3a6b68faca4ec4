// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A temporary directory with a store, and a process's two ways to it.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tempfile::TempDir;
use terrace_store::{Access, Error, Key, OpenOptions, Result, Store};

/// Two file tiers that hold 64 MiB each.
pub(crate) const TIERS: &str = "
[[tier]]
name = \"fast\"
path = \"fast\"
capacity = \"64MiB\"

[[tier]]
name = \"slow\"
path = \"slow\"
capacity = \"64MiB\"
";

/// What moves nothing unless it is asked to.
pub(crate) const POLICY: &str = "
[policy]
name = \"pinned\"
every = \"1h\"
after_events = 1000000
";

/// A directory with the store `store`.
pub(crate) struct Scene {
    home: TempDir,
}

impl Scene {
    /// A directory without a store.
    pub(crate) fn empty() -> Self {
        Self { home: TempDir::new().expect("a temporary directory") }
    }

    /// A directory with a store of these settings.
    pub(crate) fn with(settings: &str) -> Self {
        let scene = Self::empty();
        Store::init(&scene.store_directory(), settings).expect("it can be made");
        scene
    }

    /// A directory with a store of two tiers and a policy.
    pub(crate) fn new() -> Self {
        Self::with(&format!("{TIERS}{POLICY}"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn store_directory(&self) -> PathBuf {
        self.path("store")
    }

    pub(crate) fn settings_file(&self) -> PathBuf {
        self.store_directory().join("terrace.toml")
    }

    pub(crate) fn settings(&self) -> String {
        std::fs::read_to_string(self.settings_file()).expect("readable")
    }

    pub(crate) fn set_settings(&self, text: &str) {
        std::fs::write(self.settings_file(), text).expect("writable");
    }

    pub(crate) fn address(&self) -> String {
        self.store_directory().to_str().expect("temporary directories are UTF-8").into()
    }

    #[track_caller]
    pub(crate) fn open(&self) -> Store {
        Store::open(&self.address()).unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    pub(crate) fn open_for_reading(&self) -> Result<Store> {
        let options = OpenOptions { access: Access::Read, ..OpenOptions::default() };
        Store::open_with(&self.address(), options)
    }

    /// Why the store cannot be opened for writing.
    #[track_caller]
    pub(crate) fn refusal(&self) -> Error {
        Store::open(&self.address()).err().expect("refused")
    }

    /// The store through another handle's owner.
    #[track_caller]
    pub(crate) fn attached(&self) -> Attached {
        Attached::to(self.open(), &self.address())
    }
}

/// A store that is attached to an owner in the same process.
pub(crate) struct Attached {
    store: Store,
    pub(crate) owner: Store,
    stop: Arc<AtomicBool>,
    serving: Option<JoinHandle<Result<()>>>,
}

impl Attached {
    #[track_caller]
    fn to(owner: Store, address: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let serving = Some(serve(&owner, &stop));
        let store = Store::open(address).unwrap_or_else(|error| panic!("{}", error.chain()));
        assert!(store.is_attached());
        Self { store, owner, stop, serving }
    }

    /// Serves again.
    #[track_caller]
    pub(crate) fn start(&mut self, scene: &Scene) {
        self.stop.store(false, Ordering::SeqCst);
        self.serving = Some(serve(&self.owner, &self.stop));
        // Whoever opens it waits until it is served.
        assert!(scene.open().is_attached());
    }

    /// Has another owner serve, as after a restart; clients go on.
    #[track_caller]
    pub(crate) fn restart(&mut self, scene: &Scene) {
        self.stop();
        self.owner.close().expect("nothing is in the way");
        // The next one opens it once nobody has it.
        drop(std::mem::replace(&mut self.owner, self.store.clone()));
        self.owner = scene.open();
        assert!(!self.owner.is_attached());
        self.start(scene);
    }

    /// Ends the serving; the owner goes on.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(serving) = self.serving.take() {
            serving.join().expect("serving does not panic").expect("serving ends well");
        }
    }
}

fn serve(owner: &Store, stop: &Arc<AtomicBool>) -> JoinHandle<Result<()>> {
    let (owner, stop) = (owner.clone(), Arc::clone(stop));
    std::thread::spawn(move || owner.serve(&stop))
}

impl Deref for Attached {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
        self.stop.store(true, Ordering::SeqCst);
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::parse(text).expect("legal")
}

/// Everything below a directory, by its path relative to it; with the sizes of files.
pub(crate) fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in next.read_dir().expect("readable") {
            let path = entry.expect("readable").path();
            let metadata = path.symlink_metadata().expect("readable");
            let relative = path.strip_prefix(directory).expect("below").to_path_buf();
            if metadata.is_dir() {
                left.push(path);
            }
            found.push((relative, metadata.len()));
        }
    }
    found.sort();
    found
}
