// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner of a store whose catalog is in a bucket too: an object there, and the same in the store's
//! directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use terrace_backends::object::{Bucket, BucketObject, Conditional};
use terrace_core::{Error, ErrorKind, Result};
use terrace_settings::sync_directory;

use super::names::{self, OWNER, OwnerRecord, decode, encode};

/// The file in the directory of a store.
const FILE: &str = "owner";

/// The record in this directory; `None` without a file.
pub(crate) fn own(directory: &Path) -> Result<Option<OwnerRecord>> {
    let file = directory.join(FILE);
    match fs::read(&file) {
        Ok(bytes) => decode(&file.display().to_string(), &bytes).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(Error::from_io("read who owns the store", error).with("file", file.display()))
        }
    }
}

/// Writes the owner to the directory, durably and before the bucket has it.
pub(crate) fn keep_own(directory: &Path, owner: &OwnerRecord) -> Result<()> {
    let (file, new) = (directory.join(FILE), directory.join("owner.new"));
    let written = File::create(&new)
        .and_then(|mut out| out.write_all(&encode(owner)).and_then(|()| out.sync_all()))
        .and_then(|()| fs::rename(&new, &file));
    written.map_err(|error| {
        Error::from_io("note who owns the store", error).with("file", file.display())
    })?;
    sync_directory(directory)
}

/// Makes sure that this directory owns the store whose log is in the bucket of `tier`; the owner. One that
/// owns it already makes one request.
///
/// # Errors
///
/// `Denied` where another machine has taken the store over, where this directory has no file `owner` of the
/// store, and where another store is in the bucket; `Unsupported` for a service without conditional writes;
/// errors of the service.
pub(crate) fn check(
    bucket: &Bucket,
    tier: &str,
    directory: &Path,
    store_id: u128,
    now_ns: u64,
) -> Result<OwnerRecord> {
    // A file that another store has left here has nothing to do with this one.
    let own = own(directory)?.filter(|own| own.is_of(store_id));
    if let Some(found) = bucket.get(OWNER)? {
        let found: OwnerRecord = decode(OWNER, &found.bytes)?;
        if !found.is_of(store_id) {
            return Err(of_another_store(bucket, &found));
        }
        return match own {
            Some(own) if own.token == found.token => {
                let found = found.on(tier);
                if own.tier != found.tier {
                    keep_own(directory, &found)?;
                }
                Ok(found)
            }
            Some(_) => Err(taken_by(bucket, &found)),
            None => Err(without_file(bucket, directory, &found)),
        };
    }
    let token = match &own {
        // The bucket is another one now, or a crash came in between.
        Some(own) => own.token.clone(),
        None => token()?,
    };
    let term = own.map_or(1, |own| own.term);
    let owner = OwnerRecord::new(store_id, term, token, now_ns).on(tier);
    keep_own(directory, &owner)?;
    match bucket.create(OWNER, &encode(&owner))? {
        Conditional::Done => {}
        Conditional::Found(Some(bytes)) => return Err(taken_by(bucket, &decode(OWNER, &bytes)?)),
        Conditional::Found(None) => {
            return Err(Error::new(ErrorKind::Busy, OPERATION)
                .because("its owner was removed in this moment; try again")
                .with("target", bucket.target()));
        }
    }
    // A service that does not know conditions carries this out.
    let probe = Bytes::from_static(b"a service without conditional writes\n");
    match bucket.create(OWNER, &probe)? {
        Conditional::Found(_) => Ok(owner),
        Conditional::Done => {
            bucket.delete(OWNER)?;
            Err(Error::new(ErrorKind::Unsupported, OPERATION)
                .because("the service has no conditional writes (If-None-Match)")
                .with("target", bucket.target()))
        }
    }
}

/// Reads the owner object. `None` where it names this owner, else the error that names the other one.
///
/// # Errors
///
/// `Stale` where the object is missing, `Corrupt`; errors of the service. The owner is not known then.
pub(crate) fn other_owner(bucket: &Bucket, own: &OwnerRecord) -> Result<Option<Error>> {
    let found = bucket.get(OWNER)?.ok_or_else(|| {
        Error::new(ErrorKind::Stale, OPERATION)
            .because("the object `c/owner` was removed from the bucket; open the store again")
            .with("target", bucket.target())
    })?;
    let found: OwnerRecord = decode(OWNER, &found.bytes)?;
    if found.token == own.token {
        return Ok(None);
    }
    Ok(Some(match found.store == own.store {
        true => taken_by(bucket, &found),
        false => of_another_store(bucket, &found),
    }))
}

/// Whether the store is still this owner's. Of a service that does not answer nothing follows.
pub(crate) fn look(bucket: &Bucket, own: &OwnerRecord) -> Result<()> {
    match other_owner(bucket, own) {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error),
        Err(error) if error.kind() == ErrorKind::Corrupt => Err(error),
        Err(_) => Ok(()),
    }
}

/// The owner object as a takeover finds it.
///
/// # Errors
///
/// `NotFound` where no store has its catalog there; errors of the service.
pub(crate) fn current(bucket: &Bucket) -> Result<(BucketObject, OwnerRecord)> {
    let found = bucket.get(OWNER)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "take a store over")
            .because("no store has the log of its catalog there")
            .with("target", bucket.target())
    })?;
    let record = decode(OWNER, &found.bytes)?;
    Ok((found, record))
}

/// Becomes the owner of the next term. Of several that try at once one succeeds.
///
/// # Errors
///
/// `NotFound` where no store has its catalog there, `Busy` for one that came second.
pub(crate) fn take(
    bucket: &Bucket,
    tier: &str,
    directory: &Path,
    now_ns: u64,
) -> Result<OwnerRecord> {
    const OPERATION: &str = "take a store over";
    let (found, before) = current(bucket)?;
    match own(directory)?.filter(|own| own.store == before.store) {
        Some(own) if own.token == before.token => {
            // An earlier try of this directory has got so far.
            let before = before.on(tier);
            keep_own(directory, &before)?;
            return Ok(before);
        }
        // An earlier try began before the store got its present owner, which may be healthy. One that ended before
        // it changed the bucket has the next term in its file.
        Some(own) if own.term <= before.term => return Err(came_first(bucket, &before)),
        _ => {}
    }
    let term = before.term.checked_add(1).ok_or_else(|| {
        Error::new(ErrorKind::NoSpace, OPERATION).because("it was taken over 65535 times")
    })?;
    let next = OwnerRecord::new(before.store_id()?, term, token()?, now_ns).on(tier);
    keep_own(directory, &next)?;
    match bucket.replace(OWNER, &found, &encode(&next))? {
        Conditional::Done => Ok(next),
        // The file stays: another try of this directory is as late as this one.
        Conditional::Found(Some(other)) => Err(came_first(bucket, &decode(OWNER, &other)?)),
        Conditional::Found(None) => Err(Error::new(ErrorKind::Busy, OPERATION)
            .because("its owner was removed in this moment; try again")
            .with("target", bucket.target())),
    }
}

/// The error of a takeover that began before another one that has the store now.
fn came_first(bucket: &Bucket, other: &OwnerRecord) -> Error {
    Error::new(ErrorKind::Busy, "take a store over")
        .because(format!(
            "another takeover came first: the host {} owns the store (term {}); to take it over from that \
             one, name another directory",
            other.host, other.term
        ))
        .with("target", bucket.target())
}

const OPERATION: &str = "own the store";

/// The error of a directory that does not own the store: it names the owner.
pub(crate) fn taken_by(bucket: &Bucket, other: &OwnerRecord) -> Error {
    Error::new(ErrorKind::Denied, OPERATION)
        .because(format!(
            "it was taken over by the host {} (term {}); this directory serves it no longer, and what \
             was written here since then is only here",
            other.host, other.term
        ))
        .with("target", bucket.target())
}

/// The error of a bucket with the log of another store.
fn of_another_store(bucket: &Bucket, other: &OwnerRecord) -> Error {
    Error::new(ErrorKind::Denied, OPERATION)
        .because(format!(
            "another store ({}) has the log of its catalog in this bucket with this prefix; choose another \
             `prefix`",
            other.store
        ))
        .with("host", &other.host)
        .with("target", bucket.target())
}

/// The error of a directory that cannot prove that it owns the store.
fn without_file(bucket: &Bucket, directory: &Path, owner: &OwnerRecord) -> Error {
    Error::new(ErrorKind::Denied, OPERATION)
        .because(format!(
            "this directory has no file `owner` of this store, and the bucket names the host {} (term {}) \
             as its owner: put the file back where that was this directory, or take the store over into \
             another directory (terrace takeover)",
            owner.host, owner.term
        ))
        .with("directory", directory.display())
        .with("target", bucket.target())
}

fn token() -> Result<String> {
    let mut bytes = [0; 16];
    terrace_transport::random_bytes(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// Removes what a store keeps of its catalog, the owner last.
pub(crate) fn clear(bucket: &Bucket) -> Result<()> {
    let all = bucket.list("")?;
    for name in all.iter().filter(|name| *name != OWNER) {
        bucket.delete(name)?;
    }
    bucket.delete(names::OWNER)
}
