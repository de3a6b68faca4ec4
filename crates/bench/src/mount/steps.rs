// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done in a directory, over and over: as a program does it, through the kernel.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Advice, OFlags, fadvise};
use terrace_core::{Error, ErrorKind, Result};

/// Length of the file that is read and written in pieces.
pub(super) const LARGE_BYTES: u64 = 256 << 20;

/// Small files that are there to be read and looked at.
pub(crate) const SMALL_FILES: u64 = 2000;

/// Their length.
const SMALL_BYTES: usize = 1024;

/// A tree: so many directories with so many small files each.
const TREE_DIRECTORIES: u64 = 20;
const TREE_FILES: u64 = 20;

pub(crate) fn failed(error: io::Error) -> Error {
    Error::from_io("use a file", error)
}

/// A large file in a directory, with bytes everywhere, closed so that its mode can be chosen anew.
pub(super) fn large(directory: &Path) -> Result<PathBuf> {
    const STEP_BYTES: usize = 1 << 20;
    let path = directory.join("large");
    let file = File::create(&path).map_err(failed)?;
    let step = vec![7; STEP_BYTES];
    for number in 0..LARGE_BYTES / STEP_BYTES as u64 {
        file.write_all_at(&step, number * STEP_BYTES as u64).map_err(failed)?;
    }
    Ok(path)
}

/// Where the directory of a tier has the large file.
pub(super) fn find_large(tier: &Path) -> Result<PathBuf> {
    let mut directories = vec![tier.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let metadata = fs::symlink_metadata(&path).map_err(failed)?;
            match metadata.is_dir() {
                true => directories.push(path),
                false if metadata.len() == LARGE_BYTES => return Ok(path),
                false => {}
            }
        }
    }
    Err(failed(io::ErrorKind::NotFound.into()).with("tier", tier.display()))
}

/// Opens a large file for reading and writing; past the cache of the kernel where `is_direct`.
pub(super) fn open_large(path: &Path, is_direct: bool) -> Result<File> {
    let flags = if is_direct { OFlags::DIRECT } else { OFlags::empty() };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits() as i32);
    let file = options.open(path).map_err(failed)?;
    if is_direct {
        // The write has left its pages in that cache. A direct read has to look for them there first, and
        // through another mount of the same bytes there are none to be found.
        file.sync_data().map_err(failed)?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| failed(errno.into()))?;
    }
    Ok(file)
}

/// Where the piece with this number is: one after the other, or all over the file.
pub(super) fn place(number: u64, bytes: usize, is_random: bool) -> u64 {
    let pieces = LARGE_BYTES / bytes as u64;
    // Odd, so that it meets every piece of a file whose pieces are a power of two.
    const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
    let piece = if is_random { number.wrapping_mul(STRIDE) >> 20 } else { number };
    piece % pieces * bytes as u64
}

/// Files with a little in them: `f0`, `f1`, …
pub(crate) fn small(directory: &Path, count: u64) -> Result<()> {
    fs::create_dir_all(directory).map_err(failed)?;
    for number in 0..count {
        fs::write(directory.join(format!("f{number}")), [7; SMALL_BYTES]).map_err(failed)?;
    }
    Ok(())
}

/// The same in directories of their own.
pub(crate) fn tree(directory: &Path) -> Result<()> {
    for number in 0..TREE_DIRECTORIES {
        small(&directory.join(format!("d{number}")), TREE_FILES)?;
    }
    Ok(())
}

/// Removes files `f0` to `f…` as far as they are there.
pub(crate) fn clear(directory: &Path, count: u64) -> Result<()> {
    for number in 0..count {
        match fs::remove_file(directory.join(format!("f{number}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Has the kernel forget names and attributes, of every file system of this machine.
pub(super) fn forget() -> Result<()> {
    /// Directory entries and inodes (proc_sys_vm(5)); other processes of the machine keep their pages.
    const NAMES: &str = "2";
    fs::write("/proc/sys/vm/drop_caches", NAMES).map_err(failed)
}

/// Makes an empty file.
pub(super) fn create(directory: &Path, number: u64) -> Result<()> {
    let path = directory.join(format!("f{number}"));
    OpenOptions::new().write(true).create_new(true).open(path).map(drop).map_err(failed)
}

/// Makes a file with a little in it.
pub(crate) fn create_small(directory: &Path, number: u64) -> Result<()> {
    fs::write(directory.join(format!("f{number}")), [7; SMALL_BYTES]).map_err(failed)
}

/// Looks for a name that there never was.
pub(super) fn miss(directory: &Path, number: u64) -> Result<()> {
    match fs::symlink_metadata(directory.join(format!("n{number}"))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(_) => Err(Error::invalid("look for a missing name", "it is there")),
    }
}

/// Opens, reads and closes a small file.
pub(crate) fn read(directory: &Path, number: u64) -> Result<()> {
    let mut bytes = [0; SMALL_BYTES + 1];
    let path = directory.join(format!("f{}", number % SMALL_FILES));
    let mut file = File::open(path).map_err(failed)?;
    match file.read(&mut bytes).map_err(failed)? {
        SMALL_BYTES => Ok(()),
        _ => Err(Error::invalid("read a small file", "it has another length")),
    }
}

/// Looks at a small file as `stat(2)` does. The standard library asks when it was made, too: for that the
/// kernel asks again, where a file system can tell.
pub(crate) fn stat(directory: &Path, number: u64) -> Result<()> {
    let path = directory.join(format!("f{}", number % SMALL_FILES));
    rustix::fs::lstat(path).map(drop).map_err(|errno| failed(errno.into()))
}

/// Removes a file.
pub(crate) fn remove(directory: &Path, number: u64) -> Result<()> {
    fs::remove_file(directory.join(format!("f{number}"))).map_err(failed)
}

/// Has `ls -lR` list a tree that [`tree`] made. Returns how many entries there are.
pub(crate) fn list(directory: &Path) -> Result<u64> {
    let mut command = Command::new("ls");
    command.arg("-lR").arg(directory).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().map_err(failed)?;
    match status.success() {
        true => Ok(TREE_DIRECTORIES * (1 + TREE_FILES)),
        false => Err(Error::new(ErrorKind::Io, "list a tree").with("status", status)),
    }
}
