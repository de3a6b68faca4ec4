// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that sends what a test wants, also what no client of ours would.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Access, Create, Error, ErrorKind, Hint, Key, Result, Semantics};
use terrace_transport::{Endpoint, Incoming, Outgoing, Socket, Transport, random_bytes};
use terrace_wire::{
    Challenge, Failure, FrameReader, HEAD_BYTES_MAX, Header, Hello, Kind, NONCE_BYTES, Next,
    Opening, Operation, Outcome, PIECE_BYTES_MAX, PROOF_BYTES, Proof, Secret, Side, Start,
    Transcript, VERSION, VERSION_MIN, Welcome, pack_semantics, read_outcomes, send,
    write_operations,
};

use super::{clock, secret};

/// Longer than any server takes on any machine: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What every server answers, and changes nothing.
pub fn namespaces() -> Operation {
    Operation::Namespaces { cursor: Vec::new() }
}

/// Opens an object; one that is missing is made where it is to be written.
pub fn opening(key: Key, access: Access) -> Operation {
    let create = match access {
        Access::Read => Create::Never,
        Access::Write => Create::IfMissing,
    };
    Operation::Open(Opening {
        key,
        create,
        access,
        size_hint_bytes: None,
        segment_bytes: None,
        hint: Hint::default(),
        identity: None,
        label: Arc::default(),
    })
}

/// One end of a connection.
pub struct Peer {
    pub socket: Arc<Socket>,
    reader: FrameReader<Incoming<Arc<Socket>>>,
    last_id: u64,
}

/// A frame of the server.
#[derive(Debug)]
pub struct Said {
    pub header: Header,
    pub head: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Peer {
    /// Connects, and says nothing.
    pub fn connect(endpoint: &Endpoint) -> Self {
        let socket = terrace_transport::connect(endpoint, PATIENCE, &*clock()).expect("connect");
        Self::new(socket)
    }

    /// One end of a pair; the other is to be given to a server.
    pub fn new(socket: Socket) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let socket = Arc::new(socket);
        let reader = FrameReader::new(Incoming(Arc::clone(&socket)));
        Self { socket, reader, last_id: 0 }
    }

    /// Connects and greets as it should be, with a session of its own.
    pub fn greeted(endpoint: &Endpoint) -> Self {
        let mut peer = Self::connect(endpoint);
        peer.greet(Some(&secret()), 0).expect("welcome");
        peer
    }

    /// Greets; with the session 0 a new one.
    pub fn greet(&mut self, secret: Option<&Secret>, session: u64) -> Result<Welcome> {
        self.greet_as(VERSION_MIN, VERSION, secret, session)
    }

    /// Greets as a client of these versions.
    pub fn greet_as(
        &mut self,
        version_min: u16,
        version_max: u16,
        secret: Option<&Secret>,
        session: u64,
    ) -> Result<Welcome> {
        let mut nonce = [0; NONCE_BYTES];
        random_bytes(&mut nonce)?;
        let hello = Hello { version_min, version_max, nonce };
        self.say(Kind::Hello, 0, &hello.to_head(), b"");
        let challenge = Challenge::from_head(&self.hear_kind(Kind::Challenge)?)?;
        let transcript = Transcript { hello: &hello, challenge: &challenge, channel: b"" };
        let proof = secret.map_or([0; PROOF_BYTES], |one| one.prove(Side::Client, transcript));
        let mut number = [0; 8];
        random_bytes(&mut number)?;
        let session = if session == 0 { u64::from_le_bytes(number) } else { session };
        let proof = Proof { proof, session, access: Access::Write };
        self.say(Kind::Proof, 0, &proof.to_head(), b"");
        let welcome = Welcome::from_head(&self.hear_kind(Kind::Welcome)?)?;
        if let Some(secret) = secret {
            assert!(secret.verify(Side::Server, transcript, &welcome.proof), "the server's proof");
        }
        Ok(welcome)
    }

    /// Sends a frame.
    pub fn say(&self, kind: Kind, id: u64, head: &[u8], payload: &[u8]) {
        self.say_header(&Header::new(kind, id, head, payload), head, payload);
    }

    /// Sends a frame with a header that need not be true.
    pub fn say_header(&self, header: &Header, head: &[u8], payload: &[u8]) {
        let mut start = Vec::new();
        header.write(head, &mut start);
        self.say_bytes(&[&start[..], payload].concat());
    }

    /// Sends bytes. A server that has closed the connection does not get them.
    pub fn say_bytes(&self, bytes: &[u8]) {
        let _ = send(&mut Outgoing(&*self.socket), bytes, &[]);
    }

    /// Sends a request; returns its number.
    pub fn ask(&mut self, operations: &[Operation], payload: &[u8]) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.ask_as(id, id, operations, payload);
        id
    }

    /// Sends a request of this number.
    pub fn ask_as(&self, id: u64, acknowledged: u64, operations: &[Operation], payload: &[u8]) {
        let head = write_operations(operations, payload.len() as u32);
        let semantics = pack_semantics(&Semantics::default());
        let header = Header::new(Kind::Request, id, &head, payload);
        self.say_header(&Header { acknowledged, semantics, ..header }, &head, payload);
    }

    /// Sends a request whose payload may be longer than a frame.
    pub fn ask_in_parts(&mut self, operations: &[Operation], payload: &[u8]) -> u64 {
        self.last_id += 1;
        let head = write_operations(operations, payload.len() as u32);
        let (mut kind, mut head) = (Kind::Request, &head[..]);
        let mut pieces = payload.chunks(PIECE_BYTES_MAX);
        let mut piece = pieces.next().unwrap_or_default();
        loop {
            self.say(kind, self.last_id, head, piece);
            (kind, head) = (Kind::Part, b"");
            match pieces.next() {
                Some(next) => piece = next,
                None => return self.last_id,
            }
        }
    }

    /// The next frame; `None` where the server has closed the connection, also in its midst.
    pub fn hear(&mut self) -> Option<Said> {
        let Start { header, head } = match self.reader.next(HEAD_BYTES_MAX) {
            Ok(Next::Frame(start)) => start,
            Ok(Next::End) => return None,
            Ok(Next::Idle) => panic!("the server does not answer"),
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable { .. }) => return None,
            Err(error) => panic!("{}", error.chain()),
        };
        let mut payload = Vec::new();
        self.reader.payload_behind(&header, &mut payload).ok()?;
        Some(Said { header, head, payload })
    }

    /// How the operations of a request ended, and what they read.
    pub fn outcomes(&mut self, id: u64) -> Result<(Vec<Outcome>, Vec<u8>)> {
        let mut payload = Vec::new();
        loop {
            let said = self.hear().expect("the connection lives");
            assert_eq!(said.header.id, id, "{said:?}");
            payload.extend(said.payload);
            match said.header.kind {
                Kind::Part => {}
                Kind::Answer => return Ok((read_outcomes(&said.head)?, payload)),
                Kind::Failed => return Err(Failure::from_head(&said.head)?.into_error()),
                other => panic!("a {other:?} instead of an answer"),
            }
        }
    }

    /// Asks and waits for the answer.
    pub fn done(&mut self, operations: &[Operation], payload: &[u8]) -> Vec<Outcome> {
        let id = self.ask(operations, payload);
        self.outcomes(id).expect("answered").0
    }

    /// Waits until the server has closed the connection; returns the last reason that it gave.
    pub fn reason_of_end(&mut self) -> Option<Error> {
        let mut reason = None;
        while let Some(said) = self.hear() {
            if said.header.kind == Kind::Failed && said.header.id == 0 {
                reason = Some(Failure::from_head(&said.head).expect("legal").into_error());
            }
        }
        reason
    }

    /// Says that nothing more comes.
    pub fn finish(&self) {
        self.socket.shutdown(Shutdown::Write);
    }

    fn hear_kind(&mut self, kind: Kind) -> Result<Vec<u8>> {
        let Some(said) = self.hear() else {
            return Err(Error::invalid("greet", "the server closed the connection"));
        };
        match said.header.kind {
            found if found == kind => Ok(said.head),
            Kind::Failed => Err(Failure::from_head(&said.head)?.into_error()),
            other => panic!("a {other:?} instead of a {kind:?}"),
        }
    }
}
