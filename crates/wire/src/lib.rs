// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network protocol as pure functions: frames, requests and answers, no sockets.
//!
//! `docs/formats/wire.md` is the same for people and other languages.

mod codec;
mod digest;
mod failure;
mod frame;
mod hello;
mod operation;
mod outcome;
mod semantics;
mod stream;

pub use digest::{PairsDigest, digest_pairs, digest_value};
pub use failure::Failure;
pub use frame::{
    GREETING_BYTES_MAX, HEAD_BYTES_MAX, HEADER_BYTES, Header, KEPT_BYTES_MAX, Kind, LAST_WORD,
    MAGIC, PAYLOAD_BYTES_MAX, PIECE_BYTES_MAX, VERSION, VERSION_KEEPS_SIZE, VERSION_MIN,
    VERSION_TELLS_OPENINGS, check_head, check_payload,
};
pub use hello::{
    Challenge, Hello, NONCE_BYTES, Openings, PROOF_BYTES, Proof, SECRET_BYTES_MAX,
    SECRET_BYTES_MIN, Secret, Side, Transcript, Welcome,
};
pub use operation::{
    Commit, Effect, Look, LookFor, OPERATIONS_MAX, OnHandle, Opening, Operation, Seen, check_short,
    read_operations, read_payload_bytes, write_operations,
};
pub use outcome::{Leased, Opened, Outcome, read_outcomes, write_outcomes};
pub use semantics::{pack_semantics, unpack_semantics};
pub use stream::{FrameReader, Next, Start, send, small_frame};
