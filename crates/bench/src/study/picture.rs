// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The study as a drawing: for each pair of tiers, how fast each policy lets write and read.

use terrace_measure::Bound;
use terrace_report::{STYLE, Scale, escape, label, push};

use super::{OBJECT_BYTES, StudyRow};

const WIDTH: f64 = 1040.0;
const TOP: f64 = 70.0;
const ROW: f64 = 22.0;
/// What a pair needs beside its rows: heading and axis.
const FRAME: f64 = 92.0;
const WRITE: (f64, f64) = (270.0, 560.0);
const READ: (f64, f64) = (670.0, 960.0);

/// Draws all rows, pair by pair; bars of one pair share a scale for writing and one for reading.
pub fn draw(rows: &[StudyRow]) -> String {
    let pairs: Vec<_> = rows.chunk_by(|a, b| a.pair == b.pair).collect();
    let height = TOP + pairs.len() as f64 * FRAME + rows.len() as f64 * ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"Policies over pairs of tiers\">\n<style>\n{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" style=\"fill: var(--ground)\"/>\n",
    );
    if let Some(row) = rows.first() {
        push(
            &mut svg,
            format_args!(
                "<text class=\"strong\" x=\"20\" y=\"26\">Policies over pairs of tiers: objects of {} KiB, of \
                 which the fast tier takes a quarter</text>\n\
                 <text x=\"20\" y=\"46\">MB/s, medians of {} runs; lines are their 95 % bounds. Paler: in \
                 batches. At the end of a bar of reading: how much of it the fast tier served.</text>\n",
                OBJECT_BYTES >> 10,
                row.repetitions,
            ),
        );
    }
    let mut top = TOP;
    for rows in pairs {
        draw_pair(&mut svg, rows, top);
        top += FRAME + rows.len() as f64 * ROW;
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_pair(svg: &mut String, rows: &[StudyRow], top: f64) {
    let most =
        |of: &dyn Fn(&StudyRow) -> Bound| rows.iter().map(|row| of(row).high95).fold(0.0, f64::max);
    let write = Scale::new(most(&|row| row.write_mb_per_s), WRITE.0, WRITE.1);
    let read = Scale::new(most(&|row| row.read_mb_per_s), READ.0, READ.1);
    let first = top + 44.0;
    let end = first + rows.len() as f64 * ROW;
    push(
        svg,
        format_args!(
            "<text class=\"strong\" x=\"20\" y=\"{:.1}\">{}</text>\
             <text x=\"140\" y=\"{:.1}\">{}; {} objects; level {}</text>\n\
             <text class=\"strong\" x=\"{}\" y=\"{:.1}\">write</text>\
             <text class=\"strong\" x=\"{}\" y=\"{:.1}\">read</text>\n",
            top + 14.0,
            escape(rows[0].pair),
            top + 14.0,
            escape(rows[0].tiers),
            rows[0].objects,
            rows[0].level,
            WRITE.0,
            top + 36.0,
            READ.0,
            top + 36.0,
        ),
    );
    for scale in [write, read] {
        for tick in scale.ticks(5) {
            let x = scale.at(tick);
            push(
                svg,
                format_args!(
                    "<path class=\"grid\" d=\"M{x:.1} {first:.1}V{end:.1}\"/>\
                     <text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>\n",
                    end + 16.0,
                    label(tick),
                ),
            );
        }
    }
    for (index, row) in rows.iter().enumerate() {
        let y = first + index as f64 * ROW + 3.0;
        let policy = row.policy.split(' ').next().unwrap_or_default();
        let batch = if row.batch == 1 { String::new() } else { format!(", {} at once", row.batch) };
        push(
            svg,
            format_args!(
                "<g><title>{}</title><text class=\"end\" x=\"{}\" y=\"{:.1}\">{}{batch}</text>",
                escape(&row.policy),
                WRITE.0 - 10.0,
                y + 12.0,
                escape(policy),
            ),
        );
        let is_paler = row.batch > 1;
        bar(svg, write, &row.write_mb_per_s, y, is_paler, "");
        let share = format!(", {:.0} %", row.fast_reads * 100.0);
        bar(svg, read, &row.read_mb_per_s, y, is_paler, &share);
        svg.push_str("</g>\n");
    }
}

fn bar(svg: &mut String, scale: Scale, bound: &Bound, y: f64, is_paler: bool, note: &str) {
    let class = if is_paler { "time lighter" } else { "time" };
    let (start, end) = (scale.at(0.0), scale.at(bound.median));
    let (low, high) = (scale.at(bound.low95), scale.at(bound.high95));
    push(
        svg,
        format_args!(
            "<rect class=\"{class}\" x=\"{start:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"16\"/>\
             <path class=\"write\" d=\"M{low:.1} {middle:.1}H{high:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}{note}</text>",
            end - start,
            high.max(end) + 6.0,
            y + 12.0,
            short(bound.median),
            middle = y + 8.0,
        ),
    );
}

/// Three digits.
fn short(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_report::assert_closed;

    fn row(pair: &'static str, policy: &str, batch: usize, mb_per_s: f64) -> StudyRow {
        let bound = Bound { median: mb_per_s, low95: mb_per_s * 0.9, high95: mb_per_s * 1.1 };
        StudyRow {
            pair,
            tiers: "one < other",
            policy: policy.into(),
            batch,
            level: "process",
            size_bytes: OBJECT_BYTES,
            objects: 32,
            write_mb_per_s: bound,
            write_p99_us: 10.0,
            read_mb_per_s: bound,
            read_p99_us: 10.0,
            fast_reads: 0.25,
            moved: 0.5,
            repetitions: 3,
        }
    }

    #[test]
    fn every_row_has_two_bars_on_the_scale_of_its_pair() {
        let rows = [
            row("a/b", "lru idle=1s", 1, 100.0),
            row("a/b", "lru idle=1s", 8, 200.0),
            row("c/d", "pinned", 1, 2.0),
        ];
        let svg = draw(&rows);
        assert_closed(&svg);
        assert_eq!(svg.matches("<rect class=\"time").count(), 6);
        assert_eq!(svg.matches("<rect class=\"time lighter").count(), 2);
        assert!(svg.contains("one &lt; other") && svg.contains("lru, 8 at once"));
        // The highest bound of each pair is the end of its scale, so 200 and 2 are as long.
        let width = format!("width=\"{:.1}\"", (WRITE.1 - WRITE.0) / 1.1);
        assert_eq!(svg.matches(&width).count(), 4, "{svg}");
    }
}
