// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of a mounted store, where a command takes the key of an object.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, lsetxattr};
use terrace_core::{Error, ErrorKind, Key};

use crate::address;
use crate::attributes::{KEY, OPERATION, STORE, TIER, attribute, followed, look, store_of};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::reached::Reached;

/// What `TIER` says of files that are too small to be on one.
const WITH_METADATA: &str = "metadata";

/// Whether an argument is the path of a file rather than a key: `/…`, `./…` and `../…`.
pub(crate) fn is_path(argument: impl AsRef<OsStr>) -> bool {
    let argument = argument.as_ref().as_bytes();
    ["/", "./", "../"].iter().any(|start| argument.starts_with(start.as_bytes()))
        || matches!(argument, b"." | b"..")
}

/// Why a directory has no object.
const IS_DIRECTORY: &str = "it is a directory, and only files are on tiers: name a file in it";

/// Arguments as they are meant: where no store is named there are no keys, and what names a file of a
/// mounted store, or would be one of its directories, is a path, whatever it begins with.
pub(crate) fn meant(context: &Context, arguments: &[OsString]) -> Vec<OsString> {
    let is_meant = context.store().is_err();
    let as_meant = |argument: &OsString| {
        // One that is empty is no name of anything, and joined it would be the directory itself.
        if argument.is_empty() {
            return argument.clone();
        }
        let path = Path::new(".").join(argument);
        let is_in_one = || is_of_store(&path) || path.parent().is_some_and(is_of_store);
        match is_meant && !is_path(argument) && is_in_one() {
            true => path.into(),
            false => argument.clone(),
        }
    };
    arguments.iter().map(as_meant).collect()
}

/// Arguments that are no paths as what they have to be: keys, which are text.
///
/// # Errors
///
/// `Invalid` for what is not UTF-8.
pub(crate) fn keys(arguments: &[OsString]) -> Result<Vec<String>> {
    let key = |argument: &OsString| match argument.to_str() {
        Some(key) => Ok(key.to_owned()),
        None => Err(Error::invalid("find the objects", "a key is UTF-8")
            .with("key", argument.display())
            .into()),
    };
    arguments.iter().map(key).collect()
}

/// Whether an argument that is taken for a key names a file of a mounted store, or leads to one, too.
fn is_mounted(argument: &OsStr) -> bool {
    !is_path(argument) && is_of_store(Path::new(argument))
}

fn is_of_store(path: &Path) -> bool {
    store_of(path).is_some()
}

/// What arguments that may be paths stand for.
#[derive(Debug)]
pub(crate) struct Selected {
    /// The store that they are in.
    pub(crate) context: Context,
    /// Keys of objects.
    pub(crate) keys: Vec<String>,
    /// Whether everything below them is meant still: never for paths, which were walked.
    pub(crate) is_recursive: bool,
    /// Files that have no object, because they are kept with the metadata.
    pub(crate) small: Vec<PathBuf>,
}

/// The files and directories that are to be steered, where arguments are paths: with `is_recursive`
/// directories before what is in them. All are looked at before anything is changed: any file would
/// take the attributes.
///
/// # Errors
///
/// `Invalid` for keys beside paths, and what is not in a mounted store; `NotFound`, `Denied`, `Io`.
pub(crate) fn steered(arguments: &[OsString], is_recursive: bool) -> Result<Option<Vec<PathBuf>>> {
    let Some(named) = paths(arguments, Below::Nothing)? else { return Ok(None) };
    // Also of directories themselves: a directory of another user may be empty.
    named.iter().try_for_each(|path| attribute(path, STORE).map(drop))?;
    if !is_recursive {
        return Ok(Some(named));
    }
    let mut found = Vec::new();
    for path in paths(arguments, Below::Everything)?.unwrap_or_default() {
        if unless_gone(attribute(&path, STORE), true)?.is_some() {
            found.push(path);
        }
    }
    Ok(Some(found))
}

/// The warning about a path; none where a walk found it and it was removed since.
pub(crate) fn unless_gone<T>(said: Result<T>, was_found: bool) -> Result<Option<T>> {
    match said {
        Err(failure) if was_found && failure.kind() == Some(ErrorKind::NotFound) => Ok(None),
        said => said.map(Some),
    }
}

/// What is meant of what is below a directory that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// Nothing: the directory itself.
    Nothing,
    /// The files in it and in those below it, and no directory.
    Files,
    /// These, and the directories, each before what is in it.
    Everything,
}

/// What arguments stand for, where they are paths.
///
/// # Errors
///
/// `Invalid` for keys beside paths; `NotFound`, `Denied`, `Io`.
pub(crate) fn paths(arguments: &[OsString], below: Below) -> Result<Option<Vec<PathBuf>>> {
    if !arguments.iter().any(is_path) {
        return Ok(None);
    }
    let mut found = Vec::new();
    for argument in arguments {
        if !is_path(argument) {
            return Err(Error::invalid("find the objects", "keys and paths do not go together")
                .with("key", argument.display())
                .into());
        }
        // What is named is followed; links below it are passed over.
        let path = Path::new(argument);
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let followed = if is_link { followed(path)? } else { path.into() };
        found.extend(walk(&followed, below)?);
    }
    Ok(Some(found))
}

/// Turns paths into the store and the keys of their objects; leaves keys as they are.
///
/// # Errors
///
/// `Invalid` for keys beside paths or that are no text, files of several stores, and what is no file of
/// a mounted store.
pub(crate) fn select(
    context: &Context,
    arguments: &[OsString],
    is_recursive: bool,
) -> Result<Selected> {
    let mut selected =
        Selected { context: context.clone(), keys: Vec::new(), is_recursive, small: Vec::new() };
    let below = if is_recursive { Below::Files } else { Below::Nothing };
    let Some(paths) = paths(arguments, below)? else {
        selected.keys = keys(arguments)?;
        return Ok(selected);
    };
    selected.is_recursive = false;
    let mut store: Option<String> = None;
    let mut note_store = |theirs: String, path: &Path| match &store {
        Some(store) if *store != theirs => {
            Err(Error::invalid("find the objects", "they are in several stores")
                .with("path", path.display()))
        }
        _ => {
            store = Some(theirs);
            Ok(())
        }
    };
    if is_recursive {
        // Below a directory there may be no file to tell.
        for path in self::paths(arguments, Below::Nothing)?.unwrap_or_default() {
            note_store(attribute(&path, STORE)?, &path)?;
        }
    }
    for path in paths {
        let Some(theirs) = unless_gone(attribute(&path, STORE), is_recursive)? else { continue };
        note_store(theirs, &path)?;
        match unless_gone(key(&path), is_recursive)? {
            None => {}
            Some(None) => selected.small.push(path),
            Some(Some(key)) => selected.keys.push(key),
        }
    }
    if let Some(store) = store {
        selected.context = context.at(&store);
    }
    Ok(selected)
}

/// The key of a file's object; `None` where it has none still.
pub(crate) fn key(path: &Path) -> Result<Option<String>> {
    let failed = |error| Error::from_io(OPERATION, error).with("path", path.display());
    if look(path).map_err(failed)?.is_dir() {
        return Err(Error::invalid(OPERATION, IS_DIRECTORY).with("path", path.display()).into());
    }
    match attribute(path, TIER)? == WITH_METADATA {
        true => Ok(None),
        false => attribute(path, KEY).map(Some),
    }
}

/// The store and the key of the object that an argument names: a key, or a file of a mounted store.
///
/// # Errors
///
/// `NotFound` for a file that is on no tier; as [`select`].
pub(crate) fn object(context: &Context, argument: &OsString) -> Result<(Context, Key)> {
    let meant = meant(context, std::slice::from_ref(argument)).remove(0);
    let named = file(&meant)?;
    let selected = select(context, std::slice::from_ref(&named), false)?;
    match selected.keys.first() {
        Some(key) => Ok((selected.context, address::key(key)?)),
        None => Err(Error::new(ErrorKind::NotFound, OPERATION)
            .because("it is on no tier: its bytes are kept with the metadata")
            .with("path", argument.display())
            .into()),
    }
}

/// Says of a key without an object that a file of a mounted store has this name, where one does.
pub(crate) fn note_mounted(context: &Context, argument: &OsStr, failure: &Failure) {
    if failure.kind() == Some(ErrorKind::NotFound) && is_mounted(argument) {
        context.note(&format!("the file of a mounted store is ./{}", argument.display()));
    }
}

/// Refuses a path of a mounted store where a command takes the key of an object; `instead` says what takes
/// the path.
///
/// # Errors
///
/// `Invalid`.
pub(crate) fn refuse(context: &Context, argument: impl AsRef<OsStr>, instead: &str) -> Result<()> {
    let argument = argument.as_ref().to_os_string();
    let meant = meant(context, std::slice::from_ref(&argument)).remove(0);
    let path = Path::new(&meant);
    if !is_path(path) || !(is_of_store(path) || path.parent().is_some_and(is_of_store)) {
        return Ok(());
    }
    let reason = format!(
        "it is a path in a mounted store, and the key of an object is expected: {instead}; \
         `terrace explain`, `stat`, `migrate`, `pin` and `unpin` take paths"
    );
    Err(Error::invalid("find the object", reason).with("path", argument.display()).into())
}

/// The same where a command takes a namespace.
///
/// # Errors
///
/// `Invalid`.
pub(crate) fn refuse_namespace(context: &Context, argument: &str) -> Result<()> {
    refuse(context, argument, "`terrace explain` shows the key of a file, and so the namespace")
}

/// Sets an attribute through which a mounted file is steered.
pub(crate) fn steer(path: &Path, attribute: &str, value: &str) -> Result<()> {
    let name = format!("user.terrace.{attribute}");
    let set = Reached::new(path).and_then(|reached| {
        Ok(lsetxattr(reached.as_ref(), name, value.as_bytes(), XattrFlags::empty())?)
    });
    set.map_err(|error| Error::from_io("steer a file", error).with("path", path.display()).into())
}

/// Where an argument is a path, the one of the file that it leads to; a key as it is.
///
/// # Errors
///
/// `NotFound`; `Invalid` for a directory, which has no object.
fn file(argument: &OsStr) -> Result<OsString> {
    if !is_path(argument) {
        return Ok(argument.into());
    }
    let path = followed(Path::new(argument))?;
    if path.is_dir() {
        let error = Error::invalid(OPERATION, IS_DIRECTORY).with("path", argument.display());
        return Err(error.into());
    }
    Ok(path.into())
}

/// What a path stands for: itself, or what is below it.
fn walk(path: &Path, below: Below) -> Result<Vec<PathBuf>> {
    if below == Below::Nothing {
        return Ok(vec![path.into()]);
    }
    let mut found = Vec::new();
    let mut ahead = VecDeque::from([path.to_path_buf()]);
    let mut is_named = true;
    while let Some(path) = ahead.pop_front() {
        let was_found = !std::mem::replace(&mut is_named, false);
        let failed = |error| Error::from_io("find files", error).with("path", path.display());
        let looked = look(&path).map_err(|error| failed(error).into());
        let Some(looked) = unless_gone(looked, was_found)? else { continue };
        if looked.is_dir() {
            let entries = Reached::new(&path).and_then(std::fs::read_dir);
            let entries = entries.map_err(|error| failed(error).into());
            for entry in unless_gone(entries, was_found)?.into_iter().flatten() {
                ahead.push_back(path.join(entry.map_err(failed)?.file_name()));
            }
            if below == Below::Everything {
                found.push(path);
            }
        } else if looked.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_no_paths() {
        for key in ["climate/t2m", "name", ".hidden", "..x/y", "a/../b"] {
            assert!(!is_path(key), "{key}");
        }
        for path in ["/mnt/a", "./a", "../a", ".", ".."] {
            assert!(is_path(path), "{path}");
        }
    }
}
