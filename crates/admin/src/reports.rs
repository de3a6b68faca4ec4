// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What operations take and return, beside the reports of a stack.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use terrace_core::{Error, Result};
use terrace_fs::{Reached, TreeReport};
use terrace_stack::Notice;

/// What to record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The directory of the trace, absolute or relative to the working directory; `None` for the
    /// configured one, or `trace` in the directory of the store.
    pub directory: Option<String>,
    /// Record the policy's inputs and decisions, too.
    pub has_decisions: bool,
    /// Hash names.
    pub has_hashed_names: bool,
    /// Most bytes of all its files; `None` for the configured bound, or 1 GB.
    pub max_bytes: Option<u64>,
    /// Ends by itself after so many nanoseconds, also where its client is gone; `None` for
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<u64>,
}

impl Recording {
    /// The same for a process with another working directory.
    pub(crate) fn absolute(&self) -> Result<Self> {
        let directory = self.directory.as_deref().map(absolute).transpose()?;
        Ok(Self { directory, ..self.clone() })
    }
}

fn absolute(path: &str) -> Result<String> {
    let absolute = std::path::absolute(Path::new(path)).map_err(|error| {
        Error::from_io("find the directory of the trace", error).with("directory", path)
    })?;
    // What is given is text, the working directory may not be.
    absolute.into_os_string().into_string().map_err(|path| {
        Error::invalid("find the directory of the trace", "its path is not UTF-8")
            .with("directory", Path::new(&path).display())
    })
}

/// What a check found in one file system of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesReport {
    /// The file system.
    pub name: String,
    /// Whether it is in use, so that it was not checked.
    pub is_in_use: bool,
    /// The stores over which it lies, where these are several and recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// How the files are reached that places are about, of which was asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, Reached>,
    /// What was found.
    #[serde(flatten)]
    pub found: TreeReport,
}

/// The first places of a list, each once.
pub(crate) fn first_places(all: &[String]) -> Vec<&String> {
    // Where more is wrong a reader stops anyway, and a request has to fit into one frame.
    const PLACES_MAX: usize = 1000;
    let mut seen = BTreeSet::new();
    all.iter().filter(|place| seen.insert(*place)).take(PLACES_MAX).collect()
}

/// What a watcher sees.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// It watches: what happens from now on is sent. Comes once, as the first.
    Begun,
    /// Nothing happened for a moment.
    Nothing,
    /// Something happened.
    Notice(Box<Notice>),
}

#[cfg(test)]
mod tests {
    use terrace_stack::{Happening, NoticeKind, TierNotice, WatchFilter};

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
