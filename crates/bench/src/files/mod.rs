// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same work in several directories, whatever file systems they are on.
//!
//! Rows of `names` are carried out by this process, those of `shared` by several at once, which
//! `member` is.

mod forget;
mod member;
mod names;
mod order;
mod shared;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use terrace_console::progress::Progress;
use terrace_core::{Error, ErrorKind, Result};
use terrace_measure::blocks::in_turns;
use terrace_measure::processes::{cpu_ns, with_children};
use terrace_measure::team::Team;
use terrace_measure::{Bound, check_stop, median};

use self::forget::forget;
use self::names::Names;
use self::shared::Shared;
use super::mount::steps::failed;
use super::place::Scratch;

pub use self::forget::numbers;
pub use self::member::obey;

/// What can be measured, in the order of the table.
pub const ROWS: [&str; 9] = [
    "create-1k",
    "stat",
    "read-1k",
    "remove",
    "ls-lr",
    "shared-seq-write-1m",
    "shared-seq-read-1m",
    "shared-rand-write-4k",
    "shared-rand-read-4k",
];

/// A directory that is measured.
#[derive(Clone, Debug)]
pub struct Place {
    /// What it is called in the report.
    pub name: String,
    /// Where it is.
    pub directory: PathBuf,
    /// The processes that do its work, beside the kernel.
    pub daemons: Vec<u32>,
    /// What a shell runs so that they forget what they keep in their own memory.
    pub forget: Option<String>,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Two blocks in each directory for each row.
    pub groups: usize,
    /// Processes that use one file.
    pub processes: usize,
    /// Length of that file.
    pub size_bytes: u64,
    /// Some of [`ROWS`]; all where there is none.
    pub rows: Vec<String>,
    /// The directories that are compared.
    pub places: Vec<Place>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub(crate) row: &'static str,
    pub(crate) unit: &'static str,
    /// Processes that did it.
    pub(crate) processes: usize,
    pub(crate) groups: usize,
    pub(crate) places: Vec<Measured>,
}

impl Row {
    /// It in a line, printed while the others run.
    fn line(&self) -> String {
        let Self { row, unit, places, .. } = self;
        let places = places.iter().map(|place| format!("{} {:.0}", place.name, place.value));
        format!("{row}, {unit}: {}", places.collect::<Vec<_>>().join(", "))
    }
}

/// What was measured in a directory.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    /// Median of the groups.
    pub(crate) value: f64,
    /// Value of the first directory divided by this one, group by group; none for the first.
    pub(crate) first_times: Option<Bound>,
    /// CPU time of the daemons for each operation; none where they are not known.
    pub(crate) daemon_cpu_us_per_op: Option<f64>,
    /// Whether the daemons forgot before every block what they kept in their own memory.
    pub(crate) daemons_forgot: bool,
}

/// Work that is done in all directories.
trait Work {
    fn unit(&self) -> Unit;

    fn processes(&self) -> usize;

    /// Whether daemons may have what it reads in their own memory: they are to forget it before a block.
    fn reads_what_was_written(&self) -> bool;

    /// Makes what a block in the directory with this number needs.
    fn prepare(&mut self, place: usize) -> Result<()>;

    /// Carries it out.
    fn run(&mut self, place: usize) -> Result<Block>;
}

/// What is counted each second.
#[derive(Clone, Copy, Debug)]
struct Unit {
    name: &'static str,
    /// What an operation counts.
    worth: f64,
}

impl Unit {
    const OPERATIONS: Self = Self { name: "operations/s", worth: 1.0 };
}

/// What blocks took.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    operations: u64,
    passed_ns: u64,
    /// CPU time of the daemons, added by the measuring process.
    cpu_ns: u64,
}

impl Block {
    fn with(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            passed_ns: self.passed_ns + other.passed_ns,
            cpu_ns: self.cpu_ns + other.cpu_ns,
        }
    }
}

/// Measures the chosen rows, until `stop` is set.
///
/// # Errors
///
/// `Denied` where this process may not drop the caches of the kernel, and those of the files and of the
/// commands that have daemons forget.
pub fn run(mut settings: Settings, stop: &AtomicBool) -> Result<Vec<Row>> {
    drop_caches()?;
    let is_chosen =
        |row: &&str| settings.rows.is_empty() || settings.rows.iter().any(|one| one == row);
    let chosen: Vec<_> = ROWS.into_iter().filter(is_chosen).collect();
    let mut progress = Progress::items("measuring", Some((chosen.len() * settings.groups) as u64));
    let scratches: Vec<_> = settings
        .places
        .iter()
        .map(|place| Scratch::new(&place.directory))
        .collect::<Result<_>>()?;
    let mut team = Team::start(&["bench", "files", "--obey"], settings.processes, stop)?;
    let mut rows = Vec::new();
    for row in chosen {
        progress.say(row.into());
        let mut directories = Vec::new();
        for scratch in &scratches {
            directories.push(scratch.inside(row)?);
        }
        let mut work: Box<dyn Work + '_> = match row.strip_prefix("shared-") {
            Some(how) => Box::new(Shared::new(how, &directories, settings.size_bytes, &mut team)?),
            None => Box::new(Names::new(row, directories.clone(), stop)?),
        };
        let measured = measure(row, &mut settings, &mut *work, stop, &mut progress)?;
        progress.aside(|| eprintln!("{}", measured.line()));
        rows.push(measured);
        drop(work);
        // Where the next row may need the room.
        for directory in &directories {
            std::fs::remove_dir_all(directory).map_err(failed)?;
        }
    }
    Ok(rows)
}

fn measure(
    row: &'static str,
    settings: &mut Settings,
    work: &mut dyn Work,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Result<Row> {
    let (groups, places) = (settings.groups, &mut settings.places);
    let (unit, processes) = (work.unit(), work.processes());
    let has_to_forget = work.reads_what_was_written();
    let sides = places.len();
    let mut values = vec![Vec::new(); sides];
    let mut totals = vec![Block::default(); sides];
    let mut measured = |place: usize| {
        check_stop(stop)?;
        work.prepare(place)?;
        if has_to_forget {
            forget(&mut places[place], stop)?;
        }
        drop_caches()?;
        // Daemons may start others: those that run before a block are looked at.
        let daemons = with_children(&places[place].daemons);
        let before_ns = cpu_ns(&daemons);
        let block = work.run(place)?;
        Ok(Block { cpu_ns: cpu_ns(&daemons).saturating_sub(before_ns), ..block })
    };
    let mut keep = |place: usize, [first, second]: [Block; 2]| {
        let both = first.with(second);
        values[place].push(both.operations as f64 * unit.worth * 1e9 / both.passed_ns as f64);
        totals[place] = totals[place].with(both);
    };
    in_turns(groups, sides, progress, &mut measured, &mut keep)?;
    let measured = places.iter().enumerate().map(|(index, place)| {
        let ratios = values[0].iter().zip(&values[index]).map(|(first, this)| first / this);
        let total = totals[index];
        Measured {
            name: place.name.clone(),
            value: median(&mut values[index].clone()),
            first_times: (index > 0).then(|| Bound::of(&ratios.collect::<Vec<_>>())),
            daemon_cpu_us_per_op: (!place.daemons.is_empty())
                .then(|| total.cpu_ns as f64 / 1e3 / total.operations as f64),
            daemons_forgot: has_to_forget && place.forget.is_some(),
        }
    });
    let places = measured.collect();
    Ok(Row { row, unit: unit.name, processes, groups, places })
}

/// Lets the kernel forget what it has of files: pages, names and attributes.
fn drop_caches() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| {
        let error = Error::from_io("drop the caches of the kernel", error);
        match error.kind() {
            ErrorKind::Denied => error.because("everything is measured cold: run it as root"),
            _ => error,
        }
    })
}
