// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where an object's file is: `<namespace>/<bucket>/<name>` below the root of the tier.
//!
//! Specified, with test vectors, in `docs/formats/file-tier.md`. The mapping is reversible, and no
//! component can be `.`, `..`, hidden or longer than a file system takes.

use std::ffi::{CStr, CString};

use terrace_core::{Key, NAME_BYTES_MAX};

/// Directories that the files of a namespace are spread over, by the hash of their names. A page of a
/// listing reads and sorts one, so they must not be few: of ten million objects each has 40 000. A
/// create dirties its directory and the block group that ext4 puts it in, so they must not be many:
/// over 4096 it took several times as long as over 256.
pub(super) const BUCKETS: u16 = 1 << 8;

/// Escaped bytes in one component: 255, which file systems allow, less a mark at either end.
const PIECE_BYTES: usize = 253;

/// Bytes below a bucket: every byte of the longest name escaped, and three marks at each cut.
pub(super) const NAME_PATH_BYTES_MAX: usize =
    3 * NAME_BYTES_MAX + 3 * (3 * NAME_BYTES_MAX).div_ceil(PIECE_BYTES);

/// Ends a component that the next one continues, and begins the next one. Never in escaped text.
const CONTINUED: u8 = b'+';

/// Room for a bucket, separators and a few escapes, so that paths are seldom allocated twice.
const EXTRA_BYTES: usize = 32;

/// A path below the root of a tier.
#[derive(Clone, Debug)]
pub(super) struct ObjectPath {
    text: CString,
}

impl ObjectPath {
    pub(super) fn new(key: &Key) -> Self {
        let mut bytes = Vec::with_capacity(key.as_str().len() + EXTRA_BYTES);
        push_escaped(&mut bytes, key.namespace());
        bytes.push(b'/');
        push_bucket(&mut bytes, bucket(key.name()));
        bytes.push(b'/');
        let start = bytes.len();
        push_escaped(&mut bytes, key.name());
        if bytes.len() - start > PIECE_BYTES {
            let escaped = bytes.split_off(start);
            push_pieces(&mut bytes, &escaped);
        }
        Self { text: CString::new(bytes).expect("NUL is escaped") }
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        &self.text
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The directories above the file, the outermost first.
    pub(super) fn directories(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let path = self.text.as_bytes();
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes.map(|(at, _)| &path[..at])
    }

    /// The directory that holds the file.
    pub(super) fn directory(&self) -> &[u8] {
        self.directories().next_back().expect("a file is in a bucket")
    }
}

/// The directory of a namespace.
pub(super) fn namespace_directory(namespace: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(namespace.len() + EXTRA_BYTES);
    push_escaped(&mut bytes, namespace);
    bytes
}

/// The directory of a bucket.
pub(super) fn bucket_directory(namespace: &str, bucket: u16) -> Vec<u8> {
    let mut bytes = namespace_directory(namespace);
    bytes.push(b'/');
    push_bucket(&mut bytes, bucket);
    bytes
}

/// The directory that holds a directory; the root is `.`.
pub(super) fn parent(directory: &[u8]) -> &[u8] {
    match directory.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => &directory[..slash],
        None => b".",
    }
}

/// The bucket of a name.
pub(super) fn bucket(name: &str) -> u16 {
    (crc32c::crc32c(name.as_bytes()) % u32::from(BUCKETS)) as u16
}

/// The bucket that a directory is, unless it is none of ours.
pub(super) fn parse_bucket(directory: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(directory).ok()?;
    let bucket = u16::from_str_radix(text, 16).ok()?;
    let mut canonical = Vec::new();
    push_bucket(&mut canonical, bucket);
    (canonical == directory && bucket < BUCKETS).then_some(bucket)
}

/// The namespace that a directory is, unless it is none of ours.
pub(super) fn parse_namespace(directory: &[u8]) -> Option<String> {
    let namespace = unescape(directory)?;
    let is_legal = Key::new(&namespace, "any").is_ok();
    (is_legal && namespace_directory(&namespace) == directory).then_some(namespace)
}

/// Whether a directory holds what continues a long name.
pub(super) fn is_continued(component: &[u8]) -> bool {
    component.last() == Some(&CONTINUED)
}

/// The key of the file at `path` below a bucket, unless it is none of ours.
pub(super) fn parse_key(namespace: &str, bucket: u16, path: &[u8]) -> Option<Key> {
    let is_escaped = |byte: &u8| *byte != CONTINUED && *byte != b'/';
    let escaped: Vec<u8> = path.iter().copied().filter(is_escaped).collect();
    let key = Key::new(namespace, &unescape(&escaped)?).ok()?;
    // Other spellings of the name, and names in the wrong bucket, are foreign files.
    let mut found = bucket_directory(namespace, bucket);
    found.push(b'/');
    found.extend_from_slice(path);
    (ObjectPath::new(&key).as_bytes() == found).then_some(key)
}

/// Text of which file systems take every byte.
pub(super) fn escape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    push_escaped(&mut bytes, text);
    String::from_utf8(bytes).expect("escaped text is ASCII")
}

fn push_bucket(bytes: &mut Vec<u8>, bucket: u16) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    bytes.extend([4, 0].map(|shift| HEX[usize::from(bucket >> shift) % 16]));
}

fn push_escaped(bytes: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => bytes.push(byte),
            b'.' if index > 0 => bytes.push(byte),
            _ => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                bytes.extend_from_slice(&[b'%', HEX[high], HEX[low]]);
            }
        }
    }
}

/// Undoes [`escape`]; lenient, so callers compare with the canonical form.
pub(super) fn unescape(escaped: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let (hex, tail) = tail.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

fn push_pieces(bytes: &mut Vec<u8>, escaped: &[u8]) {
    for (index, piece) in escaped.chunks(PIECE_BYTES).enumerate() {
        if index > 0 {
            bytes.extend_from_slice(&[CONTINUED, b'/', CONTINUED]);
        }
        bytes.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../../docs/formats/file-tier.md");

    /// The vectors of the document: key, a bar, path; `{a*300}` stands for 300 times `a`.
    fn vectors() -> Vec<(String, String)> {
        let body = DOCUMENT.split("```vectors\n").nth(1).expect("the document has vectors");
        let lines = body.split("```").next().expect("the block ends").lines();
        lines
            .map(|line| {
                let (key, path) = line.split_once(" | ").expect("two columns");
                (expand(key), expand(path))
            })
            .collect()
    }

    fn expand(text: &str) -> String {
        let Some((before, rest)) = text.split_once('{') else { return text.into() };
        let (repeat, after) = rest.split_once('}').expect("closed");
        let (piece, count) = repeat.split_once('*').expect("text times count");
        let count = count.parse().expect("a count");
        format!("{before}{}{}", piece.repeat(count), expand(after))
    }

    #[test]
    fn documented_paths_are_made_and_read_back() {
        let vectors = vectors();
        assert!(vectors.len() >= 10);
        for (key, path) in vectors {
            let key = Key::parse(&key).expect("legal");
            let made = ObjectPath::new(&key);
            assert_eq!(String::from_utf8_lossy(made.as_bytes()), path, "{key}");
            let mut parts = path.splitn(3, '/').map(str::as_bytes);
            let mut part = || parts.next().expect("three parts");
            let namespace = parse_namespace(part()).expect("ours");
            let bucket = parse_bucket(part()).expect("ours");
            assert_eq!(parse_key(&namespace, bucket, part()), Some(key));
        }
    }

    #[test]
    fn no_component_is_special_or_too_long() {
        for unit in [".", "..", "/", "../", "%", "+", "é", "🦀", "a.", "a/.", "\n", " "] {
            for times in 1..=400 / unit.len() {
                for lead in ["", "x"] {
                    let name = format!("{lead}{}", unit.repeat(times));
                    let Ok(key) = Key::new("n", &name) else { continue };
                    let path = ObjectPath::new(&key);
                    let text = std::str::from_utf8(path.as_bytes()).expect("ASCII");
                    for component in text.split('/') {
                        assert!((1..=255).contains(&component.len()), "{text}");
                        assert!(!component.starts_with('.'), "{text}");
                    }
                    let below = text.splitn(3, '/').nth(2).expect("three parts");
                    assert_eq!(parse_key("n", bucket(&name), below.as_bytes()), Some(key));
                }
            }
        }
    }

    #[test]
    fn foreign_files_are_no_objects() {
        for foreign in ["", "a b", "%41", "%2e", ".hidden", "a+", "+a", "a+/+b", "%F", "%FF", "é"]
        {
            for bucket in 0..BUCKETS {
                assert_eq!(parse_key("n", bucket, foreign.as_bytes()), None, "{foreign}");
            }
        }
        for foreign in ["", "1", "123", "0A", "0x", "+1", "lost"] {
            assert_eq!(parse_bucket(foreign.as_bytes()), None, "{foreign}");
        }
        for foreign in ["", ".terrace-superblock", "lost+found", "a b", "%2F"] {
            assert_eq!(parse_namespace(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
