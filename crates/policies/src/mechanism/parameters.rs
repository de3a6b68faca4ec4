// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameters: a policy declares them in a table; reading, checking and showing is done here.

use std::ops::{Deref, RangeInclusive};
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Parameter, Result, TierIndex, View, units};

use super::glob::Glob;

/// Entries that a list of rules, globs or sizes may have.
const LIST_MAX: usize = 256;

/// The settings of a policy, with the table that says how people name them.
pub(crate) trait Settings: Clone + Send + 'static {
    /// All parameters, in the order in which they are shown.
    const TABLE: &'static [Declaration<Self>];

    /// Says what contradicts what, if anything does.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// One parameter: its name, its place in the settings, and one sentence for people.
pub(crate) struct Declaration<S> {
    pub(crate) name: &'static str,
    pub(crate) value: for<'a> fn(&'a mut S) -> Value<'a>,
    pub(crate) description: &'static str,
}

/// A place in the settings, with its type and bounds.
pub(crate) enum Value<'a> {
    /// 0 to 1.
    Fraction(&'a mut f64),
    /// 0 to 1, or `tier` for what each tier's own watermark says.
    Watermark(&'a mut Option<f64>),
    /// A number within bounds.
    Number(&'a mut f64, RangeInclusive<f64>),
    /// A whole number within bounds.
    Count(&'a mut u32, RangeInclusive<u32>),
    /// Nanoseconds.
    Duration(&'a mut u64),
    /// Nanoseconds, or `deduced` for what experience says.
    Timeout(&'a mut Option<u64>),
    /// A size, or `unlimited`.
    Bytes(&'a mut u64),
    /// `on` or `off`.
    Switch(&'a mut bool),
    /// The name of a tier.
    Tier(&'a mut TierIndex),
    /// Ascending sizes above zero.
    Sizes(&'a mut Vec<u64>),
    /// Patterns over keys.
    Globs(&'a mut Vec<Glob>),
    /// `pattern=tier`, the first match counts.
    Rules(&'a mut Vec<(Glob, TierIndex)>),
    /// What only one policy reads.
    Own(&'a mut dyn Own),
}

/// A value in a notation of its own.
pub(crate) trait Own {
    /// Reads it, or says what would be right; tiers are named by these names.
    fn read(&mut self, text: &str, tiers: &[String]) -> Result<()>;

    /// The text that reads back as it is.
    fn show(&self) -> String;
}

/// Settings that were read and checked; changed only by name.
pub(crate) struct Chosen<S> {
    settings: S,
    tiers: Vec<String>,
}

impl<S: Settings> Chosen<S> {
    /// Starts from `defaults` and sets what is given, in order.
    pub(crate) fn new(defaults: S, view: &View, given: &[(String, String)]) -> Result<Self> {
        let tiers = view.tiers.iter().map(|tier| tier.name.clone()).collect();
        let mut chosen = Self { settings: defaults, tiers };
        // Checked once at the end: `low` may be given before the `high` that allows it.
        for (name, text) in given {
            chosen.read(name, text)?;
        }
        chosen.settings.check().map_err(contradiction)?;
        Ok(chosen)
    }

    /// Sets one parameter; a wrong value changes nothing.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<()> {
        let before = self.settings.clone();
        let result = self.read(name, text).and_then(|()| {
            self.settings.check().map_err(|reason| contradiction(reason).with("parameter", name))
        });
        if result.is_err() {
            self.settings = before;
        }
        result
    }

    /// The parameters as people see them.
    pub(crate) fn list(&self) -> Vec<Parameter> {
        // The table hands out mutable places, so it is asked about a clone.
        let mut settings = self.settings.clone();
        S::TABLE
            .iter()
            .map(|declaration| {
                let text = (declaration.value)(&mut settings).show(&self.tiers);
                Parameter::new(declaration.name, text, declaration.description)
            })
            .collect()
    }

    fn read(&mut self, name: &str, text: &str) -> Result<()> {
        let Some(declaration) = S::TABLE.iter().find(|declaration| declaration.name == name) else {
            let names: Vec<_> = S::TABLE.iter().map(|declaration| declaration.name).collect();
            let reason = format!("the policy has the parameters {}", names.join(", "));
            return Err(Error::new(ErrorKind::NotFound, "set a policy's parameter")
                .because(reason)
                .with("parameter", name));
        };
        (declaration.value)(&mut self.settings)
            .read(text.trim(), &self.tiers)
            .map_err(|error| error.with("parameter", name))
    }
}

impl<S> Deref for Chosen<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.settings
    }
}

fn contradiction(reason: &'static str) -> Error {
    Error::invalid("set a policy's parameter", reason)
}

impl Value<'_> {
    fn read(self, text: &str, tiers: &[String]) -> Result<()> {
        match self {
            Value::Fraction(place) => *place = read_number(text, &(0.0..=1.0))?,
            Value::Watermark(place) => {
                *place = match text {
                    "tier" => None,
                    _ => Some(read_number(text, &(0.0..=1.0))?),
                }
            }
            Value::Number(place, bounds) => *place = read_number(text, &bounds)?,
            Value::Count(place, bounds) => *place = read_count(text, &bounds)?,
            Value::Duration(place) => *place = read_duration_ns(text)?,
            Value::Timeout(place) => {
                *place = match text {
                    "deduced" => None,
                    _ => Some(read_duration_ns(text)?),
                }
            }
            Value::Bytes(place) => {
                *place = if text == "unlimited" { u64::MAX } else { units::parse_bytes(text)? }
            }
            Value::Switch(place) => *place = read_switch(text)?,
            Value::Tier(place) => *place = read_tier(text, tiers)?,
            Value::Sizes(place) => *place = read_sizes(text)?,
            Value::Own(place) => place.read(text, tiers)?,
            Value::Globs(place) => *place = list(text)?.into_iter().map(Glob::new).collect(),
            Value::Rules(place) => {
                *place = list(text)?
                    .into_iter()
                    .map(|rule| read_rule(rule, tiers))
                    .collect::<Result<_>>()?
            }
        }
        Ok(())
    }

    fn show(self, tiers: &[String]) -> String {
        match self {
            Value::Fraction(place) | Value::Number(place, _) => place.to_string(),
            Value::Count(place, _) => place.to_string(),
            Value::Watermark(place) => place.map_or("tier".into(), |share| share.to_string()),
            Value::Duration(place) => show_duration(*place),
            Value::Timeout(place) => place.map_or("deduced".into(), show_duration),
            Value::Bytes(place) if *place == u64::MAX => "unlimited".into(),
            Value::Bytes(place) => units::format_bytes(*place),
            Value::Switch(place) => if *place { "on" } else { "off" }.into(),
            Value::Tier(place) => tiers[place.index()].clone(),
            Value::Sizes(place) => join(place, |size| units::format_bytes(*size)),
            Value::Globs(place) => join(place, Glob::to_string),
            Value::Own(place) => place.show(),
            Value::Rules(place) => {
                join(place, |(glob, tier)| format!("{glob}={}", tiers[tier.index()]))
            }
        }
    }
}

/// Finds a tier by its name.
pub(crate) fn read_tier(text: &str, tiers: &[String]) -> Result<TierIndex> {
    let index = tiers.iter().position(|name| name == text).ok_or_else(|| {
        let reason = format!("one of the tiers {} is expected", tiers.join(", "));
        Error::invalid("find a tier", reason).with("tier", format!("{text:?}"))
    })?;
    Ok(TierIndex(index as u8))
}

/// Reads a duration such as `10min` into nanoseconds.
pub(crate) fn read_duration_ns(text: &str) -> Result<u64> {
    u64::try_from(units::parse_duration(text)?.as_nanos())
        .map_err(|_| Error::invalid("read a duration", "it is too long").with("value", text))
}

fn read_number(text: &str, bounds: &RangeInclusive<f64>) -> Result<f64> {
    text.parse().ok().filter(|number| bounds.contains(number)).ok_or_else(|| {
        let reason = format!("a number from {} to {} is expected", bounds.start(), bounds.end());
        Error::invalid("read a number", reason).with("value", format!("{text:?}"))
    })
}

fn read_count(text: &str, bounds: &RangeInclusive<u32>) -> Result<u32> {
    text.parse().ok().filter(|count| bounds.contains(count)).ok_or_else(|| {
        let reason =
            format!("a whole number from {} to {} is expected", bounds.start(), bounds.end());
        Error::invalid("read a number", reason).with("value", format!("{text:?}"))
    })
}

fn read_switch(text: &str) -> Result<bool> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(Error::invalid("read a switch", "on or off is expected")
            .with("value", format!("{text:?}"))),
    }
}

fn read_sizes(text: &str) -> Result<Vec<u64>> {
    let sizes: Vec<u64> = list(text)?.into_iter().map(units::parse_bytes).collect::<Result<_>>()?;
    if sizes.first() == Some(&0) || !sizes.is_sorted_by(|a, b| a < b) {
        return Err(Error::invalid("read sizes", "ascending sizes above zero are expected")
            .with("value", format!("{text:?}")));
    }
    Ok(sizes)
}

fn read_rule(rule: &str, tiers: &[String]) -> Result<(Glob, TierIndex)> {
    let (glob, tier) = rule.rsplit_once('=').ok_or_else(|| {
        Error::invalid("read a rule", "pattern=tier is expected").with("rule", format!("{rule:?}"))
    })?;
    Ok((Glob::new(glob.trim()), read_tier(tier.trim(), tiers)?))
}

/// The parts of a list that commas separate.
fn list(text: &str) -> Result<Vec<&str>> {
    let parts: Vec<_> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.len() > LIST_MAX {
        let reason = format!("it has {} entries, at most {LIST_MAX} are allowed", parts.len());
        return Err(Error::invalid("read a list", reason));
    }
    Ok(parts)
}

fn show_duration(ns: u64) -> String {
    units::format_duration(Duration::from_nanos(ns))
}

fn join<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::tiers;

    #[derive(Clone, Default)]
    struct Example {
        share: f64,
        mark: Option<f64>,
        limit: f64,
        count: u32,
        pause_ns: u64,
        bytes: u64,
        is_on: bool,
        tier: TierIndex,
        sizes: Vec<u64>,
        rules: Vec<(Glob, TierIndex)>,
    }

    impl Settings for Example {
        const TABLE: &'static [Declaration<Self>] = &[
            Declaration {
                name: "share",
                value: |s| Value::Fraction(&mut s.share),
                description: "",
            },
            Declaration { name: "mark", value: |s| Value::Watermark(&mut s.mark), description: "" },
            Declaration {
                name: "limit",
                value: |s| Value::Number(&mut s.limit, 0.0..=9.0),
                description: "",
            },
            Declaration {
                name: "count",
                value: |s| Value::Count(&mut s.count, 0..=9),
                description: "",
            },
            Declaration {
                name: "pause",
                value: |s| Value::Duration(&mut s.pause_ns),
                description: "",
            },
            Declaration { name: "bytes", value: |s| Value::Bytes(&mut s.bytes), description: "" },
            Declaration { name: "on", value: |s| Value::Switch(&mut s.is_on), description: "" },
            Declaration { name: "tier", value: |s| Value::Tier(&mut s.tier), description: "" },
            Declaration { name: "sizes", value: |s| Value::Sizes(&mut s.sizes), description: "" },
            Declaration { name: "rules", value: |s| Value::Rules(&mut s.rules), description: "" },
        ];

        fn check(&self) -> Result<(), &'static str> {
            if self.share > 0.5 && self.limit == 0.0 { Err("share needs limit") } else { Ok(()) }
        }
    }

    fn example() -> Chosen<Example> {
        let view = View::new(tiers(&[1000, 1000]), 0);
        Chosen::new(Example::default(), &view, &[]).expect("no parameters")
    }

    #[test]
    fn a_shown_value_reads_back() {
        let mut chosen = example();
        for (name, text, shown) in [
            ("limit", "2.5", "2.5"),
            ("count", "7", "7"),
            ("share", "0.75", "0.75"),
            ("mark", "0.5", "0.5"),
            ("mark", "tier", "tier"),
            ("pause", "1.5s", "1500ms"),
            ("bytes", "64KiB", "64KiB"),
            ("bytes", "unlimited", "unlimited"),
            ("on", "true", "on"),
            ("tier", "t1", "t1"),
            ("sizes", "64KiB,16MiB", "64KiB, 16MiB"),
            ("rules", "a/b=c=t1, *=t0,", "a/b=c=t1, *=t0"),
        ] {
            chosen.set(name, text).expect(name);
            let value = |chosen: &Chosen<Example>| {
                chosen.list().into_iter().find(|p| p.name == name).expect(name).value
            };
            assert_eq!(value(&chosen), shown);
            chosen.set(name, shown).expect(name);
            assert_eq!(value(&chosen), shown);
        }
    }

    #[test]
    fn a_wrong_value_says_what_would_be_right_and_changes_nothing() {
        let mut chosen = example();
        let before = chosen.list();
        for (name, text, right) in [
            ("share", "1.5", "from 0 to 1"),
            ("share", "NaN", "from 0 to 1"),
            ("limit", "-1", "from 0 to 9"),
            ("count", "2.5", "a whole number from 0 to 9"),
            ("count", "10", "from 0 to 9"),
            ("pause", "5", "80us"),
            ("bytes", "5", "200GB"),
            ("on", "yes", "on or off"),
            ("tier", "fast", "t0, t1"),
            ("sizes", "2kB,1kB", "ascending"),
            ("rules", "*", "pattern=tier"),
            ("rules", "*=fast", "t0, t1"),
            ("share", "0.9", "needs limit"),
            ("nothing", "1", "share, mark, limit, count"),
        ] {
            let error = chosen.set(name, text).expect_err(text).to_string();
            assert!(error.contains(right) && error.contains(name), "{error}");
        }
        let many = "a=t0,".repeat(LIST_MAX + 1);
        assert!(chosen.set("rules", &many).is_err());
        assert_eq!(chosen.list(), before);
    }
}
