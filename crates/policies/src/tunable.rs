// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which parameters of policies may be searched for better values, and between which bounds.

use std::borrow::Cow;
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};
use std::time::Duration;

use terrace_core::{Bounds, Error, Parameter, Result, units};

/// The most by which a value may change in one step, on a store that runs.
pub const STEP_FACTOR_MAX: f64 = 2.0;

/// The steps from a value to those around it: all the way and half of it, in magnitude.
const STEPS: [f64; 4] = [1.0 / STEP_FACTOR_MAX, FRAC_1_SQRT_2, SQRT_2, STEP_FACTOR_MAX];

/// By how much a step may be longer: what reading and writing a number costs.
const ROUNDING: f64 = 1e-9;

/// From this factor between the bounds on, numbers are spread by magnitude by default.
const MAGNITUDES_FROM: f64 = 20.0;

/// A parameter whose value may be searched for.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunable {
    /// Its name in the configuration.
    pub name: Cow<'static, str>,
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
    /// Whole numbers, spread evenly.
    Whole(i64, i64),
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

/// Those that policies do not say themselves, by name: a name means the same in every policy. What
/// says where objects belong, as rules do, is not here, and nothing is that changes what a loss of
/// power leaves.
const TUNABLES: &[Tunable] = &[
    known("high", Scale::Even(0.5, 0.97)),
    known("low", Scale::Even(0.2, 0.95)),
    known("idle", Scale::Durations(Duration::from_millis(10), MINUTE)),
    known("horizon", Scale::Durations(SECOND, HOUR)),
    known("gate", Scale::Choice(&["on", "off"])),
    known("factor", Scale::Magnitudes(0.5, 8.0)),
    known("min_residency", Scale::Durations(Duration::from_millis(100), MINUTE)),
    known("busy", Scale::Even(0.3, 1.0)),
    known("max_bytes", Scale::Bytes(16 << 20, 16 << 30)),
    known("together", Scale::Durations(MILLISECOND, MINUTE)),
    known("timeout", Scale::Durations(Duration::from_millis(10), HOUR)),
    known("half_life", Scale::Durations(SECOND, HOUR)),
    known("min_heat", Scale::Magnitudes(0.1, 16.0)),
    known("read_weight", Scale::Magnitudes(0.05, 4.0)),
    known("write_weight", Scale::Magnitudes(0.05, 4.0)),
    known("streams", Scale::Counts(1, 16)),
    known("share", Scale::Even(0.05, 1.0)),
];

const fn known(name: &'static str, scale: Scale) -> Tunable {
    Tunable { name: Cow::Borrowed(name), scale }
}

/// Those of a policy that has these parameters.
pub fn tunables(parameters: &[Parameter]) -> Vec<Tunable> {
    let is_bound = |one: &&Parameter| one.bounds.is_some();
    let is_known = |one: &Parameter, tunable: &Tunable| {
        one.name == tunable.name && one.bounds.is_none() && tunable.is_of_form(&one.value)
    };
    let has = |tunable: &&Tunable| parameters.iter().any(|one| is_known(one, tunable));
    let known = TUNABLES.iter().filter(has).cloned();
    known.chain(parameters.iter().filter(is_bound).filter_map(Tunable::of)).collect()
}

/// The parameter with this name, if it may be searched in every policy.
pub fn tunable(name: &str) -> Option<Tunable> {
    TUNABLES.iter().find(|tunable| tunable.name == name).cloned()
}

impl Tunable {
    /// A parameter as its policy says; `None` where that leaves no choice.
    fn of(parameter: &Parameter) -> Option<Self> {
        let scale = match parameter.bounds? {
            Bounds::Numbers(least, most) => Scale::of_numbers(least, most),
            Bounds::Whole(least, most) => Scale::of_whole(least, most),
            Bounds::Switch => Some(Scale::Choice(&["on", "off"])),
        };
        Some(Self { name: parameter.name.clone().into(), scale: scale? })
    }

    /// A parameter with given values: `0.1..0.9`, `1..64`, `10ms..1h`, `1MiB..1GiB`. Numbers are
    /// whole where the policy declares it, or where both are and its own is.
    ///
    /// # Errors
    ///
    /// `Invalid` with what would be right.
    pub fn between(parameter: &Parameter, range: &str) -> Result<Self> {
        let wrong = |reason: &str| {
            Error::invalid("search a parameter", reason)
                .with("parameter", &parameter.name)
                .with("values", range)
        };
        let Some((from, to)) = range.split_once("..") else {
            return Err(wrong("expected the least and the most, as in 0.1..0.9 or 10ms..1h"));
        };
        let scale = match parameter.bounds {
            None => Scale::between(from, to, &parameter.value),
            Some(bounds) => Scale::within(from, to, bounds),
        };
        let expected = match parameter.bounds {
            None => "expected numbers, durations or sizes, the lesser one first".into(),
            Some(Bounds::Switch) => "it is a switch".into(),
            Some(Bounds::Numbers(least, most)) => {
                format!("expected numbers from {least} to {most}, the lesser one first")
            }
            Some(Bounds::Whole(least, most)) => {
                format!("expected whole numbers from {least} to {most}, the lesser one first")
            }
        };
        let scale = scale.ok_or_else(|| wrong(&expected))?;
        Ok(Self { name: parameter.name.clone().into(), scale })
    }

    /// Whether a policy that has this value would take another one. Of numbers it may be a word, as
    /// that for the watermarks of tiers.
    fn is_of_form(&self, value: &str) -> bool {
        let is_number = value.parse::<f64>().is_ok();
        match self.scale {
            Scale::Durations(..) | Scale::Bytes(..) => !is_number,
            Scale::Choice(words) => words.contains(&value),
            _ => true,
        }
    }

    /// The value at a place from 0, the least, to 1, the most; in three digits, as the policy reads
    /// it.
    pub fn at(&self, place: f64) -> String {
        let place = place.clamp(0.0, 1.0);
        let (from, to) = self.bounds();
        let number = match self.scale {
            Scale::Even(..) | Scale::Whole(..) | Scale::Choice(_) => from + (to - from) * place,
            _ => from * (to / from).powf(place),
        };
        self.show(self.rounded(number).clamp(from, to))
    }

    /// The values around one that a policy has: for numbers those up to a factor of
    /// [`STEP_FACTOR_MAX`] away and within the bounds, or nearer to them; for choices the next ones.
    /// None around a word where a number is expected, or around zero.
    pub fn around(&self, value: &str) -> Vec<String> {
        if let Scale::Choice(words) = self.scale {
            let next = words.iter().filter(|word| self.is_near(value, word));
            return next.map(|word| (*word).into()).collect();
        }
        let Some(now) = self.number(value) else { return Vec::new() };
        let (least, most) = self.bounds();
        let mut found: Vec<String> = Vec::new();
        for step in STEPS {
            let wanted = (now * step).clamp(least.min(now), most.max(now));
            // Three digits may be further away than what they stand for.
            let nearer = wanted + (now - wanted) * 0.01;
            let texts = [wanted, nearer].map(|number| self.text(number));
            let text = texts.into_iter().find(|text| self.is_near(value, text));
            found.extend(text.filter(|text| !found.contains(text)));
        }
        found
    }

    /// Whether `to` is another value than `from`, and no more than one step away: a factor of
    /// [`STEP_FACTOR_MAX`], or the choice beside it.
    pub fn is_near(&self, from: &str, to: &str) -> bool {
        if let Scale::Choice(words) = self.scale {
            let place = |value: &str| words.iter().position(|word| *word == value);
            return place(from).zip(place(to)).is_some_and(|(one, other)| one.abs_diff(other) == 1);
        }
        let Some((from, to)) = self.number(from).zip(self.number(to)) else { return false };
        let factor = (to / from).max(from / to);
        factor > 1.0 + ROUNDING && factor <= STEP_FACTOR_MAX * (1.0 + ROUNDING)
    }

    /// The number above zero that a value is: seconds or bytes where it has a unit.
    fn number(&self, value: &str) -> Option<f64> {
        let number = match self.scale {
            Scale::Even(..) | Scale::Magnitudes(..) => value.parse().ok()?,
            Scale::Counts(..) | Scale::Whole(..) => value.parse().ok()?,
            Scale::Durations(..) => units::parse_duration(value).ok()?.as_secs_f64(),
            Scale::Bytes(..) => units::parse_bytes(value).ok()? as f64,
            Scale::Choice(_) => return None,
        };
        (number > 0.0 && number < f64::INFINITY).then_some(number)
    }

    /// The least and the most of its numbers; of choices, how many there are.
    fn bounds(&self) -> (f64, f64) {
        match self.scale {
            Scale::Even(from, to) | Scale::Magnitudes(from, to) => (from, to),
            Scale::Counts(from, to) => (from.into(), to.into()),
            Scale::Whole(from, to) => (from as f64, to as f64),
            Scale::Durations(from, to) => (from.as_secs_f64(), to.as_secs_f64()),
            Scale::Bytes(from, to) => (from as f64, to as f64),
            Scale::Choice(words) => (0.0, words.len() as f64),
        }
    }

    /// A number in three digits, or the choice with it, as the policy reads it.
    fn text(&self, number: f64) -> String {
        self.show(self.rounded(number))
    }

    fn rounded(&self, number: f64) -> f64 {
        match self.scale {
            Scale::Even(..) | Scale::Magnitudes(..) | Scale::Durations(..) => digits(number),
            Scale::Counts(..) | Scale::Whole(..) => number.round(),
            Scale::Choice(_) => number,
            Scale::Bytes(..) => {
                let unit = [1_u32 << 20, 1 << 10]
                    .into_iter()
                    .find(|unit| number >= 16.0 * f64::from(*unit))
                    .unwrap_or(1);
                digits(number / f64::from(unit)).round() * f64::from(unit)
            }
        }
    }

    /// As the policy reads it.
    fn show(&self, number: f64) -> String {
        match self.scale {
            Scale::Even(..) | Scale::Magnitudes(..) => number.to_string(),
            Scale::Counts(..) | Scale::Whole(..) => number.to_string(),
            Scale::Durations(..) => {
                units::format_duration(Duration::from_nanos((number * 1e9).round() as u64))
            }
            Scale::Bytes(..) => units::format_bytes(number as u64),
            Scale::Choice(words) => words[(number as usize).min(words.len() - 1)].into(),
        }
    }
}

impl Scale {
    fn of_numbers(least: f64, most: f64) -> Option<Self> {
        let is_spread = least.is_finite() && most.is_finite() && least < most;
        is_spread.then(|| match least > 0.0 && most / least >= MAGNITUDES_FROM {
            true => Scale::Magnitudes(least, most),
            false => Scale::Even(least, most),
        })
    }

    fn of_whole(least: i64, most: i64) -> Option<Self> {
        let spans = least > 0 && most as f64 / least as f64 >= MAGNITUDES_FROM;
        let counts = u32::try_from(least).ok().zip(u32::try_from(most).ok());
        (least < most).then(|| match counts.filter(|_| spans) {
            Some((least, most)) => Scale::Counts(least, most),
            None => Scale::Whole(least, most),
        })
    }

    /// From two texts, where the policy says what it takes.
    fn within(from: &str, to: &str, bounds: Bounds) -> Option<Self> {
        match bounds {
            Bounds::Numbers(least, most) => {
                let (from, to) = (from.parse::<f64>().ok()?, to.parse::<f64>().ok()?);
                (least <= from && to <= most).then(|| Scale::of_numbers(from, to))?
            }
            Bounds::Whole(least, most) => {
                let (from, to) = (from.parse::<i64>().ok()?, to.parse::<i64>().ok()?);
                (least <= from && to <= most).then(|| Scale::of_whole(from, to))?
            }
            Bounds::Switch => None,
        }
    }

    /// From two texts, and the one that a parameter has.
    fn between(from: &str, to: &str, now: &str) -> Option<Self> {
        if let (Ok(from), Ok(to), Ok(_)) = (from.parse(), to.parse(), now.parse::<i64>()) {
            return Scale::of_whole(from, to);
        }
        if let (Ok(from), Ok(to)) = (from.parse(), to.parse()) {
            return Scale::of_numbers(from, to);
        }
        if let (Ok(from), Ok(to)) = (units::parse_duration(from), units::parse_duration(to)) {
            let is_spread = !from.is_zero() && from < to;
            return is_spread.then_some(Scale::Durations(from, to));
        }
        let (from, to) = (units::parse_bytes(from).ok()?, units::parse_bytes(to).ok()?);
        (from > 0 && from < to).then_some(Scale::Bytes(from, to))
    }
}

/// A number in three significant digits.
fn digits(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let unit = 10_f64.powi(2 - value.abs().log10().floor() as i32);
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
                seen.push(tunable.name.clone());
                for step in 0..=20 {
                    let text = tunable.at(f64::from(step) / 20.0);
                    // The other end of what contradicts it: `low` is never above `high`.
                    let mut given = vec![(tunable.name.to_string(), text.clone())];
                    match &*tunable.name {
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
    fn values_around_one_are_no_further_than_a_factor_of_two_and_policies_take_them() {
        let view = View::new(tiers(&[1000, 1000, 1000]), 0);
        for entry in POLICIES {
            let parameters = (entry.create)(&view, &[]).expect(entry.name).parameters();
            for tunable in tunables(&parameters) {
                let default = parameters.iter().find(|one| one.name == tunable.name);
                let default = default.expect("it has it").value.clone();
                let froms = (0..=20).map(|step| tunable.at(f64::from(step) / 20.0));
                for from in froms.chain([default]) {
                    let around = tunable.around(&from);
                    for to in &around {
                        assert!(tunable.is_near(&from, to), "{} {from} {to}", tunable.name);
                        let mut given = vec![(tunable.name.to_string(), to.clone())];
                        match &*tunable.name {
                            "low" => given.insert(0, ("high".into(), "1".into())),
                            "high" => given.insert(0, ("low".into(), "0".into())),
                            _ => {}
                        }
                        let made = (entry.create)(&view, &given);
                        assert!(made.is_ok(), "{} {} {to}", entry.name, tunable.name);
                    }
                }
            }
        }
    }

    #[test]
    fn values_around_one_stay_within_the_bounds_or_come_nearer_to_them() {
        let around = |name, value: &str| tunable(name).expect("there is one").around(value);
        assert_eq!(around("idle", "1s"), ["500ms", "707ms", "1410ms", "2s"]);
        assert_eq!(around("high", "0.9"), ["0.5", "0.636", "0.97"]);
        assert_eq!(around("streams", "1"), ["2"]);
        assert_eq!(around("max_bytes", "16MiB"), ["23MiB", "32MiB"]);
        assert_eq!(around("gate", "on"), ["off"]);
        assert_eq!(
            around("idle", "1h"),
            ["1800s", "2550s"],
            "beyond the bounds: towards them only"
        );
        for (name, value) in [("high", "tier"), ("idle", "0s"), ("gate", "maybe"), ("busy", "NaN")]
        {
            assert!(around(name, value).is_empty(), "{name} {value}");
        }
        assert!(!tunable("idle").expect("there is one").is_near("1s", "2001ms"));
        assert!(!tunable("idle").expect("there is one").is_near("1s", "1s"));
    }

    #[test]
    fn what_a_loss_of_power_leaves_is_not_searched() {
        let words = ["persist", "sync", "durab", "storage", "atomic", "semantic", "engine"];
        for Tunable { name, .. } in TUNABLES {
            assert!(!words.iter().any(|word| name.contains(word)), "{name}");
        }
    }

    #[test]
    fn what_a_policy_says_of_its_values_goes_before_what_the_name_says() {
        let told = |bounds| Parameter { bounds, ..Parameter::new("high", "0.9", "") };
        let scale = |bounds| tunables(&[told(bounds)]).pop().map(|one| one.scale);
        assert_eq!(scale(None), Some(Scale::Even(0.5, 0.97)));
        for (bounds, expected) in [
            (Bounds::Numbers(0.0, 1.0), Some(Scale::Even(0.0, 1.0))),
            (Bounds::Numbers(0.1, 10.0), Some(Scale::Magnitudes(0.1, 10.0))),
            (Bounds::Numbers(-1.0, 100.0), Some(Scale::Even(-1.0, 100.0))),
            (Bounds::Numbers(1.0, 1.0), None),
            (Bounds::Numbers(0.0, f64::INFINITY), None),
            (Bounds::Numbers(f64::NAN, 1.0), None),
            (Bounds::Whole(0, 100), Some(Scale::Whole(0, 100))),
            (Bounds::Whole(1, 100), Some(Scale::Counts(1, 100))),
            (Bounds::Whole(1, 1 << 40), Some(Scale::Whole(1, 1 << 40))),
            (Bounds::Whole(3, 2), None),
            (Bounds::Switch, Some(Scale::Choice(&["on", "off"]))),
        ] {
            assert_eq!(scale(Some(bounds)), expected, "{bounds:?}");
        }
    }

    #[test]
    fn values_of_another_form_than_the_name_says_are_not_known() {
        let known =
            |name: &str, value: &str| !tunables(&[Parameter::new(name, value, "")]).is_empty();
        for (name, value, is_known) in [
            ("half_life", "60s", true),
            ("half_life", "60.0", false),
            ("max_bytes", "1GiB", true),
            ("max_bytes", "1e9", false),
            ("gate", "on", true),
            ("gate", "0.5", false),
            ("high", "tier", true),
            ("high", "0.9", true),
        ] {
            assert_eq!(known(name, value), is_known, "{name}={value}");
        }
    }

    #[test]
    fn values_that_somebody_says_keep_to_what_the_policy_takes() {
        let between = |bounds, range: &str| {
            let parameter = Parameter { bounds: Some(bounds), ..Parameter::new("x", "1", "") };
            Tunable::between(&parameter, range)
                .map(|one| one.scale)
                .map_err(|error| error.to_string())
        };
        let (numbers, whole) = (Bounds::Numbers(0.0, 1.0), Bounds::Whole(1, 9));
        assert_eq!(between(numbers, "0..1"), Ok(Scale::Even(0.0, 1.0)));
        assert_eq!(between(whole, "2..4"), Ok(Scale::Whole(2, 4)));
        for (bounds, range, why) in [
            (numbers, "0.5..2", "numbers from 0 to 1"),
            (numbers, "NaN..1", "numbers from 0 to 1"),
            (whole, "0..4", "whole numbers from 1 to 9"),
            (whole, "1.5..4", "whole numbers from 1 to 9"),
            (Bounds::Switch, "0..1", "a switch"),
        ] {
            assert!(between(bounds, range).expect_err(range).contains(why), "{range}");
        }
    }

    #[test]
    fn values_that_somebody_says_are_numbers_durations_or_sizes() {
        let between = |now: &str, range: &str| {
            Tunable::between(&Parameter::new("x", now, ""), range).map(|one| one.scale)
        };
        for (now, range, expected) in [
            ("3", "0..8", Scale::Whole(0, 8)),
            ("3", "1..64", Scale::Counts(1, 64)),
            ("0.5", "0..1", Scale::Even(0.0, 1.0)),
            ("1e-05", "0..1", Scale::Even(0.0, 1.0)),
            ("1", "0.5..1", Scale::Even(0.5, 1.0)),
            ("1.0", "1..64", Scale::Magnitudes(1.0, 64.0)),
            ("5s", "1ms..1s", Scale::Durations(MILLISECOND, SECOND)),
            ("1MiB", "4KiB..1MiB", Scale::Bytes(4 << 10, 1 << 20)),
        ] {
            assert_eq!(between(now, range).expect("legal"), expected, "{range}");
        }
        for range in ["", "1", "1..", "..1", "2..1", "1..1", "1s..1", "0s..1s", "1s..1ms", "a..b"] {
            let error = between("1", range).expect_err(range);
            assert!(error.to_string().contains("parameter=x"), "{error}");
        }
        let sizes = Tunable { name: "x".into(), scale: Scale::Bytes(1000, 1 << 20) };
        assert_eq!([0.0, 0.5, 1.0].map(|place| sizes.at(place)), ["1kB", "32KiB", "1020KiB"]);
        let fine = Tunable { name: "x".into(), scale: Scale::Even(0.125, 0.6666) };
        assert_eq!([0.0, 0.5, 1.0].map(|place| fine.at(place)), ["0.125", "0.396", "0.6666"]);
        let short = Duration::from_nanos(100)..Duration::from_nanos(300);
        let short = Tunable { name: "x".into(), scale: Scale::Durations(short.start, short.end) };
        assert_eq!([0.0, 1.0].map(|place| short.at(place)), ["100ns", "300ns"]);
        let near_zero = Tunable { name: "x".into(), scale: Scale::Even(-1.0, 1.0) };
        assert_eq!([0.0, 0.25, 0.5].map(|place| near_zero.at(place)), ["-1", "-0.5", "0"]);
    }

    #[test]
    fn places_are_spread_as_the_scale_says() {
        let at = |scale, place| Tunable { name: "x".into(), scale }.at(place);
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
