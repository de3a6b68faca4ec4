// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several operations with one request.

use std::ffi::{CString, c_char, c_void};

use terrace::{Outcome, Result};

use crate::arguments::{Out, bytes, bytes_mut, given, semantics, text, wrong};
use crate::fork::Process;
use crate::status::{c_text, call, status, terrace_status};
use crate::store::{store_of, terrace_stat, terrace_store};

/// Where the result of an operation goes.
enum Target {
    Nothing,
    Bytes(*mut c_void, usize, *mut usize),
    Stat(*mut terrace_stat),
}

/// Operations that are carried out together, for one thread at a time. Those on one object run in their order; one that
/// fails does not stop the others.
pub struct terrace_batch {
    batch: Option<terrace::Batch>,
    targets: Vec<Target>,
    outcomes: Vec<(terrace_status, CString)>,
    process: Process,
}

/// Makes an empty batch. `semantics`, which may be NULL, are what every operation must meet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_new(
    store: *const terrace_store,
    semantics: *const c_char,
    batch: *mut *mut terrace_batch,
) -> terrace_status {
    call(|| {
        let out = Out::required(batch, "batch")?;
        out.set(std::ptr::null_mut());
        let inner = unsafe { store_of(store)?.batch().semantics(self::semantics(semantics)?) };
        let handle = terrace_batch {
            batch: Some(inner),
            targets: Vec::new(),
            outcomes: Vec::new(),
            process: Process::current(),
        };
        out.set(Box::into_raw(Box::new(handle)));
        Ok(())
    })
}

/// Adds an operation.
unsafe fn add(
    batch: *mut terrace_batch,
    target: Target,
    add: impl FnOnce(terrace::Batch) -> terrace::Batch,
) -> Result<()> {
    // SAFETY: the caller passes NULL or a batch that no other thread uses.
    let handle = unsafe { batch.as_mut() }
        .ok_or_else(|| wrong("an argument is NULL").with("argument", "batch"))?;
    handle.process.check()?;
    let inner =
        handle.batch.take().ok_or_else(|| wrong("the batch was carried out; make another one"))?;
    handle.batch = Some(add(inner));
    handle.targets.push(target);
    Ok(())
}

/// Creates a new object that holds `data`, of which a copy is made at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_create(
    batch: *mut terrace_batch,
    name: *const c_char,
    data: *const c_void,
    size_bytes: usize,
) -> terrace_status {
    call(|| unsafe {
        let (name, data) = (text(name, "name")?, bytes(data, size_bytes, "data")?);
        add(batch, Target::Nothing, |inner| inner.create(name, data))
    })
}

/// Writes into an object that exists; a copy of `data` is made at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_write(
    batch: *mut terrace_batch,
    name: *const c_char,
    offset_bytes: u64,
    data: *const c_void,
    size_bytes: usize,
) -> terrace_status {
    call(|| unsafe {
        let (name, data) = (text(name, "name")?, bytes(data, size_bytes, "data")?);
        add(batch, Target::Nothing, |inner| inner.write(name, offset_bytes, data))
    })
}

/// Reads up to `size_bytes` into `buffer`, and the number of bytes read into `count`: both are written by
/// terrace_batch_run, and must stay until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_read(
    batch: *mut terrace_batch,
    name: *const c_char,
    offset_bytes: u64,
    buffer: *mut c_void,
    size_bytes: usize,
    count: *mut usize,
) -> terrace_status {
    call(|| unsafe {
        Out::required(count, "count")?.set(0);
        bytes_mut(buffer, size_bytes, "buffer")?;
        let name = text(name, "name")?;
        let target = Target::Bytes(buffer, size_bytes, count);
        add(batch, target, |inner| inner.read(name, offset_bytes, size_bytes))
    })
}

/// Returns size and times in `stat`, which is written by terrace_batch_run and must stay until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_stat(
    batch: *mut terrace_batch,
    name: *const c_char,
    stat: *mut terrace_stat,
) -> terrace_status {
    call(|| unsafe {
        Out::required(stat, "stat")?;
        let name = text(name, "name")?;
        add(batch, Target::Stat(stat), |inner| inner.stat(name))
    })
}

/// Removes an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_delete(
    batch: *mut terrace_batch,
    name: *const c_char,
) -> terrace_status {
    call(|| unsafe {
        let name = text(name, "name")?;
        add(batch, Target::Nothing, |inner| inner.delete(name))
    })
}

/// Carries the operations out, once; `failed`, which may be NULL, gets how many failed. TERRACE_OK means that all were tried.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_run(
    batch: *mut terrace_batch,
    failed: *mut usize,
) -> terrace_status {
    call(|| {
        let handle = unsafe { batch.as_mut() }
            .ok_or_else(|| wrong("an argument is NULL").with("argument", "batch"))?;
        handle.process.check()?;
        let inner = handle
            .batch
            .take()
            .ok_or_else(|| wrong("the batch was carried out; make another one"))?;
        let mut failures = 0;
        for (outcome, target) in inner.run().into_iter().zip(&handle.targets) {
            let kept = match outcome {
                Ok(outcome) => {
                    // SAFETY: the caller keeps what the operation was added with.
                    unsafe { deliver(outcome, target) };
                    (terrace_status::TERRACE_OK, CString::default())
                }
                Err(error) => {
                    failures += 1;
                    (status(&error), c_text(&error.chain()))
                }
            };
            handle.outcomes.push(kept);
        }
        Out::optional(failed).set(failures);
        Ok(())
    })
}

unsafe fn deliver(outcome: Outcome, target: &Target) {
    match (outcome, target) {
        (Outcome::Bytes(data), Target::Bytes(buffer, size_bytes, count)) => {
            let length = data.len().min(*size_bytes);
            // SAFETY: the buffer has room for `size_bytes`.
            unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), length) };
            Out::optional(*count).set(length);
        }
        (Outcome::Stat(stat), Target::Stat(place)) => Out::optional(*place).set(stat.into()),
        _ => {}
    }
}

/// The status of an operation, from 0 on in the order in which they were added; its text is then that of terrace_error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_status(
    batch: *const terrace_batch,
    index: usize,
) -> terrace_status {
    let mut found = terrace_status::TERRACE_OK;
    let looked = call(|| {
        let handle = unsafe { given(batch, "batch") }?;
        let (status, text) = handle.outcomes.get(index).ok_or_else(|| {
            wrong("no such operation was carried out")
                .with("index", index)
                .with("count", handle.outcomes.len())
        })?;
        found = *status;
        crate::status::remember(&text.to_string_lossy());
        Ok(())
    });
    if looked == terrace_status::TERRACE_OK { found } else { looked }
}

/// Frees a batch, carried out or not. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_free(batch: *mut terrace_batch) {
    let _ = call(|| {
        if !batch.is_null() {
            let handle = unsafe { Box::from_raw(batch) };
            if handle.process.check().is_err() {
                std::mem::forget(handle);
            }
        }
        Ok(())
    });
}
