// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hashed names: equal names stay equal, and none can be guessed.

use siphasher::sip128::SipHasher24;
use terrace_core::Key;

use crate::record::ObjectName;

/// Says what a trace keeps of a key.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    /// What makes hashes of this recording differ from those of any other; never stored.
    salt: Option<u128>,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").field("is_hashed", &self.is_hashed()).finish()
    }
}

impl Names {
    pub(crate) fn new(salt: Option<u128>) -> Self {
        Self { salt }
    }

    pub(crate) fn is_hashed(self) -> bool {
        self.salt.is_some()
    }

    pub(crate) fn of(self, key: &Key) -> ObjectName {
        let Some(salt) = self.salt else { return ObjectName::Key(key.clone()) };
        // Keyed with 128 bits, SipHash-2-4 is a pseudorandom function (Aumasson and Bernstein
        // 2012): without the salt, hashing all likely names tells nothing.
        let hasher = SipHasher24::new_with_key(&salt.to_le_bytes());
        ObjectName::Hash(u128::from(hasher.hash(key.as_str().as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_equal_within_a_recording_and_different_elsewhere() {
        let key = |text| Key::parse(text).expect("legal");
        let names = Names::new(Some(7));
        assert_eq!(names.of(&key("a/b")), names.of(&key("a/b")));
        assert_ne!(names.of(&key("a/b")), names.of(&key("a/c")));
        assert_ne!(names.of(&key("a/b")), Names::new(Some(8)).of(&key("a/b")));
        assert_eq!(Names::new(None).of(&key("a/b")), ObjectName::Key(key("a/b")));
    }
}
