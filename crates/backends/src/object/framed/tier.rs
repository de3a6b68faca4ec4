// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The line of the superblock about frames: that there are some, and a check of their key.

use terrace_core::{Backend, Error, ErrorKind, Identity, Key, Result, Superblock, TierBackend};

use super::Framed;
use super::seal::{FrameKey, new_salt};
use super::shape::SALT_BYTES;

const PLAIN: &str = "1 plain";
const ENCRYPTED: &str = "1 aes-256-gcm";

/// The line in the superblock of `inner`, or the one to write where it has none.
///
/// # Errors
///
/// As [`Framed::open`].
pub(super) fn line(inner: &dyn Backend, key: Option<&FrameKey>) -> Result<String> {
    let denied = |reason: &'static str| {
        Err(Error::new(ErrorKind::Denied, "open a tier")
            .because(reason)
            .with("target", inner.target()))
    };
    // One that was removed from its store holds nothing.
    let found = inner.superblock()?.filter(|superblock| superblock.store_id != 0);
    let Some(found) = found else {
        return match key {
            None => Ok(PLAIN.into()),
            Some(key) => Ok(encrypted_line(key, &new_salt()?)),
        };
    };
    let Some(line) = found.frames else {
        return denied(
            "it was made without `compress` and `encrypt`, and its objects are not framed; leave both \
             out, or move its objects to a new tier",
        );
    };
    match (line.strip_prefix(ENCRYPTED), key) {
        (None, None) if line == PLAIN => Ok(line),
        (None, Some(_)) if line == PLAIN => denied(
            "it was made without `encrypt`, and its objects are not encrypted; leave `encrypt` out, or \
             move its objects to a new tier",
        ),
        (Some(_), None) => {
            denied("its objects are encrypted: set `encrypt` to the file with its key")
        }
        (Some(rest), Some(key)) => {
            let Some(salt) = rest.trim_start().split(' ').next().and_then(salt_of) else {
                return Err(unknown(inner, &line));
            };
            match encrypted_line(key, &salt) == line {
                true => Ok(line),
                false => {
                    denied("its objects are encrypted with another key than the one in `encrypt`")
                }
            }
        }
        (None, _) => Err(unknown(inner, &line)),
    }
}

fn unknown(inner: &dyn Backend, line: &str) -> Error {
    Error::new(ErrorKind::Unsupported, "open a tier")
        .because("its frames are of another version of terrace")
        .with("frames", line)
        .with("target", inner.target())
}

fn encrypted_line(key: &FrameKey, salt: &[u8; SALT_BYTES]) -> String {
    format!("{ENCRYPTED} {} {}", hex(salt), hex(&key.check(salt)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn salt_of(text: &str) -> Option<[u8; SALT_BYTES]> {
    let salt = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 2 * SALT_BYTES)?;
    Some(salt.to_be_bytes())
}

impl Framed {
    fn below(&self) -> &dyn TierBackend {
        self.shared.inner.tier().expect("`tier` is `None` without it")
    }
}

impl TierBackend for Framed {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        self.shared.check_finished("read an identity", key)?;
        self.below().identity(key)
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        self.shared.check_finished("set an identity", key)?;
        self.below().set_identity(key, identity)
    }

    fn replaced_identities(&self, namespace: &str) -> Result<Option<Vec<Key>>> {
        self.below().replaced_identities(namespace)
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        let found = self.below().superblock()?;
        Ok(found.map(|superblock| Superblock { frames: None, ..superblock }))
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        let frames = Some(self.shared.line.clone());
        self.below().set_superblock(&Superblock { frames, ..superblock.clone() })
    }
}
