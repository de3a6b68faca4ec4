// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace policy`.

mod guest;
mod shadow;
mod show;

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use terrace_core::Error;
use terrace_core::units::{parse_duration, show_bytes};
use terrace_store::{PolicyReport, PolicySource, Store};

use super::{Group, Verb};
use crate::address;
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::{Output, is_terminal};

/// Longest message that is sent.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Show and change what decides where objects live
///
/// A policy proposes migrations; the store checks them and carries them out. It can be changed
/// while the store runs, without stopping anything.
#[derive(Args, Debug)]
pub(crate) struct Policy {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the policies there are
    ///
    /// Prints the built-in policies with what they do. Others are loaded from shared libraries
    /// (`terrace policy use --library PATH`) and from Python files (`terrace policy use ./mine.py`).
    #[command(after_long_help = "Examples:
  terrace policy list")]
    List,
    /// Show the policy, its parameters and its latest decisions
    #[command(after_long_help = "Examples:
  terrace policy show
  terrace policy show --json | jq .parameters")]
    Show,
    /// Change parameters, or when the policy is called
    ///
    /// `terrace policy show` lists the parameters with their values and what they mean. All values
    /// are checked by the policy; the first that is refused ends the command.
    #[command(after_long_help = "Examples:
  terrace policy set high=0.8 low=0.6   two parameters
  terrace policy set --every 1s         call it every second
  terrace policy set --dry-run on       record decisions without carrying them out")]
    Set(Set),
    /// Replace the policy
    ///
    /// The new policy takes over between two calls; what the old one knows is handed over where
    /// both have the same name.
    #[command(after_long_help = "Examples:
  terrace policy use size steps=1MB
  terrace policy use --library ./libmine.so high=0.8
  terrace policy use ./mine.py high=0.8")]
    Use(Use),
    /// Let another policy decide in the shadow of the one that does, and compare
    ///
    /// The policy in the shadow is shown what the other is shown, in a world where its own decisions
    /// are carried out; nothing of it reaches the store. What applications wait for is added up for
    /// both by the figures of the tiers (latency, bandwidth), without queues: read the difference,
    /// not the seconds. It goes on until --end, another one, or the end of the process that holds or
    /// serves the store.
    #[command(after_long_help = "Examples:
  terrace policy shadow heat            begin
  terrace policy shadow ./mine.py high=0.8
  terrace policy shadow                 how does it do?
  terrace policy shadow --end")]
    Shadow(shadow::Shadow),
    /// Send a message to the policy and print its reply
    ///
    /// Which kinds there are depends on the policy. The built-in ones that move objects know
    /// `stage` (to a tier, until a time), `release` and `status`, with JSON as body and reply.
    #[command(after_long_help = "Examples:
  terrace policy message status
  terrace policy message stage '{\"glob\": \"runs/42/*\", \"tier\": \"fast\", \"until\": \"10min\"}'
  terrace policy message release - < keys.json")]
    Message {
        /// The kind of message
        kind: String,
        /// What it says, at most 1 MiB; `-` reads it from standard input
        #[arg(default_value = "", allow_hyphen_values = true)]
        body: String,
    },
    /// Call the policy now; or run the policy of a Python file until Ctrl-C
    ///
    /// Without FILE: calls the policy, waits for the migrations that it asks for, and prints what it
    /// decided.
    ///
    /// With FILE: the policy of the file decides for as long as the command runs, in a process of its
    /// own. Its decisions are printed as it makes them, and what it prints itself. Then the
    /// configured policy decides again, also where the command was killed: nothing is written into the
    /// configuration. When it fails, the store goes on at once, and the command ends with the reason.
    /// It needs Python 3.10 and NumPy (TERRACE_PYTHON names another Python than `python3`).
    /// docs/tutorials/python.md is a tutorial.
    #[command(after_long_help = "Examples:
  terrace policy run                    call the policy
  terrace policy run --dry-run          what would it do now?
  terrace policy run mine.py high=0.8   try a policy of your own")]
    Run {
        /// A Python file with a policy
        file: Option<PathBuf>,
        /// Parameters of the policy
        #[arg(value_name = "NAME=VALUE", requires = "file")]
        parameters: Vec<String>,
        /// Record the decisions without carrying them out
        #[arg(long, conflicts_with = "file")]
        dry_run: bool,
    },
}

#[derive(Args, Debug)]
struct Set {
    /// Parameters with their new values
    #[arg(value_name = "NAME=VALUE")]
    #[arg(required_unless_present_any = ["after_events", "every", "dry_run"])]
    parameters: Vec<String>,
    /// Call the policy after this many events
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    after_events: Option<u64>,
    /// Call the policy this often, for example 100ms
    #[arg(long, value_name = "DURATION")]
    every: Option<String>,
    /// Whether its decisions are only recorded
    #[arg(long, value_name = "SWITCH")]
    dry_run: Option<Switch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Args, Debug)]
struct Use {
    /// The name of a built-in policy, or the path of a Python file or library with a / or . in it
    /// (unless --library is given), then parameters NAME=VALUE
    #[arg(value_name = "NAME", required_unless_present = "library")]
    words: Vec<String>,
    /// Load the policy from this shared library
    #[arg(long, value_name = "PATH")]
    library: Option<String>,
}

impl Verb for Policy {
    const NAME: &'static str = "policy";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace policy show                   parameters and latest decisions
  terrace policy set high=0.8           change a parameter
  terrace policy use size               replace the policy
  terrace policy run --dry-run          what would it do now?";

    fn run(self, context: &Context) -> Result<()> {
        match self.action {
            Action::List => show::list(context),
            Action::Show => {
                let report = context.with_store_for_reading(policy)?;
                show::report(context, &report)
            }
            Action::Set(set) => set.run(context),
            Action::Use(chosen) => chosen.run(context),
            Action::Shadow(shadow) => shadow.run(context),
            Action::Message { kind, body } => message(context, &kind, body),
            Action::Run { file: Some(file), parameters, .. } => {
                guest::run(context, &file, &assignments(&parameters)?)
            }
            Action::Run { dry_run, .. } => run_now(context, dry_run),
        }
    }
}

/// The policy of a store that must have one.
fn policy(store: &Store) -> Result<PolicyReport> {
    Ok(store.admin().policy()?.ok_or_else(|| {
        let reason = "the store has none: choose one with `terrace policy use`";
        Error::invalid("show the policy", reason)
    })?)
}

impl Set {
    fn run(self, context: &Context) -> Result<()> {
        let parameters = assignments(&self.parameters)?;
        let every = self.every.as_deref().map(parse_duration).transpose()?;
        let report = context.with_store(|store| {
            for (name, value) in &parameters {
                store.admin().set_parameter(name, value)?;
            }
            if self.after_events.is_some() || every.is_some() {
                store.admin().set_calls(self.after_events, every)?;
            }
            if let Some(switch) = self.dry_run {
                store.admin().set_dry_run(switch == Switch::On)?;
            }
            policy(store)
        })?;
        show::parameters(context, &report)
    }
}

impl Use {
    fn run(self, context: &Context) -> Result<()> {
        let (name, parameters) = match &self.library {
            // A file in the working directory is no name of a built-in policy.
            Some(library) if !library.contains('/') => {
                (format!("./{library}"), self.words.as_slice())
            }
            Some(library) => (library.clone(), self.words.as_slice()),
            None => self
                .words
                .split_first()
                .map(|(name, rest)| (name.clone(), rest))
                .expect("clap requires a name where there is no library"),
        };
        let parameters = assignments(parameters)?;
        let report = context.with_store(|store| {
            store.admin().set_policy(&PolicySource::named(&name), &parameters)?;
            policy(store)
        })?;
        show::parameters(context, &report)
    }
}

fn assignments(texts: &[String]) -> Result<Vec<(String, String)>> {
    texts.iter().map(|text| address::assignment(text)).collect()
}

fn message(context: &Context, kind: &str, body: String) -> Result<()> {
    let body = if body == "-" { read_body()? } else { body.into_bytes() };
    let reply = context.with_store(|store| Ok(store.admin().message(kind, &body)?))?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "reply": String::from_utf8_lossy(&reply) }))?;
    } else {
        output.bytes(&reply)?;
        if is_terminal() && !reply.is_empty() && !reply.ends_with(b"\n") {
            output.line("")?;
        }
    }
    output.flush()
}

fn read_body() -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let read = io::stdin().take(BODY_BYTES_MAX + 1).read_to_end(&mut body);
    read.map_err(|error| Error::from_io("read standard input", error))?;
    if body.len() as u64 > BODY_BYTES_MAX {
        let reason = format!("it has more than {}", show_bytes(BODY_BYTES_MAX));
        return Err(Error::invalid("send the message", reason).into());
    }
    Ok(body)
}

/// Longest wait between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(200);

fn run_now(context: &Context, is_dry_run: bool) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let (before, after) = context.with_store(|store| {
        let before = policy(store)?;
        if is_dry_run && !before.is_dry_run {
            store.admin().set_dry_run(true)?;
        }
        let ran = store.admin().run_policy();
        if is_dry_run && !before.is_dry_run {
            store.admin().set_dry_run(false)?;
        }
        ran?;
        while !is_dry_run && !store.admin().wait_idle(LOOK)? {
            interrupt.check("the migrations go on while something holds the store")?;
        }
        Ok((before, policy(store)?))
    })?;
    show::decisions_since(context, &before, &after)
}
