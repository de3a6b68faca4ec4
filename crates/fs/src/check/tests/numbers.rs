// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which numbers are given after a repair.

use super::*;

fn superblock(scene: &Scene) -> Superblock {
    let bytes = scene.kv.get(pairs::SUPERBLOCK).expect("read").expect("is there");
    Superblock::decode(&bytes).expect("can be read")
}

#[test]
fn numbers_that_may_have_been_given_are_not_given_again() {
    let (scene, numbers) = Scene::new();
    let highest = numbers.link.max(numbers.long);
    scene.put(pairs::SUPERBLOCK, b"nonsense");
    scene.mends(&[DamageKind::DamagedSuperblock]);
    let next = superblock(&scene).next_number;
    assert!(next >= highest + NUMBERS_MARGIN, "made anew: {next}");

    let (scene, _) = Scene::new();
    let low = Superblock { next_number: 3, ..superblock(&scene) };
    scene.put(pairs::SUPERBLOCK, &low.encode());
    scene.mends(&[DamageKind::UsedNumber]);
    let next = superblock(&scene).next_number;
    assert!(next >= highest + NUMBERS_MARGIN, "raised: {next}");

    let (scene, _) = Scene::new();
    let before = superblock(&scene);
    scene.change(numbers.small, |node| node.links = 7);
    scene.mends(&[DamageKind::WrongLinks]);
    assert_eq!(superblock(&scene), before, "nothing is wrong with it");
}

/// Everything that one stray number may stand in.
#[test]
fn a_stray_number_leaves_numbers_for_new_files() {
    let makes_files = |scene: &Scene| {
        let files = scene.files();
        files.make(ROOT, b"new", made(Kind::Directory)).expect("there are numbers").number
    };
    let stray = u64::MAX - 1;
    let before = superblock(&Scene::new().0).next_number;
    for number in [stray, before + (1 << 40)] {
        let (scene, _) = Scene::new();
        scene.put(&pairs::xattr(number, b"user.x"), b"x");
        scene.put(&pairs::nameless(number - 1), b"");
        scene.mends(&[DamageKind::StrayPair]);
        assert_eq!(superblock(&scene).next_number, before, "nothing has these numbers");
        makes_files(&scene);
    }

    let (scene, _) = Scene::new();
    scene.put(&pairs::garbage(stray), b"");
    scene.mends(&[]);
    assert!(makes_files(&scene) < stray);

    let (scene, _) = Scene::new();
    let key = object_key(NAMESPACE, stray).unwrap();
    scene.data.write_all(&key, &[3; LONG]).expect("made");
    scene.mends(&[DamageKind::MissingNode]);
    assert_eq!(scene.read(stray), [3; LONG]);
    assert!(makes_files(&scene) < stray);

    let (scene, numbers) = Scene::new();
    scene.add_entry(stray, b"x", numbers.small, Kind::File);
    scene.change(numbers.small, |node| node.links = 3);
    scene.remove(&scene.entry(ROOT, b"link"));
    scene.change(ROOT, |root| root.size -= 1);
    scene.mends(&[DamageKind::MissingNode, DamageKind::Unreached]);
    assert_eq!(scene.found(stray).map(|node| node.size), Some(1));
    assert!(scene.found(numbers.link).is_some());
    assert!(makes_files(&scene) < stray);

    let (scene, _) = Scene::new();
    scene.put(&pairs::node(stray), b"nonsense");
    scene.put(pairs::SUPERBLOCK, b"nonsense");
    scene.mends(&[DamageKind::DamagedSuperblock, DamageKind::DamagedNode]);
    assert!(makes_files(&scene) < stray);
}
