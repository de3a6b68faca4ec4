// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[tier]]` sections in the text of a configuration.

use terrace_core::{Error, ErrorKind, Result};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::OPERATION;

/// Puts the section in `text` before the tier `before`, or behind all.
pub(super) fn add(
    document: &mut DocumentMut,
    origin: &str,
    text: &str,
    before: Option<&str>,
) -> Result<()> {
    let wrong = |reason: &str| Error::invalid("add a tier", reason).with("section", text);
    let mut added: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        wrong("its section cannot be read").caused_by(error)
    })?;
    let mut sections = sections(&mut added, origin)?.iter().cloned();
    let (Some(mut section), None) = (sections.next(), sections.next()) else {
        return Err(wrong("one section that begins with [[tier]] is expected"));
    };
    // Its place follows from the order of the list.
    section.set_position(None);
    let list = self::sections(document, origin)?;
    let at = match before {
        Some(name) => find(list, name)?,
        None => list.len(),
    };
    let mut all: Vec<Table> = list.iter().cloned().collect();
    all.insert(at, section);
    list.clear();
    all.into_iter().for_each(|section| list.push(section));
    Ok(())
}

/// Takes out the section of a tier, with the comments above it.
pub(super) fn remove(document: &mut DocumentMut, origin: &str, name: &str) -> Result<()> {
    let list = sections(document, origin)?;
    let at = find(list, name)?;
    list.remove(at);
    Ok(())
}

/// Sets keys of a tier, and takes out those without a value.
pub(super) fn set_keys(
    document: &mut DocumentMut,
    origin: &str,
    name: &str,
    keys: &[(&str, Option<String>)],
) -> Result<()> {
    let list = sections(document, origin)?;
    let at = find(list, name)?;
    let tier = list.get_mut(at).expect("it was found there");
    for (key, value) in keys {
        match value {
            None => drop(tier.remove(key)),
            Some(value) => {
                let value = value.parse().expect("a quoted text or a number is a value");
                super::set(tier, key, value);
            }
        }
    }
    Ok(())
}

fn sections<'a>(document: &'a mut DocumentMut, origin: &str) -> Result<&'a mut ArrayOfTables> {
    document.get_mut("tier").and_then(Item::as_array_of_tables_mut).ok_or_else(|| {
        let reason = "its tiers are no [[tier]] sections; change it by hand";
        Error::invalid(OPERATION, reason).with("file", origin)
    })
}

fn find(list: &ArrayOfTables, name: &str) -> Result<usize> {
    let named = |section: &Table| section.get("name").and_then(Item::as_str).map(str::to_owned);
    let names: Vec<_> = list.iter().map(|section| named(section).unwrap_or_default()).collect();
    names.iter().position(|one| one == name).ok_or_else(|| {
        let reason = format!("the configuration has no tier {name:?}; it has {}", names.join(", "));
        Error::new(ErrorKind::NotFound, OPERATION).because(reason)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Change, amend};

    const TEXT: &str = "# mine\n[store]\nmove_threads = 2\n\n# quick\n[[tier]]\nname = \"a\" # nvme\n\
                        path = \"a\"\n\n# large\n[[tier]]\nname = \"b\"\npath = \"b\"\n\
                        throttle.latency = \"1ms\"\n\n[catalog]\npath = \"c\" # end\n";
    const SECTION: &str = "\n[[tier]]\nname = \"new\"\npath = \"/n\"\n";

    #[track_caller]
    fn amended(change: &Change<'_>) -> String {
        amend(TEXT, "terrace.toml", change).expect("legal")
    }

    #[test]
    fn a_new_tier_comes_behind_the_others_or_before_one() {
        let added = amended(&Change::AddTier(SECTION, None));
        assert_eq!(added, TEXT.replace("\n[catalog]", &format!("{SECTION}\n[catalog]")));
        let added = amended(&Change::AddTier(SECTION, Some("b")));
        assert_eq!(added, TEXT.replace("\n# large", &format!("{SECTION}\n# large")));
        let added = amended(&Change::AddTier(SECTION, Some("a")));
        assert_eq!(added, TEXT.replace("\n# quick", &format!("{SECTION}\n# quick")));
    }

    #[test]
    fn a_removed_tier_takes_its_comments_along() {
        let removed = amended(&Change::RemoveTier("b"));
        let start = TEXT.find("\n# large").expect("is there");
        let end = TEXT.find("\n[catalog]").expect("is there");
        assert_eq!(removed, format!("{}{}", &TEXT[..start], &TEXT[end..]));
    }

    #[test]
    fn figures_of_a_tier_leave_comments_and_other_keys() {
        let keys = [
            ("latency", Some("\"80us\"".into())),
            ("path", None),
            ("name", Some("\"a\"".into())),
            ("backend", Some("\"null\"".into())),
            ("seek", None),
        ];
        let changed = amended(&Change::Figures("a", &keys));
        let expected =
            TEXT.replacen("path = \"a\"\n", "latency = \"80us\"\nbackend = \"null\"\n", 1);
        assert_eq!(changed, expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for change in [
            Change::AddTier(SECTION, Some("x")),
            Change::AddTier("name = 1", None),
            Change::AddTier("[[tier]]\nname = \"a\"\npath = \"z\"", None),
            Change::AddTier(&SECTION.repeat(2), None),
            Change::RemoveTier("x"),
            Change::Figures("x", &[]),
            Change::Figures("a", &[("latency", Some("1".into()))]),
        ] {
            amend(TEXT, "terrace.toml", &change).expect_err("refused");
        }
    }
}
