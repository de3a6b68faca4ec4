// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One server as a backend and as key-value pairs.
//!
//! `core` connects and asks; `line` is the connection that small requests share, `bulk` those for
//! large ones.

mod batch;
mod bulk;
mod core;
mod dial;
mod draft;
mod greeting;
mod ids;
mod kv;
mod later;
mod lent;
mod life;
mod line;
mod object;
mod options;
mod reopening;
mod request;
mod silence;
mod unsynced;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{
    Access, Applied, Backend, Capability, Clock, Cursor, Draft, Error, ErrorKind, Identity, Key,
    Object, Op, Open, Page, Result, Semantics, Space, Stat, Superblock, TierBackend, execute_each,
};
use terrace_wire::{Failure, Kind, Opening, Operation, Outcome, check_short};

pub use terrace_wire::Effect;

pub use self::bulk::Heard;
pub use self::core::Unanswered;
pub use self::dial::{Address, Dial, TlsAddress};
pub use self::kv::RemoteKv;
pub use self::options::Options;
pub use self::reopening::ReopenGuard;

use self::bulk::read_json_bytes;
use self::core::Core;
use self::draft::RemoteDraft;
use self::object::RemoteObject;
use self::request::{Answer, Message, odd};

/// A store behind a server. Clones are the same session.
///
/// Several requests are on their way at once, from as many threads. Where a connection breaks,
/// another one is made, and what was asked is asked again: the server carries it out once. Only
/// where the server was started anew meanwhile, a change that got no answer fails with
/// `Unreachable` and `Applied::Unknown`.
///
/// What was written to an open object and not synced may be lost with the server. Then each sync of
/// the object fails with `Io` through all handles that were open, also through those that wrote
/// nothing, and through the next ones that are opened, until the error was returned through one of
/// these: to go on, open it anew and write it again. A sync of the store fails once where anything
/// else may be lost that was changed and not synced: what was made or deleted, identities, pairs,
/// what batches wrote. So does one of all objects, also for what was written to those that are
/// open. What was asked for at level `storage` needs no sync.
///
/// A draft belongs to the session. A server that was started anew has discarded it: what is done with
/// it fails with `Unreachable` and `Applied::No`.
#[derive(Clone)]
pub struct Remote {
    core: Arc<Core>,
}

/// The result of a call of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    /// JSON.
    pub json: Vec<u8>,
    /// Bytes that belong to it.
    pub body: Vec<u8>,
}

impl Remote {
    /// Reaches a server.
    ///
    /// # Errors
    ///
    /// `Unreachable` with `Applied::No` where it does not answer in time; `Denied` where either side
    /// does not know the secret; `Unsupported` (no common version), `Busy`.
    pub fn connect(dial: Box<dyn Dial>, options: Options, clock: Arc<dyn Clock>) -> Result<Self> {
        Ok(Self { core: Core::connect(dial, options, clock)? })
    }

    /// The number of the store that is served.
    pub fn store_id(&self) -> u128 {
        self.core.store_id()
    }

    /// The key-value pairs of a namespace.
    pub fn kv(&self, namespace: &str) -> RemoteKv {
        RemoteKv::new(Arc::clone(&self.core), namespace)
    }

    /// Makes a call of the control plane (`docs/formats/control.md`); `progress` is called with its
    /// progress.
    ///
    /// # Errors
    ///
    /// What the call says; `Unreachable`.
    pub fn call(
        &self,
        json: &[u8],
        body: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CallAnswer> {
        let message = Message::call(json, body);
        let mut hear = |heard: Heard<'_>| {
            if let Heard::Progress { done, total } = heard {
                progress(done, total);
            }
            true
        };
        let answer = self.core.exchange(&message, None, &mut hear)?;
        match answer.kind {
            Some(Kind::Result) => {}
            Some(Kind::Failed) => return Err(Failure::from_head(&answer.head)?.into_error()),
            _ => return Err(odd("another frame is expected")),
        }
        let json_bytes = read_json_bytes(&answer.head)?;
        let mut json = answer.payload;
        if json_bytes > json.len() {
            return Err(odd("it is shorter than it says"));
        }
        let body = json.split_off(json_bytes);
        Ok(CallAnswer { json, body })
    }

    /// Makes a call that tells what happens until `hear` returns false, which is asked ten times a
    /// second where nothing comes.
    ///
    /// # Errors
    ///
    /// What the call says; `Unreachable` where the server ends, or says nothing any more.
    pub fn watch(&self, json: &[u8], hear: &mut dyn FnMut(Heard<'_>) -> bool) -> Result<()> {
        // A watch changes nothing, so that nothing can have been applied.
        let ended = |reason| {
            Error::new(ErrorKind::Unreachable { applied: Applied::No }, "watch the store")
                .because(reason)
                .with("server", &self.core.target)
        };
        let answer = self.core.exchange(&Message::stream(json), None, hear);
        let answer = answer.map_err(|error| match error.kind() {
            ErrorKind::Unreachable { applied: Applied::Unknown } => {
                ended("its server ended, or does not answer any more")
            }
            _ => error,
        })?;
        match answer.kind {
            None => Ok(()),
            Some(Kind::Failed) => Err(Failure::from_head(&answer.head)?.into_error()),
            Some(Kind::Result) => Err(ended("its server ends")),
            Some(_) => Err(odd("another frame is expected")),
        }
    }

    /// Asks the metadata of the file system in a namespace; request and answer are bytes that only
    /// they understand. A change with a `life` is made in that life of the session or not at all.
    /// With the answer comes the life in which it was given.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is none, `Unsupported`, `Denied`, `Unreachable`, also where the life
    /// is over.
    pub fn files(
        &self,
        namespace: &str,
        effect: Effect,
        life: Option<u64>,
        request: &[u8],
    ) -> Result<(Vec<u8>, u64)> {
        let operation = files_operation(namespace, effect, request)?;
        let parts = [request];
        let message = Message::request(&[operation], &parts, &Semantics::default());
        files_answer(self.core.ask(&message.only_in(life))?)
    }

    /// The same for a change in one life of the session. Where no answer comes, `unanswered` is
    /// set: a caller that asks for the same with it again in that life gets the answer to the first
    /// time, if it was carried out then. Not so once 2048 changes of this client came after it, or
    /// so many that their answers have 2 MiB. The answer has to fit into one frame.
    ///
    /// # Errors
    ///
    /// As [`Remote::files`].
    pub fn files_once(
        &self,
        namespace: &str,
        effect: Effect,
        life: u64,
        request: &[u8],
        unanswered: &mut Option<Unanswered>,
    ) -> Result<(Vec<u8>, u64)> {
        let operation = files_operation(namespace, effect, request)?;
        let parts = [request];
        let message = Message::request(&[operation], &parts, &Semantics::default());
        files_answer(self.core.ask_once(&message.only_in(Some(life)), unanswered)?)
    }

    /// Has a guard asked before an object that is open is opened again in a later life of the session, as
    /// long as anybody else has the guard.
    pub fn guard_reopening(&self, guard: &Arc<dyn ReopenGuard>) {
        self.core.reopening.add(guard);
    }

    /// Which life of its session a client has: another one after the server was started anew, or
    /// was without this client for too long. What the server kept for the one before is gone.
    pub fn life(&self) -> u64 {
        self.core.life()
    }

    /// Begins the end of this client: from now on it gives up a server that sends nothing for 3 s, whatever the
    /// deadline is. What it asks fails as `Unreachable` then.
    pub fn end_soon(&self) {
        self.core.end_soon();
    }

    /// The first life of the session of which nothing is lost, as far as is known: what was done and
    /// not synced in an earlier one may be, because the server ended before it was durable.
    pub fn whole_since(&self) -> u64 {
        self.core.whole_life().whole_since
    }

    fn opening(&self, operation: &'static str, key: &Key, how: &Open) -> Result<Opening> {
        self.capability().check_atomicity(operation, how.semantics.atomicity)?;
        // An empty one would say that there is none.
        how.check_label(&self.capability())
            .map_err(|error| error.with("key", key).with("target", self.target()))?;
        Ok(Opening {
            key: key.clone(),
            create: how.create,
            access: how.access,
            size_hint_bytes: how.size_hint_bytes,
            segment_bytes: how.segment_bytes,
            hint: how.hint,
            identity: how.identity.as_deref().map(|identity| Box::new(identity.clone())),
            label: how.label.clone().unwrap_or_default(),
        })
    }

    /// Asks for one thing without data.
    fn ask(&self, operation: Operation) -> Result<Outcome> {
        self.core.ask_one(operation, &[], &Semantics::default()).map(|(outcome, _)| outcome)
    }
}

impl Core {
    /// Asks for one operation; returns how it ended, unless it failed, and what it read.
    fn ask_one(
        &self,
        operation: Operation,
        parts: &[&[u8]],
        semantics: &Semantics,
    ) -> Result<(Outcome, Vec<u8>)> {
        self.ask(&Message::request(&[operation], parts, semantics))?.one()
    }

    /// Has what was made, deleted and the like made durable, or all.
    ///
    /// # Errors
    ///
    /// `Io`, once, where something of that is lost that was changed since the last time.
    fn sync_store(&self, is_all: bool) -> Result<()> {
        // Before the server is asked: what is changed meanwhile is not synced by this.
        let begun = self.unsynced.others.begin_sync();
        let begun_of_all = is_all.then(|| self.unsynced.begin_sync_of_all());
        let operation = Operation::Sync { is_all };
        let synced = self.ask_one(operation, &[], &Semantics::default());
        let synced = synced.and_then(|(outcome, _)| done(outcome));
        let life = self.whole_life();
        self.unsynced.others.find(life);
        let mut is_lost = self.unsynced.others.end_sync(&begun, synced.is_ok(), begun.told);
        if let (Some(begun), Ok(())) = (begun_of_all, &synced) {
            is_lost |= self.unsynced.end_sync_of_all(begun, life);
        }
        match is_lost {
            true => Err(Error::new(ErrorKind::Io, "sync the store")
                .because(
                    "the server was started anew: what was changed since the last sync may be lost; look, and change it again",
                )
                .with("server", &self.target)),
            false => synced,
        }
    }
}

/// An outcome of another kind than the operation has.
fn unexpected<T>() -> Result<T> {
    Err(odd("an operation ended as another one would"))
}

fn done(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        _ => unexpected(),
    }
}

fn stat_of(outcome: Outcome) -> Result<Stat> {
    match outcome {
        Outcome::Stat(stat) => Ok(stat),
        _ => unexpected(),
    }
}

impl Backend for Remote {
    fn target(&self) -> &str {
        &self.core.target
    }

    fn capability(&self) -> Capability {
        Capability { leases: false, ..self.core.capability() }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let opening = self.opening("open object", key, how)?;
        let object = RemoteObject::open(Arc::clone(&self.core), opening, how.semantics)?;
        Ok(Box::new(object))
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        let how = Open { access: Access::Write, ..how.clone() };
        let opening = self.opening("replace an object", key, &how)?;
        let draft = RemoteDraft::begin(Arc::clone(&self.core), opening, how.semantics)?;
        Ok(Box::new(draft))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        stat_of(self.ask(Operation::Stat { key: key.clone() })?)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        done(self.ask(Operation::Delete { key: key.clone() })?)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        check_short("namespace", namespace.len())?;
        check_short("prefix", prefix.len())?;
        check_short("cursor", cursor.0.len())?;
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let (namespace, prefix) = (namespace.to_owned(), prefix.to_owned());
        let of = namespace.clone();
        let listed =
            self.ask(Operation::List { namespace, prefix, cursor: cursor.0.clone(), max })?;
        let Outcome::Page { names, next } = listed else { return unexpected() };
        let keys = names.iter().map(|name| Key::new(&of, name)).collect::<Result<_>>()?;
        Ok(Page { keys, next: next.map(Cursor) })
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        let mut namespaces = Vec::new();
        let mut cursor = Vec::new();
        loop {
            let listed = self.ask(Operation::Namespaces { cursor })?;
            let Outcome::Page { names, next } = listed else { return unexpected() };
            namespaces.extend(names);
            match next {
                Some(next) => cursor = next,
                None => return Ok(namespaces),
            }
        }
    }

    fn space(&self) -> Result<Space> {
        match self.ask(Operation::Space)? {
            Outcome::Space(space) => Ok(space),
            _ => unexpected(),
        }
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        if self.capability().check_atomicity("run a batch", semantics.atomicity).is_err() {
            return execute_each(self, operations, semantics);
        }
        batch::execute(self, operations, semantics);
    }

    fn sync(&self) -> Result<()> {
        self.core.sync_store(false)
    }

    fn sync_all(&self) -> Result<()> {
        self.core.sync_store(true)
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

impl TierBackend for Remote {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        match self.ask(Operation::Identity { key: key.clone() })? {
            Outcome::Identity(identity) => Ok(identity.map(|identity| *identity)),
            _ => unexpected(),
        }
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        let identity = Box::new(identity.clone());
        done(self.ask(Operation::SetIdentity { key: key.clone(), identity })?)
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        match self.ask(Operation::Superblock)? {
            Outcome::Superblock(superblock) => Ok(superblock.map(|superblock| *superblock)),
            _ => unexpected(),
        }
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        check_short("name of the tier", superblock.tier.len())?;
        let superblock = Box::new(superblock.clone());
        done(self.ask(Operation::SetSuperblock { superblock })?)
    }
}

fn files_operation(namespace: &str, effect: Effect, request: &[u8]) -> Result<Operation> {
    let data_bytes = u32::try_from(request.len()).map_err(|_| odd("a request is too long"))?;
    Ok(Operation::Files { namespace: namespace.into(), effect, data_bytes })
}

/// What the metadata answered, and in which life of the session.
fn files_answer(answer: Answer) -> Result<(Vec<u8>, u64)> {
    let life = answer.life;
    match answer.one()? {
        (Outcome::Read(_), answer) => Ok((answer, life)),
        _ => unexpected(),
    }
}

/// The same failure for each operation of a request that failed as a whole.
fn again(error: &Error) -> Error {
    Error::relayed(error.kind(), &error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that these locks protect is ever half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
