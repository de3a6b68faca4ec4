// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations that run while the caller does something else.

use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use terrace::{Error, ErrorKind, Object, Result, Store};

use crate::arguments::{Out, bytes, bytes_mut, given, options, terrace_options, text, wrong};
use crate::fork::Process;
use crate::object::{object_of, terrace_object};
use crate::status::{Failure, call, caught, terrace_status};
use crate::store::{store_of, terrace_store};

/// The most threads of a queue.
const THREADS_MAX: u32 = 256;

/// An operation of a queue that has ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct terrace_completion {
    /// What the operation was submitted with.
    pub user: *mut c_void,
    /// What its call without a queue would have returned.
    pub status: terrace_status,
    /// Bytes read; where an append begins; 0 otherwise.
    pub result: u64,
}

/// Memory of the caller, which stays until the operation has ended.
struct Lent(*mut c_void, usize);

// SAFETY: the caller leaves the memory to the operation.
unsafe impl Send for Lent {}

impl Lent {
    fn of(data: *const c_void, size_bytes: usize) -> Self {
        Self(data.cast_mut(), size_bytes)
    }

    unsafe fn bytes<'a>(&self) -> Result<&'a [u8]> {
        // SAFETY: as `bytes`, until the operation has ended.
        unsafe { bytes(self.0, self.1, "data") }
    }

    unsafe fn bytes_mut<'a>(&self) -> Result<&'a mut [u8]> {
        // SAFETY: as `bytes_mut`, until the operation has ended.
        unsafe { bytes_mut(self.0, self.1, "buffer") }
    }
}

struct User(*mut c_void);

// SAFETY: it is returned, and never followed.
unsafe impl Send for User {}

type Work = Box<dyn FnOnce() -> Result<u64> + Send>;

struct Done {
    user: User,
    outcome: std::result::Result<u64, Failure>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(User, Work)>,
    done: VecDeque<Done>,
    /// Operations that were submitted and not yet returned by `terrace_queue_wait`.
    count: usize,
    is_closing: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Operations wait, or the queue is being freed.
    submitted: Condvar,
    /// Operations have ended.
    ended: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries operations out until the queue is freed and none waits.
    fn work(&self) {
        loop {
            let mut state = self.state();
            let (user, work) = loop {
                if let Some(next) = state.waiting.pop_front() {
                    break next;
                }
                if state.is_closing {
                    return;
                }
                state = self.submitted.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            let outcome = caught(work);
            self.state().done.push_back(Done { user, outcome });
            self.ended.notify_one();
        }
    }
}

/// Operations that run on threads of their own. Threads may share it.
pub struct terrace_queue {
    store: Store,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    depth: usize,
    process: Process,
}

/// Makes a queue with so many threads, 1 to 256, for at most `depth` operations whose completions were not yet taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_new(
    store: *const terrace_store,
    threads: u32,
    depth: usize,
    queue: *mut *mut terrace_queue,
) -> terrace_status {
    call(|| {
        let out = Out::required(queue, "queue")?;
        out.set(std::ptr::null_mut());
        if !(1..=THREADS_MAX).contains(&threads) || depth == 0 {
            return Err(wrong("a queue has 1 to 256 threads, and a depth above 0")
                .with("threads", threads)
                .with("depth", depth));
        }
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            submitted: Condvar::new(),
            ended: Condvar::new(),
        });
        let mut handle = terrace_queue {
            store: unsafe { store_of(store) }?.clone(),
            shared,
            threads: Vec::new(),
            depth,
            process: Process::current(),
        };
        for _ in 0..threads {
            let shared = handle.shared.clone();
            let thread = std::thread::Builder::new()
                .name("terrace-queue".into())
                .spawn(move || shared.work());
            match thread {
                Ok(thread) => handle.threads.push(thread),
                Err(error) => {
                    handle.finish();
                    return Err(Error::new(ErrorKind::Io, "make a queue").caused_by(error));
                }
            }
        }
        out.set(Box::into_raw(Box::new(handle)));
        Ok(())
    })
}

impl terrace_queue {
    /// Waits for the end of all operations and of the threads.
    fn finish(&mut self) {
        self.shared.state().is_closing = true;
        self.shared.submitted.notify_all();
        for thread in self.threads.drain(..) {
            // Its operations caught what they panicked with.
            let _ = thread.join();
        }
    }

    fn submit(&self, user: *mut c_void, work: Work) -> Result<()> {
        let mut state = self.shared.state();
        if state.count >= self.depth {
            return Err(Error::new(ErrorKind::Busy, "submit an operation")
                .because("the queue is full; take completions with terrace_queue_wait")
                .with("depth", self.depth));
        }
        state.count += 1;
        state.waiting.push_back((User(user), work));
        drop(state);
        self.shared.submitted.notify_one();
        Ok(())
    }
}

unsafe fn queue_of<'a>(pointer: *const terrace_queue) -> Result<&'a terrace_queue> {
    // SAFETY: as `given`.
    let handle = unsafe { given(pointer, "queue") }?;
    handle.process.check()?;
    Ok(handle)
}

unsafe fn submit_with(
    queue: *const terrace_queue,
    object: *const terrace_object,
    user: *mut c_void,
    work: impl FnOnce(Object) -> Result<u64> + Send + 'static,
) -> terrace_status {
    call(|| {
        // SAFETY: as those.
        let (queue, object) = unsafe { (queue_of(queue)?, object_of(object)?.clone()) };
        queue.submit(user, Box::new(move || work(object)))
    })
}

/// Submits a terrace_put. As everywhere here, `data` must stay until the completion; names and options are copied, and
/// TERRACE_BUSY says that the queue is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_put(
    queue: *const terrace_queue,
    name: *const c_char,
    data: *const c_void,
    size_bytes: usize,
    options: *const terrace_options,
    user: *mut c_void,
) -> terrace_status {
    call(|| {
        let (queue, name) = unsafe { (queue_of(queue)?, text(name, "name")?.to_owned()) };
        let options = unsafe { self::options(options) }?;
        let (store, data) = (queue.store.clone(), Lent::of(data, size_bytes));
        queue.submit(
            user,
            Box::new(move || {
                let data = data;
                store.put_with(&name, unsafe { data.bytes() }?, &options).map(|()| 0)
            }),
        )
    })
}

/// Submits a terrace_get_into; the completion has the bytes read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_get_into(
    queue: *const terrace_queue,
    name: *const c_char,
    offset_bytes: u64,
    buffer: *mut c_void,
    size_bytes: usize,
    user: *mut c_void,
) -> terrace_status {
    call(|| {
        let (queue, name) = unsafe { (queue_of(queue)?, text(name, "name")?.to_owned()) };
        let (store, buffer) = (queue.store.clone(), Lent::of(buffer, size_bytes));
        queue.submit(
            user,
            Box::new(move || {
                let buffer = buffer;
                let object = store.object(&name)?.read()?;
                Ok(object.read_at(offset_bytes, unsafe { buffer.bytes_mut() }?)? as u64)
            }),
        )
    })
}

/// Submits a terrace_delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_delete(
    queue: *const terrace_queue,
    name: *const c_char,
    user: *mut c_void,
) -> terrace_status {
    call(|| {
        let (queue, name) = unsafe { (queue_of(queue)?, text(name, "name")?.to_owned()) };
        let store = queue.store.clone();
        queue.submit(user, Box::new(move || store.delete(&name).map(|()| 0)))
    })
}

/// Submits a terrace_object_read; the completion has the bytes read. The object may be closed at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_read(
    queue: *const terrace_queue,
    object: *const terrace_object,
    offset_bytes: u64,
    buffer: *mut c_void,
    size_bytes: usize,
    user: *mut c_void,
) -> terrace_status {
    let buffer = Lent::of(buffer, size_bytes);
    unsafe {
        submit_with(queue, object, user, move |object| {
            let buffer = buffer;
            Ok(object.read_at(offset_bytes, buffer.bytes_mut()?)? as u64)
        })
    }
}

/// Submits a terrace_object_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_write(
    queue: *const terrace_queue,
    object: *const terrace_object,
    offset_bytes: u64,
    data: *const c_void,
    size_bytes: usize,
    user: *mut c_void,
) -> terrace_status {
    let data = Lent::of(data, size_bytes);
    unsafe {
        submit_with(queue, object, user, move |object| {
            let data = data;
            object.write_at(offset_bytes, data.bytes()?).map(|()| 0)
        })
    }
}

/// Submits a terrace_object_append; the completion has where the bytes begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_append(
    queue: *const terrace_queue,
    object: *const terrace_object,
    data: *const c_void,
    size_bytes: usize,
    user: *mut c_void,
) -> terrace_status {
    let data = Lent::of(data, size_bytes);
    unsafe {
        submit_with(queue, object, user, move |object| {
            let data = data;
            object.append(data.bytes()?)
        })
    }
}

/// Submits a terrace_object_sync: of what was written before it is carried out, so submit it behind the completions of
/// the writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_sync(
    queue: *const terrace_queue,
    object: *const terrace_object,
    user: *mut c_void,
) -> terrace_status {
    unsafe { submit_with(queue, object, user, |object| object.sync().map(|()| 0)) }
}

/// Takes the completion of an operation, in the order of their ends; if the operation failed, terrace_error has its
/// text. `found` gets false where none ended in time, or none was submitted. Operations run in any order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_wait(
    queue: *const terrace_queue,
    timeout_ms: u64,
    completion: *mut terrace_completion,
    found: *mut bool,
) -> terrace_status {
    call(|| {
        let out = Out::required(completion, "completion")?;
        let has_one = Out::required(found, "found")?;
        has_one.set(false);
        let queue = unsafe { queue_of(queue) }?;
        let (mut state, _) = queue
            .shared
            .ended
            .wait_timeout_while(queue.shared.state(), Duration::from_millis(timeout_ms), |state| {
                state.done.is_empty() && state.count > 0
            })
            .unwrap_or_else(PoisonError::into_inner);
        let Some(done) = state.done.pop_front() else { return Ok(()) };
        state.count -= 1;
        let is_last = state.count == 0;
        drop(state);
        if is_last {
            // Others wait for what this thread has taken.
            queue.shared.ended.notify_all();
        }
        let (status, result) = match &done.outcome {
            Ok(result) => (terrace_status::TERRACE_OK, *result),
            Err(failure) => (failure.remember(), 0),
        };
        out.set(terrace_completion { user: done.user.0, status, result });
        has_one.set(true);
        Ok(())
    })
}

/// Waits for the end of all operations that were submitted, and frees the queue; completions that were not taken are
/// lost. Free it before its store is closed. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_queue_free(queue: *mut terrace_queue) {
    let _ = call(|| {
        if !queue.is_null() {
            let mut handle = unsafe { Box::from_raw(queue) };
            if handle.process.check().is_err() {
                std::mem::forget(handle);
            } else {
                handle.finish();
            }
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_an_operation_is_an_internal_fault() {
        let shared =
            Shared { state: Mutex::default(), submitted: Condvar::new(), ended: Condvar::new() };
        let work: [Work; 2] = [Box::new(|| panic!("of the test")), Box::new(|| Ok(7))];
        shared.state().waiting.extend(work.map(|work| (User(std::ptr::null_mut()), work)));
        shared.state().is_closing = true;
        shared.work();
        let done: Vec<_> = shared.state().done.drain(..).map(|done| done.outcome).collect();
        let Err(failure) = &done[0] else { panic!("it succeeded") };
        assert_eq!(failure.remember(), terrace_status::TERRACE_INTERNAL);
        assert!(matches!(done[1], Ok(7)));
    }
}
