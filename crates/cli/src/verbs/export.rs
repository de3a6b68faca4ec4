// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace export`.

use std::path::PathBuf;

use clap::Args;
use terrace_core::Access;
use terrace_mount::NAME_DEFAULT;
use terrace_settings::Places;
use terrace_transfer::trees::{self, Purpose, Summary, Work};

use super::import::print;
use super::{Group, Verb};
use crate::context::{Context, alone};
use crate::failure::{Failures, Result};
use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// Copy a file system of the store into a local directory
///
/// The reverse of `terrace import`: makes DIR, where it is missing, and in it everything that the file
/// system has, with permissions, owners, times, hard links, extended attributes, access control lists
/// and holes. Without root, the caller keeps the files of other owners, as with `cp -a`: they lose the
/// set-user-ID bit with their owner and the set-group-ID bit with their group. They lose the extended
/// attributes, too, that only root may set. Their number is printed.
///
/// Run again it goes on: files with the same size, modification time, owner and permissions are taken for
/// unchanged and get the other attributes. What is in the way is replaced, but for directories that are not
/// empty. Nothing else is removed from DIR. Where the store is named by
/// its directory, nothing is written into that, its catalog and its tiers.
///
/// What cannot be copied is reported, the rest goes on, and the first failure decides the status.
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// Where to copy it
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The file system, where the store has several
    #[arg(long, value_name = "NAME", default_value = NAME_DEFAULT)]
    name: String,

    /// The directory there
    #[arg(long, value_name = "PATH", default_value = "/")]
    from: String,

    /// Go on where servers are missing over which the file system lies
    ///
    /// What is on those that are named is copied; a file of which a part is elsewhere is reported, as others
    /// that cannot be copied.
    #[arg(long)]
    degraded: bool,
}

impl Verb for Export {
    const NAME: &'static str = "export";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace export /data/copy
  terrace export --from /2024 /data/2024";

    fn run(self, context: &Context) -> Result<()> {
        let interrupt = Interrupt::watch()?;
        let places = Places::of(context.store()?);
        let checked = places.check_outside("export", &self.directory);
        checked.map_err(|error| error.with("file", self.directory.display()))?;
        let purpose = if self.degraded { Purpose::ExportDegraded } else { Purpose::Export };
        let (summary, failures) = context.with_files_at(
            context.store()?,
            &|| alone(Access::Write),
            &|store| trees::open(store, &self.name, purpose),
            |_, files| {
                let source = trees::directory(&files, &self.from, false)?;
                let mut work = Work {
                    files,
                    places,
                    interrupt: &interrupt,
                    progress: Progress::bytes("export", None),
                    failures: Failures::new(context.is_json),
                    summary: Summary::default(),
                };
                trees::export(&mut work, source, &self.directory)?;
                let Work { files, failures, summary, .. } = work;
                files.close().map_err(|failure| failure.into_error("export"))?;
                Ok((summary, failures))
            },
        )?;
        print(context, "exported", &summary)?;
        failures.finish()
    }
}
