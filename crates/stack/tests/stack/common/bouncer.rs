// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that never stay where they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use terrace_core::{Random, TierIndex};
use terrace_stack::{MoveKind, Stack};

use super::world::all_keys;

/// Moves every object somewhere else until it is dropped.
pub(crate) struct Bouncer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bouncer {
    /// Moves objects of a stack of three tiers from now on.
    pub(crate) fn start(stack: Stack) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            let mut random = Random::new(1);
            while !over.load(Ordering::SeqCst) {
                for name in all_keys(&stack) {
                    let to = TierIndex(random.below(3) as u8);
                    let kinds = [MoveKind::Move, MoveKind::Promote, MoveKind::Copy];
                    let kind = kinds[random.below(3) as usize];
                    // The object may be gone or on its way by now.
                    let _ = stack.migrate(&name, to, kind, 0, "bounce");
                }
                std::thread::yield_now();
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let end = thread.join();
            if !std::thread::panicking() {
                end.expect("the bouncer does not panic");
            }
        }
    }
}
