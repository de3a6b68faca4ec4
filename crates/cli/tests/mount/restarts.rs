// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs on a mount while the server ends and is started again: where it ends in an orderly way, they
//! wait, and see nothing of it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::XattrFlags;
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
    let file = File::create_new(mounted.path().join("long")).expect("made");
    for round in 0..3 {
        file.write_all_at(&vec![round; LONG_BYTES], 0).expect("written");
        // The kernel may have it still: this is what the server has, and did not sync.
        rustix::fs::sync();
        file.write_all_at(&vec![round; LONG_BYTES], LONG_BYTES as u64).expect("written");
        served.restart(&scene);
        file.sync_all().expect("nothing was lost");
    }
    drop(file);
    mounted.unmount();
}
