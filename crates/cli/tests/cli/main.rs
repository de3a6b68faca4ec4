// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `terrace` command as a script sees it: the real binary on real stores in temporary
//! directories.

mod bench;
mod bench_files;
mod bench_served;
mod calibrations;
mod conversions;
mod copies;
mod cut_off;
mod degraded;
mod encrypted;
mod formats;
mod held;
mod help;
mod imports;
mod items;
mod killed;
mod network;
mod objects;
mod pairs;
mod placement;
mod programs;
mod quotas;
mod repair;
mod replays;
mod scene;
mod scrubs;
mod serving;
mod signals;
mod small_node;
mod stores;
mod tiers;
mod traces;
mod trees;
mod tunings;
mod watching;
