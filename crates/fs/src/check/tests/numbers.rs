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
