// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata of a file system that a server keeps.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use terrace_client::{Remote, ReopenGuard, Unanswered};
use terrace_core::{Clock, Key, SystemClock};
use terrace_fs::{
    Closed, DELEGATED_FOR, Effect, Failure, Listed, MAY_SAY_GONE_FOR, Metadata, NamedFile, Node,
    Place, Reply, Request, Result, Time, read_answer,
};

use crate::ahead::{self, NamesAhead};
use crate::attributes::{self, AbsentAttributes};
use crate::cache_counts::CacheCounts;
use crate::changed::Changed;
use crate::delegated::{self, DelegatedNames};
use crate::held::{Held, Server};
use crate::in_use::Using;
use crate::later::{Due, Later};
use crate::listings::{Found, ListingsAhead};
use crate::neighbours::Neighbours;
use crate::recent::{self, RecentNodes};
use crate::removals::Removals;
use crate::soon::Soon;

mod metadata;
#[cfg(test)]
mod simulated;

/// A change of a name is deferred if no other client can make one for at least this time.
const ALONE_MIN: Duration = Duration::from_millis(10);

/// Attributes of a file are cached so long when its name is removed.
const FILE_KNOWN_FOR: Duration = Duration::from_secs(2);

/// Directories of which it is noted when they were stamped.
const STAMPED_MAX: usize = 1 << 10;

/// So many lost files, and as many names, are logged one by one.
const LOST_LOGGED_MAX: usize = 64;

/// Numbers that are asked for at a time.
const NUMBERS: u32 = 256;

/// The metadata of a file system that a server keeps: a round trip for each request at most.
pub struct RemoteFiles {
    later: Arc<Later<Noting>>,
    removals: Arc<Removals>,
    soon: Arc<Soon>,
    /// Whether there is a thread that does what was put off.
    is_looked_for: OnceLock<bool>,
    /// The last time of a change that was returned to programs here, by the clocks of servers.
    returned_ns: AtomicU64,
    /// When bytes of an object were last changed through this, by the clock of this process; 0: never.
    written_ns: AtomicU64,
    /// When a request began with which the server stamped each directory last.
    stamped: Mutex<HashMap<u64, u64>>,
    clock: Arc<dyn Clock>,
    this: Weak<Self>,
    held: Held<Named>,
    name: Box<str>,
    recent: RecentNodes,
    ahead: NamesAhead,
    listings: ListingsAhead,
    neighbours: Neighbours,
    absent: AbsentAttributes,
    delegated: DelegatedNames,
    counts: CacheCounts,
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
    /// The file system of this name. It is in use through the session of `remote` until this is dropped.
    pub fn new(remote: Remote, name: &str, using: Using) -> Arc<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Arc::new_cyclic(|this| Self {
            later: Arc::new(Later::new(Arc::clone(&clock))),
            removals: Arc::new(Removals::new(Arc::clone(&clock))),
            soon: Arc::new(Soon::new(Arc::clone(&clock))),
            is_looked_for: OnceLock::new(),
            returned_ns: AtomicU64::new(0),
            written_ns: AtomicU64::new(0),
            stamped: Mutex::default(),
            this: Weak::clone(this),
            held: Held::new(Named { remote, name: name.into() }),
            recent: RecentNodes::new(Arc::clone(&clock)),
            ahead: NamesAhead::new(Arc::clone(&clock)),
            listings: ListingsAhead::new(Arc::clone(&clock)),
            neighbours: Neighbours::default(),
            absent: AbsentAttributes::new(Arc::clone(&clock)),
            delegated: DelegatedNames::new(Arc::clone(&clock)),
            counts: CacheCounts::default(),
            clock,
            name: name.into(),
            _using: using,
        })
    }

    fn begin_noting(&self, request: &Request<'_>) -> Noting {
        let changed = Changed::by(request);
        Noting {
            recent: self.recent.begin(&changed),
            ahead: self.ahead.begin(request, &changed),
            absent: self.absent.begin(request),
            delegated: self.delegated.begin(request),
            changed,
        }
    }

    fn end_noting(&self, noting: Noting, request: &Request<'_>, asked: &Result<Reply>) {
        let Noting { changed, recent, ahead, absent, delegated } = noting;
        let reply = asked.as_ref().ok();
        if let Some(reply) = reply {
            recent::nodes(reply, |node| self.note_returned(node.changed));
        }
        self.recent.end(recent, &changed, reply);
        self.ahead.end(&ahead, request, &changed, asked);
        self.absent.end(&absent, request, asked);
        self.neighbours.note(request, reply);
        self.listings.note(request, reply);
        self.delegated.end(&delegated, request, reply);
    }

    fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        let begun_ns = self.clock.now_ns();
        let noting = self.begin_noting(request);
        // Unlinks that were acknowledged before this began are applied; of later ones the answer may have nothing.
        let settled = self.remove_all(Duration::ZERO);
        let asked = settled.and_then(|()| self.held.carry_out(request));
        self.end_noting(noting, request, &asked);
        if let Ok(Reply::Made { directory, .. } | Reply::Gone { directory: Some(directory), .. }) =
            &asked
        {
            self.later.note_change(directory.number);
            self.note_stamped(directory.number, begun_ns);
        }
        if let Ok(Reply::Made { node, .. }) = &asked
            && node.kind.is_directory()
        {
            self.note_stamped(node.number, begun_ns);
        }
        asked
    }

    /// Closes what is open: not what could not be made.
    fn close(&self, request: &Request<'_>, closed: &[Closed]) -> Result<Reply> {
        let Some(open) = self.later.without_failed(closed) else { return self.ask(request) };
        let Request::Close { read, id, acknowledged, .. } = request else {
            return self.ask(request);
        };
        let (read, id, acknowledged) = (read.clone(), *id, *acknowledged);
        let asked = self.ask(&Request::Close { closed: open, read, id, acknowledged });
        if !asked.as_ref().is_err_and(Failure::may_pass) {
            self.later.forget_failed(closed);
        }
        asked
    }

    /// Makes a file that was put off, with what it begins with, unless it may be made already; whether that is
    /// in it. Nothing where another client has made it.
    fn make_now(&self, due: &Due<Noting>, content: &[u8]) -> Result<Option<(Node, bool)>> {
        // What had its name before is to be gone.
        self.remove_all(Duration::ZERO)?;
        let mut state = due.lock()?;
        let Some(noting) = state.noting.take() else {
            drop(state);
            return self.later.check(due.number).map(|()| None);
        };
        let content = state.sendable(content);
        let begun_ns = self.clock.now_ns();
        let asked = self.held.carry_out(&due.numbered(content));
        if let Err(failure) = &asked
            && failure.may_pass()
        {
            due.miss(&mut state, noting, failure);
            return Err(failure.clone());
        }
        self.end_noting(noting, &due.request(), &asked);
        if asked.is_ok() {
            self.later.note_change(due.directory);
            self.note_stamped(due.directory, begun_ns);
        }
        let made = match asked {
            Ok(Reply::Made { node, .. }) => Ok(node),
            Ok(_) => Err(Failure::from(Errno::IO)),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &made {
            tracing::warn!(file = due.number, %failure, "cannot make a file that a program has open");
        }
        self.later.note(due.number, made.as_ref().err());
        made.map(|node| {
            let has_content = !content.is_empty() && node.size == content.len() as u64;
            Some((node, has_content))
        })
    }

    /// Makes what was put off for so long.
    ///
    /// # Errors
    ///
    /// The server did not answer; other failures are returned to the user of the file.
    fn make_all(&self, age_min: Duration) -> Result<()> {
        for due in self.later.all(age_min) {
            match self.make_now(&due, b"") {
                Err(failure) if failure.may_pass() => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes what was put off and a request may depend on; its answer where it is done with that.
    fn make_before(&self, request: &Request<'_>) -> Result<Option<Reply>> {
        let due = match request {
            Request::Write { number, .. } => self.later.find(*number),
            _ => None,
        };
        let (Request::Write { offset, data, at_end, .. }, Some(due)) = (request, due) else {
            return self.catch_up(Duration::ZERO).map(|()| None);
        };
        let is_first = *offset == 0 && !at_end;
        let content = if is_first { self.later.fitting(data) } else { b"" };
        let Some((node, has_content)) = self.make_now(&due, content)? else { return Ok(None) };
        if has_content && is_first && content.len() == data.len() {
            let reply = Reply::Node(node);
            self.neighbours.note(request, Some(&reply));
            return Ok(Some(reply));
        }
        let reply = self.ask(request)?;
        if reply == Reply::NotHere && !content.is_empty() {
            self.later.note_too_long(content);
        }
        Ok(Some(reply))
    }

    /// Applies unlinks that were acknowledged so long ago.
    ///
    /// # Errors
    ///
    /// The server did not answer; other failures are returned by a sync.
    fn remove_all(&self, age_min: Duration) -> Result<()> {
        self.removals.send(age_min, |request| {
            let Request::RemoveNumbered { directory, .. } = request else { return Ok(0) };
            let begun_ns = self.clock.now_ns();
            let delegated = self.delegated.begin(request);
            let asked = self.held.carry_out(request);
            self.delegated.end(&delegated, request, asked.as_ref().ok());
            let kept = match asked {
                Ok(Reply::Removed { may_say_gone, kept, .. }) => {
                    self.note_may_say(*directory, begun_ns, may_say_gone);
                    Ok(kept)
                }
                Err(failure) if failure.may_pass() => return Err(failure),
                // The directory is gone, and all that was in it.
                Err(failure) if failure.errno() == Errno::STALE => Ok(0),
                ended => ended.and(Err(Errno::IO.into())),
            };
            if kept != Ok(0) {
                // They are there, and their unlinks were acknowledged.
                self.delegated.forget(*directory);
                self.recent.forget(*directory);
            }
            kept
        })
    }

    /// What was fetched of a directory, where that is as it was as far as is known here, and how long ago it
    /// was asked for.
    fn certain(&self, directory: u64, found: Found) -> Option<(Vec<Listed>, Duration)> {
        let Found { mut entries, asked_ns, age, count } = found;
        for entry in &mut entries {
            let is_written = self.held.is_written(entry.number);
            entry.node = if is_written { None } else { self.recent.since(entry.number, asked_ns) };
        }
        // Attributes of several nodes may be of different moments.
        self.recent.is_certain(directory, count).then_some((entries, age))
    }

    fn note_may_say(&self, directory: u64, begun_ns: u64, may_say_gone: bool) {
        let until_ns = begun_ns.saturating_add(MAY_SAY_GONE_FOR.as_nanos() as u64);
        self.removals.note_may_say(directory, may_say_gone.then_some(until_ns));
        self.later.note_change(directory);
    }

    /// The file that a name leads to, and when that had changed last, where it is not used here, and
    /// nothing else is to be deleted with the name.
    fn removable(&self, directory: u64, name: &[u8]) -> Option<(u64, Time)> {
        let number = self.ahead.last(directory, name)?;
        let (node, _) = self.recent.find(number, FILE_KNOWN_FOR)?;
        let has_object = node.place == Place::Object || node.may_have_object;
        let is_plain = !node.kind.is_directory() && !has_object;
        let is_only_here = node.links == 1 && node.parent == directory;
        let is_used = self.held.is_open(number) || self.later.find(number).is_some();
        let is_own = self.delegated.is_known(directory);
        (is_plain && is_only_here && !is_used && is_own).then_some((number, node.changed))
    }

    /// Acknowledges an unlink ahead of the server, where that is allowed.
    fn say_gone(&self, directory: u64, name: &[u8], file: (u64, Time)) -> Option<Reply> {
        let is_alone = self.delegated.is_alone(directory, ALONE_MIN);
        if !is_alone || !self.has_last_time(directory) || !self.is_looked_for() {
            return None;
        }
        let mut said = None;
        let is_said = self.removals.say((directory, name), file, || {
            let returned = self.returned();
            let smaller = |node: &Node| without_a_name(node, returned);
            let node = self.recent.change(directory, DELEGATED_FOR, smaller)?;
            let changed = node.changed;
            said = Some(self.note_gone(directory, name, file.0, node));
            Some(changed)
        });
        if is_said {
            self.soon.wake();
        }
        said
    }

    /// Notes that a name is gone, as later lookups will find it, in a directory with these attributes.
    fn note_gone(&self, directory: u64, name: &[u8], number: u64, told: Node) -> Reply {
        let request = Request::Remove { directory, name, is_directory: false };
        let changed = Changed::by(&request);
        let reply =
            Reply::Gone { number, has_garbage: false, directory: Some(told), is_delegated: true };
        self.recent.forget(number);
        let ahead = self.ahead.begin(&request, &changed);
        self.ahead.end(&ahead, &request, &changed, &Ok(reply.clone()));
        self.neighbours.note(&request, Some(&reply));
        self.delegated.note_gone(directory, name);
        self.later.note_change(directory);
        reply
    }

    /// Notes that the server has stamped a directory with a request that began at a time.
    fn note_stamped(&self, directory: u64, begun_ns: u64) {
        // Entries change in single steps.
        let mut stamped = self.stamped.lock().unwrap_or_else(PoisonError::into_inner);
        if stamped.len() >= STAMPED_MAX && !stamped.contains_key(&directory) {
            stamped.clear();
        }
        stamped.insert(directory, begun_ns);
    }

    /// Whether the time of a directory is later than that of the last change of an object through this, which
    /// is not known here: else a change of the directory is not deferred.
    fn has_last_time(&self, directory: u64) -> bool {
        let written_ns = self.written_ns.load(Ordering::Acquire);
        let stamped = self.stamped.lock().unwrap_or_else(PoisonError::into_inner);
        written_ns == 0 || stamped.get(&directory).is_some_and(|at_ns| *at_ns > written_ns)
    }

    /// The last time of a change that was returned to programs here.
    fn returned(&self) -> Time {
        Time::from_ns(self.returned_ns.load(Ordering::Relaxed))
    }

    /// Unlinks a name under the grant for asynchronous unlinks; `None` where it leads elsewhere, or to what was
    /// changed by others, or the server is one of before.
    fn remove_now(
        &self,
        directory: u64,
        name: &[u8],
        (number, changed): (u64, Time),
    ) -> Result<Option<Reply>> {
        let life = self.held.life();
        if !self.removals.are_known_to(life) {
            return Ok(None);
        }
        let removed = vec![NamedFile { name, number, changed }];
        let numbered = Request::RemoveNumbered { directory, removed, changed: None };
        let request = Request::Remove { directory, name, is_directory: false };
        let begun_ns = self.clock.now_ns();
        let noting = self.begin_noting(&request);
        let settled = self.catch_up(Duration::ZERO);
        let asked = match settled.and_then(|()| self.held.carry_out(&numbered)) {
            Ok(Reply::Removed {
                directory: node, count: 1, is_delegated, may_say_gone, ..
            }) => {
                self.removals.note_removed(directory);
                self.note_may_say(directory, begun_ns, may_say_gone);
                self.note_stamped(directory, begun_ns);
                let directory = Some(node);
                Ok(Reply::Gone { number, has_garbage: false, directory, is_delegated })
            }
            Ok(_) => Err(Errno::NOENT.into()),
            Err(failure) => Err(failure),
        };
        self.end_noting(noting, &request, &asked);
        match asked {
            Err(failure) if failure.errno() == Errno::INVAL => {
                self.removals.note_refused(life);
                Ok(None)
            }
            // The server before may have applied the unlink without answering.
            Err(failure) if failure.errno() == Errno::NOENT && self.held.life() != life => {
                match self.call(&Request::Lookup { directory, name }) {
                    Ok(Reply::Node(node)) if node.number == number => Ok(None),
                    Err(failure) if failure.errno() != Errno::NOENT => Err(failure),
                    _ => Ok(Some(gone_before(number))),
                }
            }
            Err(failure) if failure.errno() == Errno::NOENT => Ok(None),
            asked => asked.map(Some),
        }
    }

    /// Does what was put off for so long.
    ///
    /// # Errors
    ///
    /// The server did not answer.
    fn catch_up(&self, age_min: Duration) -> Result<()> {
        self.remove_all(age_min)?;
        self.make_all(age_min)
    }

    /// Logs what the server does not know at the end: files that programs made and closed, and names
    /// that they removed.
    fn log_lost(&self, failure: &Failure) {
        for due in self.later.all(Duration::ZERO).into_iter().take(LOST_LOGGED_MAX) {
            let name = String::from_utf8_lossy(&due.name);
            tracing::error!(
                directory = due.directory, %name, %failure,
                "a file that a program made is lost: the server was not told of it before the end"
            );
        }
        for (directory, name) in self.removals.names(LOST_LOGGED_MAX) {
            let name = String::from_utf8_lossy(&name);
            tracing::error!(
                directory, %name, %failure,
                "a file that a program removed may be there still: the server was not told of it before the end"
            );
        }
    }

    /// Whether there is a thread that does what was put off for long enough.
    fn is_looked_for(&self) -> bool {
        *self.is_looked_for.get_or_init(|| {
            let (later, removals) = (Arc::clone(&self.later), Arc::clone(&self.removals));
            let (soon, this) = (Arc::clone(&self.soon), Weak::clone(&self.this));
            let has_none = move || later.is_empty() && removals.is_empty();
            let work = move |age_min| {
                let files = this.upgrade();
                // The failure is returned to the user of the file, or by a sync.
                files.map(|files| files.catch_up(age_min))
            };
            let thread = thread::Builder::new().name("files-later".into());
            thread.spawn(move || soon.run(has_none, work)).is_ok()
        })
    }
}

impl Drop for RemoteFiles {
    fn drop(&mut self) {
        self.soon.stop();
    }
}

/// What is to be noted when a request ends.
struct Noting {
    changed: Changed,
    recent: recent::Begun,
    ahead: ahead::Begun,
    absent: attributes::Begun,
    delegated: delegated::Begun,
}

/// A directory as it is with one name less, a moment later than its last change, and than any that was `returned`;
/// `None` where its times do not tell what that would be.
fn without_a_name(directory: &Node, returned: Time) -> Option<Node> {
    let is_changed_last = directory.modified <= directory.changed;
    let size = directory.size.checked_sub(1).filter(|_| is_changed_last)?;
    let changed = directory.changed.max(returned).next();
    Some(Node { size, changed, modified: changed, ..directory.clone() })
}

/// The answer for a name that was taken away before.
fn gone_before(number: u64) -> Reply {
    Reply::Gone { number, has_garbage: false, directory: None, is_delegated: false }
}

/// The answer, also that something is not there; fails where the server did not answer, and would be asked
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
