// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What policies share: everything that is the same whichever segment is chosen.

pub(crate) mod boundary;
pub(crate) mod gate;
pub(crate) mod glob;
pub(crate) mod habits;
pub(crate) mod order;
pub(crate) mod pace;
pub(crate) mod parameters;
pub(crate) mod place;
pub(crate) mod roster;
pub(crate) mod rows;
pub(crate) mod saved;
pub(crate) mod staging;
pub(crate) mod tiering;
pub(crate) mod window;
