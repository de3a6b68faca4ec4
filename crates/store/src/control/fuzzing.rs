// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the control socket's private protocol. Not for anybody else: it may change
//! with every version.

use serde::Serialize;
use serde::de::DeserializeOwned;
use terrace_core::{Access, Error, Result};

use super::call::{Call, Outcome};
use super::frame;
use super::session::Session;
use crate::store::{Side, Store};

/// A request or a reply: the part of its header that says which, in JSON, and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the request.
    pub id: u64,
    /// What it says.
    pub content: Vec<u8>,
    /// The bytes that belong to it.
    pub body: Vec<u8>,
}

/// Takes a request from a stream, as an owner does; `None` at its end.
///
/// # Errors
///
/// `Invalid` for anything that is no request.
pub fn receive_request(stream: &mut &[u8]) -> Result<Option<Message>> {
    receive::<Call>(stream)
}

/// Takes a reply from a stream, as who asked does; `None` at its end.
///
/// # Errors
///
/// `Invalid` for anything that is no reply.
pub fn receive_reply(stream: &mut &[u8]) -> Result<Option<Message>> {
    let message = receive::<Outcome>(stream)?;
    if let Some(Outcome::Error(failure)) = message.as_ref().map(content).transpose()? {
        // What the caller gets to see, and drops in the end.
        drop(failure.into_error());
    }
    Ok(message)
}

/// The frames of a request.
///
/// # Errors
///
/// `Invalid` where it is none, or its header is too long.
pub fn send_request(message: &Message) -> Result<Vec<u8>> {
    send::<Call>(message)
}

/// The frames of a reply.
///
/// # Errors
///
/// `Invalid` where it is none, or its header is too long.
pub fn send_reply(message: &Message) -> Result<Vec<u8>> {
    send::<Outcome>(message)
}

fn receive<T: DeserializeOwned + Serialize>(stream: &mut &[u8]) -> Result<Option<Message>> {
    let received = frame::receive::<T>(stream, frame::DATA_BYTES_MAX as u64)?;
    Ok(received.map(|(head, body)| Message { id: head.id, content: json(&head.content), body }))
}

fn send<T: DeserializeOwned + Serialize>(message: &Message) -> Result<Vec<u8>> {
    let mut stream = Vec::new();
    frame::send(&mut stream, message.id, content::<T>(message)?, &[&message.body])?;
    Ok(stream)
}

fn json(content: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(content).expect("what came as JSON is JSON")
}

fn content<T: DeserializeOwned>(message: &Message) -> Result<T> {
    serde_json::from_slice(&message.content)
        .map_err(|error| Error::invalid("read a message", "it is none").caused_by(error))
}

/// A session of one client with a store of this process.
pub struct Desk<'a> {
    store: &'a Store,
    session: Session,
}

impl<'a> Desk<'a> {
    /// Begins one.
    pub fn new(store: &'a Store, access: Access) -> Self {
        Self { store, session: Session::new(access) }
    }

    /// Carries out a request; returns the JSON of its answer, and bytes. What would only take time
    /// does not wait, and no shared library is loaded.
    ///
    /// # Errors
    ///
    /// `Invalid` where it is no request; what the store says.
    pub fn answer(&self, request: &Message) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut call: Call = content(request)?;
        match &mut call {
            Call::Wait { timeout_ns, .. } | Call::WaitIdle { timeout_ns } => *timeout_ns = 0,
            Call::SetPolicy { name, .. } => name.retain(|letter| letter != '/' && letter != '.'),
            _ => {}
        }
        let Side::Owned(owner) = &self.store.side else {
            return Err(Error::invalid("serve a request", "another process owns the store"));
        };
        let answer =
            self.session.carry_out(owner, call, &request.body, &mut |_, _| {}, &|| true)?;
        Ok((answer.json, answer.bytes))
    }
}
