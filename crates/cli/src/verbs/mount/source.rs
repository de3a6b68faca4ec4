// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace mount --source`: a directory or a prefix of a bucket as it is, behind a cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use terrace_backends::object::S3Settings;
use terrace_core::units::{format_bytes, parse_bytes, parse_duration, show_bytes};
use terrace_core::{Error, ErrorKind};
use terrace_fuse::MountOptions;
use terrace_mount::NAME_DEFAULT;
use terrace_source::{
    Bucket, BucketOwner, Cache, CacheSettings, Directory, Source as Shown, SourceMount,
    SourceOptions,
};

use super::{Io, Mount, PASS, Uring, background, directory, unmount_on, words};
use crate::context::Context;
use crate::failure::Result;
use crate::inherited;
use crate::interrupt::Interrupt;
use crate::log::{Form, Log};
use crate::output::Output;
use crate::service_manager;

/// Threads by default: each may wait for the source.
const THREADS: usize = 16;

/// Longest that a request to a bucket takes with its retries, as a part of --deadline in percent: what it failed
/// with is known then before the deadline ends.
const REQUEST_PERCENT: u32 = 90;
/// The same without its part: a signature does not last for ever.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(300);

/// Options of a mount of a directory or a bucket.
#[derive(Args, Debug)]
pub(super) struct Source {
    /// Show this directory, or what is below the prefix of a bucket, read-only, in place of a store; needs --cache
    ///
    /// A bucket is `s3://BUCKET/PREFIX?KEY=VALUE&KEY=VALUE`, with the keys endpoint, region, credentials and
    /// profile of `terrace init --tier`; credentials come from the same places.
    #[arg(long, value_name = "DIR|URL")]
    source: Option<String>,

    /// With --source: the most that copies take; default: four fifths of what is free on the device of the cache
    #[arg(long, value_name = "SIZE")]
    cache_size: Option<String>,

    /// With --source: how old names, attributes and listings may be, and so how late a change at the source may be
    /// seen; default: 60s
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,

    /// With --source: how long the source may take for one call; then copies are served without asking it, and the
    /// rest fails with ETIMEDOUT; default: 10s
    #[arg(long, value_name = "DURATION")]
    deadline: Option<String>,
}

impl Source {
    pub(super) fn is_given(&self) -> bool {
        self.source.is_some()
    }
}

/// Refuses options that need `--source` without it.
pub(super) fn refuse_alone(arguments: &Mount) -> Result<()> {
    let Source { cache_size, ttl, deadline, .. } = &arguments.source;
    let given = [("--cache-size", cache_size), ("--ttl", ttl), ("--deadline", deadline)];
    match given.into_iter().find(|(_, value)| value.is_some()) {
        None => Ok(()),
        Some((name, _)) => {
            Err(Error::invalid("mount", "this option is for --source").with("option", name).into())
        }
    }
}

/// What is to be mounted.
struct Plan {
    source: Arc<dyn Shown>,
    cache: CacheSettings,
    directory: PathBuf,
    options: SourceOptions,
    must_pass: bool,
    is_silent: bool,
}

/// Mounts a directory.
pub(super) fn run(arguments: Mount, context: &Context) -> Result<()> {
    let mut arguments = arguments;
    let again = again(&arguments)?;
    let is_root = rustix::process::geteuid().is_root();
    let mut mount =
        MountOptions { allow_other: is_root, default_permissions: true, ..MountOptions::default() };
    let given: Vec<String> =
        arguments.options.iter().flat_map(|words| words.split(',')).map(Into::into).collect();
    let mut owner = Owner::default();
    for word in &given {
        if !owner.apply(word)? {
            words::apply(word, &mut arguments, &mut mount)?;
        }
    }
    refuse_others(&arguments)?;
    let plan = plan(&arguments, mount, &owner)?;
    if arguments.fake {
        return Ok(());
    }
    if arguments.detached {
        background::leave_session();
    }
    if arguments.foreground || arguments.detached {
        return serve(&plan, &arguments, context);
    }
    // What is wrong is found by the process that serves, which prints it.
    let Plan { directory, is_silent, .. } = plan;
    background::start(&again, &[&directory], is_silent, context)
}

/// What `-o` says of the owner of a bucket's files.
#[derive(Debug, Default)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
    umask: Option<u32>,
}

impl Owner {
    /// Applies a word; whether it is one of these.
    fn apply(&mut self, word: &str) -> Result<bool> {
        let Some((name, value)) = word.split_once('=') else { return Ok(false) };
        let (place, number) = match name {
            "uid" => (&mut self.uid, value.parse().ok()),
            "gid" => (&mut self.gid, value.parse().ok()),
            "umask" => {
                let mask = u32::from_str_radix(value, 8).ok();
                (&mut self.umask, mask.filter(|mask| *mask <= 0o777))
            }
            _ => return Ok(false),
        };
        if number.is_none() {
            let reason = "uid and gid are numbers, umask is one to base 8";
            return Err(Error::invalid("mount", reason).with("option", word).into());
        }
        *place = number;
        Ok(true)
    }

    fn is_given(&self) -> bool {
        [self.uid, self.gid, self.umask].iter().any(Option::is_some)
    }

    fn of_bucket(&self) -> BucketOwner {
        BucketOwner {
            uid: self.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            gid: self.gid.unwrap_or_else(|| rustix::process::getegid().as_raw()),
            umask: self.umask.unwrap_or(0),
        }
    }
}

fn plan(arguments: &Mount, mut mount: MountOptions, owner: &Owner) -> Result<Plan> {
    let text = arguments.source.source.as_deref().unwrap_or_default();
    let place = match arguments.places.as_slice() {
        [place] => place,
        _ => {
            let reason = "with --source the directory to mount at is the only argument";
            return Err(Error::invalid("mount", reason).into());
        }
    };
    let cache = arguments.cache.as_deref().ok_or_else(|| {
        Error::invalid("mount", "--source needs --cache DIR: an empty directory on a fast disk")
    })?;
    let directory = directory(place)?;
    let duration = |text: &Option<String>, default: Duration| match text {
        Some(text) => parse_duration(text),
        None => Ok(default),
    };
    let Source { cache_size, ttl, deadline, .. } = &arguments.source;
    let deadline = duration(deadline, SourceOptions::DEADLINE)?;
    let source: Arc<dyn Shown> = if S3Settings::is_address(text) {
        check_places(None, Path::new(cache), &directory)?;
        let settings = S3Settings::of_address(text)?;
        let deadline = deadline.min(REQUEST_TIME_MAX) * REQUEST_PERCENT / 100;
        let settings = S3Settings { deadline, ..settings };
        Arc::new(Bucket::open(&settings, owner.of_bucket())?)
    } else if owner.is_given() {
        let reason = "uid, gid and umask are for buckets: the files of a directory have an owner";
        return Err(Error::invalid("mount", reason).into());
    } else {
        let source = Directory::open_within(Path::new(text), deadline)?;
        check_places(Some(Path::new(source.target())), Path::new(cache), &directory)?;
        Arc::new(source)
    };
    mount.source = source.target().into();
    Ok(Plan {
        cache: CacheSettings {
            directory: absolute(cache)?,
            bytes_max: cache_size.as_deref().map(parse_bytes).transpose()?,
            purpose: format!("mount of {} at {}", source.target(), directory.display()),
        },
        source,
        options: SourceOptions {
            mount,
            ttl: duration(ttl, SourceOptions::TTL)?,
            deadline,
            threads: arguments.threads.unwrap_or(THREADS),
            passes_through: arguments.io != Io::Served,
        },
        directory,
        must_pass: arguments.io == Io::Passthrough,
        is_silent: arguments.helper,
    })
}

/// Refuses what is of stores alone.
fn refuse_others(arguments: &Mount) -> Result<()> {
    let given = [
        ("--name", arguments.name != NAME_DEFAULT),
        ("--strict", arguments.strict),
        ("--degraded", arguments.degraded),
        ("--uring", arguments.uring != Uring::Off),
        ("--metrics", arguments.metrics.address.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((name, _)) => {
            let reason = "this option is for the mount of a store, and not for --source";
            Err(Error::invalid("mount", reason).with("option", name).into())
        }
    }
}

/// Refuses places that would show or ask each other without end.
fn check_places(source: Option<&Path>, cache: &Path, mountpoint: &Path) -> Result<()> {
    let cache = absolute(cache)?;
    let is_in = |path: &Path| source.is_some_and(|source| path.starts_with(source));
    let is_below = |path: &Path| source.is_some_and(|source| source.starts_with(path));
    let refused = [
        (is_in(&cache), "the cache is in the source"),
        (is_below(&cache), "the source is in the cache"),
        (is_in(mountpoint), "the directory to mount at is in the source"),
        (is_below(mountpoint), "the mount would hide the source"),
        (mountpoint.starts_with(&cache), "the directory to mount at is in the cache"),
        (cache.starts_with(mountpoint), "the mount would hide the cache"),
    ];
    match refused.into_iter().find(|(is_so, _)| *is_so) {
        None => Ok(()),
        Some((_, reason)) => {
            let mut error = Error::invalid("mount", reason);
            if let Some(source) = source {
                error = error.with("source", source.display());
            }
            let error = error.with("cache", cache.display());
            Err(error.with("directory", mountpoint.display()).into())
        }
    }
}

/// A path without links, as far as it exists.
fn absolute(path: impl AsRef<Path>) -> Result<PathBuf> {
    let failed = |error| Error::from_io("find the cache", error);
    let path = std::path::absolute(path).map_err(failed)?;
    let mut there = path.as_path();
    loop {
        if let Ok(real) = there.canonicalize() {
            let rest = path.strip_prefix(there).expect("it is above");
            return Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
        }
        match there.parent() {
            Some(parent) => there = parent,
            None => return Ok(path),
        }
    }
}

fn serve(plan: &Plan, arguments: &Mount, context: &Context) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let _log = Log::start(&arguments.log_level, Form::Text)?;
    let output = match arguments.detached {
        true => Some(background::open_output(arguments.log_file.as_deref())?),
        false => None,
    };
    inherited::settle_daemon_and_log();
    let cache = Arc::new(Cache::open(&plan.cache, plan.source.identity())?);
    let mounted = SourceMount::new(&plan.source, &cache, &plan.directory, &plan.options);
    let mounted = mounted.map_err(|error| {
        Error::from_io("mount", error)
            .with("directory", plan.directory.display())
            .with("source", plan.source.target())
    })?;
    if plan.must_pass
        && let Some(reason) = mounted.passthrough_refusal()
    {
        return Err(Error::new(ErrorKind::Denied, PASS)
            .because(reason.to_owned())
            .with("cache", cache.directory().display())
            .into());
    }
    print_ready(plan, arguments, context, &cache, mounted.passes_through())?;
    if let Some(output) = &output {
        background::leave_terminal(output)?;
    }
    inherited::leave_directory();
    service_manager::while_serving(&|| {}, || {
        unmount_on(&interrupt, mounted.unmounter());
        mounted.serve().map_err(|error| Error::from_io("serve a mount", error))
    })?;
    Ok(())
}

fn print_ready(
    plan: &Plan,
    arguments: &Mount,
    context: &Context,
    cache: &Cache,
    passes: bool,
) -> Result<()> {
    if plan.is_silent && !arguments.detached {
        return Ok(());
    }
    let bytes_max = cache.report().bytes_max;
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({
            "ready": true,
            "source": plan.source.target(),
            "cache": cache.directory(),
            "cache_bytes_max": bytes_max,
            "directory": plan.directory,
            "process": std::process::id(),
            "passthrough": passes,
        }))?;
    } else {
        let how = if passes { "passthrough" } else { "served" };
        output.line(format!(
            "mounted {} at {}: {how}, read-only; copies in {}, at most {}",
            plan.source.target(),
            plan.directory.display(),
            cache.directory().display(),
            show_bytes(bytes_max),
        ))?;
    }
    output.flush()
}

/// The same arguments for another process, without the directory to mount at.
fn again(arguments: &Mount) -> Result<Vec<String>> {
    let Source { source, cache_size, ttl, deadline } = &arguments.source;
    let source = source.as_deref().unwrap_or_default();
    // A file of credentials in an address is read before the working directory is left.
    let source = match S3Settings::is_address(source) {
        true => source.to_string(),
        // By its words alone: a file server may not answer, and `open` has a deadline.
        false => {
            let path = std::path::absolute(source);
            text(&path.map_err(|error| Error::from_io("find the source", error))?)?
        }
    };
    let mut again =
        vec![format!("--source={source}"), format!("--log-level={}", arguments.log_level)];
    again.extend(arguments.threads.map(|threads| format!("--threads={threads}")));
    if let Some(cache) = &arguments.cache {
        again.push(format!("--cache={}", text(&absolute(cache)?)?));
    }
    if let Some(file) = &arguments.log_file {
        again.push(format!("--log-file={}", text(&absolute(file)?)?));
    }
    if let Some(size) = cache_size {
        again.push(format!("--cache-size={}", format_bytes(parse_bytes(size)?)));
    }
    again.extend(ttl.iter().map(|time| format!("--ttl={time}")));
    again.extend(deadline.iter().map(|time| format!("--deadline={time}")));
    let io = clap::ValueEnum::to_possible_value(&arguments.io).expect("no mode is hidden");
    again.push(format!("--io={}", io.get_name()));
    again.extend(arguments.sloppy.then(|| "--sloppy".into()));
    again.extend(arguments.helper.then(|| "--helper".into()));
    for words in &arguments.options {
        again.push("-o".into());
        again.push(words.clone());
    }
    Ok(again)
}

fn text(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| {
        Error::invalid("mount", "the path is no UTF-8").with("path", path.display())
    })?;
    Ok(text.into())
}
