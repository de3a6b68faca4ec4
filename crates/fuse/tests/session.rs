// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions: waiting, giving up, panics, notifications, and the ends of a mount.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use terrace_fuse::mirror::{Mirror, MirrorOptions};
use terrace_fuse::{
    Attributes, Entry, FileSystem, InitFlags, LockKind, MountOptions, Opened, OpenedFlags,
    Operation, ROOT_NODE, Reply, Request, Session, Wanted,
};

mod common;

use common::{Mounted, USES_URING, can_mount, places};

/// Longer than a test.
const HOUR: Duration = Duration::from_secs(3600);
const FILE_NODE: u64 = 2;
/// Tells the test that serves for another one where.
const PLACES_VARIABLE: &str = "TERRACE_FUSE_TEST_PLACES";

/// A directory with one file, whose locks are had by nobody but those who ask for them.
#[derive(Clone, Default)]
struct OneFile(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    content: Vec<u8>,
    lookups: u64,
    is_locked: bool,
    waiting: Vec<Reply>,
    interrupted: Vec<u64>,
    /// Handlers that wait until they are released.
    held_up: usize,
    is_released: bool,
    is_unmounted: bool,
}

impl OneFile {
    fn mount(&self) -> Mounted {
        let mut wanted = Wanted::default();
        wanted.flags |= InitFlags::FLOCK_LOCKS | InitFlags::HAS_EXPIRE_ONLY;
        Mounted::new(&wanted, |_, _| self.clone())
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // One of the requests makes the handler panic.
        let result = change(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.1.notify_all();
        result
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        let state = self.0.0.lock().expect("state");
        drop(self.0.1.wait_while(state, |state| !until(state)).expect("state"));
    }

    fn file(state: &State) -> Attributes {
        Attributes {
            inode: FILE_NODE,
            mode: 0o100_644,
            links: 1,
            size_bytes: state.content.len() as u64,
            ..Attributes::default()
        }
    }
}

impl FileSystem for OneFile {
    fn handle(&self, request: &Request<'_>, reply: Reply) {
        if let Operation::GetXattr { name: b"user.wait", .. } = request.operation {
            self.change(|state| state.held_up += 1);
            self.wait(|state| state.is_released);
            return reply.error(Errno::NODATA);
        }
        self.change(|state| match request.operation {
            Operation::Lookup { name: b"file" } => {
                state.lookups += 1;
                reply.entry(&Entry {
                    node: FILE_NODE,
                    attributes: Self::file(state),
                    entry_timeout: HOUR,
                    attributes_timeout: HOUR,
                    ..Entry::default()
                });
            }
            Operation::GetAttr { .. } if request.node == ROOT_NODE => {
                let root = Attributes { inode: 1, mode: 0o040_755, ..Attributes::default() };
                reply.attributes(&root, HOUR);
            }
            Operation::GetAttr { .. } => reply.attributes(&Self::file(state), HOUR),
            Operation::Open { .. } => {
                reply.opened(&Opened { flags: OpenedFlags::KEEP_CACHE, ..Opened::default() });
            }
            Operation::Read { offset, bytes, .. } => {
                let start = (offset as usize).min(state.content.len());
                let end = (start + bytes as usize).min(state.content.len());
                reply.data_vectored(&[
                    io::IoSlice::new(&state.content[start..start]),
                    io::IoSlice::new(&state.content[start..end]),
                ]);
            }
            Operation::SetLock { lock, .. } if lock.lock.kind == LockKind::Unlock => {
                assert!(lock.is_flock);
                state.is_locked = false;
                reply.empty();
            }
            Operation::SetLock { is_waiting: true, .. } if state.is_locked => {
                if reply.is_interrupted() {
                    reply.error(Errno::INTR);
                } else {
                    state.waiting.push(reply);
                }
            }
            Operation::SetLock { .. } if state.is_locked => reply.error(Errno::AGAIN),
            Operation::SetLock { .. } => {
                state.is_locked = true;
                reply.empty();
            }
            Operation::GetXattr { name: b"user.panic", .. } => {
                std::panic::resume_unwind(Box::new("asked for"));
            }
            Operation::GetXattr { name: b"user.drop", .. } => drop(reply),
            Operation::GetXattr { name: b"user.large-errno", .. } => {
                reply.error(Errno::from_raw_os_error(523));
            }
            Operation::GetXattr { name: b"user.too-long", bytes } => {
                reply.data(&vec![0; bytes as usize + 1]);
            }
            Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Release { .. } => {}
            _ => reply.error(Errno::NOSYS),
        });
    }

    fn unmounted(&self) {
        self.change(|state| state.is_unmounted = true);
    }

    fn interrupt(&self, unique: u64) {
        self.change(|state| {
            state.interrupted.push(unique);
            let at = state.waiting.iter().position(|reply| reply.unique() == unique);
            if let Some(at) = at {
                let reply = state.waiting.swap_remove(at);
                assert!(reply.is_interrupted());
                reply.error(Errno::INTR);
            }
        });
    }
}

fn flock_command(path: &Path) -> Command {
    let mut command = Command::new("flock");
    command.arg(path).arg("true");
    command
}

#[test]
fn who_waits_for_a_lock_can_be_killed() {
    if !can_mount() {
        return;
    }
    let files = OneFile::default();
    files.change(|state| state.is_locked = true);
    let mount = files.mount();
    let mut waiter = flock_command(&mount.path("file")).spawn().expect("flock");
    files.wait(|state| !state.waiting.is_empty());
    let unique = files.change(|state| state.waiting[0].unique());
    waiter.kill().expect("kill");
    assert_eq!(waiter.wait().expect("wait").signal(), Some(9));
    // What it asks while it dies is interrupted, too.
    assert!(files.change(|state| state.interrupted.contains(&unique)));
}

#[test]
fn an_answer_may_come_later_from_another_thread() {
    if !can_mount() {
        return;
    }
    let files = OneFile::default();
    files.change(|state| state.is_locked = true);
    let mount = files.mount();
    let mut waiter = flock_command(&mount.path("file")).spawn().expect("flock");
    files.wait(|state| !state.waiting.is_empty());
    // More wait than there are threads, and others are served nevertheless.
    let mut others: Vec<_> =
        (0..4).map(|_| flock_command(&mount.path("file")).spawn().expect("flock")).collect();
    files.wait(|state| state.waiting.len() == 5);
    assert_eq!(fs::metadata(mount.path("file")).expect("stat").len(), 0);
    files.change(|state| state.waiting.drain(..).for_each(Reply::empty));
    assert!(waiter.wait().expect("wait").success());
    assert!(others.iter_mut().all(|other| other.wait().expect("wait").success()));
}

#[test]
fn requests_that_take_long_do_not_hold_up_the_others() {
    // Many more than there are threads.
    const HELD_UP: usize = 20;
    if !can_mount() {
        return;
    }
    let files = OneFile::default();
    let mount = files.mount();
    let path = mount.path("file");
    for _ in 0..2 {
        files.change(|state| (state.held_up, state.is_released) = (0, false));
        std::thread::scope(|scope| {
            let wait = || rustix::fs::getxattr(&path, "user.wait", &mut [0; 16]);
            let waiters: Vec<_> = (0..HELD_UP).map(|_| scope.spawn(wait)).collect();
            files.wait(|state| state.held_up == HELD_UP);
            assert_eq!(fs::read(&path).expect("others are served"), b"");
            files.change(|state| state.is_released = true);
            for waiter in waiters {
                assert_eq!(waiter.join().expect("no panic"), Err(Errno::NODATA));
            }
        });
        // Those that there usually are, and others that have gone.
        for _ in 0..100 {
            assert_eq!(fs::read(&path).expect("readable"), b"");
        }
    }
}

#[test]
fn what_is_not_answered_or_answered_wrong_fails_and_ends_nothing_else() {
    if !can_mount() {
        return;
    }
    let mount = OneFile::default().mount();
    let get = |name| rustix::fs::getxattr(mount.path("file"), name, &mut [0; 16]);
    for _ in 0..10 {
        for name in ["user.panic", "user.drop", "user.large-errno", "user.too-long"] {
            // Over `io_uring` the kernel itself ends a request with an answer that makes no sense.
            let is_ended = name == "user.too-long" && USES_URING;
            let errno = if is_ended { Errno::INVAL } else { Errno::IO };
            assert_eq!(get(name), Err(errno), "{name}");
        }
    }
    assert_eq!(fs::metadata(mount.path("file")).expect("stat").ino(), FILE_NODE);
    // What nobody knows is asked once.
    assert_eq!(get("user.other"), Err(Errno::OPNOTSUPP));
}

#[test]
fn the_kernel_believes_until_it_is_told() {
    if !can_mount() {
        return;
    }
    let files = OneFile::default();
    let mount = files.mount();
    let path = mount.path("file");
    let length = || fs::metadata(&path).expect("stat").len();
    assert_eq!(length(), 0);
    files.change(|state| state.content = b"before".to_vec());
    assert_eq!(length(), 0);
    mount.notifier.inval_inode(FILE_NODE, -1, 0).expect("notify of attributes");
    assert_eq!(length(), 6);

    let content = || fs::read(&path).expect("read");
    assert_eq!(content(), b"before");
    // As long, because a read has attributes asked for again (the time of access).
    files.change(|state| state.content = b"behind".to_vec());
    assert_eq!(content(), b"before");
    mount.notifier.inval_inode(FILE_NODE, 0, 0).expect("notify of content");
    assert_eq!(content(), b"behind");
    mount.notifier.store(FILE_NODE, 2, b"!!").expect("store");
    assert_eq!(content(), b"be!!nd");

    let lookups = || files.change(|state| state.lookups);
    let before = lookups();
    fs::metadata(&path).expect("stat");
    assert_eq!(lookups(), before);
    mount.notifier.inval_entry(ROOT_NODE, b"file").expect("notify of a name");
    fs::metadata(&path).expect("stat");
    assert_eq!(lookups(), before + 1);
    mount.notifier.expire_entry(ROOT_NODE, b"file").expect("notify of a name");
    fs::metadata(&path).expect("stat");
    assert_eq!(lookups(), before + 2);
    mount.notifier.delete(ROOT_NODE, FILE_NODE, b"file").expect("notify of a removal");
    fs::metadata(&path).expect("stat");
    assert_eq!(lookups(), before + 3);

    mount.notifier.inval_entry(ROOT_NODE, b"never seen").expect("is no error");
    mount.notifier.inval_inode(77, 0, 0).expect("is no error");
    let notifier = mount.notifier.clone();
    drop(mount);
    let after = notifier.inval_inode(FILE_NODE, 0, 0).expect_err("after the session");
    assert_eq!(after.kind(), io::ErrorKind::NotConnected);
}

#[test]
fn a_mount_in_use_goes_lazily() {
    if !can_mount() {
        return;
    }
    let mut mount = Mounted::mirror(MirrorOptions::default());
    fs::write(mount.path("file"), "still there").expect("write");
    let file = File::open(mount.path("file")).expect("open");
    let busy = mount.unmounter.unmount().expect_err("busy");
    assert_eq!(Errno::from_io_error(&busy), Some(Errno::BUSY));
    assert!(mount.path("file").exists());
    mount.unmounter.unmount_lazily().expect("lazily");
    assert!(!mount.path("file").exists());
    let mut read = [0; 11];
    file.read_exact_at(&mut read, 0).expect("who has it open is served");
    assert_eq!(&read, b"still there");
    drop(file);
    mount.wait().expect("serving ends with the last user");
    mount.unmounter.unmount().expect("again does nothing");
}

#[test]
fn an_unmount_elsewhere_ends_serving() {
    if !can_mount() {
        return;
    }
    let mut mount = Mounted::mirror(MirrorOptions::default());
    rustix::mount::unmount(mount.path(""), UnmountFlags::empty()).expect("unmount");
    mount.wait().expect("serving ends well");
    // Another mount at the same place is not ours to end.
    rustix::mount::mount("none", mount.path(""), "tmpfs", rustix::mount::MountFlags::empty(), None)
        .expect("mount");
    fs::write(mount.path("file"), "x").expect("write");
    mount.unmounter.unmount().expect("nothing to do");
    assert!(mount.path("file").exists());
    // Lazily: a program that another test starts has our descriptors for a moment.
    rustix::mount::unmount(mount.path(""), UnmountFlags::DETACH).expect("unmount");
}

#[test]
fn unmounting_is_reported_while_requests_run() {
    if !can_mount() {
        return;
    }
    let files = OneFile::default();
    let mut mount = files.mount();
    let path = mount.path("file");
    let (asking, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut value = [0; 8];
        let _ = rustix::fs::getxattr(&path, "user.wait", &mut value[..]);
        asking.send(())
    });
    files.wait(|state| state.held_up == 1);
    rustix::mount::unmount(mount.path(""), UnmountFlags::DETACH | UnmountFlags::FORCE)
        .expect("unmount");
    files.wait(|state| state.is_unmounted);
    files.change(|state| state.is_released = true);
    asked.recv().expect("it ends");
    // Aborted: how serving ends is no matter here.
    let _ = mount.wait();
}

#[test]
fn a_session_that_is_dropped_unserved_unmounts() {
    if !can_mount() {
        return;
    }
    let places = places();
    let mountpoint = places.path().join("mount");
    let session = Session::mount(&mountpoint, &MountOptions::default(), &Wanted::default());
    let session = session.expect("mount");
    assert!(is_mounted(&mountpoint));
    drop(session);
    assert!(!is_mounted(&mountpoint));
}

#[test]
fn mounting_fails_where_there_is_no_directory() {
    if !can_mount() {
        return;
    }
    let places = places();
    let mount = |name: &str| {
        let path = places.path().join(name);
        Session::mount(&path, &MountOptions::default(), &Wanted::default())
    };
    assert_eq!(mount("none").expect_err("none").kind(), io::ErrorKind::NotFound);
    fs::write(places.path().join("file"), "x").expect("write");
    assert_eq!(mount("file").expect_err("file").kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn options_reach_the_table_of_mounts() {
    if !can_mount() {
        return;
    }
    let places = places();
    let mountpoint = places.path().join("mount");
    let mut options = MountOptions::default();
    options.apply(["fsname=a,subtype=b", "ro,noexec,noatime,default_permissions"]).expect("words");
    let _session = Session::mount(&mountpoint, &options, &Wanted::default()).expect("mount");
    let line = mounts_at(&mountpoint).pop().expect("a mount");
    let fields: Vec<_> = line.split(' ').collect();
    let words: Vec<_> = fields[3].split(',').collect();
    assert_eq!((fields[0], fields[2]), ("a", "fuse.b"));
    for word in ["ro", "nosuid", "nodev", "noexec", "noatime", "default_permissions"] {
        assert!(words.contains(&word), "{word} in {line}");
    }
    assert!(!words.contains(&"allow_other"), "{line}");
}

fn is_mounted(path: &Path) -> bool {
    !mounts_at(path).is_empty()
}

/// Lines of the table of mounts; paths of tests have nothing that is escaped there.
fn mounts_at(path: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").expect("table");
    let is_at = |line: &&str| line.split(' ').nth(1).map(Path::new) == Some(path);
    table.lines().filter(is_at).map(String::from).collect()
}

#[test]
fn the_death_of_the_server_gives_errors_to_all_who_wait() {
    if !can_mount() {
        return;
    }
    let places = places();
    let mountpoint = places.path().join("mount");
    fs::write(places.path().join("below/file"), "x").expect("write");
    let mut server = serve_elsewhere("serve_for_another_test", places.path());
    let mut file = File::open(mountpoint.join("file")).expect("open");
    server.kill().expect("kill");
    server.wait().expect("wait");
    let read = file.read(&mut [0; 8]).expect_err("the server is dead");
    assert!(is_dead(&read), "{read}");
    let stat = fs::metadata(&mountpoint).expect_err("the server is dead");
    assert!(is_dead(&stat), "{stat}");
    rustix::mount::unmount(&mountpoint, UnmountFlags::DETACH).expect("unmount");
}

#[test]
fn the_death_of_a_server_whose_threads_are_held_up_gives_errors_to_all_who_wait() {
    const HELD_UP: usize = 20;
    if !can_mount() {
        return;
    }
    // While threads are added, one after another.
    for after_ms in [20, 70, 120, 170, 220] {
        let places = places();
        let mountpoint = places.path().join("mount");
        let mut server = serve_elsewhere("serve_one_file_for_another_test", places.path());
        let (tell, told) = std::sync::mpsc::channel();
        for _ in 0..HELD_UP {
            let (path, tell) = (mountpoint.join("file"), tell.clone());
            std::thread::spawn(move || {
                tell.send(rustix::fs::getxattr(&path, "user.wait", &mut [0; 16]))
            });
        }
        let early = told.recv_timeout(Duration::from_millis(after_ms));
        assert!(early.is_err(), "answered before anybody was killed");
        server.kill().expect("kill");
        server.wait().expect("wait");
        let answers: Vec<_> =
            (0..HELD_UP).map_while(|_| told.recv_timeout(Duration::from_secs(20)).ok()).collect();
        // Ends the connection, so that nobody waits for good where this fails.
        rustix::mount::unmount(&mountpoint, UnmountFlags::FORCE | UnmountFlags::DETACH)
            .expect("unmount");
        assert_eq!(answers.len(), HELD_UP, "killed after {after_ms} ms");
        for answer in answers {
            let errno = answer.expect_err("the server is dead");
            let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
            assert!(dead.contains(&errno), "{errno}");
        }
    }
}

/// Has a test that serves run in another process, and waits until the file system is mounted.
fn serve_elsewhere(test: &str, places: &Path) -> Child {
    let mut server = Command::new(std::env::current_exe().expect("own program"))
        .args([test, "--ignored", "--nocapture"])
        .env(PLACES_VARIABLE, places)
        .stdout(Stdio::piped())
        .spawn()
        .expect("server");
    let mut output = BufReader::new(server.stdout.take().expect("output")).lines();
    assert!(output.any(|line| line.expect("line").ends_with("is mounted")));
    server
}

/// Whether a program is told so that nobody serves. Over `io_uring` the kernel takes a moment to
/// end the connection.
fn is_dead(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno == Some(Errno::NOTCONN)
        || USES_URING && matches!(errno, Some(Errno::CANCELED | Errno::CONNABORTED))
}

#[test]
#[ignore = "serves until it is killed; the test of that starts it"]
fn serve_for_another_test() {
    let places = PathBuf::from(std::env::var_os(PLACES_VARIABLE).expect("places"));
    let options = MirrorOptions::default();
    let wanted = Wanted { uring: USES_URING, ..Mirror::wanted(&options) };
    let session = Session::mount(&places.join("mount"), &MountOptions::default(), &wanted);
    let session = session.expect("mount");
    let mirror = Mirror::open(&places.join("below"), options, None).expect("mirror");
    println!("\n{} is mounted", places.display());
    session.serve(2, &mirror).expect("serve");
}

#[test]
#[ignore = "serves until it is killed; the test of that starts it"]
fn serve_one_file_for_another_test() {
    let places = PathBuf::from(std::env::var_os(PLACES_VARIABLE).expect("places"));
    let wanted = Wanted { uring: USES_URING, ..Wanted::default() };
    let session = Session::mount(&places.join("mount"), &MountOptions::default(), &wanted);
    let session = session.expect("mount");
    println!("\n{} is mounted", places.display());
    session.serve(2, &OneFile::default()).expect("serve");
}
