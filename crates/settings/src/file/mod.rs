// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of a store: what `terrace.toml` may say, checked before anything is changed.
//!
//! `docs/reference/configuration.md` is the same for people.

mod check;
mod example;
mod paths;
mod read;
mod section;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use terrace_backends::object::{OpendalSettings, RadosSettings, S3Settings};
use terrace_core::{Error, Figures, Persistency, PostEvents, Result, Watermarks, units};

/// Longest configuration that is read.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A configuration that contradicts neither itself nor what this build can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The level of objects whose application says nothing.
    pub persistency: Persistency,
    /// Migrations that run at once; at least 1.
    pub move_threads: usize,
    /// Most bytes per second that all migrations together read; `None` without a bound.
    pub move_bandwidth: Option<f64>,
    /// Whether migrations wait while applications keep a tier busy.
    pub move_yields: bool,
    /// Whether it may be opened for writing where tiers are missing.
    pub degraded: bool,
    /// Most objects that are kept in memory beside those that are open; at least 64.
    pub objects_in_memory: usize,
    /// How often everything is read to find what rots; `None`: only on request.
    pub scrub_every: Option<Duration>,
    /// Most bytes per second that are read for that.
    pub scrub_bandwidth: f64,
    /// In order of preference; 1 to [`terrace_core::TierIndex::COUNT_MAX`].
    pub tiers: Vec<TierSettings>,
    /// Where the catalog is.
    pub catalog: CatalogSettings,
    /// What decides; `None`: new objects go to the first tier with room and stay.
    pub policy: Option<PolicySettings>,
    /// The trace that every opening records; `None` for none.
    pub trace: Option<TraceSettings>,
}

/// A tier: where its bytes are, and what it can do.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSettings {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// The backend: `file`, `memory`, `null`, `s3`, `rados` or `opendal`.
    pub backend: String,
    /// Where a `file` tier keeps its bytes; `None` for the others.
    pub path: Option<PathBuf>,
    /// Where the bucket of an `s3` tier is; `None` for the others.
    pub s3: Option<S3Settings>,
    /// Where the pool of a `rados` tier is; `None` for the others.
    pub rados: Option<RadosSettings>,
    /// Where the service of an `opendal` tier is; `None` for the others.
    pub opendal: Option<OpendalSettings>,
    /// How its objects are compressed; `None` for not at all.
    pub compress: Option<Compress>,
    /// The file with the key by which its objects are encrypted.
    pub encrypt: Option<PathBuf>,
    /// The part of its length that an object takes there, for replays: above 0, at most 1.
    pub packed_share: f64,
    /// How long superseded and deleted objects are kept on it; `None` for not at all.
    pub keep_deleted: Option<Duration>,
    /// What it can do and what it costs.
    pub figures: Figures,
    /// What its device has beside that, for replays.
    pub device: DeviceSettings,
    /// Which part of its time a read from memory takes where its bytes were used so many bytes ago, for
    /// replays; by these, in ascending order.
    pub recently_used: Vec<(u64, f64)>,
    /// Its fill levels.
    pub watermarks: Watermarks,
    /// The slower device that it simulates.
    pub throttle: Option<ThrottleSettings>,
}

impl TierSettings {
    /// Whether its objects are framed, to be compressed, encrypted or both.
    pub fn is_framed(&self) -> bool {
        self.compress.is_some() || self.encrypt.is_some()
    }

    /// Whether it takes whole objects only.
    pub fn is_whole(&self) -> bool {
        self.s3.is_some() || self.opendal.is_some() || self.is_framed()
    }
}

/// How the objects of a tier are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    /// Not from now on; what was compressed is read.
    Off,
    /// By zstd, at this level.
    Zstd(i32),
}

/// What a device has beside the figures that policies are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceSettings {
    /// The part of the latency that a request does not have that goes on where the one before ended.
    pub seek: Duration,
    /// The latency of writes, where it is another one.
    pub write_latency: Option<Duration>,
    /// Bytes per second of all large reads together, where they slow each other more than small ones.
    pub total_bandwidth: Option<f64>,
    /// What it takes of writes before it becomes slow, where it does.
    pub burst: Option<BurstSettings>,
    /// What a write takes longer that makes a file.
    pub create_latency: Duration,
    /// How long it takes to make a file durable whose bytes are there.
    pub sync_latency: Duration,
    /// Reads of what the machine has in memory, if it keeps anything.
    pub cached: Option<CachedSettings>,
    /// The part of the time of its requests for which a processor works.
    pub cpu_share: f64,
    /// What a migration to it takes beside its bytes, where that is known.
    pub switch: Option<SwitchSettings>,
}

/// What a migration takes beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchSettings {
    /// How long that is.
    pub latency: Duration,
    /// Time of processors in it.
    pub cpu: Duration,
}

/// Reads of files that the machine has in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedSettings {
    /// Time from a request to its first byte.
    pub latency: Duration,
    /// Bytes per second of one large read.
    pub bandwidth: f64,
}

/// A device that writes fast for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstSettings {
    /// Bytes that it takes at full rate.
    pub bytes: u64,
    /// Bytes per second at which it goes on.
    pub sustained_write_bandwidth: f64,
}

/// How slow a tier is made, to simulate another device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleSettings {
    /// Time that every request takes at least.
    pub latency: Duration,
    /// Bytes that one request reads in a second; `None` without a bound.
    pub read_bandwidth: Option<f64>,
    /// Bytes that one request writes in a second; `None` without a bound.
    pub write_bandwidth: Option<f64>,
    /// Requests that are served at once; at least 1.
    pub parallelism: u32,
}

/// Where the catalog is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogSettings {
    /// The key-value engine.
    pub engine: String,
    /// Its directory; not used by the engine `memory`.
    pub path: PathBuf,
    /// Backups of it that are written while the store is served.
    pub checkpoint: CheckpointSettings,
}

/// Backups of the catalog, and the log behind them, that a served store writes by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// Where they go.
    pub place: CheckpointPlace,
    /// How often a new one is written where anything has changed, above zero; `None` for when the
    /// log has become long.
    pub every: Option<Duration>,
}

/// Where checkpoints of the catalog go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CheckpointPlace {
    /// To a tier's directory.
    #[default]
    Tier,
    /// To this file; each replaces the one before.
    File(PathBuf),
    /// Nowhere.
    Nowhere,
}

impl CheckpointPlace {
    /// The file of the configuration.
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            CheckpointPlace::File(file) => Some(file),
            CheckpointPlace::Tier | CheckpointPlace::Nowhere => None,
        }
    }
}

/// A policy and how to call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Which it is.
    pub source: PolicySource,
    /// Call it after this many events; at least 1.
    pub after_events: u64,
    /// Call it this often; above zero.
    pub every: Duration,
    /// When accesses become events.
    pub post_events: PostEvents,
    /// Most bytes that one round may ask to move.
    pub round_bytes: u64,
    /// Replace it when one call takes longer.
    pub call_time_max: Duration,
    /// Record its decisions without carrying them out.
    pub dry_run: bool,
    /// Its parameters as (name, text), in the order of the file.
    pub parameters: Vec<(String, String)>,
    /// Parameters whose text is in a file, as (name, path), in the order of the file.
    pub files: Vec<(String, PathBuf)>,
}

impl PolicySettings {
    /// The parameters, also those whose text is in files, of which relative paths are below `dir`.
    ///
    /// # Errors
    ///
    /// `Invalid` for a file that is too long or no text; what reading it gave.
    pub fn all_parameters(&self, dir: &Path) -> Result<Vec<(String, String)>> {
        let mut parameters = self.parameters.clone();
        for (name, path) in &self.files {
            let path = dir.join(path);
            let text = read_parameter(&path)
                .map_err(|error| error.with("parameter", name).with("path", path.display()))?;
            parameters.push((name.clone(), text));
        }
        Ok(parameters)
    }
}

/// Longest file with the text of a parameter: as long as a message to a policy.
const PARAMETER_BYTES_MAX: u64 = 1 << 20;

fn read_parameter(path: &Path) -> Result<String> {
    const OPERATION: &str = "read a parameter of the policy";
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| Error::from_io(OPERATION, error))?;
    let read = file.take(PARAMETER_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::from_io(OPERATION, error))?;
    if bytes.len() as u64 > PARAMETER_BYTES_MAX {
        let reason = format!("it is longer than {}", units::format_bytes(PARAMETER_BYTES_MAX));
        return Err(Error::invalid(OPERATION, reason));
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid(OPERATION, "it is not UTF-8"))
}

/// What every opening records of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// Its directory.
    pub path: PathBuf,
    /// Record the policy's inputs and decisions, too.
    pub decisions: bool,
    /// Hash names.
    pub hash_names: bool,
    /// Most bytes of all its files.
    pub max_bytes: u64,
}

/// Where a policy comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum PolicySource {
    /// A built-in policy.
    Name(String),
    /// A shared library.
    Library(PathBuf),
    /// A Python file, whose policy runs in a process of its own.
    Program(PathBuf),
}

impl Settings {
    /// Reads the text of a configuration; `origin` is the name of its file, for messages, and empty for a text
    /// that is in no file, whose messages name no position.
    ///
    /// Paths stay as they are given.
    ///
    /// # Errors
    ///
    /// `Invalid` with `origin:line:column`, the reason and what would be right, for the first
    /// thing that is wrong.
    pub fn parse(text: &str, origin: &str) -> Result<Settings> {
        let source = section::Source { origin, text };
        if text.len() as u64 > TEXT_BYTES_MAX {
            let reason = format!("the text is longer than {TEXT_BYTES_MAX} bytes");
            return Err(source.wrong(0, reason));
        }
        let document = source.parse()?;
        read::read(source, &document)
    }

    /// Reads a configuration from a file.
    ///
    /// # Errors
    ///
    /// As [`Settings::parse`]; `NotFound`, `Denied`, `Io` from the file.
    pub fn read(path: &Path) -> Result<Settings> {
        let failed = |error| {
            Error::from_io("read the configuration of a store", error).with("file", path.display())
        };
        let mut text = String::new();
        // One byte more than allowed, so that `parse` sees that it is too long.
        File::open(path)
            .and_then(|file| file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(failed)?;
        Settings::parse(&text, &path.display().to_string())
    }

    /// The commented configuration of a new store: two tiers in its directory, and a policy.
    pub fn example() -> String {
        Settings::text(None, "fjall", Some("lru"))
    }

    /// The same with other `[[tier]]` sections, this engine for the catalog, and with a policy of
    /// this name or none.
    pub fn text(tiers: Option<&str>, engine: &str, policy: Option<&str>) -> String {
        let name = toml::Value::from(policy.unwrap_or("lru")).to_string();
        let section = example::POLICY.replace("NAME", &name);
        let commented = |line: &str| match line {
            "" => "\n".into(),
            _ if policy.is_none() && !line.starts_with('#') => format!("# {line}\n"),
            _ => format!("{line}\n"),
        };
        let policy: String = section.lines().map(commented).collect();
        let catalog = example::CATALOG.replace("ENGINE", &toml::Value::from(engine).to_string());
        [example::HEAD, tiers.unwrap_or(example::TIERS), &catalog, &policy].concat()
    }

    /// Whether the catalog is in a directory and outlives the process.
    pub fn keeps_catalog(&self) -> bool {
        self.catalog.engine != "memory"
    }

    /// The same with relative paths below `dir`, the directory of the store.
    ///
    /// # Errors
    ///
    /// `Invalid` where two paths collide that did not when one was relative and the other absolute.
    pub fn resolved(&self, dir: &Path) -> Result<Settings> {
        paths::resolved(self, dir)
    }
}
