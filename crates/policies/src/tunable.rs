// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which parameters of policies may be searched for better values, and between which bounds.

use std::time::Duration;

use terrace_core::{Parameter, units};

/// A parameter whose value may be searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tunable {
    /// Its name in the configuration.
    pub name: &'static str,
    /// The values that make sense, and how they are spread.
    pub scale: Scale,
}

/// Values that are searched. Of those that span several magnitudes each magnitude counts alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Numbers from the first to the second, spread evenly.
    Even(f64, f64),
    /// Numbers, spread by magnitude.
    Magnitudes(f64, f64),
    /// Whole numbers, spread by magnitude.
    Counts(u32, u32),
    /// Durations, spread by magnitude.
    Durations(Duration, Duration),
    /// Sizes in bytes, spread by magnitude.
    Bytes(u64, u64),
    /// One of these.
    Choice(&'static [&'static str]),
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// All of them, by name: a name means the same in every policy. What says where objects belong, as
/// rules do, is not here, and nothing is that changes what a loss of power leaves.
const TUNABLES: &[Tunable] = &[
    Tunable { name: "high", scale: Scale::Even(0.5, 0.97) },
    Tunable { name: "low", scale: Scale::Even(0.2, 0.95) },
    Tunable { name: "idle", scale: Scale::Durations(Duration::from_millis(10), MINUTE) },
    Tunable { name: "horizon", scale: Scale::Durations(SECOND, HOUR) },
    Tunable { name: "gate", scale: Scale::Choice(&["on", "off"]) },
    Tunable { name: "factor", scale: Scale::Magnitudes(0.5, 8.0) },
    Tunable { name: "min_residency", scale: Scale::Durations(Duration::from_millis(100), MINUTE) },
    Tunable { name: "busy", scale: Scale::Even(0.3, 1.0) },
    Tunable { name: "max_bytes", scale: Scale::Bytes(16 << 20, 16 << 30) },
    Tunable { name: "together", scale: Scale::Durations(MILLISECOND, MINUTE) },
    Tunable { name: "timeout", scale: Scale::Durations(Duration::from_millis(10), HOUR) },
    Tunable { name: "half_life", scale: Scale::Durations(SECOND, HOUR) },
    Tunable { name: "min_heat", scale: Scale::Magnitudes(0.1, 16.0) },
    Tunable { name: "read_weight", scale: Scale::Magnitudes(0.05, 4.0) },
    Tunable { name: "write_weight", scale: Scale::Magnitudes(0.05, 4.0) },
    Tunable { name: "streams", scale: Scale::Counts(1, 16) },
    Tunable { name: "share", scale: Scale::Even(0.05, 1.0) },
];

/// Those of a policy that has these parameters.
pub fn tunables(parameters: &[Parameter]) -> Vec<Tunable> {
    let has = |tunable: &&Tunable| parameters.iter().any(|one| one.name == tunable.name);
    TUNABLES.iter().filter(has).copied().collect()
}

impl Tunable {
    /// The value at a place from 0, the least, to 1, the most; in three digits, as the policy reads
    /// it.
    pub fn at(&self, place: f64) -> String {
        let place = place.clamp(0.0, 1.0);
        let even = |from: f64, to: f64| from + (to - from) * place;
        let magnitude = |from: f64, to: f64| from * (to / from).powf(place);
        match self.scale {
            Scale::Even(from, to) => digits(even(from, to)).to_string(),
            Scale::Magnitudes(from, to) => digits(magnitude(from, to)).to_string(),
            Scale::Counts(from, to) => {
                magnitude(f64::from(from), f64::from(to)).round().to_string()
            }
            Scale::Durations(from, to) => {
                let seconds = digits(magnitude(from.as_secs_f64(), to.as_secs_f64()));
                units::format_duration(Duration::from_micros((seconds * 1e6).round() as u64))
            }
            Scale::Bytes(from, to) => {
                let mebibytes = digits(magnitude(from as f64, to as f64) / f64::from(1 << 20));
                units::format_bytes((mebibytes.round() as u64) << 20)
            }
            Scale::Choice(words) => {
                let index = (place * words.len() as f64) as usize;
                words[index.min(words.len() - 1)].into()
            }
        }
    }
}

/// A number above zero in three significant digits.
fn digits(value: f64) -> f64 {
    let unit = 10_f64.powi(2 - value.log10().floor() as i32);
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use terrace_core::View;

    use super::*;
    use crate::harness::tiers;
    use crate::registry::POLICIES;

    #[test]
    fn every_policy_takes_every_value_of_its_parameters() {
        let view = View::new(tiers(&[1000, 1000, 1000]), 0);
        let mut seen = Vec::new();
        for entry in POLICIES {
            let parameters = (entry.create)(&view, &[]).expect(entry.name).parameters();
            for tunable in tunables(&parameters) {
                seen.push(tunable.name);
                for step in 0..=20 {
                    let text = tunable.at(f64::from(step) / 20.0);
                    // The other end of what contradicts it: `low` is never above `high`.
                    let mut given = vec![(tunable.name.to_string(), text.clone())];
                    match tunable.name {
                        "low" => given.insert(0, ("high".into(), "1".into())),
                        "high" => given.insert(0, ("low".into(), "0".into())),
                        _ => {}
                    }
                    let made = (entry.create)(&view, &given);
                    assert!(made.is_ok(), "{} {} {text}", entry.name, tunable.name);
                }
            }
        }
        for tunable in TUNABLES {
            assert!(seen.contains(&tunable.name), "no policy has {}", tunable.name);
        }
    }

    #[test]
    fn places_are_spread_as_the_scale_says() {
        let at = |scale, place| Tunable { name: "x", scale }.at(place);
        assert_eq!(at(Scale::Even(0.5, 0.97), 0.5), "0.735");
        assert_eq!(at(Scale::Magnitudes(0.5, 8.0), 0.5), "2");
        assert_eq!(at(Scale::Counts(1, 16), 0.25), "2");
        assert_eq!(at(Scale::Durations(MILLISECOND, SECOND), 1.0 / 3.0), "10ms");
        assert_eq!(at(Scale::Bytes(1 << 20, 1 << 30), 0.5), "32MiB");
        assert_eq!(at(Scale::Choice(&["on", "off"]), 0.49), "on");
        assert_eq!(at(Scale::Choice(&["on", "off"]), 1.0), "off");
        assert_eq!(at(Scale::Durations(MILLISECOND, HOUR), -1.0), "1ms");
    }
}
