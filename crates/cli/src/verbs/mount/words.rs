// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the command line says about a mount.

use std::io::ErrorKind;
use std::time::Duration;

use clap::ValueEnum;
use terrace_core::units::{parse_bytes, parse_duration};
use terrace_core::{Access, Error};
use terrace_fs::{INLINE_BYTES_LIMIT, TreeOptions};
use terrace_fuse::MountOptions;
use terrace_mount::{IoMode, Opening, Options};
use terrace_store::Store;

use super::{CACHED_FOR_SHARED, Io, Mount, Plan, READY_OBJECTS, Uring, directory, retry};
use crate::context::Context;
use crate::failure::Result;
use crate::log::read_level;

/// Threads that serve the kernel by default.
const THREADS: usize = 4;

/// Reads the arguments; later ones count.
pub(super) fn plan(arguments: Mount, context: &Context) -> Result<Plan> {
    let mut arguments = arguments;
    let again = again(&arguments)?;
    let is_root = rustix::process::geteuid().is_root();
    let mut mount =
        MountOptions { allow_other: is_root, default_permissions: true, ..MountOptions::default() };
    let words: Vec<String> =
        arguments.options.iter().flat_map(|words| words.split(',')).map(Into::into).collect();
    for word in &words {
        apply(word, &mut arguments, &mut mount)?;
    }
    if arguments.degraded && !mount.read_only {
        let reason = "`degraded` is for reading only: give `-o ro,degraded`";
        return Err(Error::invalid("mount", reason).into());
    }
    let (store, place) = match arguments.places.as_slice() {
        [place] => match context.store() {
            Ok(store) => (store.to_string(), place),
            Err(_) => {
                let reason = "a store and a directory are expected; only one of them is given";
                return Err(Error::invalid("mount", reason).into());
            }
        },
        [store, place] => (text(store)?, place),
        _ => return Err(Error::invalid("mount", "a store and a directory are expected").into()),
    };
    // Below the directory that it is started in, which a process in the background leaves.
    let store = match Store::is_behind_servers(&store) {
        true => store,
        false => text(&directory(store.as_ref())?)?,
    };
    let directory = directory(place)?;
    mount.source = store.clone();
    let inline_bytes_max = u32::try_from(parse_bytes(&arguments.inline)?)
        .ok()
        .filter(|bytes| *bytes <= INLINE_BYTES_LIMIT)
        .ok_or_else(|| Error::invalid("mount", "--inline is at most 64KiB"))?;
    let create = TreeOptions {
        inline_bytes_max,
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
        ..TreeOptions::default()
    };
    let io = match arguments.io {
        Io::Auto => IoMode::Auto,
        Io::Passthrough => IoMode::Passthrough,
        Io::Served => IoMode::Served,
    };
    let cached_for = arguments.cache.as_deref().map(parse_duration).transpose()?;
    let ready_objects = if io == IoMode::Served || !is_root { 0 } else { READY_OBJECTS };
    Ok(Plan {
        store,
        directory,
        opening: Opening {
            name: arguments.name,
            create: (!mount.read_only).then_some(create),
            ready_objects,
            access: if mount.read_only { Access::Read } else { Access::Write },
            degraded: arguments.degraded,
            believed_for: match arguments.strict {
                true => Duration::ZERO,
                false => cached_for.unwrap_or(CACHED_FOR_SHARED),
            },
        },
        options: Options {
            mount,
            mounter: None,
            io,
            threads: arguments.threads.unwrap_or(THREADS),
            uring: arguments.uring != Uring::Off,
            cached_for: Duration::ZERO,
            is_shared: false,
            is_strict: arguments.strict,
            requests: None,
        },
        cached_for,
        mounter: arguments.mounter,
        must_pass: arguments.io == Io::Passthrough,
        must_use_uring: arguments.uring == Uring::On,
        is_foreground: arguments.foreground,
        is_detached: arguments.detached,
        log_file: arguments.log_file,
        log_level: arguments.log_level,
        metrics: arguments.metrics.endpoint()?,
        is_silent: arguments.helper,
        retry: arguments.retry,
        arguments: again,
    })
}

/// The same arguments for another process, without store and directory.
fn again(arguments: &Mount) -> Result<Vec<String>> {
    let io = arguments.io.to_possible_value().expect("no mode is hidden");
    let uring = arguments.uring.to_possible_value().expect("no choice is hidden");
    let mut again = vec![
        format!("--name={}", arguments.name),
        format!("--io={}", io.get_name()),
        format!("--uring={}", uring.get_name()),
        format!("--inline={}", arguments.inline),
        format!("--log-level={}", arguments.log_level),
    ];
    again.extend(arguments.threads.map(|threads| format!("--threads={threads}")));
    if let Some(file) = &arguments.log_file {
        let file =
            std::path::absolute(file).map_err(|error| Error::from_io("find the log", error))?;
        again.push(format!("--log-file={}", text(&file)?));
    }
    if let Some(address) = &arguments.metrics.address {
        again.push(format!("--metrics={address}"));
    }
    again.extend(arguments.strict.then(|| "--strict".into()));
    again.extend(arguments.degraded.then(|| "--degraded".into()));
    again.extend(arguments.sloppy.then(|| "--sloppy".into()));
    again.extend(arguments.helper.then(|| "--helper".into()));
    again.extend(arguments.cache.iter().map(|time| format!("--cache={time}")));
    for words in &arguments.options {
        again.push("-o".into());
        again.push(words.clone());
    }
    Ok(again)
}

/// Words of `-o` beside those of all file systems.
const WORDS: &str = "name=, io=, threads=, uring=, inline=, cache=, log_file=, log_level=, metrics=, retry=, \
    bg, fg, strict, degraded, private, allow_other";

/// Applies one word of `-o`.
pub(super) fn apply(word: &str, arguments: &mut Mount, mount: &mut MountOptions) -> Result<()> {
    match word.split_once('=') {
        Some(("name", name)) => arguments.name = name.into(),
        Some(("io", mode)) => {
            arguments.io = Io::from_str(mode, false).map_err(|_| {
                Error::invalid("mount", "io is auto, passthrough or served").with("io", mode)
            })?;
        }
        Some(("uring", when)) => {
            arguments.uring = Uring::from_str(when, false).map_err(|_| {
                Error::invalid("mount", "uring is auto, on or off").with("uring", when)
            })?;
        }
        Some(("threads", threads)) => {
            let legal = threads.parse().ok().filter(|threads| (1..=256).contains(threads));
            arguments.threads = Some(legal.ok_or_else(|| {
                Error::invalid("mount", "threads are 1 to 256").with("threads", threads)
            })?);
        }
        Some(("inline", size)) => arguments.inline = size.into(),
        Some(("cache", time)) => arguments.cache = Some(time.into()),
        Some(("log_file", file)) => arguments.log_file = Some(file.into()),
        Some(("log_level", level)) => {
            read_level(level)?;
            arguments.log_level = level.into();
        }
        Some(("metrics", address)) => arguments.metrics.address = Some(address.into()),
        Some(("retry", time)) => arguments.retry.longest = Some(retry::time(time)?),
        None if word == "bg" => arguments.retry.is_background = true,
        None if word == "fg" => arguments.retry.is_background = false,
        None if word == "strict" => arguments.strict = true,
        None if word == "degraded" => arguments.degraded = true,
        None if word == "private" => mount.allow_other = false,
        _ => match mount.apply([word]) {
            Err(error) if arguments.sloppy && error.kind() == ErrorKind::InvalidInput => {}
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let reason = format!(
                    "there is no such option; known are {WORDS} and those of all file systems \
                     (man 8 mount)"
                );
                return Err(Error::invalid("mount", reason).with("option", word).into());
            }
            applied => applied.map_err(|error| Error::invalid("mount", error.to_string()))?,
        },
    }
    Ok(())
}

fn text(path: &std::path::Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| {
        Error::invalid("mount", "the path of the store is no UTF-8").with("path", path.display())
    })?;
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use clap::{Args, Command, FromArgMatches};

    use super::*;
    use crate::failure::Failure;

    /// What is planned where the store and the place are directories.
    fn planned(arguments: &[&str]) -> Result<Plan> {
        let directories = [tempfile::tempdir(), tempfile::tempdir()];
        let [store, place] = directories.map(|made| made.expect("there is room"));
        let words = ["mount"].into_iter().chain(arguments.iter().copied()).map(OsStr::new);
        let words = words.chain([store.path().as_os_str(), place.path().as_os_str()]);
        let matches = Mount::augment_args(Command::new("mount")).get_matches_from(words);
        let arguments = Mount::from_arg_matches(&matches).expect("they are checked");
        plan(arguments, &Context::new(None, false, clap::Command::default))
    }

    #[test]
    fn a_mount_logs_where_its_words_say() {
        for (arguments, file, level) in [
            (&["-o", "log_file=/log/files,ro"][..], "/log/files", "warn"),
            (&["-o", "log_level=debug,log_file=/a", "-o", "log_file=/b"], "/b", "debug"),
            (&["--log-file=/a", "--log-level=info", "-o", "log_file=/b"], "/b", "info"),
            (&["--log-file=/a", "--log-level=info", "-o", "log_level=off"], "/a", "off"),
        ] {
            let plan = planned(arguments).expect("they are right");
            assert_eq!(plan.log_file.as_deref(), Some(Path::new(file)), "{arguments:?}");
            assert_eq!(plan.log_level, level, "{arguments:?}");
            // The process in the background reads the same.
            let again: Vec<_> = plan.arguments.iter().map(String::as_str).collect();
            let again = planned(&again).expect("they were right");
            assert_eq!((again.log_file, again.log_level), (plan.log_file, plan.log_level));
        }
        assert_eq!(planned(&["-o", "ro"]).expect("it is right").log_file, None);
    }

    #[test]
    fn how_long_a_mount_is_tried_is_as_with_nfs() {
        for (words, is_background, minutes) in [
            ("rw", false, 0),
            ("bg", true, 10_000),
            ("bg,fg", false, 0),
            ("retry=2", false, 2),
            ("bg,retry=120s", true, 2),
        ] {
            let plan = planned(&["-o", words]).expect("they are right");
            let longest = Duration::from_secs(60 * minutes);
            assert_eq!(plan.retry.is_background, is_background, "{words}");
            assert_eq!(plan.retry.longest(), longest, "{words}");
        }
        assert!(planned(&["-o", "retry=soon"]).is_err());
    }

    #[test]
    fn an_unknown_word_names_those_that_exist() {
        for word in ["nosuch", "thread=3", "ro,srict"] {
            let Err(Failure::Failed(error)) = planned(&["-o", word]) else { panic!("{word}") };
            let text = error.to_string();
            let option = format!("option={}", word.trim_start_matches("ro,"));
            assert!(text.contains("threads=") && text.contains(&option), "{text}");
            planned(&["--sloppy", "-o", word]).expect("it is passed over");
        }
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        for sloppy in [&[][..], &["--sloppy"]] {
            let refused = planned(&[sloppy, &["-o", "log_level=loud"]].concat());
            let Err(Failure::Failed(error)) = refused else { panic!("{refused:?}") };
            assert!(error.to_string().contains("level=\"loud\""), "{error}");
        }
    }
}
