// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy that runs, as far as it is tuned.

use std::time::Duration;

use terrace_console::failure::Result;
use terrace_core::{Error, ErrorKind, PostEvents};
use terrace_policies::POLICIES;
use terrace_store::Store;

use super::OPERATION;

/// A built-in policy with its parameters, and how it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// Its name.
    pub policy: String,
    /// All parameters with their values.
    pub parameters: Vec<(String, String)>,
    /// After how many events it is called.
    pub after_events: u64,
    /// How often it is called.
    pub every: Duration,
}

impl Running {
    /// Looks at the policy of a store, which must be one whose parameters the project knows.
    pub(super) fn look(store: &Store) -> Result<Self> {
        let unsupported = |reason: &str, policy: &str| {
            let error = Error::new(ErrorKind::Unsupported, OPERATION).because(reason);
            error.with("policy", policy).into()
        };
        let Some(report) = store.admin().policy()? else {
            let reason = "it has no policy: choose one with `terrace policy use`";
            return Err(Error::invalid(OPERATION, reason).into());
        };
        if let Some(replaced) = &report.replaced {
            let reason = "its policy failed, and the built-in fallback decides in its place";
            return Err(unsupported(reason, replaced));
        }
        if !POLICIES.iter().any(|entry| entry.name == report.name) {
            let reason = "only of built-in policies it is known which values make sense";
            return Err(unsupported(reason, &report.name));
        }
        if report.is_dry_run {
            let reason = "what its policy decides is only recorded (dry run), so that nothing of it \
                          could be measured";
            return Err(unsupported(reason, &report.name));
        }
        if report.post_events == PostEvents::Before.word() {
            let reason = "its accesses become events before their I/O (post_events), so that none \
                          has a latency, and nothing could be measured";
            return Err(unsupported(reason, &report.name));
        }
        let parameters = report.parameters.into_iter().map(|one| (one.name, one.value));
        Ok(Self {
            policy: report.name,
            parameters: parameters.collect(),
            after_events: report.after_events,
            every: Duration::from_nanos(report.every_ns),
        })
    }

    /// The parameters that others have in another way, each with its value here.
    pub fn differences<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = &'a (String, String)> {
        self.parameters.iter().filter(|one| !other.parameters.contains(one))
    }
}
