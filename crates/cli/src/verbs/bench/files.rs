// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `terrace bench files`.

use std::path::PathBuf;

use clap::Args;
use terrace_bench::files::{Place, ROWS, Settings, numbers};
use terrace_core::units::parse_bytes;
use terrace_core::{Error, Result};

pub(super) const EXAMPLES: &str = "\
Examples:
  terrace bench files --at terrace=/mnt/files --at nfs=/mnt/nfs
  terrace bench files --at a=/mnt/a --at b=/mnt/b --row stat --row ls-lr --json | jq '.rows[].places'
  terrace bench files --at a=/mnt/a --daemon a=812,815 --at local=/var/tmp --row shared-seq-read-1m --processes 8
  terrace bench files --at a=/mnt/a --row shared-rand-read-4k --forget a='umount /mnt/a && tail --pid=$(cat pid) -f /dev/null && terrace mount --json terrace://host/ /mnt/a >ready && jq .process ready | tee pid'";

#[derive(Args, Debug)]
pub(super) struct Files {
    /// A directory, and what it is called in the report; given several times
    #[arg(long = "at", value_name = "NAME=DIR", required_unless_present = "obey")]
    places: Vec<String>,
    /// Processes that do the work of a directory, whose CPU time is shown, with that of their children
    #[arg(long = "daemon", value_name = "NAME=PID[,PID...]")]
    daemons: Vec<String>,
    /// Shell command that has the daemons of a directory forget what they keep in their own memory
    ///
    /// Mostly it unmounts and mounts again. It runs before each block of `shared-seq-read-1m` and
    /// `shared-rand-read-4k`, before the kernel's caches are dropped, and is not in the time. Where the last
    /// line that it prints is not empty, it has the processes that take the place of those of --daemon:
    /// PID[,PID...]. The command has to wait for the end of the client before. One that
    /// fails ends the benchmark. After Ctrl-C it has 2 s to finish.
    #[arg(long = "forget", value_name = "NAME=COMMAND")]
    forgets: Vec<String>,
    /// Only this row; may be given several times
    #[arg(long = "row", value_name = "ROW", value_parser = ROWS)]
    rows: Vec<String>,
    /// Groups of two blocks in each directory for each row
    #[arg(long, value_name = "COUNT", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    groups: u64,
    /// Processes that use one file at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    processes: u64,
    /// Length of that file, a multiple of 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    size: String,
    /// Do what is ordered on standard input: what the command starts itself for
    #[arg(long, hide = true)]
    pub(super) obey: bool,
}

impl Files {
    pub(super) fn settings(self) -> Result<Settings> {
        let size_bytes = parse_bytes(&self.size)?;
        if size_bytes == 0 || size_bytes % (1 << 20) != 0 || size_bytes >> 20 < self.processes {
            return Err(refused(
                "--size has to be a multiple of 1 MiB, and at least 1 MiB for each process",
            )
            .with("size", &self.size));
        }
        let mut places: Vec<Place> = Vec::new();
        for text in &self.places {
            let (name, directory) = halves(text)?;
            if places.iter().any(|place| place.name == name) {
                return Err(refused("two directories have the same name").with("name", name));
            }
            let directory = PathBuf::from(directory);
            places.push(Place { name: name.into(), directory, daemons: Vec::new(), forget: None });
        }
        for text in &self.daemons {
            let (name, daemons) = halves(text)?;
            let more = numbers(daemons);
            let more =
                more.ok_or_else(|| refused("a number of a process is odd").with("daemon", text))?;
            named(&mut places, name)?.daemons.extend(more);
        }
        for text in &self.forgets {
            let (name, command) = halves(text)?;
            if named(&mut places, name)?.forget.replace(command.into()).is_some() {
                return Err(refused("a directory has two commands to forget").with("name", name));
            }
        }
        Ok(Settings {
            groups: self.groups as usize,
            processes: self.processes as usize,
            size_bytes,
            rows: self.rows,
            places,
        })
    }
}

/// The directory that was given with this name.
fn named<'a>(places: &'a mut [Place], name: &str) -> Result<&'a mut Place> {
    let place = places.iter_mut().find(|place| place.name == name);
    place.ok_or_else(|| refused("no directory has this name").with("name", name))
}

fn halves(text: &str) -> Result<(&str, &str)> {
    let halves = text.split_once('=').filter(|(name, rest)| !name.is_empty() && !rest.is_empty());
    halves.ok_or_else(|| refused("what is expected is a name, `=` and a value").with("given", text))
}

fn refused(why: &str) -> Error {
    Error::invalid("measure files", why)
}
