// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the connections of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_core::Clock;
use terrace_wire::{Openings, Secret, VERSION_TELLS_OPENINGS};

use crate::buffers::Buffers;
use crate::counts::Counts;
use crate::crew::Crew;
use crate::limits::Limits;
use crate::service::Service;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::workers::Workers;

/// What the connections of a server share.
pub(crate) struct Shared {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) limits: Limits,
    pub(crate) secret: Option<Secret>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) counts: Counts,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sessions: Sessions,
    /// All threads of the server, those of `workers` among them.
    pub(crate) crew: Arc<Crew>,
    pub(crate) workers: Arc<Workers>,
    is_over: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        service: Arc<dyn Service>,
        secret: Option<Secret>,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let crew = Arc::<Crew>::default();
        Self {
            service,
            limits,
            secret,
            buffers: Arc::new(Buffers::new(limits.buffers_bytes_max, limits.stall_max)),
            counts: Counts::default(),
            clock,
            sessions: Sessions::default(),
            workers: Arc::new(Workers::new(Arc::clone(&crew))),
            crew,
            is_over: AtomicBool::new(false),
        }
    }

    /// Which opening of the store is served, for a client of this version.
    pub(crate) fn openings(&self, version: u16) -> Openings {
        let openings = (version >= VERSION_TELLS_OPENINGS).then(|| self.service.openings());
        openings.unwrap_or_default()
    }

    /// Whether it is about to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Begins the end of the server; false where it has begun before.
    pub(crate) fn begin_end(&self) -> bool {
        !self.is_over.swap(true, Ordering::AcqRel)
    }

    /// A connection does not use its session any more.
    pub(crate) fn leave(&self, session: &Session) {
        session.left_ns.store(self.clock.now_ns(), Ordering::Release);
        session.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
