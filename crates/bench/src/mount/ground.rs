// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the rows are measured on: stores, mounts, and the directories beside them.

use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Result};
use terrace_measure::processes::cpu_ns;
use terrace_settings::Settings as StoreSettings;
use terrace_store::Store;

use super::daemon::Daemon;
use crate::fast_place;
use crate::net::server::Served;
use crate::place::Scratch;

/// The tier that new files are on.
const FAST: &str = "fast";

/// A mount, or a plain directory, that is measured.
pub(super) struct Side {
    pub(super) place: PathBuf,
    daemons: Vec<Daemon>,
    served: Option<Served>,
}

impl Side {
    /// The processes that do its work.
    fn processes(&self) -> Vec<u32> {
        let mounts = self.daemons.iter().map(Daemon::process);
        mounts.chain(self.served.iter().map(Served::process)).collect()
    }

    /// CPU time that they took so far.
    pub(super) fn cpu_ns(&self) -> u64 {
        cpu_ns(&self.processes())
    }
}

/// Where everything is, below one directory that is removed at the end.
pub(super) struct Ground {
    // Declared behind the sides: mounts end before their directories are removed.
    scratch: Scratch,
}

impl Ground {
    pub(super) fn new() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::new(ErrorKind::Denied, "measure mounts")
                .because("it mounts, passes files through and drops caches: run it as root"));
        }
        Ok(Self { scratch: Scratch::new(&fast_place())? })
    }

    pub(super) fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// A directory as it is.
    pub(super) fn plain(&self, name: &str) -> Result<Side> {
        let place = self.scratch.inside(name)?;
        Ok(Side { place, daemons: Vec::new(), served: None })
    }

    /// A directory behind a daemon that does nothing.
    pub(super) fn mirror(&self, name: &str, cache: &str) -> Result<Side> {
        let source = self.scratch.inside(&format!("{name}-source"))?;
        self.mirror_of(&source, name, cache)
    }

    fn mirror_of(&self, source: &Path, name: &str, cache: &str) -> Result<Side> {
        let place = self.scratch.inside(name)?;
        let source = source.display().to_string();
        let daemon =
            Daemon::start(["bench", "mount", "--cache", cache, "--mirror", &source], &place)?;
        Ok(Side { place, daemons: vec![daemon], served: None })
    }

    /// The directory of the tier that the files of a row's store are on.
    pub(super) fn tier(&self, row: &str) -> Side {
        Side { place: self.tier_of(row), daemons: Vec::new(), served: None }
    }

    /// The same behind a daemon that does nothing.
    pub(super) fn tier_mirror(&self, row: &str, cache: &str) -> Result<Side> {
        self.mirror_of(&self.tier_of(row), &format!("{row}-raw"), cache)
    }

    fn tier_of(&self, row: &str) -> PathBuf {
        self.store_of(row).with_extension(FAST)
    }

    /// Where the store of a row is.
    pub(super) fn store_of(&self, row: &str) -> PathBuf {
        self.scratch.path().join(format!("{row}-store"))
    }

    /// A store of two tiers, both directories; its path.
    pub(super) fn store(&self, row: &str) -> Result<PathBuf> {
        let directory = self.store_of(row);
        Store::init(&directory, &settings(&directory))?;
        Ok(directory)
    }

    /// A store that is mounted by the process that owns it, with these arguments.
    pub(super) fn local(&self, row: &str, how: &[&str]) -> Result<Side> {
        let store = self.store(row)?.display().to_string();
        let (place, daemon) = self.mounted(row, &store, how)?;
        Ok(Side { place, daemons: vec![daemon], served: None })
    }

    /// A store that a server serves, mounted over TCP with these arguments.
    pub(super) fn remote(&self, row: &str, how: &[&str]) -> Result<Side> {
        let directory = self.store_of(row);
        let secret = self.scratch.path().join("secret");
        let served = Served::start(&directory, &settings(&directory), &secret)?;
        let address = format!("terrace://{}/?secret={}", served.tcp, secret.display());
        let (place, daemon) = self.mounted(row, &address, how)?;
        Ok(Side { place, daemons: vec![daemon], served: Some(served) })
    }

    /// Mounts what is at an address.
    fn mounted(&self, row: &str, address: &str, how: &[&str]) -> Result<(PathBuf, Daemon)> {
        let place = self.scratch.inside(row)?;
        let arguments = [&["mount", "--foreground"], how, &[address]].concat();
        let daemon = Daemon::start(arguments, &place)?;
        Ok((place, daemon))
    }
}

/// Two directories, and the policy that most stores have.
fn settings(directory: &Path) -> String {
    let tier = |name: &str| {
        let path = directory.with_extension(name);
        format!("[[tier]]\nname = \"{name}\"\nbackend = \"file\"\npath = \"{}\"\n", path.display())
    };
    let tiers = format!("\n{}\n{}", tier(FAST), tier("slow"));
    StoreSettings::text(Some(&tiers), "lmdb", Some("lru"))
}
