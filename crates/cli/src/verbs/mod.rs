// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The verbs: one file each, one line each in [`VERBS`].

mod backup;
mod bench;
mod cache;
mod calibrate;
mod collection;
mod completions;
mod cp;
mod demo;
mod explain;
mod export;
mod fsck;
mod get;
mod hold;
mod import;
mod init;
mod item;
mod key;
mod kv;
mod ls;
mod man;
mod migrate;
mod mount;
mod pin;
mod policy;
mod put;
mod quota;
mod replay;
mod restore;
mod rm;
mod scrub;
mod serve;
mod server;
mod stat;
mod takeover;
mod tiers;
mod trace;
mod tune;
mod undelete;
mod versions;
mod warm;
mod watch;

use clap::{ArgMatches, Args, Command};

use crate::context::Context;
use crate::failure::{Result, statuses};

/// All verbs, in the order in which help shows them.
pub(crate) const VERBS: &[Entry] = &[
    entry::<init::Init>(),
    entry::<hold::Hold>(),
    entry::<serve::Serve>(),
    entry::<mount::Mount>(),
    entry::<warm::Warm>(),
    entry::<cache::Cache>(),
    entry::<server::Server>(),
    entry::<fsck::Fsck>(),
    entry::<scrub::Scrub>(),
    entry::<backup::Backup>(),
    entry::<restore::Restore>(),
    entry::<takeover::Takeover>(),
    entry::<quota::Quota>(),
    entry::<key::EncryptionKey>(),
    entry::<put::Put>(),
    entry::<get::Get>(),
    entry::<cp::Copy>(),
    entry::<import::Import>(),
    entry::<export::Export>(),
    entry::<ls::List>(),
    entry::<stat::Stat>(),
    entry::<rm::Remove>(),
    entry::<versions::Versions>(),
    entry::<undelete::Undelete>(),
    entry::<kv::Kv>(),
    entry::<collection::Collections>(),
    entry::<item::Item>(),
    entry::<tiers::Tiers>(),
    entry::<explain::Explain>(),
    entry::<migrate::Migrate>(),
    entry::<pin::Pin>(),
    entry::<pin::Unpin>(),
    entry::<policy::Policy>(),
    entry::<trace::Trace>(),
    entry::<watch::Watch>(),
    entry::<replay::Replay>(),
    entry::<tune::Tune>(),
    entry::<calibrate::Calibrate>(),
    entry::<demo::Demo>(),
    entry::<bench::Bench>(),
    entry::<completions::Completions>(),
    entry::<man::Man>(),
];

/// A verb: its arguments (the type), its help (their documentation) and its code.
pub(crate) trait Verb: Args {
    /// What a user types.
    const NAME: &'static str;
    /// Where the overview shows it.
    const GROUP: Group;
    /// Command lines with what they do: a line break, then lines that are indented by two.
    const EXAMPLES: &'static str;

    /// Carries it out.
    fn run(self, context: &Context) -> Result<()>;
}

/// What a verb is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// The store as a whole.
    Store,
    /// Objects, key-value pairs and items.
    Data,
    /// Where objects live and why.
    Placement,
    /// Try it out and measure it.
    Trial,
    /// For the shell.
    Shell,
}

impl Group {
    /// All, in the order in which help shows them.
    pub(crate) const ALL: [Group; 5] =
        [Group::Store, Group::Data, Group::Placement, Group::Trial, Group::Shell];

    /// The heading above its verbs.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Group::Store => "Make and run a store",
            Group::Data => "Objects, key-value pairs, items",
            Group::Placement => "What lives where, and why",
            Group::Trial => "Try and measure",
            Group::Shell => "For the shell",
        }
    }
}

/// A verb in the table.
pub(crate) struct Entry {
    /// What a user types.
    pub(crate) name: &'static str,
    /// Where the overview shows it.
    pub(crate) group: Group,
    /// Its part of the command line.
    pub(crate) command: fn() -> Command,
    /// Its code.
    pub(crate) run: fn(&Context, &ArgMatches) -> Result<()>,
}

const fn entry<V: Verb>() -> Entry {
    Entry { name: V::NAME, group: V::GROUP, command: command_of::<V>, run: run::<V> }
}

fn command_of<V: Verb>() -> Command {
    let statuses = statuses();
    let after = format!("Examples:{}\n\n{statuses}", V::EXAMPLES);
    let command = V::augment_args(Command::new(V::NAME)).after_long_help(after);
    // A missing argument is reported in one line, as every other error.
    let command = command.arg_required_else_help(false);
    command.mut_subcommands(|subcommand| {
        let examples = subcommand.get_after_long_help().map(ToString::to_string);
        let after = format!("{}\n\n{statuses}", examples.unwrap_or_default());
        subcommand.after_long_help(after)
    })
}

fn run<V: Verb>(context: &Context, matches: &ArgMatches) -> Result<()> {
    let verb = V::from_arg_matches(matches).expect("clap has checked the arguments");
    verb.run(context)
}
