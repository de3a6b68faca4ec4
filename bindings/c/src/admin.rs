// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers, placement and migrations.

use std::ffi::c_char;
use std::time::Duration;

use serde_json::to_string;
use terrace::Result;

use crate::arguments::{Out, allocated, items, text, wrong};
use crate::status::{call, terrace_status};
use crate::store::{store_of, terrace_store};

fn json<T: serde::Serialize>(value: &T) -> Result<*mut c_char> {
    let text = to_string(value).map_err(|error| wrong(&error.to_string()))?;
    Ok(allocated(text.as_bytes())?.cast())
}

/// All tiers as JSON, as `terrace tiers --json` has them; the caller frees the text with free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_tiers(
    store: *const terrace_store,
    text: *mut *mut c_char,
) -> terrace_status {
    call(|| {
        let out = Out::required(text, "text")?;
        out.set(std::ptr::null_mut());
        out.set(json(&unsafe { store_of(store) }?.admin().tiers()?)?);
        Ok(())
    })
}

/// Where an object is, and why, as JSON, as `terrace explain --json` has it; the caller frees the text with free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_explain(
    store: *const terrace_store,
    name: *const c_char,
    text: *mut *mut c_char,
) -> terrace_status {
    call(|| {
        let out = Out::required(text, "text")?;
        out.set(std::ptr::null_mut());
        let name = unsafe { self::text(name, "name") }?;
        out.set(json(&unsafe { store_of(store) }?.admin().explain(name)?)?);
        Ok(())
    })
}

/// Queues the migration of an object to a tier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_migrate(
    store: *const terrace_store,
    name: *const c_char,
    tier: *const c_char,
) -> terrace_status {
    call(|| unsafe { store_of(store)?.admin().migrate(text(name, "name")?, text(tier, "tier")?) })
}

/// The same, and keeps the bytes where they were as a clean copy: bringing the object back costs no copying while it does
/// not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_promote(
    store: *const terrace_store,
    name: *const c_char,
    tier: *const c_char,
) -> terrace_status {
    call(|| unsafe { store_of(store)?.admin().promote(text(name, "name")?, text(tier, "tier")?) })
}

/// Blocks until no migration waits or runs; `is_idle` gets false where that took longer than the timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_wait_idle(
    store: *const terrace_store,
    timeout_ms: u64,
    is_idle: *mut bool,
) -> terrace_status {
    call(|| {
        let out = Out::required(is_idle, "is_idle")?;
        out.set(unsafe { store_of(store) }?.admin().wait_idle(Duration::from_millis(timeout_ms))?);
        Ok(())
    })
}

/// Keeps an object where it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pin(
    store: *const terrace_store,
    name: *const c_char,
) -> terrace_status {
    call(|| unsafe { store_of(store)?.admin().pin(text(name, "name")?) })
}

/// Allows migrations of an object again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_unpin(
    store: *const terrace_store,
    name: *const c_char,
) -> terrace_status {
    call(|| unsafe { store_of(store)?.admin().unpin(text(name, "name")?) })
}

/// Replaces the policy while the store runs: the name of a built-in one, or the path of a file. `parameters` are `count`
/// texts of the form name=value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_set_policy(
    store: *const terrace_store,
    name: *const c_char,
    parameters: *const *const c_char,
    count: usize,
) -> terrace_status {
    call(|| {
        let given = unsafe { items(parameters, count, "parameters") }?;
        let mut pairs = Vec::with_capacity(count);
        for parameter in given {
            let text = unsafe { text(*parameter, "parameters") }?;
            let (key, value) = text.split_once('=').ok_or_else(|| {
                wrong("a parameter has the form name=value").with("parameter", text)
            })?;
            pairs.push((key.to_owned(), value.to_owned()));
        }
        unsafe { store_of(store)?.admin().set_policy(text(name, "name")?, &pairs) }
    })
}
