// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that outgrow the tier on which they begin, and tiers that stay within their capacity.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, XattrFlags, copy_file_range, fallocate, setxattr};
use serde_json::Value;

use crate::full_catalog::Small;
use crate::scene::{Mounted, Scene, wait_until};
use crate::steering::{STATE, attribute};

/// In units: room on the disk of the fast tier, what each of two files takes of it at the beginning, more
/// than the disk has, and more than is left on it.
const DISK: usize = 100;
const FILLER: usize = 20;
const LARGE: usize = 122;
const MORE: usize = 80;

/// Units: the sizes of a report, and such as take less time.
const MIB: usize = 1 << 20;
const SMALL: usize = 256 << 10;

/// Ways to mount a store in the process that owns it.
const MODES: [&str; 3] = ["auto", "passthrough", "served"];

/// Written and compared piece by piece.
const PIECE_BYTES: usize = 256 << 10;

/// A store whose fast tier is on a small disk, and whose slow one is not.
struct Place {
    // In the order in which they have to end.
    mounted: Mounted,
    _disk: Small,
    scene: Scene,
    unit: usize,
}

impl Place {
    /// The fast tier has a capacity of so many units, if it has one.
    fn new(unit: usize, mode: &str, capacity: Option<usize>) -> Option<Self> {
        let scene = Scene::new()?;
        let size = CString::new(format!("size={}", DISK * unit)).expect("no zero");
        let disk = Small::with_size(scene.directory("disk"), &size);
        let capacity = capacity.map(|units| format!(",capacity={}KiB", (units * unit) >> 10));
        let fast = format!("fast=disk/tier{}", capacity.unwrap_or_default());
        let tiers = ["--tier", &fast, "--tier", "slow=roomy"];
        scene.ok(["init", "two", "--policy", "none"].into_iter().chain(tiers));
        let mounted = scene.mount_store("two", "mnt", &["--io", mode]);
        Some(Self { mounted, _disk: disk, scene, unit })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mounted.path().join(name)
    }

    /// Writes a file of its own pattern that is closed by the time this returns.
    fn fill(&self, name: &str, bytes: usize) {
        let path = self.path(name);
        let mut file = File::create(&path).expect("there is room");
        write_pattern(&mut file, 0, bytes).expect("there is room");
        drop(file);
        await_close(&path);
    }

    /// The lengths of a file at the beginning, of one that is longer than its tier has room, and the room
    /// that is asked for.
    fn lengths(&self) -> (usize, usize, usize) {
        (FILLER * self.unit, LARGE * self.unit, MORE * self.unit)
    }

    /// Two files of the same length.
    fn fill_both(&self) {
        for name in ["a", "b"] {
            self.fill(name, FILLER * self.unit);
        }
    }

    /// Removes what was made, and waits for the room.
    fn clear(&self) {
        for name in ["a", "b", "big"] {
            if let Err(error) = fs::remove_file(self.path(name)) {
                assert_eq!(error.kind(), ErrorKind::NotFound);
            }
        }
        wait_until("there is room again", || self.tier("fast")["used_bytes"] == 0);
    }

    fn tier(&self, name: &str) -> Value {
        let told = self.scene.ok(["--store", "two", "--json", "tiers"]);
        let mut told: Value = serde_json::from_str(&told).expect("JSON");
        let tiers = told["tiers"].as_array_mut().expect("it has some");
        tiers.iter().find(|tier| tier["name"] == name).expect("it is there").clone()
    }
}

fn await_close(path: &Path) {
    wait_until("nobody has it open", || attribute(path, STATE).as_deref() == Ok("closed"));
}

/// The byte at an offset of every file here.
fn byte(offset: usize) -> u8 {
    (offset >> 18) as u8 ^ (offset as u8 & 0x3f)
}

fn pattern(start: usize, bytes: usize) -> Vec<u8> {
    (start..start + bytes).map(byte).collect()
}

fn write_pattern(file: &mut impl Write, start: usize, bytes: usize) -> io::Result<()> {
    for offset in (start..start + bytes).step_by(PIECE_BYTES) {
        file.write_all(&pattern(offset, PIECE_BYTES.min(start + bytes - offset)))?;
    }
    Ok(())
}

/// Compares a file with the pattern, `zeros_from` which it has zeros.
#[track_caller]
fn check(path: &Path, zeros_from: usize, bytes: usize) {
    assert_eq!(fs::metadata(path).expect("it is there").len(), bytes as u64);
    let mut file = File::open(path).expect("it is there");
    let mut found = vec![0; PIECE_BYTES];
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        let found = &mut found[..PIECE_BYTES.min(bytes - offset)];
        file.read_exact(found).expect("readable");
        let is_zero = offset >= zeros_from;
        let expected = if is_zero { vec![0; found.len()] } else { pattern(offset, found.len()) };
        assert!(*found == expected, "the piece at {offset} differs");
    }
}

/// What makes a file long: what has the pattern then, and how long it is. `a` is there before.
type Grow = fn(&Place) -> (PathBuf, usize, usize);

const GROWTHS: [(&str, Grow); 8] = [
    ("a copy", |place| {
        let (_, large, _) = place.lengths();
        let from = place.scene.path("source");
        let mut source = File::create(&from).expect("there is room");
        write_pattern(&mut source, 0, large).expect("there is room");
        let path = place.path("big");
        let copied = Command::new("cp").arg(&from).arg(&path).status().expect("cp runs");
        assert!(copied.success());
        (path, large, large)
    }),
    ("a new length", |place| {
        let (_, _, more) = place.lengths();
        let path = place.path("big");
        let mut command = Command::new("truncate");
        let made = command.arg(format!("-s{more}")).arg(&path).status().expect("truncate runs");
        assert!(made.success());
        (path, 0, more)
    }),
    ("room for a new file", |place| {
        let (_, _, more) = place.lengths();
        let path = place.path("big");
        let file = File::create(&path).expect("there is room");
        fallocate(&file, FallocateFlags::empty(), 0, more as u64).expect("the other tier has room");
        (path, 0, more)
    }),
    ("writes behind the end", |place| {
        let (filler, large, _) = place.lengths();
        let path = place.path("a");
        let file = File::options().read(true).write(true).open(&path).expect("it is there");
        for offset in (filler..large).step_by(PIECE_BYTES) {
            let piece = pattern(offset, PIECE_BYTES);
            file.write_all_at(&piece, offset as u64).expect("the other tier has room");
        }
        (path, large, large)
    }),
    ("an open file's new length", |place| {
        let (filler, large, _) = place.lengths();
        let path = place.path("a");
        let file = File::options().read(true).write(true).open(&path).expect("it is there");
        file.set_len(large as u64).expect("the other tier has room");
        (path, filler, large)
    }),
    ("room for an open file", |place| {
        let (filler, _, more) = place.lengths();
        let path = place.path("a");
        let file = File::options().read(true).write(true).open(&path).expect("it is there");
        let room = (filler as u64, more as u64);
        fallocate(&file, FallocateFlags::empty(), room.0, room.1).expect("the other tier has room");
        (path, filler, filler + more)
    }),
    ("other bytes for a file", |place| {
        let (_, large, _) = place.lengths();
        let path = place.path("a");
        let mut file = File::create(&path).expect("it is there");
        write_pattern(&mut file, 0, large).expect("the other tier has room");
        (path, large, large)
    }),
    ("copies of a range", |place| {
        let (filler, large, _) = place.lengths();
        let path = place.path("a");
        let from = File::open(place.path("b")).expect("it is there");
        let mut to = File::options().append(true).open(&path).expect("it is there");
        write_pattern(&mut to, filler, large - filler).expect("there is room");
        let to = File::create(place.path("big")).expect("there is room");
        let mut end = 0;
        while end < filler as u64 {
            let (mut at, left) = (end, filler - end as usize);
            let copied = copy_file_range(&from, Some(&mut at), &to, Some(&mut end), left);
            assert!(copied.expect("the other tier has room") > 0);
        }
        check(&place.path("big"), filler, filler);
        (path, large, large)
    }),
];

#[test]
fn files_larger_than_the_room_of_their_tier_are_kept() {
    let Some(place) = Place::new(MIB, "auto", None) else { return };
    for (what, grow) in &GROWTHS[..3] {
        println!("{what}");
        place.fill_both();
        let (path, zeros_from, bytes) = grow(&place);
        check(&path, zeros_from, bytes);
        place.clear();
    }
}

#[test]
fn a_file_that_outgrows_its_tier_goes_on_elsewhere() {
    for mode in MODES {
        let Some(mut place) = Place::new(SMALL, mode, None) else { return };
        for (what, grow) in GROWTHS {
            println!("{mode}: {what}");
            place.fill_both();
            let (path, zeros_from, bytes) = grow(&place);
            check(&path, zeros_from, bytes);
            check(&place.path("b"), FILLER * SMALL, FILLER * SMALL);
            place.clear();
        }
        place.mounted.unmount();
        place.scene.ok(["--store", "two", "fsck"]);
    }
}

#[test]
fn a_tier_stays_within_its_capacity() {
    let capacity_bytes = (DISK / 2 * SMALL) as u64;
    for mode in MODES {
        let Some(place) = Place::new(SMALL, mode, Some(DISK / 2)) else { return };
        for (what, grow) in GROWTHS {
            println!("{mode}: {what}");
            place.fill_both();
            let (path, zeros_from, bytes) = grow(&place);
            let fast = place.tier("fast");
            let classes = ["used_bytes", "reserved_bytes", "copy_bytes", "garbage_bytes"];
            let taken: u64 = classes.iter().filter_map(|class| fast[class].as_u64()).sum();
            assert!(taken <= capacity_bytes, "{mode}, {what}: {fast}");
            let disk =
                rustix::fs::statvfs(place.scene.path("disk").as_path()).expect("it is there");
            let on_disk = (disk.f_blocks - disk.f_bfree) * disk.f_frsize;
            // Beside the objects there are directories and marks.
            assert!(on_disk <= capacity_bytes + (1 << 20), "{mode}, {what}: {on_disk}");
            check(&path, zeros_from, bytes);
            place.clear();
        }
    }
}

#[test]
fn a_namespace_stays_within_its_quota() {
    let quota = 30 * SMALL;
    for mode in MODES {
        let Some(place) = Place::new(SMALL, mode, None) else { return };
        let (filler, large, _) = place.lengths();
        place.fill("a", filler);
        let quota_text = format!("{}KiB", quota >> 10);
        place.scene.ok(["--store", "two", "quota", "set", "files", "--bytes", &quota_text]);
        let mut file = File::options().read(true).write(true).open(place.path("a")).expect("there");
        let error = write_pattern(&mut file, 0, large).expect_err("it is more than it may");
        let is_told = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded].contains(&error.kind());
        assert!(is_told, "{mode}: {error}");
        let length = file.metadata().expect("it is open").len() as usize;
        assert!((filler..=quota).contains(&length), "{mode}: {length}");
    }
}

/// A reader has the kernel read the tier's file, which then is the only one that the object can have:
/// other files leave the tier.
#[test]
fn a_file_that_is_read_through_the_kernel_grows_within_its_tier() {
    for (capacity, most) in [(None, DISK), (Some(DISK / 2), DISK / 2)] {
        let Some(place) = Place::new(SMALL, "auto", capacity) else { return };
        let (filler, large, _) = place.lengths();
        let path = place.path("a");
        place.fill_both();
        let reader = File::open(&path).expect("it is there");
        assert_eq!(attribute(&path, STATE).as_deref(), Ok("passthrough"));
        let mut file = File::options().append(true).open(&path).expect("it is there");
        let grown = (most - FILLER / 2) * SMALL;
        write_pattern(&mut file, filler, grown - filler).expect("the other file leaves its tier");
        assert_eq!(attribute(&place.path("b"), "user.terrace.tier").as_deref(), Ok("slow"));
        check(&place.path("b"), filler, filler);
        let error = write_pattern(&mut file, grown, large - grown).expect_err("its tier is full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let length = file.metadata().expect("it is open").len() as usize;
        assert!((most * SMALL / 10 * 9..=most * SMALL).contains(&length), "{length}");
        drop(file);
        check(&path, length, length);
        drop(reader);
        await_close(&path);
        // Without the reader it goes on.
        let mut file = File::options().append(true).open(&path).expect("it is there");
        write_pattern(&mut file, length, large - length).expect("the other tier has room");
        drop(file);
        check(&path, large, large);
    }
}

/// They are not to go on elsewhere, but bounds hold for them, too.
#[test]
fn files_marked_unmovable_are_passed_through_within_bounds() {
    for (capacity, state) in [(None, "passthrough"), (Some(DISK - 10), "served")] {
        let Some(place) = Place::new(SMALL, "auto", capacity) else { return };
        for (name, mark, expected) in [("plain", None, "served"), ("marked", Some("0"), state)] {
            let directory = place.path(name);
            fs::create_dir(&directory).expect("it is new");
            if let Some(value) = mark {
                let set = ("user.terrace.movable", value.as_bytes());
                setxattr(&directory, set.0, set.1, XattrFlags::empty()).expect("it takes marks");
            }
            let path = directory.join("file");
            fs::write(&path, pattern(0, 100_000)).expect("there is room");
            await_close(&path);
            let writer = File::options().read(true).write(true).open(&path).expect("it is there");
            let told = attribute(&path, STATE);
            assert_eq!(told.as_deref(), Ok(expected), "{name}, {capacity:?}");
            drop(writer);
            await_close(&path);
            let reader = File::open(&path).expect("it is there");
            let told = attribute(&path, STATE);
            assert_eq!(told.as_deref(), Ok("passthrough"), "{name}, {capacity:?}");
            drop(reader);
        }
    }
}
