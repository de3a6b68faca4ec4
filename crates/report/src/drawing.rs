// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What drawings share: places for values, and text.

use std::fmt::Write;

/// Maps 0 to `end` onto a range of pixels.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    end: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale up to `end`, or to 1 where there is nothing to show.
    pub fn new(end: f64, from: f64, to: f64) -> Self {
        Self { end: if end > 0.0 { end } else { 1.0 }, from, to }
    }

    /// The pixel of a value.
    pub fn at(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * value / self.end
    }

    /// Round values, about `count` of them, from 0 on.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let rough = self.end / count as f64;
        let magnitude = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * magnitude)
            .find(|step| *step >= rough * 0.999)
            .expect("ten times the magnitude is above the value");
        (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= self.end).collect()
    }
}

/// Prints a tick without needless zeros.
pub fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Adds text to a page or a drawing.
pub fn push(target: &mut String, text: std::fmt::Arguments<'_>) {
    target.write_fmt(text).expect("a string takes everything");
}

/// Makes text safe inside an element or an attribute.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

/// For tests of pages: every element is closed, in the right order.
///
/// # Panics
///
/// Where that is not so.
#[doc(hidden)]
pub fn assert_closed(text: &str) {
    let mut open = Vec::new();
    for piece in text.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').expect("every tag ends");
        let name = tag.split_whitespace().next().expect("every tag has a name");
        if tag.ends_with('/') || ["!doctype", "meta"].contains(&name) {
            continue;
        }
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::new(12.3, 0.0, 1.0).ticks(6), [0.0, 5.0, 10.0]);
        assert_eq!(Scale::new(0.8, 0.0, 1.0).ticks(4), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8]);
        assert_eq!(label(0.6000000000000001), "0.6");
        assert_eq!(label(20.0), "20");
    }
}
