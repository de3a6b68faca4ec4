// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts as programs see them: the real binary, its mounts and servers, compared with a directory of
//! the file system that the tiers are on.

mod ahead;
mod apps;
mod away;
mod background;
mod buckets;
mod clients;
mod companions;
mod cut_tails;
mod directories;
mod ended;
mod fallback;
#[path = "../../../bench/src/mount/foreign.rs"]
mod foreign;
mod fsx;
mod full_catalog;
mod given;
mod helper;
mod holder;
mod holes;
mod inherited;
mod killed;
mod listing;
mod locks;
mod lost_catalog;
mod lost_locks;
mod made;
mod made_later;
mod many;
mod marks;
mod metrics;
mod mounter;
mod moved;
mod natives;
mod outgrow;
mod page_cache;
mod passing;
mod pjdfstest;
mod promises;
mod put_off;
mod reads_ahead;
mod receipts;
mod reexport;
mod refusals;
mod removed_later;
mod replacing;
mod restarts;
mod round_trips;
mod scarce;
mod scene;
mod segments;
mod service_manager;
mod silent;
mod sources;
mod space;
mod steering;
mod suites;
mod times;
mod trees;
mod unlinked;
mod walks;
#[path = "../cli/watched_names.rs"]
mod watched_names;
mod writers;
mod writes;
