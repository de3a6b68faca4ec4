// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata of a file system that a server keeps.

use std::sync::Arc;
use std::time::Duration;

use terrace_client::{Remote, ReopenGuard, Unanswered};
use terrace_core::{Clock, Key, SystemClock};
use terrace_fs::{Effect, Metadata, Node, Reply, Request, Result, read_answer};

use crate::ahead::NamesAhead;
use crate::attributes::AbsentAttributes;
use crate::changed::Changed;
use crate::delegated::DelegatedNames;
use crate::held::{Held, Server};
use crate::in_use::Using;
use crate::neighbours::Neighbours;
use crate::recent::RecentNodes;

/// The metadata of a file system that a server keeps: a round trip for each request.
pub(crate) struct RemoteFiles {
    held: Held<Named>,
    name: Box<str>,
    recent: RecentNodes,
    ahead: NamesAhead,
    neighbours: Neighbours,
    absent: AbsentAttributes,
    delegated: DelegatedNames,
    _using: Using,
}

/// A file system of a server.
struct Named {
    remote: Remote,
    name: String,
}

fn effect(request: &Request<'_>) -> terrace_client::Effect {
    match request.effect() {
        Effect::Look => terrace_client::Effect::Look,
        Effect::Hold => terrace_client::Effect::Hold,
        Effect::Change => terrace_client::Effect::Change,
        Effect::Sync => terrace_client::Effect::Sync,
    }
}

impl Server for Named {
    type Unanswered = Unanswered;

    fn ask(&self, request: &Request<'_>, life: Option<u64>) -> Result<(Reply, u64)> {
        let asked = self.remote.files(&self.name, effect(request), life, &request.encode());
        let (answer, life) = asked?;
        Ok((read_answer(&answer)?, life))
    }

    fn ask_once(
        &self,
        request: &Request<'_>,
        life: u64,
        unanswered: &mut Option<Unanswered>,
    ) -> Result<Reply> {
        let (effect, bytes) = (effect(request), request.encode());
        let asked = self.remote.files_once(&self.name, effect, life, &bytes, unanswered);
        let (answer, _) = asked?;
        read_answer(&answer)
    }

    fn life(&self) -> u64 {
        self.remote.life()
    }

    fn whole_since(&self) -> u64 {
        self.remote.whole_since()
    }
}

impl RemoteFiles {
    pub(crate) fn new(remote: Remote, name: &str, using: Using) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Self {
            held: Held::new(Named { remote, name: name.into() }),
            recent: RecentNodes::new(Arc::clone(&clock)),
            ahead: NamesAhead::new(Arc::clone(&clock)),
            neighbours: Neighbours::default(),
            absent: AbsentAttributes::new(Arc::clone(&clock)),
            delegated: DelegatedNames::new(clock),
            name: name.into(),
            _using: using,
        }
    }
}

/// What was answered, also that something is not there; fails where nobody answers, who would be asked
/// again.
fn unless_away(asked: Result<Reply>) -> Result<Result<Reply>> {
    match asked {
        Err(failure) if failure.may_pass() => Err(failure),
        answered => Ok(answered),
    }
}

impl ReopenGuard for RemoteFiles {
    /// What is written is not to come to a file of which another client has got the lock by now.
    fn before_reopen(&self, key: &Key) -> terrace_core::Result<()> {
        if key.namespace() != &*self.name {
            return Ok(());
        }
        let Ok(number) = u64::from_str_radix(key.name(), 16) else { return Ok(()) };
        self.held.check_there(number).map_err(|failure| failure.into_error("use an open file"))
    }
}

impl Metadata for RemoteFiles {
    fn call(&self, request: &Request<'_>) -> Result<Reply> {
        if let Request::Lookup { directory, name } = request
            && self.delegated.is_nowhere(*directory, name)
        {
            return Ok(Reply::Nowhere);
        }
        let changed = Changed::by(request);
        if let Request::Close { closed, .. } = request {
            self.recent.forget_objects(closed);
        }
        let recent = self.recent.begin(&changed);
        let ahead = self.ahead.begin(request, &changed);
        let absent = self.absent.begin(request);
        let delegated = self.delegated.begin(request);
        let asked = self.held.carry_out(request);
        let reply = asked.as_ref().ok();
        self.recent.end(recent, &changed, reply);
        self.ahead.end(&ahead, request, &changed, &asked);
        self.absent.end(&absent, request, &asked);
        self.neighbours.note(request, reply);
        self.delegated.end(&delegated, request, reply);
        asked
    }

    fn life(&self) -> u64 {
        self.held.life()
    }

    fn whole_since(&self) -> u64 {
        self.held.whole_since()
    }

    fn recent(&self, number: u64, age_max: Duration) -> Option<(Node, Duration)> {
        if self.held.is_written(number) { None } else { self.recent.find(number, age_max) }
    }

    fn ahead(
        &self,
        directory: u64,
        name: &[u8],
        age_max: Duration,
    ) -> Result<Option<(Node, Duration)>> {
        let take = || {
            let (number, age) = self.ahead.take(directory, name, age_max)?;
            let (node, node_age) = self.recent(number, age_max)?;
            Some((node, age.max(node_age)))
        };
        if let found @ Some(_) = take() {
            return Ok(found);
        }
        let size = || match self.recent(directory, age_max) {
            Some((node, _)) => Ok(Some(node.size)),
            None => match unless_away(self.call(&Request::Node { number: directory }))? {
                Ok(Reply::Node(node)) => Ok(Some(node.size)),
                _ => Ok(None),
            },
        };
        let Some(fetch) = self.ahead.wanted(directory, age_max, size)? else { return Ok(None) };
        let asked = self.call(&fetch.request());
        self.ahead.fetched(&fetch, &asked);
        let _ = unless_away(asked)?;
        Ok(take())
    }

    fn neighbours(&self, number: u64, max: usize, bytes_max: u64) -> Vec<u64> {
        self.neighbours.take(number, max, bytes_max)
    }

    fn forgotten(&self, number: u64) {
        self.ahead.forgotten(number);
    }

    fn check(&self, number: u64) -> Result<()> {
        self.held.check(number)
    }

    fn check_to_close(&self, number: u64) -> Result<()> {
        self.held.check_to_close(number)
    }

    fn take_loss(&self, of: Option<u64>) -> bool {
        self.held.take_loss(of)
    }

    fn lacks_xattr(&self, number: u64, name: Option<&[u8]>, age_max: Duration) -> bool {
        self.absent.is_absent(number, name, age_max)
    }
}
