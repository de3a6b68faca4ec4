// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages as frames: two lengths, a JSON header, bytes.

use std::io::{self, ErrorKind as IoKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use terrace_core::{Error, Result};

/// Longest header of a frame.
pub(super) const HEADER_BYTES_MAX: usize = 1 << 20;

/// Most bytes behind the header of a frame.
pub(super) const PAYLOAD_BYTES_MAX: usize = 4 << 20;

/// Most bytes that one request brings or asks for.
pub(super) const DATA_BYTES_MAX: usize = 32 << 20;

/// Two lengths, little-endian: of the header and of the payload.
const PREFIX_BYTES: usize = 8;

/// Up to this length header and payload are sent with one call.
const TOGETHER_BYTES: usize = 64 << 10;

/// What the header of a message holds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Head<T> {
    /// Of the request; its replies have the same.
    pub(super) id: u64,
    /// Length of the body. What does not fit the first frame follows in frames without a header.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) body_bytes: u64,
    #[serde(flatten)]
    pub(super) content: T,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Sends a message whose body is `parts` one after the other.
///
/// # Errors
///
/// `Invalid` for a header that is too long, before anything is sent; else the stream's.
pub(super) fn send<T: Serialize>(
    stream: &mut impl Write,
    id: u64,
    content: T,
    parts: &[&[u8]],
) -> Result<()> {
    let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
    let head = Head { id, body_bytes: body_bytes as u64, content };
    let header = serde_json::to_vec(&head)
        .map_err(|error| Error::invalid("send a message", "it has no JSON").caused_by(error))?;
    if header.len() > HEADER_BYTES_MAX {
        return Err(Error::invalid("send a message", "its header is too long")
            .with("header_bytes", header.len())
            .with("header_bytes_max", HEADER_BYTES_MAX));
    }
    send_frames(stream, &header, parts, body_bytes)
        .map_err(|error| Error::from_io("send a message", error))
}

fn send_frames(
    stream: &mut impl Write,
    header: &[u8],
    parts: &[&[u8]],
    body_bytes: usize,
) -> io::Result<()> {
    let mut rest_bytes = body_bytes;
    let mut parts = parts.iter().copied();
    let mut part: &[u8] = &[];
    let mut header = header;
    loop {
        let mut left_bytes = rest_bytes.min(PAYLOAD_BYTES_MAX);
        rest_bytes -= left_bytes;
        let mut buffer = Vec::with_capacity(PREFIX_BYTES + header.len());
        // Both are bounded above.
        buffer.extend((header.len() as u32).to_le_bytes());
        buffer.extend((left_bytes as u32).to_le_bytes());
        buffer.extend(header);
        header = &[];
        let is_short = buffer.len() + left_bytes <= TOGETHER_BYTES;
        if !is_short {
            stream.write_all(&buffer)?;
        }
        while left_bytes > 0 {
            if part.is_empty() {
                part = parts.next().expect("the parts are as long as their sum");
                continue;
            }
            let (now, later) = part.split_at(part.len().min(left_bytes));
            match is_short {
                true => buffer.extend(now),
                false => stream.write_all(now)?,
            }
            left_bytes -= now.len();
            part = later;
        }
        if is_short {
            stream.write_all(&buffer)?;
        }
        if rest_bytes == 0 {
            return stream.flush();
        }
    }
}

/// Receives a message; `None` where the stream ended before it began.
///
/// # Errors
///
/// `Invalid` for anything that is no message, or one with a longer body; else the stream's. The
/// stream is of no use then.
pub(super) fn receive<T: DeserializeOwned>(
    stream: &mut impl Read,
    body_bytes_max: u64,
) -> Result<Option<(Head<T>, Vec<u8>)>> {
    let Some((header_bytes, payload_bytes)) = receive_prefix(stream)? else { return Ok(None) };
    let mut header = vec![0; header_bytes];
    stream.read_exact(&mut header).map_err(failed)?;
    let head: Head<T> = serde_json::from_slice(&header)
        .map_err(|error| garbage("its header is not as it must be").caused_by(error))?;
    if head.body_bytes > body_bytes_max {
        return Err(garbage("its body is too long")
            .with("body_bytes", head.body_bytes)
            .with("body_bytes_max", body_bytes_max));
    }
    let mut body = Vec::new();
    receive_payload(stream, payload_bytes, head.body_bytes, &mut body)?;
    while (body.len() as u64) < head.body_bytes {
        let Some((header_bytes, payload_bytes)) = receive_prefix(stream)? else {
            return Err(failed(IoKind::UnexpectedEof.into()));
        };
        if header_bytes != 0 {
            return Err(garbage("another message begins inside it"));
        }
        receive_payload(stream, payload_bytes, head.body_bytes, &mut body)?;
    }
    Ok(Some((head, body)))
}

fn receive_prefix(stream: &mut impl Read) -> Result<Option<(usize, usize)>> {
    let mut prefix = [0; PREFIX_BYTES];
    let mut filled = 0;
    while filled < PREFIX_BYTES {
        match stream.read(&mut prefix[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(failed(IoKind::UnexpectedEof.into())),
            Ok(count) => filled += count,
            Err(error) if error.kind() == IoKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let length = |at: usize| {
        let bytes = prefix[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let (header_bytes, payload_bytes) = (length(0), length(4));
    if header_bytes > HEADER_BYTES_MAX || payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(garbage("its lengths are out of bounds")
            .with("header_bytes", header_bytes)
            .with("payload_bytes", payload_bytes));
    }
    Ok(Some((header_bytes, payload_bytes)))
}

/// Adds a payload to a body. Every frame has as much of it as fits: the number of frames is bounded.
fn receive_payload(
    stream: &mut impl Read,
    payload_bytes: usize,
    body_bytes: u64,
    body: &mut Vec<u8>,
) -> Result<()> {
    let rest_bytes = body_bytes - body.len() as u64;
    if payload_bytes as u64 != rest_bytes.min(PAYLOAD_BYTES_MAX as u64) {
        return Err(garbage("a frame has more or less of its body than it must")
            .with("payload_bytes", payload_bytes)
            .with("rest_bytes", rest_bytes));
    }
    let start = body.len();
    body.resize(start + payload_bytes, 0);
    stream.read_exact(&mut body[start..]).map_err(failed)
}

fn garbage(reason: &str) -> Error {
    Error::invalid("receive a message", reason)
}

fn failed(error: io::Error) -> Error {
    Error::from_io("receive a message", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::call::{Call, Outcome};
    use terrace_core::{ErrorKind, Random};

    /// The document with the bytes that this program must send and understand.
    const DOCUMENT: &str = include_str!("../../../../docs/formats/control.md");

    /// The bytes of a vector: hexadecimal digits, or text in quotes, until the end of the block.
    fn vector(name: &str) -> Vec<u8> {
        let block = DOCUMENT.split(&format!("```{name}\n")).nth(1).expect(name);
        let block = block.split("```").next().expect("a split has a first part");
        let mut bytes = Vec::new();
        for line in block.lines() {
            match line.strip_prefix('\'') {
                Some(text) => bytes.extend(text.trim_end_matches('\'').as_bytes()),
                None => {
                    bytes.extend(line.split_whitespace().map(|digits| {
                        u8::from_str_radix(digits, 16).expect("two hexadecimal digits")
                    }))
                }
            }
        }
        bytes
    }

    fn sent<T: Serialize>(id: u64, content: T, parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut bytes, id, content, parts).expect("memory takes all");
        bytes
    }

    #[test]
    fn the_documented_messages_are_sent_and_understood() {
        let call = Call::WriteAt { handle: 5, offset_bytes: 4096 };
        let bytes = vector("request");
        assert_eq!(sent(7, &call, &[b"te", b"rrace"]), bytes);
        let (head, body) = receive::<Call>(&mut &*bytes, 100).expect("legal").expect("not empty");
        assert_eq!((head.id, head.content, &*body), (7, call, &b"terrace"[..]));

        let bytes = vector("reply");
        assert_eq!(sent(7, Outcome::Ok { json_bytes: 4 }, &[b"null"]), bytes);
        let (head, body) = receive::<Outcome>(&mut &*bytes, 9).expect("legal").expect("not empty");
        assert!(matches!(head.content, Outcome::Ok { json_bytes: 4 }));
        assert_eq!(body, b"null");

        let bytes = vector("error");
        let (head, _) = receive::<Outcome>(&mut &*bytes, 9).expect("legal").expect("not empty");
        let Outcome::Error(failure) = head.content else { panic!("{:?}", head.content) };
        assert_eq!(sent(8, Outcome::Error(failure.clone()), &[]), bytes);
        let error = failure.into_error();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.to_string(), "cannot open object: not found key=run/a");
    }

    #[test]
    fn a_long_body_crosses_in_several_frames() {
        let body: Vec<u8> = (0..PAYLOAD_BYTES_MAX * 2 + 5).map(|at| at as u8).collect();
        let (first, second) = body.split_at(PAYLOAD_BYTES_MAX - 1);
        let bytes = sent(1, Call::Tiers, &[first, &[], second]);
        let (head, back) =
            receive::<Call>(&mut &*bytes, u64::MAX).expect("legal").expect("not empty");
        assert_eq!(head.body_bytes, body.len() as u64);
        assert!(back == body);
    }

    #[test]
    fn a_cut_stream_is_an_error_unless_it_ends_between_messages() {
        let bytes = sent(1, Call::Tiers, &[b"body"]);
        assert!(receive::<Call>(&mut &bytes[..0], 100).expect("an end").is_none());
        for end in 1..bytes.len() {
            receive::<Call>(&mut &bytes[..end], 100).expect_err("cut");
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let bytes = sent(1, Call::Tiers, &[b"body"]);
        assert_eq!(receive::<Call>(&mut &*bytes, 3).expect_err("long").kind(), ErrorKind::Invalid);
        let kind = "x".repeat(HEADER_BYTES_MAX);
        let error = send(&mut Vec::new(), 1, Call::Message { kind }, &[]).expect_err("long");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    /// Each source holds the next: without a bound the last one is dropped hundreds of thousands of
    /// calls deep, which no stack has room for.
    #[test]
    fn an_error_with_countless_sources_is_cut() {
        let sources = vec!["\"\""; 300_000].join(",");
        let header = format!(
            r#"{{"id":1,"error":{{"kind":"io","message":"cannot read: it","sources":[{sources}]}}}}"#
        );
        let lengths = [(header.len() as u32).to_le_bytes(), [0; 4]].concat();
        let bytes = [&lengths, header.as_bytes()].concat();
        let (head, _) = receive::<Outcome>(&mut &*bytes, 0).expect("legal").expect("not empty");
        let Outcome::Error(failure) = head.content else { panic!("{:?}", head.content) };
        let error = failure.into_error();
        assert!(error.chain().len() < 100);
    }

    /// Damaged messages and noise: an error or a message, never a panic or a large allocation.
    #[test]
    fn garbage_is_no_panic() {
        let mut random = Random::new(20_261_120);
        let calls = [
            sent(1, Call::KvGet { namespace: "n".into() }, &[b"key"]),
            sent(2, Call::WriteAt { handle: 1, offset_bytes: 3 }, &[&[7; 300]]),
            sent(3, Outcome::Ok { json_bytes: 2 }, &[b"{}"]),
        ];
        let mut understood = 0;
        for _ in 0..20_000 {
            let mut bytes = calls[random.below(3) as usize].clone();
            if random.chance(0.2) {
                bytes = vec![0; random.below(64) as usize];
                random.fill(&mut bytes);
            }
            for _ in 0..random.below(4) {
                if !bytes.is_empty() {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.next_u64() as u8;
                }
            }
            understood += u32::from(matches!(receive::<Call>(&mut &*bytes, 1000), Ok(Some(_))));
            let _ = receive::<Outcome>(&mut &*bytes, 1000);
        }
        // Those that nothing was done to, at least.
        assert!(understood > 2000, "{understood}");
    }
}
