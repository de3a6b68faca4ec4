// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace fsck`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use terrace_core::Access;
use terrace_core::units::show_bytes;
use terrace_fs::TreeOptions;
use terrace_recovery::Source;
use terrace_recovery::checkpoint::CheckpointUsed;
use terrace_store::{CheckReport, FilesReport, OpenOptions, Problem, Reached, Store};

use super::{Group, Verb};
use crate::context::{Context, alone};
use crate::failure::{Failure, Result};
use crate::output::{Output, count, show_name};
use crate::progress::Progress;
use crate::time::show_wall;

/// The status when problems were found.
const STATUS_PROBLEMS: u8 = 1;

/// Check the store, and repair it
///
/// Compares the catalog, the accounting and what is on the tiers: every object must be where the
/// catalog says, whole and with the right identity, and no tier may hold more than is accounted
/// for. Nothing is changed. The store may be in use meanwhile.
///
/// Then every file system of the store is checked (`terrace mount`): each name must lead to a node,
/// each node be reached by as many names as it counts, each file have its bytes. One that is mounted
/// or otherwise in use is passed over with a note.
///
/// Problems are printed one a line as `problem: KIND PLACE: DETAIL`; what is unusual but harmless
/// begins with `note:`. Where PLACE is a file of a file system, by its number, a path that leads there comes
/// before DETAIL (for the first 1000 places), from the root of the file system, with the number of its
/// names where it has several; or `no path leads there`. The status is 0 when there is no problem, 1 when there is, and another one
/// when the check itself could not be done.
///
/// With --repair, where there are problems the catalog is made anew from the present one and the
/// tiers: copies stand in for primaries that are gone, records that cannot be read are made from
/// what files say of themselves, lengths are taken from the files. With --rebuild it is made from
/// the tiers, the newest checkpoint that is on one of them or where the configuration says, and the log behind
/// it, for a catalog that is lost. Where there is none, every object comes back with its bytes and its
/// name, but not its pins, its level, its history, its copies, nor key-value pairs, and with these no names
/// of files in file systems. What changed in the last moments before the catalog was lost may be as it was before.
/// `terrace restore` uses a backup that `terrace backup` wrote.
///
/// File systems are mended with --repair, and after a catalog was made anew: what has lost its name comes to
/// the directory `lost+found` under its number, counts are corrected, names that lead nowhere removed. Where
/// that was cut off after names came from a backup or a checkpoint, the file system cannot be used until
/// --repair has gone on with it.
///
/// For both, the store must not be open elsewhere. The old catalog is put aside beside the new one; no file
/// of an object that is not complete is deleted, and none that is not certainly the store's. The
/// store is checked again afterwards, and the status is that of this check.
///
/// Without the catalog it is unknown whether a migration was over when power was lost: where its two
/// files differ, the object uses the newer, and the older stays as a `doubtful-file`, reported by
/// every check until one of the two is removed: the older, or the newer and then `fsck --repair`.
#[derive(Args, Debug)]
pub(crate) struct Fsck {
    /// Also read all bytes and compare them with their checksums
    #[arg(long)]
    verify: bool,
    /// Repair what can be repaired, where there are problems
    #[arg(long, group = "change")]
    repair: bool,
    /// Make the catalog anew from the tiers, and from the last checkpoint and its log
    #[arg(long, group = "change")]
    rebuild: bool,
    /// Make a file system of the objects in a namespace, where the names of its files are lost
    ///
    /// They come to `lost+found`. Refused where the namespace holds a file system or objects that
    /// were no files. Not for the stores of several servers that clients use as one.
    #[arg(long, value_name = "NAME", requires = "repair")]
    adopt: Option<String>,
    /// Have a file system lie over the servers that are named, and over no other ones
    ///
    /// For one of several servers that are used as one: where a server was lost for good, or has
    /// another store now, or where the record of its servers cannot be read. Nothing else is checked or
    /// changed; what was on a server that is left out is not there any more. The file system must not be
    /// in use meanwhile.
    #[arg(long, value_name = "NAME", requires = "repair", conflicts_with = "adopt")]
    servers: Option<String>,
    /// Go on although a tier was last written before the others
    #[arg(long, requires = "change")]
    accept_old_tiers: bool,
}

impl Verb for Fsck {
    const NAME: &'static str = "fsck";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace fsck                          catalog against tiers
  terrace fsck --verify                 read every byte too
  terrace fsck --repair                 after a problem was found
  terrace fsck --rebuild                the catalog is lost
  terrace fsck --repair --adopt files   and so are the names of files
  terrace --store terrace://a,b fsck --repair --servers files   a third server is lost for good
  terrace fsck --json | jq .problems";

    fn run(self, context: &Context) -> Result<()> {
        if self.rebuild {
            return rebuild(context, Source::Checkpoint, self.accept_old_tiers, self.verify);
        }
        if let Some(name) = &self.servers {
            return set_servers(context, name);
        }
        if let Some(name) = &self.adopt {
            adopt(context, name)?;
        }
        let found = match self.repair {
            true => context.with_options(exclusive(), |store| check(store, self.verify))?,
            false => context.with_store_for_reading(|store| check(store, self.verify))?,
        };
        // Over a file in doubt only a person can decide.
        let is_for_repair = |one: &Problem| one.kind != "doubtful-file";
        let must_rebuild = found.store.problems.iter().any(is_for_repair);
        if self.repair && (must_rebuild || !are_sound(&found.files)) {
            if !context.is_json {
                let mut output = Output::new();
                print(&found, self.verify, &mut output)?;
                output.flush()?;
            }
            return match must_rebuild {
                true => {
                    rebuild(context, Source::PresentCatalog, self.accept_old_tiers, self.verify)
                }
                false => mend(context, self.verify),
            };
        }
        let mut output = Output::new();
        if context.is_json {
            output.json(&found.value())?;
        } else {
            print(&found, self.verify, &mut output)?;
        }
        finish(&found, output)
    }
}

/// What a check found.
struct Found {
    store: CheckReport,
    /// In the file systems of the store.
    files: Vec<FilesReport>,
    /// How the files are reached that findings of the store are about, by the place.
    paths: BTreeMap<String, Reached>,
}

impl Found {
    /// As JSON, with the paths in the findings.
    fn value(&self) -> Value {
        let findings = |list: &[Problem]| {
            let finding = |one: &Problem| {
                let mut value = json!(one);
                if let Some(reached) = self.paths.get(&one.place) {
                    value["path"] = json!(reached.path);
                    value["names"] = json!(reached.names);
                }
                value
            };
            list.iter().map(finding).collect::<Value>()
        };
        let mut value = json!(self.store);
        value["problems"] = findings(&self.store.problems);
        value["notes"] = findings(&self.store.notes);
        value["files"] = json!(self.files);
        value
    }
}

/// Opened by this process alone.
fn exclusive() -> OpenOptions {
    OpenOptions { attach: false, ..alone(Access::Write) }
}

/// Makes the file system; its objects are found to be without nodes then, and are mended.
fn adopt(context: &Context, name: &str) -> Result<()> {
    let options = TreeOptions {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
        ..TreeOptions::default()
    };
    context.with_options(exclusive(), |store| Ok(store.adopt_files(name, &options)?))?;
    if context.is_json {
        return Ok(());
    }
    let mut output = Output::new();
    output.line(format!("made a file system of the objects in {}", show_name(name)))?;
    output.flush()
}

/// Has a file system lie over the servers that are named.
fn set_servers(context: &Context, name: &str) -> Result<()> {
    let set = context.with_store(|store| Ok(store.set_files_stores(name)?))?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "name": name, "servers": set.stores, "left_out": set.left_out }))?;
        return output.flush();
    }
    let name = show_name(name);
    output.line(format!("file system {name} lies over: {}", set.stores.join(", ")))?;
    if !set.left_out.is_empty() {
        output.line(format!("left out: {}", set.left_out.join(", ")))?;
    }
    output.flush()
}

fn check(store: &Store, verify: bool) -> Result<Found> {
    let report = {
        let mut progress = Progress::items("fsck", Some(0));
        store.admin().check(verify, &mut |done, total| {
            progress.set(done, total);
            true
        })?
    };
    let mut progress = Progress::items("fsck of files", None);
    let findings = report.problems.iter().chain(&report.notes);
    let places: Vec<_> = findings.map(|one| one.place.clone()).collect();
    let mut count = counting(&mut progress);
    let mut files = store.admin().check_files(&places, &mut |done, _| {
        count(done);
        true
    })?;
    let paths = files.iter_mut().flat_map(|one| std::mem::take(&mut one.paths)).collect();
    Ok(Found { store: report, files, paths })
}

/// Shows how many there are by now.
fn counting(progress: &mut Progress) -> impl FnMut(u64) {
    let mut before = 0;
    move |done: u64| {
        progress.advance(done.saturating_sub(before));
        before = done;
    }
}

fn are_sound(files: &[FilesReport]) -> bool {
    files.iter().all(|one| one.found.is_sound())
}

fn finish(found: &Found, mut output: Output) -> Result<()> {
    output.flush()?;
    match found.store.problems.is_empty() && are_sound(&found.files) {
        true => Ok(()),
        false => Err(Failure::Reported(STATUS_PROBLEMS)),
    }
}

/// Mends file systems, where nothing else is wrong, and checks the store again.
fn mend(context: &Context, verify: bool) -> Result<()> {
    let (mended, found) = context.with_options(exclusive(), |store| {
        let mended = mend_files(store)?;
        Ok((mended, check(store, verify)?))
    })?;
    let mut output = Output::new();
    if context.is_json {
        let mut report = found.value();
        report["mended"] = json!(mended);
        output.json(&report)?;
    } else {
        print_mended(&mended, &mut output)?;
        print(&found, verify, &mut output)?;
    }
    finish(&found, output)
}

fn mend_files(store: &Store) -> Result<Vec<FilesReport>> {
    let mut progress = Progress::items("mend files", None);
    Ok(store.mend_files(&mut counting(&mut progress))?)
}

/// Makes the catalog anew, opens the store, mends its file systems and checks it.
pub(crate) fn rebuild(
    context: &Context,
    source: Source<'_>,
    accepts_old_tiers: bool,
    verify: bool,
) -> Result<()> {
    let rebuilt = {
        let mut progress = Progress::items("rebuild", Some(0));
        terrace_recovery::rebuild(
            context.store()?,
            source,
            accepts_old_tiers,
            &mut |done, total| {
                progress.set(done, total);
            },
        )?
    };
    // That it is recovered goes without saying.
    let store = Store::open_with(context.store()?, exclusive())?;
    // Until then, those whose pairs are not the present ones must not be used.
    let mended = mend_files(&store)?;
    let checked = check(&store, verify)?;
    store.close()?;
    let mut output = Output::new();
    let checkpoint = rebuilt.checkpoint;
    let old_catalog = rebuilt.old_catalog.map(|path| path.display().to_string());
    if context.is_json {
        let rebuilt = &rebuilt.report;
        output.json(&json!({
            "rebuilt": rebuilt, "old_catalog": old_catalog, "mended": mended, "check": checked.value(),
            "checkpoint": checkpoint.as_ref().map(|used| json!({
                "file": used.file, "written_ns": used.written_ns,
                "log_commits": used.log_commits, "torn_bytes": used.torn_bytes,
            })),
        }))?;
        return finish(&checked, output);
    }
    let report = &rebuilt.report;
    // A problem that the check finds as well is reported once.
    let mut problems = report.problems.clone();
    problems.retain(|problem| !checked.store.problems.contains(problem));
    print_findings(&problems, &report.notes, &checked.paths, &mut output)?;
    let pairs = match report.pairs {
        0 => String::new(),
        some => format!(", {}", count(some, "key-value pair")),
    };
    output.line(format!(
        "made a catalog of {}, {}, {}{pairs}",
        count(report.objects, "object"),
        count(report.segments, "segment"),
        show_bytes(report.bytes)
    ))?;
    if let Some(used) = &checkpoint {
        print_checkpoint(used, &mut output)?;
    }
    if let Some(old) = old_catalog {
        output.line(format!("the old catalog is in {}", show_name(&old)))?;
    }
    print_mended(&mended, &mut output)?;
    print(&checked, verify, &mut output)?;
    finish(&checked, output)
}

/// What names and pairs came from.
fn print_checkpoint(used: &CheckpointUsed, output: &mut Output) -> Result<()> {
    let file = show_name(&used.file.display().to_string());
    let torn = match used.torn_bytes {
        0 => String::new(),
        some => format!("; {} at its end were cut off", count(some, "byte")),
    };
    let commits = count(used.log_commits, "commit");
    let written = show_wall(used.written_ns);
    output.line(format!(
        "took names and pairs from the checkpoint {file} of {written}, and {commits} of the log \
         behind it{torn}"
    ))
}

/// What was done to file systems, in one line each.
fn print_mended(mended: &[FilesReport], output: &mut Output) -> Result<()> {
    for report in mended.iter().filter(|report| !report.found.is_sound()) {
        let kinds: Vec<_> = report
            .found
            .counts
            .iter()
            .map(|(kind, some)| format!("{some} {}", kind.word()))
            .collect();
        let adopted = match report.found.adopted {
            0 => String::new(),
            some => format!("; {} in lost+found", count(some, "node")),
        };
        let name = show_name(&report.name);
        output.line(format!("mended file system {name}: {}{adopted}", kinds.join(", ")))?;
    }
    Ok(())
}

fn print_files(report: &FilesReport, output: &mut Output) -> Result<()> {
    let (name, found) = (show_name(&report.name), &report.found);
    if report.is_in_use {
        let reason = "it is used or mounted, and was not checked";
        return output.line(format!("note: in-use {name}: {reason}"));
    }
    for damage in &found.damages {
        let (kind, node) = (damage.kind.word(), damage.node);
        let (path, detail) = (show_path(&damage.reached), show_name(&damage.detail));
        output.line(format!("problem: {kind} {name}/{node:016x}: {path}: {detail}"))?;
    }
    let problems = match found.damage_count() {
        0 => "no problems".into(),
        some => count(some, "problem"),
    };
    if found.foreign > 0 {
        let detail = format!("pairs or objects of another form: {}", found.foreign);
        output.line(format!("note: foreign {name}: {detail}"))?;
    }
    if !found.has_objects_checked {
        let reason = "its objects may be on several servers, and were not compared";
        let servers = match report.servers.is_empty() {
            true => String::new(),
            false => format!("; it lies over: {}", report.servers.join(", ")),
        };
        output.line(format!("note: distributed {name}: {reason}{servers}"))?;
    }
    let (directories, files) = (found.directories, count(found.files, "file"));
    let directories = match directories {
        1 => "1 directory".into(),
        some => format!("{some} directories"),
    };
    output.line(format!("file system {name}: {directories}, {files}: {problems}"))
}

/// A path that leads to a node, and how many names there are where it is not the only one.
fn show_path(reached: &Reached) -> String {
    match (&reached.path, reached.names) {
        (None, _) => "no path leads there".into(),
        (Some(path), 0 | 1) => show_name(path),
        (Some(path), names) => format!("{} (1 of {names} names)", show_name(path)),
    }
}

fn print_findings(
    problems: &[Problem],
    notes: &[Problem],
    paths: &BTreeMap<String, Reached>,
    output: &mut Output,
) -> Result<()> {
    for (word, findings) in [("problem", problems), ("note", notes)] {
        for found in findings {
            let mut place = show_name(&found.place);
            if let Some(reached) = paths.get(&found.place) {
                place = format!("{place}: {}", show_path(reached));
            }
            output.line(format!("{word}: {} {place}: {}", found.kind, show_name(&found.detail)))?;
        }
    }
    Ok(())
}

fn print(found: &Found, is_verified: bool, output: &mut Output) -> Result<()> {
    let report = &found.store;
    print_findings(&report.problems, &report.notes, &found.paths, output)?;
    let problems = match report.problems.len() {
        0 => "no problems".into(),
        some => count(some as u64, "problem"),
    };
    let verified = match is_verified {
        true => format!(", {} read", show_bytes(report.verified_bytes)),
        false => String::new(),
    };
    let (objects, segments) = (count(report.objects, "object"), count(report.segments, "segment"));
    output.line(format!("{objects}, {segments}{verified}: {problems}"))?;
    found.files.iter().try_for_each(|report| print_files(report, output))
}
