// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the policy and of the tiers, written into `terrace.toml` so that they outlive the process.
//!
//! Everything else in the file stays as it is: other sections, order and comments.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use terrace_core::units::format_duration;
use terrace_core::{Error, Result};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use crate::file::{PolicySource, Settings};

mod tiers;

const OPERATION: &str = "keep the change in the configuration";

/// A change of a store that runs.
pub enum Change<'a> {
    /// Another policy, with these parameters and no others.
    Policy(&'a PolicySource, &'a [(String, String)]),
    /// A parameter and its value.
    Parameter(&'a str, &'a str),
    /// Whether decisions are only recorded.
    DryRun(bool),
    /// When it is called.
    Calls(Option<u64>, Option<Duration>),
    /// A further tier: the text of its section, and the tier before which it comes, or all others.
    AddTier(&'a str, Option<&'a str>),
    /// No longer the tier of this name.
    RemoveTier(&'a str),
    /// Keys of the tier of this name, as they are written; without those that have no value.
    Figures(&'a str, &'a [(&'static str, Option<String>)]),
}

/// Replaces a configuration by the same with the change: a crash leaves one of the two.
pub fn amend_file(file: &Path, change: &Change<'_>) -> Result<()> {
    let before = read(file)?;
    replace(file, &before, &amend(&before, &file.display().to_string(), change)?)
}

/// The text of a configuration.
pub fn read(file: &Path) -> Result<String> {
    let failed = |error| Error::from_io(OPERATION, error).with("file", file.display());
    fs::read_to_string(file).map_err(failed)
}

/// Replaces the text `before` of a configuration, durably.
pub fn replace(file: &Path, before: &str, after: &str) -> Result<()> {
    let failed = |error| Error::from_io(OPERATION, error).with("file", file.display());
    if after == before {
        return Ok(());
    }
    let new = file.with_extension("toml.new");
    let write = || {
        let mut written = File::create(&new)?;
        written.set_permissions(file.metadata()?.permissions())?;
        written.write_all(after.as_bytes())?;
        written.sync_all()?;
        fs::rename(&new, file)?;
        file.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    write().map_err(|error| {
        // What is left of it is of no use to anybody.
        let _ = fs::remove_file(&new);
        failed(error)
    })
}

/// The text of a configuration with a change. One that has no policy gets one only by
/// [`Change::Policy`]: a change of the default policy has no section to go to.
pub fn amend(text: &str, origin: &str, change: &Change<'_>) -> Result<String> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        Error::invalid(OPERATION, "it can no longer be read").with("file", origin).caused_by(error)
    })?;
    match change {
        Change::AddTier(section, before) => {
            tiers::add(&mut document, origin, section, *before)?;
            return checked(&document, origin);
        }
        Change::RemoveTier(name) => {
            tiers::remove(&mut document, origin, name)?;
            return checked(&document, origin);
        }
        Change::Figures(name, keys) => {
            tiers::set_keys(&mut document, origin, name, keys)?;
            return checked(&document, origin);
        }
        _ => {}
    }
    if !document.contains_key("policy") {
        if !matches!(change, Change::Policy(..)) {
            return Ok(text.into());
        }
        document.insert("policy", Item::Table(Table::new()));
    }
    let policy = document.get_mut("policy").and_then(Item::as_table_like_mut);
    let policy = policy.ok_or_else(|| {
        Error::invalid(OPERATION, "its `policy` is no section").with("file", origin)
    })?;
    match change {
        Change::Policy(source, parameters) => {
            set_source(policy, source);
            // The parameters of another policy mean nothing to this one.
            policy.remove("parameters");
            policy.remove("files");
            for (name, value) in *parameters {
                set_parameter(policy, name, value);
            }
        }
        Change::Parameter(name, value) => set_parameter(policy, name, value),
        Change::DryRun(is_dry_run) => set(policy, "dry_run", Value::from(*is_dry_run)),
        Change::Calls(after_events, every) => {
            if let Some(count) = after_events {
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                set(policy, "after_events", Value::from(count));
            }
            if let Some(every) = every {
                set(policy, "every", Value::from(format_duration(*every)));
            }
        }
        Change::AddTier(..) | Change::RemoveTier(_) | Change::Figures(..) => {
            unreachable!("they were made above")
        }
    }
    checked(&document, origin)
}

/// The `[policy]` section of a configuration, by itself.
pub fn policy_section(source: &PolicySource, parameters: &[(String, String)]) -> String {
    let mut policy = Table::new();
    set_source(&mut policy, source);
    for (name, value) in parameters {
        set_parameter(&mut policy, name, value);
    }
    let mut document = DocumentMut::new();
    document.insert("policy", Item::Table(policy));
    document.to_string()
}

/// The text of a configuration that can be read again.
fn checked(document: &DocumentMut, origin: &str) -> Result<String> {
    let text = document.to_string();
    Settings::parse(&text, origin)?;
    Ok(text)
}

fn set_source(policy: &mut dyn TableLike, source: &PolicySource) {
    let (key, value) = match source {
        PolicySource::Name(name) => ("name", name.clone()),
        PolicySource::Library(path) => ("library", path.display().to_string()),
        PolicySource::Program(path) => ("program", path.display().to_string()),
    };
    for other in ["name", "library", "program"] {
        if other != key {
            policy.remove(other);
        }
    }
    set(policy, key, Value::from(value));
}

fn set_parameter(policy: &mut dyn TableLike, name: &str, value: &str) {
    // The file of a parameter has been read, and something else holds now.
    if let Some(files) = policy.get_mut("files").and_then(Item::as_table_like_mut) {
        files.remove(name);
    }
    if policy.get("parameters").is_none() {
        // Keys with a dot, not a section: comments that follow would be in it when uncommented.
        let mut parameters = Table::new();
        parameters.set_dotted(true);
        policy.insert("parameters", Item::Table(parameters));
    }
    if let Some(parameters) = policy.get_mut("parameters").and_then(Item::as_table_like_mut) {
        set(parameters, name, parameter(value));
    }
}

/// A plain number as such, everything else as text: both are the same text to the policy.
fn parameter(value: &str) -> Value {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match value.parse::<Value>() {
        Ok(number) if is_plain && number.to_string() == value => number,
        _ => Value::from(value),
    }
}

/// Sets a key and leaves the comment beside it.
fn set(table: &mut dyn TableLike, key: &str, mut value: Value) {
    if let Some(before) = table.get(key).and_then(Item::as_value) {
        *value.decor_mut() = before.decor().clone();
    }
    table.insert(key, Item::Value(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: &str = "# mine\n[[tier]] # one\nname = \"t\"\npath = \"t\"\n";

    #[track_caller]
    fn amended(policy: &str, change: &Change<'_>) -> String {
        let text = amend(&format!("{TIER}{policy}"), "terrace.toml", change).expect("legal");
        text.strip_prefix(TIER).expect("everything else stays").into()
    }

    #[test]
    fn a_change_leaves_the_comments() {
        let policy = "\n# what decides\n[policy]\nname = \"lru\" # for now\n\
                      [policy.parameters]\nhigh = 0.9 # full\n";
        let changed = amended(policy, &Change::Parameter("high", "0.8"));
        assert_eq!(changed, policy.replace("0.9", "0.8"));
        let changed = amended(&changed, &Change::Parameter("idle", "1s"));
        assert!(changed.ends_with("high = 0.8 # full\nidle = \"1s\"\n"), "{changed}");
        let changed = amended(&changed, &Change::DryRun(true));
        assert!(changed.contains("name = \"lru\" # for now\ndry_run = true\n"), "{changed}");
        let calls = Change::Calls(Some(7), Some(Duration::from_secs(2)));
        let changed = amended(&changed, &calls);
        assert!(changed.contains("after_events = 7\nevery = \"2s\"\n"), "{changed}");
    }

    #[test]
    fn another_policy_comes_without_the_old_parameters() {
        let policy = "[policy]\nname = \"lru\"\nevery = \"1s\"\n[policy.parameters]\nhigh = 0.8\n";
        let source = PolicySource::Name("pinned".into());
        let changed = amended(policy, &Change::Policy(&source, &[]));
        assert_eq!(changed, "[policy]\nname = \"pinned\"\nevery = \"1s\"\n");
        let source = PolicySource::Library("/lib/mine.so".into());
        let parameters = [("size".into(), "5".into()), ("a b".into(), "-".into())];
        let changed = amended(&changed, &Change::Policy(&source, &parameters));
        let expected = "[policy]\nevery = \"1s\"\nlibrary = \"/lib/mine.so\"\n\
                        parameters.size = 5\nparameters.\"a b\" = \"-\"\n";
        assert_eq!(changed, expected);
        let source = PolicySource::Program("/lib/mine.py".into());
        let changed = amended(&changed, &Change::Policy(&source, &[]));
        assert_eq!(changed, "[policy]\nevery = \"1s\"\nprogram = \"/lib/mine.py\"\n");
    }

    #[test]
    fn a_parameter_takes_the_place_of_its_file() {
        let policy = "[policy]\nname = \"rules\"\n[policy.files]\nrules = \"a.toml\"\n";
        let text = "[[rule]]\naction = \"keep\"\n";
        let changed = amended(policy, &Change::Parameter("rules", text));
        assert!(!changed.contains("a.toml"), "{changed}");
        let settings = Settings::parse(&format!("{TIER}{changed}"), "terrace.toml");
        let policy = settings.expect("legal").policy.expect("given");
        assert_eq!(policy.parameters, [("rules".to_string(), text.to_string())]);
    }

    #[test]
    fn a_store_without_a_policy_gets_a_section_only_by_a_policy() {
        assert_eq!(amended("", &Change::DryRun(true)), "");
        let source = PolicySource::Name("lru".into());
        let parameters = [("high".into(), "0.8".into())];
        let changed = amended("", &Change::Policy(&source, &parameters));
        assert_eq!(changed, "\n[policy]\nname = \"lru\"\nparameters.high = 0.8\n");
    }

    #[test]
    fn comments_stay_in_their_section() {
        let policy = "[policy]\nname = \"lru\"\n# dry_run = true\n";
        let changed = amended(policy, &Change::Parameter("high", "0.8"));
        let uncommented = format!("{TIER}{}", changed.replace("# dry_run", "dry_run"));
        let settings = Settings::parse(&uncommented, "terrace.toml").expect("legal");
        assert!(settings.policy.expect("given").dry_run);
    }

    #[test]
    fn every_way_to_write_a_section_can_be_changed() {
        for policy in [
            "[policy]\nname = \"lru\"\nparameters = { high = 0.9 }\n",
            "[policy]\nname = \"lru\"\nparameters.high = 0.9\n",
            "[policy]\nname = \"lru\"\n",
        ] {
            let changed = amended(policy, &Change::Parameter("high", "0.75"));
            assert!(changed.contains("0.75") && !changed.contains("0.9"), "{changed}");
        }
        let inline = format!("policy = {{ name = \"lru\" }}\n{TIER}");
        let change = Change::Parameter("high", "0.75");
        let changed = amend(&inline, "terrace.toml", &change).expect("legal");
        assert!(changed.contains("0.75"), "{changed}");
    }

    #[test]
    fn what_the_configuration_would_refuse_is_not_written() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let file = home.path().join("terrace.toml");
        let text = format!("{TIER}[policy]\nname = \"lru\"\n");
        fs::write(&file, &text).expect("writable");
        amend_file(&file, &Change::Parameter("hihg", "0.8")).expect_err("no such parameter");
        assert_eq!(fs::read_to_string(&file).expect("readable"), text);
        amend_file(&file, &Change::Parameter("high", "0.8")).expect("legal");
        assert!(fs::read_to_string(&file).expect("readable").contains("high = 0.8"));
        assert_eq!(home.path().read_dir().expect("readable").count(), 1);
    }
}
