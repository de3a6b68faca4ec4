// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace promises: everything comes back, what is damaged is left out and said, and no
//! bytes bring a reader down.

mod damage;
mod files;
mod replay;
mod round_trip;
mod world;
