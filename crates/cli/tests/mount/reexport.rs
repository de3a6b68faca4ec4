// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts that an NFS server exports: handles lead to files by their number, whatever the kernel has
//! forgotten, and nfs-ganesha serves them to a client.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::scene::{Scene, wait_until};
use crate::suites::{How, Place};

/// A process that asks for what NFS servers and their clients do.
struct Asker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Asker {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mount/reexport.py");
        let mut command = Command::new("python3");
        let command = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("there is Python");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, input, output }
    }

    #[track_caller]
    fn ask(&mut self, what: Value) -> Value {
        writeln!(self.input, "{what}").expect("it listens");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{what}: {line:?}: {error}"))
    }

    /// Asks for what must not fail.
    #[track_caller]
    fn ok(&mut self, what: Value) -> Value {
        let answer = self.ask(what.clone());
        assert!(answer.get("errno").is_none(), "{what}: {answer}");
        answer
    }

    /// Asks for what must fail; with which number.
    #[track_caller]
    fn errno(&mut self, what: Value) -> String {
        let answer = self.ask(what.clone());
        let errno = answer["errno"].as_str();
        errno.unwrap_or_else(|| panic!("{what} did not fail: {answer}")).into()
    }

    #[track_caller]
    fn handle(&mut self, path: &Path) -> [Value; 2] {
        let handle = self.ok(json!(["handle", path]));
        [handle[0].clone(), handle[1].clone()]
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn opened(mount: &Path, [kind, content]: &[Value; 2]) -> Value {
    json!(["open-handle", mount, kind, content])
}

#[test]
fn handles_outlive_the_process_of_a_mount() {
    outlive(How::Served);
}

#[test]
fn handles_outlive_the_process_of_a_mount_that_passes_through() {
    outlive(How::Passed);
}

#[test]
fn handles_outlive_the_process_of_a_network_mount() {
    outlive(How::Network);
}

fn outlive(how: How) {
    let Some(Place { mut mounted, served: _served, scene }) = Place::new(how, &[]) else { return };
    let mount = mounted.path().to_path_buf();
    fs::create_dir_all(mount.join("a/b")).expect("room");
    fs::write(mount.join("a/b/file"), "what it was").expect("room");
    let mut asker = Asker::start();
    let file = asker.handle(&mount.join("a/b/file"));
    let directory = asker.handle(&mount.join("a/b"));
    for round in 0..2 {
        assert_eq!(asker.ok(opened(&mount, &file)), "what it was", "round {round}");
        assert_eq!(asker.ok(opened(&mount, &directory)), json!(["file"]), "round {round}");
        // The next kernel's look at them is its first.
        mounted.kill();
        mounted.mount(&scene);
    }
    fs::rename(mount.join("a/b"), mount.join("c")).expect("it can be renamed");
    fs::rename(mount.join("c/file"), mount.join("file")).expect("it can be renamed");
    assert_eq!(asker.ok(opened(&mount, &file)), "what it was");
    assert_eq!(asker.ok(opened(&mount, &directory)), json!([]));
}

#[test]
fn a_handle_of_what_was_removed_is_stale_also_when_the_name_is_there_again() {
    for how in [How::Served, How::Passed, How::Network] {
        let Some(Place { mut mounted, served: _served, scene }) = Place::new(how, &[]) else {
            return;
        };
        let mount = mounted.path().to_path_buf();
        let (path, inside) = (mount.join("file"), mount.join("directory"));
        let mut asker = Asker::start();
        fs::write(&path, "first").expect("room");
        fs::create_dir(&inside).expect("room");
        let handles = [asker.handle(&path), asker.handle(&inside)];
        fs::remove_file(&path).expect("it is there");
        fs::remove_dir(&inside).expect("it is there");
        fs::write(&path, "second").expect("room");
        fs::create_dir(&inside).expect("room");
        for round in 0..2 {
            for handle in &handles {
                let errno = asker.errno(opened(&mount, handle));
                assert_eq!(errno, "ESTALE", "{how:?}, round {round}");
            }
            mounted.kill();
            mounted.mount(&scene);
        }
    }
}

#[test]
fn a_handle_of_what_another_client_removed_is_stale() {
    let Some(place) = Place::new(How::Network, &[]) else { return };
    let served = place.served.as_ref().expect("it is over the network");
    let (mounted, other) = (&place.mounted, place.scene.mount_served(served, "other", &[]));
    let mut asker = Asker::start();
    fs::write(mounted.path().join("file"), "here").expect("room");
    let handle = asker.handle(&mounted.path().join("file"));
    assert_eq!(asker.ok(opened(mounted.path(), &handle)), "here");
    fs::remove_file(other.path().join("file")).expect("it is there");
    // The kernel of this mount has it still, and has to ask.
    assert_eq!(asker.errno(opened(mounted.path(), &handle)), "ESTALE");
}

/// nfs-ganesha, which exports a directory over NFS 4 on a port of its own.
struct Ganesha {
    child: Child,
    port: u16,
}

impl Ganesha {
    fn start(scene: &Scene, exported: &Path) -> Self {
        // Free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("the loopback interface is there").port();
        let recovery = scene.directory("recovery");
        let configuration = format!(
            "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_Addr = 127.0.0.1;\n\
             Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}\n\
             NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{}\";\n\
             Only_Numeric_Owners = true; }}\n\
             EXPORT {{ Export_Id = 1; Filesystem_Id = 1.1; Path = \"{}\"; Pseudo = /files;\n\
             Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 4;\n\
             Transports = TCP; FSAL {{ Name = VFS; }} }}\n",
            recovery.display(),
            exported.display()
        );
        let file = scene.path("ganesha.conf");
        fs::write(&file, configuration).expect("room");
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(file);
        command.arg("-L").arg(scene.path("ganesha.log"));
        command.arg("-p").arg(scene.path("ganesha.pid"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().unwrap_or_else(|error| {
            panic!("ganesha.nfsd: {error}; `tools/setup.sh --suites` installs it")
        });
        let ganesha = Self { child, port };
        wait_until("it serves", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        ganesha
    }

    /// The URL of what it exports, for libnfs.
    fn url(&self) -> String {
        format!("nfs://127.0.0.1/files/?version=4&nfsport={}", self.port)
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // What it holds open is closed with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Less than 4 KiB, which libnfs 4.0 cannot encode as one write over NFS 4.
const WRITE_BYTES: usize = 1000;

#[test]
fn an_nfs_server_exports_a_mount() {
    exports(How::Served);
}

#[test]
fn an_nfs_server_exports_a_mount_that_passes_through() {
    exports(How::Passed);
}

#[test]
fn an_nfs_server_exports_a_network_mount() {
    exports(How::Network);
}

fn exports(how: How) {
    let Some(Place { mut mounted, mut served, scene }) = Place::new(how, &[]) else { return };
    let mount = mounted.path().to_path_buf();
    let ganesha = Ganesha::start(&scene, &mount);
    let mut asker = Asker::start();
    asker.ok(json!(["nfs-mount", ganesha.url()]));

    // What a client writes is on the mount, and what is on the mount can be read by a client.
    let text: String = (0..20_000).map(|number| char::from(b'a' + (number % 26) as u8)).collect();
    asker.ok(json!(["nfs-create", "/written"]));
    for (index, piece) in text.as_bytes().chunks(WRITE_BYTES).enumerate() {
        let piece = std::str::from_utf8(piece).expect("it is ASCII");
        asker.ok(json!(["nfs-write", "/written", index * WRITE_BYTES, piece]));
    }
    asker.ok(json!(["nfs-close", "/written"]));
    assert_eq!(fs::read_to_string(mount.join("written")).expect("it is there"), text);
    fs::write(mount.join("made"), &text).expect("room");
    // Whoever syncs it next would be told that it may be lost with a server that is killed.
    File::open(mount.join("made")).and_then(|file| file.sync_all()).expect("synced");
    asker.ok(json!(["nfs-open", "/made"]));
    assert_eq!(asker.ok(json!(["nfs-read", "/made", 0, text.len()])), text);
    assert_eq!(asker.ok(json!(["nfs-list", "/"])), json!(["made", "written"]));

    // Names change on either side.
    asker.ok(json!(["nfs-change", "mkdir", "/directory"]));
    asker.ok(json!(["nfs-change", "rename", "/written", "/directory/moved"]));
    assert_eq!(fs::read_to_string(mount.join("directory/moved")).expect("it moved"), text);
    // Not by opening what is gone: libnfs 4.0 loses count of its requests where that fails.
    assert_eq!(asker.ok(json!(["nfs-list", "/"])), json!(["directory", "made"]));
    assert_eq!(asker.ok(json!(["nfs-list", "/directory"])), json!(["moved"]));
    asker.ok(json!(["nfs-change", "unlink", "/directory/moved"]));
    asker.ok(json!(["nfs-change", "rmdir", "/directory"]));
    assert!(!mount.join("directory").exists());

    // A restart of Terrace's server is a pause for the client.
    if let Some(served) = &mut served {
        served.kill_and_restart(&scene);
        assert_eq!(asker.ok(json!(["nfs-read", "/made", 26, 26])), text[..26]);
        asker.ok(json!(["nfs-write", "/made", 0, "A"]));
        assert_eq!(&fs::read_to_string(mount.join("made")).expect("it is there")[..2], "Ab");
    }
    asker.ok(json!(["nfs-close", "/made"]));

    // After that of the mount the NFS server has to be started again, too: it holds the old one.
    mounted.kill();
    drop(ganesha);
    mounted.mount(&scene);
    let ganesha = Ganesha::start(&scene, &mount);
    asker.ok(json!(["nfs-mount", ganesha.url()]));
    assert_eq!(asker.ok(json!(["nfs-list", "/"])), json!(["made"]));
    asker.ok(json!(["nfs-open", "/made"]));
    assert_eq!(asker.ok(json!(["nfs-read", "/made", 1, 25])), text[1..26]);
}
