// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the mark of a stored file says: whether it is the file that the catalog means, and in words.

use terrace_core::{Identity, Role};

use crate::catalog::record::Place;

/// Whether a file may be used for a segment of an object: it is that one's, and no older one.
pub(crate) fn is_of(identity: &Identity, object_id: u64, segment: u32, place: &Place) -> bool {
    (identity.object_id, identity.segment) == (object_id, segment)
        && identity.generation >= place.generation
}

/// The identity that a file has, for people; the store only where it is not `store_id`.
pub(crate) fn in_words(identity: &Identity, store_id: u128) -> String {
    let role = match identity.role {
        Role::Partial => "an unfinished file",
        Role::Primary => "the primary",
        Role::Copy => "a copy",
        Role::Dead => "a superseded file",
    };
    let store = match identity.store_id == store_id {
        true => String::new(),
        false => format!(" of the store {:032x}", identity.store_id),
    };
    format!(
        "it is {role} of {}{store} (object {:016x}, segment {}, generation {})",
        identity.key, identity.object_id, identity.segment, identity.generation
    )
}

#[cfg(test)]
mod tests {
    use terrace_core::Key;

    use super::*;

    #[test]
    fn a_mark_is_told_in_words() {
        let identity = Identity {
            store_id: 7,
            object_id: 0x2a,
            segment: 1,
            start_bytes: 4096,
            generation: 9,
            epoch: 3,
            role: Role::Copy,
            key: Key::new("run", "a").expect("legal"),
            label: None,
        };
        let own = "it is a copy of run/a (object 000000000000002a, segment 1, generation 9)";
        assert_eq!(in_words(&identity, 7), own);
        let other = in_words(&identity, 8);
        assert!(other.contains("run/a of the store 00000000000000000000000000000007 ("), "{other}");
    }
}
