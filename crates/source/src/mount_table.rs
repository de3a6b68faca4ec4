// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mounted below a directory, from the kernel's table: no file system is asked.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lock;
use crate::source::MountedBelow;

const TABLE: &str = "/proc/self/mountinfo";

/// What is mounted below a directory.
#[derive(Debug)]
pub(crate) struct MountTable {
    directory: PathBuf,
    /// `None` where the kernel shows no table: all is taken for one file system.
    read: Option<Mutex<Table>>,
}

#[derive(Debug)]
struct Table {
    file: File,
    /// Numbers of mounts by their paths below the directory.
    below: HashMap<PathBuf, u64>,
}

impl MountTable {
    pub(crate) fn new(directory: &Path) -> Self {
        let table = File::open(TABLE).and_then(|file| {
            let mut table = Table { file, below: HashMap::new() };
            table.read(directory)?;
            Ok(Mutex::new(table))
        });
        let read = table.inspect_err(|error| {
            tracing::warn!(%error, "the table of mounts cannot be read: all of the source is taken for one file system");
        });
        Self { directory: directory.into(), read: read.ok() }
    }

    /// The file system that a path is on, where it is mounted below the directory.
    pub(crate) fn mounted_below(&self, path: &Path) -> Option<MountedBelow> {
        let mut table = lock(self.read.as_ref()?);
        if table.has_changed()
            && let Err(error) = table.read(&self.directory)
        {
            tracing::debug!(%error, "the table of mounts cannot be read");
        }
        path.ancestors().find_map(|above| {
            let number = *table.below.get(above)?;
            Some(MountedBelow { number, path: above.into() })
        })
    }
}

impl Table {
    /// Whether something was mounted or unmounted since this was last asked.
    fn has_changed(&self) -> bool {
        let mut polled = [PollFd::new(&self.file, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The kernel reports a change as an error of the file.
        poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0)
    }

    fn read(&mut self, directory: &Path) -> io::Result<()> {
        let mut text = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut text)?;
        self.below.clear();
        for line in text.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b' ');
            let number =
                fields.next().and_then(|field| std::str::from_utf8(field).ok()?.parse().ok());
            let path = fields.nth(3).map(unescaped);
            let Some((number, path)) = number.zip(path) else { continue };
            match path.strip_prefix(directory) {
                // What is mounted on the directory itself is not seen through the open one.
                Ok(below) if !below.as_os_str().is_empty() => {
                    // The last mount on a directory is on top.
                    self.below.insert(below.into(), number);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A path of the table, where some bytes are written as `\` and three digits to base 8.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let byte =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_path_are_read_from_their_digits() {
        assert_eq!(unescaped(b"/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped(b"/a\\9"), Path::new("/a\\9"));
    }

    #[test]
    fn the_last_mount_above_a_path_is_found() {
        let table = MountTable::new(Path::new("/"));
        let found = |path: &str| table.mounted_below(Path::new(path));
        let proc = found("proc/self/fd").expect("it is mounted");
        assert_eq!(proc.path, Path::new("proc"));
        assert_eq!(found("proc"), Some(proc.clone()));
        assert_ne!(found("sys").expect("it is mounted").number, proc.number);
        assert_eq!(found("process"), None);
        assert_eq!(MountTable::new(Path::new("/proc")).mounted_below(Path::new("self")), None);
    }
}
