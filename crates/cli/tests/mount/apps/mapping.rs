// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mappings outlive the file that they were made from: map, close, migrate, store.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{Stage, program, succeed};
use crate::suites::{How, Place};

/// Maps, closes, asks for a migration, stores meanwhile and after it, unmaps or syncs, and reads the file
/// in the usual way. Python's own mappings keep the file open, so this calls the C library. Where the
/// kernel passes the file through, the mount hears of the close and not of the mapping; all the same it
/// may move once it is unmapped, and not before.
const SCRIPT: &str = r#"
import ctypes, errno, mmap, os, random, sys, time
path, rounds, seed, is_passed = sys.argv[1], *map(int, sys.argv[2:])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
SIZE, MS_SYNC, TIME_MAX = 1 << 18, 4, 30
chance = random.Random(seed)
expected = bytearray(chance.randbytes(SIZE))
with open(path, "wb") as file:
    file.write(expected)

def ask(tier):
    try:
        os.setxattr(path, "user.terrace.tier", tier)
    except OSError as error:
        # It moves there already.
        assert error.errno == errno.EBUSY, error

def tiers():
    return os.getxattr(path, "user.terrace.tier")

def rest():
    # Nobody has it open, and it does not move.
    end = time.monotonic() + TIME_MAX
    while os.getxattr(path, "user.terrace.state") != b"closed":
        assert time.monotonic() < end, "it does not come to rest"

def arrive(tier):
    end = time.monotonic() + TIME_MAX
    while tiers() != tier:
        assert time.monotonic() < end, "it does not move"
        # One that was written to too often while it moved stays where it was.
        ask(tier)

for number in range(rounds):
    tier = [b"slow", b"fast"][number % 2]
    rest()
    file = os.open(path, os.O_RDWR)
    address = libc.mmap(None, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    os.close(file)

    def store():
        length = chance.randrange(1, 20000)
        at = chance.randrange(SIZE - length)
        expected[at:at + length] = bytes = chance.randbytes(length)
        ctypes.memmove(address + at, bytes, length)

    store()
    if is_passed:
        # Mounts hear of a close a little later.
        rest()
    ask(tier)
    store()
    if is_passed:
        rest()
        assert tiers() != tier, "it must stay while the kernel has it mapped"
    else:
        arrive(tier)
    store()
    if number % 3 == 0:
        assert libc.msync(address, SIZE, MS_SYNC) == 0
    assert ctypes.string_at(address, SIZE) == expected, f"round {number}: mapped"
    assert libc.munmap(address, SIZE) == 0
    with open(path, "rb") as file:
        assert file.read() == expected, f"round {number}: read"
    if is_passed:
        rest()
        arrive(tier)
        with open(path, "rb") as file:
            assert file.read() == expected, f"round {number}: moved"
"#;

#[test]
fn what_is_stored_in_a_mapping_is_kept_although_the_file_moved() {
    stores(How::Served);
}

#[test]
fn what_is_stored_in_a_mapping_is_kept_although_the_file_moved_behind_a_server() {
    stores(How::Network);
}

#[test]
fn a_mapping_that_the_kernel_passes_through_keeps_the_file_where_it_is() {
    stores(How::Passed);
}

fn stores(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("mapping", how, seed) else { return };
        let is_passed = u64::from(how == How::Passed);
        let mut command = program("python3");
        command.args(["-c", SCRIPT]).arg(stage.path().join("mapped"));
        // Each round is one migration.
        command.args([super::moves_min(), seed, is_passed].map(|number| number.to_string()));
        succeed(command);
        stage.end();
    }
}

/// Stores through a mapping, with the file open and behind its close, and looks each time whether that is
/// seen: when the file was last changed, and what those read who open it meanwhile.
const SEEN: &str = r#"
import ctypes, mmap, os, sys, time
path = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
SIZE, MS_SYNC, TIME_MAX = 1 << 16, 4, 30

def map(file):
    address = libc.mmap(None, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    return address

def store(address, at, byte):
    ctypes.memmove(address + at, bytes([byte]), 1)

def sync(address):
    # At the latest with this a store changes the time.
    assert libc.msync(address, SIZE, MS_SYNC) == 0

def changed():
    return os.stat(path).st_mtime_ns

def see(what, before):
    end = time.monotonic() + TIME_MAX
    while changed() == before:
        assert time.monotonic() < end, f"a store is not seen: {what}"
        time.sleep(0.01)

with open(path, "wb") as file:
    file.write(bytes(SIZE))
time.sleep(0.1)
file = os.open(path, os.O_RDWR)
address = map(file)
before = changed()
store(address, 0, 1)
sync(address)
see("open", before)
os.close(file)
before = changed()
# Clocks of file systems go in steps.
time.sleep(0.1)
store(address, 1, 2)
sync(address)
see("closed", before)
# Setting the time does not end it.
os.utime(path, ns=(before, before))
assert changed() == before
# Who only reads it is told as well.
reader = os.open(path, os.O_RDONLY)
os.pread(reader, 10, 0)
time.sleep(0.1)
store(address, 1, 2)
sync(address)
see("read by another", before)
os.close(reader)
# Who may only append, and maps it as well.
file = os.open(path, os.O_RDWR | os.O_APPEND)
assert os.pread(file, 3, 0) == bytes([1, 2, 0])
store(address, 2, 3)
assert os.pread(file, 3, 0) == bytes([1, 2, 3])
other = map(file)
store(other, 4096, 4)
store(address, 4097, 5)
assert ctypes.string_at(address + 4096, 2) == ctypes.string_at(other + 4096, 2) == bytes([4, 5])
os.write(file, b"end")
for mapped in (address, other):
    assert libc.munmap(mapped, SIZE) == 0
os.close(file)
with open(path, "rb") as file:
    found = file.read()
assert found[:3] == bytes([1, 2, 3]) and found[4096:4098] == bytes([4, 5]), found[:3]
assert found[SIZE:] == b"end"
"#;

#[test]
fn what_is_stored_in_a_mapping_is_seen() {
    for how in [How::Served, How::Passed] {
        let Some(mut place) = Place::new(how, &[]) else { return };
        let native = place.scene.directory("native");
        for directory in [&native, place.mounted.path()] {
            let mut command = program("python3");
            command.args(["-c", SEEN]).arg(directory.join("mapped"));
            succeed(command);
        }
        let path = place.mounted.path().join("mapped");
        let found = fs::metadata(&path).expect("it is there");
        let mounted = &mut place.mounted;
        mounted.unmount();
        mounted.mount(&place.scene);
        let again = fs::metadata(&path).expect("it is there");
        assert_eq!((again.mtime(), again.mtime_nsec()), (found.mtime(), found.mtime_nsec()));
    }
}
