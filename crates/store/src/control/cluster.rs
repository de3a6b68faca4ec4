// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several servers as one store: objects over all of them, pairs of a namespace on one of them,
//! and calls of the control plane to those that they concern.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use terrace_client::striped::{Distribution, Map, Striped};
use terrace_client::{Remote, RemoteKv};
use terrace_core::{Backend as _, Error, ErrorKind, Key, Kv, KvRange, Result, Space};
use terrace_stack::report::{CheckReport, Explanation, MoveReport, Problem, TierReport};

use super::call::{Call, FilesReport};
use super::link::{Asking, space_on};
use super::service::Answer;

/// Where the number of a server is in the number of a migration.
const SERVER_SHIFT: u32 = 48;

/// Several servers as one store.
pub(crate) struct Cluster {
    striped: Arc<Striped>,
    /// In the order of the map's members.
    remotes: Vec<Remote>,
    /// Which server has the pairs of a namespace.
    pairs: Mutex<HashMap<String, usize>>,
}

impl Cluster {
    /// Over these servers, which are the map's, in its order.
    pub(crate) fn new(map: Map, remotes: Vec<Remote>, distribution: Distribution) -> Result<Self> {
        let mut seed = [0; 16];
        terrace_transport::random_bytes(&mut seed)?;
        let striped = Striped::new(map, distribution, u128::from_le_bytes(seed))?;
        Ok(Self { striped: Arc::new(striped), remotes, pairs: Mutex::default() })
    }

    pub(crate) fn striped(&self) -> Arc<Striped> {
        Arc::clone(&self.striped)
    }

    /// All servers, with their names.
    pub(crate) fn servers(&self) -> Vec<(&str, &Remote)> {
        let named = |(index, remote)| (self.name(index), remote);
        self.remotes.iter().enumerate().map(named).collect()
    }

    /// The pairs of a namespace: on its first home that has any, and else on the first. They stay
    /// there when servers are added.
    pub(crate) fn kv(&self, namespace: &str) -> Result<RemoteKv> {
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

    /// The sum of what the servers say of the room of a namespace.
    pub(crate) fn space_of(&self, namespace: &str) -> Result<Space> {
        let (remotes, name) = (self.remotes.clone(), namespace.to_owned());
        let ask = move |index: usize| space_on(&remotes[index], &name);
        self.striped.space_of(namespace, Arc::new(ask))
    }

    /// Why something cannot be asked of all servers.
    pub(crate) fn ask_one(&self) -> Error {
        let names: Vec<_> = (0..self.remotes.len()).map(|index| self.name(index)).collect();
        Error::new(ErrorKind::Unsupported, "ask several servers at once")
            .because(format!("this is asked of one of them: {}", names.join(", ")))
    }

    fn name(&self, index: usize) -> &str {
        &self.striped.map().members()[index].name
    }

    fn one<T: DeserializeOwned>(&self, index: usize, call: &Call) -> Result<T> {
        let answer = self.remotes[index].exchange(call, &[], &mut |_, _| {});
        answer
            .and_then(|answer| parse(&answer))
            .map_err(|error| error.with("server", self.name(index)))
    }

    fn all<T: DeserializeOwned>(&self, call: &Call) -> Result<Vec<T>> {
        (0..self.remotes.len()).map(|index| self.one(index, call)).collect()
    }

    /// Asks the server of every part of an object, with the key that the part has there; those that
    /// do not have it, or not the tier, do not count, unless none has. Where one fails, what was
    /// answered before is passed to `undo`.
    fn holders<T: DeserializeOwned>(
        &self,
        key: &Key,
        call: impl Fn(usize, Key) -> Option<Call>,
        undo: impl Fn(usize, T),
    ) -> Result<Vec<(usize, T)>> {
        let mut found = Vec::new();
        let mut missing = None;
        for (index, part) in self.striped.parts(key)? {
            let Some(call) = call(index, part) else { continue };
            match self.one(index, &call) {
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

    fn tiers(&self) -> Result<Vec<TierReport>> {
        let mut tiers = Vec::new();
        for index in 0..self.remotes.len() {
            let of_one: Vec<TierReport> = self.one(index, &Call::Tiers)?;
            tiers.extend(of_one.into_iter().map(|mut tier| {
                tier.name = self.placed(index, &tier.name);
                tier
            }));
        }
        Ok(tiers)
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

    /// All parts of an object as one: the segments of each server's part, one part behind the other.
    fn explain(&self, key: &Key) -> Result<Explanation> {
        let asked = |_, key| Some(Call::Explain { key });
        let parts: Vec<(usize, Explanation)> = self.holders(key, asked, |_, _| {})?;
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
        report.id |= (index as u64) << SERVER_SHIFT;
        report.from = self.placed(index, &report.from);
        report.to = self.placed(index, &report.to);
        report
    }

    /// The server of a migration, and its number there.
    fn ticket(&self, ticket: u64) -> Result<(usize, u64)> {
        let index = (ticket >> SERVER_SHIFT) as usize;
        if index >= self.remotes.len() {
            return Err(Error::new(ErrorKind::NotFound, "find a migration").with("ticket", ticket));
        }
        Ok((index, ticket & ((1 << SERVER_SHIFT) - 1)))
    }

    fn check(&self, call: &Call, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let mut all = CheckReport::default();
        for (index, remote) in self.remotes.iter().enumerate() {
            let answer = remote.exchange(call, &[], progress);
            let report: CheckReport = answer
                .and_then(|answer| parse(&answer))
                .map_err(|error| error.with("server", self.name(index)))?;
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

    fn migrate(&self, call: &Call) -> Result<Vec<u64>> {
        let Call::Migrate { key, to, kind, priority, reason } = call else {
            unreachable!("the caller looked")
        };
        let asked = |index, key| {
            let to = self.tier_on(index, to)?.to_owned();
            let reason = reason.clone();
            Some(Call::Migrate { key, to, kind: *kind, priority: *priority, reason })
        };
        // Nobody would hear of them. What has ended by then is not found, and is no harm.
        let cancel = |index, tickets: Vec<u64>| {
            for ticket in tickets {
                let _ = self.one::<()>(index, &Call::Cancel { ticket });
            }
        };
        let found: Vec<(usize, Vec<u64>)> = self.holders(key, asked, cancel)?;
        let of_server = |(index, tickets): (usize, Vec<u64>)| {
            tickets.into_iter().map(move |ticket| ticket | (index as u64) << SERVER_SHIFT)
        };
        Ok(found.into_iter().flat_map(of_server).collect())
    }
}

impl Asking for Cluster {
    fn exchange(
        &self,
        call: &Call,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Answer> {
        match call {
            Call::Tiers => answer(&self.tiers()?),
            Call::Explain { key } => answer(&self.explain(key)?),
            Call::Migrate { .. } => answer(&self.migrate(call)?),
            Call::Pin { key } => {
                self.holders(key, |_, key| Some(Call::Pin { key }), |_, ()| {})?;
                answer(&())
            }
            Call::Unpin { key } => {
                self.holders(key, |_, key| Some(Call::Unpin { key }), |_, ()| {})?;
                answer(&())
            }
            Call::DropCopy { key, tier } => {
                let asked = |index, key| {
                    let tier = self.tier_on(index, tier)?.to_owned();
                    Some(Call::DropCopy { key, tier })
                };
                self.holders(key, asked, |_, ()| {})?;
                answer(&())
            }
            Call::Wait { ticket, timeout_ns } => {
                let (index, ticket) = self.ticket(*ticket)?;
                let call = Call::Wait { ticket, timeout_ns: *timeout_ns };
                let report: Option<MoveReport> = self.one(index, &call)?;
                answer(&report.map(|report| self.moved(index, report)))
            }
            Call::Cancel { ticket } => {
                let (index, ticket) = self.ticket(*ticket)?;
                self.one::<()>(index, &Call::Cancel { ticket })?;
                answer(&())
            }
            Call::Moves => {
                let mut moves = Vec::new();
                for index in 0..self.remotes.len() {
                    let of_one: Vec<MoveReport> = self.one(index, call)?;
                    moves.extend(of_one.into_iter().map(|report| self.moved(index, report)));
                }
                answer(&moves)
            }
            Call::CancelAll => answer(&self.all::<usize>(call)?.into_iter().sum::<usize>()),
            Call::WaitIdle { .. } => {
                answer(&self.all::<bool>(call)?.into_iter().all(|is_idle| is_idle))
            }
            // Servers of one store are given the same policy; the first speaks for all.
            Call::Policy => self.remotes[0].exchange(call, parts, progress),
            Call::SetPolicy { .. }
            | Call::SetParameter { .. }
            | Call::SetDryRun { .. }
            | Call::SetCalls { .. }
            | Call::RunPolicy => {
                self.all::<()>(call)?;
                answer(&())
            }
            Call::Check { .. } => answer(&self.check(call, progress)?),
            Call::CheckFiles { .. } => {
                let found = self.all::<Vec<FilesReport>>(call)?;
                answer(&found.into_iter().flatten().collect::<Vec<_>>())
            }
            _ => Err(self.ask_one()),
        }
    }
}

fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T> {
    serde_json::from_slice(&answer.json).map_err(|error| {
        Error::new(ErrorKind::Corrupt, "read an answer").because("no JSON").caused_by(error)
    })
}

fn answer(value: &impl Serialize) -> Result<Answer> {
    Answer::json(value)
}
