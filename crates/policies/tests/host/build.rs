// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds libraries as their authors would.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the crate is in a repository")
}

/// Where `terrace_policy.h` is.
pub(crate) fn include() -> PathBuf {
    root().join("crates/policies/include")
}

/// Runs a command to its end and gives what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn cc() -> Command {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(include());
    command
}

/// Builds a fixture as `target`, with a macro defined.
pub(crate) fn fixture(name: &str, define: &str, target: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host/fixtures").join(name);
    run(cc().args(["-shared", "-fPIC", "-D", define, "-o"]).arg(target).arg(source));
}

/// Builds a C policy as the tutorial says.
pub(crate) fn library(source: &Path, target: &Path) {
    run(cc().args(["-shared", "-fPIC", "-o"]).arg(target).arg(source));
}

/// Compiles a C program and gives what it prints.
pub(crate) fn run_c(program: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, binary) = (dir.path().join("program.c"), dir.path().join("program"));
    std::fs::write(&source, program).expect("writes");
    run(cc().arg("-o").arg(&binary).arg(&source));
    run(&mut Command::new(binary))
}

/// The LRU in C, built by its own Makefile.
pub(crate) fn lru() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        for file in ["Makefile", "lru.c"] {
            let source = root().join("examples/policies/lru-c").join(file);
            std::fs::copy(source, dir.path().join(file)).expect("copies");
        }
        let include = format!("INCLUDE={}", include().display());
        run(Command::new("make").arg("-C").arg(dir.path()).arg(include));
        let path = dir.path().join("lru.so");
        (dir, path)
    });
    path
}

/// The write buffer in Rust, built by cargo outside the workspace.
pub(crate) fn write_buffer() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = root().join("examples/policies/write-buffer-rust");
        crate_library(&path, &["--locked"], "libwrite_buffer.so")
    })
}

/// The fixture that uses all of the Rust binding.
pub(crate) fn binding() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = root().join("crates/policies/tests/host/fixtures/binding");
        crate_library(&path, &["--locked"], "libbinding.so")
    })
}

/// Builds a crate outside the workspace and gives the path of its library.
pub(crate) fn crate_library(path: &Path, options: &[&str], library: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries");
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--offline"]).args(options);
    command.arg("--manifest-path").arg(path.join("Cargo.toml"));
    run(command.arg("--target-dir").arg(&target));
    target.join("debug").join(library)
}
