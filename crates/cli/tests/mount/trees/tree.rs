// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that is in a tree, to be compared with another.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::side::{Xattr, describe, read, xattrs};

/// A time before is one that was set: nobody was there then.
const SET_BEFORE_SECONDS: i64 = 1 << 30;

/// A thing in a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    what: String,
    /// When it was changed, where that was set.
    modified: Option<(i64, i64)>,
    /// The first name of the same file.
    first_name: String,
    /// Bytes of a file, or where a link leads.
    content: Vec<u8>,
    xattrs: Vec<Xattr>,
}

/// Everything below a directory, and the directory itself as the empty path.
pub(super) type Tree = BTreeMap<String, Found>;

/// Reads a tree.
pub(super) fn read_tree(root: &Path) -> Result<Tree, Errno> {
    let mut tree = Tree::new();
    let mut first_names = HashMap::new();
    let mut directories = vec![String::new()];
    add(root, "", &mut tree, &mut first_names)?;
    while let Some(directory) = directories.pop() {
        for (path, is_directory) in entries(root, &directory)? {
            add(root, &path, &mut tree, &mut first_names)?;
            if is_directory {
                directories.push(path);
            }
        }
    }
    Ok(tree)
}

/// All paths in a tree, sorted, and whether they are directories.
pub(super) fn paths(root: &Path) -> Result<Vec<(String, bool)>, Errno> {
    let mut found = entries(root, "")?;
    let mut next = 0;
    while next < found.len() {
        if let (directory, true) = found[next].clone() {
            found.extend(entries(root, &directory)?);
        }
        next += 1;
    }
    Ok(found)
}

/// The first paths at which two trees differ.
pub(super) fn differences(native: &Tree, mounted: &Tree) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = native.keys().chain(mounted.keys()).collect();
    names
        .into_iter()
        .filter(|name| native.get(*name) != mounted.get(*name))
        .map(|name| difference(name, native.get(name), mounted.get(name)))
        .collect()
}

fn difference(name: &str, native: Option<&Found>, mounted: Option<&Found>) -> String {
    if let (Some(native), Some(mounted)) = (native, mounted)
        && native.content != mounted.content
    {
        return format!("{name:?}: {}", content_difference(&native.content, &mounted.content));
    }
    let show = |found: Option<&Found>| {
        found.map(|Found { what, modified, first_name, xattrs, .. }| {
            format!("{what} modified {modified:?} first name {first_name:?} {xattrs:?}")
        })
    };
    format!("{name:?}: natively {:?}, mounted {:?}", show(native), show(mounted))
}

/// Where two contents differ.
pub(super) fn content_difference(native: &[u8], mounted: &[u8]) -> String {
    let first = native.iter().zip(mounted).position(|(one, other)| one != other);
    let last = native.iter().zip(mounted).rposition(|(one, other)| one != other);
    let zeros = |bytes: &[u8]| match first.zip(last) {
        Some((first, last)) => bytes[first..=last].iter().all(|byte| *byte == 0),
        None => false,
    };
    format!(
        "{} bytes natively, {} mounted; they differ from {first:?} to {last:?}, zeros there: \
         natively {}, mounted {}",
        native.len(),
        mounted.len(),
        zeros(native),
        zeros(mounted)
    )
}

fn add(
    root: &Path,
    path: &str,
    tree: &mut Tree,
    first_names: &mut HashMap<u64, String>,
) -> Result<(), Errno> {
    let at = root.join(path);
    let stat = rustix::fs::lstat(&at)?;
    let first_name = first_names.entry(stat.st_ino).or_insert_with(|| path.to_string());
    let content = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let file = rustix::fs::open(&at, OFlags::RDONLY | OFlags::NOATIME, Mode::empty())?;
            content(&file, &stat)?
        }
        FileType::Symlink => rustix::fs::readlinkat(CWD, &at, Vec::new())?.into_bytes(),
        _ => Vec::new(),
    };
    let found = Found {
        what: describe(&stat),
        modified: Some((stat.st_mtime, stat.st_mtime_nsec as i64))
            .filter(|(seconds, _)| *seconds < SET_BEFORE_SECONDS),
        first_name: first_name.clone(),
        content,
        xattrs: xattrs(&at)?,
    };
    tree.insert(path.to_string(), found);
    Ok(())
}

/// All bytes of an open file, and what lies behind them if that is something.
pub(super) fn content(file: &OwnedFd, stat: &Stat) -> Result<Vec<u8>, Errno> {
    read(file, 0, stat.st_size as u64 + 1)
}

fn entries(root: &Path, directory: &str) -> Result<Vec<(String, bool)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME;
    let opened = rustix::fs::open(root.join(directory), flags, Mode::empty())?;
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(opened)? {
        let entry = entry?;
        let name = entry.file_name().to_str().expect("names here are text");
        if name != "." && name != ".." {
            let path =
                if directory.is_empty() { name.into() } else { format!("{directory}/{name}") };
            found.push((path, entry.file_type().is_dir()));
        }
    }
    found.sort();
    Ok(found)
}
