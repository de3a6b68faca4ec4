// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the name of a policy to the policy.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use terrace_core::{Error, Parameter, Policy, Result, TierView, View};
use terrace_policies::{POLICIES, host, program};
use terrace_stack::report::{ParameterReport, PolicyReport};
use terrace_stack::{Tactics, Tier};

use crate::file::{PolicySettings, PolicySource};

impl PolicySource {
    /// The meaning of a policy's name: a built-in one, or one from outside by its path, which
    /// has a `/` or a `.` in it.
    pub fn named(name: &str) -> Self {
        let is_built_in = POLICIES.iter().any(|entry| entry.name == name);
        if is_built_in || !name.contains(['/', '.']) {
            PolicySource::Name(name.into())
        } else if name.ends_with(".py") {
            PolicySource::Program(PathBuf::from(name))
        } else {
            PolicySource::Library(PathBuf::from(name))
        }
    }

    /// The path of one from outside.
    fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            PolicySource::Library(path) | PolicySource::Program(path) => Some(path),
            PolicySource::Name(_) => None,
        }
    }

    /// The same, where a relative path begins in this directory.
    #[must_use]
    pub fn below(mut self, dir: &Path) -> Self {
        if let Some(path) = self.path_mut() {
            *path = dir.join(&*path);
        }
        self
    }

    /// The same for a process with another working directory.
    ///
    /// # Errors
    ///
    /// `Invalid` for an empty path, `NotFound` where there is no working directory.
    pub fn absolute(mut self) -> Result<Self> {
        if let Some(path) = self.path_mut() {
            *path = std::path::absolute(&*path).map_err(|error| {
                Error::from_io("find the policy", error).with("policy", path.display())
            })?;
        }
        Ok(self)
    }

    /// What it is called in a process with another working directory.
    pub fn text(&self) -> Result<String> {
        match self.clone().absolute()? {
            PolicySource::Name(name) => Ok(name),
            // The name was text, the working directory may not be.
            PolicySource::Library(path) | PolicySource::Program(path) => {
                path.into_os_string().into_string().map_err(|path| {
                    Error::invalid("find the policy", "its path is not UTF-8")
                        .with("policy", Path::new(&path).display())
                })
            }
        }
    }

    /// Makes the policy for the tiers of a view.
    ///
    /// # Errors
    ///
    /// `NotFound` for an unknown policy or parameter, `Invalid` for a wrong value or file.
    pub fn make(&self, view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
        match self {
            PolicySource::Name(name) => terrace_policies::create(name, view, parameters),
            PolicySource::Library(path) => host::load(path, view, parameters)
                .map_err(|error| error.with("policy", path.display())),
            PolicySource::Program(path) => program::start(path, view, parameters),
        }
    }
}

impl From<String> for PolicySource {
    fn from(name: String) -> Self {
        Self::named(&name)
    }
}

impl fmt::Display for PolicySource {
    /// What a policy is called.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicySource::Name(name) => f.write_str(name),
            PolicySource::Library(path) | PolicySource::Program(path) => path.display().fmt(f),
        }
    }
}

/// Makes the policy of a configuration, ready to be called as it says.
pub fn tactics(settings: &PolicySettings, tiers: &[Tier]) -> Result<Tactics> {
    // Paths are absolute by now.
    let parameters = settings.all_parameters(Path::new(""))?;
    let policy = settings.source.make(&view(tiers), &parameters)?;
    Ok(Tactics {
        after_events: settings.after_events,
        every: settings.every,
        post_events: settings.post_events,
        round_bytes: settings.round_bytes,
        call_time_max: settings.call_time_max,
        is_dry_run: settings.dry_run,
        ..Tactics::new(&settings.source.to_string(), policy)
    })
}

/// A policy that another process offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// What it is called: the path of its file. Its state is kept under this name.
    pub name: String,
    /// The Unix socket where it is asked.
    pub socket: PathBuf,
}

impl Guest {
    /// Reaches the process that offers the policy.
    pub fn reach(&self) -> Result<UnixStream> {
        UnixStream::connect(&self.socket).map_err(|error| {
            Error::from_io("reach the policy", error)
                .with("socket", self.socket.display())
                .with("program", &self.name)
        })
    }

    /// Takes the policy, for the tiers of a view.
    pub fn take(
        &self,
        stream: UnixStream,
        view: &View,
        parameters: &[(String, String)],
    ) -> Result<Box<dyn Policy>> {
        program::connect(stream, view, parameters)
            .map_err(|error| error.with("program", &self.name))
    }
}

/// A configured policy that does not run, for a store that is open for reading.
/// `tactics` knows more than the file, where it could be made.
pub fn resting(settings: &PolicySettings, tactics: Option<&Tactics>) -> PolicyReport {
    let of_file = || {
        let pairs = settings.parameters.iter();
        pairs.map(|(name, value)| Parameter::new(name, value, "")).collect()
    };
    let parameters = tactics.map_or_else(of_file, |tactics| tactics.policy.parameters());
    PolicyReport {
        name: settings.source.to_string(),
        replaced: None,
        is_dry_run: settings.dry_run,
        after_events: settings.after_events,
        every_ns: nanoseconds(settings.every),
        post_events: settings.post_events.word().into(),
        parameters: parameters.into_iter().map(ParameterReport::from).collect(),
        rounds: 0,
        events: 0,
        coalesced_events: 0,
        actions: 0,
        outcomes: Vec::new(),
        decisions: Vec::new(),
    }
}

/// Tiers as a policy sees them before anything is stored.
pub fn view(tiers: &[Tier]) -> View {
    let one = |tier: &Tier| TierView {
        watermarks: tier.watermarks,
        persistency: tier.backend.capability().persistency,
        is_writable: tier.offline.is_none(),
        ..TierView::empty(&tier.name, tier.figures)
    };
    View::new(tiers.iter().map(one).collect(), 0)
}

/// A duration as reports have it; 584 years at most.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_library_or_a_program_and_a_word_is_built_in() {
        assert_eq!(PolicySource::named("lru"), PolicySource::Name("lru".into()));
        assert_eq!(PolicySource::named("lfu"), PolicySource::Name("lfu".into()));
        assert_eq!(PolicySource::named("./lru"), PolicySource::Library("./lru".into()));
        assert_eq!(PolicySource::named("liblru.so"), PolicySource::Library("liblru.so".into()));
        assert_eq!(PolicySource::named("lru.py"), PolicySource::Program("lru.py".into()));
        assert_eq!(PolicySource::named("lru").text().expect("legal"), "lru");
        assert!(PolicySource::named("liblru.so").text().expect("legal").starts_with('/'));
    }
}
