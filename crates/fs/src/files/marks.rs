// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked of the tiers for a file, or for what is made in a directory.

use rustix::io::Errno;

use super::Files;
use crate::failure::Result;
use crate::node::{Marking, Node};
use crate::request::Request;

impl Files {
    /// Sets one thing that is asked of the tiers; what others set of the rest meanwhile stays. What is known
    /// of the node then.
    ///
    /// # Errors
    ///
    /// `STALE` where it is gone, `OPNOTSUPP` where it is neither a file nor a directory.
    pub fn mark(&self, number: u64, marking: &Marking) -> Result<Node> {
        let one = Request::MarkOne { number, marking: marking.clone() };
        match self.ask_node(&one) {
            // A server of before does not know the request.
            Err(failure) if failure.errno() == Errno::INVAL => {
                let mut marks = self.ask_node(&Request::Node { number })?.marks;
                marks.set(marking);
                self.ask_node(&Request::Mark { number, marks })
            }
            marked => marked,
        }
    }
}
