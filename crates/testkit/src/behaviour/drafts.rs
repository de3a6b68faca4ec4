// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replacing objects as a whole, where the backend can.

use terrace_core::{Access, Backend, BackendExt, Create, Draft, ErrorKind, ObjectExt};

use super::*;
use crate::versions::{content, version_of};

/// A draft; `None` where the backend has none, and then the attempt left nothing.
fn draft(backend: &dyn Backend, name: &str, create: Create) -> Option<Box<dyn Draft>> {
    let is_there = backend.stat(&key(name)).is_ok();
    match backend.draft(&key(name), &how(backend, create, Access::Write)) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            assert_eq!(backend.stat(&key(name)).is_ok(), is_there, "a refused draft changed it");
            None
        }
        begun => Some(begun.expect("begins")),
    }
}

/// The version that an object is.
#[track_caller]
fn version(backend: &dyn Backend, name: &str) -> u32 {
    version_of(&backend.read_all(&key(name)).expect("is there"))
}

fn fill(draft: &dyn Draft, version: u32) {
    draft.object().write(0, &content(version)).expect("writes");
}

/// Goal: no key names a draft before it is published, and its handle goes on as that of the object.
pub fn a_draft_is_seen_once_it_is_published(backend: &dyn Backend) {
    for (old, new) in [(0, 1), (1, 2), (2, 3)] {
        let Some(draft) = draft(backend, "a", Create::IfMissing) else { return };
        fill(&*draft, new);
        match old {
            0 => {
                assert_fails(backend.stat(&key("a")), ErrorKind::NotFound);
                assert_eq!(backend.list_all(NAMESPACE, "").expect("lists"), []);
            }
            _ => assert_eq!(version(backend, "a"), old),
        }
        draft.publish().expect("publishes");
        assert_eq!(version(backend, "a"), new);
        assert_fails(draft.publish(), ErrorKind::Invalid);
        let object = draft.object();
        drop(draft);
        assert_eq!(object.read_to_end().expect("reads"), content(new));
        object.set_modified(1_600_000_000_000_000_000).expect("changes");
        assert_eq!(version(backend, "a"), new);
    }
    assert_eq!(backend.list_all(NAMESPACE, "").expect("lists"), [key("a")]);
}

/// Goal: a draft that is dropped leaves the old value, and its handle is dead.
pub fn a_dropped_draft_leaves_nothing(backend: &dyn Backend) {
    for old in [None, Some(1)] {
        let Some(dropped) = draft(backend, "a", Create::IfMissing) else { return };
        fill(&*dropped, 7);
        let object = dropped.object();
        drop(dropped);
        assert_fails(object.write(0, b"x"), ErrorKind::NotFound);
        match old {
            None => {
                assert_fails(backend.stat(&key("a")), ErrorKind::NotFound);
                drop(filled(backend, "a", &content(1)));
            }
            Some(old) => assert_eq!(version(backend, "a"), old),
        }
    }
}

/// Goal: what must be there, or not, is looked at when a draft is begun and when it is published.
pub fn drafts_heed_what_is_there(backend: &dyn Backend) {
    let Some(first) = draft(backend, "a", Create::New) else { return };
    let second = draft(backend, "a", Create::New).expect("there is none yet");
    fill(&*second, 2);
    second.publish().expect("is the first to be published");
    assert_fails(first.publish(), ErrorKind::Exists);
    drop(first);
    let new = how(backend, Create::New, Access::Write);
    assert_fails(backend.draft(&key("a"), &new), ErrorKind::Exists);
    let existing = draft(backend, "a", Create::Never).expect("there is one");
    fill(&*existing, 3);
    backend.delete(&key("a")).expect("deletes");
    assert_fails(existing.publish(), ErrorKind::NotFound);
    drop(existing);
    let never = how(backend, Create::Never, Access::Write);
    assert_fails(backend.draft(&key("a"), &never), ErrorKind::NotFound);
    assert_fails(backend.stat(&key("a")), ErrorKind::NotFound);
}

/// Goal: a handle on a value that was replaced goes on with it, or fails with `NotFound`.
pub fn handles_on_a_replaced_value_never_see_the_new_one(backend: &dyn Backend) {
    let old = filled(backend, "a", &content(1));
    let Some(draft) = draft(backend, "a", Create::IfMissing) else { return };
    fill(&*draft, 2);
    draft.publish().expect("publishes");
    match old.read_to_end() {
        Ok(found) => assert_eq!(version_of(&found), 1),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain()),
    }
    // What goes to the old value does not come to the new one.
    let _ = old.write(0, b"old");
    drop(old);
    assert_eq!(version(backend, "a"), 2);
}

/// Goal: a put without room leaves the old value, and the room that it took is free again.
pub fn a_put_without_room_leaves_the_old_value(backend: &dyn Backend) {
    drop(filled(backend, "a", &content(1)));
    let how = how(backend, Create::IfMissing, Access::Write);
    let large = vec![1; 40 << 20];
    for _ in 0..2 {
        // There is room for one of these, but not for two.
        match backend.put(&key("large"), &large, &how) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return,
            put => put.expect("fits"),
        }
        match backend.put(&key("a"), &large, &how) {
            // Elsewhere there was room.
            Ok(()) => backend.put(&key("a"), &content(1), &how).expect("fits"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain()),
        }
        assert_eq!(version(backend, "a"), 1);
        backend.delete(&key("large")).expect("deletes");
    }
    backend.put(&key("a"), &content(2), &how).expect("there is room");
    assert_eq!(version(backend, "a"), 2);
}

/// Goal: every reader gets one whole value, and none comes back.
pub fn readers_see_the_old_value_or_the_new(backend: &dyn Backend) {
    let open = how(backend, Create::IfMissing, Access::Write);
    match backend.put(&key("a"), &content(0), &open) {
        Err(error) if error.kind() == ErrorKind::Unsupported => return,
        put => put.expect("puts"),
    }
    crate::versions::overwrite_beside_readers(
        &[backend],
        &[backend, backend],
        &key("a"),
        &open,
        100,
        &|_| {},
    );
}
