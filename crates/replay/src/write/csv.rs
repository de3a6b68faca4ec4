// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Columns with a heading that the reader knows: nothing is lost.

use std::io::Write as _;

use terrace_core::Result;

use super::{Sink, Target};
use crate::request::Request;

const HEADING: &str = "time_ns,id,size,offset,length,op,client\n";

pub(super) struct Csv {
    target: Target,
    line: Vec<u8>,
}

impl Csv {
    pub(super) fn new(mut target: Target) -> Result<Self> {
        target.write(HEADING.as_bytes())?;
        Ok(Self { target, line: Vec::new() })
    }
}

impl Sink for Csv {
    fn push(&mut self, request: &Request) -> Result<()> {
        let Request { time_ns, object, size_bytes, offset_bytes, length_bytes, client, .. } =
            request;
        let word = request.operation.word();
        self.line.clear();
        writeln!(
            self.line,
            "{time_ns},{object},{size_bytes},{offset_bytes},{length_bytes},{word},{client}"
        )
        .expect("writing to memory works");
        self.target.write(&self.line)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.target.finish()
    }
}
