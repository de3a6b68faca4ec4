// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where benchmarks keep their files, and the stacks that they measure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_backends::kv::open_kv;
use terrace_backends::{Place, open_backend};
use terrace_core::{Backend, Error, Result, View};
use terrace_stack::{Parts, Stack, Tactics, Tier};

/// A directory that is removed with everything in it.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a new directory below `parent`.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("terrace-bench-{}.{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                // What a process with the same number left that was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Error::from_io("make a directory for the benchmark", error)
                        .with("path", path.display()));
                }
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What may still be written there.
    pub(crate) fn free_bytes(&self) -> Result<u64> {
        rustix::fs::statvfs(&self.path)
            .map(|stat| stat.f_bavail * stat.f_frsize)
            .map_err(|error| Error::from_io("look for room", error.into()))
    }

    /// A directory inside it.
    pub(crate) fn inside(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path)
            .map_err(|error| Error::from_io("make a directory for the benchmark", error))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Where fast files go: main memory if there is a tmpfs.
pub fn fast_place() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { shm.into() } else { std::env::temp_dir() }
}

/// Where slow files go unless the user says so.
pub fn slow_place() -> PathBuf {
    let var_tmp = Path::new("/var/tmp");
    if var_tmp.is_dir() { var_tmp.into() } else { std::env::temp_dir() }
}

/// A directory as a backend.
pub(crate) fn directory(path: &Path) -> Result<Arc<dyn Backend>> {
    let place = Place { path: Some(path), capacity_bytes: u64::MAX, read_only: false };
    open_backend("file", &place)
}

/// A stack over these directories, with its catalog beside the first.
pub(crate) fn stack(scratch: &Scratch, tiers: &[&Path], policy: Option<&str>) -> Result<Stack> {
    let mut all = Vec::new();
    for (index, path) in tiers.iter().enumerate() {
        all.push(Tier::new(&format!("tier{index}"), directory(path)?));
    }
    let name = format!("catalog-{}-{}", tiers.len(), policy.unwrap_or("none"));
    let catalog = open_kv("fjall", &scratch.inside(&name)?)?;
    let mut parts = Parts::new(all, catalog);
    if let Some(name) = policy {
        parts.tactics = Some(Tactics::new(name, policy_of(name, tiers.len())?));
    }
    Stack::create(&parts)?;
    Stack::open(parts)
}

/// A built-in policy with its defaults, for so many tiers of which nothing is known.
pub(crate) fn policy_of(name: &str, tiers: usize) -> Result<Box<dyn terrace_core::Policy>> {
    terrace_policies::create(name, &view_of(tiers), &[])
}

/// So many tiers of which nothing is known, as a policy sees them.
pub(crate) fn view_of(tiers: usize) -> View {
    let tier = |index| {
        terrace_core::TierView::empty(&format!("tier{index}"), terrace_core::Figures::default())
    };
    View::new((0..tiers).map(tier).collect(), 0)
}
