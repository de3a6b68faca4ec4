// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Backends are found by name, and what does not fit is refused with what would.

use terrace_backends::{BACKENDS, Place, SERVICES, open_backend};
use terrace_core::{BackendExt, Error, ErrorKind, Key, Open, Semantics};

const NOWHERE: Place<'_> = Place { path: None, capacity_bytes: 1 << 20, read_only: false };

fn refused(name: &str, place: &Place<'_>) -> Error {
    open_backend(name, place).err().expect("refused")
}

#[test]
fn every_entry_opens_and_gives_what_it_says() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for entry in BACKENDS {
        let path = entry.needs_path.then_some(directory.path());
        let backend = open_backend(entry.name, &Place { path, ..NOWHERE }).expect("open");
        assert_eq!(backend.capability().persistency, entry.persistency, "{}", entry.name);
        assert!(backend.target().starts_with(&format!("{}:", entry.name)), "{}", backend.target());
    }
}

#[test]
fn an_unknown_backend_is_named_with_those_that_exist() {
    let error = refused("fiel", &NOWHERE);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(BACKENDS.iter().all(|entry| text.contains(entry.name)), "{text}");
    assert!(text.contains("backend=fiel"), "{text}");
}

#[test]
fn a_path_is_asked_for_where_it_is_needed_and_only_there() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for entry in BACKENDS {
        let path = (!entry.needs_path).then_some(directory.path());
        let error = refused(entry.name, &Place { path, ..NOWHERE });
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(entry.name), "{error}");
    }
}

#[test]
fn a_place_that_is_read_only_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = Place { path: Some(directory.path()), ..NOWHERE };
    let key = Key::parse("app/a").expect("legal");
    open_backend("file", &place).expect("open").write_all(&key, b"kept").expect("room");

    let backend = open_backend("file", &Place { read_only: true, ..place }).expect("open");
    let other = Key::parse("app/b").expect("legal");
    let volatile = Semantics::at_level(terrace_core::Persistency::None);
    for how in [Open::write(), Open::create(), Open::create_new()] {
        let how = how.with_semantics(volatile);
        let error = backend.open(&other, &how).err().expect("read-only");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    assert_eq!(backend.delete(&key).expect_err("read-only").kind(), ErrorKind::Denied);
    assert_eq!(backend.read_all(&key).expect("reading is allowed"), b"kept");
}

#[test]
fn every_backend_is_in_the_reference() {
    let names = BACKENDS.iter().map(|entry| entry.name);
    let names: Vec<_> = names.chain(SERVICES.iter().map(|entry| entry.name)).collect();
    let page = |name: &str| {
        let file = format!("{}/../../docs/reference/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&file).expect(&file)
    };
    let (backends, configuration) = (page("backends.md"), page("configuration.md"));
    let values = configuration.lines().find(|line| line.starts_with("| `backend` |"));
    let values = values.expect("a row of [[tier]]");
    for name in names {
        let row = format!("| `{name}` |");
        assert!(
            backends.contains(&row),
            "docs/reference/backends.md lacks a row that begins {row}"
        );
        let value = format!("`\"{name}\"`");
        assert!(
            values.contains(&value),
            "`backend` in docs/reference/configuration.md lacks {value}"
        );
    }
}
