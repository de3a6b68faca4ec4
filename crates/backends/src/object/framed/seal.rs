// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What protects a frame: a CRC-32C against accidents, or a cipher with a tag against readers and forgers.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use ring::rand::{SecureRandom, SystemRandom};
use terrace_core::{Error, ErrorKind, Key, Result};

use super::shape::{SALT_BYTES, Shape};

/// Bytes of a key file's key.
pub(super) const KEY_BYTES: usize = 32;

/// Bytes by which a key is recognised.
const CHECK_BYTES: usize = 16;

const OBJECT_KEY: &[u8] = b"terrace frames 1: key of an object";
const KEY_CHECK: &[u8] = b"terrace frames 1: key check";

/// The key of a tier. It is in no `Debug`, no error and no log.
#[derive(Clone)]
pub struct FrameKey {
    secret: Prk,
}

impl std::fmt::Debug for FrameKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrameKey")
    }
}

/// The length of what is derived.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl FrameKey {
    /// Reads the text of a key file: 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// `Invalid`, without a part of the text.
    pub fn from_text(text: &[u8]) -> Result<Self> {
        let wrong = || Error::invalid("read a key", "64 hexadecimal digits are expected");
        let text = std::str::from_utf8(text).map_err(|_| wrong())?;
        if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut secret = [0; KEY_BYTES];
        for (index, byte) in secret.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self { secret: Prk::new_less_safe(HKDF_SHA256, &secret) })
    }

    /// What a tier keeps to recognise its key.
    pub(super) fn check(&self, salt: &[u8; SALT_BYTES]) -> [u8; CHECK_BYTES] {
        let mut check = [0; CHECK_BYTES];
        self.derive(&[KEY_CHECK, salt], &mut check);
        check
    }

    /// The key of one object, which is used for nothing else: its salt is random.
    fn of_object(&self, shape: &Shape, name: &[u8]) -> LessSafeKey {
        let mut key = [0; KEY_BYTES];
        self.derive(&[OBJECT_KEY, &shape.salt, name], &mut key);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has the cipher's length");
        LessSafeKey::new(key)
    }

    fn derive(&self, info: &[&[u8]], out: &mut [u8]) {
        let derived = self.secret.expand(info, Length(out.len())).expect("it is short");
        derived.fill(out).expect("it has that length");
    }
}

/// A new salt.
///
/// # Errors
///
/// `Io` where the system has no random bytes.
pub(super) fn new_salt() -> Result<[u8; SALT_BYTES]> {
    let mut salt = [0; SALT_BYTES];
    SystemRandom::new().fill(&mut salt).map_err(|_| {
        Error::new(ErrorKind::Io, "make a salt").because("the system gives no random bytes")
    })?;
    Ok(salt)
}

/// Which part of an object a seal is of. Each number is sealed once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Frame(u64),
    /// The index of an object of so many bytes.
    Index(u64),
}

/// What seals and opens the parts of one object.
pub(super) struct Seal {
    /// What all seals of the object are bound to: its format and its name.
    bound: Vec<u8>,
    key: Option<LessSafeKey>,
}

impl Seal {
    pub(super) fn new(shape: &Shape, key: Option<&FrameKey>, name: &Key) -> Self {
        let text = [name.namespace().as_bytes(), b"\0", name.name().as_bytes()].concat();
        let key = key.map(|key| key.of_object(shape, &text));
        Self { bound: [&shape.encode()[..], &text].concat(), key }
    }

    /// Bytes that a seal adds.
    pub(super) fn bytes(&self) -> usize {
        seal_bytes(self.key.is_some())
    }

    /// Seals a part in place, and appends the seal.
    pub(super) fn close(&self, part: Part, data: &mut Vec<u8>, from: usize) {
        let bound = self.bound(part);
        match &self.key {
            Some(key) => {
                let aad = Aad::from(&bound);
                let tag = key.seal_in_place_separate_tag(nonce(part), aad, &mut data[from..]);
                data.extend_from_slice(tag.expect("a frame is short").as_ref());
            }
            None => {
                let crc = crc32c::crc32c_append(crc32c::crc32c(&bound), &data[from..]);
                data.extend_from_slice(&crc.to_le_bytes());
            }
        }
    }

    /// Checks a part and opens it in place; `None` where it is not as it was sealed.
    pub(super) fn open<'a>(&self, part: Part, sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        let bound = self.bound(part);
        let length = sealed.len().checked_sub(self.bytes())?;
        match &self.key {
            Some(key) => {
                key.open_in_place(nonce(part), Aad::from(&bound), sealed).ok().map(|data| &*data)
            }
            None => {
                let (data, crc) = sealed.split_at(length);
                let wanted = crc32c::crc32c_append(crc32c::crc32c(&bound), data).to_le_bytes();
                (wanted == crc).then_some(data)
            }
        }
    }

    fn bound(&self, part: Part) -> Vec<u8> {
        let mut bound = Vec::with_capacity(self.bound.len() + 17);
        match part {
            Part::Frame(number) => {
                bound.push(0);
                bound.extend_from_slice(&number.to_le_bytes());
            }
            Part::Index(size_bytes) => {
                bound.push(1);
                bound.extend_from_slice(&size_bytes.to_le_bytes());
            }
        }
        bound.extend_from_slice(&self.bound);
        bound
    }
}

/// Bytes that a seal adds.
pub(super) fn seal_bytes(is_encrypted: bool) -> usize {
    if is_encrypted { AES_256_GCM.tag_len() } else { 4 }
}

/// Never used twice with one key: the key is of one object, which is written once.
fn nonce(part: Part) -> Nonce {
    let mut bytes = [0; 12];
    match part {
        Part::Frame(number) => bytes[4..].copy_from_slice(&number.to_le_bytes()),
        Part::Index(_) => bytes[0] = 1,
    }
    Nonce::assume_unique_for_key(bytes)
}
