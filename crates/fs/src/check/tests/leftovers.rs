// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of files whose bytes are with the metadata still.

use super::*;

const MENDING: Option<Mending> = Some(Mending { entropy: [9; 32] });

/// Puts an object beside a small file, later than that.
fn leave(scene: &Scene, number: u64, bytes: &[u8]) {
    let key = object_key(NAMESPACE, number).unwrap();
    scene.data.write_all(&key, bytes).expect("made");
    let object = scene.data.stat(&key).expect("it is there");
    scene.change(number, |node| node.modified = Time::from_ns(object.modified_ns - 1));
}

#[test]
fn what_a_move_that_failed_left_is_not_taken_for_what_a_file_has_become() {
    let with_zeros = [vec![7; 60], vec![0; 40]].concat();
    for left in [&[][..], &[7; 60], &with_zeros, &[7; 100]] {
        let (scene, numbers) = Scene::new();
        leave(&scene, numbers.small, left);
        mark_restored(&*scene.kv).expect("marked");
        scene.check_with(MENDING);
        assert!(scene.check().is_sound());
        assert_eq!(scene.read(numbers.small), [7; 100], "{} bytes were left", left.len());
        assert!(scene.node(numbers.small).may_have_object, "it goes with the file");
    }
}

#[test]
fn what_a_file_has_become_is_not_taken_for_what_a_move_left() {
    let longer = [vec![7; 100], vec![0; 1]].concat();
    let other = [vec![7; 60], vec![0; 10], vec![7; 30]].concat();
    for grown in [&longer[..], &other, &[8; 100], &[8; 5], &[7; LONG], &[0, 1]] {
        let (scene, numbers) = Scene::new();
        leave(&scene, numbers.small, grown);
        mark_restored(&*scene.kv).expect("marked");
        scene.check_with(MENDING);
        assert!(scene.check().is_sound());
        assert_eq!(scene.read(numbers.small), grown);
    }
}

#[test]
fn an_object_that_cannot_be_read_replaces_no_file() {
    let (mut scene, numbers) = Scene::new();
    leave(&scene, numbers.small, &[8; 5]);
    mark_restored(&*scene.kv).expect("marked");
    let sound = Arc::clone(&scene.data);
    let faults = Faults::new(1);
    faults.add(&[FaultPoint::Read], When::Always, Effect::Fail(ErrorKind::Io));
    scene.data = Arc::new(Faulty::new(Arc::clone(&sound), faults));
    let report = scene.check_with(MENDING);
    assert_eq!(report.counts.get(&DamageKind::UnreadableObject), Some(&1));
    scene.data = sound;
    assert_eq!(scene.read(numbers.small), [7; 100]);
}

#[test]
fn a_damaged_record_loses_no_bytes_to_what_a_move_left() {
    for left in [&[][..], &[7; 60], &[8; LONG]] {
        let (scene, numbers) = Scene::new();
        leave(&scene, numbers.small, left);
        scene.put(&pairs::node(numbers.small), b"nonsense");
        scene.mends(&[DamageKind::DamagedNode]);
        assert_eq!(scene.read(numbers.small), [7; 100], "{} bytes were left", left.len());
        assert!(scene.node(numbers.small).may_have_object, "it goes with the file");
    }
}

#[test]
fn a_damaged_record_of_an_earlier_time_gets_what_the_file_has_become() {
    for (left, right) in [(&[7; 60][..], &[7; 100][..]), (&[8; LONG], &[8; LONG])] {
        let (scene, numbers) = Scene::new();
        leave(&scene, numbers.small, left);
        scene.put(&pairs::node(numbers.small), b"nonsense");
        mark_restored(&*scene.kv).expect("marked");
        scene.check_with(MENDING);
        assert!(scene.check().is_sound());
        assert_eq!(scene.read(numbers.small), right);
    }
}

/// Removed while they were used, by a user that died.
#[test]
fn directories_and_links_without_a_name_are_no_damage_and_go() {
    let (scene, _) = Scene::new();
    let orphans = [(4000, Kind::Directory), (4001, Kind::Symlink), (4002, Kind::Fifo)];
    for (number, kind) in orphans {
        let node = Node { number, kind, parent: ROOT, ..Node::default() };
        scene.put(&pairs::node(number), &encode(&node));
        scene.put(&pairs::nameless(number), b"");
    }
    scene.put(&pairs::content(4001), b"aim");
    scene.change(4001, |node| node.size = 3);
    let report = scene.check();
    assert!(report.is_sound(), "{report:?}");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let tree = Tree::open(Arc::clone(&scene.kv), FileClock::new(clock)).expect("opens");
    assert_eq!(tree.discard_nameless(), Ok(orphans.len() as u64));
    let report = scene.check();
    assert!(report.is_sound(), "{report:?}");
    for (number, _) in orphans {
        for key in [pairs::node(number), pairs::nameless(number), pairs::content(number)] {
            assert_eq!(scene.kv.get(&key).expect("readable"), None);
        }
    }
}

#[test]
fn a_directory_with_a_name_or_entries_is_not_thrown_away() {
    let (scene, numbers) = Scene::new();
    for number in [numbers.below, numbers.directory] {
        scene.put(&pairs::nameless(number), b"");
        scene.change(number, |node| node.links = 0);
    }
    scene.mends(&[DamageKind::WrongLinks, DamageKind::WrongNameless]);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let tree = Tree::open(Arc::clone(&scene.kv), FileClock::new(clock)).expect("opens");
    assert_eq!(tree.discard_nameless(), Ok(0));
    assert!(scene.check().is_sound());
}
