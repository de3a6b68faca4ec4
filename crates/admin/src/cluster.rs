// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several servers as one store: objects over all of them, pairs of a namespace on one of them,
//! and administration of those that it concerns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terrace_client::striped::{Distribution, Map, Striped};
use terrace_client::{Remote, RemoteKv};
use terrace_core::{Backend as _, Error, ErrorKind, Key, Kv, KvRange, Result, Space};
use terrace_server::Called;
use terrace_settings::PolicySource;
use terrace_stack::report::{
    CheckReport, Explanation, MoveReport, PolicyReport, Problem, TierReport,
};
use terrace_stack::{MoveKind, MoveTicket, WatchFilter};

use crate::operations::Admin;
use crate::reports::{FilesReport, Seen};
use crate::request::{Progress, Request};

/// Where the number of a server is in the number of a migration.
const SERVER_SHIFT: u32 = 48;

/// Several servers as one store.
pub struct Cluster {
    striped: Arc<Striped>,
    /// In the order of the map's members.
    remotes: Vec<Remote>,
    /// Which server has the pairs of a namespace.
    pairs: Mutex<HashMap<String, usize>>,
}

impl Cluster {
    /// Over these servers, which are the map's, in its order. Errors: `Invalid` for the map or the distribution.
    pub fn new(map: Map, remotes: Vec<Remote>, distribution: Distribution) -> Result<Self> {
        let mut seed = [0; 16];
        terrace_transport::random_bytes(&mut seed)?;
        let striped = Striped::new(map, distribution, u128::from_le_bytes(seed))?;
        Ok(Self { striped: Arc::new(striped), remotes, pairs: Mutex::default() })
    }

    /// Objects over all of them.
    pub fn striped(&self) -> Arc<Striped> {
        Arc::clone(&self.striped)
    }

    /// All servers, with their names.
    pub fn servers(&self) -> Vec<(&str, &Remote)> {
        let named = |(index, remote)| (self.name(index), remote);
        self.remotes.iter().enumerate().map(named).collect()
    }

    /// The pairs of a namespace: on its first home that has any, and else on the first. They stay
    /// there when servers are added. Errors: those of the servers.
    pub fn kv(&self, namespace: &str) -> Result<RemoteKv> {
        let known = self.pairs().get(namespace).copied();
        let index = match known {
            Some(index) => index,
            None => {
                let index = self.find_pairs(namespace)?;
                self.pairs().insert(namespace.into(), index);
                index
            }
        };
        Ok(self.remotes[index].kv(namespace))
    }

    fn find_pairs(&self, namespace: &str) -> Result<usize> {
        let homes = self.striped.map().pairs_homes(namespace)?;
        if homes.len() > 1 {
            for index in &homes {
                // Also those of a file system's names, but not the mark that these are elsewhere.
                let found = self.remotes[*index].kv(namespace).scan(&KvRange::all(), 2)?;
                if found.iter().any(|(key, _)| !terrace_fs::is_mark(key)) {
                    return Ok(*index);
                }
            }
        }
        Ok(homes[0])
    }

    fn pairs(&self) -> std::sync::MutexGuard<'_, HashMap<String, usize>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why something cannot be asked of all servers.
    pub fn ask_one(&self) -> Error {
        let names: Vec<_> = (0..self.remotes.len()).map(|index| self.name(index)).collect();
        Error::new(ErrorKind::Unsupported, "ask several servers at once")
            .because(format!("this is asked of one of them: {}", names.join(", ")))
    }

    fn name(&self, index: usize) -> &str {
        &self.striped.map().members()[index].name
    }

    /// Asks one of them; an error names it.
    fn on<T>(&self, index: usize, ask: impl FnOnce(&Remote) -> Result<T>) -> Result<T> {
        ask(&self.remotes[index]).map_err(|error| error.with("server", self.name(index)))
    }

    fn each<T>(&self, ask: impl Fn(&Remote) -> Result<T>) -> Result<Vec<T>> {
        (0..self.remotes.len()).map(|index| self.on(index, &ask)).collect()
    }

    /// Asks the server of every part of an object, with the key that the part has there; those that
    /// do not have it, or not the tier, do not count, unless none has. Where one fails, what was
    /// answered before is passed to `undo`.
    fn holders<T>(
        &self,
        key: &Key,
        ask: impl Fn(usize, &Remote, &Key) -> Option<Result<T>>,
        undo: impl Fn(usize, T),
    ) -> Result<Vec<(usize, T)>> {
        let mut found = Vec::new();
        let mut missing = None;
        for (index, part) in self.striped.parts(key)? {
            let Some(answer) = ask(index, &self.remotes[index], &part) else { continue };
            match self.on(index, |_| answer) {
                Ok(answer) => found.push((index, answer)),
                Err(error) if error.kind() == ErrorKind::NotFound => missing = Some(error),
                Err(error) => {
                    found.into_iter().for_each(|(index, answer)| undo(index, answer));
                    return Err(error);
                }
            }
        }
        match missing {
            Some(error) if found.is_empty() => Err(error),
            _ if found.is_empty() => Err(Error::new(ErrorKind::NotFound, "find the server")
                .because("none has this name; a tier is SERVER/TIER, or TIER where each has one")
                .with("key", key)),
            _ => Ok(found),
        }
    }

    fn placed(&self, index: usize, tier: &str) -> String {
        format!("{}/{tier}", self.name(index))
    }

    /// The tier of this name on a server, where the name is one there.
    fn tier_on<'a>(&self, index: usize, tier: &'a str) -> Option<&'a str> {
        match tier.rsplit_once('/') {
            Some((server, tier)) => (server == self.name(index)).then_some(tier),
            None => Some(tier),
        }
    }

    /// A part with the names that tiers and migrations of this server have for the whole store.
    fn named(&self, index: usize, mut part: Explanation) -> Explanation {
        for segment in &mut part.segments {
            segment.tier = self.placed(index, &segment.tier);
            for copy in &mut segment.copies {
                *copy = self.placed(index, copy);
            }
            segment.moving = segment.moving.take().map(|moving| self.moved(index, moving));
            for event in &mut segment.history {
                event.tier = self.placed(index, &event.tier);
                event.from = event.from.take().map(|from| self.placed(index, &from));
            }
        }
        part
    }

    fn moved(&self, index: usize, mut report: MoveReport) -> MoveReport {
        report.id = placed_ticket(index, report.id);
        report.from = self.placed(index, &report.from);
        report.to = self.placed(index, &report.to);
        report
    }

    /// The server of a migration, and its number there.
    fn ticket(&self, ticket: MoveTicket) -> Result<(usize, MoveTicket)> {
        let index = (ticket.0 >> SERVER_SHIFT) as usize;
        if index >= self.remotes.len() {
            return Err(
                Error::new(ErrorKind::NotFound, "find a migration").with("ticket", ticket.0)
            );
        }
        Ok((index, MoveTicket(ticket.0 & ((1 << SERVER_SHIFT) - 1))))
    }
}

/// What is not here cannot be asked of all of them.
impl Admin for Cluster {
    fn perform(&self, _: &Request<'_>, _: Progress<'_>) -> Result<Called> {
        Err(self.ask_one())
    }

    fn watch(&self, _: &WatchFilter, _: &mut dyn FnMut(Seen) -> bool) -> Result<()> {
        Err(self.ask_one())
    }

    /// The sum of the answers of all.
    fn space_of(&self, namespace: &str) -> Result<Space> {
        let (remotes, name) = (self.remotes.clone(), namespace.to_owned());
        let ask = move |index: usize| remotes[index].space_of(&name);
        self.striped.space_of(namespace, Arc::new(ask))
    }

    fn tiers(&self) -> Result<Vec<TierReport>> {
        let mut tiers = Vec::new();
        for (index, of_one) in self.each(|server| server.tiers())?.into_iter().enumerate() {
            tiers.extend(of_one.into_iter().map(|mut tier| {
                tier.name = self.placed(index, &tier.name);
                tier
            }));
        }
        Ok(tiers)
    }

    /// All parts of an object as one: the segments of each server's part, one part behind the other.
    fn explain(&self, key: &Key) -> Result<Explanation> {
        let parts = self.holders(key, |_, server, key| Some(server.explain(key)), |_, _| {})?;
        let whole = self.striped.stat(key)?;
        let named = parts.into_iter().map(|(index, part)| self.named(index, part));
        let joined = named.reduce(|mut all, part| {
            all.is_pinned |= part.is_pinned;
            all.opens = all.opens.max(part.opens);
            all.ledger = all.ledger.plus(&part.ledger);
            all.segments.extend(part.segments);
            all
        });
        let mut explanation = joined.expect("one was found");
        (explanation.size_bytes, explanation.modified_ns) = (whole.size_bytes, whole.modified_ns);
        for (segment, number) in explanation.segments.iter_mut().zip(0..) {
            segment.segment = number;
            if let Some(moving) = &mut segment.moving {
                moving.segment = number;
                key.as_str().clone_into(&mut moving.key);
            }
        }
        Ok(explanation)
    }

    fn migrate(
        &self,
        key: &Key,
        to: &str,
        kind: MoveKind,
        priority: i32,
        reason: &str,
    ) -> Result<Vec<MoveTicket>> {
        let ask = |index, server: &Remote, key: &Key| {
            Some(server.migrate(key, self.tier_on(index, to)?, kind, priority, reason))
        };
        // Their results would be lost. What has ended by then is not found, and is no harm.
        let cancel = |index: usize, tickets: Vec<MoveTicket>| {
            for ticket in tickets {
                let _ = self.remotes[index].cancel(ticket);
            }
        };
        let found = self.holders(key, ask, cancel)?.into_iter();
        let of_server = |(index, tickets): (usize, Vec<MoveTicket>)| {
            tickets.into_iter().map(move |ticket| MoveTicket(placed_ticket(index, ticket.0)))
        };
        Ok(found.flat_map(of_server).collect())
    }

    fn drop_copy(&self, key: &Key, tier: &str) -> Result<()> {
        let ask = |index, server: &Remote, key: &Key| {
            Some(server.drop_copy(key, self.tier_on(index, tier)?))
        };
        self.holders(key, ask, |_, ()| {}).map(drop)
    }

    fn wait_briefly(&self, ticket: MoveTicket, timeout: Duration) -> Result<Option<MoveReport>> {
        let (index, ticket) = self.ticket(ticket)?;
        let report = self.on(index, |server| server.wait_briefly(ticket, timeout))?;
        Ok(report.map(|report| self.moved(index, report)))
    }

    fn moves(&self) -> Result<Vec<MoveReport>> {
        let mut moves = Vec::new();
        for (index, of_one) in self.each(|server| server.moves())?.into_iter().enumerate() {
            moves.extend(of_one.into_iter().map(|report| self.moved(index, report)));
        }
        Ok(moves)
    }

    fn cancel(&self, ticket: MoveTicket) -> Result<()> {
        let (index, ticket) = self.ticket(ticket)?;
        self.on(index, |server| server.cancel(ticket))
    }

    fn cancel_all(&self) -> Result<usize> {
        Ok(self.each(|server| server.cancel_all())?.into_iter().sum())
    }

    fn wait_idle_briefly(&self, timeout: Duration) -> Result<bool> {
        let are_idle = self.each(|server| server.wait_idle_briefly(timeout))?;
        Ok(are_idle.into_iter().all(|is_idle| is_idle))
    }

    fn pin(&self, key: &Key) -> Result<()> {
        self.holders(key, |_, server, key| Some(server.pin(key)), |_, ()| {}).map(drop)
    }

    fn unpin(&self, key: &Key) -> Result<()> {
        self.holders(key, |_, server, key| Some(server.unpin(key)), |_, ()| {}).map(drop)
    }

    /// That of the first: servers of one store are given the same.
    fn policy(&self) -> Result<Option<PolicyReport>> {
        self.remotes[0].policy()
    }

    fn set_policy(&self, name: &PolicySource, parameters: &[(String, String)]) -> Result<()> {
        self.each(|server| server.set_policy(name, parameters)).map(drop)
    }

    fn set_parameter(&self, name: &str, value: &str) -> Result<()> {
        self.each(|server| server.set_parameter(name, value)).map(drop)
    }

    fn set_dry_run(&self, is_dry_run: bool) -> Result<()> {
        self.each(|server| server.set_dry_run(is_dry_run)).map(drop)
    }

    fn set_calls(&self, after_events: Option<u64>, every: Option<Duration>) -> Result<()> {
        self.each(|server| server.set_calls(after_events, every)).map(drop)
    }

    fn run_policy(&self) -> Result<()> {
        self.each(|server| server.run_policy()).map(drop)
    }

    fn check(&self, verify: bool, progress: Progress<'_>) -> Result<CheckReport> {
        let mut all = CheckReport::default();
        for index in 0..self.remotes.len() {
            let report = self.on(index, |server| server.check(verify, &mut *progress))?;
            all.objects += report.objects;
            all.segments += report.segments;
            all.verified_bytes += report.verified_bytes;
            let placed = |problem: Problem| Problem {
                place: format!("{} on {}", problem.place, self.name(index)),
                ..problem
            };
            all.problems.extend(report.problems.into_iter().map(placed));
            all.notes.extend(report.notes.into_iter().map(placed));
        }
        Ok(all)
    }

    fn check_files(&self, places: &[String], _: Progress<'_>) -> Result<Vec<FilesReport>> {
        let found = self.each(|server| server.check_files(places, &mut |_, _| true))?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// The number for the whole store of a migration of one server.
fn placed_ticket(index: usize, ticket: u64) -> u64 {
    ticket | (index as u64) << SERVER_SHIFT
}
