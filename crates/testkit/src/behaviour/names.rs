// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and namespaces.

use terrace_core::{Backend, BackendExt, Create, ErrorKind, Key, NAME_BYTES_MAX, ObjectExt};

use super::*;

/// Creates an object under each key, all of different sizes and bytes, then finds each again, in
/// the listing too.
fn assert_apart(backend: &dyn Backend, namespace: &str, names: &[String]) {
    let keys: Vec<Key> =
        names.iter().map(|name| Key::new(namespace, name).expect("legal")).collect();
    for (index, key) in keys.iter().enumerate() {
        let object = open_key(backend, key, Create::New).expect("create");
        object.write(0, &vec![index as u8; index + 1]).expect("write");
    }
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(backend.stat(key).expect("stat").size_bytes, index as u64 + 1, "{key}");
        let object = open_key(backend, key, Create::Never).expect("open");
        assert_reads(backend, &*object, 0, &vec![index as u8; index + 1]);
    }
    let mut expected = keys.clone();
    expected.sort();
    assert_eq!(backend.list_all(namespace, "").expect("list"), expected);
    for (index, key) in keys.iter().enumerate() {
        backend.delete(key).expect("delete");
        assert_fails(backend.stat(key), ErrorKind::NotFound);
        if let Some(next) = keys.get(index + 1) {
            assert_eq!(backend.stat(next).expect("the others stay").size_bytes, index as u64 + 2);
        }
    }
    assert_eq!(backend.list_all(namespace, "").expect("list"), []);
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Goal: names that look alike are different objects.
pub fn names_are_kept_apart(backend: &dyn Backend) {
    let names =
        ["a", "A", "a ", " a", "a.", "a+", "+a", "a%", "%61", "a%2F", "%2F", "é", "e\u{301}"];
    assert_apart(backend, NAMESPACE, &owned(&names));
}

/// Goal: a name may hold every character but NUL, and never leaves its place.
pub fn names_hold_any_character(backend: &dyn Backend) {
    let names = [
        ".",
        "..",
        "...",
        "/",
        "//",
        "../..",
        "../../../../tmp/a",
        "/etc/passwd",
        "./a",
        "a/..",
        "~",
        ".hidden",
        "-rf",
        "--",
        "*",
        "?",
        "a\nb",
        "\t",
        "\u{1}",
        "\u{7f}",
        "\\",
        "\"",
        "'",
        "$HOME",
        "con",
        "a:b",
        "\u{feff}",
        "\u{202e}",
        "🦀",
        "名前",
        "\u{10ffff}",
    ];
    assert_apart(backend, NAMESPACE, &owned(&names));
}

/// Goal: names of every length up to the bound are kept apart, whatever they are made of.
pub fn long_names_are_kept_apart(backend: &dyn Backend) {
    let mut names = Vec::new();
    for unit in ["a", ".", "/", "%", "é", "🦀"] {
        for length_bytes in [60, 126, 250, 252, 254, 256, 258, 300, NAME_BYTES_MAX] {
            names.push(unit.repeat(length_bytes / unit.len()));
        }
    }
    for length_bytes in 251..=257 {
        names.push(format!("{}.", "b".repeat(length_bytes - 1)));
    }
    names.push(format!("{}x", "a".repeat(NAME_BYTES_MAX - 1)));
    names.push(format!("{}y", "a".repeat(NAME_BYTES_MAX - 1)));
    names.sort();
    names.dedup();
    assert_apart(backend, NAMESPACE, &names);
}

/// Goal: an object may have a name that another's begins with; neither is a directory.
pub fn names_may_begin_with_other_names(backend: &dyn Backend) {
    assert_apart(backend, NAMESPACE, &owned(&["a", "a/", "a/b", "a/b/", "a/b/c", "a//b", "ab"]));
    let reversed = ["x/y/z", "x/y", "x/", "x"];
    assert_apart(backend, NAMESPACE, &owned(&reversed));
}

/// Goal: namespaces do not share names, and are there while they hold objects.
pub fn namespaces_are_apart(backend: &dyn Backend) {
    let key = |text: &str| Key::parse(text).expect("legal");
    for (index, text) in ["b/same", "a/same", "a-b/same", "c/other"].iter().enumerate() {
        let object = open_key(backend, &key(text), Create::New).expect("create");
        object.set_len(index as u64).expect("grow");
    }
    assert_eq!(backend.namespaces().expect("namespaces"), ["a", "a-b", "b", "c"]);
    assert_eq!(backend.list_all("a", "").expect("list"), [key("a/same")]);
    backend.delete(&key("a/same")).expect("delete");
    assert_eq!(backend.namespaces().expect("namespaces"), ["a-b", "b", "c"]);
    assert_eq!(backend.list_all("a", "").expect("list"), []);
    assert_eq!(backend.stat(&key("b/same")).expect("stays").size_bytes, 0);
    assert_eq!(backend.stat(&key("a-b/same")).expect("stays").size_bytes, 2);
}

/// Goal: a namespace may hold every character but NUL and `/`, and never leaves its place.
pub fn namespaces_hold_any_character(backend: &dyn Backend) {
    let long = "é".repeat(32);
    let mut expected =
        owned(&[".", "..", ".a", "A", "a", "%2E", "a b", "a\nb", "+", "~", "🦀", &long]);
    for namespace in &expected {
        let key = Key::new(namespace, "a").expect("legal");
        open_key(backend, &key, Create::New).expect("create").write(0, b"x").expect("write");
    }
    expected.sort();
    assert_eq!(backend.namespaces().expect("namespaces"), expected);
    for namespace in &expected {
        let key = Key::new(namespace, "a").expect("legal");
        assert_eq!(backend.list_all(namespace, "").expect("list"), std::slice::from_ref(&key));
        backend.delete(&key).expect("delete");
    }
    assert_eq!(backend.namespaces().expect("namespaces"), Vec::<String>::new());
}

/// Goal: an error says which object it is about.
pub fn errors_name_the_object(backend: &dyn Backend) {
    assert!(!backend.target().is_empty());
    let opened = open_key(backend, &key("absent"), Create::Never);
    let errors = [
        assert_fails(opened, ErrorKind::NotFound),
        assert_fails(backend.stat(&key("absent")), ErrorKind::NotFound),
        assert_fails(backend.delete(&key("absent")), ErrorKind::NotFound),
    ];
    for error in errors {
        assert!(error.to_string().contains("key=behaviour/absent"), "{error}");
    }
}
