// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sessions of a server, by their numbers.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use terrace_core::{Access, Applied, Error, ErrorKind, Result};
use terrace_transport::random_bytes;

use crate::limits::Limits;
use crate::session::Session;

/// The sessions of a server, those without connections included.
#[derive(Default)]
pub(crate) struct Sessions {
    state: Mutex<State>,
    /// Notified when what the service kept for a session is dropped.
    dropped: Condvar,
}

#[derive(Default)]
struct State {
    live: HashMap<u64, Arc<Session>>,
    /// Those that have ended, and for which the service still keeps something: a client that comes
    /// back would be in its own way.
    ending: HashSet<u64>,
}

/// Sessions whose clients did not come back; their ends are still to be carried out.
pub(crate) struct Expired(Vec<(u64, Arc<Session>)>);

impl Expired {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Sessions {
    /// The session of this number.
    pub(crate) fn join(
        &self,
        number: u64,
        access: Access,
        limits: &Limits,
    ) -> Result<Arc<Session>> {
        let is_ending = |sessions: &mut State| sessions.ending.contains(&number);
        let sessions = self.state();
        // Not for as long as the client waits: it is to hear why.
        let wait_max = limits.greeting_time_max / 2;
        let waited = self.dropped.wait_timeout_while(sessions, wait_max, is_ending);
        let mut sessions = waited.unwrap_or_else(PoisonError::into_inner).0;
        if is_ending(&mut sessions) {
            // It may try again.
            let kind = ErrorKind::Unreachable { applied: Applied::No };
            return Err(Error::new(kind, "begin a session")
                .because("the one before it of the same client has not ended so far"));
        }
        let sessions = &mut sessions.live;
        if let Some(session) = sessions.get(&number) {
            if session.access != access {
                return Err(Error::new(ErrorKind::Denied, "join a session")
                    .because("it was begun for another kind of access"));
            }
            session.connections.fetch_add(1, Ordering::AcqRel);
            return Ok(Arc::clone(session));
        }
        if sessions.len() >= limits.sessions_max {
            return Err(Error::new(ErrorKind::Busy, "begin a session")
                .because("there are too many")
                .with("sessions_max", limits.sessions_max));
        }
        let mut life = [0; 8];
        random_bytes(&mut life)?;
        let session = Arc::new(Session::new(access, u64::from_le_bytes(life), limits));
        session.connections.fetch_add(1, Ordering::AcqRel);
        sessions.insert(number, Arc::clone(&session));
        Ok(session)
    }

    /// Takes the sessions out that have no connection since a time for which `is_over` holds. Also returns
    /// whether others have no connection.
    pub(crate) fn expire(&self, is_over: impl Fn(u64) -> bool) -> (Expired, bool) {
        let mut expired = Vec::new();
        let mut is_any_left = false;
        let mut state = self.state();
        state.live.retain(|number, session| {
            if session.connections.load(Ordering::Acquire) > 0 {
                return true;
            }
            let is_kept = !is_over(session.left_ns.load(Ordering::Acquire));
            is_any_left |= is_kept;
            if !is_kept {
                expired.push((*number, Arc::clone(session)));
            }
            is_kept
        });
        state.ending.extend(expired.iter().map(|(number, _)| *number));
        (Expired(expired), is_any_left)
    }

    /// Drops what was kept for sessions, which may block.
    pub(crate) fn end(&self, expired: Expired) {
        // Of all of them first: others wait for that, be it locks.
        for (number, session) in &expired.0 {
            let dropped = catch_unwind(AssertUnwindSafe(|| session.kept.end()));
            self.state().ending.remove(number);
            self.dropped.notify_all();
            if dropped.is_err() {
                tracing::error!("what was kept for a client could not be dropped");
            }
        }
    }

    /// The sessions that have not ended.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.state().live.values().map(Arc::clone).collect()
    }

    /// Drops all sessions.
    pub(crate) fn clear(&self) {
        let sessions = std::mem::take(&mut self.state().live);
        drop(sessions);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Neither of its maps is ever half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
