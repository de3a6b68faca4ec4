// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watching what happens in a store: the same whether owned or attached.

use std::time::Duration;

use terrace_core::Result;
use terrace_stack::WatchFilter;

use crate::Store;
use crate::control::Seen;
use crate::store::Side;

/// How often who watches is asked whether to go on, where nothing happens.
const TICK: Duration = Duration::from_millis(100);

impl Store {
    /// Watches what happens in the store, until `see` returns false.
    ///
    /// What the owner tells a watcher waits in a queue of 4 MiB; where the watcher is too slow,
    /// the oldest is thrown away, and the next notice is [`terrace_stack::Happening::Lost`]. The
    /// store itself never waits for a watcher.
    ///
    /// # Errors
    ///
    /// `Busy` where 16 watch already; `Unreachable` once the store is closed, or its owner or
    /// server went away; `Unsupported` for a store behind several servers.
    pub fn watch(&self, filter: &WatchFilter, see: &mut dyn FnMut(Seen) -> bool) -> Result<()> {
        let owned = match &self.side {
            Side::Owned(owned) => owned,
            Side::Attached(link) => return link.watch(filter, see),
        };
        let watcher = owned.stack.watch(filter)?;
        let mut goes_on = see(Seen::Begun);
        while goes_on {
            let notice = watcher.next(TICK)?.map(Box::new);
            goes_on = see(notice.map_or(Seen::Nothing, Seen::Notice));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use terrace_stack::{Happening, Notice, NoticeKind, TierNotice};

    use super::*;

    #[test]
    fn a_notice_reads_back_from_its_json() {
        let what = Happening::Tier(TierNotice { tier: "fast".into(), state: "full".into() });
        let notice = Notice { number: 3, wall_ns: 1 << 60, what };
        let json = serde_json::to_string(&notice).expect("JSON");
        assert_eq!(
            json,
            r#"{"number":3,"wall_ns":1152921504606846976,"kind":"tier","tier":"fast","state":"full"}"#
        );
        assert_eq!(serde_json::from_str::<Notice>(&json).expect("legal"), notice);
    }

    #[test]
    fn a_kind_has_one_word_for_people_and_programs() {
        for kind in NoticeKind::ALL {
            let json = serde_json::to_string(&kind).expect("JSON");
            assert_eq!(json, format!("{:?}", kind.word()));
        }
    }

    #[test]
    fn a_filter_may_leave_out_what_it_does_not_limit() {
        let filter: WatchFilter = serde_json::from_str(r#"{"kinds":["tier"]}"#).expect("legal");
        let expected = WatchFilter { kinds: vec![NoticeKind::Tier], ..WatchFilter::default() };
        assert_eq!(filter, expected);
    }
}
