// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every operation, failing at each of its steps: what is left is nothing, all of it, or something
//! that a check finds and removes.

use terrace_core::{ErrorKind, ObjectExt, Open, Persistency, Result};
use terrace_items::{Contents, FindingKind, Items};

use crate::scene::{Scene, names};
use crate::stop::{Fault, StopAt};

const FAULTS: [Fault; 3] = [Fault::Stops, Fault::Refuses, Fault::LosesAnswer];

/// No operation here has nearly as many steps.
const STEPS_MAX: u64 = 100;

/// Runs an operation with each fault at each step. `prepare` makes what it needs, `look` is called
/// with its result and what a check found, before and after a repair.
fn at_every_step(
    leftovers: &[FindingKind],
    prepare: impl Fn(&Scene),
    operation: impl Fn(&Items) -> Result<()>,
    look: impl Fn(&Scene, Result<()>),
) {
    let scene = Scene::embedded();
    let mut found = Vec::new();
    for fault in FAULTS {
        let mut step = 0;
        loop {
            prepare(&scene);
            let base = StopAt::new(&scene.store, fault, step);
            let result = operation(&base.items());
            let has_failed = base.has_failed();
            assert!(has_failed || result.is_ok(), "{fault:?} {step}: {result:?}");
            let (kinds, _) = scene.check(false);
            let unexpected = kinds.iter().find(|kind| !leftovers.contains(kind));
            assert_eq!(unexpected, None, "{fault:?} {step}");
            found.extend(kinds);
            // What is in use is younger than anything that is looked for.
            let mut nothing = |_: &_| panic!("it is young");
            let young = scene.items.check(0, true, &mut nothing).expect("checks");
            assert_eq!(young.removed, 0);
            scene.check(true);
            scene.assert_sound();
            look(&scene, result);
            scene.assert_sound();
            if scene.items.open("c").is_ok() {
                scene.items.delete("c", Contents::Delete).expect("deletes");
            }
            if !has_failed {
                break;
            }
            step += 1;
            assert!(step < STEPS_MAX);
        }
    }
    // Else the test would not see them.
    for kind in leftovers {
        assert!(found.contains(kind), "{kind:?} was never left");
    }
}

#[test]
fn creating_a_collection() {
    at_every_step(
        &[FindingKind::Claim],
        |_| {},
        |items| items.create("c", Persistency::Process).map(drop),
        |scene, result| {
            let again = scene.items.create("c", Persistency::Process);
            match again {
                Ok(_) => assert!(result.is_err(), "it was acknowledged"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Exists, "{}", error.chain()),
            }
            let collection = scene.items.open("c").expect("there");
            collection.open("x", &Open::create_new()).expect("it works");
        },
    );
}

#[test]
fn creating_an_item() {
    at_every_step(
        &[FindingKind::Claim, FindingKind::Object],
        |scene| drop(scene.collection("c")),
        |items| items.open("c")?.open("x", &Open::create_new()).map(drop),
        |scene, result| {
            let collection = scene.items.open("c").expect("there");
            let is_there = names(&collection, "") == ["x"];
            assert!(is_there || result.is_err(), "it was acknowledged");
            assert_eq!(collection.open("x", &Open::read()).is_ok(), is_there);
            let item = collection.open("x", &Open::create()).expect("it can be made");
            assert_eq!(item.object().read_to_end().expect("reads"), b"");
        },
    );
}

fn replace(items: &Items, name: &str, data: &[u8]) -> Result<()> {
    let draft = items.open("c")?.draft(name, &Open::create())?;
    draft.object().write(0, data)?;
    draft.publish()
}

#[test]
fn putting_a_new_item() {
    at_every_step(
        &[FindingKind::Claim, FindingKind::Object],
        |scene| drop(scene.collection("c")),
        |items| replace(items, "x", b"bytes"),
        |scene, result| {
            let collection = scene.items.open("c").expect("there");
            match collection.open("x", &Open::read()) {
                Ok(item) => assert_eq!(item.object().read_to_end().expect("reads"), b"bytes"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound);
                    assert!(result.is_err(), "it was acknowledged");
                }
            }
            replace(&scene.items, "x", b"other").expect("it can be put");
        },
    );
}

#[test]
fn putting_an_item_that_exists() {
    at_every_step(
        &[],
        |scene| {
            let item = scene.collection("c").open("x", &Open::create_new()).expect("made");
            item.write(0, b"old bytes").expect("room");
        },
        |items| replace(items, "x", b"new"),
        |scene, result| {
            let item = scene.items.open("c").and_then(|it| it.open("x", &Open::read()));
            let found = item.expect("there").object().read_to_end().expect("reads");
            assert!(found == b"new" || found == b"old bytes" && result.is_err());
        },
    );
}

#[test]
fn deleting_an_item() {
    at_every_step(
        &[FindingKind::Object],
        |scene| {
            let item = scene.collection("c").open("x", &Open::create_new()).expect("made");
            item.write(0, b"old bytes").expect("room");
        },
        |items| items.open("c")?.delete("x"),
        |scene, result| {
            let collection = scene.items.open("c").expect("there");
            match collection.open("x", &Open::read()) {
                Ok(item) => {
                    assert!(result.is_err(), "it was acknowledged");
                    assert_eq!(item.object().read_to_end().expect("reads"), b"old bytes");
                    collection.delete("x").expect("deletes");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
            }
            let item = collection.open("x", &Open::create_new()).expect("made");
            assert_eq!(item.object().read_to_end().expect("reads"), b"");
        },
    );
}

#[test]
fn an_item_is_made_again_before_anybody_repairs() {
    let scene = Scene::embedded();
    let collection = scene.collection("c");
    let mut step = 0;
    loop {
        let item = collection.open("x", &Open::create()).expect("made");
        item.write(0, b"old bytes").expect("room");
        let base = StopAt::new(&scene.store, Fault::Stops, step);
        let result = base.items().open("c").and_then(|collection| collection.delete("x"));
        match collection.open("x", &Open::create_new()) {
            Ok(item) => assert_eq!(item.object().read_to_end().expect("reads"), b""),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Exists);
                assert!(result.is_err(), "it was acknowledged");
            }
        }
        if !base.has_failed() {
            break;
        }
        step += 1;
    }
}

#[test]
fn deleting_a_collection() {
    at_every_step(
        &[FindingKind::Claim, FindingKind::Object],
        |scene| {
            let collection = scene.collection("c");
            for name in ["x", "y"] {
                collection.open(name, &Open::create_new()).expect("made");
            }
        },
        |items| items.delete("c", Contents::Delete),
        |scene, result| match scene.items.open("c") {
            Ok(collection) => {
                assert!(result.is_err(), "it was acknowledged");
                for name in names(&collection, "") {
                    collection.open(&name, &Open::read()).expect("whole");
                }
                collection.open("z", &Open::create_new()).expect("it works");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                assert_eq!(names(&scene.collection("c"), ""), [""; 0]);
            }
        },
    );
}

#[test]
fn an_interrupted_deletion_keeps_the_collection_until_it_is_repaired() {
    let scene = Scene::embedded();
    scene.collection("c").open("x", &Open::create_new()).expect("made");
    // The claim is taken, and nothing else is done.
    let base = StopAt::new(&scene.store, Fault::Stops, 1);
    base.items().delete("c", Contents::Delete).expect_err("stopped");
    let collection = scene.items.open("c").expect("there");
    assert_eq!(names(&collection, ""), ["x"]);
    let refused = collection.open("y", &Open::create()).expect_err("it may be deleted");
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert!(refused.to_string().contains("terrace item check"), "{refused}");
    assert_eq!(names(&collection, ""), ["x"], "what was refused is not there");
    assert_eq!(scene.check(true).0, [FindingKind::Claim]);
    collection.open("y", &Open::create()).expect("it works");
}
