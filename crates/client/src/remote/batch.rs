// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches: many operations with one round trip.

use terrace_core::{
    Atomicity, Error, ErrorKind, Op, Reply, Request, Result, Semantics, execute_each,
};
use terrace_wire::{OPERATIONS_MAX, Operation, Outcome};

use super::request::{Message, odd};
use super::{Remote, again};

/// Most bytes that the operations of one request write or read; more become several.
const REQUEST_BYTES_MAX: usize = 8 << 20;

/// Room of one operation in a head, beside its key.
const HEAD_BYTES: usize = 32;

/// Most bytes of heads of one request.
const HEADS_BYTES_MAX: usize = 512 << 10;

pub(super) fn execute(remote: &Remote, operations: &mut [Op<'_>], semantics: &Semantics) {
    let mut rest = operations;
    while !rest.is_empty() {
        let count = fitting(rest);
        let (now, later) = rest.split_at_mut(count.max(1));
        rest = later;
        let is_whole = semantics.atomicity != Atomicity::None;
        if count == 0 && !is_whole {
            // One operation with more bytes than is asked for at once.
            execute_each(remote, now, semantics);
            continue;
        }
        let carried_out = match count {
            // What is to be seen whole is one request, as long as it may be.
            0 => semantics
                .atomicity
                .check_bytes("run a batch", weight_bytes(&now[0].request))
                .and_then(|()| together(remote, now, semantics)),
            _ => together(remote, now, semantics),
        };
        if let Err(error) = carried_out {
            for operation in now.iter_mut() {
                operation.outcome = Some(Err(again(&error)));
            }
        }
    }
}

/// How many operations from the first on fit into one request.
fn fitting(operations: &[Op<'_>]) -> usize {
    let (mut bytes, mut heads_bytes) = (0, 0);
    let fits = |operation: &&Op<'_>| {
        bytes += weight_bytes(&operation.request);
        heads_bytes += HEAD_BYTES + operation.request.key().as_str().len();
        bytes <= REQUEST_BYTES_MAX && heads_bytes <= HEADS_BYTES_MAX
    };
    operations.iter().take(OPERATIONS_MAX).take_while(fits).count()
}

fn weight_bytes(request: &Request<'_>) -> usize {
    match request {
        Request::Create { data, .. } | Request::Write { data, .. } => data.len(),
        Request::Read { buffer, .. } => buffer.len(),
        Request::Stat { .. } | Request::Delete { .. } => 0,
    }
}

/// Carries out operations that fit one request.
fn together(remote: &Remote, operations: &mut [Op<'_>], semantics: &Semantics) -> Result<()> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut asked = Vec::with_capacity(operations.len());
    for operation in operations.iter() {
        let key = operation.request.key().clone();
        asked.push(match &operation.request {
            Request::Create { data, hint, .. } => {
                parts.push(data);
                Operation::Create { key, data_bytes: data.len() as u32, hint: *hint }
            }
            Request::Read { offset_bytes, buffer, .. } => Operation::Read {
                key,
                offset_bytes: *offset_bytes,
                length_bytes: buffer.len() as u32,
            },
            Request::Write { offset_bytes, data, .. } => {
                parts.push(data);
                let data_bytes = data.len() as u32;
                Operation::Write { key, offset_bytes: *offset_bytes, data_bytes }
            }
            Request::Stat { .. } => Operation::Stat { key },
            Request::Delete { .. } => Operation::Delete { key },
        });
    }
    let answer = remote.core.ask(&Message::request(&asked, &parts, semantics))?;
    let (outcomes, payload) = answer.outcomes(operations.len())?;
    let mut payload = &payload[..];
    for (operation, outcome) in operations.iter_mut().zip(outcomes) {
        operation.outcome = Some(ended(&mut operation.request, outcome, &mut payload));
    }
    Ok(())
}

fn ended(request: &mut Request<'_>, outcome: Outcome, payload: &mut &[u8]) -> Result<Reply> {
    match (outcome, request) {
        (Outcome::Failed(failure), _) => Err(failure.into_error()),
        (Outcome::Read(count), Request::Read { buffer, .. }) => {
            let count = count as usize;
            let space = buffer.get_mut(..count).ok_or_else(|| odd("it reads too much"))?;
            let (now, later) =
                payload.split_at_checked(count).ok_or_else(|| odd("its payload is too short"))?;
            space.copy_from_slice(now);
            *payload = later;
            Ok(Reply::Count(count))
        }
        (Outcome::Stat(stat), Request::Stat { .. }) => Ok(Reply::Stat(stat)),
        (
            Outcome::Done,
            Request::Create { .. } | Request::Write { .. } | Request::Delete { .. },
        ) => Ok(Reply::Done),
        _ => Err(Error::new(ErrorKind::Corrupt, "read an answer")
            .because("an operation ended as another one would")),
    }
}
