// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several at once.

use std::sync::Barrier;
use std::thread;

use terrace_core::{ErrorKind, Open, Persistency, Result};
use terrace_items::Contents;

use crate::scene::{Scene, names};

const THREADS: usize = 8;
const ROUNDS: usize = 30;

/// Runs a function in several threads that begin together.
fn together<T: Send>(run: impl Fn(usize) -> Result<T> + Sync) -> Vec<Result<T>> {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let start = |number| {
            let (barrier, run) = (&barrier, &run);
            scope.spawn(move || {
                barrier.wait();
                run(number)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[track_caller]
fn assert_one_won<T>(results: &[Result<T>], others: &[ErrorKind]) {
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(others.contains(&error.kind()), "{}", error.chain());
    }
}

#[test]
fn of_several_creators_one_wins() {
    for scene in [Scene::embedded(), Scene::served(), Scene::clustered()] {
        for round in 0..ROUNDS {
            let name = format!("c{round}");
            let results = together(|_| scene.items.create(&name, Persistency::Process));
            assert_one_won(&results, &[ErrorKind::Exists, ErrorKind::Busy]);
            let collection = scene.items.open(&name).expect("there");
            let results = together(|_| collection.open("x", &Open::create_new()));
            assert_one_won(&results, &[ErrorKind::Exists, ErrorKind::Busy]);
            let winner = results.into_iter().find_map(Result::ok).expect("one won");
            assert_eq!(collection.status("x").expect("there").object, *winner.key());
        }
        scene.assert_sound();
    }
}

#[test]
fn of_several_deleters_one_wins() {
    let scene = Scene::embedded();
    let collection = scene.collection("c");
    for _ in 0..ROUNDS {
        collection.open("x", &Open::create_new()).expect("made");
        assert_one_won(&together(|_| collection.delete("x")), &[ErrorKind::NotFound]);
    }
    scene.assert_sound();
}

#[test]
fn making_and_deleting_one_name_leaves_nothing_behind() {
    let scene = Scene::embedded();
    let collection = scene.collection("c");
    let allowed = [ErrorKind::Exists, ErrorKind::NotFound, ErrorKind::Busy];
    together(|number| {
        for _ in 0..ROUNDS {
            let result = match number % 2 {
                0 => collection.open("x", &Open::create_new()).map(drop),
                _ => collection.delete("x"),
            };
            if let Err(error) = result {
                assert!(allowed.contains(&error.kind()), "{}", error.chain());
            }
        }
        Ok(())
    });
    scene.assert_sound();
    assert!(names(&collection, "").len() <= 1);
}

#[test]
fn a_collection_is_deleted_with_everything_that_was_acknowledged() {
    let scene = Scene::embedded();
    for contents in [Contents::Delete, Contents::Keep] {
        for _ in 0..ROUNDS {
            let collection = scene.collection("c");
            let results = together(|number| match number {
                0 => scene.items.delete("c", contents),
                _ => collection.open(&format!("{number}"), &Open::create_new()).map(drop),
            });
            let made = results[1..].iter().filter(|result| result.is_ok()).count();
            match (&results[0], scene.items.open("c")) {
                (Ok(()), Err(error)) => assert_eq!(error.kind(), ErrorKind::NotFound),
                (Err(error), Ok(collection)) => {
                    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
                    assert_eq!(names(&collection, "").len(), made);
                    scene.items.delete("c", Contents::Delete).expect("deletes");
                }
                (result, opened) => panic!("{result:?} {opened:?}"),
            }
            // Else an item is left that nobody can find.
            scene.assert_sound();
        }
    }
}
