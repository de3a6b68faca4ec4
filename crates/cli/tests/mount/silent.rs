// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server that is gone or silent: how long calls, commands and the end of a mount wait for it.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RawDir, Timestamps, XattrFlags,
    fallocate, fchmod, fcntl_lock, fgetxattr, flistxattr, flock, fremovexattr, fsetxattr, fstatvfs,
    ftruncate, futimens, linkat, mkdirat, openat, readlinkat, renameat, seek, statat, symlinkat,
    unlinkat,
};
use rustix::mount::UnmountFlags;
use terrace_core::{Clock, SystemClock};

use crate::scene::{Mounted, Scene, Served, finish, wait_until};

/// Of a call.
const DEADLINE: Duration = Duration::from_secs(3);

/// What a call may take, a busy machine included: half as long again.
const CALL_MAX: Duration = Duration::from_millis(4500);

/// What the end of a mount may take: 5 s, and as much for a busy machine. The deadline is much longer there.
const END_MAX: Duration = Duration::from_secs(10);

/// How a server is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lost {
    Killed,
    Stopped,
}

fn lose(served: &mut Served, lost: Lost) {
    match lost {
        Lost::Killed => served.kill(),
        Lost::Stopped => served.set_silent(true),
    }
}

/// How long work takes, and what it returns.
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let clock = SystemClock::default();
    let begun_ns = clock.now_ns();
    let done = work();
    (Duration::from_nanos(clock.now_ns() - begun_ns), done)
}

/// A directory and a file in it, opened before the server is lost.
struct Ground {
    directory: OwnedFd,
    file: File,
}

impl Ground {
    fn new(place: &Path, number: usize) -> Self {
        let path = place.join(format!("directory-{number}"));
        fs::create_dir(&path).expect("the server answers");
        for name in ["open", "other"] {
            fs::write(path.join(name), vec![7; 100_000]).expect("the server answers");
        }
        std::os::unix::fs::symlink("other", path.join("link")).expect("the server answers");
        fs::create_dir(path.join("below")).expect("the server answers");
        let directory = File::open(&path).expect("the server answers").into();
        let file = File::options().read(true).write(true).open(path.join("open"));
        Self { directory, file: file.expect("the server answers") }
    }
}

type Call = fn(&Ground) -> io::Result<()>;

/// The calls of programs, each with a ground of its own, so that no call waits for another one in the kernel.
const CALLS: &[(&str, Call)] = &[
    ("lookup", |it| Ok(statat(&it.directory, "new", AtFlags::empty()).map(drop)?)),
    ("getattr", |it| it.file.metadata().map(drop)),
    ("open", |it| Ok(openat(&it.directory, "other", OFlags::RDWR, Mode::empty()).map(drop)?)),
    ("create", |it| {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(openat(&it.directory, "new", flags, Mode::RUSR).map(drop)?)
    }),
    ("read", |it| it.file.read_at(&mut [0; 100], 50_000).map(drop)),
    ("write", |it| it.file.write_at(&[1; 100_000], 0).map(drop)),
    ("fsync", |it| it.file.sync_all()),
    ("truncate", |it| Ok(ftruncate(&it.file, 10)?)),
    ("fallocate", |it| Ok(fallocate(&it.file, FallocateFlags::empty(), 0, 1 << 20)?)),
    ("seek", |it| Ok(seek(&it.file, rustix::fs::SeekFrom::Data(0)).map(drop)?)),
    ("chmod", |it| Ok(fchmod(&it.file, Mode::RUSR)?)),
    ("utimens", |it| {
        let at = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
        Ok(futimens(&it.file, &Timestamps { last_access: at, last_modification: at })?)
    }),
    ("setxattr", |it| Ok(fsetxattr(&it.file, "user.a", b"b", XattrFlags::empty())?)),
    ("getxattr", |it| Ok(fgetxattr(&it.file, "user.b", &mut [0; 10][..]).map(drop)?)),
    ("listxattr", |it| Ok(flistxattr(&it.file, &mut [0; 100][..]).map(drop)?)),
    ("removexattr", |it| Ok(fremovexattr(&it.file, "user.c")?)),
    ("tier", |it| Ok(fgetxattr(&it.file, "user.terrace.tier", &mut [0; 10][..]).map(drop)?)),
    ("lock", |it| Ok(fcntl_lock(&it.file, FlockOperation::NonBlockingLockExclusive)?)),
    ("flock", |it| Ok(flock(&it.file, FlockOperation::NonBlockingLockExclusive)?)),
    ("mkdir", |it| Ok(mkdirat(&it.directory, "new", Mode::RWXU)?)),
    ("rmdir", |it| Ok(unlinkat(&it.directory, "below", AtFlags::REMOVEDIR)?)),
    ("unlink", |it| Ok(unlinkat(&it.directory, "other", AtFlags::empty())?)),
    ("rename", |it| Ok(renameat(&it.directory, "other", &it.directory, "new")?)),
    ("link", |it| Ok(linkat(&it.directory, "other", &it.directory, "new", AtFlags::empty())?)),
    ("symlink", |it| Ok(symlinkat("other", &it.directory, "new")?)),
    ("readlink", |it| Ok(readlinkat(&it.directory, "link", Vec::<u8>::new()).map(drop)?)),
    ("readdir", |it| {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(it.directory.as_fd(), &mut buffer);
        while entries.next().transpose()?.is_some() {}
        Ok(())
    }),
    ("statfs", |it| Ok(fstatvfs(&it.directory).map(drop)?)),
];

/// Commands that a person gives for a mount, several calls each.
const COMMANDS: [[&str; 2]; 5] =
    [["df", "mnt"], ["ls", "mnt"], ["touch", "mnt/new"], ["touch", "mnt/old"], ["cat", "mnt/old"]];

/// Commands that ask the server itself.
const VERBS: &[&[&str]] = &[
    &["ls"],
    &["stat", "a/b"],
    &["tiers"],
    &["put", "a/b", "bytes"],
    &["get", "a/b", "-"],
    &["rm", "a/b"],
    &["explain", "a/b"],
    &["migrate", "a/b", "--to", "slow"],
    &["pin", "a/b"],
    &["policy", "show"],
    &["server", "status"],
    &["watch"],
    &["scrub"],
];

fn check_calls(lost: Lost) {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let address = format!("{}&deadline={}s", served.address(), DEADLINE.as_secs());
    // A thread for each call, because those of the mount are held up.
    let how = ["--threads", "64", "--cache", "0s"];
    let mounted = scene.mount_address(&address, "mnt", &how);
    fs::write(mounted.path().join("old"), "bytes").expect("the server answers");
    fs::write(scene.path("bytes"), "bytes").expect("there is room");
    let grounds: Vec<_> =
        (0..CALLS.len()).map(|number| Ground::new(mounted.path(), number)).collect();
    lose(&mut served, lost);
    let all = Barrier::new(CALLS.len());
    let took: Vec<_> = std::thread::scope(|scope| {
        let begin = |((name, call), ground)| {
            let (all, call, name): (&Barrier, &Call, &&str) = (&all, call, name);
            scope.spawn(move || {
                all.wait();
                (*name, timed(|| call(ground)))
            })
        };
        let threads: Vec<_> =
            CALLS.iter().map(|(name, call)| (name, call)).zip(&grounds).map(begin).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (name, (took, ended)) in &took {
        println!("{lost:?} {name}: {took:?} {ended:?}");
    }
    for (name, (took, _)) in &took {
        assert!(*took < CALL_MAX, "{lost:?} {name}: {took:?}");
    }
    // What no cache of the kernel and no write behind answers has to ask.
    let failed = took.iter().filter(|(_, (_, ended))| ended.is_err()).count();
    assert!(failed > CALLS.len() / 2, "{failed}");
    let commands = COMMANDS.map(|[program, path]| {
        let mut command = Command::new(program);
        command.arg(path).current_dir(scene.path("")).stdout(Stdio::null()).stderr(Stdio::null());
        (format!("{program} {path}"), command)
    });
    let verbs = VERBS.iter().map(|verb| {
        let verb = ["--store", &address].into_iter().chain(verb.iter().copied());
        (format!("{verb:?}"), scene.command(verb))
    });
    let commands: Vec<_> = commands.into_iter().chain(verbs).collect();
    // Each alone, once a call before it does not count any more.
    std::thread::scope(|scope| {
        for (name, command) in commands {
            if name.contains("mnt") {
                SystemClock::default().sleep(Duration::from_millis(1200));
                let (took, (is_done, text)) = timed(|| finish(command));
                println!("{lost:?} {name}: {took:?} {text}");
                assert!(!is_done && took < CALL_MAX, "{lost:?} {name}: {took:?} {text}");
                continue;
            }
            scope.spawn(move || {
                let (took, (is_done, text)) = timed(|| finish(command));
                println!("{lost:?} {name}: {took:?} {text}");
                assert!(!is_done && took < CALL_MAX, "{lost:?} {name}: {took:?} {text}");
            });
        }
    });
    // So that it can end.
    if lost == Lost::Stopped {
        served.set_silent(false);
    }
}

#[test]
fn calls_to_a_stopped_server_take_one_deadline() {
    check_calls(Lost::Stopped);
}

#[test]
fn calls_to_a_killed_server_take_one_deadline() {
    check_calls(Lost::Killed);
}

/// Ends a mount whose server is lost: how long that takes until its process is gone.
fn end(mut mounted: Mounted) -> Duration {
    let (took, ()) = timed(|| {
        wait_until("nobody uses it", || {
            rustix::mount::unmount(mounted.path(), UnmountFlags::empty()).is_ok()
        });
        mounted.wait_for_process();
    });
    took
}

#[test]
fn the_mount_of_a_lost_server_ends_soon() {
    for lost in [Lost::Killed, Lost::Stopped] {
        let Some(scene) = Scene::new() else { return };
        let mut served = Served::start(&scene);
        let address = served.address() + "&deadline=60s";
        let [idle, used, asked] = ["idle", "used", "asked"]
            .map(|name| scene.mount_address(&address, name, &["--cache", "0s"]));
        let files: Vec<_> = (0..5)
            .map(|at| {
                let path = used.path().join(at.to_string());
                fs::write(&path, vec![7; 50_000]).expect("the server answers");
                File::options().read(true).write(true).open(path).expect("the server answers")
            })
            .collect();
        files.iter().for_each(|file| {
            file.read_at(&mut [0; 10], 7).expect("the server answers");
        });
        lose(&mut served, lost);
        drop(files);
        // A call that still waits for the server when its program is gone.
        let mut asking =
            Command::new("ls").arg(asked.path()).stdout(Stdio::null()).spawn().expect("ls");
        SystemClock::default().sleep(Duration::from_millis(300));
        asking.kill().expect("it is a child");
        asking.wait().expect("it ends");
        for (name, mounted) in [("idle", idle), ("used", used), ("asked", asked)] {
            let took = end(mounted);
            println!("{lost:?} {name}: {took:?}");
            assert!(took < END_MAX, "{lost:?} {name}: {took:?}");
        }
        assert!(scene.has_logged("used", "was not told that files were closed"), "what is lost");
        if lost == Lost::Stopped {
            served.set_silent(false);
        }
    }
}
