// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table and the verdicts as text.

use terrace_console::table::Table;
use terrace_core::units::show_bytes;

use super::Finished;
use super::report::{Finding, RunReport};

/// Everything that was found and what to try next, line by line.
pub fn lines(finished: &Finished) -> Vec<String> {
    let report = &finished.report;
    let mut table = Table::new(&[1, 2, 3, 4, 5]);
    table.heading(["run", "write", "read", "migrated", "peak fast", "mean fast", "checksum"]);
    for run in report.runs.iter().filter(|run| run.skipped.is_none()) {
        table.row(cells(run));
    }
    let mut lines = table.lines();
    for run in &report.runs {
        if let Some(reason) = &run.skipped {
            lines.push(format!("{}: skipped, {reason}", run.name));
        }
    }
    lines.push(String::new());
    for verdict in &report.verdicts {
        let word = match verdict.finding {
            Finding::Met => "met         ",
            Finding::Missed => "NOT MET     ",
            Finding::Unresolved => "NOT RESOLVED",
        };
        lines.push(format!("{word}  {}", verdict.bar));
        lines.push(format!("              {}", verdict.words));
    }
    lines.push(format!(
        "met           all runs read what was written ({:.0} s in all)",
        report.elapsed_s
    ));
    lines.push(String::new());
    lines.push(report.simulated.clone());
    lines.push(format!("Timelines of every run: {}", finished.page.display()));
    lines.push(String::new());
    for step in &finished.steps {
        lines.push(format!("# {}", step.what));
        lines.push(step.command.clone());
    }
    lines
}

fn cells(run: &RunReport) -> [String; 7] {
    [
        run.name.clone(),
        format!("{:.2} s", run.write_s),
        format!("{:.2} s", run.read_s),
        show_bytes(run.migrated_bytes),
        show_bytes(run.fast_bytes_max),
        show_bytes(run.fast_bytes_mean),
        run.checksum.clone(),
    ]
}
