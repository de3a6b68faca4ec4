// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's session with a server: connects, asks, and asks again where that is safe.

mod change;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use terrace_core::{Applied, Begun, Capability, Clock, Error, ErrorKind, Result, Semantics};
use terrace_transport::{Transport, random_bytes};
use terrace_wire::{FrameReader, Kind, Operation, Welcome};

pub(super) use self::change::Change;
use super::bulk::{Bulk, Heard, Lent, Pool, Receiving};
use super::dial::{Dial, Timed};
use super::greeting::greet;
use super::ids::{ANSWERS_BYTES_MAX, ANSWERS_MAX, Ids};
use super::later::LaterDone;
use super::life::Life;
use super::line::{Line, is_refused, lost};
use super::lock;
use super::options::Options;
use super::reopening::Reopening;
use super::request::{Answer, Filling, Message, odd};
use super::silence::Silence;
use super::unsynced::Unsynced;
use crate::deadline;

/// First and longest pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// How often a client that ends looks whether the server has sent anything.
const ENDING_TICK: Duration = Duration::from_millis(100);

/// Longest silence of a stream, where the deadline is not longer: a server says every second that
/// it is there.
const STREAM_SILENCE_MAX: Duration = Duration::from_secs(5);

/// So many small transfers go over connections of their own, beside one on the connection that all
/// share: no thread waits for another one there. Where there are more, they are cheaper together.
const OWN_MAX: usize = 3;

/// A client's session with a server.
pub(super) struct Core {
    dial: Box<dyn Dial>,
    pub(super) options: Options,
    pub(super) clock: Arc<dyn Clock>,
    /// The server knows the session by it.
    session: u64,
    ids: Mutex<Ids>,
    /// Notified when a request has ended.
    ended: Condvar,
    /// The last greeting of the server, and which life of the session that was.
    greeted: RwLock<Greeted>,
    dialing: Mutex<bool>,
    dialed: Condvar,
    /// The connection that the session began with, until the first request takes it.
    first: Mutex<Option<FrameReader<Timed>>>,
    line: Mutex<Option<Arc<Line>>>,
    pool: Pool,
    /// What was changed and not synced.
    pub(super) unsynced: Unsynced,
    /// Guards that are asked before an object is opened again.
    pub(super) reopening: Reopening,
    /// Small transfers on their way.
    transfers: AtomicUsize,
    silence: Arc<Silence>,
    /// Whether descriptors can be passed.
    is_local: bool,
    pub(super) target: String,
}

/// The last greeting of the server.
#[derive(Clone)]
struct Greeted {
    welcome: Welcome,
    /// Of the protocol.
    version: u16,
    life: Life,
}

/// A number while its request is asked.
struct Id<'a> {
    core: &'a Core,
    number: u64,
}

impl Drop for Id<'_> {
    fn drop(&mut self) {
        self.core.end(self.number);
    }
}

/// A change that got no answer: asked for again with this, it is carried out once. The server keeps
/// the answers to what comes after it until this is dropped, or until there are too many.
pub struct Unanswered {
    core: Arc<Core>,
    number: u64,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.core.end(self.number);
    }
}

/// How one attempt to ask failed.
struct Missed {
    error: Error,
    /// Whether the server may have got the request, and in which life of the session.
    sent_in: Option<u64>,
}

impl Core {
    /// Reaches the server.
    pub(super) fn connect(
        dial: Box<dyn Dial>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        let mut number = [0; 8];
        random_bytes(&mut number)?;
        let session = u64::from_le_bytes(number);
        let timeout = options.connect_timeout.min(options.deadline);
        let silence = Arc::default();
        let (reader, (welcome, version)) =
            open(&*dial, &options, &clock, &silence, session, timeout)?;
        let is_local = reader.stream().transport.passes_descriptors();
        let core = Self {
            is_local,
            target: dial.target(),
            dial,
            pool: Pool::new(options.connections_max),
            transfers: AtomicUsize::new(0),
            silence,
            unsynced: Unsynced::default(),
            reopening: Reopening::default(),
            options,
            clock,
            session,
            ids: Mutex::default(),
            ended: Condvar::new(),
            greeted: RwLock::new(Greeted { welcome, version, life: Life::default() }),
            dialing: Mutex::new(false),
            dialed: Condvar::new(),
            first: Mutex::new(Some(reader)),
            line: Mutex::default(),
        };
        Ok(Arc::new(core))
    }

    /// What the store can do, by the last greeting.
    pub(super) fn capability(&self) -> Capability {
        self.greeted().welcome.capability
    }

    /// The version of the protocol that the server speaks, too, by the last greeting.
    pub(super) fn version(&self) -> u16 {
        self.greeted().version
    }

    /// The number of the store.
    pub(super) fn store_id(&self) -> u128 {
        self.greeted().welcome.store_id
    }

    /// Which life of the session it is.
    pub(super) fn life(&self) -> u64 {
        self.greeted().life.number
    }

    /// The same, and what was lost up to now.
    pub(super) fn whole_life(&self) -> Life {
        self.greeted().life
    }

    fn greeted(&self) -> RwLockReadGuard<'_, Greeted> {
        self.greeted.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for what answers with little.
    pub(super) fn ask(&self, message: &Message<'_>) -> Result<Answer> {
        self.exchange(message, None, &mut |_| true)
    }

    /// Asks for a change; where no answer comes, `unanswered` is what to ask for it with again.
    pub(super) fn ask_once(
        self: &Arc<Self>,
        message: &Message<'_>,
        unanswered: &mut Option<Unanswered>,
    ) -> Result<Answer> {
        message.check()?;
        let deadline_ns = self.deadline_ns();
        let known = unanswered.take().filter(|known| lock(&self.ids).take_up(known.number));
        let asking = match known {
            Some(known) => known,
            None => {
                let number = self.take_number(message, deadline_ns)?;
                Unanswered { core: Arc::clone(self), number }
            }
        };
        let asked = self.exchange_as(asking.number, deadline_ns, message, None, &mut |_| true);
        // Whatever this try ended with, an earlier one may have come to the server.
        if asked.is_err() {
            let mut ids = lock(&self.ids);
            ids.left.insert(asking.number);
            // Threads that wait for room give it up.
            self.tell_waiters(&ids);
            drop(ids);
            *unanswered = Some(asking);
        }
        asked
    }

    /// Asks, again where the connection breaks and that is safe, until the deadline. Where that is
    /// shared with other requests and over, it does not ask at all.
    ///
    /// # Errors
    ///
    /// `Unreachable`, which says whether the request may have been carried out; `Denied`, `Busy`
    /// where no try before came to the server.
    pub(super) fn exchange(
        &self,
        message: &Message<'_>,
        filling: Option<&mut Filling<'_, '_>>,
        hear: &mut dyn FnMut(Heard<'_>) -> bool,
    ) -> Result<Answer> {
        message.check()?;
        if deadline::is_over(self.options.deadline) {
            let kind = ErrorKind::Unreachable { applied: Applied::No };
            return Err(Error::new(kind, "ask the server")
                .because("what came before took as long as all of it may take")
                .with("server", &self.target));
        }
        let spending = deadline::Spending::begin(&*self.clock);
        let deadline_ns = self.deadline_ns();
        let id = self.begin(message, deadline_ns)?;
        let answer = self.exchange_as(id.number, deadline_ns, message, filling, hear)?;
        if message.is_transfer && !message.is_shared() {
            spending.forget();
        }
        Ok(answer)
    }

    fn exchange_as(
        &self,
        id: u64,
        deadline_ns: u64,
        message: &Message<'_>,
        mut filling: Option<&mut Filling<'_, '_>>,
        hear: &mut dyn FnMut(Heard<'_>) -> bool,
    ) -> Result<Answer> {
        let begun_ns = self.clock.now_ns();
        let mut sent_in = if message.is_repeatable { None } else { message.life };
        let only_in = |sent_in| if message.is_repeatable { message.life } else { sent_in };
        // Whether a change may have come to the server.
        let mut is_sent = false;
        let mut missed_since_ns = None;
        let mut pause = PAUSE_MIN;
        let transfer = Transfer::begin(self, message);
        loop {
            let filling = filling.as_deref_mut();
            // Where one of its own breaks, the shared one may be as good as ever.
            let is_first = missed_since_ns.is_none();
            let own = transfer
                .as_ref()
                .filter(|_| is_first)
                .and_then(|transfer| transfer.lend(deadline_ns));
            let asked = match own {
                None if message.is_shared() => {
                    self.ask_shared(message, id, deadline_ns, only_in(sent_in), filling)
                }
                own => match own.map_or_else(|| self.lend(deadline_ns), Ok) {
                    Ok(lent) => self.ask_over(lent, message, id, only_in(sent_in), filling, hear),
                    Err(error) => Err(unsent(error)),
                },
            };
            let missed = match asked {
                Ok(answer) => {
                    if message.is_change {
                        lock(&self.ids).note_answer(id, answer.frame_bytes());
                    }
                    if message.leaves_unsynced && answer.kind == Some(Kind::Answer) {
                        let life = Life { number: answer.life, ..self.whole_life() };
                        self.unsynced.others.note(life);
                    }
                    return Ok(answer);
                }
                Err(missed) => missed,
            };
            let was_sent = is_sent;
            if message.is_change {
                sent_in = sent_in.or(missed.sent_in);
                is_sent |= missed.sent_in.is_some();
            }
            let applied = if sent_in.is_some() { Applied::Unknown } else { Applied::No };
            let now_ns = self.clock.now_ns();
            let missed_ns = now_ns.saturating_sub(*missed_since_ns.get_or_insert(now_ns));
            let is_over = now_ns >= deadline_ns
                || Duration::from_nanos(missed_ns) >= self.options.reconnect_time_max
                || self.silence.is_over();
            let may_retry = matches!(missed.error.kind(), ErrorKind::Unreachable { .. });
            if may_retry && now_ns >= deadline_ns {
                self.silence.note_unanswered_since(begun_ns, now_ns, self.options.deadline);
            }
            // Why this try was refused says nothing of one before, which may be on its way still.
            let is_refused = matches!(missed.error.kind(), ErrorKind::Denied | ErrorKind::Busy);
            let is_in_doubt = was_sent || is_sent && !is_refused;
            if !may_retry && !is_in_doubt {
                return Err(missed.error.with("server", &self.target));
            }
            let is_past = only_in(sent_in).is_some_and(|life| life != self.life());
            if !may_retry || is_over || is_past || sent_in.is_some() && !message.is_kept {
                return Err(Error::new(ErrorKind::Unreachable { applied }, "ask the server")
                    .with("server", &self.target)
                    .caused_by(missed.error));
            }
            self.clock.sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Sends the server something that needs no answer, over the connection that there is. Where it
    /// does not arrive, it is lost.
    pub(super) fn tell(&self, operation: Operation) {
        // This must not block on a server that does not answer.
        let Some(line) = self.current_line().filter(|line| !line.is_silent()) else { return };
        let message = Message::request(&[operation], &[], &Semantics::default());
        debug_assert!(!message.is_change, "its answer would be kept");
        if let Ok(id) = self.begin(&message, self.clock.now_ns()) {
            // The next send sees that it broke.
            let _ = line.tell(&message, id.number, self.acknowledged());
        }
    }

    /// Asks on a connection that no other request uses meanwhile; returns that, and the descriptors
    /// that came with the answer. Not again where it breaks.
    pub(super) fn exchange_alone(
        &self,
        message: &Message<'_>,
        filling: &mut Filling<'_, '_>,
    ) -> Result<(Answer, Arc<dyn Transport>, Vec<OwnedFd>)> {
        let deadline_ns = self.deadline_ns();
        let id = self.begin(message, deadline_ns)?;
        let mut lent = self.lend(deadline_ns)?;
        let patience = self.patience();
        let mut nobody = |_: Heard<'_>| true;
        let mut receiving = Receiving { clock: &*self.clock, patience, hear: &mut nobody };
        let acknowledged = self.acknowledged();
        let answer =
            lent.exchange(message, id.number, acknowledged, Some(filling), &mut receiving)?;
        let transport = lent.transport();
        // Before the connection goes back: the next one to use it would take them for its own, and
        // read another object.
        let descriptors = transport.take_descriptors();
        drop(lent);
        Ok((answer, transport, descriptors))
    }

    /// Whether the server is on this machine and lends files.
    pub(super) fn is_lent(&self) -> bool {
        self.is_local && self.capability().leases
    }

    fn lend(&self, deadline_ns: u64) -> Result<Lent<'_>> {
        self.pool.lend(self.left(deadline_ns), || self.dial_bulk(deadline_ns))
    }

    fn dial_bulk(&self, deadline_ns: u64) -> Result<Bulk> {
        let (reader, life) = self.turn(deadline_ns)?.dial(deadline_ns)?;
        Ok(Bulk::new(reader, life))
    }

    fn ask_shared(
        &self,
        message: &Message<'_>,
        id: u64,
        deadline_ns: u64,
        only_in: Option<u64>,
        filling: Option<&mut Filling<'_, '_>>,
    ) -> Result<Answer, Missed> {
        let line = self.line(deadline_ns).map_err(unsent)?;
        check_life(line.life, only_in)?;
        let sent = |error| missed(error, line.life);
        line.begin(message, id, self.acknowledged()).map_err(sent)?;
        let mut answer = line.wait(id, deadline_ns).map_err(sent)?;
        answer.life = line.life;
        if let Some(filling) = filling {
            filling.restart();
            if !filling.copy(&std::mem::take(&mut answer.payload)) {
                return Err(sent(odd("it is longer than what was asked for")));
            }
        }
        Ok(answer)
    }

    /// Asks once, in one life of the session, over the connection that there is; `done` is called
    /// with the answer, and made only where the request was begun.
    pub(super) fn ask_later(
        &self,
        message: &Message<'_>,
        life: u64,
        done: &mut dyn FnMut() -> LaterDone,
    ) -> Option<Begun> {
        debug_assert!(!message.is_change, "its answer would be kept");
        if !message.is_shared() {
            return None;
        }
        let line = self.current_line().filter(|line| line.life == life)?;
        let numbers = {
            let mut ids = lock(&self.ids);
            (ids.next(false), ids.acknowledged())
        };
        let begun = line.begin_later(message, numbers, self.deadline_ns(), done)?;
        Some(match begun {
            true => Begun::Answering(Box::new(move || line.answer_later())),
            false => Begun::Sent,
        })
    }

    /// Asks over a connection that no other request uses meanwhile.
    fn ask_over(
        &self,
        mut lent: Lent<'_>,
        message: &Message<'_>,
        id: u64,
        only_in: Option<u64>,
        filling: Option<&mut Filling<'_, '_>>,
        hear: &mut dyn FnMut(Heard<'_>) -> bool,
    ) -> Result<Answer, Missed> {
        let life = lent.life();
        check_life(life, only_in)?;
        let left = self.patience();
        let patience = if message.is_stream { left.max(STREAM_SILENCE_MAX) } else { left };
        let mut receiving = Receiving { clock: &*self.clock, patience, hear };
        let answered = lent.exchange(message, id, self.acknowledged(), filling, &mut receiving);
        answered
            .map(|answer| Answer { life, ..answer })
            .map_err(|error| missed(broken(error), life))
    }

    /// The connection that small requests share.
    fn line(&self, deadline_ns: u64) -> Result<Arc<Line>> {
        if let Some(line) = self.current_line() {
            return Ok(line);
        }
        let turn = self.turn(deadline_ns)?;
        // Another thread may have made one while this one waited for its turn.
        if let Some(line) = self.current_line() {
            return Ok(line);
        }
        let (reader, life) = turn.dial(deadline_ns)?;
        let (clock, deadline) = (Arc::clone(&self.clock), self.options.deadline);
        let line = Arc::new(Line::new(reader, life, clock, deadline));
        *lock(&self.line) = Some(Arc::clone(&line));
        Ok(line)
    }

    /// The connection that small requests share, where it can be used. One of a former life leads
    /// to a server that has ended, even where this was not noticed yet.
    fn current_line(&self) -> Option<Arc<Line>> {
        let line = lock(&self.line).clone()?;
        (line.life == self.life() && line.is_usable()).then_some(line)
    }

    /// The right to dial: one thread at a time, so that each sees whether the server still has what
    /// the one before sent it.
    fn turn(&self, deadline_ns: u64) -> Result<Turn<'_>> {
        let is_busy = |dialing: &mut bool| *dialing;
        let (mut dialing, waited) = self
            .dialed
            .wait_timeout_while(lock(&self.dialing), self.left(deadline_ns), is_busy)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && *dialing {
            return Err(Error::new(
                ErrorKind::Unreachable { applied: Applied::No },
                "reach the server",
            )
            .because("others try it just now, in vain"));
        }
        *dialing = true;
        Ok(Turn(self))
    }

    /// Gives a request its number. A change waits while the server would have to keep too many
    /// answers, because one before it takes long.
    fn begin(&self, message: &Message<'_>, deadline_ns: u64) -> Result<Id<'_>> {
        self.take_number(message, deadline_ns).map(|number| Id { core: self, number })
    }

    fn take_number(&self, message: &Message<'_>, deadline_ns: u64) -> Result<u64> {
        let is_kept = message.is_change && message.is_kept;
        let is_full = |ids: &mut Ids| {
            if is_kept && ids.is_full() && !ids.left.is_empty() {
                // No caller is delayed for changes whose results no caller waits for.
                ids.give_up_left();
                self.tell_waiters(ids);
            }
            is_kept && ids.is_full()
        };
        let mut ids = lock(&self.ids);
        if is_full(&mut ids) {
            ids.waiters += 1;
            ids = self
                .ended
                .wait_timeout_while(ids, self.left(deadline_ns), is_full)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            ids.waiters -= 1;
        }
        if is_full(&mut ids) {
            return Err(Error::new(ErrorKind::Busy, "ask the server")
                .because("a change takes long, and too many came after it")
                .with("changes_max", ANSWERS_MAX)
                .with("answers_bytes_max", ANSWERS_BYTES_MAX)
                .with("server", &self.target));
        }
        Ok(ids.next(is_kept))
    }

    /// Takes note that a request was answered, or is given up.
    fn end(&self, number: u64) {
        let mut ids = lock(&self.ids);
        ids.end(number);
        self.tell_waiters(&ids);
    }

    /// Has threads that wait for room look again.
    fn tell_waiters(&self, ids: &Ids) {
        // Notifying without waiters is a call of the operating system, too.
        if ids.waiters > 0 {
            self.ended.notify_all();
        }
    }

    fn acknowledged(&self) -> u64 {
        lock(&self.ids).acknowledged()
    }

    /// When a request that begins now is given up.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.clock.now_ns().saturating_add(self.patience().as_nanos() as u64)
    }

    /// What a request has that begins now.
    fn patience(&self) -> Duration {
        let deadline = self.options.deadline;
        self.silence.bound(self.clock.now_ns(), deadline::left(deadline), deadline)
    }

    /// From now on this client waits no longer for a server that sends nothing for a few seconds, however
    /// long the deadline is: what it asks fails then. One that answers has all the time that it had.
    pub(super) fn end_soon(self: &Arc<Self>) {
        if !self.silence.begin_ending(self.clock.now_ns()) {
            return;
        }
        let core = Arc::downgrade(self);
        let watch = move || {
            while let Some(core) = core.upgrade() {
                if core.silence.give_up(core.clock.now_ns()) {
                    return;
                }
                core.clock.sleep(ENDING_TICK);
            }
        };
        // Where there is no thread, what it asks has the whole deadline, as before.
        let _ = std::thread::Builder::new().name("client-ends".into()).spawn(watch);
    }

    fn left(&self, deadline_ns: u64) -> Duration {
        Duration::from_nanos(deadline_ns.saturating_sub(self.clock.now_ns()))
    }
}

/// A small transfer that is on its way while this lives.
struct Transfer<'a> {
    core: &'a Core,
    /// How many there were before it.
    others: usize,
}

impl<'a> Transfer<'a> {
    /// `None` for another request.
    fn begin(core: &'a Core, message: &Message<'_>) -> Option<Self> {
        let is_small = message.is_transfer && message.is_shared();
        is_small.then(|| Self { core, others: core.transfers.fetch_add(1, Ordering::AcqRel) })
    }

    /// A connection of its own, if it is to have one and there is one to be had.
    fn lend(&self, deadline_ns: u64) -> Option<Lent<'a>> {
        if !(1..=OWN_MAX).contains(&self.others) {
            return None;
        }
        let core = self.core;
        core.pool.lend_at_once(|| core.dial_bulk(deadline_ns))
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        self.core.transfers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The right to dial, while this lives.
struct Turn<'a>(&'a Core);

impl Turn<'_> {
    /// A new connection, and the life of the session that it belongs to.
    fn dial(&self, deadline_ns: u64) -> Result<(FrameReader<Timed>, u64)> {
        let core = self.0;
        if let Some(reader) = lock(&core.first).take()
            && !reader.has_more()
            && !reader.stream().transport.is_readable(Duration::ZERO)
            && core.life() == 1
        {
            return Ok((reader, 1));
        }
        let timeout = core.left(deadline_ns).min(core.options.connect_timeout);
        let (reader, (welcome, version)) =
            open(&*core.dial, &core.options, &core.clock, &core.silence, core.session, timeout)?;
        let mut greeted = core.greeted.write().unwrap_or_else(PoisonError::into_inner);
        if welcome.store_id != greeted.welcome.store_id {
            return Err(Error::new(ErrorKind::Denied, "use the server")
                .because("another store is served there now")
                .with("store", format!("{:032x}", welcome.store_id))
                .with("expected", format!("{:032x}", greeted.welcome.store_id)));
        }
        if welcome.life != greeted.welcome.life {
            greeted.life.number += 1;
            if !welcome.openings.keep(&greeted.welcome.openings) {
                greeted.life.whole_since = greeted.life.number;
            }
            core.pool.forget(greeted.life.number);
        }
        (greeted.welcome, greeted.version) = (welcome, version);
        Ok((reader, greeted.life.number))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.dialing) = false;
        self.0.dialed.notify_one();
    }
}

fn open(
    dial: &dyn Dial,
    options: &Options,
    clock: &Arc<dyn Clock>,
    silence: &Arc<Silence>,
    session: u64,
    timeout: Duration,
) -> Result<(FrameReader<Timed>, (Welcome, u16))> {
    if silence.is_over() {
        return Err(Error::new(
            ErrorKind::Unreachable { applied: Applied::No },
            "reach the server",
        )
        .because("this client ends, and the server did not answer"));
    }
    let deadline_ns = clock.now_ns().saturating_add(timeout.as_nanos() as u64);
    let transport = dial.dial(timeout)?;
    let timed = Timed::new(transport, Arc::clone(clock), options.deadline, Arc::clone(silence))
        .map_err(|error| Error::from_io("reach the server", error))?;
    timed.set_deadline(deadline_ns);
    let mut reader = FrameReader::new(timed);
    let greeted = greet(&mut reader, options, session)
        .map_err(|error| error.with("server", dial.target()))?;
    Ok((reader, greeted))
}

/// A change that was sent in a former life of the session, or means something there alone, is not
/// asked for, unless it is idempotent: whether it was carried out is unknown.
fn check_life(life: u64, only_in: Option<u64>) -> Result<(), Missed> {
    match only_in {
        Some(before) if before != life => Err(Missed {
            error: Error::new(
                ErrorKind::Unreachable { applied: Applied::Unknown },
                "ask the server again",
            )
            .because("it was started anew meanwhile"),
            sent_in: only_in,
        }),
        _ => Ok(()),
    }
}

/// What was damaged on its way, or cannot be understood, says nothing of what is stored: it ends the
/// connection as a cut does.
fn broken(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Invalid => {
            lost("what came is no answer".into()).caused_by(error)
        }
        _ => error,
    }
}

/// A request that was sent in this life of the session: unless the server says that it did not carry it
/// out, it may have.
fn missed(error: Error, life: u64) -> Missed {
    let sent_in = (!is_refused(&error)).then_some(life);
    Missed { error, sent_in }
}

fn unsent(error: Error) -> Missed {
    Missed { error, sent_in: None }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use terrace_core::{Atomicity, Persistency, Writes};
    use terrace_testkit::ManualClock;

    use super::*;

    /// A server that is asked for when a test lets it, and then refuses.
    struct Refusing {
        asked: Mutex<Sender<()>>,
        gate: Mutex<Receiver<()>>,
    }

    impl Dial for Refusing {
        fn dial(&self, _: Duration) -> Result<Arc<dyn Transport>> {
            lock(&self.asked).send(()).expect("the test waits");
            lock(&self.gate).recv().expect("the test lets it");
            Err(Error::new(ErrorKind::Denied, "reach the server"))
        }

        fn target(&self) -> String {
            "refusing".into()
        }
    }

    /// A client that was connected once.
    fn core(dial: impl Dial + 'static, deadline: Duration) -> Arc<Core> {
        let capability = Capability {
            atomicity: Atomicity::None,
            persistency: Persistency::None,
            sparse: true,
            ordered_listing: true,
            identity: false,
            leases: false,
            keeps_data: true,
            labels: false,
            writes: Writes::InPlace,
            object_bytes_max: u64::MAX,
            packed: false,
        };
        let target = dial.target();
        let welcome = Welcome {
            proof: [0; 32],
            store_id: 7,
            life: 1,
            capability,
            target: target.clone(),
            openings: Default::default(),
        };
        let options = Options { deadline, ..Options::default() };
        Arc::new(Core {
            silence: Arc::default(),
            is_local: false,
            target,
            dial: Box::new(dial),
            pool: Pool::new(options.connections_max),
            transfers: AtomicUsize::new(0),
            unsynced: Unsynced::default(),
            reopening: Reopening::default(),
            options,
            clock: Arc::new(ManualClock::new()),
            session: 1,
            ids: Mutex::default(),
            ended: Condvar::new(),
            greeted: RwLock::new(Greeted { welcome, version: 1, life: Life::default() }),
            dialing: Mutex::new(false),
            dialed: Condvar::new(),
            first: Mutex::default(),
            line: Mutex::default(),
        })
    }

    #[test]
    fn who_waits_goes_on_when_nobody_waits_any_more_for_what_came_before() {
        // It passes where no thread is woken.
        let deadline = Duration::from_secs(60);
        let ((asked, is_asked), (go_on, gate)) = (channel(), channel());
        let dial = Refusing { asked: Mutex::new(asked), gate: Mutex::new(gate) };
        let core = &core(dial, deadline);
        let change = || {
            let what = terrace_wire::OnHandle::SetLen { bytes: 1 };
            let operations = [Operation::On { handle: 1, what }];
            Message::request(&operations, &[], &Semantics::default())
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(move || {
                let mut unanswered = None;
                let error = core.ask_once(&change(), &mut unanswered).expect_err("refused");
                (error, unanswered)
            });
            is_asked.recv().expect("it is asked for");
            for _ in 1..ANSWERS_MAX {
                drop(core.begin(&change(), core.deadline_ns()).expect("there is room"));
            }
            let wait = || core.take_number(&change(), core.deadline_ns());
            let waiting = [(); 2].map(|()| scope.spawn(wait));
            while lock(&core.ids).waiters < waiting.len() {
                std::thread::yield_now();
            }
            go_on.send(()).expect("it waits");
            let (error, unanswered) = first.join().expect("no panic");
            assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
            for thread in waiting {
                thread.join().expect("no panic").expect("there is room again");
            }
            let known = unanswered.expect("nobody answered");
            assert!(!lock(&core.ids).take_up(known.number), "it was given up");
        });
    }
}
