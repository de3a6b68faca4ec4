// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text of `terrace.toml`.

use std::path::Path;
use std::time::Duration;

use terrace_core::ErrorKind;
use terrace_settings::amend::{Change, amend};
use terrace_settings::{PolicySettings, PolicySource, Settings};

const ORIGIN: &str = "terrace.toml";

/// A configuration is refused with the place of what is wrong; or a change of its policy, written
/// into its text, is the only thing that changes when it is read again.
pub(crate) fn configuration(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let settings = match Settings::parse(text, ORIGIN) {
        Ok(settings) => settings,
        Err(error) => {
            let message = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{message}");
            assert!(has_place(&message), "{message}");
            assert!(!message.contains('\n'), "{message}");
            return false;
        }
    };
    assert!(!settings.tiers.is_empty());
    // Paths may collide in the store's directory only.
    let resolved = settings.clone().resolved(Path::new("/srv/store"));
    if let Err(error) = resolved {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }

    let Some(policy) = settings.policy.clone() else { return true };
    let changed = |policy| Settings { policy: Some(policy), ..settings.clone() };
    let amended = |change| amend(text, ORIGIN, &change).expect("legal");
    let after = amended(Change::DryRun(!policy.dry_run));
    let expected = changed(PolicySettings { dry_run: !policy.dry_run, ..policy.clone() });
    assert_eq!(parse(&after), expected, "{after}");

    let every = Duration::from_nanos(1_234_567);
    let after = amended(Change::Calls(Some(17), Some(every)));
    let expected = changed(PolicySettings { after_events: 17, every, ..policy.clone() });
    assert_eq!(parse(&after), expected, "{after}");

    if !matches!(policy.source, PolicySource::Name(_)) {
        return true;
    }
    let after = amended(Change::Policy(&policy.source, &policy.parameters));
    let expected = changed(PolicySettings { files: Vec::new(), ..policy.clone() });
    assert_eq!(parse(&after), expected, "{after}");
    true
}

fn parse(text: &str) -> Settings {
    Settings::parse(text, ORIGIN).unwrap_or_else(|error| panic!("{}:\n{text}", error.chain()))
}

/// Whether a message has the form `… terrace.toml:LINE:COLUMN: …`.
fn has_place(message: &str) -> bool {
    let Some((_, behind)) = message.split_once("terrace.toml:") else { return false };
    let mut parts = behind.splitn(3, ':');
    let mut is_number = || parts.next().is_some_and(|part| part.parse::<u64>().is_ok());
    is_number() && is_number()
}
