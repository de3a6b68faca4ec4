// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes over the boundary, checked as far as it can be.

use std::ffi::{CStr, c_char, c_int, c_void};

use terrace::{Error, Hint, Options, Persistency, Result, Semantics, Temperature};

/// How soon an object will be touched again.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum terrace_hint {
    /// Nothing is known.
    TERRACE_HINT_UNKNOWN = 0,
    /// Soon.
    TERRACE_HINT_HOT = 1,
    /// Not soon.
    TERRACE_HINT_COLD = 2,
}

/// What a change survives.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum terrace_persistency {
    /// A crash of the process, not a loss of power: the default.
    TERRACE_PROCESS = 0,
    /// Nothing: it may be lost by a crash of the process.
    TERRACE_NONE = 1,
    /// A loss of power.
    TERRACE_STORAGE = 2,
}

/// The level of an `enum terrace_persistency`. C passes any number.
pub(crate) fn level(persistency: c_int) -> Result<Persistency> {
    const PROCESS: c_int = terrace_persistency::TERRACE_PROCESS as c_int;
    const NONE: c_int = terrace_persistency::TERRACE_NONE as c_int;
    const STORAGE: c_int = terrace_persistency::TERRACE_STORAGE as c_int;
    Ok(match persistency {
        PROCESS => Persistency::Process,
        NONE => Persistency::None,
        STORAGE => Persistency::Storage,
        _ => return Err(wrong("the persistency is unknown").with("persistency", persistency)),
    })
}

/// The temperature of an `enum terrace_hint`.
fn temperature(hint: c_int) -> Result<Temperature> {
    const UNKNOWN: c_int = terrace_hint::TERRACE_HINT_UNKNOWN as c_int;
    const HOT: c_int = terrace_hint::TERRACE_HINT_HOT as c_int;
    const COLD: c_int = terrace_hint::TERRACE_HINT_COLD as c_int;
    Ok(match hint {
        UNKNOWN => Temperature::Unknown,
        HOT => Temperature::Hot,
        COLD => Temperature::Cold,
        _ => return Err(wrong("the hint is unknown").with("hint", hint)),
    })
}

/// What a caller may ask for beside the bytes. Set everything to zero first, then `struct_bytes`:
///
///     struct terrace_options options = { .struct_bytes = sizeof options, .hint = TERRACE_HINT_HOT };
#[repr(C)]
#[derive(Clone, Copy)]
pub struct terrace_options {
    /// `sizeof(struct terrace_options)`: later versions have more fields.
    pub struct_bytes: usize,
    /// Requirements, met or refused, as the command takes them: "posix,persistency=storage". NULL for the default.
    pub semantics: *const c_char,
    /// An enum terrace_hint: advice for the policy, given when an object is created.
    pub hint: c_int,
    /// Stored with an object that is created, 1 to 512 bytes; NULL for none.
    pub label: *const c_void,
    /// The length of the label.
    pub label_bytes: usize,
    /// The size that an object that is created will have; 0 where it is not known.
    pub size_bytes: u64,
}

const OPERATION: &str = "call libterrace";

pub(crate) fn wrong(reason: &str) -> Error {
    Error::invalid(OPERATION, reason)
}

/// A text that must not be NULL.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &'static str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(wrong("an argument is NULL").with("argument", what));
    }
    // SAFETY: the caller passes a text that ends with NUL.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| wrong("an argument is not UTF-8").with("argument", what))
}

/// Bytes to read from; NULL is allowed where there are none.
pub(crate) unsafe fn bytes<'a>(
    pointer: *const c_void,
    count: usize,
    what: &'static str,
) -> Result<&'a [u8]> {
    // SAFETY: the caller passes so many bytes, which stay during the call.
    unsafe { items(pointer.cast(), count, what) }
}

/// Items to read from; NULL is allowed where there are none.
pub(crate) unsafe fn items<'a, T>(
    pointer: *const T,
    count: usize,
    what: &'static str,
) -> Result<&'a [T]> {
    check_size(count.saturating_mul(size_of::<T>()), what)?;
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(wrong("an argument is NULL").with("argument", what)),
        // SAFETY: the caller passes so many, which stay during the call.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Refuses what no memory has, for example the -1 of a call that failed.
fn check_size(bytes: usize, what: &'static str) -> Result<()> {
    match isize::try_from(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(wrong("no memory is so large").with("argument", what).with("bytes", bytes)),
    }
}

/// Bytes to write to; NULL is allowed where there are none.
pub(crate) unsafe fn bytes_mut<'a>(
    pointer: *mut c_void,
    count: usize,
    what: &'static str,
) -> Result<&'a mut [u8]> {
    check_size(count, what)?;
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(wrong("an argument is NULL").with("argument", what)),
        // SAFETY: the caller passes room for so many bytes, of which nothing else uses any during the call.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), count) }),
    }
}

/// Something that must not be NULL, and is only looked at.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, what: &'static str) -> Result<&'a T> {
    // SAFETY: the caller passes NULL, or what a call of this library returned and has not freed.
    unsafe { pointer.as_ref() }.ok_or_else(|| wrong("an argument is NULL").with("argument", what))
}

/// Where a result goes.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A place that must not be NULL. What is there need not be initialised.
    pub(crate) fn required(pointer: *mut T, what: &'static str) -> Result<Self> {
        match pointer.is_null() {
            true => Err(wrong("an argument is NULL").with("argument", what)),
            false => Ok(Self(pointer)),
        }
    }

    /// A place that may be NULL, where the result is not wanted.
    pub(crate) fn optional(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub(crate) fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller passes room for one; nothing is dropped.
            unsafe { self.0.write(value) }
        }
    }
}

/// Semantics as a text, or NULL.
pub(crate) unsafe fn semantics(pointer: *const c_char) -> Result<Semantics> {
    match pointer.is_null() {
        true => Ok(Semantics::default()),
        // SAFETY: as `text`.
        false => unsafe { text(pointer, "semantics") }?.parse(),
    }
}

/// Options, or NULL.
pub(crate) unsafe fn options(pointer: *const terrace_options) -> Result<Options> {
    // SAFETY: the caller passes NULL or options.
    let Some(given) = (unsafe { pointer.as_ref() }) else { return Ok(Options::default()) };
    if given.struct_bytes != size_of::<terrace_options>() {
        return Err(wrong("struct_bytes is not the size of struct terrace_options")
            .with("struct_bytes", given.struct_bytes)
            .with("expected", size_of::<terrace_options>()));
    }
    let temperature = temperature(given.hint)?;
    // SAFETY: as `bytes` and `semantics`.
    let (label, semantics) = unsafe {
        let label =
            (!given.label.is_null()).then(|| bytes(given.label, given.label_bytes, "label"));
        (label.transpose()?, semantics(given.semantics)?)
    };
    Ok(Options {
        semantics,
        hint: Hint { temperature },
        label: label.map(<[u8]>::to_vec),
        size_bytes: (given.size_bytes > 0).then_some(given.size_bytes),
    })
}

/// A copy that the caller frees with `free`, with a NUL behind it.
pub(crate) fn allocated(data: &[u8]) -> Result<*mut c_void> {
    // SAFETY: the room is for the bytes and the NUL, or NULL.
    unsafe {
        let room = libc::malloc(data.len() + 1);
        if room.is_null() {
            return Err(Error::new(terrace::ErrorKind::Io, "return a value")
                .because("there is no memory left"));
        }
        room.cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), data.len());
        room.cast::<u8>().add(data.len()).write(0);
        Ok(room)
    }
}

/// Gives the caller a copy of what `find` returns, with its length; NULL where that fails.
pub(crate) fn give_copy<D: AsRef<[u8]>>(
    (data, data_name): (*mut *mut c_void, &'static str),
    (size_bytes, size_name): (*mut usize, &'static str),
    find: impl FnOnce() -> Result<D>,
) -> Result<()> {
    let (out, size) = (Out::required(data, data_name)?, Out::required(size_bytes, size_name)?);
    out.set(std::ptr::null_mut());
    let found = find()?;
    out.set(allocated(found.as_ref())?);
    size.set(found.as_ref().len());
    Ok(())
}
