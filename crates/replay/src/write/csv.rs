// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Columns with a heading that the reader knows: nothing of a request is lost.
//!
//! Clients and latencies have a column where the other trace tells of them. A column of clients that are
//! all 0 would say that one client asked for everything.

use std::io::Write as _;

use terrace_core::Result;

use super::{Sink, Target};
use crate::read::Tells;
use crate::request::Request;

const HEADING: &str = "time_ns,id,size,offset,length,op";

pub(super) struct Csv {
    target: Target,
    tells: Tells,
    line: Vec<u8>,
}

impl Csv {
    pub(super) fn new(mut target: Target, tells: Tells) -> Result<Self> {
        let mut heading = String::from(HEADING);
        for (is_told, name) in [(tells.clients, ",client"), (tells.latencies, ",latency_ns")] {
            heading += if is_told { name } else { "" };
        }
        target.write(heading.as_bytes())?;
        target.write(b"\n")?;
        Ok(Self { target, tells, line: Vec::new() })
    }

    fn put(&mut self, request: &Request) -> std::io::Result<()> {
        let Request { time_ns, object, size_bytes, offset_bytes, length_bytes, .. } = request;
        let word = request.operation.word();
        write!(self.line, "{time_ns},{object},{size_bytes},{offset_bytes},{length_bytes},{word}")?;
        if self.tells.clients {
            write!(self.line, ",{}", request.client)?;
        }
        if self.tells.latencies {
            write!(self.line, ",{}", request.latency_ns)?;
        }
        self.line.write_all(b"\n")
    }
}

impl Sink for Csv {
    fn push(&mut self, request: &Request) -> Result<()> {
        self.line.clear();
        self.put(request).expect("writing to memory works");
        self.target.write(&self.line)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.target.finish()
    }
}
