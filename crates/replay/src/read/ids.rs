// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One object a line, and nothing else: every object is 1 byte, and a line is a second.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use terrace_core::Result;

use super::names::{Named, Names, number_of};
use super::{BATCH, Source, Tells};
use crate::input::Input;
use crate::request::{Operation, Request};

pub(super) struct Ids {
    input: Input,
    count: u64,
    names: Names,
}

impl Ids {
    pub(super) fn new(input: Input) -> Self {
        Self { input, count: 0, names: Names::default() }
    }
}

impl Source for Ids {
    fn fill(&mut self, requests: &mut Vec<Request>) -> Result<()> {
        while requests.len() < BATCH {
            let Some(line) = self.input.line()? else { return Ok(()) };
            let name = line.trim_ascii();
            if name.is_empty() {
                continue;
            }
            let object = object_of(name);
            if name.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
                return Err(self.input.wrong("a line has more than one object"));
            }
            self.names.note_text(object, name);
            let time_ns = self.count.saturating_mul(1_000_000_000);
            self.count += 1;
            requests.push(Request::whole(time_ns, object, 1, Operation::Unknown));
        }
        Ok(())
    }

    fn tells(&self) -> Tells {
        Tells::default()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn want_names(&mut self) {
        self.names.want();
    }

    fn take_names(&mut self) -> Vec<(u64, Named)> {
        self.names.take()
    }
}

/// The number of an object with this name: the name itself where it is a number as numbers are
/// written, else a hash of it. That two of a million names have one hash is as likely as 1 in 30
/// million.
pub(super) fn object_of(name: &[u8]) -> u64 {
    number_of(name).unwrap_or_else(|| {
        let mut hasher = SipHasher13::new();
        hasher.write(name);
        hasher.finish()
    })
}
