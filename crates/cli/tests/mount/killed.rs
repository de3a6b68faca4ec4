// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs on a strict mount of two servers that are killed, and started again, in the middle of what
//! the programs do: what they were told is done holds, and what nobody knows of was done or not.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use terrace_core::Random;

use crate::scene::{Mounted, Scene, Served};

/// Each in a directory of its own, at the same time.
const PROGRAMS: u64 = 3;

/// So often something is killed.
const KILLS: u64 = 25;

/// So many operations come before each of that, at most.
const OPERATIONS_BETWEEN: u64 = 60;

const FILES_MAX: usize = 10;

/// Longer than what is kept with the metadata, and than several stripes.
const WRITTEN_BYTES_MAX: u64 = 200_000;
const SIZE_BYTES_MAX: usize = 600_000;

/// Operations that are printed when something is wrong.
const HISTORY: usize = 40;

/// Seeds of a run.
const SEEDS: u64 = 1;

/// Bytes of a file; `None` where there is none.
type Content = Option<Vec<u8>>;

/// A program, and what its files hold.
struct Program<'a> {
    directory: PathBuf,
    random: Random,
    files: BTreeMap<String, Vec<u8>>,
    /// Files that stay open.
    open: BTreeMap<String, File>,
    /// Numbers the names.
    names: u64,
    /// Operations of which nobody knows whether they were carried out.
    unknown: u64,
    history: VecDeque<String>,
    /// Hears of each operation.
    done: &'a Sender<()>,
    seed: u64,
}

impl Program<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.random.fill(&mut bytes);
        bytes
    }

    /// A length of something that is written: every third of what is small.
    fn length(&mut self) -> u64 {
        let most = if self.below(3) == 0 { 6_000 } else { WRITTEN_BYTES_MAX };
        1 + self.below(most)
    }

    fn any_name(&mut self) -> Option<String> {
        let count = self.files.len() as u64;
        (count > 0).then(|| {
            let index = self.below(count) as usize;
            self.files.keys().nth(index).expect("it is below their number").clone()
        })
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("f{}", self.names)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn found(&self, name: &str) -> Content {
        match fs::read(self.path(name)) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => self.fail(&format!("cannot read {name}: {error}")),
        }
    }

    fn note(&mut self, text: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(text);
        // Nobody listens any more at the end.
        let _ = self.done.send(());
    }

    fn fail(&self, what: &str) -> ! {
        let (seed, directory) = (self.seed, self.directory.display());
        let history: Vec<_> = self.history.iter().map(String::as_str).collect();
        panic!("{directory}: {what}\n{}\nTERRACE_SEED={seed}", history.join("\n"));
    }

    /// Does something that makes of files what `after` says, and looks at them.
    fn change(
        &mut self,
        what: String,
        after: Vec<(String, Content)>,
        change: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> bool {
        let is_done = match change(self) {
            Ok(()) => true,
            // The server that was asked ended before it answered.
            Err(error) if error.raw_os_error() == Some(Errno::HOSTUNREACH.raw_os_error()) => false,
            Err(error) => self.fail(&format!("{what}: {error}")),
        };
        self.note(what + if is_done { "" } else { ": nobody knows" });
        for (name, after) in after {
            let before = self.files.get(&name).cloned();
            let found = if is_done { after } else { self.look_if_done(&name, &before, after) };
            match found {
                Some(content) => drop(self.files.insert(name.clone(), content)),
                None => drop(self.files.remove(&name)),
            }
            self.compare(&name);
        }
        is_done
    }

    fn look_if_done(&mut self, name: &str, before: &Content, after: Content) -> Content {
        self.unknown += 1;
        self.open.remove(name);
        let found = self.found(name);
        if found != *before && found != after {
            let length = |content: &Content| content.as_ref().map(Vec::len);
            let lengths = [&found, before, &after].map(length);
            self.fail(&format!("{name} is neither as before nor as after it: {lengths:?}"));
        }
        found
    }

    fn compare(&self, name: &str) {
        let expected = self.files.get(name);
        let found = self.found(name);
        if found.as_ref() != expected {
            let lengths = [found.as_ref(), expected].map(|content| content.map(Vec::len));
            self.fail(&format!("{name} is another one; found and expected: {lengths:?}"));
        }
        let Some(expected) = expected else { return };
        match fs::metadata(self.path(name)) {
            Ok(told) if told.len() == expected.len() as u64 => {}
            told => self.fail(&format!("{name}: {told:?} where {} are there", expected.len())),
        }
        if let Some(file) = self.open.get(name) {
            let mut found = vec![0; expected.len()];
            let is_same = file.read_exact_at(&mut found, 0).is_ok() && found == *expected;
            if !is_same {
                self.fail(&format!("{name} is another one through a descriptor from before"));
            }
        }
    }

    fn compare_all(&self) {
        let names = fs::read_dir(&self.directory).expect("readable");
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.expect("readable").file_name().into_string().expect("ASCII")
        };
        let mut names: Vec<_> = names.map(name).collect();
        names.sort_unstable();
        if !names.iter().eq(self.files.keys()) {
            self.fail(&format!("found {names:?}, expected {:?}", self.files.keys()));
        }
        names.iter().for_each(|name| self.compare(name));
    }

    /// The file, open; every other one stays so.
    fn opened(&mut self, name: &str) -> io::Result<File> {
        if let Some(file) = self.open.get(name) {
            return file.try_clone();
        }
        let file = File::options().read(true).write(true).open(self.path(name))?;
        if self.below(2) == 0 {
            self.open.insert(name.into(), file.try_clone()?);
        }
        Ok(file)
    }

    fn step(&mut self) {
        let Some(name) = self.any_name() else { return self.make() };
        match self.below(20) {
            0..=2 if self.files.len() < FILES_MAX => self.make(),
            0..=3 => self.replace(name),
            4..=9 => self.cut(name),
            10..=13 => self.write(name),
            14..=15 => self.append(name),
            16..=17 => self.rename(name),
            18 => {
                self.open.remove(&name);
                let path = self.path(&name);
                self.change(format!("remove {name}"), vec![(name, None)], |_| {
                    fs::remove_file(path)
                });
            }
            _ => self.migrate(&name),
        }
    }

    fn make(&mut self) {
        let name = self.new_name();
        self.replace(name);
    }

    /// Writes a file anew, which is there already or not.
    fn replace(&mut self, name: String) {
        let content = self.bytes(1);
        let length = self.length();
        let content = [content, self.bytes(length)].concat();
        let mut file = None;
        let what = format!("empty {name}");
        let is_empty = self.change(what, vec![(name.clone(), Some(Vec::new()))], |this| {
            file = Some(File::create(this.path(&name))?);
            Ok(())
        });
        if !is_empty {
            return;
        }
        let mut file = file.expect("it was made");
        let what = format!("fill {name} with {}", content.len());
        self.change(what, vec![(name, Some(content.clone()))], |_| file.write_all(&content));
    }

    /// Mostly makes it shorter.
    fn cut(&mut self, name: String) {
        let mut content = self.files[&name].clone();
        let before = content.len();
        let bound = if self.below(4) == 0 { SIZE_BYTES_MAX } else { before };
        let length = self.below(bound as u64 + 1);
        content.resize(length as usize, 0);
        let is_path = self.below(2) == 0;
        let what = format!("cut {name} from {before} to {length}");
        self.change(what, vec![(name.clone(), Some(content))], |this| match is_path {
            true => {
                let file = File::options().write(true).open(this.path(&name))?;
                file.set_len(length)
            }
            false => this.opened(&name)?.set_len(length),
        });
    }

    /// Also behind the end.
    fn write(&mut self, name: String) {
        let mut content = self.files[&name].clone();
        let length = self.length();
        let data = self.bytes(length);
        let offset = self.below(content.len() as u64 + 20_000) as usize;
        let end = offset + data.len();
        if end > SIZE_BYTES_MAX {
            return;
        }
        let before = content.len();
        content.resize(before.max(end), 0);
        content[offset..end].copy_from_slice(&data);
        let what = format!("write {offset} to {end} of {name}, which has {before}");
        self.change(what, vec![(name.clone(), Some(content))], |this| {
            this.opened(&name)?.write_all_at(&data, offset as u64)
        });
    }

    fn append(&mut self, name: String) {
        let length = self.length();
        let data = self.bytes(length);
        let before = self.files[&name].len();
        if before + data.len() > SIZE_BYTES_MAX {
            return;
        }
        let content = [&self.files[&name], &data[..]].concat();
        let what = format!("append {} to {before} of {name}", data.len());
        let is_done = self.change(what, vec![(name.clone(), Some(content))], |this| {
            let file = File::options().append(true).open(this.path(&name));
            file.and_then(|mut file| file.write_all(&data))
        });
        if !is_done && self.files.contains_key(&name) {
            // The next append would go behind what this one may have taken.
            self.replace(name);
        }
    }

    fn rename(&mut self, from: String) {
        let to = match (self.below(2), self.any_name()) {
            (0, Some(other)) if other != from => other,
            _ => self.new_name(),
        };
        let content = self.files[&from].clone();
        let open = self.open.remove(&from);
        self.open.remove(&to);
        let what = format!("rename {from} to {to}");
        let after = vec![(from.clone(), None), (to.clone(), Some(content))];
        let is_done = self.change(what, after, |this| fs::rename(this.path(&from), this.path(&to)));
        if let (Some(file), true) = (open, is_done) {
            self.open.insert(to, file);
        }
    }

    /// Asks for a migration on all servers.
    fn migrate(&mut self, name: &str) {
        let tier = ["fast", "slow"][self.below(2) as usize];
        let attribute = "user.terrace.tier";
        let asked = setxattr(self.path(name), attribute, tier.as_bytes(), XattrFlags::empty());
        match asked {
            // It moves already, or the server ended.
            Ok(()) | Err(Errno::BUSY | Errno::HOSTUNREACH) => {}
            Err(errno) => self.fail(&format!("cannot migrate {name}: {errno}")),
        }
        self.note(format!("migrate {name} to {tier}"));
        self.compare(name);
    }
}

/// Runs a program until it is told to end; how many of its operations nobody knows of.
fn run(
    mounted: &Mounted,
    seed: u64,
    number: u64,
    has_ended: &AtomicBool,
    done: &Sender<()>,
) -> u64 {
    let directory = mounted.path().join(format!("program{number}"));
    fs::create_dir(&directory).expect("made");
    // Every other one in many stripes.
    if number.is_multiple_of(2) {
        let set = setxattr(&directory, "user.terrace.segment", b"64KiB", XattrFlags::empty());
        set.expect("a directory may have it");
    }
    let mut program = Program {
        directory,
        random: Random::new(seed.wrapping_mul(PROGRAMS) + number),
        files: BTreeMap::new(),
        open: BTreeMap::new(),
        names: 0,
        unknown: 0,
        history: VecDeque::new(),
        done,
        seed,
    };
    while !has_ended.load(Ordering::Relaxed) {
        program.step();
    }
    program.open.clear();
    program.compare_all();
    program.unknown
}

#[test]
fn what_was_acknowledged_holds_while_servers_are_killed() {
    for seed in terrace_testkit::seeds(SEEDS) {
        check(seed);
    }
}

fn check(seed: u64) {
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    let (mut names, mut data) = (Served::start(&first), Served::start(&second));
    let mut mounted = first.mount_all_patient(&[&names, &data], "mnt", &["--strict"]);
    let has_ended = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    let unknown = thread::scope(|scope| {
        let start = |number| {
            let (sender, mounted, has_ended) = (sender.clone(), &mounted, &has_ended);
            scope.spawn(move || run(mounted, seed, number, has_ended, &sender))
        };
        let programs: Vec<_> = (0..PROGRAMS).map(start).collect();
        drop(sender);
        let mut random = Random::new(!seed);
        for _ in 0..KILLS {
            // Where all programs have failed, nothing comes.
            let operations = 1 + random.below(OPERATIONS_BETWEEN);
            receiver.iter().take(operations as usize).for_each(drop);
            match random.below(4) {
                0 => names.kill_and_restart(&first),
                1 => data.kill_and_restart(&second),
                2 => {
                    names.kill();
                    data.kill_and_restart(&second);
                    names.start_again(&first);
                }
                _ => {
                    data.kill();
                    names.kill();
                    names.start_again(&first);
                    data.start_again(&second);
                }
            }
        }
        has_ended.store(true, Ordering::Relaxed);
        let ended: Vec<_> = programs.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ended.into_iter().map(|unknown| unknown.expect("what was acknowledged holds")).sum::<u64>()
    });
    println!("killed, seed {seed}: nobody knows of {unknown} operations");
    mounted.unmount();
}
