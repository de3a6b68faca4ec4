// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs on a mount while the server ends and is started again: where it ends in an orderly way, they
//! wait, and see nothing of it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use terrace_core::Random;

use crate::scene::{Scene, Served};

/// At the same time, each in a directory of its own.
const PROGRAMS: u64 = 16;

/// So often the server is started anew.
const RESTARTS: u64 = 25;

/// So many rounds of the programs come before each of that.
const ROUNDS_BETWEEN: usize = 12;

/// Longer than what is kept with the metadata.
const LONG_BYTES: usize = 100_000;

/// So long that each of two servers has a part of it.
const STRIPED_BYTES: usize = 4 << 20;

/// Makes, changes and removes names and small files.
fn change(directory: &Path, round: u64) -> io::Result<()> {
    let path = |name: &str| directory.join(format!("{name}{round}"));
    let (first, second) = (path("first"), path("second"));
    let mut file = File::create_new(&first)?;
    file.write_all(b"some bytes")?;
    file.set_len(4)?;
    file.write_all_at(b"others", 2)?;
    drop(file);
    fs::set_permissions(&first, PermissionsExt::from_mode(0o600))?;
    fs::rename(&first, &second)?;
    fs::hard_link(&second, &first)?;
    fs::remove_file(&second)?;
    fs::create_dir(&second)?;
    fs::remove_dir(&second)?;
    // Made with its bytes.
    fs::write(path("third"), b"third")?;
    assert_eq!(fs::read(path("third"))?, b"third");
    fs::remove_file(path("third"))?;
    assert_eq!(fs::read(&first)?, b"soothers");
    File::options().append(true).open(&first)?.write_all(b" and more")?;
    assert_eq!(fs::read(&first)?, b"soothers and more");
    assert_eq!(fs::metadata(&first)?.permissions().mode() & 0o777, 0o600);
    fs::remove_file(&first)
}

/// Has programs work while `restart` ends the server and starts it again, so many times. Each begins with
/// `begin`, and does what that returns, by rounds, until all is over; nothing of it may fail.
fn restart_under<W: FnMut(u64) -> io::Result<()>>(
    begin: impl Fn(u64) -> W + Sync,
    mut restart: impl FnMut(),
) {
    let has_ended = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    let failed = thread::scope(|scope| {
        let start = |program| {
            let (sender, has_ended, begin) = (sender.clone(), &has_ended, &begin);
            scope.spawn(move || {
                let mut work = begin(program);
                let mut failed = Vec::new();
                for round in 0.. {
                    if has_ended.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err(error) = work(round) {
                        failed.push(format!("program {program}, round {round}: {error}"));
                    }
                    // Nobody listens any more at the end.
                    let _ = sender.send(());
                }
                failed
            })
        };
        let programs: Vec<_> = (0..PROGRAMS).map(start).collect();
        drop(sender);
        // All have begun.
        receiver.iter().take(10 * PROGRAMS as usize).for_each(drop);
        for _ in 0..RESTARTS {
            receiver.iter().take(ROUNDS_BETWEEN).for_each(drop);
            restart();
        }
        receiver.iter().take(ROUNDS_BETWEEN).for_each(drop);
        has_ended.store(true, Ordering::Relaxed);
        let ended = programs.into_iter().map(thread::ScopedJoinHandle::join);
        ended.flat_map(|failed| failed.expect("all is as it was made")).collect::<Vec<_>>()
    });
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
}

#[test]
fn programs_wait_while_a_server_is_restarted_in_an_orderly_way() {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let mut mounted = scene.mount_all_patient(&[&served], "mnt", &[]);
    let begin = |program| {
        let directory = mounted.path().join(format!("program{program}"));
        fs::create_dir(&directory).expect("made");
        move |round| change(&directory, round)
    };
    restart_under(begin, || served.restart(&scene));
    mounted.unmount();
}

/// Changes a small file that stays open, in ways that come to the same however often it is done.
fn change_in_place(file: &File, random: &mut Random) -> io::Result<()> {
    let bytes = [random.below(256) as u8; 100];
    let offset = random.below(1000);
    file.write_all_at(&bytes, offset)?;
    let mut found = [0; 100];
    file.read_exact_at(&mut found, offset)?;
    assert_eq!(found, bytes);
    let mode = 0o600 + random.below(0o100) as u32;
    file.set_permissions(PermissionsExt::from_mode(mode))?;
    assert_eq!(file.metadata()?.permissions().mode() & 0o777, mode);
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(random.below(1 << 30));
    file.set_modified(modified)?;
    assert_eq!(file.metadata()?.modified()?, modified);
    let length = 1100 + random.below(900);
    file.set_len(length)?;
    assert_eq!(file.metadata()?.len(), length);
    Ok(rustix::fs::fsetxattr(file, "user.name", &bytes, XattrFlags::empty())?)
}

#[test]
fn what_comes_to_the_same_is_done_by_the_next_server_where_one_is_killed() {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let mut mounted = scene.mount_all_patient(&[&served], "mnt", &[]);
    let begin = |program| {
        let path = mounted.path().join(format!("file{program}"));
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let (file, mut random) = (file.expect("made"), Random::new(program));
        move |_| change_in_place(&file, &mut random)
    };
    restart_under(begin, || served.kill_and_restart(&scene));
    mounted.unmount();
}

#[test]
fn what_was_written_before_an_orderly_restart_can_be_synced_after_it() {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let mut mounted = scene.mount_all_patient(&[&served], "mnt", &[]);
    let path = |name: &str| mounted.path().join(name);
    let directory = File::open(mounted.path()).expect("open");
    let long = File::create_new(path("long")).expect("made");
    let small = File::create_new(path("small")).expect("made");
    for round in 0..3 {
        long.write_all_at(&vec![round; LONG_BYTES], 0).expect("written");
        small.write_all_at(&[round; 100], 0).expect("written");
        fs::write(path(&format!("name{round}")), b"").expect("made");
        // The kernel may have it still: this is what the server has, and did not sync.
        rustix::fs::sync();
        long.write_all_at(&vec![round; LONG_BYTES], LONG_BYTES as u64).expect("written");
        served.restart(&scene);
        for open in [&long, &small, &directory] {
            open.sync_all().expect("nothing was lost");
        }
    }
    drop((long, small, directory));
    mounted.unmount();
}

/// Everything that a store has on its disks.
const STORED: [&str; 3] = ["store", "fast", "slow"];

/// Has a directory be as another one is.
fn copy(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).expect("removed");
    }
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("it can be run");
    assert!(copied.success());
}

/// Keeps all that a store has, while nobody uses it.
fn keep(scene: &Scene) {
    let kept = scene.directory("kept");
    STORED.iter().for_each(|name| copy(&scene.path(name), &kept.join(name)));
}

/// Has a store lose all that came after it was kept, as with the power.
fn lose(scene: &Scene) {
    let kept = scene.path("kept");
    STORED.iter().for_each(|name| copy(&kept.join(name), &scene.path(name)));
}

#[track_caller]
fn assert_lost(open: &File) {
    let error = open.sync_all().expect_err("something is lost, and nobody was told of it");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
    open.sync_all().expect("it was told, and nothing was lost since");
}

#[test]
fn what_a_metadata_server_loses_is_told_once_to_each_who_syncs_what_is_in_its_metadata() {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let mut mounted = scene.mount_all_patient(&[&served], "mnt", &[]);
    let path = |name: &str| mounted.path().join(name);
    let names = ["small", "mode", "attribute", "closed", "synced", "others"];
    names.iter().for_each(|name| fs::write(path(name), b"before").expect("written"));
    ["renamed", "full"].iter().for_each(|name| fs::create_dir(path(name)).expect("made"));
    served.stop();
    keep(&scene);
    served.start_again(&scene);
    let open = |name: &str| File::options().read(true).write(true).open(path(name)).expect("open");
    let (small, another, mode, attribute) =
        (open("small"), open("small"), open("mode"), open("attribute"));
    let synced = open("synced");
    let [root, renamed, full] =
        [".", "renamed", "full"].map(|name| File::open(path(name)).expect("open"));
    synced.write_all_at(b"and", 0).expect("written");
    synced.sync_all().expect("synced");
    small.write_all_at(b"after", 0).expect("written");
    mode.set_permissions(PermissionsExt::from_mode(0o600)).expect("set");
    rustix::fs::fsetxattr(&attribute, "user.name", b"x", XattrFlags::empty()).expect("set");
    fs::write(path("closed"), b"after").expect("written");
    fs::rename(path("others"), path("renamed/others")).expect("renamed");
    fs::write(path("full/new"), b"").expect("made");
    // What the kernel has still is not lost.
    rustix::fs::sync();
    served.kill();
    lose(&scene);
    served.start_again(&scene);
    let after = open("small");
    for open in
        [&small, &another, &after, &mode, &attribute, &open("closed"), &root, &renamed, &full]
    {
        assert_lost(open);
    }
    synced.sync_all().expect("it was synced before");
    open("small").sync_all().expect("it was told before");
    assert_eq!(fs::read(path("small")).expect("read"), b"before");
    small.write_all_at(b"anew", 0).expect("written");
    small.sync_all().expect("synced");
    drop((small, another, after, mode, attribute, synced, root, renamed, full));
    mounted.unmount();
}

#[test]
fn what_a_data_server_may_have_lost_is_told_once_to_each_who_syncs_it() {
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    let (mut names, mut data) = (Served::start(&first), Served::start(&second));
    let mut mounted = first.mount_all_patient(&[&names, &data], "mnt", &[]);
    let open = |name: &str| {
        let path = mounted.path().join(name);
        let how = File::options().read(true).write(true).create(true).truncate(false).open(path);
        how.expect("open")
    };
    let write = |file: &File, byte| {
        file.write_all_at(&vec![byte; STRIPED_BYTES], 0).expect("written");
        // What the kernel has still is not lost.
        rustix::fs::sync();
    };
    let (written, another, synced) = (open("written"), open("written"), open("synced"));
    [&written, &open("closed"), &synced].iter().for_each(|file| write(file, 1));
    synced.sync_all().expect("synced");
    data.kill_and_restart(&second);
    let after = open("written");
    for file in [&written, &another, &after, &open("closed")] {
        assert_lost(file);
    }
    for file in [&synced, &open("written"), &open("closed")] {
        file.sync_all().expect("it was synced, or told before this was opened");
    }
    write(&another, 2);
    written.sync_all().expect("what was written since is there");
    data.kill_and_restart(&second);
    written.sync_all().expect("it was synced");
    write(&written, 3);
    data.kill_and_restart(&second);
    for file in [&written, &another, &after] {
        assert_lost(file);
    }
    written.set_permissions(PermissionsExt::from_mode(0o600)).expect("set");
    write(&written, 4);
    data.kill_and_restart(&second);
    names.kill_and_restart(&first);
    for file in [&written, &another, &after] {
        // What both may have lost of it.
        assert_lost(file);
    }
    write(&after, 5);
    another.sync_all().expect("synced");
    let mut bytes = Vec::new();
    (&written).read_to_end(&mut bytes).expect("read");
    assert!(bytes == vec![5; STRIPED_BYTES]);
    drop((written, another, after, synced));
    mounted.unmount();
}
