// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In which bucket the catalog of a store is, whether this directory owns it, and where its log goes on.

use std::path::Path;

use bytes::Bytes;
use terrace_backends::object::{Bucket, S3Settings};
use terrace_core::{Error, ErrorKind, Kv, Result};
use terrace_settings::{CheckpointPlace, Settings};

use super::names::{OwnerRecord, Root, Seal};
use super::{OPERATION, names, owner, read};
use crate::checkpoint::CheckpointUsed;

/// The tiers whose buckets may have the catalog, the least preferred one first. The catalog is not encrypted:
/// names, pairs and small files would be in plain text in the bucket of an encrypted tier.
fn candidates(settings: &Settings) -> impl Iterator<Item = (&str, &S3Settings)> {
    let tiers = settings.tiers.iter().rev().filter(|tier| tier.encrypt.is_none());
    tiers.filter_map(|tier| Some((tier.name.as_str(), tier.s3.as_ref()?)))
}

/// The tier whose bucket gets the catalog of a store that has it in no bucket yet: the least preferred one that
/// is not encrypted, unless the configuration has another place.
pub(crate) fn tier_of(settings: &Settings) -> Option<(&str, &S3Settings)> {
    let is_wanted =
        settings.keeps_catalog() && settings.catalog.checkpoint.place == CheckpointPlace::Tier;
    candidates(settings).next().filter(|_| is_wanted)
}

/// The tier whose bucket has the catalog: the one that the file `owner` names while the configuration has it,
/// so that a further bucket does not move the log; else the least preferred one that is not encrypted.
///
/// # Errors
///
/// `Corrupt` for the file `owner`, `Io`.
pub fn pinned_tier_of<'a>(
    settings: &'a Settings,
    directory: &Path,
) -> Result<Option<(&'a str, &'a S3Settings)>> {
    let Some(default) = tier_of(settings) else { return Ok(None) };
    let pinned = owner::own(directory)?.and_then(|own| own.tier);
    let found = pinned.and_then(|pinned| candidates(settings).find(|(name, _)| *name == pinned));
    Ok(Some(found.unwrap_or(default)))
}

/// Why the catalog is in no bucket.
pub fn why_none(settings: &Settings) -> &'static str {
    if !settings.keeps_catalog() {
        "the catalog is in main memory"
    } else if settings.catalog.checkpoint.place != CheckpointPlace::Tier {
        "`checkpoint` in [catalog] names another place than a tier"
    } else if settings.tiers.iter().all(|tier| tier.s3.is_none()) {
        match settings.tiers.iter().any(|tier| tier.opendal.is_some()) {
            true => {
                "no tier is in a bucket (backend \"s3\"), and the services of the backend \"opendal\" have no \
                 conditional write, which the log of the catalog and a takeover need"
            }
            false => "no tier is in a bucket",
        }
    } else {
        "each tier in a bucket is encrypted, and the log of the catalog, which has names, pairs and small \
         files, is not: add a tier in a bucket without `encrypt`"
    }
}

/// What the bucket has of an owner's catalog.
pub(super) enum Found {
    Place(Place),
    /// Another machine owns the store, with the reason.
    Taken(Error),
}

/// Where an owner goes on.
pub(super) struct Place {
    /// The number of the next object of the log.
    pub(super) next: u64,
    pub(super) root: Option<Root>,
    /// The last object of the log.
    pub(super) last: Option<Bytes>,
}

/// Reads where the log of an owner goes on, and then the owner object.
///
/// A takeover replaces the owner object before it creates the seal. While the object, read after the log, names
/// this owner, no seal was in the listing, and the seal of a later takeover comes at `next` or behind it.
pub(super) fn find(bucket: &Bucket, owner: &OwnerRecord) -> Result<Found> {
    let place = locate(bucket, owner.term)?;
    Ok(match owner::other_owner(bucket, owner)? {
        Some(error) => Found::Taken(error),
        None => place.judged(),
    })
}

/// Reads where the log of a term goes on; the owner object is to be read next.
fn locate(bucket: &Bucket, term: u16) -> Result<Place> {
    let last = bucket.list(&names::log_prefix(term))?.pop();
    let number = last.as_deref().and_then(names::log_number);
    let root = read::root_of(bucket, term)?.map(|(_, root)| root);
    let last = match number {
        Some(number) => bucket.get(&names::log(term, number))?.map(|found| found.bytes),
        None => None,
    };
    // A listing may be late: the condition of the next write finds what it does not show.
    let next = number.map_or(0, |number| number + 1);
    let next = next.max(root.as_ref().map_or(0, |root| root.first));
    Ok(Place { next, root, last })
}

impl Place {
    /// A place behind a seal is none.
    fn judged(self) -> Found {
        let seal = self.last.as_ref().and_then(|bytes| Seal::of(bytes));
        let of_root = self.root.as_ref().and_then(|root| root.sealed_by_term);
        match seal.map(|seal| seal.sealed_by_term).or(of_root) {
            Some(term) => Found::Taken(sealed_by(term)),
            None => Found::Place(self),
        }
    }
}

/// The error of an owner whose log or root a later one has sealed.
pub(super) fn sealed_by(term: u16) -> Error {
    Error::new(ErrorKind::Denied, OPERATION)
        .because(format!("the store was taken over (term {term})"))
}

/// The catalog of a store is in this bucket, and this directory owns it.
pub struct Claim {
    pub(super) tier: String,
    pub(super) bucket: Bucket,
    pub(super) owner: OwnerRecord,
    /// Where the log goes on; the error of a bucket that could not be read, which is tried again.
    pub(super) place: Result<Place>,
}

impl Claim {
    /// Why the level `shared` is not given yet.
    pub fn why_late(&self) -> Option<String> {
        self.place.as_ref().err().map(Error::chain)
    }
}

/// Makes sure that this directory owns a store whose catalog is in a bucket, before anything is changed.
/// `None` where it is in none; the second value is why the level `shared` cannot be given.
///
/// # Errors
///
/// `Denied` where another machine has taken it over, where this directory has no file `owner`, and where another
/// store is in the bucket; errors of the service. An owner whose log cannot be read all the same is no error.
pub fn claim(
    settings: &Settings,
    directory: &Path,
    store_id: u128,
    now_ns: u64,
) -> Result<(Option<Claim>, Option<Error>)> {
    let Some((tier, bucket)) = pinned_tier_of(settings, directory)? else {
        return Ok((None, None));
    };
    let bucket = Bucket::open(bucket)?;
    // Read before the owner object, which is then read once: see `find`.
    let own = owner::own(directory)?.filter(|own| own.is_of(store_id));
    let located = own.as_ref().map(|own| locate(&bucket, own.term));
    let owner = match owner::check(&bucket, tier, directory, store_id, now_ns) {
        Ok(owner) => owner,
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok((None, Some(error))),
        Err(error) => return Err(error),
    };
    let found = match located {
        Some(located) => located.map(Place::judged),
        None => find(&bucket, &owner),
    };
    let place = match found {
        Ok(Found::Place(place)) => Ok(place),
        Ok(Found::Taken(error)) => return Err(error),
        Err(error) => Err(error),
    };
    Ok((Some(Claim { tier: tier.into(), bucket, owner, place }), None))
}

/// Refuses to read a store that another machine has taken over. A service that does not answer refuses nothing.
///
/// # Errors
///
/// `Denied`; `Corrupt` and `Io` for the file `owner`.
pub fn check_reader(settings: &Settings, directory: &Path) -> Result<()> {
    let Some((_, bucket)) = pinned_tier_of(settings, directory)? else { return Ok(()) };
    match owner::own(directory)? {
        Some(own) => owner::look(&Bucket::open(bucket)?, &own),
        None => Ok(()),
    }
}

/// Refuses to change a store that another machine has taken over.
///
/// # Errors
///
/// `Denied`, and errors of the service.
pub fn check_owner(settings: &Settings, directory: &Path) -> Result<()> {
    let tier = pinned_tier_of(settings, directory)?;
    let (Some((_, bucket)), Some(own)) = (tier, owner::own(directory)?) else {
        return Ok(());
    };
    match owner::other_owner(&Bucket::open(bucket)?, &own) {
        // An earlier call has removed it.
        Err(error) if error.kind() == ErrorKind::Stale => Ok(()),
        other => other?.map_or(Ok(()), Err),
    }
}

/// The catalog of a store in its bucket, for a catalog that is made anew in the same directory.
pub(crate) struct OwnCatalog {
    bucket: Bucket,
    root: Root,
    log: Vec<Bytes>,
}

/// # Errors
///
/// `Denied` where another machine has taken the store over; errors of the service.
pub(crate) fn own_catalog(settings: &Settings, directory: &Path) -> Result<Option<OwnCatalog>> {
    let Some((_, bucket)) = pinned_tier_of(settings, directory)? else { return Ok(None) };
    let Some(own) = owner::own(directory)? else { return Ok(None) };
    let bucket = Bucket::open(bucket)?;
    owner::look(&bucket, &own)?;
    let found = read::own_log(&bucket, &own)?;
    Ok(found.map(|(root, log)| OwnCatalog { bucket, root, log }))
}

impl OwnCatalog {
    /// Reads it into an empty engine.
    pub(crate) fn read(&self, target: &dyn Kv) -> Result<CheckpointUsed> {
        let (moment, log_commits) =
            read::read_into(&self.bucket, &self.root, &self.log, target, &mut |_| {})?;
        Ok(CheckpointUsed {
            file: format!("{}/c/{}", self.bucket.target(), self.root.checkpoint).into(),
            written_ns: moment.written_ns,
            log_commits,
            torn_bytes: 0,
        })
    }
}
