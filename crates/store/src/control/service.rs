// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store as something that a server serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use terrace_admin::{Admin as _, Owned, Request, Seen, WATCH_TICK, answer};
use terrace_core::{Access, Backend, Kv, Result};
use terrace_fs::Session;
use terrace_server::{Call, Called, Caller, Kept, Openings, Service};
use terrace_stack::{Opening, WatchFilter};

/// How often a watcher is sent a sign of life where nothing happens.
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
            // It will claim what it holds from the next server.
            self.session.hand_over();
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

    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        let request = Request::read(call)?;
        if request.operation() == "watch" {
            return watch(&self.owned, &request.argument::<&WatchFilter>("filter")?, caller);
        }
        self.owned.perform(&request, &mut |done, total| caller.progress(done, total))
    }
}

/// Sends a caller what happens, until it goes away or the server ends.
fn watch(owned: &Arc<Owned>, filter: &WatchFilter, caller: &mut dyn Caller) -> Result<Called> {
    let (mut told, mut silence) = (0, Duration::ZERO);
    owned.watch(filter, &mut |seen| {
        let is_there = match seen {
            Seen::Notice(notice) => {
                (told, silence) = (notice.number, Duration::ZERO);
                answer(&notice).is_ok_and(|sent| caller.notice(&sent.json, b""))
            }
            Seen::Nothing if silence < WATCH_SAYS_EVERY => {
                silence += WATCH_TICK;
                true
            }
            Seen::Begun | Seen::Nothing => {
                silence = Duration::ZERO;
                caller.progress(told, 0)
            }
        };
        is_there && caller.goes_on()
    })?;
    answer(&())
}
