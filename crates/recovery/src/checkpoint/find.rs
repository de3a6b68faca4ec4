// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The newest checkpoint of a store whose catalog is lost, and the log behind it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use terrace_core::{Error, ErrorKind, Kv, Result};
use terrace_settings::Settings;
use terrace_stack::{BackupMoment, LOG_HEAD_BYTES, apply_log, read_backup_moment, read_log_head};

use super::place::{Place, in_tiers};

/// A checkpoint that a catalog was made anew with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointUsed {
    /// Its file.
    pub file: PathBuf,
    /// When it was written, in nanoseconds since 1970; 0 where it does not say.
    pub written_ns: u64,
    /// Commits of the log behind it.
    pub log_commits: u64,
    /// Bytes of the log that are no whole record, or of files that are none of it.
    pub torn_bytes: u64,
}

/// A checkpoint that is there.
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) moment: BackupMoment,
}

/// The newest of the configured place and those in the directories of the tiers.
///
/// # Errors
///
/// `Corrupt`, `Denied` and `Io` where one of them cannot be read.
pub(crate) fn newest(settings: &Settings) -> Result<Option<Found>> {
    let configured = settings.catalog.checkpoint.place.file();
    let configured = configured.map(|file| Place { file: file.clone(), tier: None });
    let all = in_tiers(settings).into_iter().chain(configured);
    let mut found = Vec::new();
    let mut refused = None;
    for place in all {
        match moment_of(&place) {
            Ok(moment) => found.extend(moment.map(|moment| Found { place, moment })),
            Err(error) => refused = Some(error),
        }
    }
    // One that cannot be read may be the newest.
    match refused {
        Some(error) => Err(error),
        None => Ok(found.into_iter().max_by_key(|one| (one.moment.epoch, one.moment.written_ns))),
    }
}

/// Of what moment the checkpoint in a place is; `None` without one.
pub(crate) fn moment_of(place: &Place) -> Result<Option<BackupMoment>> {
    let failed = |error: Error| error.with("file", place.file.display());
    let mut file = match File::open(&place.file) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(Error::from_io("read a checkpoint", error))),
    };
    read_backup_moment(&mut file).map(Some).map_err(|error| or_without(failed(error)))
}

/// Says what to do about a checkpoint that is damaged.
pub(crate) fn or_without(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => error.with("to_go_on_without", "move it away"),
        _ => error,
    }
}

/// Brings a checkpoint that was read into `target` to the end of its log.
pub(crate) fn replay(found: &Found, target: &dyn Kv) -> Result<CheckpointUsed> {
    let (place, moment) = (&found.place, &found.moment);
    let mut used = CheckpointUsed {
        file: place.file.clone(),
        written_ns: moment.written_ns,
        log_commits: 0,
        torn_bytes: 0,
    };
    let mut point = moment.point;
    let logs =
        place.logs().into_iter().filter(|(begin, _)| begin.log == point.log && point.log != 0);
    for (begin, path) in logs.collect::<Vec<_>>() {
        let failed = |error| Error::from_io("read a log", error).with("file", path.display());
        let file = File::open(&path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let mut file = BufReader::new(file);
        let mut head = Vec::new();
        (&mut file).take(LOG_HEAD_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
        // One that a crash left without its head, or a foreign file.
        if read_log_head(&head) != Some((moment.store_id, begin)) {
            used.torn_bytes += bytes;
            continue;
        }
        let applied = apply_log(&mut file, begin, &mut point, target)
            .map_err(|error| error.with("file", path.display()))?;
        used.log_commits += applied.commits;
        used.torn_bytes += bytes.saturating_sub(applied.bytes);
    }
    Ok(used)
}
