// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collections of items.

use std::ffi::{c_char, c_void};

use terrace::{Collection, Result};

use crate::arguments::{
    Out, allocated, bytes, give_copy, given, options, terrace_options, text, wrong,
};
use crate::fork::Process;
use crate::status::{c_text, call, terrace_status};
use crate::store::{store_of, terrace_stat, terrace_store};

/// An open collection: a set of items, each a record and an object with its bytes. Threads may share it.
pub struct terrace_collection {
    collection: Collection,
    process: Process,
}

/// Called for a name, which is valid during the call. False ends the listing.
pub type terrace_name =
    Option<unsafe extern "C" fn(user: *mut c_void, name: *const c_char) -> bool>;

unsafe fn collection_of<'a>(pointer: *const terrace_collection) -> Result<&'a Collection> {
    // SAFETY: as `given`.
    let handle = unsafe { given(pointer, "collection") }?;
    handle.process.check()?;
    Ok(&handle.collection)
}

unsafe fn opened(
    collection: *mut *mut terrace_collection,
    open: impl FnOnce() -> Result<Collection>,
) -> terrace_status {
    call(|| {
        let out = Out::required(collection, "collection")?;
        out.set(std::ptr::null_mut());
        let handle = terrace_collection { collection: open()?, process: Process::current() };
        out.set(Box::into_raw(Box::new(handle)));
        Ok(())
    })
}

/// Makes a collection. TERRACE_EXISTS where there is one of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_collection_create(
    store: *const terrace_store,
    name: *const c_char,
    collection: *mut *mut terrace_collection,
) -> terrace_status {
    unsafe { opened(collection, || store_of(store)?.create_collection(text(name, "name")?)) }
}

/// Opens a collection. It stays this one, also where another gets its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_collection_open(
    store: *const terrace_store,
    name: *const c_char,
    collection: *mut *mut terrace_collection,
) -> terrace_status {
    unsafe { opened(collection, || store_of(store)?.collection(text(name, "name")?)) }
}

/// Frees the handle of a collection. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_collection_close(collection: *mut terrace_collection) {
    let _ = call(|| {
        if !collection.is_null() {
            let handle = unsafe { Box::from_raw(collection) };
            if handle.process.check().is_err() {
                std::mem::forget(handle);
            }
        }
        Ok(())
    });
}

/// Removes a collection. One with items is refused as TERRACE_INVALID, unless `with_items`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_collection_delete(
    store: *const terrace_store,
    name: *const c_char,
    with_items: bool,
) -> terrace_status {
    call(|| unsafe { store_of(store)?.delete_collection(text(name, "name")?, with_items) })
}

unsafe fn list(
    names: impl Iterator<Item = Result<String>>,
    each: terrace_name,
    user: *mut c_void,
) -> Result<()> {
    let each = each.ok_or_else(|| wrong("an argument is NULL").with("argument", "each"))?;
    for name in names {
        // SAFETY: the caller passes a function of this type.
        if !unsafe { each(user, c_text(&name?).as_ptr()) } {
            break;
        }
    }
    Ok(())
}

/// Calls `each` for the names of the collections that begin with `prefix`, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_collection_list(
    store: *const terrace_store,
    prefix: *const c_char,
    each: terrace_name,
    user: *mut c_void,
) -> terrace_status {
    call(|| unsafe { list(store_of(store)?.collections(text(prefix, "prefix")?), each, user) })
}

/// Makes an item hold exactly these bytes, atomically, and makes it if it is missing. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_item_put(
    collection: *const terrace_collection,
    name: *const c_char,
    data: *const c_void,
    size_bytes: usize,
    options: *const terrace_options,
) -> terrace_status {
    call(|| unsafe {
        let options = self::options(options)?;
        let data = bytes(data, size_bytes, "data")?;
        collection_of(collection)?.put(text(name, "name")?, data, &options)
    })
}

/// Reads a whole item into memory that the caller frees with free(). A NUL that does not count follows the bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_item_get(
    collection: *const terrace_collection,
    name: *const c_char,
    data: *mut *mut c_void,
    size_bytes: *mut usize,
) -> terrace_status {
    let find = || unsafe { collection_of(collection)?.get(text(name, "name")?) };
    call(|| give_copy((data, "data"), (size_bytes, "size_bytes"), find))
}

/// Makes an empty item where there is none. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_item_create(
    collection: *const terrace_collection,
    name: *const c_char,
    options: *const terrace_options,
) -> terrace_status {
    call(|| unsafe {
        let options = self::options(options)?;
        collection_of(collection)?.create(text(name, "name")?, &options).map(drop)
    })
}

/// Returns the size and times of an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_item_stat(
    collection: *const terrace_collection,
    name: *const c_char,
    stat: *mut terrace_stat,
) -> terrace_status {
    call(|| {
        let out = Out::required(stat, "stat")?;
        out.set(unsafe { collection_of(collection)?.stat(text(name, "name")?) }?.into());
        Ok(())
    })
}

/// The full name of the object with the bytes of an item, for terrace_object_open and terrace_explain: a text that the
/// caller frees with free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_item_object(
    collection: *const terrace_collection,
    name: *const c_char,
    object: *mut *mut c_char,
) -> terrace_status {
    call(|| {
        let out = Out::required(object, "object")?;
        out.set(std::ptr::null_mut());
        let found = unsafe { collection_of(collection)?.object_name(text(name, "name")?) }?;
        out.set(allocated(found.as_bytes())?.cast());
        Ok(())
    })
}

/// Calls `each` for the names of the items that begin with `prefix`, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_item_list(
    collection: *const terrace_collection,
    prefix: *const c_char,
    each: terrace_name,
    user: *mut c_void,
) -> terrace_status {
    call(|| unsafe { list(collection_of(collection)?.list(text(prefix, "prefix")?), each, user) })
}

/// Removes an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_item_delete(
    collection: *const terrace_collection,
    name: *const c_char,
) -> terrace_status {
    call(|| unsafe { collection_of(collection)?.delete(text(name, "name")?) })
}
