// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value pairs.

use std::ffi::{c_char, c_int, c_void};

use terrace::{Error, ErrorKind, Kv, Result};

use crate::arguments::{Out, bytes, give_copy, items, level, text, wrong};
use crate::status::{call, terrace_status};
use crate::store::{store_of, terrace_store};

/// A change of a pair.
#[repr(C)]
pub struct terrace_change {
    /// The key.
    pub key: *const c_void,
    /// Its length.
    pub key_bytes: usize,
    /// The value; NULL removes the pair.
    pub value: *const c_void,
    /// Its length.
    pub value_bytes: usize,
}

/// Called for a pair, of which the bytes are valid during the call. False ends the scan.
pub type terrace_pair = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        key: *const c_void,
        key_bytes: usize,
        value: *const c_void,
        value_bytes: usize,
    ) -> bool,
>;

unsafe fn kv(store: *const terrace_store, namespace: *const c_char) -> Result<Kv> {
    // SAFETY: as those.
    unsafe { Ok(store_of(store)?.kv(text(namespace, "namespace")?)) }
}

/// Reads a value into memory that the caller frees with free(). TERRACE_NOT_FOUND where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_kv_get(
    store: *const terrace_store,
    kv_namespace: *const c_char,
    key: *const c_void,
    key_bytes: usize,
    value: *mut *mut c_void,
    value_bytes: *mut usize,
) -> terrace_status {
    let find = || {
        let found = unsafe { kv(store, kv_namespace)?.get(bytes(key, key_bytes, "key")?) }?;
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, "read a pair"))
    };
    call(|| give_copy((value, "value"), (value_bytes, "value_bytes"), find))
}

/// Writes a value. `persistency` is an enum terrace_persistency here and below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_kv_put(
    store: *const terrace_store,
    kv_namespace: *const c_char,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    persistency: c_int,
) -> terrace_status {
    call(|| unsafe {
        let kv = kv(store, kv_namespace)?.persistency(level(persistency)?);
        kv.put(bytes(key, key_bytes, "key")?, bytes(value, value_bytes, "value")?)
    })
}

/// Removes a value; `was_there` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_kv_remove(
    store: *const terrace_store,
    kv_namespace: *const c_char,
    key: *const c_void,
    key_bytes: usize,
    persistency: c_int,
    was_there: *mut bool,
) -> terrace_status {
    call(|| {
        let kv = unsafe { kv(store, kv_namespace) }?.persistency(level(persistency)?);
        Out::optional(was_there).set(kv.remove(unsafe { bytes(key, key_bytes, "key") }?)?);
        Ok(())
    })
}

/// Changes pairs in their order and together: after a failure none was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_kv_apply(
    store: *const terrace_store,
    kv_namespace: *const c_char,
    changes: *const terrace_change,
    count: usize,
    persistency: c_int,
) -> terrace_status {
    call(|| {
        let kv = unsafe { kv(store, kv_namespace) }?.persistency(level(persistency)?);
        let changes = unsafe { items(changes, count, "changes") }?;
        let mut pairs = Vec::with_capacity(count);
        for change in changes {
            let key = unsafe { bytes(change.key, change.key_bytes, "key") }?;
            let value = (!change.value.is_null())
                .then(|| unsafe { bytes(change.value, change.value_bytes, "value") })
                .transpose()?;
            pairs.push((key, value));
        }
        kv.apply(&pairs)
    })
}

/// Calls `each` for up to `max` pairs whose keys begin with `prefix`, in order, behind the key `after`, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_kv_scan(
    store: *const terrace_store,
    kv_namespace: *const c_char,
    prefix: *const c_void,
    prefix_bytes: usize,
    after: *const c_void,
    after_bytes: usize,
    max: usize,
    each: terrace_pair,
    user: *mut c_void,
) -> terrace_status {
    call(|| {
        let each = each.ok_or_else(|| wrong("an argument is NULL").with("argument", "each"))?;
        let prefix = unsafe { bytes(prefix, prefix_bytes, "prefix") }?;
        let after = (!after.is_null())
            .then(|| unsafe { bytes(after, after_bytes, "after") })
            .transpose()?;
        for (key, value) in unsafe { kv(store, kv_namespace) }?.scan(prefix, after, max)? {
            let goes_on = unsafe {
                each(user, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len())
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    })
}
