// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What wishes of policies from outside cost.

use terrace_core::{Action, ActionKind, View};

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
