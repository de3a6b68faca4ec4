// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which trace to read, and what of it.

use std::path::{Path, PathBuf};

use clap::Args;
use terrace_core::{Action, Error, ErrorKind, Event, EventKind, Key};
use terrace_store::Store;
use terrace_trace::{Damage, Head, Item, Problem, Reader, Record, Round, Subject};

use crate::context::Context;
use crate::failure::{self, Failure, Result, status_of};
use crate::mounted;
use crate::reading::is_stdin;
use crate::time::parse_wall;

/// What is no event and can be asked for all the same.
const OTHER_KINDS: [&str; 3] = ["round", "decision", "policy"];

#[derive(Args, Debug)]
pub(super) struct Choice {
    /// The directory of the trace [default: the configured one, or `trace` in the store's]; `show`
    /// takes a file of another program, too, or - for one on standard input
    #[arg(value_name = "TRACE")]
    directory: Option<PathBuf>,
    /// Only from this time on: `2026-11-20 20:04:58` (UTC), or a duration before now such as 10min
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only up to this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only what is about this object
    #[arg(long, value_name = "KEY")]
    object: Option<String>,
    /// Only this kind of record; may be given several times
    #[arg(long = "kind", value_name = "KIND", value_parser = kinds())]
    kinds: Vec<String>,
}

/// All kinds there are.
fn kinds() -> Vec<&'static str> {
    EventKind::ALL.map(EventKind::word).into_iter().chain(OTHER_KINDS).collect()
}

/// A record that was chosen, with what there is to know of it.
pub(super) struct Found<'a> {
    pub(super) head: &'a Head,
    /// Nanoseconds since 1970.
    pub(super) wall_ns: u64,
    pub(super) kind: &'static str,
    pub(super) record: &'a Record,
    pub(super) subject: Option<&'a Subject>,
}

impl Found<'_> {
    /// What a tier is called.
    pub(super) fn tier(&self, index: usize) -> &str {
        self.head.tiers.get(index).map_or("?", |tier| &tier.name)
    }

    pub(super) fn key(&self) -> Option<Key> {
        self.subject.map(|subject| subject.name.key())
    }
}

/// What a reading came to.
#[derive(Default)]
pub(super) struct Came {
    pub(super) files: u64,
    pub(super) last: Option<Head>,
    pub(super) problems: Vec<Problem>,
}

impl Choice {
    /// What was named, where that is a file or standard input: a trace of another program.
    pub(super) fn file(&self) -> Option<&Path> {
        self.directory.as_deref().filter(|path| path.is_file() || is_stdin(path))
    }

    /// Whether it is the whole trace.
    pub(super) fn is_whole(&self) -> bool {
        let Self { from, until, object, kinds, .. } = self;
        from.is_none() && until.is_none() && object.is_none() && kinds.is_empty()
    }

    /// The directory of the trace.
    pub(super) fn directory(&self, context: &Context) -> Result<PathBuf> {
        match &self.directory {
            Some(directory) => Ok(directory.clone()),
            None => Ok(Store::trace_directory(context.store()?)?),
        }
    }

    /// Calls `each` with every record that is chosen, until it returns false. Problems are reported
    /// as they come.
    pub(super) fn read(
        &self,
        context: &Context,
        each: &mut dyn FnMut(&Found<'_>) -> Result<bool>,
    ) -> Result<Came> {
        let directory = self.directory(context)?;
        let time = |text: &Option<String>| text.as_deref().map(parse_wall).transpose();
        let (from, until) = (time(&self.from)?, time(&self.until)?);
        let span = (from.unwrap_or(0), until.unwrap_or(u64::MAX));
        let object = match &self.object {
            Some(object) => Some(mounted::object(context, &object.into())?.1),
            None => None,
        };
        let mut reader = open(&directory)?.between(span.0, span.1);
        let mut came = Came::default();
        let mut round_ns = 0;
        while let Some(item) = reader.next_item()? {
            let record = match item {
                Item::File(head) => {
                    came.files += 1;
                    came.last = Some(head);
                    continue;
                }
                Item::Problem(problem) => {
                    tell(context, &problem);
                    came.problems.push(problem);
                    continue;
                }
                Item::Record(record) => record,
            };
            // Behind a damaged head the times are unknown.
            let Some(head) = reader.head() else { continue };
            let Some(about) = About::of(&record, &mut round_ns) else { continue };
            let About { kind, time_ns, slot } = about;
            let wall_ns = head.wall_of(time_ns);
            let is_chosen = (span.0..=span.1).contains(&wall_ns)
                && (self.kinds.is_empty() || self.kinds.iter().any(|one| one == kind));
            if !is_chosen {
                continue;
            }
            let subject = slot.and_then(|(slot, user)| reader.subject(slot, user));
            if let Some(object) = &object
                && subject.is_none_or(|subject| subject.name.key() != *object)
            {
                continue;
            }
            if !each(&Found { head, wall_ns, kind, record: &record, subject })? {
                break;
            }
        }
        Ok(came)
    }
}

fn open(directory: &Path) -> Result<Reader> {
    let reader = Reader::open(directory).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::new(ErrorKind::NotFound, "read the trace")
            .because("there is none; `terrace trace record` records one")
            .with("directory", directory.display()),
        _ => error,
    });
    Ok(reader?)
}

/// What a record is, when it was, and which segment it is about.
struct About {
    kind: &'static str,
    time_ns: u64,
    slot: Option<(u32, u32)>,
}

impl About {
    /// Of a record; `None` for those that only prepare a replay. A decision is as old as its
    /// round.
    fn of(record: &Record, round_ns: &mut u64) -> Option<Self> {
        let (kind, time_ns, slot) = match record {
            Record::Access(access) => {
                let Event { kind, time_ns, slot, incarnation, .. } = access.event;
                (kind.word(), time_ns, Some((slot, incarnation)))
            }
            Record::Round(Round { now_ns, .. }) => {
                *round_ns = *now_ns;
                ("round", *now_ns, None)
            }
            Record::Decision(Action { slot, incarnation, .. }) => {
                ("decision", *round_ns, Some((*slot, *incarnation)))
            }
            Record::Policy(change) => ("policy", change.now_ns, None),
            Record::Snapshot(_) | Record::State(_) => return None,
        };
        Some(Self { kind, time_ns, slot })
    }
}

fn tell(context: &Context, problem: &Problem) {
    match problem.what {
        Damage::Torn { .. } => context.note(&problem.to_string()),
        _ => {
            let error = Error::new(ErrorKind::Corrupt, "read a part of the trace");
            let message = error.because(problem.to_string()).chain();
            failure::print(context.is_json, ErrorKind::Corrupt.word(), &message);
        }
    }
}

impl Came {
    /// Whether anything but the end of the trace was damaged.
    pub(super) fn is_damaged(&self) -> bool {
        let is_damage = |problem: &Problem| !matches!(problem.what, Damage::Torn { .. });
        self.problems.iter().any(is_damage)
    }

    /// The end: a failure where anything but the end of the trace was damaged.
    pub(super) fn finish(self) -> Result<()> {
        match self.is_damaged() {
            true => Err(Failure::Reported(status_of(ErrorKind::Corrupt))),
            false => Ok(()),
        }
    }
}
