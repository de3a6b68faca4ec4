// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an object was created with and never loses.

use terrace_core::{Access, Backend, Create, ErrorKind, LABEL_BYTES_MAX, Open};

use super::*;

fn labelled(backend: &dyn Backend, create: Create, label: &[u8]) -> Open {
    how(backend, create, Access::Write).with_label(label)
}

/// Goal: a label is known to every handle and returned by both kinds of stat, whatever is done with
/// the bytes.
pub fn labels_are_kept(backend: &dyn Backend) {
    if !backend.capability().labels {
        return;
    }
    for (name, label) in [("short", vec![0]), ("long", vec![0xff; LABEL_BYTES_MAX])] {
        let opened = backend.open(&key(name), &labelled(backend, Create::New, &label));
        let object = opened.expect("create");
        assert_eq!(object.label().as_deref(), Some(&label[..]));
        object.write(0, b"abc").expect("write");
        object.set_len(1).expect("cut");
        object.sync().expect("sync");
        assert!(object.stat().expect("stat").is_labelled);
        drop(object);
        assert_eq!(opened_for_reading(backend, name).label().as_deref(), Some(&label[..]));
        assert!(backend.stat(&key(name)).expect("stat").is_labelled);
    }
}

/// Goal: a label is never changed: opening an existing object returns the label it was created
/// with.
pub fn labels_never_change(backend: &dyn Backend) {
    if !backend.capability().labels {
        return;
    }
    let how = |label: &[u8]| labelled(backend, Create::IfMissing, label);
    let first = backend.open(&key("a"), &how(b"first")).expect("made");
    let second = backend.open(&key("a"), &how(b"second")).expect("opened");
    assert_eq!(second.label().as_deref(), Some(&b"first"[..]));
    assert_eq!(first.label().as_deref(), Some(&b"first"[..]));
    drop(created(backend, "plain"));
    let plain = backend.open(&key("plain"), &how(b"late")).expect("opened");
    assert_eq!(plain.label(), None);
}

/// Goal: an object that takes the name of a deleted one does not inherit its label.
pub fn labels_go_with_their_objects(backend: &dyn Backend) {
    if !backend.capability().labels {
        return;
    }
    let old = backend.open(&key("a"), &labelled(backend, Create::New, b"old")).expect("create");
    backend.delete(&key("a")).expect("delete");
    let new = created(backend, "a");
    assert_eq!(new.label(), None);
    assert!(!new.stat().expect("stat").is_labelled);
    assert_eq!(old.label().as_deref(), Some(&b"old"[..]), "a handle keeps what it knows");
}

/// Goal: a label that cannot be kept is refused, and nothing is created.
pub fn labels_need_the_capability(backend: &dyn Backend) {
    let (wrong, right) = match backend.capability().labels {
        true => (ErrorKind::Invalid, None),
        false => (ErrorKind::Unsupported, Some(vec![1])),
    };
    let labels = [vec![], vec![1; LABEL_BYTES_MAX + 1]].into_iter().chain(right);
    for label in labels {
        for create in [Create::New, Create::IfMissing] {
            let opened = backend.open(&key("a"), &labelled(backend, create, &label));
            assert_fails(opened, wrong);
            assert_fails(backend.stat(&key("a")), ErrorKind::NotFound);
        }
    }
}
