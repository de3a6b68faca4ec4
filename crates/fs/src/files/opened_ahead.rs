// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files that are opened before anybody wants to read them, many with one request.
//!
//! They are delegated to this user for a while: nobody else is told meanwhile that he has changed one. So
//! who opens one that was opened ahead does not ask. Each counts as open for reading once more than
//! programs have it open, until nobody wanted one for a while, or it is opened for writing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Access;

use super::open::Shared;
use super::table::{Held, Opened, Table};
use super::told::Told;
use super::{Files, unexpected};
use crate::failure::Failure;
use crate::lock;
use crate::node::{Node, Place, Time};
use crate::request::{Closed, DELEGATED_FOR, Left, OPENED_AHEAD_MAX, OpenedAhead, Reply, Request};

/// Files that may be opened ahead for each that was opened, at most: so that who needs none of them does not
/// pay for many.
const PER_OPENED: usize = 16;

/// So many have to be due before any is opened ahead.
const DUE_MIN: usize = 4 * PER_OPENED;

/// And more are not remembered as due.
const DUE_MAX: usize = 4 * OPENED_AHEAD_MAX;

/// So many bytes of files are opened with one request: an answer that gets lost is to be short enough to be
/// kept by the server.
const BYTES_AHEAD: u64 = 48 << 10;

/// Files that are open ahead, and bytes of them.
const FILES_MAX: usize = 8 * OPENED_AHEAD_MAX;
const BYTES_MAX: usize = 8 << 20;

/// They are closed when none was wanted for so long.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// One that was not used for so long makes room for others.
const UNUSED_FOR: Duration = Duration::from_secs(10);

/// So long nothing is opened ahead after others changed files that were.
const REST: Duration = Duration::from_secs(2);

/// After an answer that came too late, or none, it is so long, and twice as long with each more.
const LATE_REST_MIN: Duration = Duration::from_millis(50);
const LATE_REST_MAX: Duration = Duration::from_secs(128);

/// Such files.
pub(super) struct AllAhead {
    table: Arc<Table>,
    told: Arc<Told>,
    state: Mutex<State>,
    /// Held by who asks whether they are still delegated.
    asking: Mutex<()>,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, Ahead>,
    /// Of all of them.
    bytes: usize,
    /// Tells what is delegated together from what was before: with one more, nothing of that is any more.
    grant: u64,
    /// Whether anything was delegated with it.
    has_grant: bool,
    /// Until then nobody else is told that he has changed a file of this grant.
    delegated_until_ns: u64,
    /// When one was last wanted, or opened.
    wanted_ns: u64,
    /// How many more may be opened.
    due: usize,
    is_opening: bool,
    /// Until then nothing is opened ahead.
    rest_until_ns: u64,
    /// How long it was for the last answer that came too late, if nothing opened ahead was used since.
    late_rest: Duration,
    /// Whether the server does not know of this.
    is_unknown: bool,
}

struct Ahead {
    bytes: usize,
    is_used: bool,
    /// When it was opened.
    at_ns: u64,
    grant: u64,
    /// When anything of it had last changed.
    changed: Time,
}

impl AllAhead {
    pub(super) fn new(table: &Arc<Table>, told: &Arc<Told>) -> Self {
        let (state, asking) = (Mutex::default(), Mutex::default());
        Self { table: Arc::clone(table), told: Arc::clone(told), state, asking }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().files.is_empty()
    }

    /// Closes all when nobody wanted one for a while; what the metadata are to be told of that.
    pub(super) fn let_go_unwanted(&self, now_ns: u64) -> Vec<Closed> {
        let numbers: Vec<u64> = {
            let mut state = self.lock();
            let age_ns = now_ns.saturating_sub(state.wanted_ns);
            let is_old = Duration::from_nanos(age_ns) >= KEPT_FOR;
            if state.files.is_empty() || !is_old {
                return Vec::new();
            }
            state.due = 0;
            state.files.keys().copied().collect()
        };
        numbers.into_iter().filter_map(|number| self.let_go_if_free(number)).collect()
    }

    /// Closes one, if it was opened ahead; what the metadata are to be told.
    fn let_go(&self, number: u64) -> Option<Closed> {
        match self.contains(number) {
            true => self.let_go_held(number, self.table.hold(number)),
            false => None,
        }
    }

    /// The same; one that somebody opens or closes at the moment stays.
    fn let_go_if_free(&self, number: u64) -> Option<Closed> {
        self.let_go_held(number, self.table.try_hold(number)?)
    }

    fn contains(&self, number: u64) -> bool {
        self.lock().files.contains_key(&number)
    }

    fn let_go_held(&self, number: u64, mut here: Held<'_>) -> Option<Closed> {
        if !self.lock().forget(number) {
            return None;
        }
        let opened = here.opened.as_mut()?;
        opened.readers -= 1;
        if opened.readers > 0 {
            return None;
        }
        if opened.writers == 0 {
            here.opened = None;
            self.told.close(number);
        }
        Some(closed(number))
    }
}

impl State {
    /// Forgets one; whether it was there.
    fn forget(&mut self, number: u64) -> bool {
        let gone = self.files.remove(&number);
        self.bytes -= gone.as_ref().map_or(0, |gone| gone.bytes);
        gone.is_some()
    }

    /// Relies on nothing any more that was delegated so far.
    fn end_grant(&mut self) {
        self.grant += 1;
        self.has_grant = false;
        self.delegated_until_ns = 0;
    }

    /// One of this grant.
    fn granted(&mut self, number: u64) -> Option<&mut Ahead> {
        let grant = self.grant;
        self.files.get_mut(&number).filter(|ahead| ahead.grant == grant)
    }

    /// Opens nothing ahead for so long.
    fn rest(&mut self, now_ns: u64, rest: Duration) {
        self.due = 0;
        let until_ns = now_ns.saturating_add(rest.as_nanos() as u64);
        self.rest_until_ns = self.rest_until_ns.max(until_ns);
    }

    /// The same after an answer that came too late: it may have been held up, or the way is too long.
    fn rest_longer(&mut self, now_ns: u64) {
        // Of one try the second answer can come too late, too.
        let times = if now_ns < self.rest_until_ns { 1 } else { 2 };
        self.late_rest = (self.late_rest * times).clamp(LATE_REST_MIN, LATE_REST_MAX);
        self.rest(now_ns, self.late_rest);
    }
}

impl Files {
    /// What is known of a file that is opened ahead, if it is certain that nobody else has changed it.
    /// Where that is not so it is open ahead no more.
    pub(super) fn find_ahead(&self, number: u64, access: Access) -> Option<Node> {
        if !self.ahead.contains(number) {
            return None;
        }
        let found = match access {
            Access::Read => self.find_delegated(number),
            Access::Write => None,
        };
        if found.is_none() {
            self.let_go_ahead(number);
        }
        found
    }

    fn find_delegated(&self, number: u64) -> Option<Node> {
        self.ahead.lock().granted(number)?;
        if !self.are_delegated(number) {
            self.let_go_ended_ahead();
            return None;
        }
        // What was changed through this since it was opened ahead is in it, or it is not known. What others
        // change without waiting, as when it was read last, is believed for as long as ever.
        let (node, _) = self.metadata.recent(number, self.options.believed_for)?;
        let file = self.open.file(number)?;
        if node.place != Place::Inline || file.object().is_some() {
            return None;
        }
        let now_ns = self.clock.now_ns();
        {
            let mut state = self.ahead.lock();
            let until_ns = state.delegated_until_ns;
            let ahead = state.granted(number)?;
            // What was asked for later may have been looked for sooner.
            if node.changed < ahead.changed || now_ns >= until_ns {
                return None;
            }
            ahead.is_used = true;
            state.wanted_ns = now_ns;
            state.late_rest = Duration::ZERO;
            state.due = DUE_MAX.min(state.due + PER_OPENED);
        }
        file.vouch(now_ns);
        Some(node)
    }

    /// Whether what is opened ahead with a file is delegated, for a while from now on.
    fn are_delegated(&self, number: u64) -> bool {
        // With a margin, in which who wanted to know can use it.
        let margin_ns = DELEGATED_FOR.as_nanos() as u64 / 8;
        let is_known = |state: &State| self.clock.now_ns() + margin_ns < state.delegated_until_ns;
        if is_known(&self.ahead.lock()) {
            return true;
        }
        let _asking = lock(&self.ahead.asking);
        let grant = {
            let mut state = self.ahead.lock();
            // Another one may just have asked, and heard that it has ended, or nothing.
            if state.granted(number).is_none() {
                return false;
            }
            if is_known(&state) {
                return true;
            }
            state.grant
        };
        let until_ns = self.delegated_until_ns();
        let asked = self.metadata.call(&Request::RenewAhead { grant });
        let is_delegated = matches!(asked, Ok(Reply::Done));
        let mut state = self.ahead.lock();
        if state.grant != grant {
            return false;
        }
        match is_delegated {
            true => state.delegated_until_ns = state.delegated_until_ns.max(until_ns),
            false => state.end_grant(),
        }
        // Who asks on so long a way learns it too late, and who gets no answer waits long enough.
        if asked.is_err() || is_delegated && !is_known(&state) {
            state.end_grant();
            state.rest_longer(self.clock.now_ns());
        }
        is_known(&state)
    }

    fn delegated_until_ns(&self) -> u64 {
        self.clock.now_ns().saturating_add(DELEGATED_FOR.as_nanos() as u64)
    }

    /// Opens a file ahead that is about to be opened for reading, with others that were listed with it, if
    /// that is worth it; what is known of it then.
    pub(super) fn open_ahead(self: &Arc<Self>, number: u64, access: Access) -> Option<Node> {
        let believed_for = self.options.believed_for;
        let is_shared = !self.options.is_alone && believed_for != Duration::MAX;
        if access == Access::Write || !is_shared || believed_for.is_zero() {
            return None;
        }
        let due = {
            let now_ns = self.clock.now_ns();
            let mut state = self.ahead.lock();
            state.due = DUE_MAX.min(state.due + PER_OPENED);
            let is_resting = state.is_unknown || now_ns < state.rest_until_ns;
            if is_resting || state.is_opening || state.due < DUE_MIN {
                return None;
            }
            state.is_opening = true;
            state.due
        };
        let opening = Opening(&self.ahead);
        self.open_some_ahead(number, due.min(OPENED_AHEAD_MAX));
        drop(opening);
        self.find_ahead(number, access)
    }

    fn open_some_ahead(self: &Arc<Self>, number: u64, max: usize) {
        // What is open here is not opened ahead, and would hold up others who write to it.
        if !self.open.is_free(number) {
            return;
        }
        let room = self.room_ahead(max);
        if room == 0 {
            // It is looked for again when as many are due once more.
            self.ahead.lock().due = 0;
            return;
        }
        let mut numbers = self.metadata.neighbours(number, room, BYTES_AHEAD);
        numbers.retain(|number| self.open.is_free(*number));
        let (grant, is_first) = {
            let mut state = self.ahead.lock();
            numbers.retain(|number| state.granted(*number).is_none());
            if numbers.is_empty() {
                return;
            }
            let is_first = !state.has_grant;
            if is_first {
                state.end_grant();
            }
            (state.grant, is_first)
        };
        self.let_go_ended_ahead();
        let count = numbers.len();
        let until_ns = self.delegated_until_ns();
        let opened = match self.metadata.call(&Request::OpenAhead { numbers, grant, is_first }) {
            Ok(Reply::OpenedAhead(opened)) => opened,
            Err(failure) if failure.errno() == Errno::INVAL => {
                return self.open_no_more_ahead(&failure);
            }
            refused @ (Ok(Reply::NotHere) | Err(_)) => {
                let now_ns = self.clock.now_ns();
                let mut state = self.ahead.lock();
                state.end_grant();
                match refused {
                    Ok(_) => state.rest(now_ns, REST),
                    Err(_) => state.rest_longer(now_ns),
                }
                drop(state);
                return self.let_go_ended_ahead();
            }
            Ok(other) => return self.open_no_more_ahead(&unexpected(&other)),
        };
        {
            let now_ns = self.clock.now_ns();
            let mut state = self.ahead.lock();
            state.due = state.due.saturating_sub(count);
            state.wanted_ns = now_ns;
            if state.grant == grant {
                state.has_grant = true;
                state.delegated_until_ns = state.delegated_until_ns.max(until_ns);
            }
            if now_ns >= until_ns {
                state.rest_longer(now_ns);
            }
        }
        let keep = |one| self.keep_ahead(one, grant);
        let not_kept: Vec<_> = opened.into_iter().filter_map(keep).collect();
        if !not_kept.is_empty() {
            self.closing.push(|queued| queued.closed.extend(not_kept));
        }
        self.closing.wake();
    }

    fn open_no_more_ahead(&self, failure: &Failure) {
        tracing::debug!(%failure, "the server opens no files ahead");
        self.ahead.lock().is_unknown = true;
        self.let_go_all_ahead();
    }

    /// Keeps a file open ahead; or how it is closed, where it is open here already, or may be otherwise
    /// than it was told.
    fn keep_ahead(self: &Arc<Self>, ahead: OpenedAhead, grant: u64) -> Option<Closed> {
        let OpenedAhead { node, content } = ahead;
        let (number, bytes) = (node.number, content.len());
        let not_kept = Some(closed(number));
        let Some(mut here) = self.open.try_hold(number) else { return not_kept };
        if here.opened.is_some() || node.place != Place::Inline || node.links == 0 {
            return not_kept;
        }
        let Ok(file) = Shared::open(self, &node, content, Access::Read) else { return not_kept };
        let file = Arc::new(file);
        here.opened = Some(Opened { file, readers: 1, writers: 0, opened_for_writing: 0 });
        // Who begins to change it behind this finds it here, and who did before has it known otherwise.
        let known = self.metadata.recent(number, Duration::MAX);
        if known.is_none_or(|(known, _)| known != node) {
            here.opened = None;
            self.told.close(number);
            return not_kept;
        }
        let (changed, at_ns) = (node.changed, self.clock.now_ns());
        let mut state = self.ahead.lock();
        state.files.insert(number, Ahead { bytes, is_used: false, at_ns, grant, changed });
        state.bytes += bytes;
        None
    }

    /// For how many more there is room, `count` at most; none where it is for too few to be worth it. For
    /// others those are closed that were used, or not for long.
    fn room_ahead(&self, count: usize) -> usize {
        let room = || {
            let state = self.ahead.lock();
            let room = FILES_MAX.saturating_sub(state.files.len());
            if state.bytes > BYTES_MAX || room < DUE_MIN { 0 } else { room.min(count) }
        };
        let found = room();
        if found > 0 {
            return found;
        }
        let now_ns = self.clock.now_ns();
        let age = |ahead: &Ahead| Duration::from_nanos(now_ns.saturating_sub(ahead.at_ns));
        // Nor is what is known of them believed for longer.
        let long = UNUSED_FOR.min(self.options.believed_for);
        self.let_go_these_ahead(|ahead| ahead.is_used || age(ahead) >= long);
        room()
    }

    /// Closes one that was opened ahead, if it was.
    pub(super) fn let_go_ahead(&self, number: u64) {
        if let Some(closed) = self.ahead.let_go(number) {
            self.closing.push(|queued| queued.closed.push(closed));
        }
    }

    /// Closes all that were opened ahead.
    pub(super) fn let_go_all_ahead(&self) {
        self.let_go_these_ahead(|_| true);
    }

    /// Closes those that are not delegated any more.
    fn let_go_ended_ahead(&self) {
        let grant = self.ahead.lock().grant;
        self.let_go_these_ahead(|ahead| ahead.grant < grant);
    }

    fn let_go_these_ahead(&self, is_one: impl Fn(&Ahead) -> bool) {
        let numbers: Vec<u64> = {
            let state = self.ahead.lock();
            let these = state.files.iter().filter(|(_, ahead)| is_one(ahead));
            these.map(|(number, _)| *number).collect()
        };
        let closed: Vec<_> =
            numbers.into_iter().filter_map(|number| self.ahead.let_go_if_free(number)).collect();
        if !closed.is_empty() {
            self.closing.push(|queued| queued.closed.extend(closed));
        }
    }
}

/// Somebody opens files ahead.
struct Opening<'a>(&'a AllAhead);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.lock().is_opening = false;
    }
}

/// How a file is closed that was opened ahead.
fn closed(number: u64) -> Closed {
    Closed { number, is_for_writing: false, left: Left::Unknown }
}
