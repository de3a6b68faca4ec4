// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From times of requests of several sizes to a latency and a bandwidth.

/// What a request takes: this long, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) latency_s: f64,
    /// Infinite where more bytes take no longer.
    pub(super) bytes_per_s: f64,
    /// Whether the latency can be derived from what the times of requests vary by; else it is a bound.
    pub(super) is_resolved: bool,
}

/// A fitted latency below this share of what is certain is none.
const CERTAIN: f64 = 0.5;

/// The median; 0 of nothing.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// The mean without the least and the greatest twentieth; 0 of nothing. What many requests take is a
/// sum: a median leaves out what some of a device's take longer, a mean is that of one hiccup.
pub(super) fn typical(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 20;
    let middle = &values[cut..values.len() - cut];
    if middle.is_empty() { 0.0 } else { middle.iter().sum::<f64>() / middle.len() as f64 }
}

/// Fits a line through points of bytes and seconds. The slope is the median of those between all
/// pairs (Theil 1950, Sen 1968), each weighted by the logarithm of how many times one size is the
/// other: so neither one odd point decides, nor the largest sizes, which few requests have. The
/// latency is what is left of the smallest size, which larger ones would drown in their own errors.
///
/// On a busy machine nothing may be left, or less than there must be: no size has its bytes at less
/// than the least time for a byte, so that the rest of the smallest one is latency. Where larger ones take
/// longer for a byte than the smallest, its bytes cannot be separated from its latency, and are taken for it.
pub(super) fn fit(points: &[(f64, f64)]) -> Line {
    let mut slopes = Vec::new();
    for (index, (bytes, seconds)) in points.iter().enumerate() {
        for (more_bytes, more_seconds) in &points[index + 1..] {
            let apart = more_bytes - bytes;
            if apart != 0.0 {
                slopes.push(((more_seconds - seconds) / apart, (more_bytes / bytes).ln().abs()));
            }
        }
    }
    slopes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = slopes.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let middle = slopes.iter().find(|(_, weight)| {
        below += weight;
        below >= half
    });
    let slope = middle.map_or(0.0, |(slope, _)| slope.max(0.0));
    let smallest = points.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let bytes_per_s = if slope > 0.0 { 1.0 / slope } else { f64::INFINITY };
    let Some((bytes, seconds)) = smallest else {
        return Line { latency_s: 0.0, bytes_per_s, is_resolved: false };
    };
    let each_s =
        points.iter().map(|(bytes, seconds)| seconds / bytes).fold(f64::INFINITY, f64::min);
    let certain_s = if points.len() > 1 { seconds - each_s * bytes } else { 0.0 };
    let left_s = seconds - slope * bytes;
    let (latency_s, is_resolved) = match certain_s > 0.0 {
        true => (left_s.max(certain_s), left_s > certain_s * CERTAIN),
        false if left_s > 0.0 => (left_s, true),
        false => (*seconds, *seconds == 0.0),
    };
    Line { latency_s, bytes_per_s, is_resolved }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typical_is_no_single_hiccup() {
        let mut values = [[1.0; 10], [3.0; 10]].concat();
        assert_eq!(typical(&mut values).to_bits(), 2.0_f64.to_bits());
        values[4] = 1e9;
        assert!(typical(&mut values) < 2.2, "{values:?}");
        assert_eq!(typical(&mut [5.0, 1.0]).to_bits(), 3.0_f64.to_bits());
        assert_eq!(typical(&mut []).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn one_odd_point_does_not_decide() {
        let seconds = |bytes: f64| 1e-3 + bytes / 1e8;
        let mut points: Vec<_> =
            [4e3, 6.4e4, 1e6, 4e6, 1.6e7].map(|bytes| (bytes, seconds(bytes))).into();
        let near = |line: Line, share: f64| {
            (line.latency_s - 1e-3).abs() < 1e-3 * share
                && (line.bytes_per_s - 1e8).abs() < 1e8 * share
        };
        assert!(near(fit(&points), 1e-9), "{:?}", fit(&points));
        points[2].1 *= 5.0;
        assert!(near(fit(&points), 0.2), "{:?}", fit(&points));
    }

    #[test]
    fn what_takes_no_time_has_no_bound() {
        let line = fit(&[(4e3, 0.0), (1e6, 0.0)]);
        let bytes_per_s = f64::INFINITY;
        assert_eq!(line, Line { latency_s: 0.0, bytes_per_s, is_resolved: true });
        assert_eq!(fit(&[(4e3, 0.5)]).latency_s, 0.5);
    }

    #[test]
    fn a_latency_that_drowns_in_noise_is_bounded_and_not_nothing() {
        // 100 us and 1 GB/s, where a busy machine held up all but the smallest requests.
        let seconds = |bytes: f64, held_s: f64| 1e-4 + bytes / 1e9 + held_s;
        let points: Vec<_> = [(4096.0, 0.0), (65536.0, 5e-3), (1e6, 4e-2), (4e6, 0.16)]
            .map(|(bytes, held_s)| (bytes, seconds(bytes, held_s)))
            .into();
        let line = fit(&points);
        assert!(!line.is_resolved, "{line:?}");
        assert!(line.latency_s > 0.0 && line.latency_s <= points[0].1, "{line:?}");
        // One of the larger ones was not held up: what is certain is nearly all of it.
        let mut points = points;
        points.push((1.6e7, seconds(1.6e7, 0.0)));
        let line = fit(&points);
        assert!(line.latency_s > 0.9e-4 && line.latency_s <= points[0].1, "{line:?}");
        // Without noise the fit alone decides.
        let exact: Vec<_> =
            points.iter().map(|(bytes, _)| (*bytes, seconds(*bytes, 0.0))).collect();
        let line = fit(&exact);
        assert!(line.is_resolved && (line.latency_s - 1e-4).abs() < 1e-9, "{line:?}");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!((median(&mut [3.0, 1.0, 9.0]), median(&mut [])), (3.0, 0.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 9.0]), 3.0);
    }
}
