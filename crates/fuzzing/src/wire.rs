// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes over the network.

use std::fmt::Debug;
use std::io::Read;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use terrace_backends::{kv, object};
use terrace_core::{
    Access, Backend, Clock, Error, ErrorKind, Kv, Persistency, Result, Semantics, SystemClock,
};
use terrace_server::{Call, Called, Caller, Limits, Server, Service};
use terrace_transport::{Incoming, Outgoing, Socket, Transport};
use terrace_wire::{
    Challenge, Failure, FrameReader, HEAD_BYTES_MAX, Header, Hello, Kind, NONCE_BYTES, Next,
    PIECE_BYTES_MAX, PROOF_BYTES, Proof, VERSION, VERSION_MIN, Welcome, pack_semantics,
    read_operations, read_outcomes, send, small_frame, unpack_semantics, write_operations,
    write_outcomes,
};

use crate::input::Input;

/// Frames of one input; more show nothing new.
const FRAMES_MAX: usize = 64;

/// Longest head that a peer of a session sends.
const HEAD_BYTES: usize = 4 << 10;

/// A stream of frames: what is read is written as the same bytes.
pub(crate) fn frames(input: &[u8]) -> bool {
    let mut reader = FrameReader::new(input);
    let mut written = Vec::new();
    for number in 0..FRAMES_MAX {
        let next = reader.next(HEAD_BYTES_MAX);
        let start = match next {
            Ok(Next::Frame(start)) => start,
            Ok(Next::End) => return number > 0,
            Ok(Next::Idle) => unreachable!("a list is never late"),
            Err(error) => {
                assert_expected(&error);
                return number > 0;
            }
        };
        let mut payload = Vec::new();
        if let Err(error) = reader.payload_behind(&start.header, &mut payload) {
            assert_expected(&error);
            return number > 0;
        }
        start.header.write(&start.head, &mut written);
        written.extend(payload);
        assert!(input.starts_with(&written), "it is written otherwise");
    }
    true
}

fn assert_expected(error: &Error) {
    let is_cut = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unreachable { .. });
    assert!(is_cut || error.kind() == ErrorKind::Invalid, "{}", error.chain());
}

/// The operations of a request: what is read is written and read again as the same.
pub(crate) fn operations(input: &[u8]) -> bool {
    let read = read_operations(input);
    again(read, read_operations, |(payload_bytes, operations)| {
        write_operations(operations, *payload_bytes)
    })
}

/// The outcomes of an answer, the same.
pub(crate) fn outcomes(input: &[u8]) -> bool {
    again(read_outcomes(input), read_outcomes, |outcomes| write_outcomes(outcomes))
}

/// A message of the greeting, an error or semantics, the same.
pub(crate) fn greeting(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let choice = input.choice(6);
    let head = input.rest();
    match choice {
        0 => again(Hello::from_head(head), Hello::from_head, Hello::to_head),
        1 => again(Challenge::from_head(head), Challenge::from_head, Challenge::to_head),
        2 => again(Proof::from_head(head), Proof::from_head, Proof::to_head),
        3 => again(Welcome::from_head(head), Welcome::from_head, Welcome::to_head),
        4 => {
            if let Ok(failure) = Failure::from_head(head) {
                // It is printed, and sent to others.
                let error = failure.into_error();
                assert!(error.chain().starts_with("cannot "), "{}", error.chain());
                Failure::from_head(&Failure::of(&error).to_head()).expect("legal");
            }
            again(Failure::from_head(head), Failure::from_head, Failure::to_head)
        }
        _ => {
            let Some(number) = head.first_chunk::<4>() else { return false };
            let number = u32::from_le_bytes(*number);
            match unpack_semantics(number) {
                Ok(semantics) => {
                    assert_eq!(pack_semantics(&semantics), number);
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    false
                }
            }
        }
    }
}

fn again<T: PartialEq + Debug>(
    read: Result<T>,
    reader: impl Fn(&[u8]) -> Result<T>,
    write: impl Fn(&T) -> Vec<u8>,
) -> bool {
    match read {
        Ok(value) => {
            assert_eq!(reader(&write(&value)).expect("own bytes"), value);
            true
        }
        Err(error) => {
            // An operation of a later version is no damage.
            let is_refused = matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported);
            assert!(is_refused, "{}", error.chain());
            false
        }
    }
}

/// A store in memory that is served.
struct Served {
    backend: object::Memory,
    kv: Arc<kv::Memory>,
}

impl Service for Served {
    fn store_id(&self) -> u128 {
        1
    }

    fn openings(&self) -> terrace_wire::Openings {
        terrace_wire::Openings::default()
    }

    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn kv(&self, _: &str) -> Result<Arc<dyn Kv>> {
        Ok(Arc::clone(&self.kv) as _)
    }

    fn files(&self, _: &str, _: &terrace_server::Kept, _: &[u8]) -> Result<Vec<u8>> {
        Err(Error::new(ErrorKind::Unsupported, "ask a file system"))
    }

    fn ends(&self) {}

    fn call(&self, call: &Call<'_>, _: &mut dyn Caller) -> Result<Called> {
        Ok(Called { json: call.json.to_vec(), body: call.body.to_vec() })
    }
}

/// A whole session behind a true greeting: frames with the checksums that they should have and any
/// content, then bytes as they are. The server answers or says why not, ends the connection, and
/// serves the next one.
pub(crate) fn session(input: &[u8]) -> bool {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let served = Served { backend: object::Memory::new(1 << 20), kv: Arc::default() };
    let server = Server::new(Arc::new(served), None, Limits::default(), clock);
    let answers = converse(&server, &stream(input));
    let ask = small_frame(Kind::Request, 1, &write_operations(&[], 0));
    assert_eq!(converse(&server, &ask), 1, "nobody else is served");
    server.end();
    answers > 0
}

/// Frames made of an input: each begins with its kind and the length of its head and its payload.
fn stream(mut input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let none = Semantics { persistency: Persistency::None, ..Semantics::default() };
    for id in 1..=FRAMES_MAX as u64 {
        let Some(([kind, low, high, payload_bytes], rest)) = input.split_first_chunk::<4>() else {
            break;
        };
        let kind = match kind % 8 {
            0..=4 => Kind::Request,
            5 => Kind::Part,
            6 => Kind::Call,
            // What is left comes as it is.
            _ => {
                bytes.extend_from_slice(rest);
                break;
            }
        };
        let head_bytes = usize::from(u16::from_le_bytes([*low, *high])) % HEAD_BYTES;
        let (head, rest) = rest.split_at(head_bytes.min(rest.len()));
        let (payload, rest) = rest.split_at(usize::from(*payload_bytes).min(rest.len()));
        let header = Header::new(kind, id, head, payload);
        let header = Header { semantics: pack_semantics(&none), acknowledged: id, ..header };
        header.write(head, &mut bytes);
        bytes.extend_from_slice(payload);
        input = rest;
    }
    bytes
}

/// Greets a server, sends these bytes and reads to its end; how many answers came.
fn converse(server: &Server, bytes: &[u8]) -> usize {
    let (ours, theirs) = Socket::pair().expect("two sockets");
    server.serve(Arc::new(theirs));
    let ours = Arc::new(ours);
    ours.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let hello = Hello { version_min: VERSION_MIN, version_max: VERSION, nonce: [1; NONCE_BYTES] };
    let proof = Proof { proof: [0; PROOF_BYTES], session: 1, access: Access::Write };
    let mut out = Outgoing(&*ours);
    send(&mut out, &small_frame(Kind::Hello, 0, &hello.to_head()), &[]).expect("sent");
    send(&mut out, &small_frame(Kind::Proof, 0, &proof.to_head()), &[]).expect("sent");
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| hear(Incoming(Arc::clone(&ours))));
        // A server that has had enough closes the connection.
        let _ = send(&mut Outgoing(&*ours), bytes, &[]);
        ours.shutdown(Shutdown::Write);
        heard.join().expect("what a server says can be read")
    })
}

fn hear(stream: impl Read) -> usize {
    let mut reader = FrameReader::new(stream);
    let mut answers = 0;
    loop {
        match reader.next(HEAD_BYTES_MAX) {
            Ok(Next::Frame(start)) => {
                assert!(start.header.payload_bytes as usize <= PIECE_BYTES_MAX);
                let mut payload = Vec::new();
                if reader.payload_behind(&start.header, &mut payload).is_err() {
                    return answers;
                }
                if start.header.kind == Kind::Answer {
                    read_outcomes(&start.head).expect("its own outcomes");
                    answers += 1;
                }
            }
            Ok(Next::End) => return answers,
            Ok(Next::Idle) => panic!("the server neither answers nor ends the connection"),
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable { .. }) => return answers,
            Err(error) => panic!("{}", error.chain()),
        }
    }
}
