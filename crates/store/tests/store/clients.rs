// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two clients of the metadata that a server keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use terrace_core::SystemClock;
use terrace_fs::{Kind, Made, Metadata, ROOT, Reply, Request, Result, TreeOptions};
use terrace_store::Store;

use crate::scene::{Attached, Scene};

const NAME: &str = "files";

/// How often what depends on who comes first is tried.
pub(crate) const TRIES_MAX: usize = 200;

pub(crate) type Client = Arc<dyn Metadata>;

/// Two clients of a server.
pub(crate) struct Clients {
    pub(crate) scene: Scene,
    pub(crate) attached: Attached,
    _stores: [Store; 2],
    pub(crate) one: Client,
    pub(crate) other: Client,
    pub(crate) clock: SystemClock,
    /// How many directories there are.
    directories: AtomicU64,
}

impl Clients {
    pub(crate) fn new() -> Self {
        let scene = Scene::new();
        let attached = scene.attached();
        attached.create_files(NAME, &TreeOptions::default()).expect("there is none");
        let stores = [scene.open(), scene.open()];
        let [one, other] = stores.each_ref().map(|store| store.files(NAME).expect("it is there"));
        Self {
            scene,
            attached,
            _stores: stores,
            one,
            other,
            clock: SystemClock::default(),
            directories: AtomicU64::new(0),
        }
    }

    /// A directory whose names the first client alone knows.
    pub(crate) fn directory(&self, name: &str) -> u64 {
        let made = Made { kind: Kind::Directory, permissions: 0o755, ..Made::default() };
        let directory = made_by(&self.one, ROOT, name.as_bytes(), made).expect("it is new");
        // So that what the directory is was told just now.
        let made = Made { kind: Kind::File, ..Made::default() };
        made_by(&self.one, directory, b"first", made).expect("it is new");
        directory
    }

    /// A directory, and a file in it that is said to be made: where it did not take so long that the
    /// names are not known any more.
    pub(crate) fn made_later(&self, name: &[u8]) -> (u64, u64) {
        for _ in 0..TRIES_MAX {
            let number = self.directories.fetch_add(1, Ordering::Relaxed);
            let directory = self.directory(&number.to_string());
            if let Some(number) = self.later(directory, name) {
                return (directory, number);
            }
        }
        panic!("nothing is ever made later");
    }

    /// Says that a file is made; its number.
    pub(crate) fn later(&self, directory: u64, name: &[u8]) -> Option<u64> {
        match self.one.make_later(&Request::Make { directory, name, made: opened() })? {
            Reply::Made { node, .. } => Some(node.number),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn opened() -> Made<'static> {
    Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() }
}

pub(crate) fn made_by(client: &Client, directory: u64, name: &[u8], made: Made<'_>) -> Result<u64> {
    match client.call(&Request::Make { directory, name, made })? {
        Reply::Made { node, .. } => Ok(node.number),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn found(client: &Client, directory: u64, name: &[u8]) -> Option<u64> {
    match client.call(&Request::Lookup { directory, name }) {
        Ok(Reply::Node(node)) => Some(node.number),
        Ok(Reply::Nowhere) => None,
        Err(failure) if failure.errno() == Errno::NOENT => None,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn errno<T>(asked: Result<T>) -> Option<Errno> {
    asked.err().map(|failure| failure.errno())
}
