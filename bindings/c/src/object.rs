// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that are read and written anywhere.

use std::ffi::{c_char, c_int, c_void};

use terrace::{Draft, Object, Result};

use crate::arguments::{Out, bytes, bytes_mut, given, options, terrace_options, text, wrong};
use crate::fork::Process;
use crate::status::{call, terrace_status};
use crate::store::{store_of, terrace_stat, terrace_store};

/// An open object. Threads may share it.
pub struct terrace_object {
    object: Object,
    draft: Option<Draft>,
    process: Process,
}

/// How an object is opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum terrace_mode {
    /// For reading.
    TERRACE_READ = 0,
    /// For reading and writing; it must exist.
    TERRACE_WRITE = 1,
    /// For reading and writing; it is made where it is missing.
    TERRACE_CREATE = 2,
    /// For reading and writing; it must not exist.
    TERRACE_CREATE_NEW = 3,
    /// A new value, which replaces the old one with terrace_object_publish.
    TERRACE_REPLACE = 4,
}

// C passes any number.
const READ: c_int = terrace_mode::TERRACE_READ as c_int;
const WRITE: c_int = terrace_mode::TERRACE_WRITE as c_int;
const CREATE: c_int = terrace_mode::TERRACE_CREATE as c_int;
const CREATE_NEW: c_int = terrace_mode::TERRACE_CREATE_NEW as c_int;
const REPLACE: c_int = terrace_mode::TERRACE_REPLACE as c_int;

unsafe fn handle_of<'a>(pointer: *const terrace_object) -> Result<&'a terrace_object> {
    // SAFETY: as `given`.
    let handle = unsafe { given(pointer, "object") }?;
    handle.process.check()?;
    Ok(handle)
}

/// The object behind a handle.
pub(crate) unsafe fn object_of<'a>(pointer: *const terrace_object) -> Result<&'a Object> {
    // SAFETY: as `given`.
    Ok(&unsafe { handle_of(pointer) }?.object)
}

/// Opens an object. `mode` is an enum terrace_mode; `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_open(
    store: *const terrace_store,
    name: *const c_char,
    mode: c_int,
    options: *const terrace_options,
    object: *mut *mut terrace_object,
) -> terrace_status {
    call(|| {
        let out = Out::required(object, "object")?;
        out.set(std::ptr::null_mut());
        let options = unsafe { self::options(options) }?;
        let builder = unsafe { store_of(store)?.object(text(name, "name")?) }?.options(options);
        let mut draft = None;
        let object = match mode {
            READ => builder.read()?,
            WRITE => builder.open()?,
            CREATE => builder.create()?,
            CREATE_NEW => builder.create_new()?,
            REPLACE => draft.insert(builder.replace()?).object(),
            _ => return Err(wrong("the mode is unknown").with("mode", mode)),
        };
        let handle = terrace_object { object, draft, process: Process::current() };
        out.set(Box::into_raw(Box::new(handle)));
        Ok(())
    })
}

/// Closes an object and frees the handle. A new value that was not published is discarded. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_close(object: *mut terrace_object) {
    let _ = call(|| {
        if !object.is_null() {
            let handle = unsafe { Box::from_raw(object) };
            if handle.process.check().is_err() {
                std::mem::forget(handle);
            }
        }
        Ok(())
    });
}

/// Reads into a buffer; `count` gets the bytes read, fewer than `size_bytes` only at the end. Holes read as zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_read(
    object: *const terrace_object,
    offset_bytes: u64,
    buffer: *mut c_void,
    size_bytes: usize,
    count: *mut usize,
) -> terrace_status {
    call(|| {
        let out = Out::required(count, "count")?;
        let buffer = unsafe { bytes_mut(buffer, size_bytes, "buffer") }?;
        out.set(unsafe { handle_of(object) }?.object.read_at(offset_bytes, buffer)?);
        Ok(())
    })
}

/// Writes all of `data`; the object grows as needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_write(
    object: *const terrace_object,
    offset_bytes: u64,
    data: *const c_void,
    size_bytes: usize,
) -> terrace_status {
    call(|| unsafe {
        handle_of(object)?.object.write_at(offset_bytes, bytes(data, size_bytes, "data")?)
    })
}

/// Writes all of `data` at the end; `offset_bytes`, which may be NULL, gets where it begins. Appends never overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_append(
    object: *const terrace_object,
    data: *const c_void,
    size_bytes: usize,
    offset_bytes: *mut u64,
) -> terrace_status {
    call(|| {
        let data = unsafe { bytes(data, size_bytes, "data") }?;
        Out::optional(offset_bytes).set(unsafe { handle_of(object) }?.object.append(data)?);
        Ok(())
    })
}

/// Cuts the object, or lets it grow with zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_set_len(
    object: *const terrace_object,
    size_bytes: u64,
) -> terrace_status {
    call(|| unsafe { handle_of(object) }?.object.set_len(size_bytes))
}

/// Makes everything durable that was written to the object before the call. A failure stays: every later call with this
/// handle fails, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_sync(object: *const terrace_object) -> terrace_status {
    call(|| unsafe { handle_of(object) }?.object.sync())
}

/// Returns size and times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_stat(
    object: *const terrace_object,
    stat: *mut terrace_stat,
) -> terrace_status {
    call(|| {
        Out::required(stat, "stat")?.set(unsafe { handle_of(object) }?.object.stat()?.into());
        Ok(())
    })
}

/// Copies the label that the object was created with, as far as there is room; `label_bytes` gets its length, 0 where
/// there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_label(
    object: *const terrace_object,
    buffer: *mut c_void,
    size_bytes: usize,
    label_bytes: *mut usize,
) -> terrace_status {
    call(|| {
        let out = Out::required(label_bytes, "label_bytes")?;
        let buffer = unsafe { bytes_mut(buffer, size_bytes, "buffer") }?;
        let label = unsafe { handle_of(object) }?.object.label().unwrap_or_default();
        let count = label.len().min(buffer.len());
        buffer[..count].copy_from_slice(&label[..count]);
        out.set(label.len());
        Ok(())
    })
}

/// Makes the name stand for the new value, atomically, where the object was opened with TERRACE_REPLACE. No write may be
/// in progress. The handle stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_object_publish(object: *const terrace_object) -> terrace_status {
    call(|| match &unsafe { handle_of(object) }?.draft {
        Some(draft) => draft.publish(),
        None => Err(wrong("the object was not opened with TERRACE_REPLACE")),
    })
}
