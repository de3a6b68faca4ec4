// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner of a store: the process with the lock on the file `lock` in its directory.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use terrace_core::{Access, Clock, Error, ErrorKind, Result};

use crate::directory::Directory;

/// Most that is read of the file: the number of a process, what is behind it, and its purpose.
const HOLDER_BYTES_MAX: u64 = 1 << 10;

/// Longest purpose.
const PURPOSE_BYTES_MAX: usize = 512;

/// Behind the number of one that only reads.
const READING: &str = " reading";

/// Longest wait for an owner that starts, stops, or is a command that soon ends.
const BUSY_TIME_MAX: Duration = Duration::from_secs(5);

/// The same for one that serves: it will stay, unless it is about to end, as a mount is when `umount`
/// returns.
const ENDING_TIME_MAX: Duration = Duration::from_secs(2);

/// First and longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Ownership of a store; ends when it is dropped. Where the process ends without that, it ends with the last child that
/// was forked meanwhile and runs the same program: these share the lock.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// The process that took it. A forked child must not release the lock of its parent.
    process: u32,
    purpose: String,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // It fails only for what is no lock. To close the file is not enough while a child has it open.
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// The process that owns a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    process: u32,
    /// Whether it only reads.
    pub access: Access,
    /// What it does with the store; empty where it did not say.
    purpose: String,
}

impl Holder {
    /// The error with the process and its purpose.
    fn named_in(&self, error: Error) -> Error {
        let error = error.with("process", self.process);
        match self.purpose.as_str() {
            "" => error,
            purpose => error.with("purpose", format!("{purpose:?}")),
        }
    }
}

impl Lock {
    /// Takes the lock; `None` where another process has it, which finds `purpose` in the file. The file is never removed: a lock on a file
    /// that was removed and made anew would be another one.
    pub fn try_take(
        directory: &Directory,
        access: Access,
        purpose: Option<&str>,
    ) -> Result<Option<Self>> {
        let path = directory.lock();
        let failed = |error: std::io::Error| {
            Error::from_io("lock the store", error).with("file", path.display())
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| failed(errno.into()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(failed(errno.into())),
        }
        let how = if access == Access::Read { READING } else { "" };
        let purpose = one_line(&purpose.map_or_else(command_line, Into::into));
        let process = std::process::id();
        let lines = format!("{process}{how}\n{purpose}\n");
        let mut lock = Self { file: File::from(file), process, purpose };
        let file = &mut lock.file;
        file.set_len(0).and_then(|()| file.write_all(lines.as_bytes())).map_err(failed)?;
        Ok(Some(lock))
    }

    /// The process that took the lock last, as far as it is known.
    pub fn holder(directory: &Directory) -> Option<Holder> {
        let mut text = String::new();
        let file = File::open(directory.lock()).ok()?;
        file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
        let (process, purpose) = text.split_once('\n').unwrap_or((&text, ""));
        let (process, access) = match process.trim().strip_suffix(READING) {
            Some(process) => (process, Access::Read),
            None => (process.trim(), Access::Write),
        };
        let purpose = purpose.trim_end().to_owned();
        Some(Holder { process: process.parse().ok()?, access, purpose })
    }

    /// The error of a process that finds the store in use, with the process that owns it.
    pub fn busy(directory: &Directory, operation: &'static str, reason: &str) -> Error {
        let error = Error::new(ErrorKind::Busy, operation)
            .because(reason)
            .with("directory", directory.path().display());
        Self::name_holder(directory, error)
    }

    /// An error with the process that owns the store, as far as it is known.
    fn name_holder(directory: &Directory, error: Error) -> Error {
        match Self::holder(directory) {
            Some(holder) => holder.named_in(error),
            None => error,
        }
    }

    /// The error with this process and its purpose.
    pub fn name_own(&self, error: Error) -> Error {
        let (process, purpose) = (std::process::id(), self.purpose.clone());
        Holder { process, access: Access::Write, purpose }.named_in(error)
    }
}

/// What this process was started as.
fn command_line() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// A purpose as it is kept: one line of bounded length.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut ends = (0..=text.len().min(PURPOSE_BYTES_MAX)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end)).expect("zero is one");
    text[..end].trim().to_owned()
}

/// How long an opening waits that wants to own a store.
pub struct Patience {
    clock: Arc<dyn Clock>,
    begun_ns: u64,
    pause: Duration,
}

impl Patience {
    /// It begins now.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Arc::clone(clock), begun_ns: clock.now_ns(), pause: PAUSE_MIN }
    }

    /// Waits a little for the owner to end; false where that has taken too long by now.
    pub fn wait(&mut self, is_served: bool) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_testkit::ManualClock;

    #[test]
    fn a_holder_of_before_has_no_purpose() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = Directory::of(home.path()).expect("legal");
        for (text, access) in [("7\n", Access::Write), ("7 reading\n", Access::Read)] {
            std::fs::write(directory.lock(), text).expect("there is room");
            let holder = Lock::holder(&directory).expect("it has a number");
            assert_eq!(holder, Holder { process: 7, access, purpose: String::new() });
        }
    }

    #[test]
    fn a_lock_is_free_while_another_descriptor_shares_it() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = Directory::of(home.path()).expect("legal");
        let take = || Lock::try_take(&directory, Access::Write, None).expect("writable");
        let first = take().expect("free");
        // As a forked child has it.
        let shared = first.file.try_clone().expect("a descriptor");
        drop(first);
        let mut second = take().expect("free");
        drop(shared);
        assert!(take().is_none(), "the end of the child released it");
        // As the copy of a child is dropped, which shares the lock with the parent.
        let parent = second.file.try_clone().expect("a descriptor");
        second.process += 1;
        drop(second);
        assert!(take().is_none(), "a child released it");
        drop(parent);
    }

    #[test]
    fn a_lock_is_held_once_and_names_its_process_and_purpose() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = Directory::of(home.path()).expect("legal");
        for access in [Access::Write, Access::Read, Access::Write] {
            let take = |access, purpose| Lock::try_take(&directory, access, purpose);
            let first = take(access, Some("mount at /a\nb")).expect("writable").expect("free");
            assert!(take(Access::Read, None).expect("writable").is_none());
            let holder = Lock::holder(&directory).expect("it is held");
            let purpose = "mount at /a b".to_owned();
            assert_eq!(holder, Holder { process: std::process::id(), access, purpose });
            drop(first);
        }
        let _own = Lock::try_take(&directory, Access::Read, None).expect("writable").expect("free");
        let error = Lock::busy(&directory, "test", "another process owns it").to_string();
        let own = std::env::args().next().expect("the name of the test");
        assert!(error.contains(&format!("process={}", std::process::id())), "{error}");
        assert!(error.contains(&own), "{error}");
    }

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
