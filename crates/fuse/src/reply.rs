// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answer to one request.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::answer::{Attributes, Entry, FileSystemStatus, IoctlResult, Opened, StatxAnswer};
use crate::device::{Device, Interrupts};
use crate::directory::DirectoryBuffer;
use crate::record::{self, HEADER_BYTES, Record, header};
use crate::request::Lock;
use crate::slot::Slot;

/// Slices of an answer that need no memory of their own.
const SLICES_INLINE: usize = 16;
/// `UIO_MAXIOV` of the kernel: slices of one call, here with the header.
const SLICES_MAX: usize = 1024;
/// The kernel refuses larger error numbers without ending the request (fs/fuse/dev.c).
const ERRNO_MAX: i32 = 511;

/// Where the answer to a request goes.
#[derive(Clone, Debug)]
pub(crate) enum Asker {
    /// It was read from this descriptor.
    Device(Arc<Device>),
    /// It came over a ring.
    Slot(Arc<Slot>),
}

impl Asker {
    pub(crate) fn interrupts(&self) -> &Interrupts {
        match self {
            Self::Device(device) => &device.interrupts,
            Self::Slot(slot) => &slot.device.interrupts,
        }
    }

    fn answer(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        match self {
            Self::Device(device) => device.write(parts),
            Self::Slot(slot) => slot.give(parts),
        }
    }
}

/// Gets the answers to requests that it [observes](Reply::observed_by).
pub trait AnswerObserver: Send + Sync + std::fmt::Debug {
    /// The answer to a request is about to be sent: an error, or what was asked for. `tag` and
    /// `started_ns` are those that the reply was given.
    fn answered(&self, tag: usize, started_ns: u64, error: Option<Errno>);
}

/// The observer of a reply.
#[derive(Debug)]
struct Observed {
    observer: Arc<dyn AnswerObserver>,
    tag: usize,
    started_ns: u64,
}

/// Answers one request, once, from any thread; dropped unsent it answers `EIO`.
///
/// Sending does not fail: where the kernel takes an answer no more, the file system was unmounted
/// and no caller waits; where it refuses one that makes no sense, the request ends with `EIO`, over
/// `io_uring` with `EINVAL`.
#[derive(Debug)]
pub struct Reply {
    asker: Asker,
    unique: u64,
    is_due: bool,
    is_copied_64_bit: bool,
    observed: Option<Observed>,
}

impl Reply {
    pub(crate) fn new(asker: &Asker, unique: u64) -> Self {
        Self { asker: asker.clone(), unique, is_due: true, is_copied_64_bit: false, observed: None }
    }

    /// For requests that are not answered.
    pub(crate) fn none(asker: &Asker, unique: u64) -> Self {
        let mut reply = Self::new(asker, unique);
        reply.is_due = false;
        reply
    }

    pub(crate) fn with_copied_64_bit(mut self) -> Self {
        self.is_copied_64_bit = true;
        self
    }

    /// Shows the answer to an observer just before it is sent.
    #[must_use]
    pub fn observed_by(
        mut self,
        observer: &Arc<dyn AnswerObserver>,
        tag: usize,
        started_ns: u64,
    ) -> Self {
        self.observed = Some(Observed { observer: Arc::clone(observer), tag, started_ns });
        self
    }

    /// The request that this answers.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Whether the caller has stopped waiting for the answer: see [`FileSystem::interrupt`].
    ///
    /// [`FileSystem::interrupt`]: crate::FileSystem::interrupt
    pub fn is_interrupted(&self) -> bool {
        self.asker.interrupts().contains(self.unique)
    }

    /// Whether a thread waits until this is sent. One that is sent later costs more then than one that
    /// is waited for in the handler.
    pub fn holds_thread(&self) -> bool {
        matches!(self.asker, Asker::Slot(_))
    }

    /// It failed.
    pub fn error(mut self, errno: Errno) {
        self.send_error(errno);
    }

    /// It is done, and there is nothing to say.
    pub fn empty(self) {
        self.send(&[]);
    }

    /// A name, or a negative entry.
    pub fn entry(self, entry: &Entry) {
        self.send_record(&record::entry(entry));
    }

    /// Attributes, which the kernel may believe for `timeout`.
    pub fn attributes(self, attributes: &Attributes, timeout: Duration) {
        self.send_record(&record::attributes(attributes, timeout));
    }

    /// Attributes of `Statx`.
    pub fn statx(self, answer: &StatxAnswer) {
        self.send_record(&record::statx(answer));
    }

    /// An open file or directory.
    pub fn opened(self, opened: &Opened<'_>) {
        self.send_record(&record::opened(opened));
    }

    /// A file that was made and opened.
    pub fn created(self, entry: &Entry, opened: &Opened<'_>) {
        self.send(&[
            IoSlice::new(record::entry(entry).bytes()),
            IoSlice::new(record::opened(opened).bytes()),
        ]);
    }

    /// Bytes: what was read, a target, a value, names.
    pub fn data(self, bytes: &[u8]) {
        self.send(&[IoSlice::new(bytes)]);
    }

    /// Bytes that lie in several places.
    pub fn data_vectored(self, slices: &[IoSlice<'_>]) {
        self.send(slices);
    }

    /// How much was written.
    pub fn written(self, bytes: u32) {
        let mut record = Record::<8>::new();
        record.u32(bytes);
        self.send_record(&record);
    }

    /// How much was copied, at most what was asked for.
    pub fn copied(self, bytes: u64) {
        if self.is_copied_64_bit {
            let mut record = Record::<8>::new();
            record.u64(bytes);
            self.send_record(&record);
        } else {
            self.written(u32::try_from(bytes).expect("at most what was asked for, below 4 GiB"));
        }
    }

    /// The state of the file system.
    pub fn file_system_status(self, status: &FileSystemStatus) {
        self.send_record(&record::file_system_status(status));
    }

    /// How long a value or a list of names is.
    pub fn xattr_size(self, bytes: u32) {
        let mut record = Record::<8>::new();
        record.u32(bytes);
        self.send_record(&record);
    }

    /// Where data or a hole was found.
    pub fn offset(self, offset: u64) {
        let mut record = Record::<8>::new();
        record.u64(offset);
        self.send_record(&record);
    }

    /// A lock that is in the way, or one of kind `Unlock`.
    pub fn lock(self, lock: &Lock) {
        self.send_record(&record::lock(lock));
    }

    /// Entries of a directory.
    pub fn directory(self, entries: &DirectoryBuffer) {
        self.send(&[IoSlice::new(entries.bytes())]);
    }

    /// What an `ioctl` returned.
    pub fn ioctl(self, result: &IoctlResult<'_>) {
        let mut record = Record::<16>::new();
        record.i32(result.result);
        self.send(&[IoSlice::new(record.bytes()), IoSlice::new(result.output)]);
    }

    fn send_record<const N: usize>(self, record: &Record<N>) {
        self.send(&[IoSlice::new(record.bytes())]);
    }

    fn send(mut self, slices: &[IoSlice<'_>]) {
        // `NOENT`: there is no such request any more.
        if let Err(errno) = self.write(slices)
            && errno != Errno::NOENT
        {
            self.is_due = true;
            self.send_error(Errno::IO);
        }
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let length = u32::try_from(HEADER_BYTES + bytes).map_err(|_| Errno::INVAL)?;
        let header = header(length, 0, self.unique);
        let header = IoSlice::new(header.bytes());
        self.show(None);
        if slices.len() < SLICES_INLINE {
            let mut parts = [header; SLICES_INLINE];
            parts[1..=slices.len()].copy_from_slice(slices);
            self.write_message(&parts[..=slices.len()])
        } else if slices.len() < SLICES_MAX {
            self.write_message(&[&[header], slices].concat())
        } else {
            let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.write_message(&[header, IoSlice::new(&whole)])
        }
    }

    fn send_error(&mut self, errno: Errno) {
        self.show(Some(errno));
        let raw = errno.raw_os_error();
        let raw = if (1..=ERRNO_MAX).contains(&raw) { raw } else { Errno::IO.raw_os_error() };
        let length = HEADER_BYTES as u32;
        // There is no one left to report to where this fails.
        let _ = self.write_message(&[IoSlice::new(header(length, -raw, self.unique).bytes())]);
    }

    fn show(&mut self, error: Option<Errno>) {
        if let Some(Observed { observer, tag, started_ns }) = self.observed.take() {
            observer.answered(tag, started_ns, error);
        }
    }

    fn write_message(&mut self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        if !self.is_due {
            return Ok(());
        }
        self.is_due = false;
        self.asker.interrupts().remove(self.unique);
        self.asker.answer(parts)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.is_due {
            self.send_error(Errno::IO);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read};

    use super::*;

    /// Answers with `send`, and returns the header's length, error and unique, and what follows.
    fn sent(send: impl FnOnce(Reply)) -> (u32, i32, u64, Vec<u8>) {
        let (mut reader, writer): (PipeReader, _) = std::io::pipe().expect("pipe");
        let asker = Asker::Device(Arc::new(Device::new(writer.into())));
        send(Reply::new(&asker, 9));
        drop(asker);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("read");
        let number = |at: usize| bytes[at..at + 4].try_into().expect("four bytes");
        let unique = u64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let body = bytes[16..].to_vec();
        (u32::from_ne_bytes(number(0)), i32::from_ne_bytes(number(4)), unique, body)
    }

    #[test]
    fn an_answer_is_sent_once_also_when_it_is_forgotten() {
        assert_eq!(sent(Reply::empty), (16, 0, 9, vec![]));
        assert_eq!(sent(|reply| reply.error(Errno::NOENT)), (16, -2, 9, vec![]));
        assert_eq!(sent(drop), (16, -5, 9, vec![]));
        let too_large = Errno::from_raw_os_error(512);
        assert_eq!(sent(|reply| reply.error(too_large)), (16, -5, 9, vec![]));
    }

    #[derive(Debug, Default)]
    struct Seen(std::sync::Mutex<Vec<(usize, u64, Option<Errno>)>>);

    impl AnswerObserver for Seen {
        fn answered(&self, tag: usize, started_ns: u64, error: Option<Errno>) {
            self.0.lock().expect("no panic").push((tag, started_ns, error));
        }
    }

    #[test]
    fn an_observer_sees_each_answer_once() {
        let seen = Arc::new(Seen::default());
        let observer: Arc<dyn AnswerObserver> = seen.clone();
        sent(|reply| reply.observed_by(&observer, 3, 7).written(1));
        sent(|reply| reply.observed_by(&observer, 4, 8).error(Errno::NOENT));
        sent(|reply| drop(reply.observed_by(&observer, 5, 9)));
        let seen = seen.0.lock().expect("no panic");
        assert_eq!(*seen, [(3, 7, None), (4, 8, Some(Errno::NOENT)), (5, 9, Some(Errno::IO))]);
    }

    #[test]
    fn slices_of_any_number_become_one_answer() {
        for count in [0, 1, 15, 16, 17, 1022, 1023, 1024, 3000] {
            let bytes: Vec<u8> = (0..count).map(|number| number as u8).collect();
            let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
            let (length, error, unique, body) = sent(|reply| reply.data_vectored(&slices));
            assert_eq!((length as usize, error, unique), (16 + count, 0, 9), "{count} slices");
            assert_eq!(body, bytes);
        }
    }

    #[test]
    fn records_have_the_lengths_that_the_kernel_knows() {
        let body = |send: fn(Reply)| sent(send).3.len();
        assert_eq!(body(|reply| reply.entry(&Entry::default())), 128);
        assert_eq!(body(|reply| reply.attributes(&Attributes::default(), Duration::ZERO)), 104);
        assert_eq!(body(|reply| reply.statx(&StatxAnswer::default())), 288);
        assert_eq!(body(|reply| reply.opened(&Opened::default())), 16);
        assert_eq!(body(|reply| reply.created(&Entry::default(), &Opened::default())), 144);
        assert_eq!(body(|reply| reply.file_system_status(&FileSystemStatus::default())), 80);
        assert_eq!(body(|reply| reply.ioctl(&IoctlResult { result: 1, output: b"out" })), 19);
        assert_eq!(body(|reply| reply.written(1)), 8);
        assert_eq!(body(|reply| reply.copied(1)), 8);
        assert_eq!(body(|reply| reply.with_copied_64_bit().copied(1 << 40)), 8);
        assert_eq!(body(|reply| reply.xattr_size(1)), 8);
        assert_eq!(body(|reply| reply.offset(1)), 8);
    }
}
