// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories that another client moved, while this client's kernel has them cached below their former parents.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::clients::Pair;

/// Both kinds of mounts over the network.
const HOW: [&[&str]; 2] = [&[], &["--strict"]];

/// How a program names the directories between which it moves something.
#[derive(Clone, Copy, Debug)]
enum Named {
    /// By paths from the root, which the kernel walks again before it repeats a rename.
    Paths,
    /// By descriptors, so that the kernel looks up nothing but the last names.
    Descriptors,
}

const NAMED: [Named; 2] = [Named::Paths, Named::Descriptors];

/// What a program of the other client has in use of the directory that is moved.
#[derive(Clone, Copy, Debug)]
enum Held {
    Nothing,
    Directory,
    FileBelow,
}

const HELD: [Held; 3] = [Held::Nothing, Held::Directory, Held::FileBelow];

/// A tree that both clients have cached: directories with a directory in each.
struct Tree {
    pair: Pair,
    top: String,
    held: Vec<OwnedFd>,
}

impl Tree {
    fn new(how: &[&str]) -> Option<Self> {
        Some(Self { pair: Pair::new(how)?, top: String::new(), held: Vec::new() })
    }

    /// Makes a new one.
    fn make(&mut self, name: &str, held: Held) {
        self.held.clear();
        self.top = name.into();
        for directory in ["cur", "done", "new/j1/below", "new/j2/below"] {
            fs::create_dir_all(self.one(directory)).expect("made");
        }
        fs::write(self.one("new/j1/file"), b"in j1").expect("written");
        for directory in ["", "new", "new/j1", "new/j2", "cur", "done"] {
            list(&self.other(directory));
        }
        let (what, flags) = match held {
            Held::Nothing => return,
            Held::Directory => ("new/j1", OFlags::RDONLY | OFlags::DIRECTORY),
            Held::FileBelow => ("new/j1/file", OFlags::RDONLY),
        };
        let opened = rustix::fs::open(self.other(what), flags, Mode::empty());
        self.held.push(opened.expect("it is there"));
    }

    fn one(&self, path: &str) -> PathBuf {
        self.pair.one.path().join(&self.top).join(path)
    }

    fn other(&self, path: &str) -> PathBuf {
        self.pair.other.path().join(&self.top).join(path)
    }

    /// Moves something through the first mount.
    fn elsewhere(&self, from: &str, to: &str) {
        fs::rename(self.one(from), self.one(to)).expect("moved");
    }

    /// Moves something through the other mount.
    fn here(&self, named: Named, from: &str, to: &str, how: RenameFlags) -> Result<(), Errno> {
        let (from, to) = (self.other(from), self.other(to));
        match named {
            Named::Paths => rustix::fs::renameat_with(CWD, from, CWD, to, how),
            Named::Descriptors => {
                let [source, target] = [&from, &to].map(|path| parent(path));
                let name = |path: &Path| path.file_name().expect("it has one").to_os_string();
                rustix::fs::renameat_with(source, name(&from), target, name(&to), how)
            }
        }
    }
}

fn parent(path: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    rustix::fs::open(path.parent().expect("it has one"), flags, Mode::empty()).expect("it is there")
}

/// Lists a directory, and looks at all that is there.
fn list(path: &Path) -> Vec<String> {
    let entries = path.read_dir().expect("it is there");
    let mut names: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("readable");
            fs::symlink_metadata(entry.path()).expect("it is there");
            entry.file_name().into_string().expect("it is text")
        })
        .collect();
    names.sort();
    names
}

/// Runs a case with each kind of mount, of names, and of what is held.
fn in_all_ways(case: impl Fn(&mut Tree, Named, &str)) {
    for how in HOW {
        let Some(mut tree) = Tree::new(how) else { return };
        for named in NAMED {
            for held in HELD {
                let what = format!("{how:?} {named:?} {held:?}");
                tree.make(&format!("{named:?}{held:?}"), held);
                case(&mut tree, named, &what);
            }
        }
    }
}

#[test]
fn a_directory_that_another_client_moved_is_moved_on() {
    in_all_ways(|tree, named, what| {
        let inode = fs::metadata(tree.one("new/j1")).expect("it is there").ino();
        tree.elsewhere("new/j1", "cur/j1");
        tree.here(named, "cur/j1", "done/j1", RenameFlags::NOREPLACE).expect(what);
        assert_eq!(list(&tree.other("done")), ["j1"], "{what}");
        assert_eq!(list(&tree.other("done/j1")), ["below", "file"], "{what}");
        assert_eq!(fs::read(tree.other("done/j1/file")).expect(what), b"in j1");
        let found = fs::metadata(tree.other("done/j1")).expect(what).ino();
        assert_eq!(found, inode, "{what}");
        assert_eq!(list(&tree.one("done")), ["j1"], "{what}");
        assert!(list(&tree.one("cur")).is_empty(), "{what}");
    });
}

#[test]
fn a_directory_that_another_client_moved_is_moved_back() {
    in_all_ways(|tree, named, what| {
        tree.elsewhere("new/j1", "cur/j1");
        tree.here(named, "cur/j1", "new/j1", RenameFlags::empty()).expect(what);
        assert_eq!(list(&tree.other("new")), ["j1", "j2"], "{what}");
        assert_eq!(fs::read(tree.other("new/j1/file")).expect(what), b"in j1");
        assert_eq!(list(&tree.one("new/j1")), ["below", "file"], "{what}");
    });
}

#[test]
fn a_directory_that_another_client_moved_is_replaced() {
    in_all_ways(|tree, named, what| {
        fs::remove_dir(tree.one("new/j2/below")).expect("it is empty");
        tree.elsewhere("new/j2", "cur/j2");
        tree.elsewhere("new/j1", "done/j1");
        // The target is empty, and both have moved.
        tree.here(named, "done/j1", "cur/j2", RenameFlags::empty()).expect(what);
        assert_eq!(list(&tree.other("cur/j2")), ["below", "file"], "{what}");
        assert!(list(&tree.other("done")).is_empty(), "{what}");
    });
}

#[test]
fn a_full_directory_that_another_client_moved_is_not_replaced() {
    in_all_ways(|tree, named, what| {
        fs::create_dir(tree.one("cur/own")).expect("made");
        tree.elsewhere("new/j1", "done/j1");
        let replaced = tree.here(named, "cur/own", "done/j1", RenameFlags::empty());
        assert_eq!(replaced, Err(Errno::NOTEMPTY), "{what}");
        let replaced = tree.here(named, "cur/own", "done/j1", RenameFlags::NOREPLACE);
        assert_eq!(replaced, Err(Errno::EXIST), "{what}");
    });
}

#[test]
fn directories_that_another_client_moved_are_exchanged() {
    in_all_ways(|tree, named, what| {
        tree.elsewhere("new/j1", "cur/j1");
        tree.elsewhere("new/j2", "done/j2");
        tree.here(named, "cur/j1", "done/j2", RenameFlags::EXCHANGE).expect(what);
        assert_eq!(list(&tree.other("done/j2")), ["below", "file"], "{what}");
        assert_eq!(list(&tree.other("cur/j1")), ["below"], "{what}");
    });
}

#[test]
fn directories_that_another_client_exchanged_are_moved_on() {
    in_all_ways(|tree, named, what| {
        fs::create_dir(tree.one("cur/own")).expect("made");
        list(&tree.other("cur"));
        let [one, other] = ["new/j1", "cur/own"].map(|path| tree.one(path));
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("moved");
        // What was cached of these names may be believed for as long as `--cache` says.
        crate::scene::wait_until("both are seen", || {
            tree.other("cur/own/file").exists() && !tree.other("new/j1/file").exists()
        });
        tree.here(named, "cur/own", "done/j1", RenameFlags::empty()).expect(what);
        tree.here(named, "new/j1", "cur/own", RenameFlags::empty()).expect(what);
        assert_eq!(list(&tree.other("done/j1")), ["below", "file"], "{what}");
        assert!(list(&tree.other("cur/own")).is_empty(), "{what}");
        assert_eq!(list(&tree.other("new")), ["j2"], "{what}");
    });
}

#[test]
fn a_directory_that_another_client_moved_below_itself_is_found() {
    in_all_ways(|tree, _, what| {
        // The kernel of the other client takes `j1` to be above `below`, from where it is looked for.
        let below = tree.other("new/j1/below");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let below = rustix::fs::open(below, flags, Mode::empty()).expect("it is there");
        tree.elsewhere("new/j1/below", "cur/below");
        tree.elsewhere("new/j1", "cur/below/j1");
        let found = rustix::fs::statat(&below, "j1", AtFlags::empty()).expect(what);
        let expected = fs::metadata(tree.one("cur/below/j1")).expect("it is there");
        assert_eq!(found.st_ino, expected.ino(), "{what}");
        let file = rustix::fs::openat(&below, "j1/file", OFlags::RDONLY, Mode::empty());
        assert_eq!(std::io::read_to_string(File::from(file.expect(what))).expect(what), "in j1");
    });
}

#[test]
fn a_held_directory_that_another_client_moved_is_still_used() {
    in_all_ways(|tree, named, what| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let held = rustix::fs::open(tree.other("new/j1"), flags, Mode::empty());
        let held = held.expect("it is there");
        tree.elsewhere("new/j1", "cur/j1");
        tree.here(named, "cur/j1", "done/j1", RenameFlags::empty()).expect(what);
        rustix::fs::mkdirat(&held, "made", Mode::RWXU).expect(what);
        assert_eq!(list(&tree.other("done/j1")), ["below", "file", "made"], "{what}");
        fs::remove_dir(tree.other("done/j1/made")).expect(what);
        fs::write(tree.other("done/j1/new"), b"new").expect(what);
        let new = rustix::fs::openat(&held, "new", OFlags::RDONLY, Mode::empty()).expect(what);
        assert_eq!(std::io::read_to_string(File::from(new)).expect(what), "new");
        rustix::fs::mkdirat(&held, "made", Mode::RWXU).expect(what);
    });
}

/// The kernel looks up the directory that it moves something to anew, between its attempts.
#[test]
fn source_and_target_moved_with_the_parent_of_the_target() {
    for how in HOW {
        let Some(mut tree) = Tree::new(how) else { return };
        for named in NAMED {
            tree.make(&format!("{named:?}"), Held::Nothing);
            tree.elsewhere("new/j1", "cur/j1");
            tree.elsewhere("new/j2", "done/j2");
            tree.elsewhere("done", "new/done");
            let renamed = tree.here(named, "cur/j1", "new/done/j2", RenameFlags::empty());
            assert_eq!(renamed, Err(Errno::NOTEMPTY), "{how:?}, {named:?}");
            let renamed = tree.here(named, "cur/j1", "new/done/j3", RenameFlags::empty());
            assert_eq!(renamed, Ok(()), "{how:?}, {named:?}");
        }
    }
}

/// Something that a program does with a path.
type ByName = (&'static str, fn(&Path) -> Result<(), Errno>);

/// The same where a program has a descriptor of the directory, and names something below it.
const BY_NAME: [ByName; 14] = [
    ("stat", |path| rustix::fs::stat(path).map(drop)),
    ("open", |path| open(path, OFlags::RDONLY | OFlags::DIRECTORY).map(drop)),
    ("list", |path| {
        let opened = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::Dir::read_from(opened)?.try_for_each(|entry| entry.map(drop))
    }),
    ("create", |path| open(&path.join("created"), OFlags::CREATE | OFlags::EXCL).map(drop)),
    ("temporary", |path| open(path, OFlags::TMPFILE | OFlags::WRONLY).map(drop)),
    ("mkdir", |path| rustix::fs::mkdir(path.join("made"), Mode::RWXU)),
    ("symlink", |path| rustix::fs::symlink("target", path.join("link"))),
    ("link", |path| rustix::fs::link(path.join("file"), path.join("linked"))),
    ("unlink", |path| rustix::fs::unlink(path.join("file"))),
    ("rmdir", |path| rustix::fs::rmdir(path.join("empty"))),
    ("rename", |path| rustix::fs::rename(path, path.with_file_name("renamed"))),
    ("chmod", |path| rustix::fs::chmod(path, Mode::RWXU)),
    ("setxattr", |path| {
        rustix::fs::lsetxattr(path, "user.one", b"value", rustix::fs::XattrFlags::empty())
    }),
    ("getxattr", |path| match rustix::fs::lgetxattr(path, "user.none", &mut [0_u8; 8]) {
        Err(Errno::NODATA) => Ok(()),
        other => other.map(drop),
    }),
];

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags, Mode::RWXU)
}

/// The kernel fails to move a directory that is looked up within a rename, and goes on with another id.
/// With the first one it still has the directory where it was: below one that then moves below it.
#[test]
fn a_directory_is_found_below_a_held_one_that_was_below_it() {
    for how in HOW {
        let Some(mut tree) = Tree::new(how) else { return };
        for (operation, carry_out) in BY_NAME {
            let what = format!("{how:?} {operation}");
            tree.make(operation, Held::Nothing);
            fs::create_dir(tree.one("new/empty")).expect("made");
            fs::write(tree.one("new/file"), b"in new").expect("written");
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let held = open(&tree.other("new/j1"), flags).expect("it is there");
            tree.elsewhere("new/j1", "cur/j1");
            tree.here(Named::Paths, "cur/j1", "done/j1", RenameFlags::empty()).expect(&what);
            tree.elsewhere("new", "done/j1/new");
            let path = format!("/proc/self/fd/{}/new", held.as_raw_fd());
            assert_eq!(carry_out(Path::new(&path)), Ok(()), "{what}");
        }
    }
}

/// The first attempt of the rename fails in the kernel. The second one begins at the descriptor, which
/// does not show that the kernel has moved the directory.
/// The kernel then has two inodes for it.
#[test]
fn a_directory_that_is_found_twice_is_the_same_one() {
    for how in HOW {
        let Some(mut tree) = Tree::new(how) else { return };
        tree.make("twice", Held::Directory);
        let below = open(&tree.other("new/j1/below"), OFlags::RDONLY).expect("opens");
        tree.elsewhere("new/j1/below", "cur/below");
        tree.elsewhere("new/j1", "cur/below/j1");
        let links = |directory: &OwnedFd| rustix::fs::fstat(directory).expect("told").st_nlink;
        let found = rustix::fs::openat(&below, "j1", OFlags::RDONLY, Mode::empty());
        let [held, found] = [tree.held.remove(0), found.expect("found")];
        for (changed, made) in [(&found, "a"), (&held, "b")] {
            let before = [&held, &found].map(links);
            rustix::fs::mkdirat(changed, made, Mode::RWXU).expect("made");
            let after = [&held, &found].map(links);
            assert_eq!(after, before.map(|links| links + 1), "{how:?} {made}");
            for directory in [&held, &found] {
                let look = || rustix::fs::statat(directory, made, AtFlags::empty());
                look().expect("it is there");
            }
            rustix::fs::unlinkat(changed, made, AtFlags::REMOVEDIR).expect("removed");
            for directory in [&held, &found] {
                let look = rustix::fs::statat(directory, made, AtFlags::empty());
                assert_eq!(look.map(|stat| stat.st_nlink), Err(Errno::NOENT), "{how:?} {made}");
                assert_eq!(links(directory), before[0], "{how:?} {made}");
            }
        }
    }
}

#[test]
fn something_in_a_held_directory_is_moved_onto_it() {
    for how in HOW {
        let Some(mut tree) = Tree::new(how) else { return };
        tree.make("top", Held::Nothing);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let held = open(&tree.other("new/j1"), flags).expect("it is there");
        tree.elsewhere("new/j1", "cur/j1");
        let to = tree.other("cur/j1");
        for from in ["below", "file"] {
            let renamed = rustix::fs::renameat(&held, from, CWD, &to);
            let natively = match from {
                "below" => Errno::NOTEMPTY,
                // On Linux `ENOTEMPTY`; here the kernel looks at the kinds first.
                _ => Errno::ISDIR,
            };
            assert_eq!(renamed, Err(natively), "{how:?} {from}");
        }
        rustix::fs::renameat(&held, "file", CWD, to.join("moved")).expect("moved");
        assert_eq!(list(&tree.one("cur/j1")), ["below", "moved"], "{how:?}");
    }
}

/// Another client moved a directory away, and made a file of its name, which is moved here.
#[test]
fn a_file_in_the_place_of_a_moved_directory_is_moved() {
    for how in HOW {
        let Some(mut tree) = Tree::new(how) else { return };
        tree.make("top", Held::Nothing);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let held = open(&tree.other("new/j1/below"), flags).expect("it is there");
        tree.elsewhere("new/j1", "cur/j1");
        fs::write(tree.one("new/j1"), b"a file").expect("written");
        crate::scene::wait_until("the file is seen", || tree.other("new/j1").is_file());
        tree.here(Named::Paths, "new/j1", "done/j1", RenameFlags::empty()).expect("moved");
        tree.elsewhere("new", "cur/j1/below/new");
        let found = rustix::fs::statat(&held, "new/j2", AtFlags::empty());
        assert_eq!(found.map(drop), Ok(()), "{how:?}");
    }
}
