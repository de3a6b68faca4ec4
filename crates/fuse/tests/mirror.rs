// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mirror, used as any directory is.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags,
    StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use terrace_fuse::mirror::MirrorOptions;

mod common;

use common::{Mounted, can_mount};

/// Longer than a test: what was believed at first is believed to its end.
const HOUR: Duration = Duration::from_secs(3600);
/// `O_DIRECT` wants memory, offset and length at multiples of it.
const PAGE: usize = 4096;

/// Runs `test` on a mirror whose kernel asks for everything, on one that keeps what it can, on one
/// that collects writes and on one that passes files through.
fn on_mirrors(test: impl Fn(&Mounted)) {
    if !can_mount() {
        return;
    }
    let uncached = MirrorOptions {
        entry_timeout: Duration::ZERO,
        attributes_timeout: Duration::ZERO,
        ..MirrorOptions::default()
    };
    let cached = MirrorOptions {
        entry_timeout: HOUR,
        attributes_timeout: HOUR,
        negative_timeout: HOUR,
        keeps_cache: true,
        ..MirrorOptions::default()
    };
    let collecting = MirrorOptions { writes_back: true, ..cached };
    let passing = MirrorOptions { passes_through: true, ..cached };
    for options in [uncached, cached, collecting, passing] {
        eprintln!("{options:?}");
        test(&Mounted::mirror(options));
    }
}

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

#[test]
fn what_is_written_is_read_and_lies_below() {
    on_mirrors(|mount| {
        // Longer than one request, and not a multiple of a page.
        let bytes = pattern(3 * 1024 * 1024 + 17);
        fs::write(mount.path("file"), &bytes).expect("write");
        assert_eq!(fs::read(mount.path("file")).expect("read"), bytes);
        assert_eq!(fs::read(mount.below("file")).expect("read below"), bytes);
        let file =
            OpenOptions::new().read(true).write(true).open(mount.path("file")).expect("open");
        file.write_all_at(b"in the middle", 1_000_000).expect("write");
        let mut read = [0; 13];
        file.read_exact_at(&mut read, 1_000_000).expect("read");
        assert_eq!(&read, b"in the middle");
        assert_eq!(file.read_at(&mut read, bytes.len() as u64).expect("read"), 0);
    });
}

#[test]
fn appends_go_to_the_end_and_truncation_cuts() {
    on_mirrors(|mount| {
        let path = mount.path("file");
        fs::write(&path, "first").expect("write");
        let mut file = OpenOptions::new().append(true).open(&path).expect("open");
        file.write_all(b" second").expect("append");
        assert_eq!(fs::read(&path).expect("read"), b"first second");
        file.set_len(3).expect("truncate");
        drop(file);
        assert_eq!(fs::read(&path).expect("read"), b"fir");
        File::create(&path).expect("truncating open");
        assert_eq!(fs::metadata(&path).expect("stat").len(), 0);
        assert_eq!(fs::metadata(mount.below("file")).expect("stat").len(), 0);
    });
}

#[test]
fn create_new_fails_where_the_name_is_taken() {
    on_mirrors(|mount| {
        let new = || OpenOptions::new().write(true).create_new(true).open(mount.path("file"));
        new().expect("create");
        assert_eq!(new().expect_err("second").kind(), ErrorKind::AlreadyExists);
        assert_eq!(File::open(mount.path("none")).expect_err("none").kind(), ErrorKind::NotFound);
        // The kernel may believe that there is no such name, until one is made through it.
        fs::write(mount.path("none"), "x").expect("create");
        assert_eq!(fs::read(mount.path("none")).expect("read"), b"x");
    });
}

#[test]
fn rename_replaces_refuses_or_exchanges() {
    on_mirrors(|mount| {
        let (a, b, directory) = (mount.path("a"), mount.path("b"), mount.path("directory"));
        fs::write(&a, "a").expect("write");
        fs::write(&b, "b").expect("write");
        fs::create_dir(&directory).expect("mkdir");
        let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(RenameFlags::EXCHANGE).expect("exchange");
        assert_eq!(fs::read(&a).expect("read"), b"b");
        fs::rename(&a, directory.join("a")).expect("into a directory");
        fs::rename(directory.join("a"), &b).expect("over another");
        assert_eq!(fs::read(&b).expect("read"), b"b");
        assert_eq!(fs::metadata(&a).expect_err("moved").kind(), ErrorKind::NotFound);
        let moved = fs::rename(&directory, directory.join("inside"));
        assert_eq!(moved.expect_err("into itself").kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    on_mirrors(|mount| {
        let path = mount.path("file");
        fs::write(&path, "before").expect("write");
        let mut file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
        fs::remove_file(&path).expect("unlink");
        assert_eq!(File::open(&path).expect_err("gone").kind(), ErrorKind::NotFound);
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "before");
        file.write_all(b" and after").expect("write");
        assert_eq!(file.metadata().expect("stat").len(), 16);
        assert_eq!(file.metadata().expect("stat").nlink(), 0);
    });
}

#[test]
fn links_are_other_names_and_symlinks_lead_there() {
    on_mirrors(|mount| {
        fs::write(mount.path("file"), "text").expect("write");
        fs::hard_link(mount.path("file"), mount.path("link")).expect("link");
        let (file, link) = (mount.path("file"), mount.path("link"));
        let (file, link) = (fs::metadata(file).expect("stat"), fs::metadata(link).expect("stat"));
        assert_eq!((file.ino(), file.nlink()), (link.ino(), 2));
        symlink("link", mount.path("symlink")).expect("symlink");
        assert_eq!(fs::read_link(mount.path("symlink")).expect("readlink"), Path::new("link"));
        assert_eq!(fs::read(mount.path("symlink")).expect("read"), b"text");
        let own = fs::symlink_metadata(mount.path("symlink")).expect("lstat");
        assert!(own.file_type().is_symlink());
    });
}

#[test]
fn directories_are_made_and_removed_when_empty() {
    on_mirrors(|mount| {
        fs::create_dir_all(mount.path("a/b/c")).expect("mkdir");
        let full = fs::remove_dir(mount.path("a/b")).expect_err("not empty");
        assert_eq!(full.kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_dir_all(mount.path("a")).expect("remove");
        assert_eq!(fs::read_dir(mount.path("")).expect("list").count(), 0);
    });
}

#[test]
fn modes_owners_and_times_are_kept() {
    on_mirrors(|mount| {
        let path = mount.path("file");
        fs::write(&path, "x").expect("write");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("chmod");
        rustix::fs::chown(&path, Some(Uid::from_raw(1234)), Some(Gid::from_raw(2345)))
            .expect("chown");
        let times = Timestamps {
            last_access: Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 },
            last_modification: Timespec { tv_sec: -7, tv_nsec: 123_456_789 },
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).expect("utimens");
        for path in [path, mount.below("file")] {
            let found = fs::metadata(path).expect("stat");
            assert_eq!(found.mode(), 0o100_640);
            assert_eq!((found.uid(), found.gid()), (1234, 2345));
            assert_eq!((found.atime(), found.atime_nsec()), (1_000_000_000, 5));
            assert_eq!((found.mtime(), found.mtime_nsec()), (-7, 123_456_789));
        }
        let new =
            OpenOptions::new().write(true).create_new(true).mode(0o4751).open(mount.path("new"));
        assert_eq!(new.expect("create").metadata().expect("stat").mode(), 0o104_751);
    });
}

#[test]
fn the_time_of_creation_is_told() {
    on_mirrors(|mount| {
        fs::write(mount.path("file"), "x").expect("write");
        let created = |path: &Path| {
            let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BTIME);
            let found = found.expect("statx");
            assert_ne!(found.stx_mask & StatxFlags::BTIME.bits(), 0, "has a time of creation");
            (found.stx_btime.tv_sec, found.stx_btime.tv_nsec, found.stx_ino)
        };
        assert_eq!(created(&mount.path("file")), created(&mount.below("file")));
    });
}

#[test]
fn what_others_make_is_theirs_and_writing_clears_set_ids() {
    on_mirrors(|mount| {
        fs::set_permissions(mount.path(""), PermissionsExt::from_mode(0o777)).expect("chmod");
        // The temporary directory itself is for its owner only.
        let above = mount.path("").ancestors().nth(2).expect("above").to_owned();
        fs::set_permissions(above, PermissionsExt::from_mode(0o755)).expect("chmod");
        let path = mount.path("file");
        let script = "umask 027 && : > \"$0\" && chmod 4755 \"$0\" && echo x >> \"$0\"";
        let status = Command::new("setpriv")
            .args(["--reuid=1234", "--regid=2345", "--clear-groups", "sh", "-c", script])
            .arg(&path)
            .status();
        assert!(status.expect("setpriv").success());
        let found = fs::metadata(mount.below("file")).expect("stat");
        assert_eq!((found.uid(), found.gid()), (1234, 2345));
        assert_eq!(found.mode(), 0o100_755);
        assert_eq!(fs::metadata(&path).expect("stat").mode(), 0o100_755);
    });
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    on_mirrors(|mount| {
        let path = mount.path("file");
        fs::write(&path, "x").expect("write");
        let set = |value: &[u8], flags| rustix::fs::setxattr(&path, "user.name", value, flags);
        set(b"value", XattrFlags::CREATE).expect("set");
        assert_eq!(set(b"other", XattrFlags::CREATE), Err(Errno::EXIST));
        let long = pattern(3000);
        rustix::fs::setxattr(&path, "user.long", &long, XattrFlags::empty()).expect("set");
        let mut buffer = vec![0; 4000];
        let bytes = rustix::fs::getxattr(&path, "user.long", &mut *buffer).expect("get");
        assert_eq!(&buffer[..bytes], long);
        let short = rustix::fs::getxattr(&path, "user.name", &mut buffer[..4]);
        assert_eq!(short, Err(Errno::RANGE));
        let bytes = rustix::fs::listxattr(&path, &mut *buffer).expect("list");
        let names: BTreeSet<_> = buffer[..bytes].split(|byte| *byte == 0).collect();
        assert!(names.contains(&b"user.name"[..]) && names.contains(&b"user.long"[..]));
        rustix::fs::removexattr(&path, "user.name").expect("remove");
        let gone = rustix::fs::getxattr(&path, "user.name", &mut *buffer);
        assert_eq!(gone, Err(Errno::NODATA));
    });
}

#[test]
fn an_unnamed_file_gets_a_name_when_it_is_ready() {
    on_mirrors(|mount| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(mount.path(""), flags, Mode::from_raw_mode(0o600));
        let mut file = File::from(file.expect("O_TMPFILE"));
        file.write_all(b"ready").expect("write");
        assert_eq!(fs::read_dir(mount.path("")).expect("list").count(), 0);
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, own, CWD, mount.path("named"), AtFlags::SYMLINK_FOLLOW)
            .expect("link");
        assert_eq!(fs::read(mount.path("named")).expect("read"), b"ready");
        // The server sees what the kernel has written back after the last close at the latest.
        file.sync_all().expect("sync");
        assert_eq!(fs::read(mount.below("named")).expect("read"), b"ready");
    });
}

#[test]
fn a_large_directory_is_listed_once_and_whole() {
    if !can_mount() {
        return;
    }
    let mount = Mounted::mirror(MirrorOptions::default());
    let expected: BTreeSet<_> = (0..10_000).map(|number| format!("entry-{number}")).collect();
    for name in &expected {
        File::create(mount.below(name)).expect("create");
    }
    // Alone, and then with attributes, for which the kernel reads the directory otherwise.
    let entries = fs::read_dir(mount.path("")).expect("list");
    let names = entries.map(|entry| entry.expect("entry").file_name());
    let names: Vec<_> = names.map(|name| name.into_string().expect("text")).collect();
    assert_eq!(names.len(), expected.len(), "each once");
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    let entries = fs::read_dir(mount.path("")).expect("list");
    let files = entries.filter(|entry| {
        entry.as_ref().expect("entry").metadata().expect("stat while listing").is_file()
    });
    assert_eq!(files.count(), expected.len());
}

#[test]
fn a_directory_is_listed_while_entries_go() {
    on_mirrors(|mount| {
        let name = |number: u32| format!("entry-{number}");
        for number in 0..1000 {
            File::create(mount.below(&name(number))).expect("create");
        }
        let mut entries = fs::read_dir(mount.path("")).expect("list");
        let first = entries.next().expect("one").expect("entry").file_name();
        for number in (0..1000).step_by(2) {
            fs::remove_file(mount.path(&name(number))).expect("remove");
        }
        let rest: Vec<_> = entries.map(|entry| entry.expect("entry").file_name()).collect();
        let names: BTreeSet<_> = rest.iter().chain([&first]).collect();
        assert_eq!(names.len(), rest.len() + 1, "each once");
        let mut stayed = (1..1000).step_by(2).map(|number| OsString::from(name(number)));
        assert!(stayed.all(|name| names.contains(&name)), "what stayed is listed");
    });
}

#[test]
fn space_is_allocated_and_holes_are_found() {
    on_mirrors(|mount| {
        let mut file = File::create_new(mount.path("file")).expect("create");
        const MIB: u64 = 1024 * 1024;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB).expect("fallocate");
        assert_eq!(file.metadata().expect("stat").len(), 4 * MIB);
        assert!(fs::metadata(mount.below("file")).expect("stat").blocks() * 512 >= 4 * MIB);
        file.write_all(&pattern(4 * MIB as usize)).expect("write");
        // The kernel looks for holes only in what it has written back.
        file.sync_data().expect("sync");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, MIB, MIB).expect("punch");
        let seek = |from| rustix::fs::seek(&file, from).expect("seek");
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), MIB);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(MIB)), 2 * MIB);
        let none = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(4 * MIB));
        assert_eq!(none, Err(Errno::NXIO));
        let mut read = [7; 16];
        let file = File::open(mount.path("file")).expect("open");
        file.read_exact_at(&mut read, MIB + 100).expect("read");
        assert_eq!(read, [0; 16]);
    });
}

#[test]
fn a_range_is_copied_from_file_to_file() {
    on_mirrors(|mount| {
        let bytes = pattern(300_000);
        fs::write(mount.path("source"), &bytes).expect("write");
        let source = File::open(mount.path("source")).expect("open");
        let target = File::create(mount.path("target")).expect("create");
        let (mut from, mut to) = (100, 5);
        let mut left = 200_000;
        while left > 0 {
            let copied =
                rustix::fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), left);
            left -= copied.expect("copy");
        }
        drop(target);
        let copied = fs::read(mount.path("target")).expect("read");
        assert_eq!(copied[..5], [0; 5]);
        assert_eq!(copied[5..], bytes[100..200_100]);
    });
}

#[test]
fn direct_io_sees_what_others_write() {
    on_mirrors(|mount| {
        let path = mount.path("file");
        fs::write(&path, pattern(4 * PAGE)).expect("write");
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        let file = options.open(&path).expect("open");
        let mut memory = vec![0; 3 * PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        let page = &mut memory[start..start + PAGE];
        file.read_exact_at(page, PAGE as u64).expect("read");
        assert_eq!(page, &pattern(4 * PAGE)[PAGE..2 * PAGE]);
        page.fill(9);
        file.write_all_at(page, 2 * PAGE as u64).expect("write");
        let read = fs::read(&path).expect("read");
        assert_eq!(read[2 * PAGE..3 * PAGE], [9; PAGE]);
        assert_eq!(read[3 * PAGE..], pattern(4 * PAGE)[3 * PAGE..]);
    });
}

#[test]
fn a_file_is_mapped_shared_and_a_program_runs() {
    on_mirrors(|mount| {
        let path = mount.path("file");
        fs::write(&path, pattern(2 * PAGE)).expect("write");
        let script = "import mmap, sys\n\
                      with open(sys.argv[1], 'r+b') as file:\n\
                      \x20   with mmap.mmap(file.fileno(), 0) as memory:\n\
                      \x20       assert memory[31] == (31 * 31) % 256\n\
                      \x20       memory[5000:5006] = b'mapped'\n\
                      \x20       memory.flush()\n";
        let status = Command::new("python3").args(["-c", script]).arg(&path).status();
        assert!(status.expect("python3").success());
        assert_eq!(&fs::read(&path).expect("read")[5000..5006], b"mapped");
        assert_eq!(&fs::read(mount.below("file")).expect("read")[5000..5006], b"mapped");
        let program = fs::canonicalize("/bin/true").expect("true");
        fs::copy(program, mount.path("program")).expect("copy");
        assert!(Command::new(mount.path("program")).status().expect("run").success());
    });
}

#[test]
fn locks_exclude_other_files_and_other_processes() {
    on_mirrors(|mount| {
        let path = mount.path("file");
        let first = File::create(&path).expect("create");
        let second = File::open(&path).expect("open");
        rustix::fs::flock(&first, FlockOperation::LockExclusive).expect("lock");
        let again = rustix::fs::flock(&second, FlockOperation::NonBlockingLockShared);
        assert_eq!(again, Err(Errno::AGAIN));
        drop(first);
        rustix::fs::flock(&second, FlockOperation::NonBlockingLockShared).expect("is free");
        let locked = OpenOptions::new().write(true).open(&path).expect("open");
        rustix::fs::fcntl_lock(&locked, FlockOperation::LockExclusive).expect("lock");
        let script = "import fcntl, sys\n\
                      with open(sys.argv[1], 'r+b') as file:\n\
                      \x20   try:\n\
                      \x20       fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
                      \x20   except BlockingIOError:\n\
                      \x20       sys.exit(7)\n";
        let other = || Command::new("python3").args(["-c", script]).arg(&path).status();
        assert_eq!(other().expect("python3").code(), Some(7));
        drop(locked);
        assert_eq!(other().expect("python3").code(), Some(0));
    });
}

#[test]
fn pipes_and_devices_are_made() {
    on_mirrors(|mount| {
        let path = mount.path("pipe");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .expect("mknod");
        let found = fs::metadata(mount.below("pipe")).expect("stat");
        assert_eq!(found.mode(), 0o010_600);
        let device = rustix::fs::makedev(1, 3);
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(CWD, mount.path("null"), FileType::CharacterDevice, mode, device)
            .expect("mknod");
        let found = fs::metadata(mount.path("null")).expect("stat");
        assert_eq!(found.rdev(), device);
        fs::write(mount.path("null"), "nothing").expect("the device takes it");
    });
}

#[test]
fn space_and_durability_are_asked_of_what_is_below() {
    on_mirrors(|mount| {
        let (here, below) = (mount.path(""), mount.below(""));
        let (here, below) = (rustix::fs::statvfs(here), rustix::fs::statvfs(below));
        let (here, below) = (here.expect("statvfs"), below.expect("statvfs"));
        assert_eq!((here.f_blocks, here.f_frsize), (below.f_blocks, below.f_frsize));
        assert_eq!(here.f_namemax, below.f_namemax);
        let mut file = File::create(mount.path("file")).expect("create");
        file.write_all(b"x").expect("write");
        file.sync_all().expect("fsync");
        file.sync_data().expect("fdatasync");
        File::open(mount.path("")).expect("open").sync_all().expect("fsync of the directory");
    });
}

#[test]
fn files_that_are_passed_through_are_not_asked_for() {
    if !can_mount() {
        return;
    }
    let options = MirrorOptions { passes_through: true, ..MirrorOptions::default() };
    let mount = Mounted::mirror(options);
    fs::write(mount.path("file"), pattern(100_000)).expect("write");
    let reader = File::open(mount.path("file")).expect("open");
    let mut writer = OpenOptions::new().write(true).open(mount.path("file")).expect("second open");
    writer.seek(SeekFrom::Start(50_000)).expect("seek");
    writer.write_all(b"through").expect("write");
    let mut read = [0; 7];
    reader.read_exact_at(&mut read, 50_000).expect("read");
    assert_eq!(&read, b"through");
    // A write below is seen at once: there is nothing between.
    let below = OpenOptions::new().write(true).open(mount.below("file")).expect("open below");
    below.write_all_at(b"BENEATH", 50_000).expect("write below");
    reader.read_exact_at(&mut read, 50_000).expect("read");
    assert_eq!(&read, b"BENEATH");
    drop((reader, writer));
    let again = File::open(mount.path("file")).expect("open after all were closed");
    again.read_exact_at(&mut read, 50_000).expect("read");
    assert_eq!(&read, b"BENEATH");
    assert_eq!(errno(&again.write_at(b"x", 0).expect_err("read only")), Some(Errno::BADF));
}
