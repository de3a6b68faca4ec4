// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: built from the table of verbs, read, and passed to the verb it names.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind as UsageKind;
use clap::{Args, Command, FromArgMatches};

use crate::context::Context;
use crate::failure::{self, Failure, Result, STATUS_USAGE, statuses};
use crate::mount_helper;
use crate::output::Output;
use crate::verbs::{Group, VERBS};

const ABOUT: &str = "One store over fast and slow storage; a policy decides what lives where";

const LONG_ABOUT: &str = "\
Terrace keeps named objects in one store over fast and slow storage. A small policy, which you \
can replace, decides what lives where. You see what moved, why, and what it cost.

A store is a directory with a configuration (terrace.toml) and a catalog; its tiers may be \
anywhere. While a process holds the store (`terrace hold`, or an application that has it open), \
every command goes through that process; otherwise the command opens the store itself.

A KEY names an object: `namespace/name`. A name may hold slashes and anything else but NUL; a key \
without a slash is in the namespace `default`.";

const START: &str = "\
Start:
  `terrace demo` shows a store at work; `terrace init ./my-store` makes one.
  `terrace help VERB` shows a verb with examples; `terrace --help` says more about stores and keys.";

/// What every verb understands.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// The store: its directory, or the address of its servers
    #[arg(
        long,
        global = true,
        env = "TERRACE_STORE",
        hide_env_values = true,
        value_name = "STORE"
    )]
    store: Option<String>,

    /// Print JSON for programs, errors included; docs/reference/cli.md lists the shapes
    #[arg(long, global = true)]
    json: bool,
}

/// Reads the command line and carries it out. A failure is reported when this returns.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let is_verb = |name: &OsStr| VERBS.iter().any(|verb| name == verb.name);
    let arguments = mount_helper::as_verb(arguments.collect(), is_verb);
    let matches = match build().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => return show_usage(&error, asks_for_json(&arguments)),
    };
    let Some((name, verb_matches)) = matches.subcommand() else {
        return show_overview();
    };
    let global = Global::from_arg_matches(&matches).expect("clap has checked the arguments");
    let context = Context::new(global.store, global.json, build);
    let verb = VERBS.iter().find(|verb| verb.name == name).expect("clap knows only these verbs");
    let result = (verb.run)(&context, verb_matches);
    if let Err(failure) = &result {
        failure.report(global.json);
    }
    result
}

/// The whole command line, as parsed, completed and documented.
fn build() -> Command {
    let command = Global::augment_args(Command::new("terrace"))
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(START)
        .after_long_help(format!("{START}\n\n{}", statuses()))
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}\
             {{after-help}}",
            overview()
        ))
        .subcommand_value_name("VERB")
        .max_term_width(100);
    VERBS.iter().fold(command, |command, verb| command.subcommand((verb.command)()))
}

/// The verbs with what they are for, by purpose.
fn overview() -> String {
    let mut text = String::new();
    for group in Group::ALL {
        text.push_str(&format!("{}:\n", group.title()));
        for verb in VERBS.iter().filter(|verb| verb.group == group) {
            let command = (verb.command)();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {:<12} {about}\n", verb.name));
        }
        text.push('\n');
    }
    text
}

fn show_overview() -> Result<()> {
    let mut output = Output::new();
    output.line(build().render_help())?;
    output.flush()
}

/// Help and version are no errors; everything else becomes one line.
fn show_usage(error: &clap::Error, is_json: bool) -> Result<()> {
    let rendered = error.render();
    if matches!(error.kind(), UsageKind::DisplayHelp | UsageKind::DisplayVersion) {
        let mut output = Output::new();
        output.bytes(rendered.to_string().as_bytes())?;
        return output.flush();
    }
    // clap's own text: the error, a tip, the usage and where to find help, in paragraphs.
    let text = rendered.to_string();
    let parts = text.split("\n\n").map(str::trim);
    let said: Vec<_> = parts.filter(|part| !is_boilerplate(part)).collect();
    let message = said.join("; ").replacen("error: ", "", 1);
    failure::print(
        is_json,
        "usage",
        &format!("cannot read the command line: {message} (--help shows what is right)"),
    );
    Err(Failure::Reported(STATUS_USAGE))
}

fn is_boilerplate(part: &str) -> bool {
    part.is_empty() || part.starts_with("Usage:") || part.starts_with("For more information")
}

/// Whether the command line asks for JSON, also where it cannot be read as a whole.
fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        build().debug_assert();
    }

    #[test]
    fn the_overview_names_every_verb_once() {
        let overview = overview();
        for verb in VERBS {
            let line = format!("\n  {:<12} ", verb.name);
            assert_eq!(overview.matches(&line).count(), 1, "{}", verb.name);
        }
    }
}
