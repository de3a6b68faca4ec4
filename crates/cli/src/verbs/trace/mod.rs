// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace trace`.

mod choice;
mod convert;
mod export;
mod line;
mod load;
pub(super) mod picture;
mod record;
mod show;
mod summary;

use clap::{Args, Subcommand};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;

/// Record what happens in a store, and look at it
///
/// A trace has every event with its time, object, tier, range, latency and waits, and on request
/// what the policy saw and decided. It is a directory of files, by default `trace` in the
/// directory of the store; docs/how-to/trace.md says more. A `[trace]` section in terrace.toml
/// records whenever the store is open.
#[derive(Args, Debug)]
pub(crate) struct Trace {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Record a trace
    ///
    /// Of a store that a process holds, this starts the recording and ends at once; it goes on
    /// until `terrace trace stop`, or until the store is closed. With --for, the command waits and
    /// stops the recording itself. A store without an owner is held until SIGINT (Ctrl-C), or as
    /// long as --for says.
    ///
    /// The files are rotated: where --max-size would be exceeded, the oldest goes, and the next one
    /// says so. Recording again into the same directory continues it. I/O never waits for the disk
    /// of the trace: what it is too slow for is left out and counted, and a disk that fails ends
    /// the recording; `terrace trace status` tells both.
    #[command(after_long_help = "Examples:
  terrace trace record                  until `terrace trace stop`
  terrace trace record --for 60s        a minute of it
  terrace trace record --decisions --to /var/tmp/trace
  terrace trace record --hash-names     to give to others")]
    Record(record::Record),
    /// End the recording
    ///
    /// Everything that happened so far is in the trace when this returns.
    #[command(after_long_help = "Examples:
  terrace trace stop")]
    Stop,
    /// Tell whether a trace is recorded, and how the last one ended
    #[command(after_long_help = "Examples:
  terrace trace status
  terrace trace status --json | jq .recording.bytes")]
    Status,
    /// Print a trace, or what it comes to
    ///
    /// Works while it is recorded, and on a trace that is damaged: what cannot be read is left out
    /// and reported on standard error. Status 8 where anything but the end was damaged.
    ///
    /// Of a file of another program, in any format that `terrace replay` reads, it prints what it
    /// comes to: reads, writes, objects, how much others are asked for until an object is asked for
    /// again, and the working set over time.
    ///
    /// With --html it draws instead, for any trace and any number of events: docs/reference/timeline.md says what.
    #[command(after_long_help = "Examples:
  terrace trace show --summary          what it comes to
  terrace trace show --object run/42    one object's life
  terrace trace show --kind moved --kind receipt --from 10min
  terrace trace show /var/tmp/trace --json --limit 1000
  terrace trace show --html trace.html  a picture, for a browser
  terrace trace show disk.vscsi         what a trace of another program comes to")]
    Show(show::Show),
    /// Write a trace as CSV or JSON for other programs
    ///
    /// CSV has one row for each event, with a heading; rounds and decisions are left out. JSON has
    /// one value a line and everything that `terrace trace show --json` prints.
    #[command(after_long_help = "Examples:
  terrace trace export --format csv --output events.csv
  terrace trace export --format jsonl | jq 'select(.latency_ns > 1000000)'")]
    Export(export::Export),
    /// Write a trace of any format in another one
    ///
    /// Reads what `terrace replay` reads, and writes `terrace` (a new directory), `oracleGeneral` or
    /// `csv`. CSV keeps all that a replay needs. oracleGeneral keeps seconds, objects, sizes, and
    /// when an object is asked for again; it takes 12 bytes of memory a request. A trace of our own
    /// has no clients, and what is not known to be a write is a read. What was lost is reported on
    /// standard error.
    #[command(after_long_help = "Examples:
  terrace trace convert disk.vscsi --to oracleGeneral --output disk.bin
  terrace trace convert my-store/trace --to csv --output requests.csv
  terrace trace convert requests.csv --columns id=2,size=4,time=1 --to terrace --output trace")]
    Convert(convert::Convert),
    /// Write a part of a trace of any format: a window of time, a sample of its objects
    ///
    /// Time is counted from the first request. Of our own trace every event is kept as it is.
    ///
    /// A sample has all requests of its objects, so that they are asked for again as often as
    /// before; a cache for it has to be as much smaller. Which objects, a hash of their numbers
    /// says: the same in each trace that has them.
    #[command(after_long_help = "Examples:
  terrace trace cut disk.vscsi --from 10min --until 20min --output window.csv
  terrace trace cut trace.bin --sample 0.01 --output sample.bin
  terrace trace cut my-store/trace --sample 0.1 --seed 7 --to csv --output sample.csv")]
    Cut(convert::Cut),
}

impl Verb for Trace {
    const NAME: &'static str = "trace";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace trace record --for 60s        record a minute
  terrace trace show --summary          what happened
  terrace trace export --format csv --output events.csv";

    fn run(self, context: &Context) -> Result<()> {
        match self.action {
            Action::Record(record) => record.run(context),
            Action::Stop => record::stop(context),
            Action::Status => record::status(context),
            Action::Show(show) => show.run(context),
            Action::Export(export) => export.run(context),
            Action::Convert(convert) => convert.run(context),
            Action::Cut(cut) => cut.run(context),
        }
    }
}
