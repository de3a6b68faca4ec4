// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listings.

use std::ffi::{CString, c_char};

use terrace::List;

use crate::arguments::{Out, text, wrong};
use crate::fork::Process;
use crate::status::{c_text, call, terrace_status};
use crate::store::{store_of, terrace_store};

/// A listing, for one thread at a time.
pub struct terrace_list {
    list: List,
    name: CString,
    process: Process,
}

/// Begins a listing of the objects whose full names, namespace/name, begin with `prefix`; "" for all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_list_open(
    store: *const terrace_store,
    prefix: *const c_char,
    list: *mut *mut terrace_list,
) -> terrace_status {
    call(|| {
        let out = Out::required(list, "list")?;
        out.set(std::ptr::null_mut());
        let list = unsafe { store_of(store)?.list(text(prefix, "prefix")?) };
        let handle = terrace_list { list, name: CString::default(), process: Process::current() };
        out.set(Box::into_raw(Box::new(handle)));
        Ok(())
    })
}

/// The next name, or NULL at the end. It is valid until the next call with the same listing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_list_next(
    list: *mut terrace_list,
    name: *mut *const c_char,
) -> terrace_status {
    call(|| {
        let out = Out::required(name, "name")?;
        out.set(std::ptr::null());
        let handle = unsafe { list.as_mut() }
            .ok_or_else(|| wrong("an argument is NULL").with("argument", "list"))?;
        handle.process.check()?;
        if let Some(entry) = handle.list.next() {
            handle.name = c_text(&entry?.name);
            out.set(handle.name.as_ptr());
        }
        Ok(())
    })
}

/// Ends a listing and frees it. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_list_close(list: *mut terrace_list) {
    let _ = call(|| {
        if !list.is_null() {
            let handle = unsafe { Box::from_raw(list) };
            if handle.process.check().is_err() {
                std::mem::forget(handle);
            }
        }
        Ok(())
    });
}
