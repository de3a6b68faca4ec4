// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Test suites of others, which `tools/setup.sh --suites` installs, and the mounts they run on.

use std::path::{Path, PathBuf};

use crate::scene::{Mounted, Scene, Served};

/// The program of a suite.
pub(crate) fn program(name: &str) -> PathBuf {
    installed("bin", name, |file| file == name)
}

/// The source of a package, as its authors have packed it.
pub(crate) fn source(package: &str) -> PathBuf {
    let start = format!("{package}_");
    installed("sources", package, |file| file.starts_with(&start) && file.contains(".orig.tar."))
}

fn installed(directory: &str, what: &str, is_it: impl Fn(&str) -> bool) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_terrace"));
    let places = built.ancestors().map(|above| above.join("suites").join(directory));
    let mut files = places.flat_map(|place| place.read_dir().into_iter().flatten().flatten());
    let found = files.find(|file| file.file_name().to_str().is_some_and(&is_it));
    let found = found.map(|file| file.path());
    found.unwrap_or_else(|| {
        panic!("there is no {what}; `tools/setup.sh --suites` installs it, as `make test` does")
    })
}

/// How a store is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Files are read and written through the process that mounts.
    Served,
    /// The kernel reads and writes them where it can.
    Passed,
    /// Over the network; what is closed is seen by who opens it.
    Network,
    /// Over the network; what is written is seen.
    Strict,
}

impl How {
    /// The arguments of `mount`.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Served => &["--io", "served"],
            Self::Passed => &["--io", "passthrough"],
            Self::Network => &[],
            Self::Strict => &["--strict"],
        }
    }

    /// Whether a server is between store and mount.
    pub(crate) fn is_network(self) -> bool {
        matches!(self, Self::Network | Self::Strict)
    }
}

/// Whether mounts can be asked over `io_uring` on this machine; says so where not.
pub(crate) fn uring_is_offered() -> bool {
    const FILE: &str = "/sys/module/fuse/parameters/enable_uring";
    let is_offered = std::fs::read_to_string(FILE).is_ok_and(|offered| offered.trim() == "Y");
    if !is_offered {
        eprintln!("skipped: the kernel does not offer to ask over io_uring file={FILE}");
    }
    is_offered
}

/// A store that is mounted, and the server where there is one.
pub(crate) struct Place {
    // In the order in which they have to end.
    pub(crate) mounted: Mounted,
    pub(crate) served: Option<Served>,
    pub(crate) scene: Scene,
}

impl Place {
    /// Mounts a new store at `mount`, with more arguments; `None` where that cannot be tested here.
    pub(crate) fn new(how: How, more: &[&str]) -> Option<Self> {
        let scene = match how {
            // On a tier with less capacity than its file system has, what grows is served.
            How::Passed => Scene::without_capacity()?,
            _ => Scene::new()?,
        };
        Some(Self::with_scene(scene, how, more))
    }

    /// The same with the store of a scene.
    pub(crate) fn with_scene(scene: Scene, how: How, more: &[&str]) -> Self {
        let served = how.is_network().then(|| Served::start(&scene));
        let arguments = [how.arguments(), more].concat();
        let mounted = match &served {
            Some(served) => scene.mount_served(served, "mount", &arguments),
            None => scene.mount("mount", &arguments),
        };
        assert_eq!(mounted.passes_through(), how == How::Passed);
        assert_eq!(mounted.uses_uring(), more.contains(&"--uring"));
        Self { mounted, served, scene }
    }
}
