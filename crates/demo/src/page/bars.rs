// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The comparison of all runs: time, and room on the fast tier.

use std::fmt::Write;

use terrace_core::units::show_bytes;
use terrace_report::{Scale, escape, label, push};

use crate::report::RunReport;

const ROW: f64 = 30.0;
const TOP: f64 = 30.0;
const TIME: (f64, f64) = (220.0, 600.0);
const ROOM: (f64, f64) = (730.0, 940.0);

/// Draws a row of bars for every run that was not skipped.
pub(super) fn draw(runs: &[RunReport]) -> String {
    let runs: Vec<_> = runs.iter().filter(|run| run.skipped.is_none()).collect();
    let height = TOP + ROW * runs.len() as f64 + 26.0;
    let time_max = runs.iter().map(|run| run.application_s()).fold(0.0, f64::max);
    let room_max = runs.iter().map(|run| run.fast_bytes_max).max().unwrap_or(0);
    let time = Scale::new(time_max, TIME.0, TIME.1);
    let room = Scale::new(room_max as f64, ROOM.0, ROOM.1);

    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 1040 {height}\" role=\"img\" \
         aria-label=\"Time and room of every run\">\n\
         <text class=\"strong\" x=\"{}\" y=\"16\">seconds: writing, then reading (paler)</text>\
         <text class=\"strong\" x=\"{}\" y=\"16\">peak on the fast tier</text>\n",
        TIME.0, ROOM.0,
    );
    for tick in time.ticks(6) {
        let x = time.at(tick);
        push(
            &mut svg,
            format_args!(
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{:.1}\"/>\
             <text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>\n",
                height - 22.0,
                height - 6.0,
                label(tick),
            ),
        );
    }
    for (index, run) in runs.iter().enumerate() {
        let y = TOP + ROW * index as f64 + 5.0;
        let text_y = y + 14.0;
        let (written, done) = (time.at(run.write_s), time.at(run.application_s()));
        push(
            &mut svg,
            format_args!(
                "<text class=\"strong end\" x=\"{}\" y=\"{text_y}\">{}</text>\
             <rect class=\"time\" x=\"{}\" y=\"{y}\" width=\"{:.1}\" height=\"20\"/>\
             <rect class=\"time lighter\" x=\"{written:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"20\"/>\
             <text x=\"{:.1}\" y=\"{text_y}\">{:.2} + {:.2}</text>\n",
                TIME.0 - 10.0,
                escape(&run.name),
                TIME.0,
                written - TIME.0,
                done - written,
                done + 6.0,
                run.write_s,
                run.read_s,
            ),
        );
        let end = room.at(run.fast_bytes_max as f64);
        push(
            &mut svg,
            format_args!(
                "<rect class=\"f0\" x=\"{}\" y=\"{y}\" width=\"{:.1}\" height=\"20\"/>\
             <text x=\"{:.1}\" y=\"{text_y}\">{}</text>\n",
                ROOM.0,
                end - ROOM.0,
                end + 6.0,
                show_bytes(run.fast_bytes_max),
            ),
        );
    }
    svg.write_str("</svg>\n").expect("a string takes everything");
    svg
}
