// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Administration of a store that another process owns: requests to its server.

use terrace_client::{CallAnswer, Heard, Remote};
use terrace_core::Result;
use terrace_server::Called;
use terrace_stack::WatchFilter;

use crate::operations::Admin;
use crate::reports::Seen;
use crate::request::{Progress, Request, read};

impl Admin for Remote {
    fn perform(&self, request: &Request<'_>, progress: Progress<'_>) -> Result<Called> {
        let mut hear = |done, total| _ = progress(done, total);
        let CallAnswer { json, body } = self.call(&request.json()?, &[request.body], &mut hear)?;
        Ok(Called { json, body })
    }

    fn watch(&self, filter: &WatchFilter, see: &mut dyn FnMut(Seen) -> bool) -> Result<()> {
        let mut has_begun = false;
        let mut broken = Ok(());
        let mut hear = |heard: Heard<'_>| match heard {
            Heard::Progress { .. } if !has_begun => {
                has_begun = true;
                see(Seen::Begun)
            }
            Heard::Progress { .. } | Heard::Silence => see(Seen::Nothing),
            Heard::Notice { json, .. } => match read(json) {
                Ok(notice) => see(Seen::Notice(notice)),
                Err(error) => {
                    broken = Err(error);
                    false
                }
            },
        };
        let request = Request::new("watch", b"").with("filter", filter)?;
        self.watch(&request.json()?, &mut hear)?;
        broken
    }
}
