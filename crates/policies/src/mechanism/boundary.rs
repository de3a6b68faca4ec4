// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is the same for policies from outside, whichever way they are asked: the numbers of
//! `terrace_policy.h`, and what their wishes cost.

use std::panic::resume_unwind;

use terrace_core::{Action, ActionKind, Persistency, Temperature, TierIndex, View};
use terrace_policy_abi::action;

/// Ends a call that has no error to return: the contract of `Policy` offers a panic. This one runs
/// no panic hook, which would call it a mistake of this program; the caller reports the text.
pub(crate) fn give_up(why: String) -> ! {
    resume_unwind(Box::new(why))
}

/// Bytes that an action copies; none where a clean copy is there already.
pub(crate) fn moved_bytes(view: &View, action: &Action) -> u64 {
    let (ActionKind::Move { to } | ActionKind::Promote { to } | ActionKind::Copy { to }) =
        action.kind
    else {
        return 0;
    };
    match view.segment(action.slot, action.incarnation) {
        Some(segment) if to.index() >= view.tiers.len() => segment.size_bytes,
        Some(segment) if segment.copies.contains(to) => 0,
        Some(segment) => segment.size_bytes,
        None => 0,
    }
}

/// The action of a number, `terrace_action_kind`. Tiers that the stack does not have are the stack's
/// to refuse; this keeps them such.
pub(crate) fn action_kind(kind: u32, tier: u32) -> Option<ActionKind> {
    let tier = TierIndex(u8::try_from(tier).unwrap_or(u8::MAX));
    match kind {
        action::MOVE => Some(ActionKind::Move { to: tier }),
        action::PROMOTE => Some(ActionKind::Promote { to: tier }),
        action::COPY => Some(ActionKind::Copy { to: tier }),
        action::DROP_COPY => Some(ActionKind::DropCopy { tier }),
        action::CANCEL => Some(ActionKind::Cancel),
        _ => None,
    }
}

/// A benefit, of which only numbers count.
pub(crate) fn benefit_s(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds } else { 0.0 }
}

/// `terrace_persistency`.
pub(crate) fn persistency(level: Persistency) -> u8 {
    match level {
        Persistency::None => 0,
        Persistency::Process => 1,
        Persistency::Storage => 2,
        Persistency::Shared => 3,
    }
}

/// `terrace_temperature`.
pub(crate) fn temperature(temperature: Temperature) -> u8 {
    match temperature {
        Temperature::Unknown => 0,
        Temperature::Hot => 1,
        Temperature::Cold => 2,
    }
}
