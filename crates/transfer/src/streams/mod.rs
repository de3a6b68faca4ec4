// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves bytes between objects, files and streams in pieces of bounded size.

mod local;
mod stored;

pub use local::{LocalSource, LocalTarget, Stdout};
pub use stored::{NewContent, StoredSource, StoredTarget};

use terrace_core::Buffer;

use terrace_console::failure::Result;
use terrace_console::interrupt::Interrupt;
use terrace_console::progress::Progress;

/// Bytes moved at a time. 1 MiB: large enough that the cost of a request no longer counts on
/// local media, small enough to react to Ctrl-C at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where bytes come from.
pub trait Source {
    /// The size of everything, where it is known beforehand.
    fn size_bytes(&self) -> Option<u64>;

    /// Fills `buffer`; fewer bytes only at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize>;
}

/// Where bytes go to. What was written counts only once it is finished.
pub trait Target {
    /// Takes the next bytes.
    fn write(&mut self, data: &[u8]) -> Result<()>;

    /// Keeps what was written.
    fn finish(&mut self) -> Result<()>;

    /// Takes back what was written, as far as that can be done.
    fn abandon(&mut self) -> Result<()>;
}

/// Copies: what may stop them and what shows their progress.
pub struct Transfer<'a> {
    interrupt: &'a Interrupt,
    title: &'static str,
    progress: Progress,
}

impl<'a> Transfer<'a> {
    /// For the verb `title`; `total_bytes` of all copies, where it is known.
    pub fn new(interrupt: &'a Interrupt, title: &'static str, total_bytes: Option<u64>) -> Self {
        Self { interrupt, title, progress: Progress::bytes(title, total_bytes) }
    }

    /// Shows what is being copied.
    pub fn say(&mut self, what: &str) {
        self.progress.say(format!("{} {what}", self.title));
    }

    /// Prints something else without the progress bar in between.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.progress.aside(print)
    }

    /// Copies everything from `source` to the target that `open` makes; returns the bytes.
    ///
    /// The first piece is read before the target is made, so that a source that cannot be read
    /// changes nothing. After a failure the target is abandoned.
    pub fn copy<T: Target>(
        &mut self,
        source: &mut dyn Source,
        open: impl FnOnce() -> Result<T>,
    ) -> Result<u64> {
        let mut buffer = Buffer::zeroed(PIECE_BYTES);
        let count = self.read(source, &mut buffer)?;
        let mut target = open()?;
        let copied = self.pump(source, &mut target, buffer, count);
        match copied {
            Ok(bytes) => target.finish().map(|()| bytes),
            Err(failure) => {
                // The first failure is the one that explains the other.
                let _ = target.abandon();
                Err(failure)
            }
        }
    }

    /// Writes the `count` bytes that were read already, then the rest.
    fn pump(
        &mut self,
        source: &mut dyn Source,
        target: &mut dyn Target,
        mut buffer: Buffer,
        mut count: usize,
    ) -> Result<u64> {
        let mut total_bytes = 0;
        while count > 0 {
            target.write(&buffer[..count])?;
            total_bytes += count as u64;
            self.progress.advance(count as u64);
            count = self.read(source, &mut buffer)?;
        }
        Ok(total_bytes)
    }

    fn read(&self, source: &mut dyn Source, buffer: &mut [u8]) -> Result<usize> {
        let count = source.read(buffer)?;
        self.interrupt.check(&format!("{} was not finished", self.title))?;
        Ok(count)
    }
}
