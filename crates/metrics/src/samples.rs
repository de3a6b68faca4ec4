// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sources say at a scrape, and its text.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use terrace_core::LatencyReport;

use crate::families::{FAMILIES, Family, Kind};

/// Something that has figures.
pub trait Source: Send + Sync {
    /// Adds the figures as they are now. Takes no lock that an operation on data waits for.
    fn collect(&self, samples: &mut Samples);
}

/// The samples of a scrape.
#[derive(Debug, Default)]
pub struct Samples(BTreeMap<&'static str, Vec<Sample>>);

#[derive(Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Count(u64),
    Number(f64),
    Latencies(Box<LatencyReport>),
    Info,
}

const NS_S: f64 = 1e-9;

impl Samples {
    /// Adds what a source says.
    pub fn of(sources: &[Box<dyn Source>]) -> Self {
        let mut samples = Self::default();
        sources.iter().for_each(|source| source.collect(&mut samples));
        samples
    }

    /// Adds a whole number.
    pub fn count(&mut self, name: &'static str, labels: &[&str], value: u64) {
        self.add(name, labels, Value::Count(value));
    }

    /// Adds a number.
    pub fn number(&mut self, name: &'static str, labels: &[&str], value: f64) {
        self.add(name, labels, Value::Number(value));
    }

    /// Adds a time as seconds.
    pub fn time(&mut self, name: &'static str, labels: &[&str], value_ns: u64) {
        self.number(name, labels, value_ns as f64 * NS_S);
    }

    /// Adds 1 or 0.
    pub fn flag(&mut self, name: &'static str, labels: &[&str], value: bool) {
        self.count(name, labels, value.into());
    }

    /// Adds a histogram.
    pub fn latencies(&mut self, name: &'static str, labels: &[&str], value: &LatencyReport) {
        self.add(name, labels, Value::Latencies(Box::new(*value)));
    }

    /// Adds labels alone.
    pub fn info(&mut self, name: &'static str, labels: &[&str]) {
        self.add(name, labels, Value::Info);
    }

    /// # Panics
    ///
    /// Where the family is not in [`FAMILIES`] with as many labels: that is the list that people rely on.
    fn add(&mut self, name: &'static str, labels: &[&str], value: Value) {
        let family = FAMILIES.iter().find(|family| family.name == name);
        let family = family.unwrap_or_else(|| panic!("{name} is in FAMILIES"));
        assert_eq!(family.labels.len(), labels.len(), "labels of {name}");
        let labels = family.labels.iter().copied().zip(labels.iter().map(ToString::to_string));
        let labels = labels.collect();
        self.0.entry(name).or_default().push(Sample { labels, value });
    }

    /// The text of OpenMetrics.
    pub fn to_openmetrics(self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.into_registry()).expect("a string takes everything");
        out
    }

    fn into_registry(self) -> Registry {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        registry
    }
}

/// The older text format of Prometheus, which node_exporter reads from `*.prom`.
pub fn textfile(samples: Samples) -> String {
    let mut out = String::new();
    prometheus_text::encode(&mut out, &samples.into_registry()).expect("a string takes everything");
    out
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES {
            let Some(samples) = self.0.get(family.name) else { continue };
            let unit = family.unit.map(|unit| Unit::Other(unit.into()));
            let name = match family.unit {
                Some(unit) => family.name.trim_end_matches(unit).trim_end_matches('_'),
                None => family.name,
            };
            let kind = metric_type(family);
            let mut encoder =
                encoder.encode_descriptor(name, &help(family), unit.as_ref(), kind)?;
            for Sample { labels, value } in samples {
                if let Value::Info = value {
                    encoder.encode_info(labels)?;
                    continue;
                }
                let mut encoder = encoder.encode_family(labels)?;
                match (value, family.kind) {
                    (Value::Count(value), Kind::Counter) => {
                        encoder.encode_counter::<NoLabelSet, u64, f64>(value, None)?;
                    }
                    (Value::Number(value), Kind::Counter) => {
                        encoder.encode_counter::<NoLabelSet, f64, f64>(value, None)?;
                    }
                    (Value::Count(value), _) => encoder.encode_gauge(value)?,
                    (Value::Number(value), _) => encoder.encode_gauge(value)?,
                    (Value::Latencies(value), _) => {
                        let bounds_ns =
                            LatencyReport::bounds_ns().map(|bound_ns| bound_ns as f64 * NS_S);
                        let buckets: Vec<_> =
                            bounds_ns.chain([f64::INFINITY]).zip(value.counts).collect();
                        let sum_s = value.sum_ns as f64 * NS_S;
                        let count = value.count();
                        encoder.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
                    }
                    (Value::Info, _) => unreachable!("it was written"),
                }
            }
        }
        Ok(())
    }
}

fn metric_type(family: &Family) -> MetricType {
    match family.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
        Kind::Info => MetricType::Info,
    }
}

fn help(family: &Family) -> String {
    format!("{}.", family.help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for family in FAMILIES {
            let name = family.name;
            let is_legal = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            assert!(name.chars().all(is_legal), "{name}");
            assert!(name.starts_with("terrace_") || name.starts_with("process_"), "{name}");
            assert!(!name.ends_with("_total") && !name.ends_with("_info"), "{name}");
            if let Some(unit) = family.unit {
                assert!(name.ends_with(&format!("_{unit}")), "{name}");
            }
            let others = FAMILIES.iter().filter(|other| other.name == name);
            assert_eq!(others.count(), 1, "{name} is there twice");
        }
    }

    #[test]
    fn samples_become_openmetrics() {
        let mut samples = Samples::default();
        samples.flag("terrace_tier_online", &["a \"b\" \\ \n"], true);
        samples.time("terrace_tier_migration_device_seconds", &["t"], 1_500_000_000);
        samples.count("terrace_migrations", &["a", "b", "move", "done"], 3);
        samples.info("terrace_build", &["0.1.0", "serve"]);
        let latencies = terrace_core::Latencies::default();
        latencies.add(512);
        latencies.add(1 << 40);
        samples.latencies("terrace_tier_operation_seconds", &["t", "read"], &latencies.report());
        let text = samples.to_openmetrics();
        for line in [
            "# TYPE terrace_build info",
            "terrace_build_info{version=\"0.1.0\",verb=\"serve\"} 1",
            "terrace_tier_online{tier=\"a \\\"b\\\" \\\\ \\n\"} 1",
            "# UNIT terrace_tier_migration_device_seconds seconds",
            "terrace_tier_migration_device_seconds_total{tier=\"t\"} 1.5",
            "# TYPE terrace_migrations counter",
            "terrace_migrations_total{from=\"a\",to=\"b\",action=\"move\",outcome=\"done\"} 3",
            "terrace_tier_operation_seconds_count{tier=\"t\",operation=\"read\"} 2",
            "terrace_tier_operation_seconds_bucket{le=\"5.12e-7\",tier=\"t\",operation=\"read\"} 1",
            "terrace_tier_operation_seconds_bucket{le=\"+Inf\",tier=\"t\",operation=\"read\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
        }
    }
}
