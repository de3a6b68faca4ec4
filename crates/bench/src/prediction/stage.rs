// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores over pairs of tiers, as they are and in the model.

use std::cell::RefCell;
use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use terrace_calibrate::{CalibrateOptions, calibrate, write_calibration};
use terrace_core::{Backend, Error, Persistency, Result};
use terrace_measure::check_stop;
use terrace_replay::{Options, Population, Request, Timed, TimedReplay, Trace, read_lanes};
use terrace_settings::Settings as StoreSettings;
use terrace_store::{OpenOptions, PolicySource, Store};
use terrace_tuning::{Manner, Modelled};

use super::Settings;
use super::live::{play, populate};
use super::report::Outcome;
use super::workload::{FAST_BYTES, Workload};
use crate::fast_place;
use crate::place::Scratch;
use crate::study::parameters;

/// A fast tier and a slow one.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    media: [Medium; 2],
}

/// What a tier is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Medium {
    /// The backend `memory`.
    Memory,
    /// Files in main memory.
    Tmpfs,
    /// Files on a disk.
    Disk,
    /// Files of another machine.
    Network,
    /// Files in main memory behind a simulated device.
    Simulated,
}

/// All pairs; the first is simulated, the others are as they are.
pub(super) const PAIRS: &[Pair] = &[
    Pair { name: "memory/simulated", media: [Medium::Memory, Medium::Simulated] },
    Pair { name: "tmpfs/disk", media: [Medium::Tmpfs, Medium::Disk] },
    Pair { name: "disk/network", media: [Medium::Disk, Medium::Network] },
];

/// What the simulated device does.
const SIMULATED: &str =
    "throttle = { latency = \"500us\", bandwidth = \"400MB/s\", parallelism = 2 }";

/// How much the machine keeps of files: more than all that is read.
const PAGE_CACHE_BYTES: u64 = 4 << 30;

/// More than a run writes to files.
const RUN_BYTES: usize = 2 << 30;

/// How often the policy is asked: a run is over within seconds.
const CALL_AFTER_EVENTS: u64 = 256;
const CALL_EVERY: Duration = Duration::from_millis(20);

impl Pair {
    pub(super) fn needs_network(&self) -> bool {
        self.media.contains(&Medium::Network)
    }

    /// Whether nothing is simulated.
    pub(crate) fn is_real(&self) -> bool {
        !self.media.contains(&Medium::Simulated)
    }

    fn level(&self) -> Persistency {
        if self.media.contains(&Medium::Memory) { Persistency::None } else { Persistency::Process }
    }
}

/// The places of one store.
pub(super) struct Place {
    /// Its directory, with the catalog.
    store: PathBuf,
    /// Those of its tiers.
    tiers: [PathBuf; 2],
    scratches: Vec<Scratch>,
}

impl Place {
    /// Makes all files empty, and leaves them there.
    fn empty(&self) -> Result<()> {
        let each = |path: &Path| {
            let file = File::options().write(true).open(path);
            file.and_then(|file| file.set_len(0)).map_err(failed)
        };
        self.scratches.iter().try_for_each(|scratch| visit(scratch.path(), &each))
    }
}

/// A pair whose tiers were measured.
pub(super) struct Stage<'a> {
    pair: &'a Pair,
    settings: &'a Settings,
    /// The sections of the tiers, with [`PATHS`].
    tiers: String,
    worn: &'a Worn,
}

/// Where stores were, emptied: their files stay until the end, since some file systems (ext4 without
/// a journal) look at every inode that was deleted in the last minutes when they make a file.
pub(super) type Worn = RefCell<Vec<Place>>;

/// The names of the tiers.
const TIERS: [&str; 2] = ["fast", "slow"];

/// What stands for their directories.
const PATHS: [&str; 2] = ["/the/fast/tier", "/the/slow/tier"];

impl<'a> Stage<'a> {
    /// Measures the tiers.
    pub(super) fn new(
        pair: &'a Pair,
        settings: &'a Settings,
        worn: &'a Worn,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let mut stage = Self { pair, settings, tiers: sections(pair), worn };
        let place = stage.place()?;
        let store = address(&place)?;
        Store::init(&place.store, &stage.text(&place))?;
        let time = settings.calibration / settings.repetitions.max(1) as u32;
        use_memory(RUN_BYTES);
        let options = CalibrateOptions { tiers: Vec::new(), time, is_thorough: false };
        let is_stopped = || stop.load(Ordering::SeqCst);
        let all = calibrate(store, &options, &is_stopped, &mut |_| {})?;
        check_stop(stop)?;
        write_calibration(store, &all)?;
        let mut text = std::fs::read_to_string(place.store.join("terrace.toml")).map_err(failed)?;
        for (path, name) in place.tiers.iter().zip(PATHS) {
            text = text.replace(&path.display().to_string(), name);
        }
        stage.tiers = text.split_off(text.find("[[tier]]").unwrap_or(0));
        stage.wear(place)?;
        Ok(stage)
    }

    /// What the model says of a run.
    pub(super) fn foresee(&self, workload: &Workload, policy: &str) -> Result<Timed> {
        let text = format!("[store]\npersistency = \"{}\"\n\n{}", self.pair.level(), self.tiers);
        let settings = StoreSettings::parse(&text, "the benchmark")?;
        let modelled = Modelled { settings, file: PathBuf::new() };
        let processors = available_parallelism().ok().and_then(|count| count.get().try_into().ok());
        // Without such a tier it is of no use, and refused.
        let is_cached = modelled.settings.tiers.iter().any(|tier| tier.device.cached.is_some());
        let page_cache_bytes = is_cached.then_some(PAGE_CACHE_BYTES);
        let manner = Manner { page_cache_bytes, processors, ..Manner::default() };
        let mut options = modelled.options(&manner)?;
        (options.after_events, options.every) = (CALL_AFTER_EVENTS, CALL_EVERY);
        let text = workload.trace();
        let (population, _) = read_trace(&text)?;
        let policy = terrace_policies::create(policy, &options.view(), &owned(policy))?;
        let replay = TimedReplay::new(options);
        replay.run(population, open_trace(&text)?, policy, &mut |_| {})
    }

    /// Does it.
    pub(super) fn play(&self, workload: &Workload, policy: &str) -> Result<Outcome> {
        let (population, lanes) = read_trace(&workload.trace())?;
        let (place, level) = (self.place()?, self.pair.level());
        Store::init(&place.store, &self.text(&place))?;
        let options = OpenOptions { attach: false, serve: false, ..OpenOptions::default() };
        let store = Store::open_with(address(&place)?, options)?;
        // Nothing goes there meanwhile.
        store.admin().drain_tier(TIERS[0])?;
        populate(&store, &population, level)?;
        // Else the first migration waits until all of it is durable.
        store.sync_all()?;
        store.admin().undrain_tier(TIERS[0])?;
        place.tiers.iter().try_for_each(|path| visit(path, &forget_pages))?;
        store.admin().set_policy(&PolicySource::named(policy), &owned(policy))?;
        store.admin().set_calls(Some(CALL_AFTER_EVENTS), Some(CALL_EVERY))?;
        use_memory(RUN_BYTES);
        let played = play(&store, &lanes, level);
        store.close()?;
        let played = played?;
        self.wear(place)?;
        Ok(played)
    }

    /// Keeps the place of a store that is closed.
    fn wear(&self, place: Place) -> Result<()> {
        place.empty()?;
        self.worn.borrow_mut().push(place);
        Ok(())
    }

    fn place(&self) -> Result<Place> {
        let (fast, disk) = (Scratch::new(&fast_place())?, Scratch::new(&self.settings.disk)?);
        let network = self.settings.network.as_deref().map(Scratch::new).transpose()?;
        let tier = |medium: Medium, name: &str| match (medium, &network) {
            (Medium::Disk, _) => disk.inside(name),
            (Medium::Network, Some(network)) => network.inside(name),
            _ => fast.inside(name),
        };
        let [first, second] = self.pair.media;
        let tiers = [tier(first, TIERS[0])?, tier(second, TIERS[1])?];
        let store = fast.path().join("store");
        let scratches = [fast, disk].into_iter().chain(network).collect();
        Ok(Place { store, tiers, scratches })
    }

    /// The configuration of a store at a place.
    fn text(&self, place: &Place) -> String {
        let mut tiers = self.tiers.clone();
        for (name, path) in PATHS.iter().zip(&place.tiers) {
            tiers = tiers.replace(name, &path.display().to_string());
        }
        format!("[store]\npersistency = \"{}\"\n\n{tiers}", self.pair.level())
    }
}

/// The tiers before they are measured.
fn sections(pair: &Pair) -> String {
    let section = |index: usize| {
        let path = format!("path = \"{}\"\n", PATHS[index]);
        let kind = match pair.media[index] {
            Medium::Memory => "backend = \"memory\"\n".into(),
            Medium::Simulated => path + SIMULATED,
            _ => path,
        };
        format!("[[tier]]\nname = \"{}\"\n{kind}", TIERS[index])
    };
    format!("{}capacity = \"{FAST_BYTES}B\"\n\n{}", section(0), section(1))
}

fn owned(policy: &str) -> Vec<(String, String)> {
    let own = |(name, value): &(&str, &str)| ((*name).to_string(), (*value).to_string());
    parameters(policy).iter().map(own).collect()
}

fn open_trace(text: &str) -> Result<Trace> {
    let stream = Box::new(Cursor::new(text.to_string()));
    Trace::from_stream(stream, "the workload", &Options::default())
}

/// What there is before a workload, and its requests.
fn read_trace(text: &str) -> Result<(Population, Vec<Vec<Request>>)> {
    let population = Population::read(&mut open_trace(text)?, &mut |_| {})?;
    Ok((population, read_lanes(&mut open_trace(text)?)?))
}

fn address(place: &Place) -> Result<&str> {
    let reason = "the directory's path is not UTF-8";
    let wrong = || Error::invalid("make a store for the benchmark", reason);
    place.store.to_str().ok_or_else(wrong)
}

/// Has a hypervisor give the machine memory that it may have taken back because it was unused: a process that
/// writes to files there waits ten times as long.
fn use_memory(bytes: usize) {
    const PAGE_BYTES: usize = 4096;
    // At most what other processes leave.
    let free = rustix::system::sysinfo();
    let free_bytes = free.freeram as usize * free.mem_unit as usize;
    let mut memory = vec![0_u8; bytes.min(free_bytes / 2)];
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// Has what is read next come from the devices.
fn forget_pages(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(failed)?;
    file.sync_data().map_err(failed)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| failed(errno.into()))
}

/// Does something with every file below a directory.
fn visit(directory: &Path, each: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            visit(&entry.path(), each)?;
        } else if kind.is_file() {
            each(&entry.path())?;
        }
    }
    Ok(())
}

fn failed(error: std::io::Error) -> Error {
    Error::from_io("prepare the benchmark", error)
}
