// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a format could not hold of the requests that were written in it.

use crate::format::Format;
use crate::read::Tells;
use crate::request::{Operation, Request};

const SECOND_NS: u64 = 1_000_000_000;

/// What there was in what was kept.
#[derive(Default)]
pub(super) struct Lost {
    first_client: Option<u32>,
    has_clients: bool,
    has_latencies: bool,
    has_parts: bool,
    has_fractions: bool,
    has_operations: bool,
    /// Requests that are not known to be reads or writes.
    unknown: u64,
    /// What makes, opens, closes, cuts and deletes objects.
    lives: u64,
}

impl Lost {
    pub(super) fn look(&mut self, request: &Request) {
        let first = *self.first_client.get_or_insert(request.client);
        self.has_clients |= request.client != first;
        self.has_latencies |= request.latency_ns > 0;
        self.has_fractions |= !request.time_ns.is_multiple_of(SECOND_NS);
        if !request.operation.is_access() {
            self.lives += 1;
            return;
        }
        let is_whole = request.offset_bytes == 0 && request.length_bytes == request.size_bytes;
        self.has_parts |= !is_whole;
        match request.operation {
            Operation::Unknown => self.unknown += 1,
            _ => self.has_operations = true,
        }
    }

    /// Notes about a trace that was written in this format.
    pub(super) fn notes(&self, format: Format, tells: Tells) -> Vec<String> {
        let mut notes = Vec::new();
        match format {
            Format::Terrace => {
                if self.has_clients {
                    let instead = match tells.latencies && self.has_latencies {
                        true => "what overlapped is taken for that of several",
                        false => "everything is taken for that of one",
                    };
                    notes.push(format!("format {format} has no clients: {instead}"));
                }
                if self.unknown > 0 {
                    let unknown = self.unknown;
                    notes.push(format!(
                        "{unknown} requests are not known to be reads or writes, and are reads now"
                    ));
                }
            }
            Format::OracleGeneral => {
                let lost = [
                    (self.has_operations, "what was read and what written"),
                    (self.has_parts, "parts of objects"),
                    (self.has_fractions, "fractions of seconds"),
                    (self.has_clients, "clients"),
                    (self.has_latencies, "latencies"),
                    (self.lives > 0, "what creates, opens, closes, cuts and deletes objects"),
                ];
                let lost: Vec<_> = lost
                    .into_iter()
                    .filter(|(is_lost, _)| *is_lost)
                    .map(|(_, what)| what)
                    .collect();
                if !lost.is_empty() {
                    notes.push(format!(
                        "format {format} does not tell, and lost: {}",
                        lost.join(", ")
                    ));
                }
            }
            _ => {}
        }
        notes
    }
}
