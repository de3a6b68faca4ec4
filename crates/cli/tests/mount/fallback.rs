// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts that serve because the kernel may not pass files through: of who is not root, and of tiers on
//! file systems that are stacked on others.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::natives::NOBODY;
use crate::receipts::ask;
use crate::scene::{Mountpoint, Scene, finish, wait_until};
use crate::steering::{STATE, TIER, attribute};

/// Kept as an object.
const LENGTH: usize = 10_000;

/// What a user does who has no rights, in a directory of his own with the command there: in two rounds
/// mounts, makes a file in the first, moves it while it is open, and unmounts.
const SCRIPT: &str = r#"
terrace init store --tier fast=fast --tier slow=slow --policy none >init.out
mkdir mnt
if terrace mount --io passthrough store mnt 2>refused; then exit 1; fi
grep -q root refused
status=0
terrace mount store ../busy 2>denied || status=$?
grep -q 'permission denied' denied
[ $status = 7 ]
for tier in slow fast; do
    terrace mount --json store mnt >mounted
    grep -q '"passthrough":false' mounted
    grep -q "$PWD/mnt .*nosuid,nodev" /proc/self/mounts
    [ -e mnt/file ] || head -c 10000 /dev/zero >mnt/file
    exec 3<>mnt/file
    terrace migrate --to $tier mnt/file >migrated
    cat <&3 | cmp -n 10000 - /dev/zero
    [ "$(getfattr --only-values -n user.terrace.state mnt/file)" = served ]
    [ "$(getfattr --only-values -n user.terrace.tier mnt/file)" = $tier ]
    exec 3>&-
    fusermount3 -u mnt
done
# It waits for the end of the last one.
terrace --store store fsck --repair >fsck.out
"#;

#[test]
fn who_is_not_root_mounts_with_fusermount() {
    let Some(scene) = Scene::new() else { return };
    scene.let_everybody_in();
    let home = scene.directory("home");
    scene.directory("busy");
    // Where it was built nobody else may look.
    fs::copy(env!("CARGO_BIN_EXE_terrace"), home.join("terrace")).expect("there is room");
    chown(&home, Some(NOBODY), Some(NOBODY)).expect("root may");
    // Everybody may use the kernel's device, as on any Debian; in containers it may be root's.
    let device = "mknod -m 666 fuse c 10 229 && mount --bind fuse /dev/fuse";
    let user = "cd home && exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -euc";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", &format!("{device} && {user} \"$0\"")]).arg(SCRIPT);
    command.current_dir(scene.path(""));
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", home.display()));
    let (has_succeeded, text) = finish(command);
    assert!(has_succeeded, "{text}");
}

#[test]
fn tiers_on_overlayfs_are_served_and_others_passed_through() {
    let Some(scene) = Scene::new() else { return };
    let over = Mountpoint(scene.directory("over"));
    let below = |name| scene.directory(name).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        below("lower"),
        below("upper"),
        below("work")
    );
    let options = std::ffi::CString::new(options).expect("no zero");
    mount("overlay", &over.0, "overlay", MountFlags::empty(), Some(&*options)).expect("root may");
    let init = "init one --policy none --tier plain=plain --tier stacked=over/stacked";
    scene.ok(init.split_whitespace());
    let mut mounted = scene.mount_store("one", "mnt", &[]);
    assert!(mounted.passes_through());
    let path = mounted.path().join("file");
    for (tier, state) in [("plain", "passthrough"), ("stacked", "served"), ("plain", "passthrough")]
    {
        if !path.exists() {
            fs::write(&path, [7; LENGTH]).expect("there is room");
            // The other tier is on another file system, where the file could go on.
            let mark = "user.terrace.movable";
            setxattr(&path, mark, b"0", XattrFlags::empty()).expect("files take marks");
        }
        wait_until("it is there", || {
            let is_closed = attribute(&path, STATE).as_deref() == Ok("closed");
            let is_there = attribute(&path, TIER).as_deref() == Ok(tier);
            if is_closed && !is_there {
                // It may be on its way.
                let _ = ask(&path, tier);
            }
            is_closed && is_there
        });
        let file = fs::File::options().read(true).write(true).open(&path).expect("it is there");
        assert_eq!(attribute(&path, STATE).as_deref(), Ok(state), "{tier}");
        if state == "served" {
            // Which moves while it is open.
            ask(&path, "plain").expect("nobody holds it");
            wait_until("it moves", || attribute(&path, TIER).as_deref() == Ok("plain"));
        }
        drop(file);
        assert_eq!(fs::read(&path).expect("it is there"), [7; LENGTH]);
    }
    mounted.unmount();
    scene.ok("init two --policy none --tier stacked=over/alone".split_whitespace());
    let output = scene.command(["mount", "--io", "passthrough", "two", "mnt"]).output();
    let output = output.expect("the binary runs");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && why.contains("overlayfs"), "{output:?}");
    let mut mounted = scene.mount_store("two", "mnt", &[]);
    assert!(!mounted.passes_through());
    fs::write(mounted.path().join("file"), [7; LENGTH]).expect("there is room");
    mounted.unmount();
    unmount(&over.0, UnmountFlags::empty()).expect("nobody uses it");
}
