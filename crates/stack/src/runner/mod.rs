// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy on its own thread: events in, actions out, and a watchdog over it.

mod mind;
pub(crate) mod recording;
mod witness;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mind::Mind;
pub(crate) use mind::{FALLBACK, fallback};
use terrace_core::{Error, ErrorKind, Result, TierIndex, TierView};
use terrace_trace::Writer;

use crate::Tactics;
use crate::report::{PolicyReport, ShadowReport};
use crate::shadow;
use crate::shared::Shared;
use crate::shared::desk::{Command, Reply};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;

/// What a caller waits beyond the time that one call of the policy may take.
const ANSWER_SLACK: Duration = Duration::from_secs(2);

/// Longest that a close waits for a policy that does not come back.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// Starts the policy's thread over everything that is in the catalog.
pub(crate) fn start(shared: &Arc<Shared>, tactics: Tactics) -> Result<()> {
    let mind = Mind::new(shared, tactics, None)?;
    spawn(shared, mind)
}

fn spawn(shared: &Arc<Shared>, mind: Mind) -> Result<()> {
    let turn = shared.desk.begin_turn(mind.call_time_max());
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name("terrace-policy".into())
        .spawn(move || live(&shared, mind, turn))
        .map(drop)
        .map_err(|error| Error::from_io("start the policy's thread", error))
}

/// The thread's life. It ends when the stack closes, or when the watchdog gave up on it and
/// `turn` is another thread's.
fn live(shared: &Arc<Shared>, mut mind: Mind, turn: u64) {
    let desk = &shared.desk;
    mind.introduce(shared, turn);
    while desk.is_turn(turn) {
        shared.mailbox.wait(mind.every());
        rest(shared, &mind, turn);
        if !desk.is_turn(turn) {
            return;
        }
        let commands = desk.take_commands();
        mind.round(shared, turn);
        let mut is_last = false;
        for (command, answer) in commands {
            if !desk.is_turn(turn) {
                return;
            }
            is_last |= matches!(command, Command::Stop);
            let reply = mind.obey(shared, turn, command);
            answer.give(reply);
        }
        if is_last {
            desk.end_turn(turn);
            return;
        }
    }
}

/// Waits until the policy may be asked again, or there is a command for it. Events are taken out
/// of the rings meanwhile, so that none of them fills up.
fn rest(shared: &Shared, mind: &Mind, turn: u64) {
    while shared.desk.is_turn(turn) && !shared.desk.has_commands() {
        let left_ns = mind.rests_until_ns().saturating_sub(shared.clock.now_ns());
        if left_ns == 0 || !shared.mailbox.wait(Duration::from_nanos(left_ns)) {
            return;
        }
    }
}

/// Replaces a policy that has been inside one call for too long. Called by the keeper.
pub(crate) fn watch(shared: &Arc<Shared>) {
    let Some(stuck) = shared.desk.overdue(shared.clock.now_ns()) else { return };
    let name = shared.desk.report(|report| report.name.clone());
    let (call, longest) = (stuck.word(), shared.desk.call_time_max());
    let why = format!("{name}: {call} took longer than {longest:?}");
    // The old thread finds that its turn is over when, if ever, the policy returns.
    if let Ok(mind) = Mind::new(shared, fallback(shared), Some(why.clone())) {
        tracing::warn!(why, "the policy was replaced by {FALLBACK}");
        shared.tell_policy(FALLBACK, "replaced", || why);
        shared.desk.abandon();
        shared.desk.cancel();
        let _ = spawn(shared, mind);
    }
}

/// Saves the policy's state and ends its thread; one that hangs is left behind.
pub(crate) fn stop(shared: &Shared) {
    let answer = shared.desk.ask(Command::Stop);
    shared.mailbox.call();
    answer.wait(STOP_TIME_MAX);
    shared.desk.abandon();
    shared.desk.cancel();
    recording::end(shared);
}

/// What runs where none is configured: new objects go to the first tier with room and stay.
pub(crate) fn none(shared: &Shared) -> Tactics {
    Tactics { name: NO_POLICY.into(), ..fallback(shared) }
}

const NO_POLICY: &str = "none";

fn ask(shared: &Shared, command: Command) -> Result<Reply> {
    let is_for_policy = matches!(command, Command::Parameter(..) | Command::Message(..));
    let reason = if shared.is_bare {
        "a store with one tier runs one only where it is opened with it: write [policy] into its \
         terrace.toml"
    } else {
        "the store has no policy; configure one"
    };
    if shared.is_bare || is_for_policy && report(shared).is_none() {
        return Err(Error::new(ErrorKind::Unsupported, "reach the policy").because(reason));
    }
    let longest = shared.desk.call_time_max() + ANSWER_SLACK;
    let answer = shared.desk.ask(command);
    shared.mailbox.call();
    answer.wait(longest).unwrap_or_else(|| {
        Err(Error::new(ErrorKind::Busy, "reach the policy").because("it does not answer"))
    })
}

/// The policy as it is now; never waits for it. `None` where none was configured.
pub(crate) fn report(shared: &Shared) -> Option<PolicyReport> {
    shared.desk.report(|report| {
        if report.name == NO_POLICY {
            return None;
        }
        let mut report = report.clone();
        // Published with those of before.
        report.coalesced_events =
            shared.mailbox.coalesced().saturating_sub(report.coalesced_events);
        report.after_events = shared.mailbox.after_events.load(Ordering::Relaxed);
        Some(report)
    })
}

/// Swaps the policy at a batch boundary.
pub(crate) fn set_policy(shared: &Shared, tactics: Tactics) -> Result<()> {
    ask(shared, Command::Policy(Box::new(tactics))).map(drop)
}

/// Changes a parameter.
pub(crate) fn set_parameter(shared: &Shared, name: &str, value: &str) -> Result<()> {
    ask(shared, Command::Parameter(name.into(), value.into())).map(drop)
}

/// Switches dry run on or off.
pub(crate) fn set_dry_run(shared: &Shared, is_dry_run: bool) -> Result<()> {
    ask(shared, Command::DryRun(is_dry_run)).map(drop)
}

/// Lets a policy decide in the shadow, in place of one that may do so, or ends that.
pub(crate) fn set_shadow(shared: &Shared, tactics: Option<Tactics>) -> Result<()> {
    ask(shared, Command::Shadow(tactics.map(Box::new))).map(drop)
}

/// What the shadow would have done; `None` where there is none. Never waits for it.
pub(crate) fn shadow(shared: &Shared) -> Option<ShadowReport> {
    shared.desk.with_shadow(shadow::Shadow::report)
}

/// Changes when the policy is called.
pub(crate) fn set_calls(
    shared: &Shared,
    after_events: Option<u64>,
    every: Option<Duration>,
) -> Result<()> {
    if after_events == Some(0) || every == Some(Duration::ZERO) {
        return Err(Error::invalid("set when the policy is called", "zero would be all the time"));
    }
    ask(shared, Command::Calls(after_events, every)).map(drop)
}

/// Records a trace from the next batch on.
pub(crate) fn record(shared: &Shared, writer: Writer, tactics: Option<Tactics>) -> Result<()> {
    ask(shared, Command::Record(Box::new(writer), tactics.map(Box::new))).map(drop)
}

/// Sends a message; returns the policy's reply.
pub(crate) fn message(shared: &Shared, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
    ask(shared, Command::Message(kind.into(), body.into()))
}

/// Calls the policy with everything that happened so far.
pub(crate) fn run_now(shared: &Shared) -> Result<()> {
    ask(shared, Command::Run).map(drop)
}

/// The tiers as they are now.
pub(crate) fn tier_views(shared: &Shared) -> Vec<TierView> {
    let one = |(index, tier): (usize, &TierState)| {
        let (incoming_bytes, outgoing_bytes) = shared.mover.pending_bytes(TierIndex(index as u8));
        TierView {
            name: tier.name.clone(),
            figures: tier.figures,
            watermarks: tier.watermarks,
            persistency: tier.capability.persistency,
            used_bytes: tier.account.bytes(Class::Used),
            reserved_bytes: tier.account.bytes(Class::Reserved),
            copy_bytes: tier.account.bytes(Class::Copy),
            // Policies know of no versions; both take room that is not theirs to free.
            garbage_bytes: tier.account.bytes(Class::Garbage) + tier.account.bytes(Class::Kept),
            incoming_bytes,
            outgoing_bytes,
            utilisation: tier.utilisation_permille.load(Ordering::Relaxed) as f64 / 1000.0,
            is_writable: tier.takes_data(),
        }
    };
    shared.tiers.iter().enumerate().map(one).collect()
}
