// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handshake before the first request: versions, proofs, and what is served.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use terrace_core::{Access, Atomicity, Capability, Error, ErrorKind, Persistency, Result, Writes};

use crate::codec::{Reader, Writer, wrong};

/// Length of a number that is used once.
pub const NONCE_BYTES: usize = 32;

/// Length of a proof.
pub const PROOF_BYTES: usize = 32;

/// Shortest secret.
pub const SECRET_BYTES_MIN: usize = 16;

/// Longest secret.
pub const SECRET_BYTES_MAX: usize = 1024;

/// The first frame of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version that it speaks, …
    pub version_min: u16,
    /// … and the newest.
    pub version_max: u16,
    /// An unguessable number.
    pub nonce: [u8; NONCE_BYTES],
}

/// The first frame of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The version that both speak.
    pub version: u16,
    /// Whether the client has to prove that it knows the secret.
    pub needs_proof: bool,
    /// An unguessable number.
    pub nonce: [u8; NONCE_BYTES],
}

/// The second frame of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Zeros where none is needed.
    pub proof: [u8; PROOF_BYTES],
    /// Connections with one number share their handles, and answers that were lost.
    pub session: u64,
    /// What the client may do.
    pub access: Access,
}

/// The second frame of a server: it serves from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Proves that the server knows the secret, too; zeros where the client needed no proof.
    pub proof: [u8; PROOF_BYTES],
    /// The store's number: of all its servers, at all times.
    pub store_id: u128,
    /// Another number each time that the session begins: a client that finds another one than
    /// before has lost its handles, and the answers that were kept for it.
    pub life: u64,
    /// What the store can do.
    pub capability: Capability,
    /// What the store calls itself.
    pub target: String,
    /// Which opening of the store is served; sent since [`crate::VERSION_TELLS_OPENINGS`].
    pub openings: Openings,
}

/// Which opening of a store is served. Numbers that no two openings share; 0 for none that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Openings {
    /// This one.
    pub this: u128,
    /// The one before, where all that was done in it was durable when it ended.
    pub before: u128,
}

impl Openings {
    /// Whether nothing is lost that was done in the opening that a client used last: it goes on, or it
    /// has ended and everything is durable.
    pub fn keep(&self, last: &Openings) -> bool {
        last.this != 0 && [self.this, self.before].contains(&last.this)
    }
}

impl Hello {
    /// The head of the frame.
    pub fn to_head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        Writer(&mut head).u16(self.version_min).u16(self.version_max).raw(&self.nonce);
        head
    }

    /// Reads a head. What a later version adds behind is ignored. Errors: `Invalid`.
    pub fn from_head(head: &[u8]) -> Result<Self> {
        let mut input = Reader::new(head);
        Ok(Self { version_min: input.u16()?, version_max: input.u16()?, nonce: nonce(&mut input)? })
    }

    /// The newest version that both speak.
    ///
    /// # Errors
    ///
    /// `Unsupported` names the versions of both.
    pub fn common_version(&self, version_min: u16, version_max: u16) -> Result<u16> {
        let version = self.version_max.min(version_max);
        if version < self.version_min.max(version_min) {
            return Err(Error::new(ErrorKind::Unsupported, "serve a connection")
                .because("client and server have no version of the protocol in common")
                .with("client", format!("{}..{}", self.version_min, self.version_max))
                .with("server", format!("{version_min}..{version_max}")));
        }
        Ok(version)
    }
}

impl Challenge {
    /// The head of the frame.
    pub fn to_head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        Writer(&mut head).u16(self.version).u8(u8::from(self.needs_proof)).raw(&self.nonce);
        head
    }

    /// Reads a head. What a later version adds behind is ignored. Errors: `Invalid`.
    pub fn from_head(head: &[u8]) -> Result<Self> {
        let mut input = Reader::new(head);
        Ok(Self { version: input.u16()?, needs_proof: input.flag()?, nonce: nonce(&mut input)? })
    }
}

impl Proof {
    /// The head of the frame.
    pub fn to_head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        let is_writing = self.access == Access::Write;
        Writer(&mut head).raw(&self.proof).u64(self.session).u8(u8::from(is_writing));
        head
    }

    /// Reads a head. Errors: `Invalid`.
    pub fn from_head(head: &[u8]) -> Result<Self> {
        let mut input = Reader::new(head);
        let proof = nonce(&mut input)?;
        let session = input.u64()?;
        let access = if input.flag()? { Access::Write } else { Access::Read };
        input.end()?;
        Ok(Self { proof, session, access })
    }
}

impl Welcome {
    /// The head of the frame.
    pub fn to_head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        let out = &mut Writer(&mut head);
        out.raw(&self.proof).u128(self.store_id).u64(self.life);
        let capability = self.capability;
        out.u8(capability.persistency as u8).u8(capability.atomicity.code());
        for flag in [
            capability.sparse,
            capability.ordered_listing,
            capability.identity,
            capability.leases,
            capability.keeps_data,
            capability.labels,
        ] {
            out.u8(u8::from(flag));
        }
        out.text(&self.target);
        if self.openings != Openings::default() {
            out.u128(self.openings.this).u128(self.openings.before);
        }
        head
    }

    /// Reads a head. Errors: `Invalid`.
    pub fn from_head(head: &[u8]) -> Result<Self> {
        let mut input = Reader::new(head);
        let proof = nonce(&mut input)?;
        let store_id = input.u128()?;
        let life = input.u64()?;
        let persistency = match input.u8()? {
            0 => Persistency::None,
            1 => Persistency::Process,
            2 => Persistency::Storage,
            3 => Persistency::Shared,
            _ => return Err(wrong("a level of persistency is unknown")),
        };
        let capability = Capability {
            persistency,
            atomicity: Atomicity::from_code(input.u8()?)
                .ok_or_else(|| wrong("an atomicity is unknown"))?,
            sparse: input.flag()?,
            ordered_listing: input.flag()?,
            identity: input.flag()?,
            leases: input.flag()?,
            keeps_data: input.flag()?,
            labels: input.flag()?,
            // A served store brings what is written to a tier that takes it, and divides what is
            // too large.
            writes: Writes::InPlace,
            object_bytes_max: u64::MAX,
            packed: false,
        };
        let target = input.text()?.into();
        let openings = match input.end() {
            Ok(()) => Openings::default(),
            Err(_) => Openings { this: input.u128()?, before: input.u128()? },
        };
        input.end()?;
        Ok(Self { proof, store_id, life, capability, target, openings })
    }
}

fn nonce(input: &mut Reader<'_>) -> Result<[u8; NONCE_BYTES]> {
    Ok(input.take(NONCE_BYTES)?.try_into().expect("so many were taken"))
}

/// What servers and clients of a store share. Never printed.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The side that proves that it knows the secret. A proof of one side is not valid for the other,
/// so that neither can be sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that connects.
    Client,
    /// The side that serves.
    Server,
}

/// What both sides have sent when they prove themselves.
#[derive(Clone, Copy, Debug)]
pub struct Transcript<'a> {
    /// Of the client.
    pub hello: &'a Hello,
    /// Of the server.
    pub challenge: &'a Challenge,
    /// What only the two ends of an encrypted channel know, so that a relay in between cannot pass
    /// a proof on; empty where the channel is not encrypted.
    pub channel: &'a [u8],
}

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    ///
    /// `Invalid` where it is too short to be one, or too long.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(Error::invalid("use a secret", "its length is not allowed")
                .with("bytes", bytes.len())
                .with("bytes_min", SECRET_BYTES_MIN)
                .with("bytes_max", SECRET_BYTES_MAX));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Proves to the other side that this one knows the secret.
    pub fn prove(&self, side: Side, transcript: Transcript<'_>) -> [u8; PROOF_BYTES] {
        self.mac(side, transcript).finalize().into_bytes().into()
    }

    /// Whether the other side, which is `side`, knows the secret. Takes the same time for every
    /// wrong proof.
    pub fn verify(
        &self,
        side: Side,
        transcript: Transcript<'_>,
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        self.mac(side, transcript).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: Side, transcript: Transcript<'_>) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key");
        mac.update(match side {
            Side::Client => b"terrace client\0",
            Side::Server => b"terrace server\0",
        });
        // Both have a fixed length up to here, so that nothing can be taken for something else.
        mac.update(&transcript.hello.to_head());
        mac.update(&transcript.challenge.to_head());
        mac.update(transcript.channel);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello { version_min: 1, version_max: 3, nonce: [1; NONCE_BYTES] }
    }

    fn challenge() -> Challenge {
        Challenge { version: 1, needs_proof: true, nonce: [2; NONCE_BYTES] }
    }

    #[test]
    fn greetings_are_read_as_they_were_written() {
        assert_eq!(Hello::from_head(&hello().to_head()).expect("legal"), hello());
        assert_eq!(Challenge::from_head(&challenge().to_head()).expect("legal"), challenge());
        let proof = Proof { proof: [3; PROOF_BYTES], session: 9, access: Access::Read };
        assert_eq!(Proof::from_head(&proof.to_head()).expect("legal"), proof);
        let welcome = Welcome {
            proof: [4; PROOF_BYTES],
            store_id: 5,
            life: 7,
            capability: Capability {
                atomicity: Atomicity::Operation,
                persistency: Persistency::Storage,
                sparse: true,
                ordered_listing: false,
                identity: true,
                leases: false,
                keeps_data: true,
                labels: false,
                writes: Writes::InPlace,
                object_bytes_max: u64::MAX,
                packed: false,
            },
            target: "file:/srv".into(),
            openings: Openings::default(),
        };
        assert_eq!(Welcome::from_head(&welcome.to_head()).expect("legal"), welcome);
        let welcome = Welcome { openings: Openings { this: 8, before: 7 }, ..welcome };
        let head = welcome.to_head();
        assert_eq!(Welcome::from_head(&head).expect("legal"), welcome);
        Welcome::from_head(&head[..head.len() - 1]).expect_err("cut");
    }

    #[test]
    fn an_opening_keeps_what_was_done_in_it_and_in_the_one_before_where_that_ended_well() {
        let openings = |this, before| Openings { this, before };
        assert!(openings(3, 2).keep(&openings(2, 0)));
        assert!(openings(3, 0).keep(&openings(3, 2)), "it has not ended");
        assert!(!openings(3, 0).keep(&openings(2, 1)), "it did not end well");
        assert!(!openings(4, 3).keep(&openings(2, 1)), "nobody knows of the one between");
        assert!(!openings(4, 0).keep(&openings(0, 0)), "it was not told");
    }

    #[test]
    fn a_later_version_may_add_to_its_greeting() {
        let mut head = hello().to_head();
        head.extend(b"more");
        assert_eq!(Hello::from_head(&head).expect("legal"), hello());
    }

    #[test]
    fn the_newest_common_version_is_spoken() {
        let hello = hello();
        assert_eq!(hello.common_version(1, 1).expect("common"), 1);
        assert_eq!(hello.common_version(2, 9).expect("common"), 3);
        assert_eq!(hello.common_version(4, 9).expect_err("none").kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn only_the_secret_proves() {
        let (hello, challenge) = (hello(), challenge());
        let transcript = Transcript { hello: &hello, challenge: &challenge, channel: b"" };
        let secret = Secret::new(b"sixteen bytes at least").expect("long enough");
        let proof = secret.prove(Side::Client, transcript);
        assert!(secret.verify(Side::Client, transcript, &proof));
        assert!(!secret.verify(Side::Server, transcript, &proof), "sent back");
        let other = Secret::new(b"sixteen bytes, others").expect("long enough");
        assert!(!other.verify(Side::Client, transcript, &proof), "another secret");
        let relayed = Transcript { channel: b"another", ..transcript };
        assert!(!secret.verify(Side::Client, relayed, &proof), "another channel");
        let later = Challenge { nonce: [7; NONCE_BYTES], ..challenge.clone() };
        let replayed = Transcript { challenge: &later, ..transcript };
        assert!(!secret.verify(Side::Client, replayed, &proof), "another time");
    }

    #[test]
    fn short_secrets_are_refused() {
        assert_eq!(Secret::new(b"short").expect_err("short").kind(), ErrorKind::Invalid);
        assert!(!format!("{:?}", Secret::new(&[b's'; 16]).expect("long enough")).contains("115"));
    }
}
