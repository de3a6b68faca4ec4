// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace cache`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use terrace_core::units::show_bytes;
use terrace_source::{CacheStatus, evict};

use super::{Group, Verb};
use crate::cached::{cache_of, place_of};
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::output::{Output, count};

/// Look into the cache of a mounted directory or bucket, and drop copies from it
///
/// The cache is that of `terrace mount --source DIR|URL --cache DIR`. Its mount is asked over a socket
/// in the directory of the cache, which is for the user that mounted, and root.
#[derive(Args, Debug)]
pub(crate) struct Cache {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what a cache holds, and how often files were found in it
    ///
    /// A hit is the open of a file of which there is a copy, a miss that of another one; both count
    /// from the mount on. While nothing is mounted the copies are counted, which takes a while
    /// where there are many.
    #[command(after_long_help = "Examples:
  terrace cache show /data                 by the mount
  terrace cache show /nvme/terrace         by its directory, also when unmounted
  terrace cache show --json /data | jq '.hits / (.hits + .misses)'")]
    Show {
        /// Something on the mount, or the directory of the cache
        path: PathBuf,
    },
    /// Drop the copies of files, and of what is below directories
    ///
    /// Nothing is lost: a file is fetched again when it is next opened. A file that is open stays
    /// readable. Of a large one that is open nothing is kept until it is closed.
    #[command(after_long_help = "Examples:
  terrace cache evict /data/imagenet/old
  terrace cache evict /data                everything")]
    Evict {
        /// Files and directories on the mount
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
}

impl Verb for Cache {
    const NAME: &'static str = "cache";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace cache show /data
  terrace cache evict /data/imagenet/old";

    fn run(self, context: &Context) -> Result<()> {
        match self.action {
            Action::Show { path } => show(&path, context),
            Action::Evict { paths } => evict_all(&paths, context),
        }
    }
}

fn show(path: &Path, context: &Context) -> Result<()> {
    let directory = cache_of(path)?;
    let status = CacheStatus::of(directory.as_deref().unwrap_or(path))?;
    let mut output = Output::new();
    match context.is_json {
        true => output.json(&shape(&status))?,
        false => print(&status, &mut output)?,
    }
    output.flush()
}

fn shape(status: &CacheStatus) -> Value {
    let report = &status.report;
    // What only the process knows is null without one.
    let known = |number: u64| status.user.is_some().then_some(number);
    json!({
        "source": status.source,
        "cache": status.directory.to_string_lossy(),
        "process": status.user.as_ref().map(|(process, _)| process),
        "purpose": status.user.as_ref().map(|(_, purpose)| purpose),
        "files": report.copies,
        "used_bytes": report.used_bytes,
        "bytes_max": known(report.bytes_max),
        "is_counted": report.is_counted,
        "hits": known(report.hits),
        "misses": known(report.misses),
        "fetched_bytes": known(report.fetched_bytes),
        "evicted_files": known(report.evicted),
        "uncached_opens": known(report.refused),
    })
}

fn print(status: &CacheStatus, output: &mut Output) -> Result<()> {
    let report = &status.report;
    output.line(format!("source  {}", status.source))?;
    output.line(format!("cache   {}", status.directory.display()))?;
    let counting =
        if report.is_counted { "" } else { "; copies of earlier mounts are being counted" };
    let used = show_bytes(report.used_bytes);
    let files = count(report.copies, "file");
    let Some((process, purpose)) = &status.user else {
        output.line(format!("holds   {files}, {used}"))?;
        return output.line("used by no process");
    };
    let bytes_max = show_bytes(report.bytes_max);
    output.line(format!("holds   {files}, {used} of {bytes_max}{counting}"))?;
    let opens = report.hits + report.misses;
    let share = match opens {
        0 => String::new(),
        _ => format!(" ({:.1} % hits)", report.hits as f64 / opens as f64 * 100.0),
    };
    let misses = if report.misses == 1 { "miss" } else { "misses" };
    output.line(format!(
        "opens   {}, {} {misses}{share}; {} past the cache",
        count(report.hits, "hit"),
        report.misses,
        report.refused
    ))?;
    output.line(format!(
        "since   the mount: {} fetched, {} evicted for others",
        show_bytes(report.fetched_bytes),
        count(report.evicted, "file")
    ))?;
    output.line(format!("used by process {process}: {purpose}"))
}

fn evict_all(paths: &[PathBuf], context: &Context) -> Result<()> {
    let mut output = Output::new();
    let mut failures = Failures::new(context.is_json);
    for path in paths {
        let evicted = place_of(path).and_then(|(cache, below)| Ok(evict(&cache, &below)?));
        let Some((files, bytes)) = failures.note(evicted)? else { continue };
        match context.is_json {
            true => output.json(&json!({
                "path": path.to_string_lossy(),
                "files": files,
                "bytes": bytes,
            }))?,
            false => output.line(format!(
                "{}: dropped {}, {}",
                path.display(),
                count(files, "file"),
                show_bytes(bytes)
            ))?,
        }
    }
    output.flush()?;
    failures.finish()
}
