// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vectors of `docs/formats/wire.md`, in both directions.

use terrace_core::{Access, Error, ErrorKind, Hint, Key, Semantics};
use terrace_wire::{
    Challenge, Failure, FrameReader, HEAD_BYTES_MAX, Header, Hello, Kind, LAST_WORD, Next,
    Operation, Outcome, Proof, Secret, Side, Transcript, pack_semantics, write_operations,
    write_outcomes,
};

const DOCUMENT: &str = include_str!("../../../docs/formats/wire.md");

/// The bytes of the vector of this name.
fn vector(name: &str) -> Vec<u8> {
    let (_, vectors) = DOCUMENT.split_once("```text").expect("a list of vectors");
    let line = vectors.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let digits = line.unwrap_or_else(|| panic!("no vector {name}"));
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// What the vector holds, compared with a frame that is written here.
fn assert_frame(name: &str, header: Header, head: &[u8], payload: &[u8]) {
    let bytes = vector(name);
    let mut reader = FrameReader::new(&bytes[..]);
    let Next::Frame(start) = reader.next(HEAD_BYTES_MAX).expect("whole") else { panic!("{name}") };
    assert_eq!((start.header, &start.head[..]), (header, head), "{name}");
    let mut found = Vec::new();
    reader.payload_behind(&start.header, &mut found).expect("whole");
    assert_eq!(found, payload, "{name}");
    let mut written = Vec::new();
    header.write(head, &mut written);
    written.extend(payload);
    assert_eq!(written, bytes, "{name}");
}

#[test]
fn the_greeting_is_as_documented() {
    let hello = Hello { version_min: 1, version_max: 1, nonce: [1; 32] };
    let challenge = Challenge { version: 1, needs_proof: true, nonce: [2; 32] };
    let secret = Secret::new(b"sixteen bytes ok").expect("long enough");
    let transcript = Transcript { hello: &hello, challenge: &challenge, channel: b"" };
    let proof = secret.prove(Side::Client, transcript);
    let proof = Proof { proof, session: 9, access: Access::Write };
    for (name, kind, head) in [
        ("hello", Kind::Hello, hello.to_head()),
        ("challenge", Kind::Challenge, challenge.to_head()),
        ("proof", Kind::Proof, proof.to_head()),
        ("farewell", Kind::Farewell, Vec::new()),
        ("last-farewell", Kind::Farewell, LAST_WORD.to_vec()),
    ] {
        assert_frame(name, Header::new(kind, 0, &head, b""), &head, b"");
    }
    assert_eq!(vector("server-proof"), secret.prove(Side::Server, transcript));
}

#[test]
fn requests_and_answers_are_as_documented() {
    let key = || Key::new("n", "o").expect("legal");
    let operations = [
        Operation::Create { key: key(), data_bytes: 5, hint: Hint::default() },
        Operation::Read { key: key(), offset_bytes: 0, length_bytes: 10 },
        Operation::KvPut { namespace: "n".into(), key: b"k".to_vec(), value_bytes: 0 },
    ];
    let head = write_operations(&operations, 5);
    let header = Header {
        acknowledged: 1,
        semantics: pack_semantics(&Semantics::default()),
        ..Header::new(Kind::Request, 1, &head, b"bytes")
    };
    assert_frame("request", header, &head, b"bytes");
    let failure = Failure::of(&Error::new(ErrorKind::NotFound, "x"));
    let outcomes = [Outcome::Done, Outcome::Read(5), Outcome::Done, Outcome::Failed(failure)];
    let head = write_outcomes(&outcomes);
    assert_frame("answer", Header::new(Kind::Answer, 1, &head, b"bytes"), &head, b"bytes");
}

#[test]
fn streams_are_as_documented() {
    let call = [&0_u32.to_le_bytes()[..], br#"{"verb":"watch","kinds":["tier"]}"#].concat();
    assert_frame("call", Header::new(Kind::Call, 2, &call, b""), &call, b"");
    let progress = [1_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    assert_frame("progress", Header::new(Kind::Progress, 2, &progress, b""), &progress, b"");
    let json = br#"{"number":1,"wall_ns":7,"kind":"tier","tier":"fast","state":"full"}"#;
    let head = (json.len() as u32).to_le_bytes();
    assert_frame("notice", Header::new(Kind::Notice, 2, &head, json), &head, json);
}
