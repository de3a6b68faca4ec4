// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening: owns the store, or attaches to the process that does.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrace_backends::kv::open_kv;
use terrace_core::{Access, Clock, Error, ErrorKind, Failpoints, Kv, Result, SystemClock};
use terrace_stack::{Parts, Stack, Tactics, Tier};

use crate::control::Link;
use crate::descriptors::make_room_for_descriptors;
use crate::directory::Directory;
use crate::files::Trees;
use crate::lock::Lock;
use crate::owner::{Owned, Owner};
use crate::settings::{PolicySource, Settings};
use crate::store::{OpenOptions, Side};
use crate::{policy, recording, repair, tiers};

/// Longest wait for an owner that starts, stops, or is a command that soon ends.
const BUSY_TIME_MAX: Duration = Duration::from_secs(5);

/// The same for one that serves: it will stay, unless it is about to end, as a mount is when `umount`
/// returns.
const ENDING_TIME_MAX: Duration = Duration::from_secs(2);

/// First and longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long somebody waits who wants to own a store.
pub(crate) struct Patience {
    clock: Arc<dyn Clock>,
    begun_ns: u64,
    pause: Duration,
}

impl Patience {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Arc::clone(clock), begun_ns: clock.now_ns(), pause: PAUSE_MIN }
    }

    /// Waits a little for the owner to end; false where that has taken too long by now.
    pub(crate) fn wait(&mut self, is_served: bool) -> bool {
        let longest = if is_served { ENDING_TIME_MAX } else { BUSY_TIME_MAX };
        let waited_ns = self.clock.now_ns().saturating_sub(self.begun_ns);
        if Duration::from_nanos(waited_ns) >= longest {
            return false;
        }
        self.clock.sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

pub(crate) fn open(directory: &Directory, mut options: OpenOptions) -> Result<Side> {
    check_there(directory)?;
    // What an owner does differently cannot be had through another one.
    let may_attach =
        options.attach && options.policy_wrapper.is_none() && options.dry_run.is_none();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let mut patience = Patience::new(&clock);
    loop {
        let busy = match try_own(directory, &options)? {
            Tried::Own(ground) => {
                let owned = ground.open(directory, &mut options, &clock)?;
                let owner = Owner::new(owned, options.serve);
                return Ok(Side::Owned(Arc::new(owner)));
            }
            Tried::Busy(error) => error,
        };
        match Link::connect(directory, options.access, &clock) {
            Ok(link) if may_attach => return Ok(Side::Attached(link)),
            Ok(_) if !patience.wait(true) => return Err(busy),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable { .. }) => {
                if !patience.wait(false) {
                    // Of one that only reads, that it does not answer explains nothing.
                    return Err(match Lock::holder(directory) {
                        Some(holder) if holder.access == Access::Read => busy,
                        _ => busy.caused_by(error),
                    });
                }
            }
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn check_there(directory: &Directory) -> Result<()> {
    let settings = directory.settings();
    match settings.metadata() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::new(ErrorKind::NotFound, "open the store")
                .because(
                    "there is none: the directory has no terrace.toml; `terrace init` makes one",
                )
                .with("directory", directory.path().display()))
        }
        Err(error) => Err(Error::from_io("open the store", error).with("file", settings.display())),
    }
}

/// What an owner has before it looks at the tiers.
struct Ground {
    settings: Settings,
    catalog: Arc<dyn Kv>,
    lock: Lock,
}

enum Tried {
    Own(Box<Ground>),
    Busy(Error),
}

fn try_own(directory: &Directory, options: &OpenOptions) -> Result<Tried> {
    let access = options.access;
    let Some(lock) = Lock::try_take(directory, access, options.purpose.as_deref())? else {
        let reason = match Lock::holder(directory) {
            Some(holder) if holder.access == Access::Read => {
                "another process has it open for reading only, as a mount with `ro` does, and \
                 no other process may use it meanwhile"
            }
            _ => "another process owns it",
        };
        return Ok(Tried::Busy(Lock::busy(directory, "open the store", reason)));
    };
    let settings = Settings::read(&directory.settings())?.resolved(directory.path())?;
    if access == Access::Write {
        repair::finish(&settings)?;
    }
    match open_catalog(&settings) {
        Ok(catalog) => Ok(Tried::Own(Box::new(Ground { settings, catalog, lock }))),
        // Objects that are still open keep the catalog of a store that was dropped.
        Err(error) if error.kind() == ErrorKind::Busy => Ok(Tried::Busy(error)),
        Err(error) => Err(error),
    }
}

/// Opens the catalog of a store that exists: a missing one is not made anew.
fn open_catalog(settings: &Settings) -> Result<Arc<dyn Kv>> {
    let path = &settings.catalog.path;
    if settings.keeps_catalog() && (!path.is_dir() || tiers::first_entry(path)?.is_none()) {
        return Err(Error::new(ErrorKind::NotFound, "open the catalog")
            .because(
                "its directory is missing or empty: mount it, or, where it is lost, restore it from a \
                 backup, or have it made anew from the tiers (terrace fsck --rebuild)",
            )
            .with("directory", path.display()));
    }
    open_kv(&settings.catalog.engine, path)
}

impl Ground {
    fn open(
        self,
        directory: &Directory,
        options: &mut OpenOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Owned> {
        let Ground { settings, catalog, lock } = self;
        make_room_for_descriptors();
        let degraded = options.degraded || settings.degraded;
        let may_miss = degraded || options.access == Access::Read;
        let tiers = tiers::open(&settings, options.access, may_miss, clock)?;
        let tactics = tactics(&settings, &tiers, options)?;
        let resting = match options.access {
            Access::Read => {
                settings.policy.as_ref().map(|policy| policy::resting(policy, tactics.as_ref()))
            }
            Access::Write => None,
        };
        let trace = match (&settings.trace, options.access) {
            (Some(trace), Access::Write) => Some(recording::of(trace)?),
            _ => None,
        };
        let parts = Parts {
            tiers: tiers.clone(),
            catalog,
            tactics,
            recording: trace,
            settings: terrace_stack::Settings {
                degraded,
                ..stack_settings(&settings, options.access)
            },
            clock: Arc::clone(clock),
            failpoints: Failpoints::default(),
        };
        if !settings.keeps_catalog() {
            // Every opening is a new store; its tiers are as volatile as the catalog.
            Stack::create(&parts)?;
        }
        let stack = Stack::open(parts)?;
        let access = options.access;
        let directory = directory.clone();
        let amending = Mutex::default();
        let tiers = Mutex::new(tiers);
        Ok(Owned {
            stack,
            trees: Trees::default(),
            clock: Arc::clone(clock),
            directory,
            access,
            settings,
            tiers,
            resting,
            amending,
            visit: Mutex::default(),
            saving: Mutex::default(),
            lock,
        })
    }
}

/// The configured policy. Where nothing may be changed, one that cannot be made is no hindrance.
fn tactics(
    settings: &Settings,
    tiers: &[Tier],
    options: &mut OpenOptions,
) -> Result<Option<Tactics>> {
    let Some(policy) = &settings.policy else { return Ok(None) };
    if options.access == Access::Read && matches!(policy.source, PolicySource::Program(_)) {
        // Not worth a process: it would decide nothing.
        return Ok(None);
    }
    let mut tactics = match policy::tactics(policy, tiers) {
        Ok(tactics) => tactics,
        Err(_) if options.access == Access::Read => return Ok(None),
        Err(error) => return Err(error),
    };
    if let Some(wrap) = options.policy_wrapper.take() {
        tactics.policy = wrap(tactics.policy);
    }
    tactics.is_dry_run = options.dry_run.unwrap_or(tactics.is_dry_run);
    Ok(Some(tactics))
}

pub(crate) fn stack_settings(settings: &Settings, access: Access) -> terrace_stack::Settings {
    terrace_stack::Settings {
        access,
        persistency: settings.persistency,
        move_threads: settings.move_threads,
        move_bytes_per_s: settings.move_bandwidth,
        move_yields: settings.move_yields,
        entries_max: settings.objects_in_memory,
        scrub_every: settings.scrub_every,
        scrub_bytes_per_s: settings.scrub_bandwidth,
        boot_id: boot_id(),
        ..terrace_stack::Settings::default()
    }
}

/// Empty where the kernel does not tell; the stack then takes every opening for the same boot.
fn boot_id() -> String {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"));
    text.map(|text| text.trim().into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_testkit::ManualClock;

    #[test]
    fn one_that_may_be_about_to_end_is_waited_for_and_not_for_long() {
        for (is_served, longest) in [(true, ENDING_TIME_MAX), (false, BUSY_TIME_MAX)] {
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
            let begun_ns = clock.now_ns();
            let mut patience = Patience::new(&clock);
            assert!(patience.wait(is_served), "not even once");
            while patience.wait(is_served) {}
            let waited = Duration::from_nanos(clock.now_ns() - begun_ns);
            assert!(waited >= longest && waited <= longest + PAUSE_MAX, "{waited:?}");
        }
    }
}
