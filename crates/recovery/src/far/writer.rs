// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of the log that are made of commits.

use std::collections::VecDeque;

use bytes::Bytes;
use terrace_stack::{LogPiece, LogPoint, log_head, push_log_commit, push_log_end};

use crate::opened::Opened;

/// Longest object of the log, unless one commit is longer.
const OBJECT_BYTES: usize = 8 << 20;

/// The log as far as it is written.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) point: LogPoint,
    /// Whether the checkpoint that the log begins with is there.
    pub(super) is_rooted: bool,
    /// Whether `next` is known: the bucket was read.
    pub(super) is_placed: bool,
    /// The number of the next object.
    pub(super) next: u64,
    /// Objects that are to be created, from `next` on.
    pub(super) queue: VecDeque<Bytes>,
    /// The last commit in them.
    pub(super) last: u64,
    /// Bytes of the log since the last checkpoint.
    pub(super) bytes: u64,
}

impl Writer {
    /// Makes objects of what came.
    pub(super) fn take(&mut self, store_id: u128, pieces: Vec<LogPiece>, last: u64) {
        let mut buffer = Vec::new();
        for piece in pieces {
            match piece {
                LogPiece::Begin(point) => {
                    self.close(&mut buffer);
                    if point.log != self.point.log {
                        self.is_rooted = false;
                    }
                    self.point = point;
                }
                LogPiece::Commit(record) => {
                    if buffer.is_empty() {
                        buffer = log_head(store_id, self.point);
                    }
                    self.point.sequence += 1;
                    push_log_commit(&mut buffer, self.point.sequence, &record);
                    if buffer.len() >= OBJECT_BYTES {
                        self.close(&mut buffer);
                    }
                }
            }
        }
        self.close(&mut buffer);
        self.last = self.last.max(last);
    }

    fn close(&mut self, buffer: &mut Vec<u8>) {
        if !buffer.is_empty() {
            self.queue.push_back(std::mem::take(buffer).into());
        }
    }

    /// Notes that the store was closed and the log is complete.
    pub(super) fn end(&mut self, store_id: u128, opened: &Opened) {
        let mut buffer = match self.queue.pop_back() {
            Some(last) => last.to_vec(),
            None => log_head(store_id, self.point),
        };
        push_log_end(&mut buffer, self.point.sequence, opened.stack.opening());
        self.queue.push_back(buffer.into());
    }
}
