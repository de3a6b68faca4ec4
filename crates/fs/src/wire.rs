// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests and replies as bytes, for metadata that a server keeps.

use terrace_core::{Error, Result};

use crate::failure::{self, Failure, WireFailure};
use crate::metadata::Metadata;
use crate::node::CAPABILITY;
use crate::request::{Reply, Request, SetHow};

/// What a request does, for what carries it over a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It looks: asking twice is asking once.
    Look,
    /// It changes what the asker has open or locked.
    Hold,
    /// It changes what is stored.
    Change,
    /// It waits for storage.
    Sync,
}

impl Request<'_> {
    /// What it does.
    pub fn effect(&self) -> Effect {
        match self {
            Request::Lookup { .. }
            | Request::Node { .. }
            | Request::List { .. }
            | Request::Target { .. }
            | Request::Xattr { .. }
            | Request::Xattrs { .. }
            | Request::Content { .. }
            | Request::FindLock { .. }
            | Request::RenewAhead { .. }
            | Request::ListAhead { .. }
            | Request::Garbage { .. } => Effect::Look,
            // Also for writing: what is written says so by itself.
            Request::Open { .. }
            | Request::OpenAhead { .. }
            | Request::Close { .. }
            | Request::Lock { .. } => Effect::Hold,
            Request::Sync => Effect::Sync,
            Request::Change { .. }
            | Request::Make { .. }
            | Request::MakeNumbered { .. }
            | Request::Numbers { .. }
            | Request::Link { .. }
            | Request::Remove { .. }
            | Request::RemoveNumbered { .. }
            | Request::Rename { .. }
            | Request::SetXattr { .. }
            | Request::RemoveXattr { .. }
            | Request::Mark { .. }
            | Request::MarkOne { .. }
            | Request::Settle { .. }
            | Request::Write { .. }
            | Request::MoveOut { .. }
            | Request::NoteObject { .. }
            | Request::Reserve { .. }
            | Request::Collected { .. } => Effect::Change,
        }
    }

    /// Whether a change comes to the same when a server that was started anew carries it out again, not
    /// knowing that the one before did. Not so where the answer tells what was there before: whether a
    /// name was free or was there, or where the end was.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Request::Change { .. }
            | Request::Mark { .. }
            | Request::MarkOne { .. }
            | Request::Settle { .. }
            // One that was carried out finds the bytes elsewhere, as after another client.
            | Request::MoveOut { .. }
            | Request::NoteObject { .. }
            // Numbers that did not arrive name nothing.
            | Request::Reserve { .. }
            | Request::Numbers { .. }
            | Request::MakeNumbered { .. }
            // Names that are gone lead nowhere, or to other files.
            | Request::RemoveNumbered { .. }
            | Request::Collected { .. } => true,
            Request::Write { at_end, .. } => !at_end,
            Request::SetXattr { how, .. } => *how == SetHow::Any,
            // Mostly of a writer, which does not mind that it is gone.
            Request::RemoveXattr { name, .. } => *name == CAPABILITY,
            _ => false,
        }
    }

    /// The bytes of the request.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("memory takes everything, and no length is unknown")
    }
}

/// Carries out a request that came as bytes; the bytes of how it ended.
///
/// # Errors
///
/// `Invalid` for what is no request.
pub fn answer(metadata: &dyn Metadata, request: &[u8]) -> Result<Vec<u8>> {
    let request: Request<'_> = postcard::from_bytes(request).map_err(|error| {
        Error::invalid("ask a file system", "it is no request").caused_by(error)
    })?;
    let ended: Result<Reply, WireFailure> =
        metadata.call(&request).map_err(|failure| failure.to_wire());
    Ok(postcard::to_allocvec(&ended).expect("memory takes everything, and no length is unknown"))
}

/// Reads how a request ended.
///
/// # Errors
///
/// How it failed; `IO` for what is no answer.
pub fn read_answer(answer: &[u8]) -> failure::Result<Reply> {
    let ended: Result<Reply, WireFailure> = postcard::from_bytes(answer)
        .map_err(|_| Failure::corrupt("what the server sent is no answer"))?;
    ended.map_err(Failure::from_wire)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::node::Node;
    use crate::request::{Changes, Left, OpenedAhead, Settled};

    struct Always(failure::Result<Reply>);

    impl Metadata for Always {
        fn call(&self, _: &Request<'_>) -> failure::Result<Reply> {
            self.0.clone()
        }
    }

    #[test]
    fn failures_cross_as_they_are() {
        let request = Request::Lookup { directory: 1, name: b"a" }.encode();
        for ended in [
            Ok(Reply::Bytes(b"x".to_vec())),
            Err(Errno::NOTEMPTY.into()),
            Err(Failure::corrupt("x")),
        ] {
            let bytes = answer(&Always(ended.clone()), &request).expect("it is a request");
            assert_eq!(read_answer(&bytes), ended);
        }
    }

    /// Whatever is quickest to write and to read: clients and servers of other versions know this form.
    #[test]
    fn bytes_cross_as_a_sequence_of_numbers() {
        let (number, node, bytes) = (7_u64, Node::default(), vec![0_u8, 1, 127, 128, 255]);
        let rest = |encoded: &[u8]| encoded[1..].to_vec();
        let as_sequence = |rest: postcard::Result<Vec<u8>>| rest.expect("memory takes everything");
        let reply = |reply: &Reply| rest(&as_sequence(postcard::to_allocvec(reply)));
        let write = Request::Write {
            number,
            offset: 300,
            data: &bytes,
            at_end: true,
            clears_set_id: false,
        };
        let moved =
            Request::MoveOut { number, size: 5, content: &bytes, object_modified_ns: 1 << 40 };
        let content = bytes.clone();
        let opened = Reply::Opened { node: node.clone(), content: content.clone() };
        let ahead = Reply::OpenedAhead(vec![OpenedAhead { node: node.clone(), content }]);
        for (written, known) in [
            (
                rest(&write.encode()),
                postcard::to_allocvec(&(number, 300_u64, bytes.clone(), true, false)),
            ),
            (
                rest(&moved.encode()),
                postcard::to_allocvec(&(number, 5_u64, bytes.clone(), 1_u64 << 40)),
            ),
            (reply(&opened), postcard::to_allocvec(&(node.clone(), bytes.clone()))),
            (reply(&ahead), postcard::to_allocvec(&vec![(node, bytes.clone())])),
            (reply(&Reply::Bytes(bytes.clone())), postcard::to_allocvec(&bytes)),
        ] {
            assert_eq!(written, as_sequence(known));
        }
        for ended in [Ok(opened), Ok(ahead), Ok(Reply::Bytes(bytes.clone()))] {
            let read = answer(&Always(ended.clone()), &Request::Reserve { count: 1 }.encode());
            assert_eq!(read_answer(&read.expect("it is a request")), ended);
        }
        for request in [write, moved] {
            let encoded = request.encode();
            assert_eq!(postcard::from_bytes::<Request<'_>>(&encoded), Ok(request));
        }
    }

    #[test]
    fn how_a_file_was_left_is_read_by_servers_that_know_of_lengths_alone() {
        let settled = Settled { size: 7, allocated_bytes: 4096, modified_ns: 9 };
        for (left, known) in [(Left::Unknown, None), (Left::Settled(settled), Some(settled))] {
            let left = postcard::to_allocvec(&left).expect("it is short");
            assert_eq!(left, postcard::to_allocvec(&known).expect("it is short"));
        }
        let left = postcard::to_allocvec(&Left::Untouched).expect("it is short");
        assert!(postcard::from_bytes::<Option<Settled>>(&left).is_err());
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let changes = Changes { size: Some(7), ..Changes::default() };
        let good = Request::Change { number: 9, changes }.encode();
        for cut in 0..good.len() {
            assert!(answer(&Always(Ok(Reply::Done)), &good[..cut]).is_err(), "cut at {cut}");
        }
        assert!(answer(&Always(Ok(Reply::Done)), &[0xff; 16]).is_err());
        assert!(read_answer(&[0xff; 16]).is_err());
    }
}
