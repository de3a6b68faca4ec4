// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listing.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use terrace_core::{Backend, BackendExt, Create, Cursor, ErrorKind, NAME_BYTES_MAX};

use super::*;

/// How often each name is met on a walk with pages of `max`; `between` runs after each page.
fn walk(
    backend: &dyn Backend,
    prefix: &str,
    max: usize,
    between: &mut dyn FnMut(),
) -> (BTreeMap<String, usize>, Vec<String>) {
    // Pages may be empty, but a walk ends.
    const PAGES_MAX: usize = 5_000;
    let mut met = BTreeMap::new();
    let mut order = Vec::new();
    let mut cursor = Cursor::start();
    for _ in 0..PAGES_MAX {
        let page = backend.list(NAMESPACE, prefix, &cursor, max).expect("list");
        assert!(page.keys.len() <= max, "a page is too long");
        for key in page.keys {
            assert_eq!(key.namespace(), NAMESPACE);
            *met.entry(key.name().to_string()).or_default() += 1;
            order.push(key.name().to_string());
        }
        match page.next {
            Some(next) => cursor = next,
            None => return (met, order),
        }
        between();
    }
    panic!("the walk does not end");
}

fn create_all(backend: &dyn Backend, names: &[String]) {
    names.iter().for_each(|name| drop(created(backend, name)));
}

/// Goal: a namespace without objects has an empty listing.
pub fn listing_nothing(backend: &dyn Backend) {
    assert_eq!(backend.list_all("nobody", "").expect("list"), []);
    assert_eq!(backend.list_all("nobody", "prefix").expect("list"), []);
    drop(created(backend, "a"));
    assert_eq!(backend.list_all(NAMESPACE, "b").expect("list"), []);
}

/// Goal: pages of any length together hold every object once.
pub fn pages_meet_every_object_once(backend: &dyn Backend) {
    let names: Vec<String> = (0..500).map(|index| format!("object-{index}")).collect();
    create_all(backend, &names);
    for max in [1, 7, 499, 500, 501, 10_000] {
        let (met, _) = walk(backend, "", max, &mut || ());
        assert_eq!(met.len(), names.len(), "pages of {max}");
        assert!(names.iter().all(|name| met.get(name) == Some(&1)), "pages of {max}");
    }
}

/// Goal: only names that start with the prefix are listed, whatever it is made of.
pub fn prefixes_filter(backend: &dyn Backend) {
    let names = ["a", "a/1", "a/2", "a/b/3", "ab", "b", ".x", "é1", "é2", "e"].map(String::from);
    create_all(backend, &names);
    for prefix in ["", "a", "a/", "a/b", "a/b/3", "a/b/34", ".", "é", "\u{10ffff}"] {
        let expected: Vec<&String> = {
            let mut names: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
            names.sort();
            names
        };
        for max in [1, 2, 100] {
            let (met, _) = walk(backend, prefix, max, &mut || ());
            assert_eq!(met.keys().collect::<Vec<_>>(), expected, "prefix {prefix:?}");
            assert!(met.values().all(|count| *count == 1));
        }
    }
}

/// Goal: names come in order where that is promised.
pub fn order_is_kept_where_promised(backend: &dyn Backend) {
    let names: Vec<String> = (0..300u64).map(|index| format!("{:x}", index * 7919)).collect();
    create_all(backend, &names);
    let (_, order) = walk(backend, "", 17, &mut || ());
    assert_eq!(order.len(), names.len());
    assert!(!backend.capability().ordered_listing || order.is_sorted());
}

/// Goal: while objects come and go, those that stay are met once, the others at most once.
pub fn listing_while_objects_come_and_go(backend: &dyn Backend) {
    let staying: Vec<String> = (0..200).map(|index| format!("stays-{index}")).collect();
    let leaving: Vec<String> = (0..200).map(|index| format!("goes-{index}")).collect();
    create_all(backend, &staying);
    create_all(backend, &leaving);
    let mut left = leaving.iter();
    let mut step = 0;
    let (met, _) = walk(backend, "", 7, &mut || {
        for _ in 0..5 {
            if let Some(name) = left.next() {
                backend.delete(&key(name)).expect("delete");
            }
            drop(created(backend, &format!("comes-{step}")));
            step += 1;
            assert!(step < 5000, "new objects keep the walk from ending");
        }
    });
    assert!(staying.iter().all(|name| met.get(name) == Some(&1)), "one was missed or met twice");
    assert!(met.values().all(|count| *count == 1), "one was met twice");
}

/// Goal: a cursor that the backend did not make is refused.
pub fn foreign_cursors_are_invalid(backend: &dyn Backend) {
    drop(created(backend, "a"));
    let error = backend.list(NAMESPACE, "", &Cursor(b"\xffforeign".to_vec()), 10);
    assert_fails(error, ErrorKind::Invalid);
}

/// Goal: a page may be asked to hold nothing, which is not the end, or everything.
pub fn pages_of_any_length_are_taken(backend: &dyn Backend) {
    create_all(backend, &["a", "b", "c"].map(String::from));
    let page = backend.list(NAMESPACE, "", &Cursor::start(), 0).expect("list");
    assert_eq!(page.keys, []);
    let next = page.next.expect("there is more");
    assert_eq!(backend.list(NAMESPACE, "", &next, 3).expect("list").keys.len(), 3);
    let (met, _) = walk(backend, "", usize::MAX, &mut || ());
    assert_eq!(met.len(), 3);
}

/// Goal: a cursor that was damaged is refused or understood, and never gives what was not asked.
pub fn damaged_cursors_do_no_harm(backend: &dyn Backend) {
    let names: Vec<String> = (0..20).map(|index| format!("é{index}")).collect();
    create_all(backend, &names);
    let page = backend.list(NAMESPACE, "é", &Cursor::start(), 7).expect("list");
    let cursor = page.next.expect("there is more").0;
    let mut damaged: Vec<Vec<u8>> = (1..cursor.len()).map(|end| cursor[..end].to_vec()).collect();
    damaged.push([&cursor[..], b"\0"].concat());
    damaged.push([&cursor[..], b"\xff"].concat());
    damaged.push([&cursor[..], &[b'x'; 2 * NAME_BYTES_MAX]].concat());
    for at in 0..cursor.len() {
        for value in [0, 0x80, 0xff, cursor[at].wrapping_add(1)] {
            let mut bytes = cursor.clone();
            bytes[at] = value;
            damaged.push(bytes);
        }
    }
    for bytes in damaged {
        match backend.list(NAMESPACE, "é1", &Cursor(bytes), 7) {
            Ok(page) => assert!(page.keys.iter().all(|key| key.name().starts_with("é1"))),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain()),
        }
    }
}

/// Goal: a namespace or a prefix that no key can have holds nothing; asking is no failure.
pub fn impossible_names_hold_nothing(backend: &dyn Backend) {
    drop(created(backend, "a"));
    let long = "n".repeat(10_000);
    for namespace in ["", "/", "behaviour/a", "behaviour/", "..", "behaviour\0", &long] {
        let bytes = namespace.len();
        let found = backend.list_all(namespace, "");
        assert!(matches!(found.as_deref(), Ok([])), "a namespace of {bytes} bytes");
    }
    for prefix in ["\0", "a\0", &long] {
        assert_eq!(backend.list_all(NAMESPACE, prefix).expect("list"), []);
    }
}

/// Goal: while other threads create and delete, those objects that stay are met once, and no name
/// twice.
pub fn listing_beside_other_threads(backend: &dyn Backend) {
    const THREADS: usize = 2;
    const WALKS: usize = 10;
    let staying: Vec<String> = (0..100).map(|index| format!("stays-{index}")).collect();
    create_all(backend, &staying);
    let is_done = AtomicBool::new(false);
    let barrier = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (is_done, barrier) = (&is_done, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0.. {
                    let key = key(&format!("moves-{thread}-{}", round % 50));
                    drop(open_key(backend, &key, Create::New).expect("create"));
                    backend.delete(&key).expect("delete");
                    if is_done.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        let _over = SetOnDrop(&is_done);
        barrier.wait();
        for _ in 0..WALKS {
            let (met, _) = walk(backend, "", 7, &mut || ());
            assert!(staying.iter().all(|name| met.get(name) == Some(&1)), "one was missed");
            assert!(met.values().all(|count| *count == 1), "one was met twice");
        }
    });
    assert_eq!(backend.list_all(NAMESPACE, "").expect("list").len(), staying.len());
}
