// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Over which stores a file system lies: with its names is a record of all of them, and each other
//! one has a mark of whose it is (ADR 28).
//!
//! A client that uses it with some of them alone reads, writes and removes parts of files, and makes files
//! where no other client finds them.

use std::sync::Arc;

use rustix::io::Errno;
use terrace_core::{Backend, Cursor, Error, ErrorKind, Key, Kv, Open, Result};
use terrace_fs::{
    Belonging, Failure, KnownStore, Over, Tree, TreeOptions, belonging, file_system_id, has_object,
    is_distributed, mark, mark_anyway, record_further_stores, record_stores, recorded_stores,
    sample_of_objects, unmark,
};

use crate::Store;
use crate::store::Side;

pub(crate) const OPEN: &str = "open a file system";
pub(crate) const MAKE: &str = "make a file system";

/// What a file system is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesUse {
    /// To change it: over all of its stores.
    Change,
    /// To read all of it.
    Read,
    /// To read what there is, also where some of its stores are missing.
    ReadPart,
}

/// Over which stores a file system lies from now on, and over which it does not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoresSet {
    /// Those over which it lies.
    pub stores: Vec<String>,
    /// Those that were left out.
    pub left_out: Vec<String>,
}

/// A store that was named when this one was opened, and what it has in a namespace.
pub(crate) struct Companion {
    known: KnownStore,
    pub(crate) kv: Arc<dyn Kv>,
    data: Arc<dyn Backend>,
}

fn failed(operation: &'static str) -> impl Fn(Failure) -> Error {
    move |failure| failure.into_error(operation)
}

impl Store {
    /// The stores behind this one, in the order in which they were named.
    pub(crate) fn companions(&self, name: &str) -> Result<Vec<Companion>> {
        match &self.side {
            Side::Owned(owned) => {
                let place = owned.directory.path().display().to_string();
                let known = KnownStore::new(owned.stack.store_id(), &place);
                let (kv, data) = (owned.stack.kv(name)?, Arc::new(self.clone()));
                Ok(vec![Companion { known, kv, data }])
            }
            Side::Attached(link) => {
                let servers = link.file_servers().into_iter();
                let companion = |(server, remote): (&str, &terrace_client::Remote)| Companion {
                    known: KnownStore::new(remote.store_id(), server),
                    kv: Arc::new(remote.kv(name)),
                    data: Arc::new(remote.clone()),
                };
                Ok(servers.map(companion).collect())
            }
        }
    }

    /// Checks that the servers are all those over which a file system lies, before it is used. Where
    /// it is to be changed, further ones are recorded with it and marked.
    ///
    /// One of which nothing was recorded yet, made by a version that did not, gets its record where a
    /// sample of its files is whole.
    ///
    /// # Errors
    ///
    /// `Exists` where one is missing, belongs to another file system, or is new and has objects
    /// already; `Corrupt` or `Io` where the record cannot be read; `Unreachable`.
    pub fn join_files(&self, name: &str, how: FilesUse) -> Result<()> {
        let companions = self.companions(name)?;
        let Some(keeper) = self.keeper_index(name)? else {
            return check_names_elsewhere(&companions, name);
        };
        if how == FilesUse::ReadPart {
            return Ok(());
        }
        let keeper = &companions[keeper];
        let recorded = recorded_stores(&*keeper.kv).map_err(unreadable(name))?;
        match &recorded {
            Some(recorded) => check_all_named(recorded, &companions, name)?,
            None => self.check_sample(keeper, name)?,
        }
        if how == FilesUse::Change && companions.len() > 1 {
            take_in(keeper, &companions, recorded.as_deref(), name)?;
        }
        Ok(())
    }

    /// Records that a file system lies over the servers of this store and no other ones, and marks
    /// each of them: one was lost for good, or has another store now. It must not be in use meanwhile.
    ///
    /// # Errors
    ///
    /// `NotFound` where none of them has its names; `Exists` where several do; `Denied`,
    /// `Unreachable`, `Io`.
    pub fn set_files_stores(&self, name: &str) -> Result<StoresSet> {
        const OPERATION: &str = "set the servers of a file system";
        if let Side::Owned(owned) = &self.side {
            owned.check_writable(OPERATION)?;
        }
        let companions = self.companions(name)?;
        let Some(index) = self.keeper_index(name)? else {
            return Err(Error::new(ErrorKind::NotFound, OPERATION)
                .because("none of them has the names of its files")
                .with("name", name));
        };
        let keeper = &companions[index];
        // One that cannot be read is what is to be mended.
        let before = recorded_stores(&*keeper.kv).ok().flatten().unwrap_or_default();
        let ours = keeper.mark(OPERATION)?;
        for other in companions.iter().filter(|one| one.known.id != keeper.known.id) {
            if !mark_anyway(&*other.kv, &ours).map_err(failed(OPERATION))? {
                return Err(Error::new(ErrorKind::Exists, OPERATION)
                    .because("one of them keeps a file system of this name")
                    .with("name", name)
                    .with("server", &other.known.name));
            }
        }
        let all: Vec<_> = companions.iter().map(|one| one.known.clone()).collect();
        record_stores(&*keeper.kv, &all).map_err(failed(OPERATION))?;
        let is_left_out = |one: &&KnownStore| all.iter().all(|now| now.id != one.id);
        let left_out = before.iter().filter(is_left_out).map(ToString::to_string).collect();
        Ok(StoresSet { stores: all.iter().map(ToString::to_string).collect(), left_out })
    }

    /// Whether files of a file system of which nothing is recorded can be read, as far as a sample
    /// tells.
    fn check_sample(&self, keeper: &Companion, name: &str) -> Result<()> {
        if !is_distributed(&*keeper.kv).map_err(failed(OPEN))? {
            return Ok(());
        }
        let sample = sample_of_objects(&*keeper.kv, name).map_err(failed(OPEN))?;
        for (number, key) in sample {
            let Err(error) = self.open(&key, &Open::read()) else { continue };
            let is_elsewhere = match error.kind() {
                // It may have been removed meanwhile.
                ErrorKind::NotFound => has_object(&*keeper.kv, number).map_err(failed(OPEN))?,
                ErrorKind::Stale | ErrorKind::Unsupported => true,
                ErrorKind::Unreachable { .. } => return Err(error),
                // A tier that is missing, or damage: it is here all the same.
                _ => false,
            };
            if is_elsewhere {
                let reason = "it was used over several servers, and not all of a file is on those \
                              that are named";
                return Err(refused(reason, name).with("key", key));
            }
        }
        Ok(())
    }
}

impl Companion {
    /// The mark of those that belong to the file system whose names are here.
    fn mark(&self, operation: &'static str) -> Result<Belonging> {
        let id = file_system_id(&*self.kv).map_err(failed(operation))?;
        let file_system = id.ok_or_else(|| Error::new(ErrorKind::NotFound, operation))?;
        Ok(Belonging { file_system, keeper: self.known.clone() })
    }
}

/// The mark of each store, which mean nothing any more.
///
/// # Errors
///
/// `Exists` where one of them belongs to a file system.
pub(crate) fn check_marks(companions: &[Companion], name: &str) -> Result<Vec<Option<Belonging>>> {
    companions.iter().map(|one| foreign_mark(one, companions, None, MAKE, name)).collect()
}

/// Makes a file system over several stores, whose names are with the first one. The marks come
/// before it: after a crash in between they are those of a file system that is not there, and mean
/// nothing to a client that sees them.
///
/// `seen` are the marks that [`check_marks`] found.
pub(crate) fn create_over(
    companions: &[Companion],
    seen: &[Option<Belonging>],
    name: &str,
    options: &TreeOptions,
) -> Result<()> {
    let mut entropy = [0; 32];
    terrace_transport::random_bytes(&mut entropy)?;
    let (keeper, others) = companions.split_first().expect("a store has at least one behind it");
    let ours = Belonging { file_system: Tree::id_of(&entropy), keeper: keeper.known.clone() };
    let make = || {
        for (other, seen) in others.iter().zip(&seen[1..]) {
            claim(other, &ours, seen.as_ref(), MAKE, name)?;
        }
        let stores: Vec<_> = companions.iter().map(|one| one.known.clone()).collect();
        let stores = if others.is_empty() { &[][..] } else { &stores[..] };
        let over = Over { stores, seen: seen[0].as_ref() };
        let clock = terrace_core::SystemClock::default();
        Tree::create_over(&*keeper.kv, options, &over, &clock, &entropy).map_err(failed(MAKE))
    };
    let made = make();
    if made.is_err() {
        for other in others {
            // What stays is in no client's way that names the keeper, too.
            let _ = unmark(&*other.kv, &ours);
        }
    }
    made
}

/// Refuses to make a file system where a store belongs to one whose names are elsewhere.
pub(crate) fn check_unmarked(kv: &dyn Kv, operation: &'static str, name: &str) -> Result<()> {
    match belonging(kv).map_err(failed(operation))? {
        Some(found) => Err(belongs_elsewhere(&found, operation, name)),
        None => Ok(()),
    }
}

/// Marks further stores as those of a file system, and records them.
fn take_in(
    keeper: &Companion,
    companions: &[Companion],
    recorded: Option<&[KnownStore]>,
    name: &str,
) -> Result<()> {
    let ours = keeper.mark(OPEN)?;
    let is_recorded =
        |one: &Companion| recorded.is_some_and(|all| all.iter().any(|of| of.id == one.known.id));
    for other in companions.iter().filter(|one| one.known.id != keeper.known.id) {
        let seen = match foreign_mark(other, companions, Some(&ours), OPEN, name) {
            // It was there when it was recorded, and has its mark since.
            Err(error)
                if matches!(error.kind(), ErrorKind::Unreachable { .. }) && is_recorded(other) =>
            {
                continue;
            }
            seen => seen?,
        };
        if seen.as_ref() == Some(&ours) {
            continue;
        }
        // Where nothing was recorded, that is what its files have there.
        if recorded.is_some() && !is_recorded(other) {
            check_empty(other, name)?;
        }
        claim(other, &ours, seen.as_ref(), OPEN, name)?;
    }
    if recorded.is_none() || !companions.iter().all(is_recorded) {
        let all: Vec<_> = companions.iter().map(|one| one.known.clone()).collect();
        record_further_stores(&*keeper.kv, &all).map_err(failed(OPEN))?;
    }
    Ok(())
}

/// The mark of a store, where it may be replaced: it is `ours`, or that of a file system that is not
/// there any more, which is certain where its keeper is named.
///
/// # Errors
///
/// `Exists` where the store belongs to another file system.
fn foreign_mark(
    one: &Companion,
    companions: &[Companion],
    ours: Option<&Belonging>,
    operation: &'static str,
    name: &str,
) -> Result<Option<Belonging>> {
    let found = belonging(&*one.kv).map_err(|failure| {
        let is_away = failure.errno() == Errno::HOSTUNREACH;
        let error = failure.into_error(operation).with("server", &one.known.name);
        match is_away {
            true => error,
            false => error.with("way_out", format!("terrace kv rm {name}/b")),
        }
    })?;
    let Some(found) = found else { return Ok(None) };
    if ours.is_some_and(|ours| ours.file_system == found.file_system) {
        // Only the name of the keeper may be another one, which is not needed.
        let is_same = ours.is_some_and(|ours| ours.keeper.id == found.keeper.id);
        return Ok(if is_same { ours.cloned() } else { Some(found) });
    }
    let keeper = companions.iter().find(|one| one.known.id == found.keeper.id);
    let is_gone = match keeper {
        Some(keeper) => {
            let kept = file_system_id(&*keeper.kv).map_err(failed(operation))?;
            kept != Some(found.file_system)
        }
        None => false,
    };
    match is_gone {
        true => Ok(Some(found)),
        false => Err(belongs_elsewhere(&found, operation, name).with("server", &one.known.name)),
    }
}

fn claim(
    one: &Companion,
    ours: &Belonging,
    seen: Option<&Belonging>,
    operation: &'static str,
    name: &str,
) -> Result<()> {
    match mark(&*one.kv, ours, seen).map_err(failed(operation))? {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Exists, operation)
            .because("another program made one of this name at the same time")
            .with("name", name)
            .with("server", &one.known.name)),
    }
}

/// Refuses a new server that has objects of a file system of this name: it is unknown of which.
fn check_empty(one: &Companion, name: &str) -> Result<()> {
    match first_object(&*one.data, name)? {
        Some(key) => {
            Err(refused("a server that is new to it has objects of this name already", name)
                .with("server", &one.known.name)
                .with("key", key))
        }
        None => Ok(()),
    }
}

fn check_all_named(recorded: &[KnownStore], companions: &[Companion], name: &str) -> Result<()> {
    let is_missing = |one: &&KnownStore| companions.iter().all(|named| named.known.id != one.id);
    let missing: Vec<_> = recorded.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = |stores: &[&KnownStore]| {
        stores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let error = refused("it lies over servers that are not among those that are named", name)
        .with("missing", list(&missing));
    let has_other_store =
        |one: &&&KnownStore| companions.iter().any(|named| named.known.name == one.name);
    let replaced: Vec<_> = missing.iter().filter(has_other_store).copied().collect();
    Err(match replaced.is_empty() {
        true => error,
        false => error.with("has_another_store_now", list(&replaced)),
    })
}

/// Where no server that was named has the names, but one of them parts of the files.
fn check_names_elsewhere(companions: &[Companion], name: &str) -> Result<()> {
    for one in companions {
        if let Some(found) = belonging(&*one.kv).map_err(failed(OPEN))? {
            return Err(belongs_elsewhere(&found, OPEN, name).with("server", &one.known.name));
        }
    }
    Ok(())
}

/// Why a file system is not used over these servers, and what there is to do.
fn refused(reason: &str, name: &str) -> Error {
    let reason = format!(
        "{reason}: files would be there in part; name all servers that it lies over; `mount -o \
         ro,degraded` and `export --degraded` read what is there; where a server is lost for good, or \
         has another store now, `terrace --store ADDRESS fsck --repair --servers {name}` has it lie \
         over those of ADDRESS alone"
    );
    Error::new(ErrorKind::Exists, OPEN).because(reason).with("name", name)
}

fn belongs_elsewhere(found: &Belonging, operation: &'static str, name: &str) -> Error {
    let reason = format!(
        "there are parts of the files of one of this name, whose names are with another server: name \
         all servers that it lies over, also that one; --name OTHER makes another file system; where \
         that server is lost for good, `terrace --store SERVER kv rm {name}/b` of each other one \
         forgets that"
    );
    Error::new(ErrorKind::Exists, operation)
        .because(reason)
        .with("name", name)
        .with("names_with", &found.keeper)
}

/// Why a record cannot be read, and what there is to do.
fn unreadable(name: &str) -> impl Fn(Failure) -> Error {
    move |failure| {
        let is_away = failure.errno() == Errno::HOSTUNREACH;
        let error = failure.into_error(OPEN).with("name", name);
        match is_away {
            true => error,
            false => error.with("way_out", format!("terrace fsck --repair --servers {name}")),
        }
    }
}

/// An object of a namespace, if there is any.
pub(crate) fn first_object(data: &dyn Backend, namespace: &str) -> Result<Option<Key>> {
    let mut cursor = Some(Cursor::start());
    while let Some(from) = cursor {
        let mut page = data.list(namespace, "", &from, 1)?;
        if let found @ Some(_) = page.keys.pop() {
            return Ok(found);
        }
        cursor = page.next;
    }
    Ok(None)
}
