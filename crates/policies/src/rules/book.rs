// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules as people write them.

use std::ops::Range;

use serde::Deserialize;
use terrace_core::{Error, Key, Result, SegmentView, TierIndex, units};

use crate::heat::warmth::Heat;
use crate::mechanism::glob::Glob;
use crate::mechanism::parameters::{Own, read_duration_ns, read_tier};

/// Rules in a book: each segment has a bit for each of them.
const RULES_MAX: usize = 64;

/// Patterns of one rule.
const GLOBS_MAX: usize = 32;

/// Longest text.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// A time that never comes.
pub(super) const NEVER_NS: i64 = i64::MAX;

/// Ordered rules, with the text that they were read from.
#[derive(Debug, Default)]
pub(super) struct Book {
    text: String,
    pub(super) rules: Vec<Rule>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    globs: Vec<Glob>,
    bounds: Bounds,
    pub(super) action: Action,
    pub(super) weight: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// New objects go there.
    Place(TierIndex),
    /// Segments go there.
    Move(TierIndex),
    /// Leaves its tier only when nothing else can.
    Keep,
    /// Stays where it is.
    Never,
}

#[derive(Debug)]
struct Bounds {
    on: Option<TierIndex>,
    bytes: Range<u64>,
    age_ns: Range<u64>,
    idle_ns: Range<u64>,
    heat: Range<f64>,
}

/// What is known of a segment beside the view. Times may be before the clock began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) created_ns: i64,
    pub(super) used_ns: i64,
    pub(super) heat: Heat,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBook {
    #[serde(default)]
    rule: Vec<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    // Read before, so that errors can name it.
    #[serde(rename = "name")]
    _name: Option<String>,
    glob: Option<OneOrMore>,
    on: Option<String>,
    size_min: Option<String>,
    size_max: Option<String>,
    age_min: Option<String>,
    age_max: Option<String>,
    idle_min: Option<String>,
    idle_max: Option<String>,
    heat_min: Option<f64>,
    heat_max: Option<f64>,
    action: String,
    to: Option<String>,
    #[serde(default)]
    weight: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl Own for std::sync::Arc<Book> {
    fn read(&mut self, text: &str, tiers: &[String]) -> Result<()> {
        *self = Self::new(Book::read(text, tiers)?);
        Ok(())
    }

    fn show(&self) -> String {
        self.text.clone()
    }
}

impl Book {
    /// Reads rules.
    ///
    /// # Errors
    ///
    /// `Invalid`, with the rule and its field.
    pub(super) fn read(text: &str, tiers: &[String]) -> Result<Self> {
        if text.len() > TEXT_BYTES_MAX {
            let reason =
                format!("they are longer than {}", units::format_bytes(TEXT_BYTES_MAX as u64));
            return Err(Error::invalid("read the rules", reason));
        }
        let raw: RawBook = toml::from_str(text).map_err(|error| {
            let reason = "sections [[rule]] of TOML are expected";
            Error::invalid("read the rules", reason).with("cause", error.to_string().trim_end())
        })?;
        if raw.rule.len() > RULES_MAX {
            let reason = format!("at most {RULES_MAX} rules are allowed");
            return Err(Error::invalid("read the rules", reason).with("rules", raw.rule.len()));
        }
        let rule = |(index, table): (usize, toml::Table)| {
            let named = table.get("name").and_then(|name| name.as_str());
            let name = named.map_or_else(|| format!("rule {}", index + 1), str::to_string);
            Rule::read(&name, table, tiers)
                .map_err(|error| error.with("rule", format!("{} ({name:?})", index + 1)))
        };
        let rules = raw.rule.into_iter().enumerate().map(rule).collect::<Result<_>>()?;
        Ok(Self { text: text.into(), rules })
    }

    /// The rules whose patterns match a key, a bit each.
    pub(super) fn matching(&self, key: &Key) -> u64 {
        let rules = self.rules.iter().enumerate();
        let matching = rules.filter(|(_, rule)| rule.matches_key(key));
        matching.fold(0, |mask, (index, _)| mask | 1 << index)
    }

    /// The tier that the first matching rule for new objects names.
    pub(super) fn place(&self, key: &Key, size_hint_bytes: Option<u64>) -> Option<TierIndex> {
        self.rules.iter().find_map(|rule| {
            let Action::Place(tier) = rule.action else { return None };
            let fits = match size_hint_bytes {
                Some(bytes) => rule.bounds.bytes.contains(&bytes),
                None => rule.bounds.bytes == ALL_BYTES,
            };
            (fits && rule.matches_key(key)).then_some(tier)
        })
    }

    /// The first rule for segments that matches, and when that may be another.
    pub(super) fn judge(
        &self,
        mask: u64,
        facts: &Facts,
        segment: &SegmentView,
        now_ns: i64,
        half_life_ns: u64,
    ) -> (Option<usize>, i64) {
        let mut change_ns = NEVER_NS;
        for (index, rule) in self.rules.iter().enumerate() {
            if mask & 1 << index == 0 || matches!(rule.action, Action::Place(_)) {
                continue;
            }
            let (is_match, at_ns) = rule.bounds.judge(facts, segment, now_ns, half_life_ns);
            change_ns = change_ns.min(at_ns);
            if is_match {
                return (Some(index), change_ns);
            }
        }
        (None, change_ns)
    }
}

const ALL_BYTES: Range<u64> = 0..u64::MAX;
const ALL_NS: Range<u64> = 0..u64::MAX;

impl Rule {
    fn read(name: &str, table: toml::Table, tiers: &[String]) -> Result<Self> {
        let raw: RawRule = table.try_into().map_err(|error: toml::de::Error| {
            Error::invalid("read a rule", error.message().to_string())
        })?;
        let globs = match &raw.glob {
            None => Vec::new(),
            Some(OneOrMore::One(glob)) => vec![Glob::new(glob)],
            Some(OneOrMore::More(globs)) => globs.iter().map(|glob| Glob::new(glob)).collect(),
        };
        if globs.len() > GLOBS_MAX || raw.glob.is_some() && globs.is_empty() {
            let reason = format!("1 to {GLOBS_MAX} patterns are expected");
            return Err(Error::invalid("read a rule", reason).with("field", "glob"));
        }
        let tier = |field: &'static str, text: &str| {
            read_tier(text, tiers).map_err(|error| error.with("field", field))
        };
        let on = raw.on.as_deref().map(|text| tier("on", text)).transpose()?;
        let to = raw.to.as_deref().map(|text| tier("to", text)).transpose()?;
        let action = match (raw.action.as_str(), to) {
            ("place", Some(to)) => Action::Place(to),
            ("move", Some(to)) => Action::Move(to),
            ("place" | "move", None) => {
                let reason = format!("to {} needs a tier", raw.action);
                return Err(Error::invalid("read a rule", reason).with("field", "to"));
            }
            ("keep", None) => Action::Keep,
            ("never", None) => Action::Never,
            ("keep" | "never", Some(_)) => {
                let reason = format!("{} moves nothing", raw.action);
                return Err(Error::invalid("read a rule", reason).with("field", "to"));
            }
            _ => {
                let reason = "place, move, keep or never is expected";
                return Err(Error::invalid("read a rule", reason).with("field", "action"));
            }
        };
        let bounds = Bounds {
            on,
            bytes: read_range(["size_min", "size_max"], [&raw.size_min, &raw.size_max], |text| {
                units::parse_bytes(text)
            })?,
            age_ns: read_range(
                ["age_min", "age_max"],
                [&raw.age_min, &raw.age_max],
                read_duration_ns,
            )?,
            idle_ns: read_range(
                ["idle_min", "idle_max"],
                [&raw.idle_min, &raw.idle_max],
                read_duration_ns,
            )?,
            heat: raw.heat_min.unwrap_or(0.0)..raw.heat_max.unwrap_or(f64::INFINITY),
        };
        if bounds.heat.is_empty() || raw.heat_min.is_some_and(|heat| heat < 0.0) {
            let reason = "it has to be from 0, and below heat_max";
            return Err(Error::invalid("read a rule", reason).with("field", "heat_min"));
        }
        if matches!(action, Action::Place(_)) && !bounds.is_for_new() {
            let reason = "of a new object only the key and perhaps the size are known";
            return Err(Error::invalid("read a rule", reason).with("field", "action"));
        }
        if !raw.weight.is_finite() {
            return Err(
                Error::invalid("read a rule", "a number is expected").with("field", "weight")
            );
        }
        Ok(Self { name: name.into(), globs, bounds, action, weight: raw.weight })
    }

    fn matches_key(&self, key: &Key) -> bool {
        self.globs.is_empty() || self.globs.iter().any(|glob| glob.is_match(key.as_str()))
    }
}

/// Reads a range from its two ends, either of which may be open.
fn read_range(
    fields: [&'static str; 2],
    ends: [&Option<String>; 2],
    read: impl Fn(&str) -> Result<u64>,
) -> Result<Range<u64>> {
    let end = |index: usize, open: u64| match ends[index] {
        None => Ok(open),
        Some(text) => read(text).map_err(|error| error.with("field", fields[index])),
    };
    let range = end(0, 0)?..end(1, u64::MAX)?;
    if range.is_empty() {
        let reason = format!("it has to be below {}", fields[1]);
        return Err(Error::invalid("read a rule", reason).with("field", fields[0]));
    }
    Ok(range)
}

impl Bounds {
    fn is_for_new(&self) -> bool {
        let is_any_heat = self.heat == (0.0..f64::INFINITY);
        self.on.is_none() && self.age_ns == ALL_NS && self.idle_ns == ALL_NS && is_any_heat
    }

    /// Whether a segment is within, and when time alone may change that.
    fn judge(
        &self,
        facts: &Facts,
        segment: &SegmentView,
        now_ns: i64,
        half_life_ns: u64,
    ) -> (bool, i64) {
        let is_there = self.on.is_none_or(|on| on == segment.tier);
        if !is_there || !self.bytes.contains(&segment.size_bytes) {
            return (false, NEVER_NS);
        }
        let (is_age, age_ns) = since(&self.age_ns, facts.created_ns, now_ns);
        let (is_idle, idle_ns) = since(&self.idle_ns, facts.used_ns, now_ns);
        let (is_warm, warm_ns) = self.judge_heat(&facts.heat, now_ns, half_life_ns);
        (is_age && is_idle && is_warm, age_ns.min(idle_ns).min(warm_ns))
    }

    fn judge_heat(&self, heat: &Heat, now_ns: i64, half_life_ns: u64) -> (bool, i64) {
        let now = heat.now(now_ns.max(0) as u64, half_life_ns);
        // Heat only falls by itself: the next limit below is where something changes.
        let limits = [self.heat.end, self.heat.start];
        let next = limits.into_iter().find(|limit| *limit > 0.0 && now >= *limit);
        let at_ns = next.map_or(NEVER_NS, |limit| {
            let halvings = (heat.at / limit).log2().max(0.0);
            let after_ns = (halvings * half_life_ns as f64) as i64;
            // Never now, or rounding would make it due for ever.
            (heat.at_ns as i64).saturating_add(after_ns).max(now_ns.saturating_add(SECOND_NS))
        });
        (self.heat.contains(&now), at_ns)
    }
}

const SECOND_NS: i64 = 1_000_000_000;

/// Whether the time since a moment is within a range, and when that changes.
fn since(range: &Range<u64>, from_ns: i64, now_ns: i64) -> (bool, i64) {
    let passed_ns = now_ns.saturating_sub(from_ns).max(0) as u64;
    let at = |ns: u64| i64::try_from(ns).map_or(NEVER_NS, |ns| from_ns.saturating_add(ns));
    match range.contains(&passed_ns) {
        true => (true, at(range.end)),
        false if passed_ns < range.start => (false, at(range.start)),
        false => (false, NEVER_NS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::segment;

    fn book(text: &str) -> Result<Book> {
        Book::read(text, &["t0".into(), "t1".into()])
    }

    fn judge(book: &Book, facts: &Facts, now_s: i64) -> (Option<usize>, i64) {
        let segment = segment("n/a.log", 1000, TierIndex(0));
        let mask = book.matching(&segment.key);
        let (rule, change_ns) =
            book.judge(mask, facts, &segment, now_s * SECOND_NS, 10_000_000_000);
        (rule, if change_ns == NEVER_NS { -1 } else { change_ns / SECOND_NS })
    }

    #[test]
    fn the_first_rule_that_matches_counts_and_says_when_that_may_change() {
        let book = book(
            r#"
            [[rule]]
            glob = ["*.log", "*.txt"]
            idle_min = "100s"
            action = "move"
            to = "t1"
            [[rule]]
            age_max = "50s"
            action = "keep"
            [[rule]]
            glob = "*.h5"
            action = "never"
            "#,
        );
        let book = book.expect("legal");
        let facts = Facts { created_ns: -20 * SECOND_NS, used_ns: 0, heat: Heat::default() };
        assert_eq!(judge(&book, &facts, 10), (Some(1), 30));
        assert_eq!(judge(&book, &facts, 30), (None, 100));
        assert_eq!(judge(&book, &facts, 100), (Some(0), -1));
    }

    #[test]
    fn heat_changes_when_it_has_fallen_far_enough() {
        let text = "[[rule]]\nheat_min = 0.5\nheat_max = 2.0\naction = \"keep\"";
        let book = book(text).expect("legal");
        let facts = Facts { heat: Heat { at: 4.0, at_ns: 0 }, ..Facts::default() };
        // Half-lives of 10 s.
        assert_eq!(judge(&book, &facts, 1), (None, 10));
        assert_eq!(judge(&book, &facts, 11), (Some(0), 30));
        assert_eq!(judge(&book, &facts, 31), (None, -1));
    }

    #[test]
    fn new_objects_go_by_key_and_by_size_where_it_is_known() {
        let text = r#"
            [[rule]]
            size_min = "1MB"
            action = "place"
            to = "t1"
            [[rule]]
            glob = "logs/*"
            action = "place"
            to = "t0"
        "#;
        let book = book(text).expect("legal");
        let key = |text| Key::parse(text).expect("legal");
        assert_eq!(book.place(&key("logs/a"), Some(2_000_000)), Some(TierIndex(1)));
        assert_eq!(book.place(&key("logs/a"), None), Some(TierIndex(0)));
        assert_eq!(book.place(&key("n/a"), Some(10)), None);
    }

    #[test]
    fn an_error_names_the_rule_and_the_field() {
        let many = "[[rule]]\naction = \"keep\"\n".repeat(RULES_MAX + 1);
        for (text, expected) in [
            ("nonsense", vec!["[[rule]]"]),
            ("[[rules]]\n", vec!["rules"]),
            (many.as_str(), vec!["at most 64"]),
            ("[[rule]]\nname = \"old\"\n", vec!["\"old\"", "action"]),
            ("[[rule]]\naction = \"keep\"\ngolb = \"*\"", vec!["golb", "rule=1"]),
            ("[[rule]]\naction = \"drop\"", vec!["field=action", "place, move"]),
            ("[[rule]]\naction = \"move\"", vec!["field=to", "needs a tier"]),
            ("[[rule]]\naction = \"keep\"\nto = \"t0\"", vec!["field=to", "moves nothing"]),
            ("[[rule]]\naction = \"move\"\nto = \"tape\"", vec!["field=to", "t0, t1"]),
            ("[[rule]]\naction = \"keep\"\nage_min = \"5\"", vec!["field=age_min", "80us"]),
            ("[[rule]]\naction = \"keep\"\nsize_max = \"0B\"", vec!["field=size_min", "size_max"]),
            ("[[rule]]\naction = \"keep\"\nheat_min = -1", vec!["field=heat_min"]),
            ("[[rule]]\naction = \"keep\"\nglob = []", vec!["field=glob"]),
            ("[[rule]]\naction = \"keep\"\nowner = \"me\"", vec!["owner"]),
            ("[[rule]]\naction = \"place\"\nto = \"t0\"\nidle_min = \"1d\"", vec!["new object"]),
        ] {
            let error = book(text).expect_err(text).to_string();
            assert!(expected.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
