// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks that directories pass on to what is made in them: whether it moves while it is open, and advice
//! for the policy.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use crate::receipts::ask;
use crate::scene::{Scene, wait_until};
use crate::steering::{STATE, TIER, attribute};

/// Kept as an object.
const LENGTH: usize = 10_000;

const HINT: &str = "user.terrace.hint";

fn set(path: &Path, name: &str, value: &str) -> Result<(), Errno> {
    setxattr(path, format!("user.terrace.{name}"), value.as_bytes(), XattrFlags::empty())
}

/// A directory below another one that has a mark.
fn marked(root: &Path, name: &str, value: &str) -> std::path::PathBuf {
    let top = root.join(format!("{name}{value}"));
    fs::create_dir(&top).expect("it is new");
    set(&top, name, value).expect("directories take marks");
    let below = top.join("below");
    fs::create_dir(&below).expect("it is new");
    assert_eq!(attribute(&below, &format!("user.terrace.{name}")).as_deref(), Ok(value));
    below
}

/// A new long file that is opened again, as the kernel passes nothing else through.
fn open(directory: &Path) -> File {
    let path = directory.join("file");
    fs::write(&path, [7; LENGTH]).expect("there is room");
    wait_until("nobody has it open", || attribute(&path, STATE).as_deref() == Ok("closed"));
    File::options().read(true).write(true).open(path).expect("it is there")
}

#[test]
fn what_is_marked_movable_moves_while_it_is_open_and_nothing_else_does() {
    let Some(scene) = Scene::without_capacity() else { return };
    for (mode, is_passed) in [("auto", true), ("served", false)] {
        let mut mounted = scene.mount("mnt", &["--io", mode]);
        let root = mounted.path().join(mode);
        fs::create_dir(&root).expect("it is new");
        let plain = root.join("plain");
        fs::create_dir(&plain).expect("it is new");
        let (served, passed) = (marked(&root, "movable", "1"), marked(&root, "movable", "0"));
        for (directory, is_passed) in [(plain, is_passed), (served, false), (passed, is_passed)] {
            let mut file = open(&directory);
            let path = directory.join("file");
            let state = attribute(&path, STATE).expect("mounts tell");
            let expected = if is_passed { "passthrough" } else { "served" };
            assert_eq!(state, expected, "{mode}: {}", path.display());
            assert_eq!(attribute(&path, TIER).as_deref(), Ok("fast"));
            let asked = ask(&path, "slow");
            if is_passed {
                assert_eq!(asked, Err(Errno::TXTBSY), "{mode}: {}", path.display());
                continue;
            }
            asked.expect("a served file may move");
            wait_until("it moves", || attribute(&path, TIER).as_deref() == Ok("slow"));
            file.write_all(b"moved").expect("there is room");
            let found = fs::read(&path).expect("it is there");
            assert_eq!((&found[..5], found.len()), (&b"moved"[..], LENGTH));
        }
        mounted.unmount();
    }
}

/// New objects go to the first tier, unless they are said to be cold.
const POLICY: &str = r#"
from terrace.policy import Placement, Policy, Rule

class Advised(Policy):
    placement = Placement(tier=0, rules=[Rule(tier=1, temperature="cold")])
"#;

#[test]
fn advice_of_a_directory_is_what_its_files_are_placed_by() {
    let Some(scene) = Scene::new() else { return };
    fs::write(scene.path("advised.py"), POLICY).expect("there is room");
    scene.ok(["policy", "use", "./advised.py"]);
    let mounted = scene.mount("mnt", &[]);
    for (advice, tier) in [("cold", "slow"), ("hot", "fast"), ("none", "fast")] {
        let below = match advice {
            // It takes back what was said, for what is made from then on.
            "none" => {
                let below = mounted.path().join("hintcold/below");
                set(&below, "hint", "none").expect("directories take marks");
                below
            }
            _ => marked(mounted.path(), "hint", advice),
        };
        let path = below.join(format!("{advice}.data"));
        fs::write(&path, [7; LENGTH]).expect("there is room");
        assert_eq!(attribute(&path, TIER).as_deref(), Ok(tier), "{advice}");
        let kept = attribute(&path, HINT);
        assert_eq!(kept.is_ok(), advice != "none", "{advice}: {kept:?}");
    }
}
