// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One place for requests that come over `io_uring` (Linux 6.14): its memory, and the ring by which it
//! is lent to the kernel and comes back with a request.
#![allow(unsafe_code, reason = "the kernel is told where our memory is (docs/adr/0026)")]

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode};
use rustix::io::Errno;

use crate::device::Device;
use crate::record::{self, HEADER_BYTES};

/// `FUSE_IO_URING_CMD_REGISTER` and `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// `FUSE_URING_IN_OUT_HEADER_SZ` and `FUSE_URING_OP_IN_OUT_SZ`.
const IN_OUT_BYTES: usize = 128;
const OPERATION_BYTES: usize = 128;
/// `FUSE_STATFS`.
const STATFS: u32 = 17;
/// `struct fuse_in_header`.
const REQUEST_HEADER_BYTES: usize = 40;
/// The most of a request that comes before its payload.
const HEAD_BYTES_MAX: usize = REQUEST_HEADER_BYTES + OPERATION_BYTES;
/// The largest page of the machines that this runs on; payloads begin at a multiple.
const PAGE_BYTES_MAX: usize = 64 * 1024;
/// How long to wait where the kernel has no memory for a call.
const SHORT_OF_MEMORY: Duration = Duration::from_millis(1);

/// `struct fuse_uring_req_header`.
#[repr(C)]
struct Headers {
    in_out: [u8; IN_OUT_BYTES],
    operation: [u8; OPERATION_BYTES],
    flags: u64,
    commit_id: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

/// What comes with the headers of a request or an answer. There is room before it, so that a
/// message can be put together in one piece.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    memory: Vec<u8>,
    start: usize,
}

impl Payload {
    fn new(bytes: usize) -> Self {
        let memory = vec![0; HEAD_BYTES_MAX + PAGE_BYTES_MAX + bytes];
        let page = memory.as_ptr().align_offset(PAGE_BYTES_MAX);
        let start = if page < HEAD_BYTES_MAX { page + PAGE_BYTES_MAX } else { page };
        Self { memory, start }
    }

    /// From the first byte of the payload on.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }

    /// `head` and the first `bytes` bytes as one message.
    pub(crate) fn message(&mut self, head: &[u8], bytes: usize) -> &[u8] {
        let start = self.start - head.len();
        self.memory[start..self.start].copy_from_slice(head);
        &self.memory[start..self.start + bytes]
    }
}

/// What of a request comes before its payload, and how long that is.
pub(crate) struct Head {
    memory: [u8; HEAD_BYTES_MAX],
    bytes: usize,
    pub(crate) payload_bytes: usize,
}

impl Head {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

/// Whose the memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Ours; the kernel does not know it yet.
    Fresh,
    /// The kernel's, until it has a request.
    Kernel,
    /// Ours, until the request is answered.
    Request,
}

/// One place for requests, and the ring of the thread that serves it.
pub(crate) struct Ring {
    ring: IoUring<Entry128, cqueue::Entry>,
    device: Arc<Device>,
    queue: u16,
    payload_bytes_max: usize,
    headers: Box<Headers>,
    payload: Payload,
    holder: Holder,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("queue", &self.queue)
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// A place for requests of the kernel's queue `queue`, with payloads of `payload_bytes_max`.
    /// It belongs to the thread that calls [`Ring::register`] first.
    ///
    /// # Errors
    ///
    /// `PermissionDenied`, `Unsupported` and others where the machine does not allow rings.
    pub(crate) fn new(
        device: &Arc<Device>,
        queue: u16,
        payload_bytes_max: usize,
    ) -> io::Result<Self> {
        let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
        // Requests are put in place by this thread itself, when it comes to wait for them.
        builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled();
        let ring = builder.build(1)?;
        let headers = Box::new(Headers {
            in_out: [0; IN_OUT_BYTES],
            operation: [0; OPERATION_BYTES],
            flags: 0,
            commit_id: 0,
            payload_bytes: 0,
            padding: 0,
            reserved: 0,
        });
        Ok(Self {
            ring,
            device: Arc::clone(device),
            queue,
            payload_bytes_max,
            headers,
            payload: Payload::new(payload_bytes_max),
            holder: Holder::Fresh,
        })
    }

    /// Lends the place to the kernel for the first time.
    ///
    /// # Errors
    ///
    /// Those of the kernel; nothing comes here then.
    pub(crate) fn register(&mut self) -> Result<(), Errno> {
        self.ring.submitter().register_enable_rings().map_err(errno)?;
        let command = self.command(REGISTER);
        let payload = &mut self.payload.bytes_mut()[..self.payload_bytes_max];
        let headers_bytes = size_of::<Headers>();
        let places = [
            libc::iovec { iov_base: (&raw mut *self.headers).cast(), iov_len: headers_bytes },
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() },
        ];
        let mut entry = command.addr(Some(places.as_ptr() as u64)).build();
        set_length(&mut entry, places.len() as u32);
        self.push(&entry)?;
        // While there is `places`.
        if let Err(error) = self.ring.submit() {
            // It was not handed over.
            self.holder = Holder::Fresh;
            return Err(errno(error));
        }
        // What the kernel refuses it refuses at once; a request is put in place by `wait` alone.
        match self.ring.completion().next() {
            None => Ok(()),
            Some(refused) => {
                self.holder = Holder::Fresh;
                Err(Errno::from_raw_os_error(-refused.result()))
            }
        }
    }

    /// Gives the place back to the kernel with the next [`Ring::wait`], with the answer to the
    /// request that is here.
    pub(crate) fn answer(&mut self) -> Result<(), Errno> {
        let entry = self.command(COMMIT_AND_FETCH).build();
        self.push(&entry)
    }

    fn command(&self, operation: u32) -> opcode::UringCmd80 {
        // `struct fuse_uring_cmd_req`: flags, the request that is answered, the queue.
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&self.headers.commit_id.to_ne_bytes());
        command[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        opcode::UringCmd80::new(Fd(self.device.as_fd().as_raw_fd()), operation).cmd(command)
    }

    fn push(&mut self, entry: &Entry128) -> Result<(), Errno> {
        // SAFETY: an entry that points to memory is handed over before that ends, by `register`. It
        // names two places in memory that does not move: `Drop` gives none of it back while the kernel
        // has it, and only `Ring` knows it, which then leaves it alone.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::BUSY)?;
        self.holder = Holder::Kernel;
        Ok(())
    }

    /// Waits for a request.
    ///
    /// # Errors
    ///
    /// Those of the kernel; nothing comes here any more then.
    pub(crate) fn wait(&mut self) -> Result<(), Errno> {
        let result = loop {
            if let Some(completion) = self.ring.completion().next() {
                break completion.result();
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) => match errno(error) {
                    Errno::INTR => {}
                    // The kernel is short of memory.
                    Errno::AGAIN | Errno::BUSY | Errno::NOMEM => {
                        thread::park_timeout(SHORT_OF_MEMORY)
                    }
                    errno => return Err(errno),
                },
            }
        };
        // Either way the kernel is done with the memory.
        self.holder = Holder::Request;
        match result {
            0.. => Ok(()),
            _ => Err(Errno::from_raw_os_error(-result)),
        }
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The processor whose requests come here.
    pub(crate) fn queue(&self) -> u16 {
        self.queue
    }

    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// The process that asks how full the file system is; `None` for other requests.
    pub(crate) fn asks_for_status(&self) -> Option<u32> {
        let number = |at: usize| {
            let bytes = self.headers.in_out[at..at + 4].try_into().expect("four bytes");
            u32::from_ne_bytes(bytes)
        };
        (number(4) == STATFS).then(|| number(32))
    }

    /// The headers of the request that is here.
    pub(crate) fn head(&self) -> Head {
        let headers = &*self.headers;
        let mut memory = [0; HEAD_BYTES_MAX];
        memory[..REQUEST_HEADER_BYTES].copy_from_slice(&headers.in_out[..REQUEST_HEADER_BYTES]);
        memory[REQUEST_HEADER_BYTES..].copy_from_slice(&headers.operation);
        let length = u32::from_ne_bytes(headers.in_out[..4].try_into().expect("four bytes"));
        let payload_bytes = (headers.payload_bytes as usize).min(self.payload_bytes_max);
        // The decoder refuses what does not fit.
        let bytes = (length as usize).saturating_sub(payload_bytes);
        Head { memory, bytes: bytes.clamp(REQUEST_HEADER_BYTES, HEAD_BYTES_MAX), payload_bytes }
    }

    /// Takes the payload of the request that is here, to be given back before it is answered.
    pub(crate) fn take_payload(&mut self) -> Payload {
        mem::take(&mut self.payload)
    }

    /// Makes an error the answer to the request that is here.
    pub(crate) fn refuse(&mut self, errno: Errno) {
        let unique = self.headers.in_out[8..16].try_into().expect("eight bytes");
        let (length, error) = (HEADER_BYTES as u32, -errno.raw_os_error());
        let header = record::header(length, error, u64::from_ne_bytes(unique));
        self.headers.in_out[..HEADER_BYTES].copy_from_slice(header.bytes());
        self.headers.payload_bytes = 0;
    }

    /// Gives it back, with an answer: its header, and the first `payload_bytes` of the payload.
    pub(crate) fn set_answer(
        &mut self,
        payload: Payload,
        header: &[u8; HEADER_BYTES],
        payload_bytes: u32,
    ) {
        self.payload = payload;
        self.headers.in_out[..header.len()].copy_from_slice(header);
        self.headers.payload_bytes = payload_bytes;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.holder == Holder::Kernel {
            // Only where the ring itself failed. The kernel may write to it as long as we live.
            let fresh = Box::new(Headers { ..*self.headers });
            mem::forget(mem::replace(&mut self.headers, fresh));
            mem::forget(mem::take(&mut self.payload));
        }
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Sets `len` of an entry, which the crate leaves at 0 for commands.
fn set_length(entry: &mut Entry128, length: u32) {
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: an entry is a `struct io_uring_sqe`, 128 bytes here, of which bytes 24 to 27 are `len`.
    unsafe { (&raw mut *entry).cast::<u32>().add(6).write(length) };
}
