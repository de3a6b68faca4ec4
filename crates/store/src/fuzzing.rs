// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the private parts of this crate. Not for anybody else: it may change with
//! every version.

use std::time::Duration;

use terrace_core::Result;

use crate::PolicySource;
use crate::amend::{Change, amend};

mod desk;

pub use self::desk::Desk;

/// The text of a configuration after `terrace policy dry-run` or its like.
///
/// # Errors
///
/// `Invalid` where the text or the change is wrong.
pub fn amend_dry_run(text: &str, is_dry_run: bool) -> Result<String> {
    amend(text, "terrace.toml", &Change::DryRun(is_dry_run))
}

/// The text of a configuration after a change of when the policy is called.
///
/// # Errors
///
/// As [`amend_dry_run`].
pub fn amend_calls(text: &str, after_events: u64, every: Duration) -> Result<String> {
    amend(text, "terrace.toml", &Change::Calls(Some(after_events), Some(every)))
}

/// The text of a configuration after another policy took over.
///
/// # Errors
///
/// As [`amend_dry_run`].
pub fn amend_policy(text: &str, name: &str, parameters: &[(String, String)]) -> Result<String> {
    let source = PolicySource::Name(name.into());
    amend(text, "terrace.toml", &Change::Policy(&source, parameters))
}
