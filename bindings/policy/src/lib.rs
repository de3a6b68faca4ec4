// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write a Terrace policy in safe Rust and build it as a shared library.
//!
//! Implement [`Policy`], name the type in [`export_policy!`], build a `cdylib`, and name the
//! library in the configuration. `terrace_policy.h` is the manual of the boundary;
//! `examples/policies/write-buffer-rust` is complete.
//!
//! A panic does not leave the library: Terrace replaces the policy by its fallback. That needs
//! unwinding, so do not build with `panic = "abort"`.

mod table;
mod view;

use std::fmt;

pub use table::Table;
pub use terrace_policy_abi::{
    Event, Prices, SIZE_UNKNOWN, SLOT_NONE, event, interest, outcome, temperature,
};
pub use view::{Actions, Placement, Segment, Tier, View, Wish, WishKind};

#[doc(hidden)]
pub use terrace_policy_abi::Api;

/// Decides where segments live. Pure: no I/O, no clock, no threads, chance only from [`View::random`].
///
/// The methods with a body are those that the C interface leaves optional.
pub trait Policy: Send + Sized + 'static {
    /// Its name for people: 1 to 64 bytes.
    const NAME: &'static str;

    /// Version of what `save` writes.
    const STATE_VERSION: u32 = 0;

    /// Optional kinds of events that it wants: [`interest::STAT`], [`interest::SYNC`], or both.
    const INTEREST: u32 = 0;

    /// What [`Policy::place`] knows of the policy's mind: a small struct of numbers.
    type Published: Copy + Send + Sync + 'static;

    /// Makes a policy with default parameters. The view shows the tiers; segments follow as events.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] for tiers that it cannot work with.
    fn create(view: &View<'_>) -> Result<Self, Refusal>;

    /// What `place` may know from now on; asked for after every call that may change it.
    fn publish(&self) -> Self::Published;

    /// Chooses where a new segment goes. Runs beside every other call while an application waits, and
    /// has under a microsecond; `terrace_policy.h` says what becomes of one that takes much longer.
    fn place(published: &Self::Published, new: &Placement<'_>) -> Placed;

    /// Takes note of what happened, oldest first.
    fn observe(&mut self, view: &View<'_>, events: &[Event]);

    /// Proposes actions, most useful first, until [`Actions::push`] says that the budget is used.
    fn plan(&mut self, view: &View<'_>, actions: &mut Actions<'_>);

    /// Answers a message.
    ///
    /// # Errors
    ///
    /// [`Refusal::Unsupported`] for an unknown kind, [`Refusal::Invalid`] for an unreadable body.
    fn message(&mut self, _view: &View<'_>, _kind: &str, _body: &[u8]) -> Result<Vec<u8>, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// The parameters with their values as they are now.
    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// Changes a parameter, also while running.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`] for an unknown name, [`Refusal::Invalid`] with what would be right.
    fn set_parameter(&mut self, _name: &str, _value: &str) -> Result<(), Refusal> {
        Err(Refusal::NotFound)
    }

    /// Writes what a restart or a hot swap should keep, naming segments by key.
    fn save(&self, _view: &View<'_>, _out: &mut Vec<u8>) {}

    /// Takes over what `save` wrote.
    ///
    /// # Errors
    ///
    /// [`Refusal::Unsupported`] for another version, [`Refusal::Corrupt`].
    fn restore(&mut self, _view: &View<'_>, _version: u32, _state: &[u8]) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }
}

/// Why a policy does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is wrong; the text says what would be right.
    Invalid(String),
    /// No parameter has this name.
    NotFound,
    /// The kind of message or the version of the state is not known.
    Unsupported,
    /// The state is damaged.
    Corrupt,
}

/// A setting of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Its value now.
    pub value: String,
    /// One sentence: what it does, in which unit, and its bounds.
    pub description: &'static str,
}

impl Parameter {
    /// A parameter from its three texts.
    pub fn new(name: &'static str, value: impl fmt::Display, description: &'static str) -> Self {
        Self { name, value: value.to_string(), description }
    }
}

/// Where a new segment goes. Where the tier is full the stack goes on to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// On a tier, as one segment.
    Whole {
        /// The tier.
        tier: u32,
    },
    /// On a tier, cut into segments of one size.
    Cut {
        /// The tier.
        tier: u32,
        /// Length of every segment but the last, at least 1.
        segment_bytes: u64,
    },
    /// On a tier: a head of its own, and the rest behind it.
    Head {
        /// The tier.
        tier: u32,
        /// Length of the head, at least 1.
        head_bytes: u64,
    },
}

/// Exports a [`Policy`] as the policy of this library.
#[macro_export]
macro_rules! export_policy {
    ($policy:ty) => {
        /// The entry of `terrace_policy.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn terrace_policy_entry(_host_abi_version: u32) -> *const $crate::Api {
            static TABLE: $crate::Table = $crate::Table::of::<$policy>();
            TABLE.api()
        }
    };
}
