// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store taken over on another machine, from the bucket of a tier alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use terrace_backends::kv::open_kv;
use terrace_backends::object::{Bucket, S3, S3Settings};
use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock, TierBackend};
use terrace_settings::{
    Directory, Lock, Made, Settings, boot_id, check_new, sync_directory, tiers, write_durably,
};
use terrace_stack::{TakeoverReport, Tier};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::far::{names, owner, read, tier_of, why_none};
use crate::rebuild::remove_left;

const OPERATION: &str = "take a store over";

/// Where the directories of tiers of the machine before are expected.
const MISSING: &str = "unreachable";

/// A store that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// What is there, and what was only on the machine before.
    pub report: TakeoverReport,
    /// The number of this takeover; the store was made in term 1.
    pub term: u16,
    /// Commits of the log behind the checkpoint.
    pub log_commits: u64,
    /// When the checkpoint was written, in nanoseconds since 1970.
    pub checkpoint_ns: u64,
}

/// The name of the tier that is in a bucket.
///
/// # Errors
///
/// `NotFound` where none is; errors of the service.
pub fn tier_in_bucket(settings: &S3Settings) -> Result<String> {
    let bucket = S3::open(settings, u64::MAX, true)?;
    match bucket.superblock()? {
        Some(found) if !found.tier.is_empty() => Ok(found.tier),
        _ => Err(Error::new(ErrorKind::NotFound, OPERATION)
            .because("no tier of a store is there")
            .with("target", settings.target())),
    }
}

/// Makes `directory` the owner of a store whose catalog is in a bucket, as `Store::take_over` of `terrace-store` says,
/// with its errors. `root_anew` opens the store once, so that its own checkpoint is in the bucket.
pub fn take_over(
    directory: &Path,
    settings_text: &str,
    root_anew: &dyn Fn(&Directory) -> Result<()>,
    progress: &mut dyn FnMut(u64),
) -> Result<TakenOver> {
    let directory = Directory::of(directory)?;
    let settings = Settings::parse(settings_text, "")?.resolved(directory.path())?;
    let (shared, bucket) = tier_of(&settings).ok_or_else(|| {
        Error::invalid(OPERATION, "the configuration has no tier in a bucket for the catalog")
            .caused_by(Error::invalid(OPERATION, why_none(&settings)))
    })?;
    let (shared, bucket) = (shared.to_string(), Bucket::open(bucket)?);
    // Dropped last: what was made is removed under the lock.
    let lock;
    let mut made = Made::default();
    made.directory(directory.path())?;
    check_new(&directory)?;
    let has_lock_file = directory.lock().exists();
    lock = Lock::try_take(&directory, Access::Write, None)?;
    if lock.is_none() {
        return Err(Lock::busy(&directory, OPERATION, "another process uses the directory"));
    }
    if !has_lock_file {
        made.file(directory.lock());
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    for tier in &settings.tiers {
        if let Some(path) = &tier.path {
            made.new_directory(path).map_err(|error| error.with("tier", &tier.name))?;
        }
    }
    let tiers = checked(&settings, &shared, &bucket, &clock)?;
    let text = configuration(settings_text, &shared, &[], 0)?;
    Settings::parse(&text, "terrace.toml")?.resolved(directory.path())?;
    let owner = owner::take(&bucket, &shared, directory.path(), clock.wall_ns())?;
    // From here on the directory is what owns the store.
    made.keep();
    let path = &settings.catalog.path;
    let (root, log) = read::seal(&bucket, &owner)?;
    remove_left(OPERATION, path)?;
    let catalog = open_kv(&settings.catalog.engine, path)?;
    let (moment, log_commits) = read::read_into(&bucket, &root, &log, &*catalog, &mut |_| {})?;
    // The superblock is written next: a later takeover may have begun meanwhile.
    if let Some(error) = owner::other_owner(&bucket, &owner)? {
        return Err(error);
    }
    let first = names::first_number(owner.term);
    let report = terrace_stack::take_over(&catalog, &tiers, first, &boot_id(), progress)?;
    drop((catalog, tiers));
    let text = configuration(settings_text, &shared, &report.missing_tiers, owner.term)?;
    let all = Settings::parse(&text, "terrace.toml")?.resolved(directory.path())?;
    for tier in all.tiers.iter().filter(|tier| !report.missing_tiers.contains(&tier.name)) {
        if let Some(path) = &tier.path {
            let mut made = Made::default();
            made.new_directory(path).map_err(|error| error.with("tier", &tier.name))?;
            made.keep();
            let local = tiers::open_further(tier, &all, &clock)?;
            terrace_stack::renew_empty(&local, report.epoch)
                .map_err(|error| error.with("tier", &tier.name))?;
        }
    }
    write_durably(&directory.settings(), &text)?;
    sync_directory(directory.path())?;
    drop(lock);
    // Without its settings the directory can be tried again.
    root_anew(&directory).inspect_err(|_| drop(fs::remove_file(directory.settings())))?;
    Ok(TakenOver { report, term: owner.term, log_commits, checkpoint_ns: moment.written_ns })
}

/// Opens all tiers of the configuration as the opening behind the takeover does; those in buckets that belong to
/// the store. Nothing is written there.
///
/// # Errors
///
/// `Denied` where the tier `shared` is not that of the store under this name, for a tier of another store, and for
/// settings of frames that are not those of the tier; as [`tiers::open`].
fn checked(
    settings: &Settings,
    shared: &str,
    bucket: &Bucket,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Tier>> {
    let (_, before) = owner::current(bucket)?;
    let store_id = before.store_id()?;
    let mut tiers = tiers::open(settings, Access::Write, false, clock)?;
    let mut known = Vec::new();
    for tier in &tiers {
        let denied = |reason: &str| {
            let error = Error::new(ErrorKind::Denied, OPERATION).because(reason);
            Err(error.with("tier", &tier.name).with("target", tier.backend.target()))
        };
        // One that was removed from its store holds nothing.
        let found = tier.backend.superblock()?.filter(|found| found.store_id != 0);
        let is_shared = tier.name == shared;
        match found {
            Some(found) if found.store_id != store_id => {
                return denied("the tier belongs to another store");
            }
            Some(found) if found.tier != tier.name => {
                return denied(&format!("the store has this tier under the name {:?}", found.tier));
            }
            Some(found) if found.frames.is_some() => {
                return denied("its objects are framed: set `compress` or `encrypt` as they were");
            }
            Some(_) => known.push(tier.name.clone()),
            None if is_shared => return denied("the tier is empty"),
            // The store may know nothing of it.
            None => {}
        }
    }
    let is_in_bucket = |tier: &Tier| {
        settings.tiers.iter().any(|section| section.name == tier.name && section.s3.is_some())
    };
    tiers.retain(|tier| is_in_bucket(tier) && known.contains(&tier.name));
    Ok(tiers)
}

/// The configuration with the tiers that are missing, which may be used all the same.
fn configuration(text: &str, shared: &str, missing: &[String], term: u16) -> Result<String> {
    let wrong = |reason: String| Error::invalid(OPERATION, reason);
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| wrong(error.to_string()))?;
    let tiers = document.get_mut("tier").and_then(Item::as_array_of_tables_mut);
    let tiers: &mut ArrayOfTables = tiers.ok_or_else(|| wrong("it has no [[tier]]".into()))?;
    let named =
        |section: &Table| section.get("name").and_then(Item::as_str).unwrap_or("").to_owned();
    let mut all: Vec<Table> = tiers.iter().cloned().collect();
    if let Some(name) = missing.iter().find(|name| all.iter().any(|one| named(one) == **name)) {
        return Err(wrong(format!(
            "the machine before has a tier {name:?}: run this again with the same directory and another \
             name for the new tier"
        )));
    }
    let at = all.iter().position(|one| named(one) == shared).unwrap_or(all.len());
    let section = |name: &str, path: String| {
        let mut section = Table::new();
        section.insert("name", value(name));
        section.insert("backend", value("file"));
        section.insert("path", value(path));
        section
    };
    let mut further: Vec<Table> = Vec::new();
    if at == 0 {
        let name = format!("local-{term}");
        further.push(section(&name, name.clone()));
    }
    further.extend(missing.iter().map(|name| section(name, format!("{MISSING}/{name}"))));
    all.splice(at..at, further);
    tiers.clear();
    for mut section in all {
        section.set_position(None);
        tiers.push(section);
    }
    if !missing.is_empty() {
        document["store"]["degraded"] = value(true);
    }
    Ok(document.to_string())
}
