// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file systems of a source. Each has threads of its own for calls: one that does not answer holds up no call of
//! another one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;

use crate::calls::Calls;
use crate::lock;
use crate::source::{MountedBelow, Source};

/// The calls of a source, by file system.
pub(crate) struct FileSystems {
    source: Arc<dyn Source>,
    deadline: Duration,
    /// That of the root.
    own: Arc<Calls>,
    /// Those that are mounted below. The kernel uses the number of a mount that is gone again, for one elsewhere.
    below: Mutex<HashMap<MountedBelow, Arc<Calls>>>,
}

impl FileSystems {
    pub(crate) fn new(source: &Arc<dyn Source>, deadline: Duration) -> Self {
        let own = Arc::new(Calls::new(Path::new(source.target()), deadline));
        Self { source: Arc::clone(source), deadline, own, below: Mutex::default() }
    }

    /// How long a caller waits.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The calls of the file system that a path is on.
    pub(crate) fn calls_of(&self, path: &Path) -> Arc<Calls> {
        match self.source.mounted_below(path) {
            None => Arc::clone(&self.own),
            Some(mounted) => self.calls_below(&mounted),
        }
    }

    fn calls_below(&self, mounted: &MountedBelow) -> Arc<Calls> {
        let mut below = lock(&self.below);
        if let Some(calls) = below.get(mounted) {
            return Arc::clone(calls);
        }
        // Those that are not in use, and perhaps not mounted any more.
        below.retain(|_, calls| Arc::strong_count(calls) > 1 || calls.has_threads());
        let place = Path::new(self.source.target()).join(&mounted.path);
        let calls = Arc::new(Calls::new(&place, self.deadline));
        below.insert(mounted.clone(), Arc::clone(&calls));
        calls
    }

    /// Asks the root of the file system that a path is on, in the background: what fails there is out of reach as a
    /// whole.
    pub(crate) fn probe(&self, path: &Path) {
        let source = Arc::clone(&self.source);
        let mounted = source.mounted_below(path);
        let calls =
            mounted.as_ref().map_or_else(|| Arc::clone(&self.own), |it| self.calls_below(it));
        let root = mounted.map(|mounted| mounted.path).unwrap_or_default();
        calls.probe(move || match source.look(&root) {
            Err(Errno::IO) => Err(Errno::TIMEDOUT),
            other => other.map(drop),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;

    #[test]
    fn a_mount_number_used_again_elsewhere_has_calls_of_its_own() {
        let ground = tempfile::tempdir().expect("a directory");
        let source: Arc<dyn Source> = Arc::new(Directory::open(ground.path()).expect("there"));
        let file_systems = FileSystems::new(&source, Duration::from_secs(60));
        let calls =
            |path: &str| file_systems.calls_below(&MountedBelow { number: 7, path: path.into() });
        let old = calls("old");
        assert_eq!(old.run(|| Err::<(), _>(Errno::HOSTDOWN)), Err(Errno::HOSTDOWN));
        assert!(calls("old").is_suspect());
        assert!(!calls("new").is_suspect());
    }
}
