// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store as something that a server serves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use terrace_core::{Access, Backend, Error, ErrorKind, Kv, Result};
use terrace_fs::Session;
use terrace_server::{Called, Caller, Kept, Openings, Service};
use terrace_stack::{MoveTicket, Opening, ScrubOptions, Stack, WatchFilter};

use super::call::Call;
use crate::Guest;
use crate::backup::write_backup;
use crate::owned::Owned;

/// Longest wait inside one request; who waits longer asks again.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// How often it is looked whether who watches is still there, …
const WATCH_TICK: Duration = Duration::from_millis(200);

/// … and told that it still is watched, where nothing happens.
const WATCH_SAYS_EVERY: Duration = Duration::from_secs(1);

/// An owned store as something that a server serves.
pub(crate) struct Offer {
    owned: Arc<Owned>,
    /// Whether the server ends.
    is_ending: Arc<AtomicBool>,
}

impl Offer {
    pub(crate) fn new(owned: &Arc<Owned>) -> Self {
        Self { owned: Arc::clone(owned), is_ending: Arc::default() }
    }
}

/// A number that no other opening of the store has.
fn number(opening: Opening) -> u128 {
    u128::from(opening.epoch) << 64 | u128::from(opening.opened_ns)
}

/// What a client does with a file system.
struct Client {
    session: Session,
    is_ending: Arc<AtomicBool>,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.is_ending.load(Ordering::Acquire) {
            // It will claim what it has open from the next server.
            self.session.leave_open();
        }
    }
}

impl Service for Offer {
    fn store_id(&self) -> u128 {
        self.owned.stack.store_id()
    }

    fn openings(&self) -> Openings {
        if self.owned.stack.has_volatile_tiers() {
            // What was in them is gone with the process.
            return Openings { this: number(self.owned.stack.opening()), before: 0 };
        }
        let stack = &self.owned.stack;
        Openings { this: number(stack.opening()), before: number(stack.previous_opening()) }
    }

    fn backend(&self) -> &dyn Backend {
        &self.owned.stack
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        self.owned.stack.kv(namespace)
    }

    fn files(&self, namespace: &str, kept: &Kept, request: &[u8]) -> Result<Vec<u8>> {
        let client = kept.get_or_make(namespace, || {
            let tree = self.owned.shared_tree(namespace)?;
            let session = match kept.access() {
                Access::Read => Session::reading(&tree),
                Access::Write => Session::new(&tree),
            };
            Ok(Client { session, is_ending: Arc::clone(&self.is_ending) })
        })?;
        terrace_fs::answer(&client.session, request)
    }

    fn ends(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    fn call(&self, call: &terrace_server::Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        let asked: Call = serde_json::from_slice(call.json).map_err(|error| {
            Error::invalid("serve a call", "it is not one of those there are").caused_by(error)
        })?;
        if !call.is_local {
            check_reach(&asked)?;
        }
        let answer = carry_out(&self.owned, call.access, asked, call.body, caller)?;
        Ok(Called { json: answer.json, body: answer.bytes })
    }
}

/// Refuses what names files of the server's machine, or loads code there: it is for who has that
/// machine.
fn check_reach(call: &Call) -> Result<()> {
    let what = match call {
        Call::Backup { .. } => "write a backup",
        Call::AddTier { .. } => "add a tier",
        Call::RemoveTier { .. } => "remove a tier",
        Call::SetPolicy { name, .. } | Call::SetShadow { name, .. }
            if name.contains(['/', '.']) =>
        {
            "load a policy"
        }
        Call::UseGuest { .. } | Call::EndGuest { .. } => "use a policy of another process",
        Call::Record(recording) if recording.directory.is_some() => "record a trace elsewhere",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Denied, what).because(
        "it concerns files of the server; run the command there, with the store's directory",
    ))
}

/// Tells a caller what happens, until it goes away or the server ends.
fn watch(stack: &Stack, filter: &WatchFilter, caller: &mut dyn Caller) -> Result<Answer> {
    let watcher = stack.watch(filter)?;
    let (mut told, mut silence) = (0, WATCH_SAYS_EVERY);
    while caller.goes_on() {
        if silence >= WATCH_SAYS_EVERY {
            // Also at once: it has begun.
            silence = Duration::ZERO;
            if !caller.progress(told, 0) {
                break;
            }
        }
        let Some(notice) = watcher.next(WATCH_TICK)? else {
            silence += WATCH_TICK;
            continue;
        };
        silence = Duration::ZERO;
        told = notice.number;
        if !caller.notice(&Answer::json(&notice)?.json, b"") {
            break;
        }
    }
    Ok(Answer::done(()))
}

/// What a call returns: a JSON value, and bytes.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) json: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(value: &impl Serialize) -> Result<Self> {
        Self::with_bytes(value, Vec::new())
    }

    fn with_bytes(value: &impl Serialize, bytes: Vec<u8>) -> Result<Self> {
        let json = serde_json::to_vec(value).map_err(|error| {
            Error::new(ErrorKind::Io, "answer a call").because("no JSON").caused_by(error)
        })?;
        Ok(Self { json, bytes })
    }

    fn done(_: ()) -> Self {
        Self { json: b"null".into(), bytes: Vec::new() }
    }
}

/// Carries out a call.
pub(crate) fn carry_out(
    owned: &Arc<Owned>,
    access: Access,
    call: Call,
    body: &[u8],
    caller: &mut dyn Caller,
) -> Result<Answer> {
    if access == Access::Read && call.is_change() {
        return Err(Error::new(ErrorKind::Denied, "change the store")
            .because("the store is open for reading only"));
    }
    let stack = &owned.stack;
    let wait = |timeout_ns| Duration::from_nanos(timeout_ns).min(WAIT_MAX);
    match call {
        Call::Tiers => Answer::json(&stack.tiers()),
        Call::AddTier { section, before } => {
            Answer::json(&owned.add_tier(&section, before.as_deref())?)
        }
        Call::DrainTier { tier } => stack.drain_tier(&tier).map(Answer::done),
        Call::UndrainTier { tier } => stack.undrain_tier(&tier).map(Answer::done),
        Call::RemoveTier { tier } => owned.remove_tier(&tier).map(Answer::done),
        Call::Explain { key } => Answer::json(&stack.explain(&key)?),
        Call::Migrate { key, to, kind, priority, reason } => {
            let tickets = stack.migrate(&key, stack.tier(&to)?, kind, priority, &reason)?;
            Answer::json(&tickets.into_iter().map(|ticket| ticket.0).collect::<Vec<_>>())
        }
        Call::DropCopy { key, tier } => stack.drop_copy(&key, stack.tier(&tier)?).map(Answer::done),
        Call::Wait { ticket, timeout_ns } => {
            Answer::json(&stack.wait(MoveTicket(ticket), wait(timeout_ns))?)
        }
        Call::Moves => Answer::json(&stack.moves()),
        Call::Cancel { ticket } => stack.cancel(MoveTicket(ticket)).map(Answer::done),
        Call::CancelAll => Answer::json(&stack.cancel_all()),
        Call::WaitIdle { timeout_ns } => Answer::json(&stack.wait_idle(wait(timeout_ns))),
        Call::Pin { key } => stack.pin(&key).map(Answer::done),
        Call::Unpin { key } => stack.unpin(&key).map(Answer::done),
        Call::Policy => Answer::json(&owned.policy()),
        Call::SetPolicy { name, parameters } => {
            owned.set_policy(&name, &parameters).map(Answer::done)
        }
        Call::UseGuest { name, socket, parameters } => {
            owned.use_guest(&Guest { name, socket }, &parameters).map(Answer::done)
        }
        Call::SetShadow { name, parameters } => {
            owned.set_shadow(&name, &parameters).map(Answer::done)
        }
        Call::EndShadow => owned.end_shadow().map(Answer::done),
        Call::Shadow => Answer::json(&owned.stack.shadow()),
        Call::EndGuest { socket } => owned.end_guest(&socket).map(Answer::done),
        Call::SetParameter { name, value } => owned.set_parameter(&name, &value).map(Answer::done),
        Call::SetDryRun { is_dry_run } => owned.set_dry_run(is_dry_run).map(Answer::done),
        Call::SetCalls { after_events, every_ns } => {
            let every = every_ns.map(Duration::from_nanos);
            owned.set_calls(after_events, every).map(Answer::done)
        }
        Call::Message { kind } => Answer::with_bytes(&(), owned.message(&kind, body)?),
        Call::RunPolicy => owned.run_policy().map(Answer::done),
        Call::Check { verify } => {
            let mut progress = |done, total| _ = caller.progress(done, total);
            Answer::json(&stack.check(verify, &mut progress)?)
        }
        Call::CheckFiles { places } => {
            let mut progress = |pairs| _ = caller.progress(pairs, 0);
            Answer::json(&owned.check_files(None, &places, &mut progress)?)
        }
        Call::Backup { file, replace } => {
            let mut progress = |pairs| _ = caller.progress(pairs, 0);
            Answer::json(&write_backup(stack, Path::new(&file), replace, &mut progress)?)
        }
        Call::Record(recording) => owned.record(&recording).map(Answer::done),
        Call::StopRecording => Answer::json(&stack.stop_recording()?),
        Call::Recording => Answer::json(&stack.recording()),
        Call::Ledger => Answer::json(&stack.ledger()),
        Call::Scrub { bytes_per_s, namespace } => {
            let options = ScrubOptions { bytes_per_s: bytes_per_s as f64, namespace };
            Answer::json(&stack.scrub(&options, &mut |done, total| caller.progress(done, total))?)
        }
        Call::ScrubStatus => Answer::json(&stack.scrub_status()?),
        Call::Watch(filter) => watch(stack, &filter, caller),
        Call::Quotas => Answer::json(&stack.quotas()),
        Call::SpaceOf { namespace } => {
            let space = stack.space_of(&namespace)?;
            Answer::json(&(space.capacity_bytes, space.used_bytes))
        }
        Call::SetQuota { namespace, bytes_max, objects_max } => {
            Answer::json(&stack.set_quota(&namespace, bytes_max, objects_max)?)
        }
        Call::ClearQuota { namespace } => Answer::json(&stack.clear_quota(&namespace)?),
    }
}
