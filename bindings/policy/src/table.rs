// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions that the host calls: each turns C's arguments into Rust's and stops panics.
#![allow(unsafe_code, reason = "is called from C")]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use terrace_policy_abi::{self as abi, layout, status};

use crate::view::{list, text};
use crate::{Actions, Placed, Placement, Policy, Refusal, View};

/// The table that a library hands to the host.
#[derive(Debug)]
pub struct Table(abi::Api);

// SAFETY: the only pointer in it points to a constant text.
unsafe impl Sync for Table {}

impl Table {
    /// The table of a policy.
    pub const fn of<P: Policy>() -> Self {
        const { assert!(align_of::<P::Published>() <= 16, "the host aligns to 16 bytes") };
        Self(abi::Api {
            abi_version: abi::ABI_VERSION,
            struct_bytes: size_of::<abi::Api>() as u32,
            name: abi::Text::new(P::NAME),
            create: Some(create::<P>),
            destroy: Some(destroy::<P>),
            observe: Some(observe::<P>),
            plan: Some(plan::<P>),
            publish: Some(publish::<P>),
            place: Some(place::<P>),
            message: Some(message::<P>),
            parameters: Some(parameters::<P>),
            set_parameter: Some(set_parameter::<P>),
            save: Some(save::<P>),
            restore: Some(restore::<P>),
            state_version: P::STATE_VERSION,
            interest: P::INTEREST,
        })
    }

    /// For the host.
    pub const fn api(&self) -> *const abi::Api {
        &self.0
    }
}

/// Runs the policy's code; a panic becomes a status, since it must not unwind into C.
fn guard(code: impl FnOnce() -> i32) -> i32 {
    // What a panic leaves half done is not looked at again: the host drops a failed instance.
    catch_unwind(AssertUnwindSafe(code)).unwrap_or(status::FAILED)
}

/// # Safety
///
/// `sink` comes from the host, during the call it was given for.
unsafe fn write(sink: *mut abi::Sink, bytes: &[u8]) -> i32 {
    // SAFETY: as the caller vouches.
    unsafe { ((*sink).write)(sink, bytes.as_ptr().cast(), bytes.len()) }
}

/// # Safety
///
/// As [`write`].
unsafe fn refuse(refusal: &Refusal, error: *mut abi::Sink) -> i32 {
    match refusal {
        Refusal::Invalid(reason) => {
            // SAFETY: as the caller vouches. A text that is too long is left out.
            let _ = unsafe { write(error, reason.as_bytes()) };
            status::INVALID
        }
        Refusal::NotFound => status::NOT_FOUND,
        Refusal::Unsupported => status::UNSUPPORTED,
        Refusal::Corrupt => status::CORRUPT,
    }
}

// SAFETY of the functions below: the host keeps the promises of terrace_policy.h: what it points to
// is valid during the call, an instance is what `create` made, and calls with it do not overlap.

unsafe extern "C" fn create<P: Policy>(
    view: *const abi::View,
    instance: *mut *mut c_void,
    error: *mut abi::Sink,
) -> i32 {
    guard(|| {
        // SAFETY: see above.
        match P::create(&unsafe { View::new(view) }) {
            Ok(policy) => {
                // SAFETY: see above.
                unsafe { *instance = Box::into_raw(Box::new(policy)).cast() };
                status::OK
            }
            // SAFETY: see above.
            Err(refusal) => unsafe { refuse(&refusal, error) },
        }
    })
}

unsafe extern "C" fn destroy<P: Policy>(instance: *mut c_void) {
    guard(|| {
        // SAFETY: see above; this is the last use.
        drop(unsafe { Box::from_raw(instance.cast::<P>()) });
        status::OK
    });
}

unsafe extern "C" fn observe<P: Policy>(
    instance: *mut c_void,
    view: *const abi::View,
    events: *const abi::Event,
    count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: see above.
        let (policy, view, events) =
            unsafe { (&mut *instance.cast::<P>(), View::new(view), list(events, count)) };
        policy.observe(&view, events);
        status::OK
    })
}

unsafe extern "C" fn plan<P: Policy>(
    instance: *mut c_void,
    view: *const abi::View,
    actions: *mut abi::Actions,
) -> i32 {
    guard(|| {
        // SAFETY: see above.
        let (policy, view, mut actions) =
            unsafe { (&mut *instance.cast::<P>(), View::new(view), Actions::new(actions)) };
        policy.plan(&view, &mut actions);
        status::OK
    })
}

unsafe extern "C" fn publish<P: Policy>(instance: *const c_void, sink: *mut abi::Sink) -> i32 {
    guard(|| {
        // SAFETY: see above.
        let published = unsafe { &*instance.cast::<P>() }.publish();
        let bytes = (&raw const published).cast::<c_void>();
        // SAFETY: see above; the host copies the bytes.
        unsafe { ((*sink).write)(sink, bytes, size_of::<P::Published>()) }
    })
}

unsafe extern "C" fn place<P: Policy>(
    published: *const c_void,
    published_bytes: usize,
    placement: *const abi::Placement,
    placed: *mut abi::Placed,
) -> i32 {
    guard(|| {
        if published_bytes != size_of::<P::Published>() {
            return status::FAILED;
        }
        let published = match published_bytes {
            0 => NonNull::dangling().as_ptr(),
            _ => published.cast::<P::Published>().cast_mut(),
        };
        // SAFETY: see above; the bytes are a copy, aligned to 16, of what `publish` wrote.
        let answer = unsafe { P::place(&*published, &Placement::new(placement)) };
        // SAFETY: see above.
        let placed = unsafe { &mut *placed };
        match answer {
            Placed::Whole { tier } => (placed.tier, placed.layout) = (tier, layout::ONE),
            Placed::Cut { tier, segment_bytes } => {
                (placed.tier, placed.layout) = (tier, layout::FIXED);
                placed.segment_bytes = segment_bytes;
            }
            Placed::Head { tier, head_bytes } => {
                (placed.tier, placed.layout) = (tier, layout::STEPS);
                (placed.start_count, placed.starts_bytes[0]) = (1, head_bytes);
            }
        }
        status::OK
    })
}

unsafe extern "C" fn message<P: Policy>(
    instance: *mut c_void,
    view: *const abi::View,
    kind: abi::Text,
    body: *const c_void,
    body_bytes: usize,
    reply: *mut abi::Sink,
    error: *mut abi::Sink,
) -> i32 {
    guard(|| {
        // SAFETY: see above.
        let (policy, view, kind, body) = unsafe {
            let policy = &mut *instance.cast::<P>();
            (policy, View::new(view), text(kind), list(body.cast::<u8>(), body_bytes))
        };
        match policy.message(&view, kind, body) {
            // SAFETY: see above.
            Ok(answer) => unsafe { write(reply, &answer) },
            // SAFETY: see above.
            Err(refusal) => unsafe { refuse(&refusal, error) },
        }
    })
}

unsafe extern "C" fn parameters<P: Policy>(
    instance: *const c_void,
    parameters: *mut abi::Parameters,
) -> i32 {
    guard(|| {
        // SAFETY: see above.
        for parameter in unsafe { &*instance.cast::<P>() }.parameters() {
            let name = abi::Text::new(parameter.name);
            let value = abi::Text::new(&parameter.value);
            let description = abi::Text::new(parameter.description);
            // SAFETY: see above.
            let status = unsafe { ((*parameters).add)(parameters, name, value, description) };
            if status != status::OK {
                return status;
            }
        }
        status::OK
    })
}

unsafe extern "C" fn set_parameter<P: Policy>(
    instance: *mut c_void,
    name: abi::Text,
    value: abi::Text,
    error: *mut abi::Sink,
) -> i32 {
    guard(|| {
        // SAFETY: see above.
        let (policy, name, value) =
            unsafe { (&mut *instance.cast::<P>(), text(name), text(value)) };
        match policy.set_parameter(name, value) {
            Ok(()) => status::OK,
            // SAFETY: see above.
            Err(refusal) => unsafe { refuse(&refusal, error) },
        }
    })
}

unsafe extern "C" fn save<P: Policy>(
    instance: *const c_void,
    view: *const abi::View,
    state: *mut abi::Sink,
) -> i32 {
    guard(|| {
        let mut bytes = Vec::new();
        // SAFETY: see above.
        let (policy, view) = unsafe { (&*instance.cast::<P>(), View::new(view)) };
        policy.save(&view, &mut bytes);
        // SAFETY: see above.
        unsafe { write(state, &bytes) }
    })
}

unsafe extern "C" fn restore<P: Policy>(
    instance: *mut c_void,
    view: *const abi::View,
    version: u32,
    state: *const c_void,
    state_bytes: usize,
    error: *mut abi::Sink,
) -> i32 {
    guard(|| {
        // SAFETY: see above.
        let (policy, view, state) = unsafe {
            let policy = &mut *instance.cast::<P>();
            (policy, View::new(view), list(state.cast::<u8>(), state_bytes))
        };
        match policy.restore(&view, version, state) {
            Ok(()) => status::OK,
            // SAFETY: see above.
            Err(refusal) => unsafe { refuse(&refusal, error) },
        }
    })
}
