// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of objects, and the paths of their files.

use terrace_backends::fuzzing::{key_at, path_of};
use terrace_core::{ErrorKind, Key, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX};

/// A name is a key or is refused; a key reads back from its text and from the path of its file.
pub(crate) fn name(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let key = match Key::parse(text) {
        Ok(key) => key,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            // A name that is too long must not make a message that is.
            assert!(error.to_string().len() < 1000, "{error}");
            return false;
        }
    };
    assert_eq!(key.as_str(), text);
    assert_eq!(key.to_string(), text);
    assert_eq!(Key::new(key.namespace(), key.name()).expect("its own parts"), key);
    assert!((1..=NAMESPACE_BYTES_MAX).contains(&key.namespace().len()));
    assert!((1..=NAME_BYTES_MAX).contains(&key.name().len()));
    assert!(!key.namespace().contains('/') && !text.contains('\0'));

    let path = path_of(&key);
    for component in path.split(|byte| *byte == b'/') {
        // What Linux takes as the name of a file, and none that a directory has already.
        assert!((1..=255).contains(&component.len()), "{}", path.escape_ascii());
        assert!(!component.starts_with(b"."), "{}", path.escape_ascii());
        assert!(component.is_ascii() && !component.contains(&0), "{}", path.escape_ascii());
    }
    assert_eq!(key_at(&path), Some(key));
    true
}

/// The path of a file is that of one key, or of none.
pub(crate) fn path(input: &[u8]) -> bool {
    let Some(key) = key_at(input) else { return false };
    assert_eq!(path_of(&key), input, "two paths of {key}");
    true
}
