// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that objects had: what is there of them, and bringing one back as a new object.

use std::io::{IoSlice, IoSliceMut};

use terrace_core::{
    Backend, Buffer, Create, Error, ErrorKind, Key, Object, Open, Persistency, Result, Semantics,
};

use crate::catalog::record::Place;
use crate::catalog::versions::{Version, VersionEnd, VersionSegment};
use crate::front::stack::Stack;
use crate::report::{MissingPart, VersionReport};
use crate::shared::Shared;
use crate::tiers::list::TierState;

const OPERATION: &str = "bring a version back";

/// Why a version is not brought back, although its bytes may be there.
const IS_PART: &str = "it is a part of an object over several servers";

/// Bytes that are copied at a time.
const STEP_BYTES: usize = 1 << 20;

impl Stack {
    /// The values of an object that tiers keep, the latest first: what its key named and no longer does. Each file
    /// is asked for.
    ///
    /// # Errors
    ///
    /// What the catalog says.
    pub fn versions(&self, key: &Key) -> Result<Vec<VersionReport>> {
        let shared = &self.inner.shared;
        let versions = shared.catalog.versions(key)?;
        Ok(versions.iter().map(|version| report(shared, key, version)).collect())
    }

    /// Makes an object `to` of a value that `key` had: of the version of this name, or of the latest. An object
    /// that exists is replaced only where `replaces` is true. Every checksum that is known is compared. `progress` gets
    /// the bytes done and their total now and then.
    ///
    /// # Errors
    ///
    /// `NotFound` where no such version is kept, `Unsupported` where a part of it is not (the error names an earlier
    /// one that is whole, where no version is named), `Exists`, `Corrupt` for
    /// bytes that are not those of then; those of writing an object.
    pub fn undelete(
        &self,
        key: &Key,
        version: Option<&str>,
        to: &Key,
        replaces: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<VersionReport> {
        let failed = |error: Error| error.with("key", key);
        let shared = &self.inner.shared;
        shared.check_writable(OPERATION)?;
        let mut found = match version {
            Some(name) => match u64::from_str_radix(name, 16) {
                Ok(id) => shared.catalog.version(key, id)?.into_iter().collect(),
                Err(_) => Vec::new(),
            },
            None => shared.catalog.versions(key)?,
        }
        .into_iter();
        let Some(chosen) = found.next() else {
            return Err(failed(Error::new(ErrorKind::NotFound, OPERATION).because(match version {
                Some(_) => "no such version of it is kept",
                None => "no version of it is kept: it was on no tier with `keep_deleted`, or its time is over",
            })));
        };
        if is_part(&chosen) {
            return Err(failed(Error::new(ErrorKind::Unsupported, OPERATION).because(IS_PART)));
        }
        let report = report(shared, key, &chosen);
        check_whole(&report).map_err(|error| {
            let mut earlier = found.map(|one| self::report(shared, key, &one));
            failed(match earlier.find(|one| one.is_whole) {
                Some(whole) => error.with("earlier_whole_version", &whole.version),
                None => error,
            })
        })?;
        let how = Open {
            create: if replaces { Create::IfMissing } else { Create::New },
            size_hint_bytes: Some(report.size_bytes),
            label: chosen.label.clone(),
            ..Open::default()
        };
        let draft = self.draft(to, &how).map_err(|error| error.with("to", to))?;
        let target = draft.object();
        let mut done = 0;
        for segment in &chosen.segments {
            let mut step = |bytes: u64| {
                done += bytes;
                progress(done, report.size_bytes);
            };
            copy(shared, &chosen, segment, &*target, &mut step).map_err(failed)?;
        }
        draft.publish().map_err(|error| error.with("to", to))?;
        Ok(report)
    }
}

fn name_of(version: &Version) -> String {
    format!("{:x}", version.id)
}

/// Whether it is a part of an object over several servers, of which the others have versions of their own or none:
/// `docs/formats/layout.md` has the tags of the labels.
fn is_part(version: &Version) -> bool {
    let label = version.label.as_deref().unwrap_or_default();
    matches!(label, [b'L', 1, ..] | [b'P', 1 | 2, ..])
}

fn check_whole(report: &VersionReport) -> Result<()> {
    let Some(missing) = report.missing.first() else { return Ok(()) };
    let bytes: u64 = report.missing.iter().map(|part| part.length_bytes).sum();
    Err(Error::new(ErrorKind::Unsupported, OPERATION)
        .because(format!(
            "{bytes} of its {} bytes are not there; the first, at {}: {}",
            report.size_bytes, missing.start_bytes, missing.reason
        ))
        .with("version", &report.version))
}

fn report(shared: &Shared, key: &Key, version: &Version) -> VersionReport {
    let mut tiers: Vec<String> = Vec::new();
    let mut missing = Vec::new();
    let mut kept_ns = Some(u64::MAX);
    for segment in &version.segments {
        if segment.is_kept && !tiers.contains(&segment.tier) {
            tiers.push(segment.tier.clone());
            let tier = shared.tiers.find(&segment.tier).filter(|(_, tier)| tier.is_online());
            let time_ns = tier.map(|(_, tier)| tier.keep_deleted_ns.unwrap_or(0));
            kept_ns = kept_ns.zip(time_ns).map(|(least, time)| least.min(time));
        }
        let found = match is_part(version) {
            true => Err(IS_PART.into()),
            false => find(shared, version, segment).map(drop),
        };
        if let Err(reason) = found {
            missing.push(MissingPart {
                start_bytes: segment.start_bytes,
                length_bytes: segment.length_bytes,
                tier: segment.tier.clone(),
                reason,
            });
        }
    }
    VersionReport {
        version: name_of(version),
        key: key.to_string(),
        end: match version.end {
            VersionEnd::Changed => "changed",
            VersionEnd::Replaced => "replaced",
            VersionEnd::Deleted => "deleted",
        }
        .into(),
        ended_ns: version.since_ns,
        created_ns: version.created_ns,
        kept_until_ns: kept_ns.map(|time| version.since_ns.saturating_add(time)),
        size_bytes: version.size_bytes(),
        tiers,
        is_whole: missing.is_empty(),
        missing,
    }
}

/// The tier that has the bytes of a segment, and the name of their file; else why there is none.
fn find<'a>(
    shared: &'a Shared,
    version: &Version,
    segment: &VersionSegment,
) -> Result<(&'a TierState, Key), String> {
    let name = &segment.tier;
    if !segment.is_kept {
        return Err(format!("it was on {name} only, which keeps nothing"));
    }
    let Some((index, tier)) = shared.tiers.find(name) else {
        return Err(format!("the tier {name} was removed"));
    };
    if let Some(reason) = &tier.offline {
        return Err(format!("the tier {name} is offline: {reason}"));
    }
    let place = Place { tier: index, file: segment.file, generation: 0, epoch: 0 };
    let file = place.key(version.object_id, segment.number);
    match tier.backend.stat(&file) {
        Ok(stat) if stat.size_bytes == segment.length_bytes => Ok((tier, file)),
        Ok(stat) => Err(format!("its file on {name} has {} bytes", stat.size_bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("its file on {name} is gone"))
        }
        Err(error) => Err(error.chain()),
    }
}

/// Copies a segment of a version into a new object.
fn copy(
    shared: &Shared,
    version: &Version,
    segment: &VersionSegment,
    target: &dyn Object,
    step: &mut dyn FnMut(u64),
) -> Result<()> {
    let gone = |reason: String| Error::new(ErrorKind::Unsupported, OPERATION).because(reason);
    let (tier, file) = find(shared, version, segment).map_err(gone)?;
    let how = Open::read().with_semantics(Semantics::at_level(Persistency::None));
    let source = tier.backend.open(&file, &how)?;
    let mut buffer = Buffer::zeroed(STEP_BYTES);
    let (mut done, mut sum) = (0, 0);
    while done < segment.length_bytes {
        let want = (segment.length_bytes - done).min(STEP_BYTES as u64) as usize;
        let count = source.read_at(done, &mut [IoSliceMut::new(&mut buffer[..want])])?;
        if count == 0 {
            return Err(damaged("its file is shorter than it was", tier, &file));
        }
        sum = crc32c::crc32c_append(sum, &buffer[..count]);
        target.write_at(segment.start_bytes + done, &[IoSlice::new(&buffer[..count])])?;
        done += count as u64;
        step(count as u64);
    }
    match segment.checksum {
        Some(known) if known != sum => {
            Err(damaged("its file fails the checksum of then", tier, &file))
        }
        _ => Ok(()),
    }
}

fn damaged(reason: &'static str, tier: &TierState, file: &Key) -> Error {
    Error::new(ErrorKind::Corrupt, OPERATION)
        .because(reason)
        .with("file", file)
        .with("tier", &tier.name)
}
