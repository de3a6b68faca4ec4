// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the name of a policy to the policy.

use std::path::{Path, PathBuf};

use terrace_core::{Error, Policy, Result, TierView, View};
use terrace_policies::{POLICIES, host};
use terrace_stack::report::{ParameterReport, PolicyReport};
use terrace_stack::{Tactics, Tier};

use crate::settings::{PolicySettings, PolicySource};

/// Makes the policy of a configuration, ready to be called as it says.
pub(crate) fn tactics(settings: &PolicySettings, tiers: &[Tier]) -> Result<Tactics> {
    let policy = make(&settings.source, &settings.parameters, tiers)?;
    Ok(Tactics {
        after_events: settings.after_events,
        every: settings.every,
        round_bytes: settings.round_bytes,
        call_time_max: settings.call_time_max,
        is_dry_run: settings.dry_run,
        ..Tactics::new(&name(&settings.source), policy)
    })
}

/// Makes a policy for these tiers.
pub(crate) fn make(
    source: &PolicySource,
    parameters: &[(String, String)],
    tiers: &[Tier],
) -> Result<Box<dyn Policy>> {
    let view = View::new(tiers.iter().map(view).collect(), 0);
    match source {
        PolicySource::Name(name) => terrace_policies::create(name, &view, parameters),
        PolicySource::Library(path) => host::load(path, &view, parameters)
            .map_err(|error| error.with("policy", path.display())),
    }
}

/// What a policy is called.
pub(crate) fn name(source: &PolicySource) -> String {
    match source {
        PolicySource::Name(name) => name.clone(),
        PolicySource::Library(path) => path.display().to_string(),
    }
}

/// What somebody means who names a policy: a built-in one, or a library by its path.
pub(crate) fn source(name: &str) -> PolicySource {
    let is_built_in = POLICIES.iter().any(|entry| entry.name == name);
    if !is_built_in && name.contains(['/', '.']) {
        PolicySource::Library(PathBuf::from(name))
    } else {
        PolicySource::Name(name.into())
    }
}

/// The same name for a process with another working directory.
pub(crate) fn absolute(name: &str) -> Result<String> {
    let PolicySource::Library(path) = source(name) else { return Ok(name.into()) };
    let absolute = std::path::absolute(&path).map_err(|error| {
        Error::from_io("find the policy", error).with("library", path.display())
    })?;
    // The name was text, the working directory may not be.
    absolute.into_os_string().into_string().map_err(|path| {
        Error::invalid("find the policy", "its path is not UTF-8")
            .with("library", Path::new(&path).display())
    })
}

/// A policy that does not run, for people who look at a store that is open for reading.
pub(crate) fn resting(tactics: &Tactics) -> PolicyReport {
    let parameter = |parameter: terrace_core::Parameter| ParameterReport {
        name: parameter.name,
        value: parameter.value,
        description: parameter.description,
    };
    PolicyReport {
        name: tactics.name.clone(),
        replaced: None,
        is_dry_run: tactics.is_dry_run,
        after_events: tactics.after_events,
        every_ns: crate::control::nanoseconds(tactics.every),
        parameters: tactics.policy.parameters().into_iter().map(parameter).collect(),
        rounds: 0,
        events: 0,
        coalesced_events: 0,
        actions: 0,
        outcomes: Vec::new(),
        decisions: Vec::new(),
    }
}

/// A tier as a policy sees it before anything is stored.
fn view(tier: &Tier) -> TierView {
    TierView {
        watermarks: tier.watermarks,
        persistency: tier.backend.capability().persistency,
        is_writable: tier.offline.is_none(),
        ..TierView::empty(&tier.name, tier.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_library_and_a_word_is_built_in() {
        assert_eq!(source("lru"), PolicySource::Name("lru".into()));
        assert_eq!(source("lfu"), PolicySource::Name("lfu".into()));
        assert_eq!(source("./lru"), PolicySource::Library("./lru".into()));
        assert_eq!(source("liblru.so"), PolicySource::Library("liblru.so".into()));
        assert_eq!(absolute("lru").expect("legal"), "lru");
        assert!(absolute("liblru.so").expect("legal").starts_with('/'));
    }
}
