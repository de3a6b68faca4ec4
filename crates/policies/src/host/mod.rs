// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies in shared libraries: loads one by path and presents it as a [`Policy`].
//!
//! `include/terrace_policy.h` is the manual of the boundary. Everything that comes back over it is
//! checked here: nonsense becomes an error or a refused action. What cannot be checked is a library
//! that breaks C's own rules; it has the process in its hands.
#![allow(unsafe_code, reason = "calls functions of a shared library")]

mod end;
mod exchange;
mod library;
mod mirror;
mod placer;

use std::ffi::c_void;
use std::mem;
use std::panic::resume_unwind;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use terrace_core::units::format_duration;
use terrace_core::{
    Actions, Error, ErrorKind, Event, Interest, Parameter, Placer, Policy, Random, Result, View,
};
use terrace_policy_abi as abi;

use end::End;
use exchange::{Buffer, ParameterList, Wishes};
use library::Library;
use mirror::Mirror;

use crate::mechanism::boundary::give_up;

/// Longest that a library may take to load, to make its instance and to take its parameters.
const LOAD_TIME_MAX: Duration = Duration::from_secs(20);

/// Loads the policy in the shared library at `path` and gives it its parameters, in order.
///
/// The file is read once: replacing it later changes nothing until it is loaded again, and loading
/// it again gives the new code even while the old one still runs.
///
/// # Errors
///
/// `NotFound` and other errors of the operating system; `Unsupported` for another version of the
/// interface; `Invalid` for a file that is no policy library, for a library that makes no policy for
/// these tiers or does not answer for 20 seconds, and for wrong parameters.
pub fn load(path: &Path, view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    load_within(LOAD_TIME_MAX, path, view, parameters)
}

/// The same with a timeout. A library that does not answer by then is left behind in a thread of
/// its own; so is what it makes later.
///
/// # Errors
///
/// Those of [`load`]; `Invalid` where there was no answer.
pub fn load_within(
    longest: Duration,
    path: &Path,
    view: &View,
    parameters: &[(String, String)],
) -> Result<Box<dyn Policy>> {
    const OPERATION: &str = "start the policy";
    let (loaded, is_loaded) = channel();
    let (file, view, parameters) = (path.to_path_buf(), view.clone(), parameters.to_vec());
    let thread = thread::Builder::new().name("terrace-load".into()).spawn(move || {
        // Where the caller has stopped waiting, it is destroyed here.
        let _ = loaded.send(load_here(&file, &view, &parameters));
    });
    let thread = thread.map_err(|error| Error::from_io(OPERATION, error))?;
    match is_loaded.recv_timeout(longest) {
        Err(RecvTimeoutError::Timeout) => {
            let reason = format!("no answer within {}", format_duration(longest));
            Err(Error::invalid(OPERATION, reason).with("library", path.display()))
        }
        answer => {
            // A library that fails while it is given its parameters ends the thread.
            thread.join().unwrap_or_else(|payload| resume_unwind(payload));
            answer.expect("a thread that ends by itself has sent its answer")
        }
    }
}

fn load_here(path: &Path, view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let mut policy = Hosted::create(Arc::new(Library::open(path)?), view)
        .map_err(|error| error.with("library", path.display()))?;
    for (name, value) in parameters {
        policy.set_parameter(name, value)?;
    }
    Ok(Box::new(policy))
}

/// A policy whose code is in a shared library.
struct Hosted {
    library: Arc<Library>,
    /// From the library's `create`; only the library looks behind it.
    instance: *mut c_void,
    /// Says that the instance is broken, so that it is not even destroyed.
    is_failed: bool,
    mirror: Mirror,
    events: Vec<abi::Event>,
    random: Random,
}

// SAFETY: the header allows calls from different threads as long as they do not overlap, which
// `&mut self` and the lack of `Sync` ensure. The mirror's pointers point into keys that it owns.
unsafe impl Send for Hosted {}

impl Hosted {
    fn create(library: Arc<Library>, view: &View) -> Result<Self> {
        let mirror = Mirror::default();
        let mut random = view.random.clone();
        let mut instance = ptr::null_mut();
        let mut error = Buffer::with_limit(abi::ERROR_BYTES_MAX);
        let tiers = mirror::tiers(view);
        let c_view = mirror.view(view, &tiers, &mut random);
        // SAFETY: all pointers are valid during the call.
        let status = unsafe { (library.create)(&c_view, &mut instance, &mut error.sink()) };
        if status != abi::status::OK || instance.is_null() {
            let reason = match error.into_text() {
                text if !text.is_empty() => text,
                _ if status == abi::status::OK => "it made no instance".into(),
                _ => format!("it refused with status {status}"),
            };
            return Err(Error::invalid("start the policy", reason).with("policy", &library.name));
        }
        Ok(Self { library, instance, is_failed: false, mirror, events: Vec::new(), random })
    }

    /// Ends a call that has no error to return. The panic is what the contract of [`Policy`]
    /// offers: the stack replaces the policy by its fallback and reports the text.
    fn require_ok(&mut self, call: &str, status: i32) {
        if status != abi::status::OK {
            self.is_failed = true;
            fail(&self.library.name, call, status);
        }
    }

    /// Ends a call that may refuse.
    fn accept(
        &mut self,
        call: &str,
        operation: &'static str,
        status: i32,
        error: Buffer,
    ) -> Result<()> {
        let kind = match status {
            abi::status::OK => return Ok(()),
            abi::status::INVALID => ErrorKind::Invalid,
            abi::status::NOT_FOUND => ErrorKind::NotFound,
            abi::status::UNSUPPORTED => ErrorKind::Unsupported,
            abi::status::CORRUPT => ErrorKind::Corrupt,
            _ => {
                self.is_failed = true;
                fail(&self.library.name, call, status)
            }
        };
        let refused = match error.into_text() {
            text if text.is_empty() => Error::new(kind, operation),
            text => Error::new(kind, operation).because(text),
        };
        Err(refused.with("policy", &self.library.name))
    }

    fn unsupported(&self, operation: &'static str, reason: &str) -> Error {
        Error::new(ErrorKind::Unsupported, operation)
            .because(reason)
            .with("policy", &self.library.name)
    }
}

fn fail(name: &str, call: &str, status: i32) -> ! {
    give_up(format!("the policy library {name} failed in {call} with status {status}"))
}

impl Policy for Hosted {
    fn placer(&self) -> Arc<dyn Placer> {
        let mut published = Buffer::with_limit(abi::PUBLISHED_BYTES_MAX);
        if let Some(publish) = self.library.publish {
            // SAFETY: the instance is alive, and the sink is valid during the call.
            let status = unsafe { publish(self.instance, &mut published.sink()) };
            if status != abi::status::OK {
                fail(&self.library.name, "publish", status);
            }
        }
        Arc::new(placer::Published::new(self.library.clone(), &published.into_bytes()))
    }

    fn interest(&self) -> Interest {
        self.library.interest
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        self.events.clear();
        for event in events {
            if self.mirror.follow(view, event) {
                self.events.push(exchange::event(event));
            }
        }
        let tiers = mirror::tiers(view);
        let c_view = self.mirror.view(view, &tiers, &mut self.random);
        let observe = self.library.observe;
        // SAFETY: the instance is alive; view and events are valid during the call.
        let status =
            unsafe { observe(self.instance, &c_view, self.events.as_ptr(), self.events.len()) };
        self.require_ok("observe", status);
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        let tiers = mirror::tiers(view);
        let c_view = self.mirror.view(view, &tiers, &mut self.random);
        let mut wishes = Wishes::new(view, actions);
        let plan = self.library.plan;
        // SAFETY: the instance is alive; view and actions are valid during the call.
        let status = unsafe { plan(self.instance, &c_view, &mut wishes.actions()) };
        self.require_ok("plan", status);
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        const OPERATION: &str = "answer the message";
        let Some(message) = self.library.message else {
            return Err(self.unsupported(OPERATION, "the policy takes no messages"));
        };
        let mut reply = Buffer::with_limit(abi::REPLY_BYTES_MAX);
        let mut error = Buffer::with_limit(abi::ERROR_BYTES_MAX);
        let tiers = mirror::tiers(view);
        let c_view = self.mirror.view(view, &tiers, &mut self.random);
        // SAFETY: the instance is alive; everything passed is valid during the call.
        let status = unsafe {
            message(
                self.instance,
                &c_view,
                abi::Text::new(kind),
                body.as_ptr().cast(),
                body.len(),
                &mut reply.sink(),
                &mut error.sink(),
            )
        };
        if reply.is_overflown() {
            return Err(Error::invalid(OPERATION, "the answer is too long")
                .with("policy", &self.library.name)
                .with("answer_bytes_max", abi::REPLY_BYTES_MAX));
        }
        self.accept("message", OPERATION, status, error)
            .map_err(|refused| refused.with("kind", kind))?;
        Ok(reply.into_bytes())
    }

    fn parameters(&self) -> Vec<Parameter> {
        let Some(parameters) = self.library.parameters else { return Vec::new() };
        let mut list = ParameterList::default();
        // SAFETY: the instance is alive, and the list is valid during the call.
        let status = unsafe { parameters(self.instance, &mut list.parameters()) };
        if status != abi::status::OK && !list.is_full() {
            fail(&self.library.name, "parameters", status);
        }
        list.into_list()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        const OPERATION: &str = "set the parameter";
        let mut error = Buffer::with_limit(abi::ERROR_BYTES_MAX);
        let status = match self.library.set_parameter {
            // SAFETY: the instance is alive; everything passed is valid during the call.
            Some(set_parameter) => unsafe {
                let (name, value) = (abi::Text::new(name), abi::Text::new(value));
                set_parameter(self.instance, name, value, &mut error.sink())
            },
            None => abi::status::NOT_FOUND,
        };
        if status == abi::status::NOT_FOUND && error.is_empty() {
            error.append(known_parameters(&self.parameters()).as_bytes());
        }
        self.accept("set_parameter", OPERATION, status, error)
            .map_err(|refused| refused.with("parameter", name).with("value", value))
    }

    fn state_version(&self) -> u32 {
        self.library.state_version
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        let Some(save) = self.library.save else { return };
        let mut state = Buffer::with_limit(abi::STATE_BYTES_MAX);
        let mut random = self.random.clone();
        let tiers = mirror::tiers(view);
        let c_view = self.mirror.view(view, &tiers, &mut random);
        // SAFETY: the instance is alive; view and sink are valid during the call.
        let status = unsafe { save(self.instance, &c_view, &mut state.sink()) };
        // Half a state is worse than none.
        if state.is_overflown() {
            return;
        }
        if status != abi::status::OK {
            fail(&self.library.name, "save", status);
        }
        out.append(&mut state.into_bytes());
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        const OPERATION: &str = "restore the policy's state";
        if state.is_empty() {
            return Ok(());
        }
        let Some(restore) = self.library.restore else {
            return Err(self.unsupported(OPERATION, "the policy takes no state"));
        };
        let mut error = Buffer::with_limit(abi::ERROR_BYTES_MAX);
        let tiers = mirror::tiers(view);
        let c_view = self.mirror.view(view, &tiers, &mut self.random);
        // SAFETY: the instance is alive; everything passed is valid during the call.
        let status = unsafe {
            let (bytes, length) = (state.as_ptr().cast(), state.len());
            restore(self.instance, &c_view, version, bytes, length, &mut error.sink())
        };
        self.accept("restore", OPERATION, status, error)
            .map_err(|refused| refused.with("state_version", version))
    }
}

fn known_parameters(parameters: &[Parameter]) -> String {
    let names: Vec<_> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    match names.as_slice() {
        [] => "the policy has no parameters".into(),
        names => format!("the policy has no such parameter, only {}", names.join(", ")),
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if self.is_failed {
            return;
        }
        // SAFETY: the instance is alive and this is its last use.
        let end = unsafe { End::new(self.library.destroy, self.instance) };
        if !end.carry_out() {
            mem::forget(Arc::clone(&self.library));
        }
    }
}
