// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The access timeline: the life of each object, accesses, migrations, the fill of tiers and waits on one axis of time.
//!
//! A [`Builder`] takes events and sums them up at several levels of detail, a [`Picture`] becomes a part of a page with
//! its data in it, and the scripts in `viewer` draw as much of that as the reader looks at. Demo, traces and replays share it.

mod builder;
mod columns;
mod course;
mod grid;

pub use builder::{Builder, CELLS_MAX, Seen, What};

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::builder::Cell;
use self::columns::{packed, packed_ascending};
use self::course::{Course, Filled, Waited};
use self::grid::Level;
use super::{escape, push};

/// Draws the data in a page; once in each page. Nothing of it is visible to other scripts.
pub const VIEWER: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("viewer/data.js"),
    include_str!("viewer/view.js"),
    include_str!("viewer/objects.js"),
    include_str!("viewer/panels.js"),
    include_str!("viewer/readout.js"),
    include_str!("viewer/page.js"),
    "})();\n",
);

/// The version of the data in a page.
const VERSION: u32 = 1;

/// The number of a tier that is not known.
const TIER_NONE: u8 = 63;

/// Tiers that have a colour of their own; those behind them have that of the last.
const COLOURS: usize = 5;

/// Kinds of marks, by their number in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Read = 0,
    Write = 1,
    /// Read or written: the trace does not tell.
    Request = 2,
    /// Created, opened, closed, or cut.
    Handle = 3,
    Delete = 4,
    /// Migrated to a less preferred tier.
    Down = 5,
    /// Migrated to a more preferred tier.
    Up = 6,
    /// A clean copy was made.
    Copied = 7,
    /// A clean copy was dropped.
    Dropped = 8,
}

impl Mark {
    const ALL: [Mark; 9] = [
        Mark::Read,
        Mark::Write,
        Mark::Request,
        Mark::Handle,
        Mark::Delete,
        Mark::Down,
        Mark::Up,
        Mark::Copied,
        Mark::Dropped,
    ];

    /// With a tier, as a number: small for the first tiers, and for none.
    fn what(self, tier: u8) -> u32 {
        let tier = if tier == TIER_NONE { 0 } else { u32::from(tier) + 1 };
        tier * 16 + self as u32
    }

    /// For tables and tooltips.
    fn words(self) -> &'static str {
        match self {
            Mark::Read => "read",
            Mark::Write => "written",
            Mark::Request => "requested",
            Mark::Handle => "created, opened, closed, or cut",
            Mark::Delete => "deleted",
            Mark::Down => "migrated to a slower tier",
            Mark::Up => "migrated to a faster tier",
            Mark::Copied => "copied",
            Mark::Dropped => "copy dropped",
        }
    }
}

/// A tier as it is drawn.
#[derive(Clone, Debug)]
struct Tier {
    name: String,
    /// `u64::MAX` without a bound.
    capacity_bytes: u64,
    colour: usize,
}

/// A migration.
#[derive(Clone, Copy, Debug)]
struct Move {
    time_ns: u64,
    row: u32,
    from: u8,
    to: u8,
    reason: Option<u32>,
}

/// What all marks of a kind on a tier come to.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    count: u64,
    bytes: u64,
    latency_ns: u64,
    latency_most_ns: u64,
    guard_ns: u64,
}

/// Where the fill of tiers is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Counted by the store or the model.
    Counted,
    /// Added up from the events: what objects have at least.
    Trace,
}

/// Everything that is drawn.
pub struct Picture {
    span_ns: (u64, u64),
    events: u64,
    summed_up: u64,
    objects: u64,
    tiers: Vec<Tier>,
    /// Of the first objects.
    names: Vec<String>,
    /// Of all objects, or of none.
    last_access_ns: Vec<u64>,
    accesses: Vec<Level<Cell>>,
    lives: Vec<Level<i64>>,
    fill: Vec<(u8, Course<Filled>)>,
    source: Source,
    /// Of reads and of writes.
    waits: [Course<Waited>; 2],
    moves: Vec<Move>,
    reasons: Vec<String>,
    totals: BTreeMap<(Mark, u8), Counted>,
    refused: u64,
    phases: Vec<(String, u64, u64)>,
    notes: Vec<(u64, String)>,
    notes_left_out: u64,
}

impl Picture {
    /// How many events there are, those that others sum up included.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many objects there are.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// From the first event to the last.
    pub fn span_ns(&self) -> (u64, u64) {
        self.span_ns
    }

    /// What the finest marks sum up: a span of time in nanoseconds, and neighbouring objects. 1 and 1 where each
    /// event has its own.
    fn finest(&self) -> (u64, u64) {
        let level = &self.accesses[0];
        (1 << level.span_shift, 1 << level.group_shift)
    }

    /// For programs: what it comes to.
    pub fn value(&self) -> Value {
        let (span_ns, objects) = self.finest();
        json!({
            "events": self.events,
            "objects": self.objects,
            "from_ns": self.span_ns.0,
            "until_ns": self.span_ns.1,
            "mark_span_ns": span_ns,
            "mark_objects": objects,
            "marks": self.accesses[0].cells.len(),
            "refused_actions": self.refused,
        })
    }

    /// A part of a page, with its data: the drawing, what it is in words, and a table of all marks.
    pub fn html(&self, title: &str) -> String {
        let mut html = String::new();
        // Nothing in the data can end its element.
        let data = self.data().to_string().replace('<', "\\u003c");
        push(
            &mut html,
            format_args!(
                "<div class=\"timeline\" tabindex=\"0\" role=\"application\" aria-label=\"{}: access timeline\">\n\
                 <script type=\"application/json\">{data}</script>\n\
                 <noscript><p>The timeline is drawn by a script in this page; the table has its sums.</p></noscript>\n\
                 </div>\n<p class=\"muted\">{}</p>\n",
                escape(title),
                escape(&self.words()),
            ),
        );
        self.table(&mut html);
        html
    }

    /// The key to marks and colours.
    pub fn key(&self) -> String {
        let mut html = String::from("<div class=\"key\">\n");
        let mut item = |drawing: &str, words: &str| {
            push(
                &mut html,
                format_args!(
                    "<span><svg viewBox=\"0 0 22 14\" aria-hidden=\"true\">{drawing}</svg>{}</span>\n",
                    escape(words)
                ),
            );
        };
        for tier in &self.tiers {
            let colour = tier.colour.min(COLOURS - 1);
            item(
                &format!("<path class=\"life s{colour}\" d=\"M0 7H22\"/>"),
                &format!("on {}", tier.name),
            );
        }
        let first = self.tiers.first().map(|tier| tier.colour.min(COLOURS - 1).to_string());
        let shape = first.unwrap_or("-none".into());
        if self.tiers.is_empty() {
            item(
                "<path class=\"life s-none\" d=\"M0 7H22\"/>",
                "from the first to the last access",
            );
        } else {
            let line = format!("<path class=\"late s{shape}\" d=\"M0 7H22\"/>");
            item(&line, "there, and not used any more");
        }
        let read = match self.tiers.is_empty() {
            true => "read",
            false => "read, in the colour of the tier that served it",
        };
        let has = |mark| self.totals.keys().any(|(other, _)| *other == mark);
        let dot = format!("<rect class=\"f{shape}\" x=\"9\" y=\"5\" width=\"4\" height=\"4\"/>");
        for (mark, drawing, words) in [
            (Mark::Read, dot.as_str(), read),
            (Mark::Write, "<path class=\"write\" d=\"M11 2V12\"/>", "written"),
            (Mark::Request, dot.as_str(), "read or written: the trace does not tell"),
            (Mark::Handle, "<path class=\"handle\" d=\"M11 8V12\"/>", Mark::Handle.words()),
            (
                Mark::Delete,
                "<path class=\"delete\" d=\"M8 4L14 10M14 4L8 10\"/>",
                Mark::Delete.words(),
            ),
            (Mark::Down, &star(false), Mark::Down.words()),
            (Mark::Up, &star(true), Mark::Up.words()),
            (Mark::Copied, "<path class=\"copy\" d=\"M7 11L11 4L15 11Z\"/>", "clean copy made"),
            (Mark::Dropped, "<path class=\"copy\" d=\"M7 4L11 11L15 4Z\"/>", "clean copy dropped"),
        ] {
            if has(mark) {
                item(drawing, words);
            }
        }
        if !self.notes.is_empty() {
            item("<path class=\"change\" d=\"M11 0V14\"/>", "a change of the policy");
        }
        html.push_str("</div>\n");
        html
    }

    /// How to move in the drawing.
    pub fn help() -> &'static str {
        "<p class=\"muted help\">Drag to move; Ctrl and the wheel, or the wheel alone after a click, zoom time; with Alt \
         they zoom objects, with Shift they move in time. Keys: arrows move, + and - zoom time, Page Up and Page Down zoom \
         objects, 0 shows everything. Point at a mark for what it is.</p>\n"
    }

    /// What the drawing shows, and what it sums up.
    fn words(&self) -> String {
        let (span_ns, group) = self.finest();
        let marks = match (span_ns, group) {
            (1, 1) => {
                "Each event has a mark of its own; from afar, marks sum up several.".to_owned()
            }
            _ => format!(
                "The finest marks sum up the events of {} and of {}, of one kind on one tier: their number, bytes, and \
                 longest latency are kept.",
                terrace_core::units::show_ns(span_ns),
                if group == 1 {
                    "one object".into()
                } else {
                    format!("{group} neighbouring objects")
                },
            ),
        };
        let fill = match self.source {
            Source::Counted => "",
            Source::Trace => {
                " The fill of tiers is added up from the events: objects count as far as these show them."
            }
        };
        let (events, objects) = (grouped(self.events), grouped(self.objects));
        let mut words = format!("{events} events of {objects} objects. {marks}{fill}");
        for (count, what) in [
            (
                self.summed_up,
                "events were summed up in others when they were recorded, and count at their mean latency",
            ),
            (self.refused, "actions were refused or failed and are not drawn"),
            (self.notes_left_out, "more changes of the policy are not drawn"),
        ] {
            if count > 0 {
                words.push_str(&format!(" {} {what}.", grouped(count)));
            }
        }
        words
    }

    fn table(&self, html: &mut String) {
        use terrace_core::units::{show_bytes, show_ns};
        if self.totals.is_empty() {
            return;
        }
        html.push_str(
            "<details><summary>All marks in numbers</summary>\n<div class=\"scroll\"><table class=\"dense\">\n<thead><tr>\
             <th>what</th><th>tier</th><th class=\"number\">n</th><th class=\"number\">bytes</th>\
             <th class=\"number\">mean latency</th><th class=\"number\">longest</th>\
             <th class=\"number\">mean wait at the guard</th></tr></thead>\n<tbody>\n",
        );
        for ((mark, tier), total) in &self.totals {
            let tier = self.tiers.get(usize::from(*tier)).map_or("–", |tier| &tier.name);
            let time = |ns: u64| if total.latency_ns == 0 { "–".into() } else { show_ns(ns) };
            push(
                html,
                format_args!(
                    "<tr><th scope=\"row\">{}</th><td>{}</td>",
                    mark.words(),
                    escape(tier)
                ),
            );
            for cell in [
                grouped(total.count),
                if total.bytes == 0 { "–".into() } else { show_bytes(total.bytes) },
                time(total.latency_ns / total.count.max(1)),
                time(total.latency_most_ns),
                time(total.guard_ns / total.count.max(1)),
            ] {
                push(html, format_args!("<td class=\"number\">{cell}</td>"));
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody></table></div></details>\n");
    }

    /// The data of the viewer. Times count from the first event, in nanoseconds.
    fn data(&self) -> Value {
        let first_ns = self.span_ns.0;
        let tiers = self.tiers.iter().map(|tier| {
            json!({
                "name": tier.name,
                "colour": tier.colour.min(COLOURS - 1),
                "capacity_bytes": Some(tier.capacity_bytes).filter(|bytes| *bytes < u64::MAX),
            })
        });
        let (shared, rest): (Vec<_>, Vec<_>) = front_coded(&self.names).unzip();
        let column = |of: &dyn Fn(&Move) -> u64| packed(self.moves.iter().map(of));
        let mut words = serde_json::Map::new();
        for mark in Mark::ALL {
            words.insert((mark as u32).to_string(), mark.words().into());
        }
        json!({
            "version": VERSION,
            "span_ns": self.span_ns.1 - first_ns,
            "events": self.events,
            "objects": self.objects,
            "tiers": tiers.collect::<Vec<_>>(),
            "marks": words,
            "names": { "shared": packed(shared.into_iter()), "rest": rest },
            "last_access": packed(self.last_access_ns.iter().map(|ns| ns.saturating_sub(first_ns))),
            "accesses": self.accesses.iter().map(|level| access_level(level, first_ns)).collect::<Vec<_>>(),
            "lives": self.lives.iter().map(|level| life_level(level, first_ns)).collect::<Vec<_>>(),
            "fill": self.fill.iter().map(|(tier, course)| filled(*tier, course, first_ns)).collect::<Vec<_>>(),
            "fill_is_counted": self.source == Source::Counted,
            "waits": self.waits.iter().map(|course| waited(course, first_ns)).collect::<Vec<_>>(),
            "moves": {
                "n": self.moves.len(),
                "time": column(&|one| one.time_ns - first_ns),
                "row": column(&|one| one.row.into()),
                "from": column(&|one| one.from.into()),
                "to": column(&|one| one.to.into()),
                // From 1 on; 0 where it is not known.
                "reason": column(&|one| one.reason.map_or(0, |reason| u64::from(reason) + 1)),
                "reasons": self.reasons,
            },
            "phases": self.phases.iter()
                .map(|(name, start_ns, end_ns)| json!([name, start_ns - first_ns, end_ns - first_ns]))
                .collect::<Vec<_>>(),
            "notes": self.notes.iter().map(|(ns, words)| json!([ns - first_ns, words])).collect::<Vec<_>>(),
        })
    }
}

/// Where spans of this length begin to count: at or before the first event.
struct Spans {
    first: u64,
    shift: u32,
    before_ns: u64,
}

impl Spans {
    fn from(first_ns: u64, shift: u32) -> Self {
        let first = first_ns >> shift;
        Self { first, shift, before_ns: first_ns - (first << shift) }
    }

    fn head(&self, n: usize) -> serde_json::Map<String, Value> {
        let mut head = serde_json::Map::new();
        head.insert("n".into(), n.into());
        head.insert("span_ns".into(), (1u64 << self.shift).into());
        head.insert("before_ns".into(), self.before_ns.into());
        head
    }
}

fn access_level(level: &Level<Cell>, first_ns: u64) -> Value {
    let spans = Spans::from(first_ns, level.span_shift);
    let mut head = spans.head(level.cells.len());
    let column = |of: &dyn Fn(&Cell) -> u64| packed(level.cells.iter().map(|(_, cell)| of(cell)));
    let places = || level.cells.iter().map(|(place, _)| place);
    head.insert("group".into(), (1u64 << level.group_shift).into());
    head.insert(
        "time".into(),
        packed_ascending(places().map(|place| place.span - spans.first)).into(),
    );
    head.insert("row".into(), packed(places().map(|place| place.group.into())).into());
    head.insert("what".into(), packed(places().map(|place| place.what.into())).into());
    // Less one: usually 0.
    head.insert("more".into(), column(&|cell| cell.count - 1).into());
    head.insert("bytes".into(), column(&|cell| cell.bytes).into());
    head.insert("latency".into(), column(&|cell| cell.latency_ns).into());
    head.insert("guard".into(), column(&|cell| cell.guard_ns).into());
    head.into()
}

/// Times for which so many objects of a group were on a tier.
fn life_level(level: &Level<i64>, first_ns: u64) -> Value {
    let spans = Spans::from(first_ns, level.span_shift);
    let mut changes: Vec<_> = level.cells.iter().map(|(place, change)| (place, *change)).collect();
    changes.sort_by_key(|(place, _)| (place.group, place.what, place.span));
    // Group, tier, start, length, objects.
    let mut lives: Vec<[u64; 5]> = Vec::new();
    for part in changes.chunk_by(|(a, _), (b, _)| (a.group, a.what) == (b.group, b.what)) {
        let mut objects = 0;
        for pair in part.windows(2) {
            let ((place, change), (next, _)) = (pair[0], pair[1]);
            objects += change;
            if objects > 0 {
                lives.push([
                    place.group.into(),
                    place.what.into(),
                    place.span - spans.first,
                    next.span - place.span,
                    objects as u64,
                ]);
            }
        }
    }
    lives.sort_unstable_by_key(|life| (life[0], life[2]));
    let column = |index: usize| lives.iter().map(move |life| life[index]);
    let mut head = spans.head(lives.len());
    head.insert("group".into(), (1u64 << level.group_shift).into());
    head.insert("row".into(), packed_ascending(column(0)).into());
    head.insert("tier".into(), packed(column(1)).into());
    head.insert("start".into(), packed(column(2)).into());
    head.insert("length".into(), packed(column(3)).into());
    head.insert("more".into(), packed(column(4).map(|objects| objects - 1)).into());
    head.into()
}

fn filled(tier: u8, course: &Course<Filled>, first_ns: u64) -> Value {
    let spans = Spans::from(first_ns, course.shift);
    let mut head = spans.head(course.spans.len());
    let column = |of: &dyn Fn(&Filled) -> u64| packed(course.spans.values().map(of));
    head.insert("tier".into(), tier.into());
    head.insert(
        "time".into(),
        packed_ascending(course.spans.keys().map(|span| span - spans.first)).into(),
    );
    head.insert("least".into(), column(&|filled| filled.least).into());
    head.insert("most".into(), column(&|filled| filled.most).into());
    head.insert("last".into(), column(&|filled| filled.last).into());
    head.into()
}

fn waited(course: &Course<Waited>, first_ns: u64) -> Value {
    let spans = Spans::from(first_ns, course.shift);
    let mut head = spans.head(course.spans.len());
    let column = |of: &dyn Fn(&Waited) -> u64| packed(course.spans.values().map(of));
    head.insert(
        "time".into(),
        packed_ascending(course.spans.keys().map(|span| span - spans.first)).into(),
    );
    head.insert("count".into(), column(&|waited| waited.count).into());
    head.insert("mean".into(), column(&|waited| waited.sum_ns / waited.count).into());
    head.insert("most".into(), column(&|waited| waited.most_ns).into());
    head.insert("guard".into(), column(&|waited| waited.guard_ns / waited.count).into());
    head.insert("guard_most".into(), column(&|waited| waited.guard_most_ns).into());
    head.insert("stack".into(), column(&|waited| waited.stack_ns / waited.count).into());
    head.into()
}

/// How many characters each name shares with the one before, and its rest.
fn front_coded(names: &[String]) -> impl Iterator<Item = (u64, &str)> {
    let mut before = "";
    names.iter().map(move |name| {
        let both = name.char_indices().zip(before.chars());
        let mut same = both.take_while(|((_, one), other)| one == other);
        // UTF-16 as scripts count: beyond the basic plane a character is two, and is not shared.
        let mut shared = (0, 0);
        for ((at, one), _) in same.by_ref() {
            if one.len_utf16() > 1 {
                break;
            }
            shared = (shared.0 + 1, at + one.len_utf8());
        }
        before = name;
        (shared.0, &name[shared.1..])
    })
}

/// A number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The outline of a five-pointed star: hollow where it moves up.
fn star(is_up: bool) -> String {
    let mut path = String::new();
    for corner in 0..10 {
        let angle = std::f64::consts::PI * (f64::from(corner) / 5.0 - 0.5);
        let length = if corner % 2 == 0 { 6.0 } else { 2.7 };
        let command = if corner == 0 { 'M' } else { 'L' };
        let (x, y) = (11.0 + length * angle.cos(), 7.0 + length * angle.sin());
        push(&mut path, format_args!("{command}{x:.1} {y:.1}"));
    }
    format!("<path class=\"{}\" d=\"{path}Z\"/>", if is_up { "star up" } else { "star" })
}

#[cfg(test)]
mod tests;
