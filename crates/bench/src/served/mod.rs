// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cases of single operations over a store behind servers, with several clients and processes.
//!
//! The command opens no client itself: a team of copies of it, which `member` is, gets orders; `load`
//! runs the blocks of a row with them, and asks the servers what they did.

mod cluster;
mod load;
mod member;
mod order;
mod row;

use std::sync::atomic::AtomicBool;

use terrace_console::progress::Progress;
use terrace_core::{Access, Result};
use terrace_measure::sides::{Effort, Runner, Side, measure};
use terrace_store::OpenOptions;

pub use self::cluster::run as run_cluster;
pub use self::member::obey;
pub use self::row::Row;

use self::load::Load;
use self::row::Crew;
use crate::micro::{Planned, Settings, plan};

/// How many processes and clients measure.
#[derive(Clone, Debug)]
pub struct Clients {
    /// Processes with clients.
    pub processes: usize,
    /// Of each process; each number makes a row.
    pub clients: Vec<usize>,
}

impl Clients {
    /// Every row, with the clients of each process.
    fn plan(&self, settings: &Settings) -> Result<Vec<(Planned, Crew)>> {
        let crew = |clients: &usize| Crew { processes: self.processes, clients: *clients };
        let crews: Vec<_> = self.clients.iter().map(crew).collect();
        let rows = plan(settings)?.into_iter();
        Ok(rows.flat_map(|row| crews.iter().map(move |crew| (row.clone(), *crew))).collect())
    }
}

/// Measures all rows over the store behind `address`.
///
/// # Errors
///
/// `Invalid` for a batch that would not fit the memory it is given, `Unsupported` for a level that
/// the store does not give, and those of the operations, of whichever process they come from.
pub fn run(
    settings: &Settings,
    clients: &Clients,
    address: &str,
    stop: &AtomicBool,
) -> Result<Vec<Row>> {
    let plan = clients.plan(settings)?;
    let total = (plan.len() * settings.repetitions) as u64;
    let mut progress = Progress::items("bench", Some(total));
    let mut load = Load::start(address, clients.processes, stop)?;
    let mut rows = Vec::new();
    for (planned, crew) in &plan {
        let [side] = one([&mut load], settings, planned, *crew, &mut progress)?;
        rows.push(row::row(planned, *crew, address, &side));
    }
    Ok(rows)
}

/// Measures a row over several stores in turns.
fn one<const STORES: usize>(
    mut loads: [&mut Load<'_>; STORES],
    settings: &Settings,
    planned: &Planned,
    crew: Crew,
    progress: &mut Progress,
) -> Result<[Side; STORES]> {
    let (kind, case, shape) = planned;
    progress.say(format!("bench {} {case}", kind.word()));
    loads.iter_mut().try_for_each(|load| load.make(planned, crew.clients))?;
    let effort = Effort {
        threads: crew.processes * crew.clients * shape.threads,
        batch: shape.batch,
        repetitions: settings.repetitions,
        seconds: settings.seconds,
    };
    let sides =
        measure(loads.each_mut().map(|load| &mut **load as &mut dyn Runner), &effort, progress)?;
    loads.iter_mut().try_for_each(|load| load.finish())?;
    Ok(sides)
}

/// How a client opens a store: what it opens serves no other process.
fn client_options() -> OpenOptions {
    OpenOptions { access: Access::Write, serve: false, ..OpenOptions::default() }
}
