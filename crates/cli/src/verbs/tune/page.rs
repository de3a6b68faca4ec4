// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace tune --html`: one page that needs nothing else.

use askama::Template;
use terrace_core::units::show_bytes;
use terrace_replay::{Candidate, Score, Tuned};
use terrace_report::STYLE;
use terrace_report::plot::{self, Bar};
use terrace_tuning::Modelled;

use super::report::Report;
use crate::failure::Result;
use crate::output::{command_line, show_price};

/// The page.
#[derive(Template)]
#[template(path = "tune.html")]
struct Page {
    style: &'static str,
    title: String,
    verdict: String,
    section: String,
    version: &'static str,
    command: String,
    file: String,
    settings: String,
    names: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
    tried: Vec<Vec<String>>,
    bars: Vec<(&'static str, String)>,
}

/// The page of a report.
pub(super) fn page(report: &Report, modelled: &Modelled) -> Result<String> {
    let row = |one: &Candidate| {
        let cells = vec![
            report.change(one, |one| &one.trained),
            report.change(one, |one| &one.tested),
            format!("{:.3} s", one.tested.makespan_s),
            format!("{:.1} J", one.tested.joules),
            show_bytes(one.tested.migrated_bytes),
        ];
        (one.name.to_string(), cells)
    };
    let tried = |(parameters, score): &(Vec<(String, String)>, Score)| {
        let texts = parameters.iter().map(|(_, text)| text.clone());
        let came = [format!("{:.3} s", score.makespan_s), format!("{:.1} J", score.joules)];
        texts.chain(came).collect()
    };
    let tuned = &report.tuned;
    let page = Page {
        style: STYLE,
        title: report.title(),
        verdict: report.verdict(),
        section: report.section(),
        version: env!("CARGO_PKG_VERSION"),
        command: command_line(),
        file: modelled.file.display().to_string(),
        settings: modelled.text()?,
        names: names(tuned),
        rows: tuned.candidates.iter().map(row).collect(),
        tried: tuned.tried.iter().map(tried).collect(),
        bars: bars(report),
    };
    Ok(page.render().expect("the template asks for nothing that can fail"))
}

/// Those of the parameters of each that was tried.
fn names(tuned: &Tuned) -> Vec<String> {
    let first = tuned.tried.first().map(|(parameters, _)| parameters.as_slice());
    first.unwrap_or_default().iter().map(|(name, _)| name.clone()).collect()
}

fn bars(report: &Report) -> Vec<(&'static str, String)> {
    let draw = |title, value: fn(&Score) -> f64, text: fn(&Score) -> String| {
        let bar = |one: &Candidate| Bar {
            name: one.name.into(),
            value: value(&one.tested),
            text: text(&one.tested),
            is_bound: one.name != "tuned",
        };
        let bars: Vec<_> = report.tuned.candidates.iter().map(bar).collect();
        (title, plot::bars(title, &bars))
    };
    let mut bars = vec![
        draw("Time", |score| score.makespan_s, |score| format!("{:.3} s", score.makespan_s)),
        draw("Energy", |score| score.joules, |score| format!("{:.1} J", score.joules)),
    ];
    if report.tuned.candidates.iter().any(|one| one.tested.cost > 0.0) {
        bars.push(draw("Cost", |score| score.cost, |score| show_price(score.cost)));
    }
    bars
}
