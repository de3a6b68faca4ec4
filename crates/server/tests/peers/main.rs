// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server and peers that do what they should not, or more than they should: whatever they do, the
//! others are served.

#[path = "../common/mod.rs"]
mod common;

mod appends;
mod bounds;
mod drafts;
mod ended;
mod floods;
mod frames;
mod greetings;
mod kept;
mod later;
mod lives;
mod losses;
mod refused;
mod slow;
mod transfers;
mod unanswered;
