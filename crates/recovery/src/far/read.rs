// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalog of a store from a bucket: a checkpoint and the log behind it.

use std::io::BufReader;

use bytes::Bytes;
use terrace_backends::object::{Bucket, BucketObject, Conditional};
use terrace_core::{Error, ErrorKind, Kv, Result};
use terrace_stack::{
    BackupMoment, LOG_HEAD_BYTES, LogPoint, apply_log, read_backup, read_log_head,
};

use super::names::{self, OwnerRecord, Root, Seal, decode, encode};

const OPERATION: &str = "read the shared catalog";

/// Objects of a log that are asked for at once.
const READS: u64 = 16;

/// The newest term below `below` with a catalog, and where that begins.
pub(crate) fn newest_root(
    bucket: &Bucket,
    below: u16,
) -> Result<Option<(u16, BucketObject, Root)>> {
    for term in (1..below).rev() {
        if let Some((found, root)) = root_of(bucket, term)?
            && !root.is_none()
        {
            return Ok(Some((term, found, root)));
        }
    }
    Ok(None)
}

/// The root of a term as it is now.
pub(crate) fn root_of(bucket: &Bucket, term: u16) -> Result<Option<(BucketObject, Root)>> {
    let name = names::root(term);
    let Some(found) = bucket.get(&name)? else { return Ok(None) };
    let root = decode(&name, &found.bytes)?;
    Ok(Some((found, root)))
}

/// Ends all terms before that of `owner`: their writers can acknowledge nothing more. Returns the newest
/// catalog, and the objects of its log.
///
/// The roots come first: from then on the log keeps every object that its root needs.
pub(crate) fn seal(bucket: &Bucket, owner: &OwnerRecord) -> Result<(Root, Vec<Bytes>)> {
    if let Some((_, root)) = root_of(bucket, owner.term)? {
        // Of an earlier try, which has sealed the terms before and may have deleted their catalogs.
        check_term(root.sealed_by_term, owner)?;
        let log = whole_log(bucket, owner.term, &root)?;
        return Ok((root, log));
    }
    loop {
        let (term, found, root) = newest_root(bucket, owner.term)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, OPERATION)
                .because("there is no checkpoint of the catalog yet")
                .with("target", bucket.target())
        })?;
        if !seal_root(bucket, owner, term, Some((found, &root)))? {
            continue;
        }
        let others = term + 1..owner.term;
        let mut is_newest = true;
        for other in others.clone() {
            // That one may have begun after all; then the catalog is its own.
            is_newest &= seal_root(bucket, owner, other, None)?;
        }
        if !is_newest {
            continue;
        }
        let log = seal_log(bucket, owner, term, root.first)?;
        for other in others {
            seal_log(bucket, owner, other, 0)?;
        }
        return Ok((root, log));
    }
}

/// Writes the root of a term again, so that no write of it that is under way or that its owner still makes is
/// carried out. False where another one is there than `before`.
fn seal_root(
    bucket: &Bucket,
    owner: &OwnerRecord,
    term: u16,
    before: Option<(BucketObject, &Root)>,
) -> Result<bool> {
    let name = names::root(term);
    let written = match before {
        Some((found, root)) => {
            check_term(root.sealed_by_term, owner)?;
            bucket.replace(&name, &found, &encode(&root.clone().sealed(owner)))?
        }
        None => bucket.create(&name, &encode(&Root::none().sealed(owner)))?,
    };
    match written {
        Conditional::Done => Ok(true),
        Conditional::Found(Some(bytes)) => {
            let found: Root = decode(&name, &bytes)?;
            check_term(found.sealed_by_term, owner)?;
            // Of an earlier takeover.
            Ok(found.is_none())
        }
        Conditional::Found(None) => Ok(false),
    }
}

/// Ends the log of a term; its objects from `first` on.
fn seal_log(bucket: &Bucket, owner: &OwnerRecord, term: u16, first: u64) -> Result<Vec<Bytes>> {
    let (mut log, sealed) = read_log(bucket, term, first)?;
    if let Some(sealed) = sealed {
        return check_term(Some(sealed.sealed_by_term), owner).map(|()| log);
    }
    check_end(bucket, term, first + log.len() as u64)?;
    let seal = encode(&Seal::by(owner));
    loop {
        let number = first + log.len() as u64;
        match bucket.create(&names::log(term, number), &seal)? {
            Conditional::Done => return Ok(log),
            Conditional::Found(Some(bytes)) => match Seal::of(&bytes) {
                Some(other) => {
                    return check_term(Some(other.sealed_by_term), owner).map(|()| log);
                }
                None => log.push(bytes),
            },
            Conditional::Found(None) => {}
        }
    }
}

/// Makes sure that a log has nothing behind the number `end`, at which no object was found: what is behind a gap
/// would be lost.
fn check_end(bucket: &Bucket, term: u16, end: u64) -> Result<()> {
    let is_behind = |name: &String| names::log_number(name).is_some_and(|number| number > end);
    let has_more = bucket.list(&names::log_prefix(term))?.iter().any(is_behind);
    // Numbers are created in order: what is there now was there before a later one.
    if !has_more || bucket.get(&names::log(term, end))?.is_some() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, OPERATION)
        .because("an object of the log is missing")
        .with("name", names::log(term, end))
        .with("target", bucket.target()))
}

/// Refuses what a later owner has sealed.
fn check_term(sealed_by: Option<u16>, owner: &OwnerRecord) -> Result<()> {
    match sealed_by {
        Some(term) if term > owner.term => Err(Error::new(ErrorKind::Denied, OPERATION)
            .because("a later takeover came first")
            .with("term", term)),
        _ => Ok(()),
    }
}

/// The objects of a log in order, and the seal behind them.
fn read_log(bucket: &Bucket, term: u16, first: u64) -> Result<(Vec<Bytes>, Option<Seal>)> {
    let mut log = Vec::new();
    loop {
        let at = first + log.len() as u64;
        let found: Vec<_> = std::thread::scope(|scope| {
            let ask = |number| scope.spawn(move || bucket.get(&names::log(term, number)));
            let asked: Vec<_> = (at..at + READS).map(ask).collect();
            asked.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        for one in found {
            let Some(one) = one? else { return Ok((log, None)) };
            if let Some(seal) = Seal::of(&one.bytes) {
                return Ok((log, Some(seal)));
            }
            log.push(one.bytes);
        }
    }
}

/// Reads a checkpoint and what was committed since into an empty engine; its moment, and the commits behind it.
pub(crate) fn read_into(
    bucket: &Bucket,
    root: &Root,
    log: &[Bytes],
    target: &dyn Kv,
    progress: &mut dyn FnMut(u64),
) -> Result<(BackupMoment, u64)> {
    let missing = || {
        Error::new(ErrorKind::Corrupt, OPERATION)
            .because("the checkpoint is missing")
            .with("name", &root.checkpoint)
            .with("target", bucket.target())
    };
    let reader = bucket.reader(&root.checkpoint)?.ok_or_else(missing)?;
    let moment = read_backup(&mut BufReader::with_capacity(1 << 20, reader), target, progress)
        .map_err(|error| error.with("name", &root.checkpoint))?;
    let mut point: LogPoint = moment.point;
    let mut commits = 0;
    for (index, bytes) in log.iter().enumerate() {
        let bad = |reason: &str| {
            Error::new(ErrorKind::Corrupt, OPERATION)
                .because(reason.to_string())
                .with("log_object", root.first + index as u64)
                .with("target", bucket.target())
        };
        // An object is written as a whole, or not at all.
        let (store_id, begin) = read_log_head(bytes).ok_or_else(|| bad("its head is damaged"))?;
        if store_id != moment.store_id || begin.log != point.log {
            continue;
        }
        if begin.sequence > point.sequence {
            return Err(bad("commits of the log are missing"));
        }
        let report = apply_log(&mut &bytes[LOG_HEAD_BYTES..], begin, &mut point, target)?;
        if report.bytes < bytes.len() as u64 {
            return Err(bad("a record of the log is damaged"));
        }
        commits += report.commits;
    }
    Ok((moment, commits))
}

/// The same for the owner itself, which is the only writer and seals nothing.
pub(crate) fn own_log(bucket: &Bucket, owner: &OwnerRecord) -> Result<Option<(Root, Vec<Bytes>)>> {
    let Some((term, _, root)) = newest_root(bucket, owner.term.saturating_add(1))? else {
        return Ok(None);
    };
    let log = whole_log(bucket, term, &root)?;
    Ok(Some((root, log)))
}

/// All objects of a log behind a root that no other process writes.
fn whole_log(bucket: &Bucket, term: u16, root: &Root) -> Result<Vec<Bytes>> {
    let (log, sealed) = read_log(bucket, term, root.first)?;
    if sealed.is_none() {
        check_end(bucket, term, root.first + log.len() as u64)?;
    }
    Ok(log)
}
