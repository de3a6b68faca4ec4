// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scrapes: fetched by a plain socket, and held against the rules of OpenMetrics 1.0.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any machine takes for a scrape.
const SCRAPE_TIME_MAX: Duration = Duration::from_secs(60);

/// The description of a metric family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Its type.
    pub kind: String,
    /// Its unit.
    pub unit: Option<String>,
    /// What it says.
    pub help: String,
}

/// Labels by name.
type Labels = BTreeMap<String, String>;

/// A valid text of OpenMetrics.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// The metric families by name.
    pub families: BTreeMap<String, Described>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    /// Scrapes `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// What went wrong, as a sentence: with the connection, or with the text.
    pub fn of(address: &str) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("no connection: {error}");
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_read_timeout(Some(SCRAPE_TIME_MAX)).map_err(failed)?;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|_| "no UTF-8".to_string())?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or("no head")?;
        let mut lines = head.lines();
        let status = lines.next().unwrap_or_default();
        if status != "HTTP/1.1 200 OK" {
            return Err(format!("the status is {status:?}"));
        }
        let length = format!("Content-Length: {}", body.len());
        match lines.any(|line| line == length) {
            true => Self::parse(body),
            false => Err(format!("the body has another length than {body:?} of {head:?}")),
        }
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// The rule that it breaks, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut scrape = Self::default();
        let body = text.strip_suffix("# EOF\n").ok_or("the end is missing")?;
        let mut current = String::new();
        for line in body.lines() {
            let wrong = |rule: &str| format!("{rule}: {line:?}");
            if let Some(rest) = line.strip_prefix("# ") {
                let (word, rest) =
                    rest.split_once(' ').ok_or_else(|| wrong("a word is missing"))?;
                let (name, value) =
                    rest.split_once(' ').ok_or_else(|| wrong("a value is missing"))?;
                if name != current {
                    if !is_name(name) || scrape.families.contains_key(name) {
                        return Err(wrong("a family begins once, with a legal name"));
                    }
                    current = name.into();
                }
                let family = scrape.families.entry(name.into()).or_default();
                let is_first = match word {
                    "HELP" => std::mem::replace(&mut family.help, value.into()).is_empty(),
                    "TYPE" => std::mem::replace(&mut family.kind, value.into()).is_empty(),
                    "UNIT" => family.unit.replace(value.into()).is_none(),
                    _ => return Err(wrong("HELP, TYPE or UNIT is expected")),
                };
                let has_samples = scrape.samples.keys().any(|(sample, _)| {
                    family_of(sample, &scrape.families).is_some_and(|of| of == name)
                });
                if !is_first || has_samples {
                    return Err(wrong("a family is described once, before its samples"));
                }
                continue;
            }
            let (name, labels, value) = sample(line).ok_or_else(|| wrong("no sample"))?;
            if family_of(&name, &scrape.families) != Some(current.as_str()) {
                return Err(wrong("a sample stands with its family"));
            }
            if scrape.samples.insert((name, labels), value).is_some() {
                return Err(wrong("a sample is there once"));
            }
        }
        scrape.check()?;
        Ok(scrape)
    }

    fn check(&self) -> Result<(), String> {
        for (name, family) in &self.families {
            if !matches!(&*family.kind, "counter" | "gauge" | "histogram" | "info") {
                return Err(format!("{name} has the type {:?}", family.kind));
            }
            if family.help.is_empty() {
                return Err(format!("{name} has no help"));
            }
            if let Some(unit) = &family.unit
                && !name.ends_with(&format!("_{unit}"))
            {
                return Err(format!("{name} does not end in its unit {unit}"));
            }
            if !self
                .samples
                .keys()
                .any(|(sample, _)| family_of(sample, &self.families) == Some(name))
            {
                return Err(format!("{name} has no sample"));
            }
        }
        for ((name, labels), value) in &self.samples {
            let family = family_of(name, &self.families).unwrap_or_default();
            let kind = self.families[family].kind.as_str();
            let is_legal = match kind {
                "counter" | "histogram" => value.is_finite() && *value >= 0.0,
                "info" => *value == 1.0,
                _ => !value.is_nan(),
            };
            if !is_legal {
                return Err(format!("{name}{labels:?} is {value}"));
            }
        }
        let histograms = self.families.iter().filter(|(_, family)| family.kind == "histogram");
        histograms.map(|(name, _)| name).try_for_each(|name| self.check_histogram(name))
    }

    /// Buckets count what is at most their bound, the last of them all.
    fn check_histogram(&self, name: &str) -> Result<(), String> {
        let bucket = format!("{name}_bucket");
        let mut of_labels: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for ((sample, labels), value) in &self.samples {
            if *sample == bucket {
                let mut labels = labels.clone();
                let bound = labels.remove("le").ok_or_else(|| format!("{bucket} without le"))?;
                let bound = number(&bound).ok_or_else(|| format!("{bucket} with le={bound}"))?;
                of_labels.entry(labels).or_default().push((bound, *value));
            }
        }
        for (labels, mut buckets) in of_labels {
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            let is_sorted = buckets.is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1);
            let last = buckets.last().copied();
            let part =
                |part: &str| self.samples.get(&(format!("{name}_{part}"), labels.clone())).copied();
            let is_whole = last.map(|last| last.0) == Some(f64::INFINITY)
                && last.map(|last| last.1) == part("count")
                && part("sum").is_some();
            if !is_sorted || !is_whole {
                return Err(format!("{name}{labels:?} is no histogram: {buckets:?}"));
            }
        }
        Ok(())
    }

    /// A sample with just these labels.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        self.samples.get(&(name.to_string(), labels.collect())).copied()
    }

    /// The same, where it has to be there.
    ///
    /// # Panics
    ///
    /// Where it is not.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.get(name, labels).unwrap_or_else(|| {
            let others = self.samples.keys().filter(|(other, _)| other == name);
            let others: Vec<_> = others.map(|(_, labels)| labels).collect();
            panic!("there is no {name}{labels:?}, only {others:?}")
        })
    }

    /// The sum of all samples of a name.
    pub fn sum(&self, name: &str) -> f64 {
        let samples = self.samples.iter().filter(|((other, _), _)| other == name);
        samples.map(|(_, value)| value).sum()
    }

    /// The names of the labels that samples of a family have, without those of buckets.
    pub fn labels(&self, family: &str) -> BTreeSet<String> {
        let samples = self.samples.keys();
        let samples = samples.filter(|(name, _)| family_of(name, &self.families) == Some(family));
        samples.flat_map(|(_, labels)| labels.keys().cloned()).filter(|name| name != "le").collect()
    }

    /// How many series there are.
    pub fn series(&self) -> usize {
        self.samples.len()
    }

    /// The names of all samples.
    pub fn names(&self) -> BTreeSet<&str> {
        self.samples.keys().map(|(name, _)| name.as_str()).collect()
    }
}

/// The family of a sample: its name without the suffix of the family's type.
fn family_of<'a>(sample: &str, families: &'a BTreeMap<String, Described>) -> Option<&'a str> {
    let suffixes: [(&str, &[&str]); 4] = [
        ("counter", &["_total"]),
        ("gauge", &[""]),
        ("histogram", &["_bucket", "_count", "_sum"]),
        ("info", &["_info"]),
    ];
    suffixes
        .iter()
        .flat_map(|(kind, suffixes)| suffixes.iter().map(move |one| (kind, one)))
        .find_map(|(kind, suffix)| {
            let (name, family) = families.get_key_value(sample.strip_suffix(suffix)?)?;
            (family.kind == **kind).then_some(name.as_str())
        })
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        _ => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

/// `name{label="value",…} number`.
fn sample(line: &str) -> Option<(String, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let mut labels = Labels::new();
    let rest = match rest.strip_prefix('{') {
        None => rest,
        Some(mut rest) => loop {
            let (label, value) = rest.split_once("=\"")?;
            let (value, behind) = quoted(value)?;
            let is_new = labels.insert(label.into(), value).is_none();
            if !is_name(label) || !is_new {
                return None;
            }
            match behind.strip_prefix(',') {
                Some(more) => rest = more,
                None => break behind.strip_prefix('}')?,
            }
        },
    };
    let value = number(rest.strip_prefix(' ')?)?;
    is_name(name).then(|| (name.into(), labels, value))
}

/// What stands before the closing quotation mark, and what behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                escaped @ ('"' | '\\') => escaped,
                _ => return None,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTOGRAM: &str = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\n\
        # UNIT a_seconds seconds\na_seconds_sum 3.5\na_seconds_count 3\n\
        a_seconds_bucket{le=\"1.0\"} 1\na_seconds_bucket{le=\"+Inf\"} 3\n# EOF\n";

    #[test]
    fn a_valid_text_is_read() {
        let text =
            "# HELP a Events.\n# TYPE a counter\na_total{x=\"\\\"\\\\\\n,}\",y=\"\"} 3\n# EOF\n";
        let scrape = Scrape::parse(text).expect("valid");
        assert_eq!(scrape.get("a_total", &[("x", "\"\\\n,}"), ("y", "")]), Some(3.0));
        assert_eq!(scrape.labels("a").into_iter().collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(Scrape::parse(HISTOGRAM).expect("valid").sum("a_seconds_count"), 3.0);
    }

    #[test]
    fn every_broken_rule_is_found() {
        let family = "# HELP a A.\n# TYPE a gauge\n";
        for text in [
            "".to_string(),
            format!("{family}a 1\n"),
            format!("{family}# EOF\n"),
            format!("{family}a 1\na 1\n# EOF\n"),
            format!("{family}a 1\n{family}a{{x=\"\"}} 1\n# EOF\n"),
            format!("{family}b 1\n# EOF\n"),
            format!("{family}a_total 1\n# EOF\n"),
            format!("{family}a NaN\n# EOF\n"),
            format!("{family}a{{x=\"1\",x=\"2\"}} 1\n# EOF\n"),
            format!("{family}a{{x=\"\\q\"}} 1\n# EOF\n"),
            format!("{family}a{{x=\"}} 1\n# EOF\n"),
            format!("{family}a 1 \n# EOF\n"),
            format!("{family}# UNIT a seconds\na 1\n# EOF\n"),
            format!("{family}\na 1\n# EOF\n"),
            "# TYPE a gauge\na 1\n# EOF\n".to_string(),
            "# HELP a A.\n# TYPE a counter\na_total -1\n# EOF\n".to_string(),
            "# HELP a A.\n# TYPE a counter\na 1\n# EOF\n".to_string(),
            "# HELP a A.\n# TYPE a info\na_info 2\n# EOF\n".to_string(),
            HISTOGRAM.replace("le=\"1.0\"} 1", "le=\"1.0\"} 4"),
            HISTOGRAM.replace("count 3", "count 4"),
            HISTOGRAM.replace("a_seconds_sum 3.5\n", ""),
            HISTOGRAM.replace("+Inf", "2.0"),
        ] {
            assert!(Scrape::parse(&text).is_err(), "{text}");
        }
    }
}
