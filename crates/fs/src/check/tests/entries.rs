// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries while they are mended.

use std::sync::atomic::{AtomicU64, Ordering};

use terrace_core::{Error, Ticket};
use terrace_testkit::{Body, KvLayer, Layered};

use super::*;

/// Pairs that can be changed so many times more.
struct Limited {
    kv: Arc<dyn Kv>,
    left: AtomicU64,
}

impl KvLayer for Limited {
    fn inner(&self) -> &dyn Kv {
        &*self.kv
    }

    fn transact(&self, body: Body<'_>) -> terrace_core::Result<Ticket> {
        let less = |left: u64| left.checked_sub(1);
        match self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
            Ok(_) => self.kv.transact(body),
            Err(_) => Err(Error::new(ErrorKind::Io, "change pairs")),
        }
    }
}

/// Mends until it was cut off after so many changes; whether it came to its end.
fn mends_within(scene: &Scene, changes: u64) -> bool {
    let kv = Layered(Limited { kv: Arc::clone(&scene.kv), left: AtomicU64::new(changes) });
    let mending = Some(Mending { entropy: [9; 32] });
    let (data, is_lost) = (&*scene.data, &|_: &Key| true);
    let asked = Check { kv: &kv, data, namespace: NAMESPACE, is_lost, now_ns: 1, mending };
    check(&asked, &mut |_| {}).is_ok()
}

#[test]
fn a_repair_that_ends_in_the_middle_loses_no_name() {
    for changes in 0.. {
        assert!(changes < 100, "it has an end");
        let (scene, numbers) = Scene::new();
        scene.put(pairs::SUPERBLOCK, b"nonsense");
        let is_whole = mends_within(&scene, changes);
        assert_eq!(scene.check_with(Some(Mending { entropy: [9; 32] })).adopted, 0, "{changes}");
        assert!(scene.check().is_sound(), "{changes}");
        for (path, number) in [
            (&[&b"another"[..]][..], numbers.small),
            (&[b"link"], numbers.link),
            (&[b"directory"], numbers.directory),
            (&[b"directory", b"below"], numbers.below),
            (&[b"directory", b"small"], numbers.small),
            (&[b"directory", b"long"], numbers.long),
        ] {
            let found = scene.find(path).map(|node| node.number);
            assert_eq!(found, Some(number), "{path:?} after {changes} changes");
        }
        if is_whole {
            return;
        }
    }
}

/// Two names with one hash in the file systems of these tests, found by search.
const SAME: [&[u8]; 2] = [b"3f29931ba972877", b"380ad8fd2eef6b0"];

#[test]
fn what_takes_a_directory_from_where_it_was_takes_nothing_else() {
    let (scene, numbers) = Scene::new();
    let key = scene.entry(ROOT, SAME[0]);
    assert_eq!(key, scene.entry(ROOT, SAME[1]));
    // Both have one position, and the directory has a better name elsewhere.
    let mut bucket = Bucket::default();
    bucket.add(SAME[0], numbers.small, Kind::File).expect("there is room");
    bucket.add(SAME[1], numbers.below, Kind::Directory).expect("there is room");
    bucket.0.iter_mut().for_each(|entry| entry.index = 0);
    scene.put(&key, &bucket.encode().expect("it has entries"));
    scene.change(numbers.small, |node| node.links = 3);
    scene.change(ROOT, |root| root.size += 1);
    scene.mends(&[DamageKind::DuplicateName, DamageKind::ExtraName]);
    assert_eq!(scene.find(&[SAME[0]]).map(|node| node.number), Some(numbers.small));
    assert_eq!(scene.find(&[SAME[1]]), None);
    let below = scene.find(&[b"directory", b"below"]).map(|node| node.number);
    assert_eq!(below, Some(numbers.below));
}
