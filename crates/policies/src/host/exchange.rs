// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a library writes during a call: bytes, actions, parameters; and events on their way to it.

use std::ffi::c_void;
use std::slice;

use terrace_core::{Action, Actions, Event, Parameter, View};
use terrace_policy_abi::{self as abi, status};

use crate::mechanism::boundary::{action_kind, benefit_s, moved_bytes};

/// The bytes of a text from a library; `None` for one that cannot be meant.
///
/// # Safety
///
/// A text that is not NULL points to as many bytes as it says, which stay unchanged for `'a`.
pub(super) unsafe fn bytes<'a>(text: abi::Text) -> Option<&'a [u8]> {
    match (text.bytes.is_null(), text.length) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        (false, length) if length > abi::TEXT_BYTES_MAX => None,
        // SAFETY: the caller vouches for it.
        (false, length) => Some(unsafe { slice::from_raw_parts(text.bytes, length) }),
    }
}

/// What people read must not fail for a bad byte: it is shown as U+FFFD.
fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that a library writes, up to a limit.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    limit_bytes: usize,
    is_overflown: bool,
}

impl Buffer {
    pub(super) fn with_limit(limit_bytes: usize) -> Self {
        Self { bytes: Vec::new(), limit_bytes, is_overflown: false }
    }

    /// What the library gets for one call, which alone uses the buffer meanwhile.
    pub(super) fn sink(&mut self) -> abi::Sink {
        abi::Sink {
            struct_bytes: size_of::<abi::Sink>() as u32,
            reserved: 0,
            write,
            host: (&raw mut *self).cast::<c_void>(),
        }
    }

    /// Takes all of `bytes` or, beyond the limit, nothing.
    pub(super) fn append(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.limit_bytes - self.bytes.len() {
            self.is_overflown = true;
            return false;
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether something did not fit.
    pub(super) fn is_overflown(&self) -> bool {
        self.is_overflown
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn into_text(self) -> String {
        show(&self.bytes)
    }
}

unsafe extern "C" fn write(sink: *mut abi::Sink, bytes: *const c_void, length: usize) -> i32 {
    if sink.is_null() || (bytes.is_null() && length > 0) {
        return status::INVALID;
    }
    if length == 0 {
        return status::OK;
    }
    // SAFETY: `Buffer::sink` put the buffer there, which only this call uses.
    let buffer = unsafe { &mut *(*sink).host.cast::<Buffer>() };
    // The limit comes first, so that an absurd length is not read.
    if length > buffer.limit_bytes {
        buffer.is_overflown = true;
        return status::FULL;
    }
    // SAFETY: the header requires that the library passes as many bytes as it says.
    let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), length) };
    if buffer.append(bytes) { status::OK } else { status::FULL }
}

/// Takes the actions of one plan.
pub(super) struct Wishes<'a> {
    view: &'a View,
    actions: &'a mut Actions,
}

impl<'a> Wishes<'a> {
    pub(super) fn new(view: &'a View, actions: &'a mut Actions) -> Self {
        Self { view, actions }
    }

    /// What the library gets for one call, which alone uses the wishes meanwhile.
    pub(super) fn actions(&mut self) -> abi::Actions {
        abi::Actions {
            struct_bytes: size_of::<abi::Actions>() as u32,
            count_left: self.count_left(),
            bytes_left: self.actions.bytes_left(),
            push,
            host: (&raw mut *self).cast::<c_void>(),
        }
    }

    fn count_left(&self) -> u32 {
        u32::try_from(self.actions.count_left()).unwrap_or(u32::MAX)
    }

    fn push(&mut self, wish: &abi::Action) -> i32 {
        let Some(kind) = action_kind(wish.kind, wish.tier) else { return status::INVALID };
        // A library may go on for ever; nothing is copied for what does not fit.
        if self.actions.count_left() == 0 {
            return status::FULL;
        }
        // SAFETY: the header requires that the reason is valid during the call.
        let Some(reason) = (unsafe { bytes(wish.reason) }) else { return status::INVALID };
        let reason = show(&reason[..reason.len().min(abi::REASON_BYTES_MAX)]);
        let action = Action {
            slot: wish.slot,
            incarnation: wish.incarnation,
            kind,
            priority: wish.priority,
            reason,
            benefit_s: benefit_s(wish.benefit_s),
        };
        let moved_bytes = moved_bytes(self.view, &action);
        if self.actions.push(action, moved_bytes) { status::OK } else { status::FULL }
    }
}

unsafe extern "C" fn push(actions: *mut abi::Actions, wish: *const abi::Action) -> i32 {
    if actions.is_null() || wish.is_null() {
        return status::INVALID;
    }
    // SAFETY: `Wishes::actions` put the wishes there, which only this call uses.
    let wishes = unsafe { &mut *(*actions).host.cast::<Wishes<'_>>() };
    // SAFETY: every version of the struct begins with its size.
    let struct_bytes = unsafe { (*wish).struct_bytes as usize };
    if struct_bytes < size_of::<abi::Action>() {
        return status::INVALID;
    }
    // SAFETY: the action says that it has at least this size.
    let status = wishes.push(unsafe { &*wish });
    // SAFETY: the library passes the struct that it was given.
    unsafe {
        (*actions).count_left = wishes.count_left();
        (*actions).bytes_left = wishes.actions.bytes_left();
    }
    status
}

/// Takes the parameters of a policy.
#[derive(Debug, Default)]
pub(super) struct ParameterList {
    list: Vec<Parameter>,
}

impl ParameterList {
    /// What the library gets for one call, which alone uses the list meanwhile.
    pub(super) fn parameters(&mut self) -> abi::Parameters {
        abi::Parameters {
            struct_bytes: size_of::<abi::Parameters>() as u32,
            reserved: 0,
            add,
            host: (&raw mut *self).cast::<c_void>(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.list.len() == abi::PARAMETERS_MAX
    }

    pub(super) fn into_list(self) -> Vec<Parameter> {
        self.list
    }
}

unsafe extern "C" fn add(
    parameters: *mut abi::Parameters,
    name: abi::Text,
    value: abi::Text,
    description: abi::Text,
) -> i32 {
    if parameters.is_null() {
        return status::INVALID;
    }
    // SAFETY: `ParameterList::parameters` put the list there, which only this call uses.
    let list = unsafe { &mut *(*parameters).host.cast::<ParameterList>() };
    // SAFETY: the header requires that the texts are valid during the call.
    let texts = unsafe { (bytes(name), bytes(value), bytes(description)) };
    let (Some(name), Some(value), Some(description)) = texts else { return status::INVALID };
    if list.is_full() {
        return status::FULL;
    }
    list.list.push(Parameter::new(&show(name), show(value), &show(description)));
    status::OK
}

/// An event as the library sees it.
pub(super) fn event(event: &Event) -> abi::Event {
    abi::Event {
        kind: event.kind as u32,
        slot: event.slot,
        incarnation: event.incarnation,
        count: event.count,
        time_ns: event.time_ns,
        offset_bytes: event.offset_bytes,
        length_bytes: event.length_bytes,
        latency_ns: event.latency_ns,
        tier: event.tier.0.into(),
        outcome: event.outcome as u32,
    }
}
