// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many threads at once.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use terrace_core::{Backend, BackendExt, Create, ErrorKind, ObjectExt};

use super::*;
use crate::pattern_bytes;

const THREADS: u64 = 4;

/// Goal: appends through any number of handles never overlap, and each is whole.
pub fn appends_never_overlap(backend: &dyn Backend) {
    const ROUNDS: u64 = 50;
    const PART_BYTES: usize = 700;
    drop(created(backend, "log"));
    let shared = opened(backend, "log");
    let starts: Vec<(u64, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let shared = &shared;
                scope.spawn(move || {
                    let own = opened(backend, "log");
                    let mark = [thread as u8 + 1; PART_BYTES];
                    let append = |round: u64| {
                        let object = if round.is_multiple_of(2) { &own } else { shared };
                        object.append(&slices(&[&mark[..100], &mark[100..]])).expect("append")
                    };
                    (0..ROUNDS).map(|round| (append(round), thread)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let places: BTreeSet<u64> = starts.iter().map(|(start, _)| *start).collect();
    let expected: BTreeSet<u64> =
        (0..THREADS * ROUNDS).map(|index| index * PART_BYTES as u64).collect();
    assert_eq!(places, expected);
    assert_eq!(size_bytes(&*shared), THREADS * ROUNDS * PART_BYTES as u64);
    for (start, thread) in starts {
        assert_reads(backend, &*shared, start, &[thread as u8 + 1; PART_BYTES]);
    }
}

/// Goal: of many that create one object, one wins.
pub fn one_creator_wins(backend: &dyn Backend) {
    for round in 0..20 {
        let key = key(&format!("contested-{round}"));
        let barrier = Barrier::new(THREADS as usize);
        let won = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        match open_key(backend, &key, Create::New) {
                            Ok(_) => 1,
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Exists);
                                0
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u32>()
        });
        assert_eq!(won, 1);
    }
}

/// Goal: threads that work on objects of their own do not disturb each other.
pub fn objects_do_not_disturb_each_other(backend: &dyn Backend) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let name = format!("own-{thread}");
                for round in 0..30u64 {
                    let data = pattern_bytes(thread, round, 0, 1000 + 37 * round as usize);
                    let object = filled(backend, &name, &data);
                    assert_reads(backend, &*object, 0, &data);
                    object.set_len(500).expect("cut");
                    assert_reads(backend, &*opened(backend, &name), 0, &data[..500]);
                    backend.delete(&key(&name)).expect("delete");
                }
            });
        }
    });
    assert_eq!(backend.list_all(NAMESPACE, "").expect("list"), []);
}

/// Goal: a reader beside a writer sees, byte for byte, what was there or what is written.
pub fn readers_see_old_or_new_bytes(backend: &dyn Backend) {
    const LENGTH_BYTES: usize = 64 << 10;
    let object = filled(backend, "a", &[1; LENGTH_BYTES]);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = opened_for_reading(backend, "a");
                while !is_done.load(Ordering::SeqCst) {
                    let bytes = read(&*reader, 0, LENGTH_BYTES);
                    let least = if backend.capability().keeps_data { 1 } else { 0 };
                    assert!(bytes.iter().all(|byte| (least..=40).contains(byte)));
                }
            });
        }
        let _over = SetOnDrop(&is_done);
        for version in 2..=40 {
            object.write(0, &[version; LENGTH_BYTES]).expect("write");
        }
    });
    assert_reads(backend, &*object, 0, &[40; LENGTH_BYTES]);
}

/// Goal: threads that create and delete one object always find it there or not, never broken.
pub fn creating_and_deleting_one_name(backend: &dyn Backend) {
    // Long enough that a backend with directories needs more than one for it.
    let name = "x".repeat(400);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let key = key(&name);
            scope.spawn(move || {
                for _ in 0..100 {
                    if thread % 2 == 0 {
                        let object = open_key(backend, &key, Create::IfMissing).expect("create");
                        match object.write(0, b"abc") {
                            Ok(()) => {}
                            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                        }
                    } else if let Err(error) = backend.delete(&key) {
                        assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
                    }
                }
            });
        }
    });
    backend.delete_if_exists(&key(&name)).expect("there or not");
    assert_eq!(backend.namespaces().expect("namespaces"), Vec::<String>::new());
}

/// Goal: writes to different ranges of one object at the same time are all kept.
pub fn writes_to_one_object_are_all_kept(backend: &dyn Backend) {
    const PART_BYTES: u64 = 1013;
    const ROUNDS: u64 = 60;
    drop(created(backend, "a"));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let object = opened(backend, "a");
                for round in 0..ROUNDS {
                    let start_bytes = (round * THREADS + thread) * PART_BYTES;
                    let data = pattern_bytes(5, 1, start_bytes, PART_BYTES as usize);
                    object.write(start_bytes, &data).expect("write");
                }
            });
        }
    });
    let whole_bytes = ROUNDS * THREADS * PART_BYTES;
    let object = opened(backend, "a");
    assert_eq!(size_bytes(&*object), whole_bytes);
    assert_reads(backend, &*object, 0, &pattern_bytes(5, 1, 0, whole_bytes as usize));
}
