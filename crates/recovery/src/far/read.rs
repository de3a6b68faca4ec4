// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalog of a store from a bucket: a checkpoint and the log behind it.

use std::io::BufReader;

use bytes::Bytes;
use terrace_backends::object::{Bucket, Conditional};
use terrace_core::{Error, ErrorKind, Kv, Result};
use terrace_stack::{
    BackupMoment, LOG_HEAD_BYTES, LogPoint, apply_log, read_backup, read_log_head,
};

use super::names::{self, OwnerRecord, Root, Seal, decode, encode};

const OPERATION: &str = "read the shared catalog";

/// Objects of a log that are asked for at once.
const READS: u64 = 16;

/// The newest term below `term` with a catalog, and where that begins.
pub(crate) fn newest_root(bucket: &Bucket, below: u16) -> Result<Option<(u16, Root)>> {
    for term in (1..below).rev() {
        let name = names::root(term);
        if let Some(found) = bucket.get(&name)? {
            return Ok(Some((term, decode(&name, &found.bytes)?)));
        }
    }
    Ok(None)
}

/// Seals the logs of all terms before that of `owner`: their writers can acknowledge nothing more.
/// Returns the newest catalog, and the objects of its log.
pub(crate) fn seal(bucket: &Bucket, owner: &OwnerRecord) -> Result<(Root, Vec<Bytes>)> {
    loop {
        let (term, root) = newest_root(bucket, owner.term)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, OPERATION)
                .because("there is no checkpoint of the catalog yet")
                .with("target", bucket.target())
        })?;
        let log = seal_one(bucket, owner, term, root.first)?;
        for other in term + 1..owner.term {
            // That one may have begun after all; then the catalog is its own.
            seal_one(bucket, owner, other, 0)?;
        }
        // The owner before replaces its root and deletes what that does not need, until it is sealed.
        match newest_root(bucket, owner.term)? {
            Some((newest, again)) if newest == term && again == root => return Ok((root, log)),
            _ => {}
        }
    }
}

/// Ends the log of a term; its objects from `first` on.
fn seal_one(bucket: &Bucket, owner: &OwnerRecord, term: u16, first: u64) -> Result<Vec<Bytes>> {
    let (mut log, sealed) = read_log(bucket, term, first)?;
    if let Some(sealed) = sealed {
        return check_seal(&sealed, owner).map(|()| log);
    }
    let seal = encode(&Seal::by(owner));
    loop {
        let number = first + log.len() as u64;
        match bucket.create(&names::log(term, number), &seal)? {
            Conditional::Done => return Ok(log),
            Conditional::Found(Some(bytes)) => match Seal::of(&bytes) {
                Some(other) => return check_seal(&other, owner).map(|()| log),
                None => log.push(bytes),
            },
            Conditional::Found(None) => {}
        }
    }
}

/// Refuses a seal of a later owner.
fn check_seal(seal: &Seal, owner: &OwnerRecord) -> Result<()> {
    match seal.sealed_by_term > owner.term {
        true => Err(Error::new(ErrorKind::Denied, OPERATION)
            .because("a later takeover came first")
            .with("term", seal.sealed_by_term)),
        false => Ok(()),
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
    let Some((term, root)) = newest_root(bucket, owner.term.saturating_add(1))? else {
        return Ok(None);
    };
    let (log, _) = read_log(bucket, term, root.first)?;
    Ok(Some((root, log)))
}
