// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What objects in main memory promise beyond the suite: bounds and accounting.

use std::thread;

use terrace_backends::object::Memory;
use terrace_core::{
    Backend, BackendExt, Cursor, ErrorKind, Key, Object, ObjectExt, Open, Persistency, Semantics,
};

fn key(text: &str) -> Key {
    Key::parse(text).expect("legal")
}

fn created(memory: &Memory, name: &str) -> Box<dyn Object> {
    let volatile = Semantics::at_level(Persistency::None);
    memory.open(&key(name), &Open::create().with_semantics(volatile)).expect("room")
}

fn used_bytes(memory: &Memory) -> u64 {
    memory.space().expect("space").used_bytes
}

#[test]
fn capacity_is_never_exceeded() {
    let memory = Memory::new(1000);
    let object = created(&memory, "app/a");
    object.write(0, &[1; 600]).expect("room");
    let error = object.write(600, &[1; 401]).expect_err("one byte too many");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(
        created(&memory, "app/b").set_len(401).expect_err("full").kind(),
        ErrorKind::NoSpace
    );
    assert_eq!((used_bytes(&memory), object.stat().expect("stat").size_bytes), (600, 600));
    object.write(600, &[1; 400]).expect("exactly full");
    object.write(0, &[2; 1000]).expect("no growth");
    object.set_len(u64::MAX >> 2).expect_err("more than any memory");
    assert_eq!(used_bytes(&memory), 1000);
}

#[test]
fn room_is_free_at_once_after_deleting_or_cutting() {
    let memory = Memory::new(1000);
    let object = created(&memory, "app/a");
    object.write(0, &[1; 1000]).expect("room");
    object.set_len(100).expect("cut");
    assert_eq!(used_bytes(&memory), 100);
    memory.delete(&key("app/a")).expect("there");
    assert_eq!(used_bytes(&memory), 0);
    assert_eq!(object.write(0, b"x").expect_err("deleted").kind(), ErrorKind::NotFound);
    assert_eq!(memory.namespaces().expect("namespaces"), Vec::<String>::new());
}

#[test]
fn promises_that_memory_cannot_keep_are_refused() {
    let memory = Memory::new(1000);
    let error = memory.open(&key("app/a"), &Open::create()).err().expect("not after a crash");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    created(&memory, "app/a").write(0, b"x").expect("room");
    assert_eq!(memory.read_all(&key("app/a")).expect("reading promises nothing"), b"x");
}

#[test]
fn accounting_is_exact_under_concurrency() {
    let memory = Memory::new(1 << 20);
    thread::scope(|scope| {
        for thread in 0..4 {
            let memory = &memory;
            scope.spawn(move || {
                for round in 0..200u64 {
                    let shared = created(memory, "app/shared");
                    shared.append(&[std::io::IoSlice::new(&[thread; 10])]).expect("room");
                    let own = created(memory, &format!("app/own-{thread}"));
                    own.set_len(round).expect("room");
                    if round % 7 == 0 {
                        memory.delete(&key(&format!("app/own-{thread}"))).expect("there");
                    }
                }
            });
        }
    });
    let sizes = memory.list_all("app", "").expect("list").into_iter();
    let total: u64 = sizes.map(|key| memory.stat(&key).expect("stat").size_bytes).sum();
    assert_eq!(used_bytes(&memory), total);
    let shared = memory.read_all(&key("app/shared")).expect("read");
    assert_eq!(shared.len(), 4 * 200 * 10);
    assert!(shared.chunks(10).all(|part| part.iter().all(|byte| *byte == part[0])), "torn append");
}

#[test]
fn pages_of_all_shards_are_in_order() {
    let memory = Memory::new(1 << 20);
    let mut names: Vec<String> = (0..100).map(|index| format!("n{index}")).collect();
    names.iter().for_each(|name| drop(created(&memory, &format!("app/{name}"))));
    created(&memory, "app/other");
    created(&memory, "apq/n1");
    names.sort();
    let mut met = Vec::new();
    let mut cursor = Some(Cursor::start());
    while let Some(from) = cursor {
        let page = memory.list("app", "n", &from, 7).expect("list");
        assert!(page.keys.len() <= 7);
        met.extend(page.keys.iter().map(|key| key.name().to_string()));
        cursor = page.next;
    }
    assert_eq!(met, names);
    let error = memory.list("app", "", &Cursor(b"foreign".to_vec()), 7).expect_err("not ours");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
