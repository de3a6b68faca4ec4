// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Servers and clients on this machine: the cases over one server, and over all of them.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use terrace_backends::BACKENDS;
use terrace_console::progress::Progress;
use terrace_core::Result;
use terrace_settings::Settings as StoreSettings;

use super::load::Load;
use super::row::{Row, row, times};
use super::{Clients, one};
use crate::micro::{Place, Settings};
use crate::net::server::Served;
use crate::place::Scratch;

/// Starts so many servers, measures all rows over one of them and over all, in turns, and ends
/// them. Errors: as [`super::run`], and where a server does not come up.
pub fn run(
    settings: &Settings,
    clients: &Clients,
    servers: usize,
    stop: &AtomicBool,
) -> Result<Vec<Row>> {
    let plan = clients.plan(settings)?;
    let scratch = Scratch::new(&settings.place.directory)?;
    let secret = scratch.path().join("secret");
    let start = |number: usize| {
        let directory = scratch.path().join(number.to_string());
        Served::start(&directory, &store(&directory, &settings.place), &secret)
    };
    let served: Vec<_> = (0..servers).map(start).collect::<Result<_>>()?;
    let hosts: Vec<_> = served.iter().map(|served| served.tcp.to_string()).collect();
    let address =
        |hosts: &[String]| format!("terrace://{}/?secret={}", hosts.join(","), secret.display());
    let (first, all) = (address(&hosts[..1]), address(&hosts));
    let total = (plan.len() * settings.repetitions) as u64;
    let mut progress = Progress::items("bench", Some(total));
    // Declared behind the servers, and so ended before them.
    let mut of_one = Load::start(&first, clients.processes, stop)?;
    let mut rows = Vec::new();
    if servers == 1 {
        for (planned, crew) in &plan {
            let [side] = one([&mut of_one], settings, planned, *crew, &mut progress)?;
            rows.push(row(planned, *crew, &first, &side));
        }
        return Ok(rows);
    }
    let mut of_all = Load::start(&all, clients.processes, stop)?;
    for (planned, crew) in &plan {
        let loads = [&mut of_one, &mut of_all];
        let [alone, together] = one(loads, settings, planned, *crew, &mut progress)?;
        let times_one_server = Some(times(&together, &alone));
        rows.push(row(planned, *crew, &first, &alone));
        rows.push(Row { times_one_server, ..row(planned, *crew, &all, &together) });
    }
    Ok(rows)
}

/// Two tiers of one kind, and the policy that most stores have.
fn store(directory: &Path, place: &Place) -> String {
    let kind = &place.backend;
    let needs_path = BACKENDS.iter().any(|entry| entry.name == kind && entry.needs_path);
    let tier = |name: &str| {
        let path = directory.with_extension(name);
        let path = match needs_path {
            true => format!("path = \"{}\"\n", path.display()),
            false => String::new(),
        };
        format!("[[tier]]\nname = \"{name}\"\nbackend = \"{kind}\"\n{path}")
    };
    let tiers = format!("\n{}\n{}", tier("fast"), tier("slow"));
    StoreSettings::text(Some(&tiers), &place.engine, Some("lru"))
}
