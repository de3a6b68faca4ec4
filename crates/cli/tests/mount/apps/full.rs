// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers that are full: programs are told so, and what was acknowledged before is there.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use terrace_core::Random;

use super::Stage;
use super::mover::Mover;
use crate::scene::{Scene, wait_until};
use crate::suites::{How, Place};

/// Of each of the two tiers.
const CAPACITY: &str = "12MiB";

/// Both are full somewhere above that: migrations have reserved the rest.
const FULL_BYTES_MIN: u64 = 12 << 20;

/// Files are written and grow by as much at a time, which is acknowledged before the next.
const PART_BYTES: usize = 100_000;
const PARTS_MAX: u64 = 12;

/// So often everything is filled, and half of it deleted.
const FILLINGS: u64 = 3;

/// A file, and what of it was acknowledged.
struct Written {
    name: String,
    bytes: Vec<u8>,
}

#[test]
fn full_tiers_lose_nothing() {
    lose_nothing(How::Served);
}

#[test]
fn full_tiers_lose_nothing_behind_a_server() {
    lose_nothing(How::Network);
}

fn lose_nothing(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(scene) = Scene::with_capacity(CAPACITY) else { return };
        let place = Place::with_scene(scene, how, &[]);
        let stage = Stage { place, what: "full", how, seed };
        let mover = Mover::start(&stage.place.scene, stage.path(), seed);
        let mut random = Random::new(seed);
        let mut written = Vec::new();
        for filling in 0..FILLINGS {
            fill(stage.path(), filling, &mut random, &mut written);
            let bytes: u64 = written.iter().map(|file: &Written| file.bytes.len() as u64).sum();
            assert!(bytes > FULL_BYTES_MIN, "{bytes} bytes are all that there was room for");
            compare(stage.path(), &written);
            let mut removed_bytes = 0;
            for index in (0..written.len()).rev().filter(|index| index % 2 == 0) {
                let gone = written.swap_remove(index);
                fs::remove_file(stage.path().join(gone.name)).expect("it is there");
                removed_bytes += gone.bytes.len() as u64;
            }
            compare(stage.path(), &written);
            // The kernel tells later that nobody has them open, and objects are deleted in the
            // background; migrations reserve room, too.
            wait_until("there is room again", || {
                let free = rustix::fs::statvfs(stage.path()).expect("it is mounted");
                free.f_bavail * free.f_frsize >= removed_bytes / 2
            });
        }
        println!("full, {how:?}: seed {seed}, {FILLINGS} fillings, {} migrations", mover.moves());
        drop(mover);
        stage.end();
    }
}

/// Writes files until there is no room.
fn fill(directory: &Path, filling: u64, random: &mut Random, written: &mut Vec<Written>) {
    for number in 0.. {
        let name = format!("file{filling}.{number}");
        let path = directory.join(&name);
        let mut one = Written { name, bytes: Vec::new() };
        let told = grow(&path, 1 + random.below(PARTS_MAX), random, &mut one);
        if path.exists() {
            written.push(one);
        }
        if let Err(error) = told {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            return;
        }
    }
}

fn grow(path: &Path, parts: u64, random: &mut Random, one: &mut Written) -> io::Result<()> {
    let mut file = File::create(path)?;
    for _ in 0..parts {
        let mut part = vec![0; PART_BYTES];
        random.fill(&mut part);
        file.write_all(&part)?;
        file.sync_data()?;
        one.bytes.extend(part);
    }
    Ok(())
}

/// Whether everything that was acknowledged is there; what failed may have come in part behind it.
fn compare(directory: &Path, written: &[Written]) {
    for Written { name, bytes } in written {
        let mut found = Vec::new();
        let mut file = File::open(directory.join(name)).expect("it is there");
        file.read_to_end(&mut found).expect("readable");
        assert!(found.starts_with(bytes), "{name} is not what was acknowledged");
        assert!(found.len() - bytes.len() <= PART_BYTES, "{name} is too long");
    }
}
