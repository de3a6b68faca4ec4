// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Local files and the standard streams.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use terrace_console::failure::{Result, from_local, from_output};
use terrace_console::interrupt::Interrupt;
use terrace_core::Error;

use super::{Source, Target};

/// A local file or standard input.
pub struct LocalSource {
    file: File,
    name: String,
    interrupt: Interrupt,
    size_bytes: Option<u64>,
}

impl LocalSource {
    /// Opens a file; a directory is refused.
    pub fn open(path: &Path, interrupt: &Interrupt) -> Result<Self> {
        let name = path.display().to_string();
        let fail = |error| Error::from_io("open the file", error).with("file", &name);
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if metadata.is_dir() {
            let reason = "it is a directory; `terrace cp -r` copies directories";
            return Err(Error::invalid("open the file", reason).with("file", &name).into());
        }
        let size_bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self { file, name, interrupt: interrupt.clone(), size_bytes })
    }

    /// Takes standard input.
    pub fn stdin(interrupt: &Interrupt) -> Result<Self> {
        let fail = |error| Error::from_io("read standard input", error);
        let file = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(fail)?);
        // `put KEY < FILE`: the shell has opened a file whose size is known.
        let metadata = file.metadata().map_err(fail)?;
        let size_bytes = metadata.is_file().then_some(metadata.len());
        let name = "standard input".into();
        Ok(Self { file, name, interrupt: interrupt.clone(), size_bytes })
    }
}

impl Source for LocalSource {
    fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            self.interrupt.wait_readable(&self.file)?;
            if self.interrupt.is_set() {
                break;
            }
            match self.file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::from_io("read", error).with("file", &self.name).into());
                }
            }
        }
        Ok(filled)
    }
}

/// A local file that appears, or is replaced, when it is complete.
pub struct LocalTarget {
    file: File,
    path: PathBuf,
    /// The name it has until it is complete; `None` for devices and pipes, which are written
    /// directly.
    partial: Option<PathBuf>,
}

impl LocalTarget {
    /// Prepares to write a file. Parent directories must exist.
    pub fn create(path: &Path) -> Result<Self> {
        Self::try_create(path).map_err(|error| {
            from_local("write the file", error).with("file", path.display()).into()
        })
    }

    fn try_create(path: &Path) -> io::Result<Self> {
        let existing = match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            let file = File::options().write(true).open(path)?;
            return Ok(Self { file, path: path.into(), partial: None });
        }
        // Through a symbolic link the file it points to is replaced, not the link.
        let path = if existing.is_some() { fs::canonicalize(path)? } else { path.to_path_buf() };
        let (file, partial) = create_partial(&path)?;
        let target = Self { file, path, partial: Some(partial) };
        if let Some(metadata) = existing {
            target.file.set_permissions(metadata.permissions())?;
        }
        Ok(target)
    }

    fn fail(&self, error: io::Error) -> Error {
        from_local("write the file", error).with("file", self.path.display())
    }
}

/// Makes a file beside `path` that no other process uses.
fn create_partial(path: &Path) -> io::Result<(File, PathBuf)> {
    // What earlier processes with our number may have left when they were killed.
    const LEFTOVERS_MAX: u32 = 100;
    let mut attempt = 0;
    loop {
        // Short, because names have a bound.
        let name = format!(".terrace-partial-{}-{attempt}", std::process::id());
        let partial = path.with_file_name(name);
        match File::create_new(&partial) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < LEFTOVERS_MAX => {
                attempt += 1;
            }
            other => return other.map(|file| (file, partial)),
        }
    }
}

/// Makes the names beside a file durable, where that can be done.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let synced = File::open(directory.unwrap_or(Path::new("."))).and_then(|it| it.sync_all());
    match synced {
        // It may be written to and not be read, or its file system has nothing to sync there.
        Err(error)
            if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) =>
        {
            Ok(())
        }
        done => done,
    }
}

impl Target for LocalTarget {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        let result = self.file.write_all(data);
        result.map_err(|error| self.fail(error).into())
    }

    fn finish(&mut self) -> Result<()> {
        let Some(partial) = &self.partial else { return Ok(()) };
        let replaces = fs::symlink_metadata(&self.path).is_ok();
        // Else a loss of power could leave neither what it replaces nor what it has.
        if replaces {
            self.file.sync_all().map_err(|error| self.fail(error))?;
        }
        fs::rename(partial, &self.path).map_err(|error| self.fail(error))?;
        self.partial = None;
        if replaces {
            sync_directory(&self.path).map_err(|error| self.fail(error))?;
        }
        Ok(())
    }

    fn abandon(&mut self) -> Result<()> {
        if let Some(partial) = self.partial.take() {
            fs::remove_file(partial).map_err(|error| self.fail(error))?;
        }
        Ok(())
    }
}

impl Drop for LocalTarget {
    fn drop(&mut self) {
        // Nothing more can be done about a file that cannot be removed.
        let _ = self.abandon();
    }
}

/// Standard output, unbuffered: pieces are large.
pub struct Stdout;

impl Target for Stdout {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        io::stdout().write_all(data).map_err(from_output)
    }

    fn finish(&mut self) -> Result<()> {
        io::stdout().flush().map_err(from_output)
    }

    fn abandon(&mut self) -> Result<()> {
        // What a reader has, it has.
        self.finish()
    }
}
