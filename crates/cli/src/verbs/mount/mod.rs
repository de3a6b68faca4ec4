// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace mount`.

mod background;
mod place;
mod retry;
mod source;
mod words;

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;
use serde_json::json;
use terrace_core::{Error, ErrorKind};
use terrace_fuse::{Mounter, Unmounter, mount_for};
use terrace_metrics::{ControlSource, Exporter, MountSource, ProcessSource, StoreSource};
use terrace_mount::{Mount as Mounted, NAME_DEFAULT, Opening, Options, Requests, Tiers};
use terrace_settings::{Directory, Places, Settings};
use terrace_store::{OpenOptions, Store};
use terrace_transport::Endpoint;

use self::retry::Retry;
use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::inherited;
use crate::interrupt::Interrupt;
use crate::log::{Form, Log};
use crate::metrics::{Metrics, export};
use crate::output::Output;
use crate::service_manager;

/// How long the kernel may cache names and attributes that no other process can change: until it
/// needs the memory.
const CACHED_FOR_ALONE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The same where others change them, too.
const CACHED_FOR_SHARED: Duration = Duration::from_secs(1);

/// Objects that are made ahead of files, where files are passed through.
const READY_OBJECTS: usize = 128;

const PASS: &str = "mount with passthrough";

/// What it takes.
const URING_HINT: &str = "it takes Linux 6.14 with Y in /sys/module/fuse/parameters/enable_uring, \
    0 in /proc/sys/kernel/io_uring_disabled, and every processor (taskset, cpuset)";

/// Mount a store, or a directory with a cache, as a file system that every program can use
///
/// Files live on the store's tiers and move between them as its policy decides, also while they are
/// open. A store may hold several file systems (--name); one that is not there is made, owned by
/// the user that mounts it.
///
/// Each file is in one of two modes while it is open. In *passthrough* the kernel reads and writes
/// the tier's file itself, at its speed; the file then stays where it is until it is closed.
/// *Served* files are read and written through this process, and move while they are open. `auto`
/// passes through what it can (root is needed, and a tier that is a directory on an ordinary file system), except
/// for files and directories with the attribute `user.terrace.movable` = 1.
///
/// Tiers are seen from inside: `getfattr -n user.terrace.tier FILE` tells where a file is, and
/// setting the attributes `tier`, `pin`, `hint`, `segment` and `movable` migrates, pins, advises the
/// policy, cuts what is made into pieces, and chooses the mode; what is made in a directory inherits all of
/// them but `tier`.
///
/// Returns when the file system can be used, and goes on in the background; with --foreground it
/// stays, and reports to systemd when it can be used (sd_notify, also keep-alives for WatchdogSec=). `umount DIR` ends it, as do SIGINT (Ctrl-C), SIGTERM and SIGHUP: where it is still in
/// use it then leaves the tree at once and ends with its last user.
///
/// Without root, `fusermount3` (package fuse3) is needed.
///
/// A service that is kept apart from the other programs by a name space of mounts cannot mount what these see.
/// With --mounter it waits until another process mounts for it, which has their name space: `terrace mount --for
/// SOCKET DIR`, which returns when the file system can be used. Such a mount ends with `umount DIR` alone.
///
/// What programs get no error for, or not its reason, is in the log alone: a lost lock, a lost open file, lost
/// bytes of a tier's file, files that were left out when a directory was to move. In the background nothing
/// of it is kept without --log-file; in the foreground it goes to standard error.
///
/// In /etc/fstab: `STORE DIR fuse.terrace OPTIONS 0 0`, for example `defaults,log_file=/var/log/files.log`.
/// mount(8) calls this command through the link /sbin/mount.fuse.terrace, which is made as below, or through
/// mount.fuse3 (package fuse3), which adds `dev` and `suid` where `nodev` and `nosuid` are not given, and
/// looks for the command in /usr/local/bin and /usr/bin. It prints nothing then, unless it fails or waits.
///
/// With --source no store is needed: the mount shows an existing directory, or what is below the prefix of a bucket
/// of S3, as it is, read-only, and keeps copies of what is read below --cache, on a fast disk. Then the directory to
/// mount at is the only argument.
///
/// A mount over the network that comes before its server fails. With `-o retry=TIME` it is tried again for
/// that time, with `-o bg` in the background and for a week, as mount.nfs does: mount(8) returns with success
/// after the first attempt, and the directory is empty until the server answers.
#[derive(Args, Debug)]
pub(crate) struct Mount {
    /// The store, its directory or the address of its servers (terrace://HOST:PORT,...), unless --store or
    /// TERRACE_STORE names it; and the directory to mount it at
    #[arg(value_names = ["STORE", "DIR"], num_args = 1..=2, required = true)]
    places: Vec<PathBuf>,

    /// The file system, where the store has several
    #[arg(long, value_name = "NAME", default_value = NAME_DEFAULT)]
    name: String,

    /// What reads and writes the tiers' files
    #[arg(long, value_name = "MODE", default_value = "auto")]
    io: Io,

    /// Let each operation see what other clients did before it
    ///
    /// Otherwise a client sees what another has closed when it opens the file itself, and names and
    /// attributes after --cache at the latest; and small writes may be answered once they are sent: what
    /// cannot be written after all, the next write, fsync or close tells.
    #[arg(long)]
    strict: bool,

    /// With `-o ro`: read what there is where servers are missing over which the file system lies
    ///
    /// A file of which a part is on a server that is not named cannot be read then.
    #[arg(long)]
    degraded: bool,

    /// How long names and attributes may be taken for what they were; default: 1s where other
    /// clients use the files, too, for ever where none does. With --source: the directory of the copies
    #[arg(long, value_name = "DURATION|DIR")]
    cache: Option<String>,

    #[command(flatten)]
    source: source::Source,

    /// Stay in the foreground
    #[arg(long, short = 'f')]
    foreground: bool,

    /// With --foreground: have another process mount, that of `terrace mount --for SOCKET DIR`; it is waited for at
    /// this socket, which is made, for a minute, and reported to systemd as if the file system could be used
    #[arg(long, value_name = "SOCKET", requires = "foreground", conflicts_with = "source")]
    mounter: Option<PathBuf>,

    /// Mount at the only argument, for the process that waits at this socket with --mounter
    #[arg(long = "for", value_name = "SOCKET", conflicts_with_all = ["mounter", "source"])]
    waiting: Option<PathBuf>,

    /// Where the process in the background writes its log, which is lost otherwise; in the foreground
    /// it goes to standard error
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// What is logged: `error`, `warn`, `info`, `debug` or `trace` and what is worse, or `off`
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: String,

    /// Started by another process of this command, which waits until it serves
    #[arg(long, hide = true)]
    detached: bool,

    /// Check everything and mount nothing, as `mount -f` asks its helper
    #[arg(long, hide = true)]
    fake: bool,

    /// Pass over unknown words of `-o`, as `mount -s` asks its helper
    #[arg(long, hide = true)]
    sloppy: bool,

    /// Called by mount(8): print nothing where it succeeds
    #[arg(long, hide = true)]
    helper: bool,

    /// What `-o` says of a server that does not answer
    #[arg(skip)]
    retry: Retry,

    /// Threads that serve the kernel; more while all of them are held up; default: 4, with --source 16
    #[arg(long, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=256))]
    threads: Option<usize>,

    /// Whether the kernel asks over io_uring, which mostly takes less time for each request
    ///
    /// Linux offers that since 6.14, where root has written Y to
    /// /sys/module/fuse/parameters/enable_uring (or `fuse.enable_uring=1` stands on the kernel's command
    /// line). There are 4 to 8 threads for each processor then, besides those of --threads, and this has
    /// to be allowed to run on every processor.
    #[arg(long, value_name = "WHEN", default_value = "off")]
    uring: Uring,

    /// Largest file that is kept with the metadata, in a file system that is made
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    inline: String,

    #[command(flatten)]
    metrics: Metrics,

    /// Options as mount(8) has them, with commas between
    ///
    /// `ro`, `noatime`, `noexec` and others of all file systems; `suid` and `dev` (root only: `nosuid` and
    /// `nodev` are the default); `allow_other` (the default for root) and `private` (for the mounting user
    /// alone); `name=`, `io=`, `threads=`, `uring=`, `inline=`, `cache=`, `log_file=`, `log_level=`, `metrics=`, `strict`
    /// and `degraded` as the options of the same names; `bg` and `fg` (the default), whether to go on in the
    /// background where no server answers the first attempt; `retry=TIME`, how long to try then, for
    /// example 90s, or a number of minutes (default: 0 with `fg`, 10000 with `bg`). With --source and a
    /// bucket also `uid=`, `gid=` (default: those of this process) and `umask=` (default: 0, which leaves the modes 0444
    /// and 0555).
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Whether the kernel asks over io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Uring {
    /// Where it can be had
    Auto,
    /// Fail where it cannot
    On,
    /// Never
    Off,
}

/// What reads and writes the tiers' files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Io {
    /// The kernel where it can, except for files that are marked movable
    Auto,
    /// The same, and fail where the kernel cannot
    Passthrough,
    /// This process
    Served,
}

impl Verb for Mount {
    const NAME: &'static str = "mount";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace mount ./my-store /mnt/files          umount /mnt/files ends it
  terrace mount -f --io served ./my-store /mnt/files    everything can move while it is open
  terrace mount -o ro,noatime ./my-store /mnt/files
  terrace mount --log-file /var/log/files.log terrace://host1,host2:7421/ /mnt/files
  terrace mount --strict terrace://host1/ /mnt/files    sees every write of other clients at once
  terrace mount --source /mnt/nfs/datasets --cache /nvme/terrace /data    a directory as it is, hot files on NVMe
  terrace mount --source 's3://my-bucket/sets?region=eu-central-1' --cache /nvme/terrace /data    the same of a bucket
  ln -s \"$(command -v terrace)\" /sbin/mount.fuse.terrace    once, for /etc/fstab";

    fn run(self, context: &Context) -> Result<()> {
        if self.source.is_given() {
            return source::run(self, context);
        }
        source::refuse_alone(&self)?;
        if let Some(socket) = &self.waiting {
            return mount_for_other(socket, &self.places);
        }
        let is_fake = self.fake;
        let plan = words::plan(self, context)?;
        if is_fake {
            return plan.check();
        }
        if plan.is_detached {
            background::leave_session();
        }
        match plan.is_foreground || plan.is_detached {
            true => plan.serve(context),
            false => {
                let places = [plan.store.as_ref(), plan.directory.as_path()];
                background::start(&plan.arguments, &places, plan.is_silent, context)
            }
        }
    }
}

/// What is to be mounted, where and how.
#[derive(Clone, Debug)]
struct Plan {
    store: String,
    directory: PathBuf,
    opening: Opening,
    options: Options,
    cached_for: Option<Duration>,
    /// The socket at which another process is waited for that mounts.
    mounter: Option<PathBuf>,
    must_pass: bool,
    must_use_uring: bool,
    is_foreground: bool,
    is_detached: bool,
    log_file: Option<PathBuf>,
    log_level: String,
    metrics: Option<Endpoint>,
    /// Whether nothing is printed where it succeeds.
    is_silent: bool,
    retry: Retry,
    /// The same for another process of this command, without store and directory.
    arguments: Vec<String>,
}

impl Plan {
    /// Whether there is a store, as far as can be seen without opening it.
    fn check(&self) -> Result<()> {
        if !Store::is_behind_servers(&self.store) {
            Settings::read(&Directory::at(&self.store)?.settings())?;
        }
        Ok(())
    }

    /// Mounts, and serves until it is unmounted.
    fn serve(&self, context: &Context) -> Result<()> {
        place::check(&self.store, &self.directory)?;
        self.log_file.iter().try_for_each(|file| Places::of(&self.store).check_log(file))?;
        let interrupt = Interrupt::watch()?;
        let _log = Log::start(&self.log_level, Form::Text)?;
        let output = match self.is_detached {
            true => Some(background::open_output(self.log_file.as_deref())?),
            false => None,
        };
        inherited::settle_daemon_and_log();
        self.retry.until_served(self, context, &interrupt, output.as_ref(), &|is_ready| {
            self.serve_once(context, &interrupt, output.as_ref(), is_ready)
        })
    }

    /// The same at the first attempt; notes when programs can use the mount.
    fn serve_once(
        &self,
        context: &Context,
        interrupt: &Interrupt,
        output: Option<&File>,
        is_ready: &Cell<bool>,
    ) -> Result<()> {
        let purpose = format!("mount at {}", self.directory.display());
        let options = || OpenOptions {
            access: self.opening.access,
            purpose: Some(purpose.clone()),
            ..OpenOptions::default()
        };
        let open = |store: &Store| {
            if self.must_pass && store.is_attached() {
                let error = Error::new(ErrorKind::Unsupported, PASS);
                return Err(match Store::is_behind_servers(&self.store) {
                    true => error.because("files that come over the network are always served"),
                    false => error
                        .because("files of a store that another process owns are always served")
                        .caused_by(store.owned_elsewhere("own the store")),
                }
                .into());
            }
            Ok(terrace_mount::open(store, &self.opening)?)
        };
        context.with_files_at(&self.store, &options, &open, |store, files| {
            let tiers = Tiers::new(store, &self.store);
            let mut options = self.options.clone();
            options.is_shared = store.is_attached();
            options.mounter = self.mounter.as_deref().map(wait_for_mounter).transpose()?;
            options.requests = self.metrics.as_ref().map(|_| Arc::new(Requests::default()));
            options.cached_for = match (self.cached_for, options.is_shared) {
                (Some(cached_for), _) => cached_for,
                (None, true) => CACHED_FOR_SHARED,
                (None, false) => CACHED_FOR_ALONE,
            };
            let mounted =
                Mounted::new(&files, Some(tiers), &self.directory, &options).map_err(|error| {
                    Error::from_io("mount", error).with("directory", self.directory.display())
                })?;
            if self.must_pass && !mounted.passes_through() {
                let reason =
                    mounted.passthrough_refusal().unwrap_or("another process has the store");
                return Err(Error::new(ErrorKind::Denied, PASS).because(reason).into());
            }
            if self.must_use_uring
                && let Some(reason) = mounted.uring_refusal()
            {
                let error = Error::new(ErrorKind::Unsupported, "ask over io_uring");
                return Err(error.because(format!("{reason}; {URING_HINT}")).into());
            }
            let exporter = export(self.metrics.as_ref(), || {
                let requests = options.requests.as_ref().expect("they are counted for this");
                let directory = self.directory.display().to_string();
                let place = (directory.as_str(), self.store.as_str());
                vec![
                    Box::new(ProcessSource::new(Mount::NAME)),
                    Box::new(StoreSource::new(store, &self.store)),
                    Box::new(ControlSource::new(store)),
                    Box::new(MountSource::new(requests, &files, place, mounted.passes_through())),
                ]
            })?;
            is_ready.set(true);
            self.print_ready(context, &mounted, exporter.as_ref())?;
            if let Some(output) = output {
                background::leave_terminal(output)?;
            }
            inherited::leave_directory();
            let serve = || {
                unmount_on(interrupt, mounted.unmounter());
                mounted.serve().map_err(|error| Error::from_io("serve a mount", error))
            };
            service_manager::while_serving(&|| probe(store), serve)?;
            drop(exporter);
            // Later processes wait for the end.
            store.stop_serving();
            drop(mounted);
            files.close().map_err(|failure| failure.into_error("close a file system"))?;
            Ok(())
        })
    }

    fn print_ready(
        &self,
        context: &Context,
        mounted: &Mounted,
        exporter: Option<&Exporter>,
    ) -> Result<()> {
        let (passes, refusal) = (mounted.passes_through(), mounted.passthrough_refusal());
        if self.is_silent && !self.is_detached {
            return Ok(());
        }
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({
                "ready": true,
                "store": self.store,
                "name": self.opening.name,
                "directory": self.directory,
                "process": std::process::id(),
                "passthrough": passes,
                "uring": mounted.uses_uring(),
                "metrics": exporter.map(Exporter::url),
            }))?;
        } else {
            let how = match refusal {
                None if passes => "passthrough where possible".into(),
                None => "served".into(),
                Some(reason) => format!("served; {reason}"),
            };
            let directory = self.directory.display();
            let metrics =
                exporter.map_or(String::new(), |one| format!("; metrics on {}", one.url()));
            output.line(format!("mounted {} at {directory}: {how}{metrics}", self.store))?;
        }
        output.flush()
    }
}

/// Listens for the process that mounts, and has the service manager start it.
fn wait_for_mounter(socket: &Path) -> Result<Arc<Mounter>> {
    let mounter = Mounter::bind(socket).map_err(|error| {
        Error::from_io("wait for another process to mount", error).with("socket", socket.display())
    })?;
    service_manager::ready();
    Ok(Arc::new(mounter))
}

/// Mounts at `places` for the process that waits at `socket`.
fn mount_for_other(socket: &Path, places: &[PathBuf]) -> Result<()> {
    let [place] = places else {
        let reason = "with --for the directory to mount at is the only argument";
        return Err(Error::invalid("mount", reason).into());
    };
    mount_for(socket, place).map_err(|error| {
        let has_ended = error.kind() == io::ErrorKind::BrokenPipe;
        let error = Error::from_io("mount for another process", error)
            .with("directory", place.display())
            .with("socket", socket.display());
        match has_ended {
            true => error.because("that process ended before it served; its log says why").into(),
            false => error.into(),
        }
    })
}

/// Looks at the tiers where this process has them. It asks no server: one that does not answer is no reason
/// to restart a mount.
fn probe(store: &Store) {
    if !store.is_attached() {
        drop(store.admin().tiers());
    }
}

/// Unmounts once a signal came.
fn unmount_on(interrupt: &Interrupt, unmounter: Unmounter) {
    let interrupt = interrupt.clone();
    thread::spawn(move || {
        interrupt.wait();
        service_manager::stopping();
        // Open files stay usable until they are closed.
        let unmounted = unmounter.unmount().or_else(|_| unmounter.unmount_lazily());
        match unmounted {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                tracing::info!(%error, "this process ends when it is unmounted");
            }
            Err(error) => tracing::warn!(%error, "cannot unmount"),
            Ok(()) => {}
        }
    });
}

/// The directory that a path names, absolute, and whether it is one.
fn directory(path: &Path) -> Result<PathBuf> {
    let absolute = std::fs::canonicalize(path)
        .map_err(|error| Error::from_io("mount", error).with("directory", path.display()))?;
    // The kernel may still cache the answers of a process that is gone.
    match statx(CWD, &absolute, AtFlags::STATX_FORCE_SYNC, StatxFlags::TYPE) {
        Ok(found) if FileType::from_raw_mode(found.stx_mode.into()) != FileType::Directory => {
            let error = Error::invalid("mount", "a directory is expected");
            Err(error.with("path", path.display()).into())
        }
        Err(Errno::NOTCONN) => {
            let reason = "what is mounted there lost its process: take it away first, with umount";
            let error = Error::new(ErrorKind::Busy, "mount").because(reason);
            Err(error.with("directory", absolute.display()).into())
        }
        _ => Ok(absolute),
    }
}
