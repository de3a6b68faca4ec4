// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace import`.

use std::path::PathBuf;

use clap::Args;
use terrace_core::Access;
use terrace_core::units::show_bytes;
use terrace_mount::NAME_DEFAULT;
use terrace_settings::Places;
use terrace_transfer::trees::{self, Purpose, Summary, Work};

use super::{Group, Verb};
use crate::context::{Context, alone};
use crate::failure::{Failures, Result};
use crate::interrupt::Interrupt;
use crate::output::{Output, count};
use crate::progress::Progress;

/// Copy a local directory into a file system of the store
///
/// Makes the files, directories, links and devices in DIR those of the file system that `terrace mount`
/// shows, without mounting it: with permissions, owners, times, hard links, extended attributes, access
/// control lists and holes. A file system that is not there is made. DIR's own permissions and times go to
/// the target directory.
///
/// Run again it goes on: files with the size and the modification time of the source are taken for
/// unchanged and get its other attributes, all others are copied. What is in the way is replaced, but for
/// directories that are not empty. Nothing that the source does not have is removed, but extended
/// attributes.
///
/// The directories of the store itself, its catalog and its tiers are left out, which is reported. What cannot be
/// copied, or changes while it is copied, is reported, the rest goes on, and the first failure decides the status.
#[derive(Args, Debug)]
pub(crate) struct Import {
    /// What to copy
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The file system, where the store has several
    #[arg(long, value_name = "NAME", default_value = NAME_DEFAULT)]
    name: String,

    /// The directory there, made where it is missing
    #[arg(long, value_name = "PATH", default_value = "/")]
    to: String,
}

impl Verb for Import {
    const NAME: &'static str = "import";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace import /data/results
  terrace import --to /2024 /data/results      again: what is new or changed";

    fn run(self, context: &Context) -> Result<()> {
        let interrupt = Interrupt::watch()?;
        let places = Places::of(context.store()?);
        if let Ok(found) = self.directory.metadata() {
            let checked = places.check("import", &found);
            checked.map_err(|error| error.with("file", self.directory.display()))?;
        }
        let (summary, failures) = context.with_files_at(
            context.store()?,
            &|| alone(Access::Write),
            &|store| trees::open(store, &self.name, Purpose::Import),
            |_, files| {
                let target = trees::directory(&files, &self.to, true)?;
                let mut work = Work {
                    files,
                    places,
                    interrupt: &interrupt,
                    progress: Progress::bytes("import", None),
                    failures: Failures::new(context.is_json),
                    summary: Summary::default(),
                };
                trees::import(&mut work, &self.directory, &target)?;
                let Work { files, failures, summary, .. } = work;
                let failed = |failure: terrace_fs::Failure| failure.into_error("import");
                files.sync().map_err(failed)?;
                files.close().map_err(failed)?;
                Ok((summary, failures))
            },
        )?;
        print(context, "imported", &summary)?;
        failures.finish()
    }
}

/// Prints what was done.
pub(super) fn print(context: &Context, done: &str, summary: &Summary) -> Result<()> {
    let mut output = Output::new();
    if context.is_json {
        output.json(summary)?;
        return output.flush();
    }
    let (files, bytes) = (count(summary.files, "file"), show_bytes(summary.bytes));
    let mut line = format!("{done} {files}, {bytes}");
    for (number, what) in [
        (summary.unchanged, "unchanged"),
        (summary.links, "further names"),
        (summary.symlinks, "symbolic links"),
        (summary.special, "devices, pipes and sockets"),
        (summary.owners_lost, "without their owner or group"),
        (summary.set_ids_lost, "without their set-user-ID or set-group-ID"),
        (summary.xattrs_lost, "without some extended attributes"),
        (summary.left_out, "left out"),
        (summary.failed, "failed"),
    ] {
        if number > 0 {
            line.push_str(&format!(", {number} {what}"));
        }
    }
    output.line(line)?;
    output.flush()
}
