// SPDX-License-Identifier: Apache-2.0 OR MIT
//! store

mod settings;

pub use settings::{CatalogSettings, PolicySettings, PolicySource};
pub use settings::{Settings, ThrottleSettings, TierSettings};
