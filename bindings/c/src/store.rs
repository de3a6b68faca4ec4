// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores and whole objects.

use std::ffi::{c_char, c_void};

use terrace::{Result, Store};

use crate::arguments::{
    Out, bytes, bytes_mut, give_copy, given, options, terrace_options, text, wrong,
};
use crate::fork::Process;
use crate::status::{call, terrace_status};

/// An open store. Threads may share it.
pub struct terrace_store {
    store: Store,
    process: Process,
}

/// Size and times of an object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct terrace_stat {
    /// Length.
    pub size_bytes: u64,
    /// Room taken on the medium.
    pub allocated_bytes: u64,
    /// When it was created, nanoseconds since 1970.
    pub created_ns: u64,
    /// When its bytes last changed, nanoseconds since 1970.
    pub modified_ns: u64,
    /// Whether it was created with a label.
    pub is_labelled: bool,
}

impl From<terrace::Stat> for terrace_stat {
    fn from(stat: terrace::Stat) -> Self {
        Self {
            size_bytes: stat.size_bytes,
            allocated_bytes: stat.allocated_bytes,
            created_ns: stat.created_ns,
            modified_ns: stat.modified_ns,
            is_labelled: stat.is_labelled,
        }
    }
}

/// Opens a store that cannot be changed through the handle.
pub const TERRACE_READ_ONLY: u32 = 1;

/// The store behind a handle.
pub(crate) unsafe fn store_of<'a>(pointer: *const terrace_store) -> Result<&'a Store> {
    // SAFETY: as `given`.
    let handle = unsafe { given(pointer, "store") }?;
    handle.process.check()?;
    Ok(&handle.store)
}

/// Makes a store in a directory, with the configuration of `terrace init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_create(directory: *const c_char) -> terrace_status {
    call(|| Store::create(unsafe { text(directory, "directory") }?))
}

/// Opens a store: its directory, or terrace://HOST:PORT, terrace+unix:///PATH, several servers terrace://HOST:PORT,HOST:PORT.
/// `flags` is 0 or TERRACE_READ_ONLY. A child that is forked later opens its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_open(
    address: *const c_char,
    flags: u32,
    store: *mut *mut terrace_store,
) -> terrace_status {
    call(|| {
        let out = Out::required(store, "store")?;
        out.set(std::ptr::null_mut());
        let address = unsafe { text(address, "address") }?;
        let process = Process::first()?;
        let opened = match flags {
            0 => Store::open(address)?,
            TERRACE_READ_ONLY => Store::open_read_only(address)?,
            _ => return Err(wrong("the flags are unknown").with("flags", flags)),
        };
        let handle = terrace_store { store: opened, process };
        out.set(Box::into_raw(Box::new(handle)));
        Ok(())
    })
}

/// Closes a store and frees the handle, whatever it returns. Objects that are still open fail from then on, and must be
/// closed, too. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_close(store: *mut terrace_store) -> terrace_status {
    call(|| {
        if store.is_null() {
            return Ok(());
        }
        let handle = unsafe { Box::from_raw(store) };
        if handle.process.check().is_err() {
            // Dropping it would wait for threads that this process does not have.
            std::mem::forget(handle);
            return Ok(());
        }
        handle.store.close()
    })
}

/// Makes everything durable that was acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sync(store: *const terrace_store) -> terrace_status {
    call(|| unsafe { store_of(store) }?.sync())
}

/// Whether another process or a server owns the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_is_attached(
    store: *const terrace_store,
    is_attached: *mut bool,
) -> terrace_status {
    call(|| {
        Out::required(is_attached, "is_attached")?.set(unsafe { store_of(store) }?.is_attached());
        Ok(())
    })
}

/// Makes an object hold exactly these bytes, atomically: every reader gets the old value or the new one.
/// `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_put(
    store: *const terrace_store,
    name: *const c_char,
    data: *const c_void,
    size_bytes: usize,
    options: *const terrace_options,
) -> terrace_status {
    call(|| unsafe {
        let options = self::options(options)?;
        store_of(store)?.put_with(text(name, "name")?, bytes(data, size_bytes, "data")?, &options)
    })
}

/// Reads a whole object into memory that the caller frees with free(). A NUL that does not count follows the bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_get(
    store: *const terrace_store,
    name: *const c_char,
    data: *mut *mut c_void,
    size_bytes: *mut usize,
) -> terrace_status {
    let find = || unsafe { store_of(store)?.get(text(name, "name")?) };
    call(|| give_copy((data, "data"), (size_bytes, "size_bytes"), find))
}

/// Reads up to `size_bytes` of an object into `buffer`; `count` gets the bytes read, fewer only at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_get_into(
    store: *const terrace_store,
    name: *const c_char,
    offset_bytes: u64,
    buffer: *mut c_void,
    size_bytes: usize,
    count: *mut usize,
) -> terrace_status {
    call(|| {
        let out = Out::required(count, "count")?;
        let (store, name) = unsafe { (store_of(store)?, text(name, "name")?) };
        let buffer = unsafe { bytes_mut(buffer, size_bytes, "buffer") }?;
        out.set(store.object(name)?.read()?.read_at(offset_bytes, buffer)?);
        Ok(())
    })
}

/// Returns the size and times of an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_stat(
    store: *const terrace_store,
    name: *const c_char,
    stat: *mut terrace_stat,
) -> terrace_status {
    call(|| {
        let out = Out::required(stat, "stat")?;
        out.set(unsafe { store_of(store)?.stat(text(name, "name")?) }?.into());
        Ok(())
    })
}

/// Removes an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_delete(
    store: *const terrace_store,
    name: *const c_char,
) -> terrace_status {
    call(|| unsafe { store_of(store)?.delete(text(name, "name")?) })
}
