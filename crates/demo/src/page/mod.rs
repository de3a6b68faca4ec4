// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `demo-report.html`: one self-contained page, with the script that draws its timelines.

mod bars;
mod timeline;

use terrace_core::units::show_bytes;
use terrace_report::timeline::{Picture, VIEWER};
use terrace_report::{STYLE, escape, push};

use super::report::{DemoReport, Finding, RunReport, Verdict};
use super::steps::Step;

/// Writes the page; `next_steps` are commands that work on the store that stays.
pub(crate) fn page(report: &DemoReport, next_steps: &[Step]) -> String {
    let mut html = String::new();
    html.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.push_str("<title>Terrace demo</title>\n<style>\n");
    html.push_str(STYLE);
    html.push_str("</style>\n</head>\n<body>\n");
    introduction(&mut html, report);
    verdicts(&mut html, &report.verdicts);
    comparison(&mut html, &report.runs);
    reading_aid(&mut html);
    for (index, run) in report.runs.iter().enumerate() {
        section(&mut html, index, run);
    }
    steps(&mut html, next_steps);
    push(&mut html, format_args!("<script>\n{VIEWER}</script>\n</body>\n</html>\n"));
    html
}

fn introduction(html: &mut String, report: &DemoReport) {
    let machine = &report.machine;
    push(
        html,
        format_args!(
            "<h1>One program, two tiers, {} ways to place its data</h1>\n\
         <p>{}</p>\n<p><b>{}</b></p>\n\
         <p class=\"muted\">Terrace {} · <code>{}</code> · {:.0} s · {}, {} cores, {} of memory, \
         Linux {}, {}</p>\n",
            report.runs.len(),
            escape(&report.workload),
            escape(&report.simulated),
            escape(&report.version),
            escape(&report.command),
            report.elapsed_s,
            escape(&machine.processor),
            machine.cores,
            show_bytes(machine.memory_bytes),
            escape(&machine.kernel),
            escape(&machine.file_system),
        ),
    );
    html.push_str("<nav>");
    for (index, run) in report.runs.iter().enumerate() {
        push(html, format_args!("<a href=\"#run-{index}\">{}</a>", escape(&run.name)));
    }
    html.push_str("</nav>\n");
}

fn verdicts(html: &mut String, verdicts: &[Verdict]) {
    html.push_str("<h2>Verdicts</h2>\n<div class=\"scroll\"><table>\n");
    html.push_str("<tr><th>asked for</th><th>finding</th><th>measured</th></tr>\n");
    for verdict in verdicts {
        let (class, word) = match verdict.finding {
            Finding::Met => ("met", "✓ met"),
            Finding::Missed => ("missed", "✗ not met"),
            Finding::Unresolved => ("unresolved", "? not resolved"),
        };
        push(
            html,
            format_args!(
                "<tr><td>{}</td><td class=\"verdict {class}\">{word}</td><td>{}</td></tr>\n",
                escape(&verdict.bar),
                escape(&verdict.words),
            ),
        );
    }
    html.push_str("</table></div>\n");
}

fn comparison(html: &mut String, runs: &[RunReport]) {
    html.push_str("<h2>Side by side</h2>\n");
    html.push_str(&bars::draw(runs));
    html.push_str("<div class=\"scroll\"><table>\n<tr><th>run</th>");
    for title in ["write", "read", "migrated", "peak on fast", "mean on fast", "energy, modelled"] {
        push(html, format_args!("<th class=\"number\">{title}</th>"));
    }
    html.push_str("<th>checksum</th></tr>\n");
    for run in runs {
        push(html, format_args!("<tr><td>{}</td>", escape(&run.name)));
        if let Some(reason) = &run.skipped {
            push(
                html,
                format_args!(
                    "<td colspan=\"7\" class=\"skipped\">skipped: {}</td></tr>\n",
                    escape(reason)
                ),
            );
            continue;
        }
        for cell in [
            format!("{:.2} s", run.write_s),
            format!("{:.2} s", run.read_s),
            show_bytes(run.migrated_bytes),
            show_bytes(run.fast_bytes_max),
            show_bytes(run.fast_bytes_mean),
            format!("{:.0} J", run.modelled_energy_j),
        ] {
            push(html, format_args!("<td class=\"number\">{cell}</td>"));
        }
        push(html, format_args!("<td><code>{}</code></td></tr>\n", escape(&run.checksum)));
    }
    html.push_str("</table></div>\n");
    html.push_str(
        "<p class=\"muted\">Peak and mean are everything that takes room on the fast tier (objects, \
         reservations, copies, what waits to be deleted), sampled every 5 ms; the mean is over the \
         time of writing. Energy is modelled from watts assumed in the configuration, not measured.\
         </p>\n",
    );
}

fn reading_aid(html: &mut String) {
    html.push_str(
        "<h2>How to read the timelines</h2>\n\
         <p>Every line is one object, from its first to its last access; objects are in the order \
         of their creation. The colour is the tier it is on. Point at a line or a mark for more.</p>\n",
    );
    html.push_str(Picture::help());
}

fn section(html: &mut String, index: usize, run: &RunReport) {
    push(
        html,
        format_args!(
            "<section id=\"run-{index}\">\n<h2>{}</h2>\n<p class=\"muted\"><code>{}</code></p>\n",
            escape(&run.name),
            escape(&run.policy),
        ),
    );
    if let Some(reason) = &run.skipped {
        push(
            html,
            format_args!("<p class=\"skipped\">Skipped: {}</p>\n</section>\n", escape(reason)),
        );
        return;
    }
    push(html, format_args!("<p>{}</p>\n<div class=\"figures\">", escape(&run.story)));
    for (value, name) in [
        (format!("{:.2} s", run.write_s), "writing"),
        (format!("{:.2} s", run.read_s), "reading"),
        (run.moves.to_string(), "migrations"),
        (show_bytes(run.migrated_bytes), "migrated"),
        (show_bytes(run.fast_bytes_max), "peak on the fast tier"),
    ] {
        push(html, format_args!("<div class=\"figure\"><b>{value}</b><span>{name}</span></div>"));
    }
    html.push_str("</div>\n");
    let picture = timeline::picture(&run.recording);
    html.push_str(&picture.key());
    html.push_str(&picture.html(&run.name));
    html.push_str("</section>\n");
}

fn steps(html: &mut String, next_steps: &[Step]) {
    html.push_str("<h2>The store is still there</h2>\n<pre>");
    for step in next_steps {
        push(html, format_args!("# {}\n{}\n\n", escape(&step.what), escape(&step.command)));
    }
    html.push_str("</pre>\n");
}

#[cfg(test)]
mod tests;
