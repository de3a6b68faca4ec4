// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many stores as one, over stores in this process.

mod behaviour;
mod cluster;
mod counted;
mod doubtful;
mod faults;
mod growth;
mod leftovers;
mod model;
mod objects;
mod pairs;
mod power;
mod puts;
mod space;
