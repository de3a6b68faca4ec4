// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The access timeline of a run with the fill of the tiers below it, on one axis of time.

use terrace_core::units::show_bytes;

use crate::demo::recording::{MarkKind, ObjectRecord, Recording};
use crate::drawing::{Scale, escape, label, push};

const WIDTH: f64 = 1040.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 1024.0;
const TOP: f64 = 40.0;
const FILL_HEIGHT: f64 = 110.0;
const GAP: f64 = 34.0;

/// Draws a run.
pub(super) fn draw(recording: &Recording) -> String {
    let count = recording.objects.len();
    // A hundred objects take 560 pixels; few get more room each, many less.
    let pitch = (560.0 / count.max(1) as f64).clamp(2.0, 14.0);
    let objects_end = TOP + pitch * count as f64;
    let fill_top = objects_end + GAP;
    let fill_end = fill_top + FILL_HEIGHT;
    let time = Scale::new(recording.end_s(), LEFT, RIGHT);

    let mut svg = format!(
        "<svg class=\"chart timeline\" viewBox=\"0 0 {WIDTH} {:.1}\" role=\"img\" \
         aria-label=\"Accesses, migrations and fill over time\">\n",
        fill_end + 34.0,
    );
    phases(&mut svg, recording, time, fill_end);
    seconds(&mut svg, time, fill_end);
    for (index, object) in recording.objects.iter().enumerate() {
        let y = TOP + pitch * (index as f64 + 0.5);
        if index == 0 || (index + 1) % 10 == 0 {
            push(
                &mut svg,
                format_args!(
                    "<text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>",
                    LEFT - 8.0,
                    y + 4.0,
                    index + 1
                ),
            );
        }
        line(&mut svg, recording, object, time, y);
    }
    marks(&mut svg, recording, time, pitch);
    stars(&mut svg, recording, time, pitch);
    fill(&mut svg, recording, time, fill_top, fill_end);
    changes(&mut svg, recording, time, fill_end);
    svg.push_str("</svg>\n");
    svg
}

fn phases(svg: &mut String, recording: &Recording, time: Scale, end: f64) {
    push(svg, format_args!("<text class=\"strong\" x=\"0\" y=\"14\">object</text>"));
    for (index, phase) in recording.phases.iter().enumerate() {
        let (from, to) = (time.at(phase.start_s), time.at(phase.end_s));
        if index % 2 == 0 {
            push(
                svg,
                format_args!(
                    "<rect class=\"phase\" x=\"{from:.1}\" y=\"20\" width=\"{:.1}\" height=\"{:.1}\"/>",
                    to - from,
                    end - 20.0,
                ),
            );
        }
        // A short phase has no room for its name.
        const NAME_WIDTH: f64 = 54.0;
        if to - from >= NAME_WIDTH {
            push(
                svg,
                format_args!(
                    "<text class=\"strong middle\" x=\"{:.1}\" y=\"14\">{}</text>\n",
                    f64::midpoint(from, to),
                    escape(&phase.name),
                ),
            );
        }
    }
}

fn seconds(svg: &mut String, time: Scale, end: f64) {
    for tick in time.ticks(10) {
        let x = time.at(tick);
        push(
            svg,
            format_args!(
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{end:.1}\"/>\
             <text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                end + 16.0,
                label(tick),
            ),
        );
    }
    push(
        svg,
        format_args!("<text class=\"end\" x=\"{RIGHT}\" y=\"{:.1}\">seconds</text>\n", end + 31.0),
    );
}

/// The life of an object: solid from its first to its last access, dotted until it last moved.
fn line(svg: &mut String, recording: &Recording, object: &ObjectRecord, time: Scale, y: f64) {
    let last_access_s = object.marks.iter().map(|mark| mark.at_s).fold(object.created_s, f64::max);
    let mut tier = object.placed_on;
    let mut from_s = object.created_s;
    push(
        svg,
        format_args!("<g class=\"object\"><title>{}</title>", escape(&story(recording, object))),
    );
    for step in &object.moves {
        span(svg, time, y, from_s..step.at_s, last_access_s, colour(recording, tier));
        (tier, from_s) = (step.to, step.at_s);
    }
    let end_s = last_access_s.max(from_s);
    span(svg, time, y, from_s..end_s, last_access_s, colour(recording, tier));
    svg.push_str("</g>\n");
}

fn span(
    svg: &mut String,
    time: Scale,
    y: f64,
    range_s: std::ops::Range<f64>,
    last_access_s: f64,
    colour: usize,
) {
    let solid_end_s = range_s.end.min(last_access_s);
    if range_s.start < solid_end_s {
        push(
            svg,
            format_args!(
                "<path class=\"life s{colour}\" d=\"M{:.1} {y:.1}H{:.1}\"/>",
                time.at(range_s.start),
                time.at(solid_end_s),
            ),
        );
    }
    let dotted_start_s = range_s.start.max(last_access_s);
    if dotted_start_s < range_s.end {
        push(
            svg,
            format_args!(
                "<path class=\"late s{colour}\" d=\"M{:.1} {y:.1}H{:.1}\"/>",
                time.at(dotted_start_s),
                time.at(range_s.end),
            ),
        );
    }
}

/// Marks of one kind and tier share a path: thousands of elements would make the page slow.
fn marks(svg: &mut String, recording: &Recording, time: Scale, pitch: f64) {
    let half = (pitch * 0.45).clamp(1.0, 4.0);
    for tier in 0..recording.tiers.len() {
        let mut reads = String::new();
        let mut writes = String::new();
        for (index, object) in recording.objects.iter().enumerate() {
            let y = TOP + pitch * (index as f64 + 0.5);
            for mark in object.marks.iter().filter(|mark| mark.tier == tier) {
                let x = time.at(mark.at_s);
                match mark.kind {
                    MarkKind::Write => {
                        push(&mut writes, format_args!("M{x:.1} {:.1}v{:.1}", y - half, 2.0 * half))
                    }
                    MarkKind::Read => push(&mut reads, format_args!("M{x:.1} {y:.1}h0")),
                }
            }
        }
        push(
            svg,
            format_args!(
                "<path class=\"write\" d=\"{writes}\"/>\n<path class=\"read s{}\" d=\"{reads}\"/>\n",
                colour(recording, tier),
            ),
        );
    }
}

fn stars(svg: &mut String, recording: &Recording, time: Scale, pitch: f64) {
    for (index, object) in recording.objects.iter().enumerate() {
        let y = TOP + pitch * (index as f64 + 0.5);
        for step in &object.moves {
            push(
                svg,
                format_args!(
                    "<path class=\"star\" d=\"{}\"><title>{} moved from {} to {} at {:.3} s{}</title></path>\n",
                    star(time.at(step.at_s), y, (pitch * 0.8).clamp(3.5, 7.0)),
                    escape(&object.key),
                    escape(&recording.tiers[step.from]),
                    escape(&recording.tiers[step.to]),
                    step.at_s,
                    because(&step.reason),
                ),
            );
        }
    }
}

fn fill(svg: &mut String, recording: &Recording, time: Scale, top: f64, end: f64) {
    let most = recording.fill.iter().flat_map(|sample| &sample.taken_bytes).max();
    let most = most.copied().unwrap_or(0);
    let room = Scale::new(most as f64 * 1.05, end, top);
    push(
        svg,
        format_args!(
            "<text class=\"strong\" x=\"0\" y=\"{:.1}\">on the tiers</text>\
         <path class=\"grid\" d=\"M{LEFT} {end:.1}H{RIGHT}\"/>",
            top - 12.0
        ),
    );
    for share in [0.5, 1.0] {
        let bytes = (most as f64 * share) as u64;
        let y = room.at(bytes as f64);
        push(
            svg,
            format_args!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>\
             <text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                show_bytes(bytes),
            ),
        );
    }
    for tier in 0..recording.tiers.len() {
        // Steps, because room is taken and freed at once; samples that change nothing are left out.
        let mut steps = String::new();
        let mut last = None;
        for sample in &recording.fill {
            let bytes = sample.taken_bytes[tier];
            if last != Some(bytes) {
                push(
                    &mut steps,
                    format_args!("H{:.1}V{:.1}", time.at(sample.at_s), room.at(bytes as f64)),
                );
                last = Some(bytes);
            }
        }
        let colour = colour(recording, tier);
        let right = time.at(recording.fill.last().map_or(0.0, |sample| sample.at_s));
        push(
            svg,
            format_args!(
                "<path class=\"area f{colour}\" d=\"M{LEFT} {end:.1}{steps}H{right:.1}V{end:.1}Z\"/>\
             <path class=\"edge s{colour}\" d=\"M{LEFT} {end:.1}{steps}H{right:.1}\"/>\n"
            ),
        );
    }
}

fn changes(svg: &mut String, recording: &Recording, time: Scale, end: f64) {
    for change in &recording.changes {
        let x = time.at(change.at_s);
        // The note goes where there is room for it.
        let (class, at) = if x < WIDTH / 2.0 { ("note", x + 6.0) } else { ("note end", x - 6.0) };
        push(
            svg,
            format_args!(
                "<path class=\"change\" d=\"M{x:.1} 20V{end:.1}\"/>\
             <text class=\"{class}\" x=\"{at:.1}\" y=\"33\">{}</text>\n",
                escape(&change.words),
            ),
        );
    }
}

/// The colour of a tier: that of its name, also where the store has only one.
fn colour(recording: &Recording, tier: usize) -> usize {
    usize::from(recording.tiers[tier] == "slow")
}

fn story(recording: &Recording, object: &ObjectRecord) -> String {
    let tier = |index: usize| recording.tiers[index].as_str();
    let mut lines = vec![
        object.key.clone(),
        format!("created at {:.3} s on {}", object.created_s, tier(object.placed_on)),
    ];
    for step in &object.moves {
        let reason = because(&step.reason);
        lines.push(format!("moved to {} at {:.3} s{reason}", tier(step.to), step.at_s));
    }
    for mark in &object.marks {
        let verb = match mark.kind {
            MarkKind::Write => "written",
            MarkKind::Read => "read",
        };
        lines.push(format!("{verb} on {} at {:.3} s", tier(mark.tier), mark.at_s));
    }
    const LINES_MAX: usize = 14;
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {}", escape(reason)) }
}

/// The outline of a five-pointed star.
pub(super) fn star(x: f64, y: f64, radius: f64) -> String {
    let mut path = String::new();
    for corner in 0..10 {
        let angle = std::f64::consts::PI * (f64::from(corner) / 5.0 - 0.5);
        let length = if corner % 2 == 0 { radius } else { radius * 0.45 };
        let command = if corner == 0 { 'M' } else { 'L' };
        push(
            &mut path,
            format_args!(
                "{command}{:.1} {:.1}",
                x + length * angle.cos(),
                y + length * angle.sin()
            ),
        );
    }
    path.push('Z');
    path
}
