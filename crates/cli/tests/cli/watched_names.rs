// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metrics that rules and dashboards of the packages are about.

use std::collections::BTreeSet;

/// The names of samples in rules and dashboards, without those that rules record: these have a colon.
pub(crate) fn watched_names() -> BTreeSet<String> {
    let texts = [
        include_str!("../../../../packaging/monitoring/prometheus/terrace-recording.yml"),
        include_str!("../../../../packaging/monitoring/prometheus/terrace-alerts.yml"),
        include_str!("../../../../packaging/monitoring/grafana/terrace-overview.json"),
        include_str!("../../../../packaging/monitoring/grafana/terrace-mounts-tiers.json"),
    ];
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    let words = texts.iter().flat_map(|text| text.split(|letter| !is_of_name(letter)));
    let names = words.filter(|word| word.starts_with("terrace_") || word.starts_with("process_"));
    names.filter(|word| !word.contains(':')).map(Into::into).collect()
}
