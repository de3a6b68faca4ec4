// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of the stack share.
#![allow(dead_code, reason = "both test programs use a part of it")]

pub(crate) mod bouncer;
pub(crate) mod crashing;
pub(crate) mod directories;
pub(crate) mod expected;
pub(crate) mod gate;
pub(crate) mod hooked;
pub(crate) mod pattern;
pub(crate) mod random_run;
pub(crate) mod restless;
pub(crate) mod scripted;
pub(crate) mod world;
