// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of a store and its `terrace.toml`: what the settings say, and tiers and policies made as they say.
//!
//! [`Settings`] reads and checks the file, [`amend`] changes it while the store runs, [`tiers`] and [`policy`] make
//! what it names. [`Directory`] has the files of a store, [`Places`] the directories that nothing else may write to, [`Lock`]
//! the process that owns the store, and [`attach()`] and [`Url`] reach a store that another process owns. [`TierText`] is
//! a tier as one word of a command line.

pub mod amend;
mod attach;
mod creation;
mod directory;
mod file;
mod lock;
mod places;
pub mod policy;
mod stack;
mod tier_text;
pub mod tiers;
mod url;

pub use amend::policy_section;
pub use attach::attach;
pub use creation::{Made, check_new, clear_own, write_durably};
pub use directory::{Directory, check_there, sync_directory};
pub use file::{
    BurstSettings, CachedSettings, CatalogSettings, CheckpointPlace, CheckpointSettings, Compress,
    DeviceSettings, PolicySettings, PolicySource, Settings, SwitchSettings, ThrottleSettings,
    TierSettings, TraceSettings,
};
pub use lock::{Holder, Lock, Patience};
pub use places::{Place, Places};
pub use policy::Guest;
pub use stack::{boot_id, stack_settings, trace_settings};
pub use tier_text::TierText;
pub use url::{Connected, Url};
