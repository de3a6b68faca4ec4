// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a checkpoint and its log are.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Result};
use terrace_settings::{CheckpointPlace, Settings, sync_directory};
use terrace_stack::LogPoint;

/// In a tier's directory. No namespace is called so: a backend takes what is in it for nothing of
/// its own.
const DIRECTORY: &str = ".terrace-catalog";
const FILE: &str = "checkpoint";

/// Between the name of a checkpoint and what tells the files of its log apart.
const LOG: &str = ".log-";

/// Room of a file system that is left to others, unless a sixteenth is less.
const ROOM_LEFT_BYTES: u64 = 64 << 20;

/// Bytes between two looks at the room that is left.
const LOOK_BYTES: u64 = 4 << 20;

/// The file of a checkpoint; those of its log are beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub(crate) file: PathBuf,
    /// The tier whose directory it is in.
    pub(crate) tier: Option<String>,
}

/// All places that a configuration has, best first: on the least preferred tier in a directory, but
/// rather on a file system that is not the catalog's, and on none that is encrypted.
pub(crate) fn places(settings: &Settings) -> Vec<Place> {
    match &settings.catalog.checkpoint.place {
        _ if !settings.keeps_catalog() => Vec::new(),
        CheckpointPlace::Nowhere => Vec::new(),
        CheckpointPlace::File(file) => vec![Place { file: file.clone(), tier: None }],
        CheckpointPlace::Tier => {
            let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
            let catalog = device(&settings.catalog.path);
            let mut places = in_tiers(settings);
            // Names and small files are in a checkpoint, which is not encrypted.
            let is_encrypted = |place: &Place| {
                let mut tiers = settings.tiers.iter();
                tiers.any(|tier| tier.encrypt.is_some() && place.tier.as_ref() == Some(&tier.name))
            };
            places.retain(|place| !is_encrypted(place));
            places.reverse();
            places.sort_by_key(|place| {
                let directory = place.tier_directory();
                (is_in_memory(directory), device(directory) == catalog)
            });
            places
        }
    }
}

/// Whether what is in a directory is gone with the machine's memory.
fn is_in_memory(path: &Path) -> bool {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of `statfs(2)`.
    const MAGICS: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    rustix::fs::statfs(path).is_ok_and(|found| MAGICS.contains(&(found.f_type as u64)))
}

/// The places in the directories of all tiers, whatever the configuration says.
pub(crate) fn in_tiers(settings: &Settings) -> Vec<Place> {
    let place = |tier: &terrace_settings::TierSettings| {
        let directory = tier.path.as_ref()?;
        Some(Place::in_tier(&tier.name, directory))
    };
    settings.tiers.iter().filter_map(place).collect()
}

impl Place {
    pub(crate) fn in_tier(tier: &str, directory: &Path) -> Self {
        Self { file: directory.join(DIRECTORY).join(FILE), tier: Some(tier.into()) }
    }

    /// The tier's directory; that of the file where it is in none.
    fn tier_directory(&self) -> &Path {
        let directory = self.directory();
        match &self.tier {
            Some(_) => directory.parent().unwrap_or(directory),
            None => directory,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        let parent = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new("."))
    }

    /// Whether a file can be made there: the tier is mounted.
    pub(crate) fn is_there(&self) -> bool {
        match &self.tier {
            Some(_) => terrace_settings::tiers::is_tier(self.tier_directory()),
            None => self.directory().is_dir(),
        }
    }

    /// Makes the directory in a tier.
    pub(crate) fn make(&self) -> Result<()> {
        if self.tier.is_none() {
            return Ok(());
        }
        // Names and small files are in it.
        match DirBuilder::new().mode(0o700).create(self.directory()) {
            Ok(()) => sync_directory(self.tier_directory()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(Error::from_io("make a directory for checkpoints", error)
                .with("directory", self.directory().display())),
        }
    }

    /// Where a checkpoint is written before it takes its place.
    pub(crate) fn new_file(&self) -> PathBuf {
        self.beside(".new")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.file.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }

    /// The file of a log behind a point.
    pub(crate) fn log(&self, point: LogPoint) -> PathBuf {
        self.beside(&format!("{LOG}{:016x}-{:016x}", point.log, point.sequence))
    }

    /// The files of logs, in order within each.
    pub(crate) fn logs(&self) -> Vec<(LogPoint, PathBuf)> {
        let Some(name) = self.file.file_name().and_then(|name| name.to_str()) else {
            return Vec::new();
        };
        let prefix = format!("{name}{LOG}");
        let Ok(entries) = self.directory().read_dir() else { return Vec::new() };
        let point = |name: &str| {
            let (log, sequence) = name.strip_prefix(&prefix)?.split_once('-')?;
            let number = |text: &str| match text.len() {
                16 => u64::from_str_radix(text, 16).ok(),
                _ => None,
            };
            Some(LogPoint { log: number(log)?, sequence: number(sequence)? })
        };
        let mut logs: Vec<_> = entries
            .flatten()
            .filter_map(|entry| Some((point(entry.file_name().to_str()?)?, entry.path())))
            .collect();
        logs.sort_by_key(|(point, _)| (point.log, point.sequence));
        logs
    }

    /// Bytes of all files of logs.
    pub(crate) fn log_bytes(&self) -> u64 {
        let bytes = |(_, path): (_, PathBuf)| path.metadata().map_or(0, |found| found.len());
        self.logs().into_iter().map(bytes).sum()
    }

    /// Removes the files of logs that a checkpoint of this point does not need, as far as it can be.
    pub(crate) fn remove_logs_but(&self, needed: LogPoint) {
        for (point, path) in self.logs() {
            if point.log != needed.log || point.sequence < needed.sequence {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Removes checkpoint and log from a tier, as far as it can be, and nothing that a person put
    /// aside there.
    pub(crate) fn remove(&self) {
        if self.tier.is_some() {
            let logs = self.logs().into_iter().map(|(_, path)| path);
            for path in logs.chain([self.file.clone(), self.new_file()]) {
                let _ = fs::remove_file(path);
            }
            let _ = fs::remove_dir(self.directory());
        }
    }

    /// Makes a file that only its owner may read, in the place of what is there: that may be a link,
    /// or another user's file.
    pub(crate) fn create(path: &Path) -> std::io::Result<File> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => OpenOptions::new().write(true).create_new(true).mode(0o600).open(path),
        }
    }
}

/// Refuses where a file system has no room that others can spare.
pub(crate) fn check_room(directory: &Path, bytes: u64) -> Result<()> {
    const OPERATION: &str = "keep room for data";
    let found = rustix::fs::statvfs(directory).map_err(|errno| {
        Error::from_io(OPERATION, errno.into()).with("directory", directory.display())
    })?;
    let total = found.f_blocks.saturating_mul(found.f_frsize);
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let left = ROOM_LEFT_BYTES.min(total / 16);
    if free < bytes.saturating_add(left) {
        return Err(Error::new(ErrorKind::NoSpace, OPERATION)
            .because("the file system is as good as full")
            .with("directory", directory.display())
            .with("free_bytes", free)
            .with("need_bytes", bytes)
            .with("left_to_others_bytes", left));
    }
    Ok(())
}

/// Writes as long as there is room that others can spare.
pub(crate) struct Sparing<'a> {
    pub(crate) file: &'a File,
    pub(crate) directory: &'a Path,
    /// Since the last look.
    pub(crate) bytes: u64,
    /// Whether it is not needed any more.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

impl Write for Sparing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.is_over)() {
            return Err(std::io::Error::other("the store is closed"));
        }
        if self.bytes >= LOOK_BYTES {
            self.bytes = 0;
            check_room(self.directory, LOOK_BYTES)
                .map_err(|error| std::io::Error::new(std::io::ErrorKind::StorageFull, error))?;
        }
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_logs_are_told_by_their_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::in_tier("t", directory.path());
        place.make().expect("made");
        place.make().expect("is there");
        let points = [(1, 5), (1, 0x1f), (2, 3)].map(|(log, sequence)| LogPoint { log, sequence });
        for point in points.iter().rev() {
            fs::write(place.log(*point), b"").expect("written");
        }
        for foreign in ["checkpoint", "checkpoint.log-1-2", "checkpoint.new", "other.log-0-0"] {
            fs::write(place.directory().join(foreign), b"").expect("written");
        }
        let found: Vec<_> = place.logs().into_iter().map(|(point, _)| point).collect();
        assert_eq!(found, points);
        place.remove_logs_but(points[1]);
        let found: Vec<_> = place.logs().into_iter().map(|(point, _)| point).collect();
        assert_eq!(found, [points[1]]);
        // What a person put there stays.
        place.remove();
        let mut left: Vec<_> = place.directory().read_dir().expect("is there").flatten().collect();
        left.sort_by_key(|entry| entry.file_name());
        let left: Vec<_> = left.iter().map(std::fs::DirEntry::file_name).collect();
        assert_eq!(left, ["checkpoint.log-1-2", "other.log-0-0"]);
        fs::remove_dir_all(place.directory()).expect("removed");
        place.make().expect("made");
        place.remove();
        assert!(!place.directory().exists());
        assert!(directory.path().exists());
    }

    #[test]
    fn a_file_system_is_not_filled() {
        let error = check_room(Path::new("/"), u64::MAX / 2).expect_err("too much");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
}
