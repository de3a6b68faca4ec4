// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace trace show --html`: the picture of a trace, in one page.

use std::path::Path;

use askama::Template;
use terrace_core::units::show_ns;
use terrace_core::{Error, EventKind, Outcome};
use terrace_replay::{Operation, Options, Request};
use terrace_report::STYLE;
use terrace_report::timeline::{Builder, CELLS_MAX, Picture, Seen, VIEWER, What, grouped};
use terrace_trace::{Access, Record, TierState};

use super::choice::{Came, Choice, Found};
use super::line;
use crate::context::Context;
use crate::failure::{Result, from_local};
use crate::output::{Output, command_line, count, show_name};
use crate::progress::Progress;
use crate::reading::{is_same, open_once};
use crate::time::show_wall_exactly;

/// Events between two calls of the progress bar.
const PROGRESS_EVENTS: u64 = 1024;

/// The page.
#[derive(Template)]
#[template(path = "trace.html")]
struct Page {
    style: &'static str,
    title: String,
    about: String,
    version: &'static str,
    figures: Vec<(String, &'static str)>,
    key: String,
    help: &'static str,
    timeline: String,
    command: String,
    viewer: &'static str,
}

/// Draws what was chosen of the trace of a store.
pub(super) fn of_store(context: &Context, choice: &Choice, page: &Path) -> Result<()> {
    context.check_output(page)?;
    let directory = choice.directory(context)?;
    if page.parent().is_some_and(|parent| is_same(&Path::new(".").join(parent), &directory)) {
        let reason = "the page would be among the files of the trace";
        return Err(Error::invalid("draw the trace", reason).with("option", "--html").into());
    }
    let mut builder = Builder::new(CELLS_MAX);
    let mut progress = Progress::items("draw", None);
    let mut records = 0;
    let came = choice.read(context, &mut |found| {
        records += 1;
        if records % PROGRESS_EVENTS == 0 {
            progress.advance(PROGRESS_EVENTS);
        }
        take(&mut builder, found);
        Ok(true)
    })?;
    drop(progress);
    let picture = builder.finish();
    let name = directory.display().to_string();
    write(context, page, &name, &about_store(&picture, &came), &picture)?;
    came.finish()
}

/// Draws the trace of another program.
pub(super) fn of_file(
    context: &Context,
    file: &Path,
    options: &Options,
    page: &Path,
) -> Result<()> {
    context.check_output(page)?;
    let options = Options { has_lives: true, ..options.clone() };
    let (mut trace, name) = open_once(file, &options)?;
    let mut builder = Builder::new(CELLS_MAX);
    let mut progress = Progress::items("draw", None);
    let mut requests = Vec::new();
    loop {
        trace.read(&mut requests)?;
        if requests.is_empty() {
            break;
        }
        for request in &requests {
            if let Some(seen) = request_seen(request) {
                builder.take(&seen, || format!("object {}", request.object));
            }
        }
        progress.advance(requests.len() as u64);
    }
    drop(progress);
    trace.notes().iter().for_each(|note| context.note(note));
    let about = format!(
        "Format {}; it has no tiers: a replay shows how policies use them.",
        trace.format()
    );
    write(context, page, &name, &about, &builder.finish())
}

fn about_store(picture: &Picture, came: &Came) -> String {
    let mut about =
        format!("Recorded by a store, from {}.", show_wall_exactly(picture.span_ns().0));
    let (lost, deleted) =
        came.last.as_ref().map_or((0, 0), |head| (head.lost_records, head.deleted_records));
    for (records, what) in [
        (lost, "were lost because the disk of the trace was too slow"),
        (deleted, "were deleted to keep the bound of the trace"),
    ] {
        if records > 0 {
            about.push_str(&format!(" {} {what}.", count(records, "record")));
        }
    }
    if !came.problems.is_empty() {
        about.push_str(&format!(
            " {} left out.",
            count(came.problems.len() as u64, "unreadable part")
        ));
    }
    about
}

/// Writes the page, and prints what is in it.
fn write(context: &Context, page: &Path, name: &str, about: &str, picture: &Picture) -> Result<()> {
    let (first_ns, last_ns) = picture.span_ns();
    let html = Page {
        style: STYLE,
        title: show_name(name),
        about: about.into(),
        version: env!("CARGO_PKG_VERSION"),
        figures: vec![
            (grouped(picture.events()), "events"),
            (grouped(picture.objects()), "objects"),
            (show_ns(last_ns - first_ns), "from the first to the last"),
        ],
        key: picture.key(),
        help: Picture::help(),
        timeline: picture.html(name),
        command: command_line(),
        viewer: VIEWER,
    };
    let html = html.render().expect("the template asks for nothing that can fail");
    std::fs::write(page, &html)
        .map_err(|error| from_local("write the picture", error).with("file", page.display()))?;
    let mut output = Output::new();
    let file = page.display().to_string();
    if context.is_json {
        let mut value = picture.value();
        value["file"] = file.into();
        value["file_bytes"] = html.len().into();
        output.json(&value)?;
    } else {
        let (events, objects) = (picture.events(), picture.objects());
        let of = count(objects, "object");
        output.line(format_args!("{} of {of} in {}", count(events, "event"), show_name(&file)))?;
    }
    output.flush()
}

/// Takes a record of a store.
fn take(builder: &mut Builder, found: &Found<'_>) {
    let tier = |builder: &mut Builder, index: usize| {
        let tier = found.head.tiers.get(index)?;
        Some(builder.tier(&tier.name, tier.figures.capacity_bytes))
    };
    // In order of preference, whichever comes first.
    for index in 0..found.head.tiers.len() {
        tier(builder, index);
    }
    let id = found.subject.map(|subject| (subject.object_id, subject.segment));
    match found.record {
        Record::Access(access) => {
            // About no segment, or one whose name is in a damaged part.
            let event = &access.event;
            let id = id.unwrap_or((u64::MAX ^ u64::from(event.slot), event.incarnation));
            let Some(what) = what(event.kind, event.outcome) else { return };
            let place = tier(builder, event.tier.index());
            builder
                .take(&access_seen(access, id, found.wall_ns, what, place), || line::name(found));
        }
        Record::Decision(action) => {
            if let Some(id) = id {
                builder.reason(id, &action.reason);
            }
        }
        Record::Round(round) => fill(builder, found, &round.tiers),
        Record::Policy(change) => {
            fill(builder, found, &change.tiers);
            builder.note(found.wall_ns, format!("{}: {}", change.name, line::cause(change).0));
        }
        Record::Snapshot(_) | Record::State(_) => {}
    }
}

fn fill(builder: &mut Builder, found: &Found<'_>, tiers: &[TierState]) {
    for (tier, state) in found.head.tiers.iter().zip(tiers) {
        let place = builder.tier(&tier.name, tier.figures.capacity_bytes);
        builder.fill(found.wall_ns, place, tier.view(state).taken_bytes());
    }
}

fn access_seen(
    Access { event, waits }: &Access,
    id: (u64, u32),
    time_ns: u64,
    what: What,
    tier: Option<usize>,
) -> Seen {
    let end_bytes = event.offset_bytes.saturating_add(event.length_bytes);
    Seen {
        id,
        time_ns,
        what,
        tier,
        bytes: if matches!(what, What::Read | What::Write) { event.length_bytes } else { 0 },
        size_bytes: end_bytes,
        latency_ns: event.latency_ns,
        guard_ns: waits.guard_ns,
        stack_ns: waits.stack_ns,
        count: event.count.max(1).into(),
    }
}

/// What an event is in a picture; `None` for what is not drawn.
pub(crate) fn what(kind: EventKind, outcome: Outcome) -> Option<What> {
    Some(match kind {
        EventKind::Create => What::Create,
        EventKind::Present => What::Present,
        EventKind::Open => What::Open,
        EventKind::Close => What::Close,
        EventKind::Read => What::Read,
        EventKind::Write => What::Write,
        EventKind::SetLen => What::SetLength,
        EventKind::Delete => What::Delete,
        EventKind::Moved => What::Moved,
        EventKind::Copied => What::Copied,
        EventKind::Uncopied => What::Uncopied,
        EventKind::Receipt if outcome != Outcome::Done => What::Refused,
        EventKind::Receipt | EventKind::Queued => return None,
        EventKind::Timer | EventKind::Pin | EventKind::Unpin => return None,
        EventKind::Stat | EventKind::Sync => return None,
    })
}

/// A request as a picture has it; `None` for what is not drawn.
fn request_seen(request: &Request) -> Option<Seen> {
    let what = match request.operation {
        Operation::Read => What::Read,
        Operation::Write => What::Write,
        Operation::Create => What::Create,
        Operation::Open => What::Open,
        Operation::Close => What::Close,
        Operation::SetLength => What::SetLength,
        Operation::Delete => What::Delete,
        Operation::Stat | Operation::Sync => return None,
        Operation::Unknown => What::Request,
    };
    let size_bytes = match what {
        What::SetLength => request.length_bytes,
        _ => request.size_bytes.max(request.offset_bytes.saturating_add(request.length_bytes)),
    };
    let is_access = matches!(what, What::Read | What::Write | What::Request);
    Some(Seen {
        id: (request.object, 0),
        time_ns: request.time_ns,
        what,
        tier: None,
        bytes: if is_access { request.length_bytes } else { 0 },
        size_bytes,
        latency_ns: request.latency_ns,
        guard_ns: 0,
        stack_ns: 0,
        count: 1,
    })
}
