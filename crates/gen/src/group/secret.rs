// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The secret that the hosts of a run share, and proofs that one knows it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Error, Result};

/// Longest file that is taken for a secret.
const FILE_BYTES_MAX: u64 = 4096;

/// Shorter ones could be guessed.
const BYTES_MIN: usize = 16;

const NONCE_BYTES: usize = 32;

/// A secret; never printed.
pub(crate) struct Secret(Vec<u8>);

/// The side that proves: one side's proof is not valid for the other.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Coordinator,
    Worker,
}

impl Secret {
    /// Reads a file; blanks around the secret do not belong to it.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let failed = |error| Error::system("read the secret", error).with("path", path.display());
        let refused =
            |reason| Err(Error::new("read the secret", reason).with("path", path.display()));
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return refused("others than its owner may use the file; run chmod 600");
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return refused("it is longer than 4096 bytes");
        }
        let secret = bytes.trim_ascii();
        if secret.len() < BYTES_MIN {
            return refused("it is shorter than 16 bytes");
        }
        Ok(Self(secret.to_vec()))
    }

    /// Shows knowledge of the secret, for these words of a conversation alone.
    pub(crate) fn proof(&self, side: Side, words: &[&str]) -> String {
        hex(&self.mac(side, words).finalize().into_bytes())
    }

    pub(crate) fn is_proof(&self, side: Side, words: &[&str], proof: &str) -> bool {
        unhex(proof).is_some_and(|proof| self.mac(side, words).verify_slice(&proof).is_ok())
    }

    fn mac(&self, side: Side, words: &[&str]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key");
        mac.update(match side {
            Side::Coordinator => b"terrace-gen coordinator",
            Side::Worker => b"terrace-gen worker",
        });
        for word in words {
            // With their lengths, so that no two lists of words look the same.
            mac.update(&(word.len() as u64).to_le_bytes());
            mac.update(word.as_bytes());
        }
        mac
    }
}

/// A number that was never used before.
pub(crate) fn nonce() -> Result<String> {
    let mut bytes = [0; NONCE_BYTES];
    let count = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    match count {
        Ok(NONCE_BYTES) => Ok(hex(&bytes)),
        Ok(_) => Err(Error::new("make a random number", "the system gave too few bytes")),
        Err(error) => Err(Error::system("make a random number", error)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.is_ascii().then(|| digits.chunks(2))?;
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Secret, Side};

    #[test]
    fn proofs_hold_for_one_side_one_secret_and_the_same_words() {
        let secret = Secret(b"0123456789abcdef".to_vec());
        let other = Secret(b"0123456789abcdeg".to_vec());
        let proof = secret.proof(Side::Worker, &["ab", "c"]);
        assert!(secret.is_proof(Side::Worker, &["ab", "c"], &proof));
        assert!(!secret.is_proof(Side::Coordinator, &["ab", "c"], &proof));
        assert!(!secret.is_proof(Side::Worker, &["a", "bc"], &proof));
        assert!(!other.is_proof(Side::Worker, &["ab", "c"], &proof));
        assert!(!secret.is_proof(Side::Worker, &["ab", "c"], ""));
        assert!(!secret.is_proof(Side::Worker, &["ab", "c"], &proof[..62]));
    }
}
