// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening: owns the store, or attaches to the process that does.

use std::sync::{Arc, Mutex};

use terrace_admin::Owned;
use terrace_backends::kv::open_kv;
use terrace_core::{Access, Clock, Error, ErrorKind, Failpoints, Kv, Result, SystemClock};
use terrace_recovery::Opened;
use terrace_recovery::far::{self, Claim};
use terrace_settings::{
    Directory, Lock, Patience, PolicySource, Settings, Url, check_there, policy, stack_settings,
    tiers, trace_settings,
};
use terrace_stack::{Parts, Stack, Tactics, Tier};

use crate::control::Link;
use crate::descriptors::make_room_for_descriptors;
use crate::owner::Owner;
use crate::store::{OpenOptions, Side, Store};

impl Store {
    /// Opens a store by its address: its directory, or `terrace+dir:` and its directory; behind a
    /// server `terrace://HOST:PORT` or `terrace+unix:///PATH`, behind several
    /// `terrace://HOST:PORT,HOST:PORT` or `terrace+map:///PATH`.
    ///
    /// # Errors
    ///
    /// As [`Store::open_with`].
    pub fn open(address: &str) -> Result<Store> {
        Self::open_with(address, OpenOptions::default())
    }

    /// Opens a store as `options` say.
    ///
    /// # Errors
    ///
    /// `NotFound` (no store there, or a part of it is missing), `Busy` (another process owns it
    /// and does not serve it), `Invalid` (settings that are wrong, or drop a tier that holds
    /// objects), `Denied` (a tier of another store, swapped tiers, permissions, a secret that is
    /// not the server's), `Stale` (an old copy of a tier), `Corrupt`, `NoSpace`, `Unreachable` (the
    /// server does not answer), `Io`. Nothing was changed then.
    pub fn open_with(address: &str, options: OpenOptions) -> Result<Store> {
        if Url::is_one(address) {
            let url = Url::parse(address)?;
            if !options.attach || options.policy_wrapper.is_some() || options.dry_run.is_some() {
                return Err(Error::new(ErrorKind::Unsupported, "own the store")
                    .because("it is behind a server; run the command there, with its directory")
                    .with("store", address));
            }
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
            let link = Link::behind(url.connect(options.access, &clock)?)?;
            return Ok(Store { side: Side::Attached(link) });
        }
        let side = open(&Directory::at(address)?, options)?;
        Ok(Store { side })
    }
}

fn open(directory: &Directory, mut options: OpenOptions) -> Result<Side> {
    check_there(directory)?;
    // What an owner does differently cannot be had through another one.
    let may_attach =
        options.attach && options.policy_wrapper.is_none() && options.dry_run.is_none();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let mut patience = Patience::new(&clock);
    loop {
        let busy = match try_own(directory, &options)? {
            Tried::Own(ground) => {
                let (owned, claim, notes) = ground.open(directory, &mut options, &clock)?;
                let owner = Owner::new(owned, options.serve, claim, notes);
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
        terrace_recovery::finish_rebuild(&settings)?;
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
    ) -> Result<(Owned, Option<Claim>, Vec<String>)> {
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
            (Some(trace), Access::Write) => Some(trace_settings(trace)?),
            _ => None,
        };
        let Claimed { claim, is_unknown, notes } =
            claimed(&settings, &tiers, &catalog, directory, options.access, clock)?;
        let parts = Parts {
            tiers: tiers.clone(),
            catalog,
            tactics,
            recording: trace,
            settings: terrace_stack::Settings {
                degraded,
                has_far_log: claim.is_some() || is_unknown,
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
        let saving = Mutex::default();
        let clock = Arc::clone(clock);
        let opened = Opened { stack, clock, directory, access, settings, saving, lock };
        let owned = Owned::new(opened, tiers, resting);
        Ok((owned, claim, notes))
    }
}

/// The claim to a store whose catalog is in a bucket too.
#[derive(Default)]
struct Claimed {
    claim: Option<Claim>,
    /// Whether another machine may own the store, because the bucket does not answer.
    is_unknown: bool,
    /// For people.
    notes: Vec<String>,
}

fn claimed(
    settings: &Settings,
    tiers: &[Tier],
    catalog: &Arc<dyn Kv>,
    directory: &Directory,
    access: Access,
    clock: &Arc<dyn Clock>,
) -> Result<Claimed> {
    let Some((name, _)) = far::pinned_tier_of(settings, directory.path())? else {
        return Ok(Claimed::default());
    };
    if let Some(reason) =
        tiers.iter().find(|tier| tier.name == name).and_then(|tier| tier.offline.as_ref())
    {
        let note = format!(
            "whether another machine has taken the store over is not known, and the level shared is not \
             given: {reason}"
        );
        return Ok(Claimed { claim: None, is_unknown: true, notes: vec![note] });
    }
    if access == Access::Read {
        far::check_reader(settings, directory.path())?;
        return Ok(Claimed::default());
    }
    let Some(store_id) = Stack::id_of(&**catalog)? else { return Ok(Claimed::default()) };
    let (claim, refused) = far::claim(settings, directory.path(), store_id, clock.wall_ns())?;
    let notes = refused.map(|error| format!("the level shared is not given: {}", error.chain()));
    Ok(Claimed { claim, is_unknown: false, notes: notes.into_iter().collect() })
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
