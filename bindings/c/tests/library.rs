// SPDX-License-Identifier: Apache-2.0 OR MIT
//! C programs against the library as `install.sh` installs it: the tests in `library.c`, and the examples.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const FLAGS: [&str; 6] = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"];

/// Where cargo has put the library: beside this program.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    program.parent().expect("it is in a directory").to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("it prints text")
}

/// The library, installed in a directory of its own.
struct Installed {
    directory: TempDir,
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
        run(Command::new(script)
            .arg(built())
            .env("PREFIX", directory.path())
            .env_remove("DESTDIR"));
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What pkg-config says.
    fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(arguments).arg("terrace").env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"));
        run(&mut command).split_whitespace().map(Into::into).collect()
    }

    /// Builds a program, and runs it with a store in the directory.
    fn command(&self, source: &str, libraries: &[&str]) -> Command {
        let mut command = Command::new(self.built_with(source, libraries, &FLAGS));
        command.env("LD_LIBRARY_PATH", self.path("lib")).arg(self.path("store"));
        command
    }

    /// Builds a program.
    fn built_with(&self, source: &str, libraries: &[&str], flags: &[&str]) -> PathBuf {
        let program = self.path(&source.replace('/', "-"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        run(Command::new("cc")
            .args(flags)
            .arg(source)
            .args(self.flags(&["--cflags"]))
            .args(self.flags(libraries))
            .args(["-pthread", "-o"])
            .arg(&program));
        program
    }
}

#[test]
fn the_library_keeps_its_promises() {
    let installed = Installed::new();
    run(&mut installed.command("tests/library.c", &["--libs"]));
}

#[test]
fn queues_and_collections_keep_theirs() {
    let installed = Installed::new();
    run(&mut installed.command("tests/queue.c", &["--libs"]));
}

/// `make memcheck` runs it, as it takes a minute.
#[test]
#[ignore = "valgrind is slow"]
fn valgrind_finds_no_error_and_no_leak() {
    for source in ["tests/library.c", "tests/queue.c"] {
        let installed = Installed::new();
        let program = installed.built_with(source, &["--libs"], &FLAGS);
        // In a forked child everything is lost that threads of the parent have on their stacks.
        run(Command::new("valgrind")
            .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
            .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
            .arg(program)
            .env("LD_LIBRARY_PATH", installed.path("lib"))
            .env("TERRACE_TEST_NO_FORKS", "1")
            .arg(installed.path("store")));
    }
}

/// `make memcheck` runs it.
#[test]
#[ignore = "not with every compiler of C"]
fn the_address_sanitizer_finds_no_error_and_no_leak() {
    let flags: Vec<_> = FLAGS.into_iter().chain(["-fsanitize=address,undefined", "-g"]).collect();
    for source in ["tests/library.c", "tests/queue.c"] {
        let installed = Installed::new();
        run(Command::new(installed.built_with(source, &["--libs"], &flags))
            .env("LD_LIBRARY_PATH", installed.path("lib"))
            .env("ASAN_OPTIONS", "detect_leaks=1:allocator_may_return_null=1")
            .arg(installed.path("store")));
    }
}

/// `make memcheck` runs it.
#[test]
#[ignore = "a million operations take a while"]
fn a_million_operations_leave_no_memory_behind() {
    let installed = Installed::new();
    // No disk: what is compared is memory.
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    run(Command::new(installed.built_with("tests/leak.c", &["--libs"], &FLAGS))
        .env("LD_LIBRARY_PATH", installed.path("lib"))
        .arg(directory.path().join("store"))
        .arg("1000000"));
}

#[test]
fn a_program_in_fortran_writes_and_reads_a_field() {
    let installed = Installed::new();
    run(&mut installed.command("examples/hello.c", &["--libs"]));
    let program = installed.path("field");
    run(Command::new("gfortran")
        .args(["-Wall", "-Wextra", "-Wno-compare-reals", "-Werror", "-J"])
        .arg(installed.path(""))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/field.f90"))
        .args(installed.flags(&["--libs"]))
        .arg("-o")
        .arg(&program));
    let printed = run(Command::new(program)
        .env("LD_LIBRARY_PATH", installed.path("lib"))
        .arg(installed.path("store")));
    assert_eq!(printed, "climate/t2m: 160000 bytes\n");
}

#[test]
fn the_examples_run() {
    let installed = Installed::new();
    let hello = "hello, tiers\nhello/world\n";
    assert_eq!(run(&mut installed.command("examples/hello.c", &["--libs"])), hello);
    let batch = run(&mut installed.command("examples/batch.c", &["--libs"]));
    for what in ["create", "write", "read", "delete"] {
        assert!(batch.contains(&format!("{what}: 100 operations, 0 failed")), "{batch}");
    }
    let items = run(&mut installed.command("examples/item.c", &["--libs"]));
    assert_eq!(items, "100 items, one of them: step-7 and more\n");
    // The static library needs nothing of ours at run time.
    std::fs::remove_file(installed.path("lib/libterrace.so")).expect("removes it");
    let mut linked = installed.command("examples/hello.c", &["--static", "--libs"]);
    assert_eq!(run(linked.env_remove("LD_LIBRARY_PATH")), hello);
}

#[test]
fn the_library_has_its_name_and_exports_its_interface_alone() {
    let library = built().join("libterrace_c.so");
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("[libterrace.so.0]"), "{dynamic}");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let names: Vec<_> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let header = include_str!("../include/terrace.h");
    for name in &names {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
    assert!(names.len() > 40, "{names:?}");
}
