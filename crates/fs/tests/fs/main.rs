// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and names, from outside.

mod broken;
mod claimed;
mod claims;
mod closes;
mod common;
mod gone;
mod listed_ahead;
mod lost;
mod marks;
mod moved;
mod nodes;
mod numbered;
mod opened_ahead;
mod removed;
mod replaced;
mod settled;
mod swept;
mod unlinked;
mod users;
mod writes;
