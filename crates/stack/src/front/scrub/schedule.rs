// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a store is scrubbed by itself, and what the catalog remembers of it: a restart goes on
//! where the last opening was, and does not begin anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrace_core::{Access, Key, Result};

use super::{Scrub, ScrubOptions};
use crate::catalog::codec::{Reader, Writer};
use crate::catalog::map::Write;
use crate::report::{Problem, ScrubReport, ScrubStatus, ScrubSummary};
use crate::shared::Shared;
use crate::tiers::account::Class;

const KEY: u8 = b'c';
const VERSION: u8 = 1;

/// How often the position is written.
const SAVED_NS: u64 = 10_000_000_000;

/// Findings that are kept in the catalog.
const FINDINGS_MAX: usize = 100;

/// Longest time between two looks whether a scrub is due.
const LOOK_NS: u64 = 60_000_000_000;

/// What the catalog remembers.
#[derive(Clone, Debug, Default)]
struct State {
    /// When the scrub began that has not ended, nanoseconds since 1970; 0 where there is none.
    started_ns: u64,
    /// The last object that it has done.
    position: Option<Key>,
    now: Sum,
    /// When the last one ended; 0 where there was none.
    ended_ns: u64,
    last: Sum,
    /// What the one that runs, or else the last, has found.
    findings: Vec<Problem>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    objects: u64,
    bytes: u64,
    problems: u64,
}

impl Sum {
    fn plus(self, report: &ScrubReport) -> Self {
        Self {
            objects: self.objects + report.objects,
            bytes: self.bytes + report.read_bytes,
            problems: self.problems + report.problem_count,
        }
    }
}

impl State {
    fn load(shared: &Shared) -> Result<Self> {
        let rows = shared.catalog.rows(KEY)?;
        let Some((_, bytes)) = rows.first() else { return Ok(Self::default()) };
        let mut input = Reader::new(bytes, VERSION, "scrub")?;
        let started_ns = input.u64()?;
        let position = Some(input.text()?).filter(|text| !text.is_empty());
        let position = position.map(|text| Key::parse(&text)).transpose()?;
        let sum = |input: &mut Reader<'_>| -> Result<Sum> {
            Ok(Sum { objects: input.u64()?, bytes: input.u64()?, problems: input.u64()? })
        };
        let now = sum(&mut input)?;
        let ended_ns = input.u64()?;
        let last = sum(&mut input)?;
        let mut findings = Vec::new();
        for _ in 0..input.u32()? {
            let (kind, place, detail) = (input.text()?, input.text()?, input.text()?);
            findings.push(Problem { kind, place, detail });
        }
        input.finish()?;
        Ok(Self { started_ns, position, now, ended_ns, last, findings })
    }

    fn save(&self, shared: &Shared) -> Result<()> {
        let mut out = Writer::new(VERSION);
        out.u64(self.started_ns);
        out.text(self.position.as_ref().map_or("", Key::as_str));
        let sum = |out: &mut Writer, sum: Sum| {
            out.u64(sum.objects).u64(sum.bytes).u64(sum.problems);
        };
        sum(&mut out, self.now);
        out.u64(self.ended_ns);
        sum(&mut out, self.last);
        let kept = &self.findings[self.findings.len().saturating_sub(FINDINGS_MAX)..];
        out.u32(kept.len() as u32);
        for found in kept {
            out.text(&found.kind).text(&found.place).text(&found.detail);
        }
        shared.catalog.commit(&[Write::Row(vec![KEY], Some(out.finish()))]).map(drop)
    }

    /// The whole store was read.
    fn end(&mut self, shared: &Shared, sum: Sum) {
        self.ended_ns = shared.clock.wall_ns();
        self.last = sum;
        (self.started_ns, self.position, self.now) = (0, None, Sum::default());
    }
}

/// A scrub that a caller waits for.
pub(super) fn run_asked(
    shared: &Shared,
    options: &ScrubOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<ScrubReport> {
    let _running = crate::lock(&shared.scrubbing.running);
    let total = total_bytes(shared, options.namespace.as_deref());
    let mut go_on = |report: &ScrubReport| progress(report.read_bytes.min(total), total);
    let mut scrub = Scrub::new(shared, options.bytes_per_s, &mut go_on);
    scrub.walk(options.namespace.as_deref(), None, &mut |_, _| Ok(()))?;
    let report = scrub.report;
    let is_kept = report.is_complete && shared.settings.access == Access::Write;
    if is_kept && options.namespace.is_none() {
        let mut state = State::load(shared)?;
        state.findings.clone_from(&report.problems);
        state.end(shared, Sum::default().plus(&report));
        state.save(shared)?;
        *crate::lock(&shared.scrubbing.idle_until_ns) = 0;
    }
    if report.is_complete {
        progress(total, total);
    }
    Ok(report)
}

/// What there is to read, so far as it is known.
fn total_bytes(shared: &Shared, namespace: Option<&str>) -> u64 {
    match namespace {
        Some(namespace) => shared.usages.of(namespace).bytes.used(),
        None => {
            let bytes = |class| shared.tiers.iter().map(move |tier| tier.account.bytes(class));
            bytes(Class::Used).chain(bytes(Class::Copy)).sum()
        }
    }
}

/// Scrubs in the background where it is due, until it is done or the store closes.
pub(crate) fn tick(shared: &Arc<Shared>) {
    let Some(every) = shared.settings.scrub_every else { return };
    let scrubbing = &shared.scrubbing;
    let now_ns = shared.clock.wall_ns();
    if now_ns < *crate::lock(&scrubbing.idle_until_ns) {
        return;
    }
    let Ok(_running) = scrubbing.running.try_lock() else { return };
    // What fails is tried again after a while; a catalog that fails shows elsewhere.
    let due_ns = run_due(shared, every).unwrap_or(0);
    let look_ns = now_ns.saturating_add(LOOK_NS);
    *crate::lock(&scrubbing.idle_until_ns) = match shared.scrubbing.is_asked.load(Ordering::Acquire)
    {
        // It goes on as soon as it may.
        true => 0,
        false if due_ns <= now_ns => look_ns,
        false => due_ns.min(look_ns),
    };
}

/// Runs a scrub that is due; when the next one is.
fn run_due(shared: &Arc<Shared>, every: Duration) -> Result<u64> {
    let mut state = State::load(shared)?;
    let now_ns = shared.clock.wall_ns();
    let due = |state: &State| state.ended_ns.saturating_add(every.as_nanos() as u64);
    if state.started_ns == 0 {
        if state.ended_ns > 0 && now_ns < due(&state) {
            return Ok(due(&state));
        }
        state = State { started_ns: now_ns, findings: Vec::new(), ..state };
        state.save(shared)?;
    }
    let scrubbing = &shared.scrubbing;
    scrubbing.is_running.store(true, Ordering::Release);
    let mut go_on = |_: &ScrubReport| !scrubbing.is_asked.load(Ordering::Acquire);
    let mut scrub = Scrub::new(shared, shared.settings.scrub_bytes_per_s, &mut go_on);
    let before = state.clone();
    let mut saved_ns = shared.clock.now_ns();
    let position = state.position.clone();
    let result = scrub.walk(None, position, &mut |key, report| {
        state.position = Some(key.clone());
        if shared.clock.now_ns().saturating_sub(saved_ns) > SAVED_NS {
            saved_ns = shared.clock.now_ns();
            note(&mut state, &before, report);
            state.save(shared)?;
        }
        Ok(())
    });
    let report = scrub.report;
    scrubbing.is_running.store(false, Ordering::Release);
    note(&mut state, &before, &report);
    if report.is_complete {
        let sum = state.now;
        state.end(shared, sum);
    }
    state.save(shared)?;
    result.map(|()| due(&state))
}

fn note(state: &mut State, before: &State, report: &ScrubReport) {
    state.now = before.now.plus(report);
    state.findings.clone_from(&before.findings);
    state.findings.extend(report.problems.iter().cloned());
}

/// For people.
pub(crate) fn status(shared: &Shared) -> Result<ScrubStatus> {
    let state = State::load(shared)?;
    let summary = |ns: u64, sum: Sum| {
        (ns > 0).then_some(ScrubSummary {
            wall_ns: ns,
            objects: sum.objects,
            read_bytes: sum.bytes,
            problems: sum.problems,
        })
    };
    Ok(ScrubStatus {
        every_ns: shared.settings.scrub_every.map(|every| every.as_nanos() as u64),
        bytes_per_s: shared.settings.scrub_bytes_per_s,
        is_running: shared.scrubbing.is_running.load(Ordering::Acquire),
        is_asked: shared.scrubbing.is_asked.load(Ordering::Acquire),
        begun: summary(state.started_ns, state.now),
        position: state.position.as_ref().map(ToString::to_string),
        ended: summary(state.ended_ns, state.last),
        findings: state.findings,
    })
}
