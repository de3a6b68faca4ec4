// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is removed while a program holds it, compared with a local file system.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{
    self as sys, Access, AtFlags, CWD, Dir, Gid, Mode, OFlags, RawDir, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;
use tempfile::TempDir;
use terrace_core::{Clock, SystemClock};

use crate::clients::Pair;
use crate::scene::{Scene, finish, wait_until};
use crate::suites::{How, Place};

const ALL: [How; 4] = [How::Served, How::Passed, How::Network, How::Strict];

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 300_000];

/// Longer than a mount leaves an inode that it unlinked, and that the kernel holds, as it is.
const LATER: Duration = Duration::from_millis(1500);

const TREES: usize = 5;

/// Outcomes of operations, each with what was done.
type Outcomes = Vec<String>;

/// Inodes that lost their last name while they are held by descriptors.
struct Held {
    root: PathBuf,
    all: Vec<(&'static str, OwnedFd)>,
}

fn open(path: &Path, flags: OFlags) -> OwnedFd {
    sys::open(path, flags | OFlags::CLOEXEC, Mode::empty())
        .unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

impl Held {
    fn new(root: &Path) -> Self {
        let mut all = Vec::new();
        let at = |name: &str| root.join(name);
        let mark = |path: &Path| {
            sys::setxattr(path, "user.kept", b"yes", XattrFlags::empty()).expect("there is room");
        };
        for (name, flags) in [("directory", OFlags::RDONLY), ("path of a directory", OFlags::PATH)]
        {
            fs::create_dir(at("d")).expect("it is new");
            mark(&at("d"));
            all.push((name, open(&at("d"), flags | OFlags::DIRECTORY)));
            fs::remove_dir(at("d")).expect("it is empty");
        }
        for (name, length) in ["small file", "large file"].into_iter().zip(LENGTHS) {
            fs::write(at("f"), vec![7; length]).expect("there is room");
            mark(&at("f"));
            all.push((name, open(&at("f"), OFlags::PATH)));
            fs::remove_file(at("f")).expect("it is there");
        }
        for (name, length) in ["replaced file", "large replaced file"].into_iter().zip(LENGTHS) {
            for file in ["old", "new"] {
                fs::write(at(file), vec![7; length]).expect("there is room");
            }
            all.push((name, open(&at("old"), OFlags::PATH)));
            fs::rename(at("new"), at("old")).expect("both are there");
            fs::remove_file(at("old")).expect("it is there");
        }
        for (name, length) in ["closed file", "large closed file"].into_iter().zip(LENGTHS) {
            fs::write(at("f"), vec![7; length]).expect("there is room");
            let opened = File::open(at("f")).expect("it is there");
            all.push((name, open(&at("f"), OFlags::PATH)));
            fs::remove_file(at("f")).expect("it is there");
            drop(opened);
        }
        fs::write(at("f"), b"two names").expect("there is room");
        fs::hard_link(at("f"), at("g")).expect("it is new");
        all.push(("one of two names", open(&at("f"), OFlags::PATH)));
        fs::remove_file(at("f")).expect("it is there");
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = sys::open(root, flags, Mode::RUSR | Mode::WUSR);
        let made = made.expect("there is room");
        rustix::io::write(&made, b"made without a name").expect("there is room");
        all.push(("file without a name", open(&of(&made), OFlags::PATH)));
        drop(made);
        symlink("aim", at("l")).expect("it is new");
        all.push(("link", open(&at("l"), OFlags::PATH | OFlags::NOFOLLOW)));
        fs::remove_file(at("l")).expect("it is there");
        sys::mknodat(CWD, at("p"), sys::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
        all.push(("pipe", open(&at("p"), OFlags::RDWR | OFlags::NONBLOCK)));
        all.push(("path of a pipe", open(&at("p"), OFlags::PATH)));
        fs::remove_file(at("p")).expect("it is there");
        let listens = UnixListener::bind(at("s")).expect("it is new");
        all.push(("socket", open(&at("s"), OFlags::PATH)));
        fs::remove_file(at("s")).expect("it is there");
        drop(listens);
        fs::copy("/bin/true", at("x")).expect("there is room");
        all.push(("program", open(&at("x"), OFlags::PATH)));
        fs::remove_file(at("x")).expect("it is there");
        Self { root: root.to_path_buf(), all }
    }

    /// What can still be done with each.
    fn outcomes(&self) -> Outcomes {
        let mut outcomes = Vec::new();
        for (name, held) in &self.all {
            let mut note = |what: &str, outcome: &dyn Debug| {
                outcomes.push(format!("{name}, {what}: {outcome:?}"));
            };
            self.try_all(held, &mut note);
            if name.ends_with("directory") {
                self.try_names(held, &mut note);
            }
            if *name == "directory" {
                note("list", &list(held.as_fd()));
            }
            if *name == "program" {
                let status = Command::new(of(held)).status();
                note("run", &status.map(|status| status.code()).map_err(|it| it.kind()));
            }
        }
        outcomes
    }

    /// Operations on an inode.
    fn try_all(&self, held: &OwnedFd, note: &mut dyn FnMut(&str, &dyn Debug)) {
        let is_directory = |stat: &sys::Stat| stat.st_mode & 0o170_000 == 0o040_000;
        let known = |held: &OwnedFd| {
            sys::fstat(held).map(|stat| {
                let size = if is_directory(&stat) { 0 } else { stat.st_size };
                let times = (stat.st_atime, stat.st_mtime, stat.st_mtime_nsec);
                let times = (stat.st_mtime == 5).then_some(times);
                (stat.st_nlink, stat.st_mode, stat.st_uid, stat.st_gid, size, times)
            })
        };
        note("fstat", &known(held));
        let path = of(held);
        let mut bytes = [0; 100];
        note("readlink", &sys::readlinkat(held, "", Vec::new()));
        note("get", &sys::getxattr(&path, "user.kept", &mut bytes));
        note("get another", &sys::getxattr(&path, "user.none", &mut bytes));
        note("list", &sys::listxattr(&path, &mut bytes).map(|length| bytes[..length].to_vec()));
        note("set", &sys::setxattr(&path, "user.new", b"new", XattrFlags::empty()));
        note("get the new one", &sys::getxattr(&path, "user.new", &mut bytes));
        note("remove", &sys::removexattr(&path, "user.kept"));
        note("get the removed one", &sys::getxattr(&path, "user.kept", &mut bytes));
        note("chmod", &sys::chmod(&path, Mode::from_raw_mode(0o751)));
        let (user, group) = (Some(Uid::from_raw(7)), Some(Gid::from_raw(8)));
        note("chown", &sys::chownat(held, "", user, group, AtFlags::EMPTY_PATH));
        let time = |tv_sec| Timespec { tv_sec, tv_nsec: 6 };
        let times = Timestamps { last_access: time(4), last_modification: time(5) };
        note("utimens", &sys::utimensat(CWD, &path, &times, AtFlags::empty()));
        note("fstat again", &known(held));
        let linked = self.root.join("linked");
        note("link", &sys::linkat(held, "", CWD, &linked, AtFlags::EMPTY_PATH));
        note("link by path", &sys::linkat(CWD, &path, CWD, &linked, AtFlags::SYMLINK_FOLLOW));
        let _ = fs::remove_file(&linked);
        let open =
            |flags| sys::open(&path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
        let opened = open(OFlags::RDONLY);
        let is_file = sys::fstat(held).is_ok_and(|stat| stat.st_mode & 0o170_000 == 0o100_000);
        let read = opened.map(|opened| {
            let mut content = Vec::new();
            if is_file {
                File::from(opened).read_to_end(&mut content).expect("it is open");
            }
            content.truncate(1 << 16);
            (content.len(), content.first().copied())
        });
        note("open", &read);
        let written = open(OFlags::WRONLY).and_then(|opened| match is_file {
            true => rustix::io::write(&opened, b"written"),
            false => Ok(0),
        });
        note("write", &written);
        note("truncate", &open(OFlags::WRONLY | OFlags::TRUNC).map(drop));
        note("fstat at last", &sys::fstat(held).map(|stat| stat.st_nlink));
    }

    /// Operations on names in a directory.
    fn try_names(&self, held: &OwnedFd, note: &mut dyn FnMut(&str, &dyn Debug)) {
        let mode = Mode::from_raw_mode(0o644);
        let made = |flags| sys::openat(held, "f", flags | OFlags::CLOEXEC, mode).map(drop);
        note("create", &made(OFlags::CREATE | OFlags::RDWR));
        note("create anew", &made(OFlags::CREATE | OFlags::EXCL | OFlags::RDWR));
        note("open a name", &made(OFlags::RDONLY));
        note("mkdir", &sys::mkdirat(held, "f", mode));
        note("symlink", &sys::symlinkat("aim", held, "f"));
        note("mknod", &sys::mknodat(held, "f", sys::FileType::Fifo, mode, 0));
        note("unlink", &sys::unlinkat(held, "f", AtFlags::empty()));
        note("rmdir", &sys::unlinkat(held, "f", AtFlags::REMOVEDIR));
        note("stat", &sys::statat(held, "f", AtFlags::empty()).map(drop));
        fs::write(self.root.join("other"), b"x").expect("there is room");
        note("rename into it", &sys::renameat(CWD, self.root.join("other"), held, "f"));
        note("rename out of it", &sys::renameat(held, "f", CWD, self.root.join("g")));
        note(
            "link into it",
            &sys::linkat(CWD, self.root.join("other"), held, "f", AtFlags::empty()),
        );
        fs::remove_file(self.root.join("other")).expect("it stayed");
        note("access", &sys::accessat(held, ".", Access::READ_OK, AtFlags::empty()));
        note("stat .", &sys::statat(held, ".", AtFlags::empty()).map(|stat| stat.st_nlink));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let here = sys::openat(held, ".", flags, Mode::empty());
        note("list .", &here.map(|here| list(here.as_fd())));
        let number = |at: &Path| sys::stat(at).map(|stat| stat.st_ino);
        let above = sys::statat(held, "..", AtFlags::empty()).map(|stat| stat.st_ino);
        note("..", &(above == number(&self.root)));
        note("rmdir .", &sys::unlinkat(held, ".", AtFlags::REMOVEDIR));
    }
}

/// The path of a descriptor.
fn of(held: &OwnedFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd()).into()
}

/// The entries of a directory, read twice.
fn list(directory: BorrowedFd<'_>) -> Result<[Vec<String>; 2], Errno> {
    let mut entries = Dir::read_from(directory)?;
    let mut names = || {
        let names = entries.by_ref().map(|entry| entry.map(|it| it.file_name().to_owned()));
        names.map(|name| Ok(name?.into_string().expect("ASCII"))).collect()
    };
    let once: Result<Vec<String>, Errno> = names();
    entries.rewind();
    let mut names = || {
        let names = entries.by_ref().map(|entry| entry.map(|it| it.file_name().to_owned()));
        names.map(|name| Ok(name?.into_string().expect("ASCII"))).collect()
    };
    let again: Result<Vec<String>, Errno> = names();
    Ok([once?, again?])
}

/// What differs from a local file system.
fn differing(outcomes: &Outcomes, native: &Outcomes) -> Vec<String> {
    assert_eq!(outcomes.len(), native.len());
    let pairs = outcomes.iter().zip(native);
    pairs
        .filter(|(here, there)| here != there)
        .map(|(here, there)| format!("{here}\n  natively {there}"))
        .collect()
}

fn native() -> TempDir {
    TempDir::new().expect("a temporary directory")
}

#[test]
fn inodes_removed_while_held_are_as_on_a_local_file_system() {
    let local = native();
    let wanted = Held::new(local.path()).outcomes();
    let clock = SystemClock::default();
    for how in ALL {
        let Some(mut place) = Place::new(how, &[]) else { return };
        let root = place.mounted.path().to_path_buf();
        for is_later in [false, true] {
            let held = Held::new(&root);
            if is_later {
                clock.sleep(LATER);
            }
            let differs = differing(&held.outcomes(), &wanted);
            assert!(differs.is_empty(), "{how:?}, later: {is_later}\n{}", differs.join("\n"));
            drop(held);
            assert_eq!(fs::read_dir(&root).expect("it is mounted").count(), 1, "{how:?}");
            fs::remove_file(root.join("g")).expect("it is there");
        }
        place.mounted.unmount();
        drop(place.served);
        place.scene.ok(["fsck", "--verify"]);
        let objects = place.scene.ok(["ls", "files/"]);
        assert_eq!(objects, "", "{how:?}: they go with the last descriptor");
    }
}

/// What a shell prints whose working directory is removed.
fn removed_working_directory(root: &Path) -> (bool, String) {
    let script = "mkdir w && cd w && rmdir ../w && ls -a; stat -c '%h %F' . && chmod 700 . \
        && stat -c '%a' .; touch x; mkdir y; cd . 2>&1; ls ..; rmdir ../w; cd .. && ls";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(root).env("LC_ALL", "C");
    finish(command)
}

#[test]
fn a_removed_working_directory_is_empty() {
    let local = native();
    let wanted = removed_working_directory(local.path());
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        assert_eq!(removed_working_directory(place.mounted.path()), wanted, "{how:?}");
    }
}

/// Makes a tree of 10 x 10 directories of 10 files.
fn make_tree(top: &Path) {
    for number in 0..100 {
        let directory = top.join(format!("{}/{}", number / 10, number % 10));
        fs::create_dir_all(&directory).expect("there is room");
        for file in 0..10 {
            fs::write(directory.join(file.to_string()), b"x").expect("there is room");
        }
    }
}

/// Removes one tree by two programs at once; what these complain of.
fn remove_twice(tops: [&Path; 2]) -> Vec<String> {
    let start = |top: &Path| {
        let mut command = Command::new("rm");
        command.arg("-rf").arg(top).env("LC_ALL", "C").stderr(Stdio::piped());
        command.spawn().expect("it is there")
    };
    let ended = tops.map(start).map(|child| child.wait_with_output().expect("it ends"));
    let complaints = ended.iter().map(|output| String::from_utf8_lossy(&output.stderr));
    complaints.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn check_trees(roots: [&Path; 2], what: &dyn Debug) {
    for _ in 0..TREES {
        make_tree(&roots[0].join("top"));
        let tops = roots.map(|root| root.join("top"));
        // So that both find it.
        fs::metadata(&tops[1]).expect("it is there");
        let complaints = remove_twice([&tops[0], &tops[1]]);
        let stale: Vec<_> = complaints.iter().filter(|it| it.contains("Stale")).collect();
        assert!(stale.is_empty(), "{what:?}: {stale:?}");
        for top in tops {
            let _ = fs::remove_dir_all(top);
        }
    }
}

#[test]
fn two_programs_remove_one_tree() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        check_trees([place.mounted.path(); 2], &how);
    }
}

#[test]
fn two_clients_remove_one_tree() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        check_trees([pair.one.path(), pair.other.path()], &how);
    }
}

/// Copies a tree while another program removes it; how the copying ended, and what it complained of.
fn copy_while_removed(from: &Path, removed: &Path, to: &Path) -> (Option<i32>, String) {
    let mut copying = Command::new("rsync");
    copying.arg("-a").arg(from).arg(to).env("LC_ALL", "C").stderr(Stdio::piped());
    let copying = copying.spawn().expect("`tools/setup.sh` installs it");
    let mut removing = Command::new("rm");
    removing.arg("-rf").arg(removed).stderr(Stdio::null());
    removing.status().expect("it is there");
    let output = copying.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn check_copies(from: &Path, removed: &Path, what: &dyn Debug) {
    for _ in 0..TREES {
        let to = native();
        make_tree(&removed.join("top"));
        fs::metadata(from.join("top")).expect("it is there");
        let (code, complaints) =
            copy_while_removed(&from.join("top"), &removed.join("top"), to.path());
        // 23 where the directory vanished before the copying began.
        let is_late = code == Some(23) && complaints.contains("link_stat");
        let stale: Vec<_> = complaints.lines().filter(|line| line.contains("Stale")).collect();
        assert!(stale.is_empty(), "{what:?}: {stale:?}");
        assert!(matches!(code, Some(0 | 24)) || is_late, "{what:?}: {code:?} {complaints}");
        let _ = fs::remove_dir_all(removed.join("top"));
    }
}

#[test]
fn a_tree_is_removed_while_it_is_copied() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        check_copies(place.mounted.path(), place.mounted.path(), &how);
    }
}

#[test]
fn a_tree_is_removed_by_one_client_while_it_is_copied_by_another() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        check_copies(pair.one.path(), pair.other.path(), &how);
    }
}

#[test]
fn removed_inodes_that_are_held_survive_restarts_of_the_server() {
    let local = native();
    let wanted = Held::new(local.path()).outcomes();
    let clock = SystemClock::default();
    for is_killed in [false, true] {
        let Some(mut place) = Place::new(How::Network, &[]) else { return };
        let root = place.mounted.path().to_path_buf();
        let held = Held::new(&root);
        let served = place.served.as_mut().expect("it is served");
        match is_killed {
            true => {
                clock.sleep(LATER);
                served.kill_and_restart(&place.scene);
            }
            // At once: it hands over what nobody has opened.
            false => served.restart(&place.scene),
        }
        let differs = differing(&held.outcomes(), &wanted);
        assert!(differs.is_empty(), "killed: {is_killed}\n{}", differs.join("\n"));
        drop(held);
        place.mounted.unmount();
        place.served.as_mut().expect("it is served").stop();
        place.scene.ok(["fsck", "--verify"]);
        leaves_nothing(&place.scene);
    }
}

/// The next mount clears up what users left that are gone.
fn leaves_nothing(scene: &Scene) {
    scene.mount("again", &["--io", "served"]).unmount();
    let checked = scene.ok(["fsck", "--verify"]);
    assert_eq!(scene.ok(["ls", "files/"]), "", "{checked}");
}

#[test]
fn what_is_held_when_a_mount_is_killed_is_cleared_up() {
    let clock = SystemClock::default();
    for how in [How::Served, How::Passed] {
        let Some(mut place) = Place::new(how, &[]) else { return };
        let held = Held::new(place.mounted.path());
        clock.sleep(LATER);
        place.mounted.kill();
        drop(held);
        place.scene.ok(["fsck", "--verify"]);
        leaves_nothing(&place.scene);
    }
}

/// A directory that another client removed is still there for who has it open, as long as that may be.
#[test]
fn a_directory_that_another_client_removed_is_empty_for_who_has_it_open() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        let [one, other] = [&pair.one, &pair.other].map(|mounted| mounted.path().join("d"));
        fs::create_dir(&one).expect("it is new");
        fs::write(one.join("f"), b"x").expect("there is room");
        let held = open(&one, OFlags::RDONLY | OFlags::DIRECTORY);
        // Of which this client hears no more. The kernel looks for lists where another user owns it.
        let (user, group) = (Some(Uid::from_raw(7)), Some(Gid::from_raw(8)));
        sys::chown(&other, user, group).expect("it is there");
        sys::chmod(&other, Mode::from_raw_mode(0o2751)).expect("it is there");
        fs::remove_dir_all(&other).expect("it is there");
        wait_until("it is seen", || fs::metadata(&one).is_err());
        for _ in 0..2 {
            let known = sys::fstat(&held).map(|stat| (stat.st_nlink, stat.st_mode & 0o7777));
            assert_eq!(known, Ok((0, 0o2751)), "{how:?}");
        }
        let mut space = [MaybeUninit::uninit(); 4096];
        let first = RawDir::new(&held, &mut space).next().expect("no end").map(drop);
        // As of one that was removed natively; a list of it by `readdir` is empty then.
        assert_eq!(first, Err(Errno::NOENT), "{how:?}");
        let mode = Mode::from_raw_mode(0o644);
        let made = sys::openat(&held, "f", OFlags::CREATE | OFlags::RDWR, mode).map(drop);
        assert_eq!(made, Err(Errno::NOENT), "{how:?}");
        assert_eq!(sys::mkdirat(&held, "g", mode), Err(Errno::NOENT), "{how:?}");
        assert_eq!(sys::symlinkat("aim", &held, "g"), Err(Errno::NOENT), "{how:?}");
        assert_eq!(sys::unlinkat(&held, "f", AtFlags::empty()), Err(Errno::NOENT), "{how:?}");
        assert_eq!(sys::statat(&held, "f", AtFlags::empty()).map(drop), Err(Errno::NOENT));
        let there = pair.one.path().join("there");
        fs::write(&there, b"x").expect("there is room");
        assert_eq!(sys::renameat(CWD, &there, &held, "f"), Err(Errno::NOENT), "{how:?}");
        // By its path it is another one by now.
        fs::create_dir(&other).expect("it is gone");
        fs::write(other.join("f"), b"new").expect("there is room");
        wait_until("the new one is seen", || fs::read(one.join("f")).is_ok_and(|it| it == b"new"));
    }
}

/// `docs/reference/mount.md` has it among the limits.
#[test]
fn only_what_is_open_survives_a_removal_by_another_client() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        let at = |name: &str| pair.one.path().join(name);
        fs::create_dir(at("d")).expect("it is new");
        fs::write(at("f"), b"x").expect("there is room");
        symlink("aim", at("l")).expect("it is new");
        let by_path = ["d", "f", "l"].map(|name| open(&at(name), OFlags::PATH | OFlags::NOFOLLOW));
        let opened = open(&at("f"), OFlags::RDONLY);
        let elsewhere = pair.other.path();
        fs::remove_dir(elsewhere.join("d")).expect("it is empty");
        for name in ["f", "l"] {
            fs::remove_file(elsewhere.join(name)).expect("it is there");
            wait_until("it is seen", || fs::symlink_metadata(at(name)).is_err());
        }
        let mut content = [0; 8];
        assert_eq!(rustix::io::pread(&opened, &mut content, 0), Ok(1), "{how:?}");
        drop(opened);
        for held in &by_path {
            // What the kernel has cached of it expires.
            wait_until("it is gone", || {
                matches!(sys::fstat(held), Err(Errno::STALE | Errno::NOENT))
            });
        }
    }
}
